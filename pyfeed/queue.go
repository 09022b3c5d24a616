package pyfeed

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Options of a PyArrayFeedQueue.
type Options struct {
	Capacity   uint64 // in tuples
	BytesLimit uint64 // of all tuples queued or being written; 0: none
	Slots      []Slot
	Place      Place
	// Restartable: the producer can start over. The queue begins without a pass, the first Pop opens
	// one, and a reset of its reader the next; the producer follows with WaitPass.
	Restartable bool
	// Staging: for a staging buffer. There are no Slots: tuples need not look alike. What is waited for
	// comes from within.
	Staging bool
	// Feed fills the queue, and nobody else; nil: whoever pushes.
	Feed Feed
}

// A Feed fills a queue with tuples that come from elsewhere. The queue calls it with its lock held: its methods MUST NOT
// wait, nor call the queue.
type Feed interface {
	context.Context // of its own pushes: those with any other are refused
	// Starved: a consumer found nothing.
	Starved()
	// Ending asks for the end of the current pass, by [PyArrayFeedQueue.Finish] when all there is was pushed. It answers
	// false if that was asked for before.
	Ending(failure error) bool
	// Turned: a pass has begun; 0: the queue is shut down.
	Turned(pass uint64)
}

// PyArrayFeedQueue is a bounded first-in-first-out queue of tuples, for any number of producers and
// consumers. It is made only by a PyArrayFeedQueueHolder.
//
// A tuple goes in in two steps, so that no lock is held while bytes move: Begin checks it, waits for
// room and gives it memory, Commit queues it. Order is that of the Commits. A tuple that has its data
// already is Put.
//
// The queue runs in passes, numbered from 1. Close and Fail end one, Reopen begins the next. What was
// begun in a pass never lands in another.
type PyArrayFeedQueue struct {
	what        string // it is, for messages
	spec        *Spec
	place       Place
	capacity    int
	bytesLimit  int64
	restartable bool
	staging     bool
	pool        *memory.Pool
	stager      Stager    // of a staging buffer at a device; else nil
	delivery    *Delivery // to a device; else nil
	feed        Feed      // or nil
	references  atomic.Int32
	consumers   atomic.Int32 // of the references: all but those of Producers

	_ [16]byte // what stays as it is has cache lines to itself

	// What each tuple changes on its way in and out lies in two lines, which go to and fro between the processors of
	// producers and consumers.
	mu       sync.Mutex // guards what follows; held for tens of nanoseconds
	ring     []*Tuple   // grows up to capacity
	head, n  int
	reserved int   // begun, not yet committed
	bytes    int64 // of both

	pass     atomic.Uint64 // written under the lock
	closed   bool          // this pass takes no more
	shut     bool
	deserted bool // shut, because no consumer was left
	failure  error
	counts   struct{ pushed, popped, dropped, pushedBytes uint64 }

	notFull  wait.List
	notEmpty wait.List
	opened   wait.List
	_        [16]byte // up to a size of which Go's allocator has each at the beginning of a line
}

func newQueue(o Options) (*PyArrayFeedQueue, error) {
	switch {
	case o.Capacity == 0:
		return nil, Errorf(Invalid, "capacity: expected at least 1 tuple, found 0")
	case o.Capacity > 1<<40:
		return nil, Errorf(Invalid, "capacity: expected at most 2^40 tuples, found %d", o.Capacity)
	case o.BytesLimit > 1<<62:
		return nil, Errorf(Invalid, "bytes_limit: expected at most 2^62 bytes, found %d", o.BytesLimit)
	}
	what, spec := "staging buffer", new(Spec)
	if !o.Staging {
		var err error
		if spec, err = NewSpec(o.Slots); err != nil {
			return nil, err
		}
		what = "queue"
	}
	pool, err := HostPool(o.Place, memory.Queue)
	if err != nil {
		return nil, err
	}
	q := &PyArrayFeedQueue{
		what: what, spec: spec, place: o.Place, capacity: int(o.Capacity), bytesLimit: int64(o.BytesLimit), restartable: o.Restartable,
		staging: o.Staging,
		pool:    pool, feed: o.Feed,
	}
	if err := q.reach(o.Staging); err != nil {
		pool.Close()
		return nil, err
	}
	if !o.Restartable {
		q.pass.Store(1)
	}
	q.references.Store(1)
	q.consumers.Store(1)
	for _, l := range []*wait.List{&q.notFull, &q.notEmpty, &q.opened} {
		l.Init(&q.mu)
	}
	q.notFull.Named("waits for room in a "+what, trace.Full)
	q.notEmpty.Named("waits for a push", trace.Producer)
	q.opened.Named("waits for a pass", trace.Wait)
	if o.Staging {
		q.notEmpty.Named("waits for a staged tuple", trace.Wait)
	}
	return q, nil
}

// reach makes the way to the place, if that is a device's. What is staged is there as soon as it can be.
func (q *PyArrayFeedQueue) reach(staging bool) (err error) {
	if q.place.Kind != CUDA {
		return nil
	}
	q.delivery = NewDelivery(q.place)
	if staging {
		var b Backend
		if b, err = BackendOf(q.place); err == nil {
			q.stager, err = b.NewStager(q.place, Unlimited)
		}
	}
	return err
}

// Retain adds a reference of a consumer: one by which tuples can be popped, or readers made that pop.
func (q *PyArrayFeedQueue) Retain() *PyArrayFeedQueue {
	q.consumers.Add(1)
	q.references.Add(1)
	return q
}

// Drop takes a consumer's reference away. After the last one nothing can pop any more: the queue is shut down, so that
// its producers end. Its memory goes back with the last reference.
func (q *PyArrayFeedQueue) Drop() {
	if q.consumers.Add(-1) == 0 {
		q.shutdown(true)
		q.pool.Trim() // producers may keep their references for long
	}
	q.letGo()
}

// letGo takes a reference of either kind away.
func (q *PyArrayFeedQueue) letGo() {
	if q.references.Add(-1) > 0 {
		return
	}
	if q.delivery != nil {
		q.delivery.Close()
	}
	if q.stager != nil {
		q.stager.Close()
	}
	q.pool.Close()
}

// Producer is a reference to a queue by which nothing is popped. It keeps the queue's memory, but does not keep the queue
// open.
type Producer PyArrayFeedQueue

// Producer adds a producer's reference. The caller MUST have one of either kind.
func (q *PyArrayFeedQueue) Producer() *Producer {
	q.references.Add(1)
	return (*Producer)(q)
}

// Queue is the queue, with the reference still the Producer's.
func (p *Producer) Queue() *PyArrayFeedQueue { return (*PyArrayFeedQueue)(p) }

// Drop takes the reference away.
func (p *Producer) Drop() { p.Queue().letGo() }

// Place is where consumers want the tuples.
func (q *PyArrayFeedQueue) Place() Place { return q.place }

// Spec is what the queue's tuples look like.
func (q *PyArrayFeedQueue) Spec() *Spec { return q.spec }

// Restartable says whether a new pass can be asked for.
func (q *PyArrayFeedQueue) Restartable() bool { return q.restartable }

// Pass is the number of the current pass; 0 before the first.
func (q *PyArrayFeedQueue) Pass() uint64 { return q.pass.Load() }

// Begin reserves a place for t, whose slots have DType, dims and LoD, in the given pass (0: the
// current one), and gives it memory. It waits for room. Then: Commit, or t.Release to give up.
func (q *PyArrayFeedQueue) Begin(ctx context.Context, pass uint64, t *Tuple) error {
	if err := q.admit(ctx, pass, t, (*PyArrayFeedQueue).tryReserve); err != nil {
		return err
	}
	if err := t.Allocate(q.pool); err != nil {
		t.queue = nil
		q.unreserve(t)
		return err
	}
	return nil
}

// Put queues t, which has its data, in one step. It waits for room. On an error t is still the
// caller's.
func (q *PyArrayFeedQueue) Put(ctx context.Context, pass uint64, t *Tuple) error {
	return q.admit(ctx, pass, t, (*PyArrayFeedQueue).tryPut)
}

// Lend queues t, whose slots have Data of their own, which giver gets back when the consumer is
// done, unless the answer is an error. It waits for room. t is the queue's, come what may.
func (q *PyArrayFeedQueue) Lend(ctx context.Context, pass uint64, t *Tuple, giver memory.Giver) error {
	if len(t.Slots) > 0 {
		t.Borrow(giver)
	}
	err := q.Put(ctx, pass, t)
	if err != nil {
		for i := range t.Slots {
			t.Slots[i].buffer.Disown()
		}
		t.Release()
	}
	return err
}

// Push copies the tuple from into the queue. It waits for room.
func (q *PyArrayFeedQueue) Push(ctx context.Context, pass uint64, from []LoDTensor) error {
	t := NewTuple(len(from))
	for i := range from {
		s := &t.Slots[i]
		if err := from[i].OnHost(); err != nil {
			t.Release()
			return err
		}
		s.DType, s.LoD = from[i].DType, append(s.LoD, from[i].LoD...)
		_ = s.SetDims(from[i].Dims())
	}
	if err := q.Begin(ctx, pass, t); err != nil {
		t.Release()
		return err
	}
	start := trace.Begin()
	for i := range from {
		Copy(t.Slots[i].Data, from[i].Data)
	}
	for i := range from {
		if err := from[i].Intact(i); err != nil {
			t.Release()
			return err
		}
	}
	if start != 0 {
		trace.CopySince(wait.TrackOf(ctx), "push", start, int(t.bytes))
	}
	return q.Commit(t)
}

// fits says why the queue would never take t, and works out the bytes that t counts for.
func (q *PyArrayFeedQueue) fits(t *Tuple) error {
	if err := q.spec.Check(t); err != nil {
		return err
	}
	t.bytes = 0
	for i := range t.Slots {
		t.Slots[i].Place = q.place.Host()
		t.bytes += int64(t.Slots[i].size)
	}
	if q.bytesLimit > 0 && t.bytes > q.bytesLimit {
		return Errorf(TooLarge, "bytes_limit: expected a tuple of at most %d bytes, found %d", q.bytesLimit, t.bytes)
	}
	return nil
}

// admit waits until try finds room.
func (q *PyArrayFeedQueue) admit(ctx context.Context, pass uint64, t *Tuple,
	try func(*PyArrayFeedQueue, context.Context, uint64, *Tuple) error) error {
	if q.feed != nil && ctx != context.Context(q.feed) {
		return Errorf(State, "push: this queue is filled by worker processes, each with a producer of its own")
	}
	if err := q.fits(t); err != nil {
		return err
	}
	if pass == 0 {
		pass = q.Pass()
	}
	_, err := wait.Do(ctx, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, try(q, ctx, pass, t)
	})
	return err
}

func (q *PyArrayFeedQueue) tryReserve(ctx context.Context, pass uint64, t *Tuple) error {
	q.mu.Lock()
	wake, err := q.room(ctx, pass, t)
	if q.staging {
		q.noteServer(ctx)
	}
	if err == nil {
		q.reserved++
		t.queue = q
	}
	q.mu.Unlock()
	wake.Send()
	return err
}

func (q *PyArrayFeedQueue) tryPut(ctx context.Context, pass uint64, t *Tuple) error {
	q.mu.Lock()
	wake, err := q.room(ctx, pass, t)
	if q.staging {
		q.noteServer(ctx)
	}
	var arrived wait.Wake
	if err == nil {
		arrived = q.add(t)
	}
	q.mu.Unlock()
	wake.Send()
	arrived.Send()
	return err
}

// noteServer tells the trace that what is staged comes from the caller, a run or a thread that reads. The lock is held.
func (q *PyArrayFeedQueue) noteServer(ctx context.Context) {
	if trace.On() {
		q.notEmpty.ServedBy(wait.TrackOf(ctx))
	}
}

// room takes room for t, or has the caller wait for it. The lock is held.
func (q *PyArrayFeedQueue) room(ctx context.Context, pass uint64, t *Tuple) (wake wait.Wake, err error) {
	if err := q.takes(pass); err != nil {
		return wake, err
	}
	full := q.n+q.reserved >= q.capacity
	if q.bytesLimit > 0 {
		// Small tuples must not keep a large one out for ever.
		full = full || q.bytes+t.bytes > q.bytesLimit || q.notFull.Behind(ctx)
	}
	if full {
		return wake, q.notFull.Enter(ctx)
	}
	q.bytes += t.bytes
	t.pass = pass
	if q.bytesLimit > 0 && q.n+q.reserved+1 < q.capacity {
		wake = q.notFull.One() // one large tuple taken out can be room for several
	}
	return wake, nil
}

// takes says why a push of that pass is refused. The lock is held.
func (q *PyArrayFeedQueue) takes(pass uint64) error {
	switch {
	case q.shut:
		return q.isShut()
	case q.Pass() == 0:
		return Errorf(Closed, "the queue has no pass open yet: its producer waits for one with wait_pass")
	case pass != q.Pass():
		return Errorf(Closed, "pass %d of the queue is over, it is at pass %d", pass, q.Pass())
	case q.failure != nil:
		return Errorf(Closed, "the queue is closed: pass %d has failed", q.Pass())
	case q.closed:
		return Errorf(Closed, "the queue is closed: pass %d takes no more tuples", q.Pass())
	}
	return nil
}

// isShut says why a queue that is shut down takes nothing. The lock is held.
func (q *PyArrayFeedQueue) isShut() error {
	if q.deserted {
		return Errorf(Closed, "the %s is shut down: no reader of it is left, nor any other consumer", q.what)
	}
	return Errorf(Closed, "the %s is shut down", q.what)
}

// unreserve gives the place of a tuple that was begun back.
func (q *PyArrayFeedQueue) unreserve(t *Tuple) {
	q.mu.Lock()
	q.reserved--
	q.bytes -= t.bytes
	wake := q.notFull.One()
	q.mu.Unlock()
	wake.Send()
}

// Commit queues a tuple that was begun. If its pass is over the tuple is released and the answer an
// error. It never waits.
func (q *PyArrayFeedQueue) Commit(t *Tuple) error {
	if q.stager != nil {
		var err error
		if t, err = q.stage(t); err != nil {
			return err
		}
	}
	q.mu.Lock()
	if err := q.takes(t.pass); err != nil {
		q.mu.Unlock()
		t.Release()
		return err
	}
	q.reserved--
	t.queue = nil
	wake := q.add(t)
	q.mu.Unlock()
	wake.Send()
	return nil
}

// stage makes of a tuple that was begun one at the device, in its place in the queue. After an error there is neither.
func (q *PyArrayFeedQueue) stage(t *Tuple) (*Tuple, error) {
	bytes, pass := t.bytes, t.pass
	t.queue = nil // the place passes to the other
	out, err := q.stager.Put(wait.Never, t)
	if err != nil {
		t.queue = q
		t.Release()
		return nil, err
	}
	out.bytes, out.pass, out.queue = bytes, pass, q
	return out, nil
}

// add puts a tuple for which there is room last. The lock is held.
func (q *PyArrayFeedQueue) add(t *Tuple) wait.Wake {
	if q.n == len(q.ring) {
		q.grow()
	}
	at := q.head + q.n
	if at >= len(q.ring) {
		at -= len(q.ring)
	}
	q.ring[at] = t
	q.n++
	q.counts.pushed++
	q.counts.pushedBytes += uint64(t.bytes)
	return q.notEmpty.One()
}

func (q *PyArrayFeedQueue) grow() {
	ring := make([]*Tuple, min(max(2*len(q.ring), 16), q.capacity))
	k := copy(ring, q.ring[q.head:])
	copy(ring[k:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

func (q *PyArrayFeedQueue) take() *Tuple {
	t := q.ring[q.head]
	q.ring[q.head] = nil
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
	q.n--
	q.bytes -= t.bytes
	return t
}

// Deliver is Pop for a consumer: the tuple is at the queue's place.
func (q *PyArrayFeedQueue) Deliver(ctx context.Context) (*Tuple, error) {
	if q.delivery == nil {
		return q.Pop(ctx)
	}
	return wait.Do(ctx, func(ctx context.Context) (*Tuple, error) { return q.delivery.Next(ctx, q.tryPop) })
}

// Pop takes the oldest tuple, which is the caller's then. It waits for one. After the last: io.EOF
// if the queue was closed, the failure if it failed. On its way to a device the tuple is still in the host's memory,
// unless it was staged.
func (q *PyArrayFeedQueue) Pop(ctx context.Context) (*Tuple, error) {
	return wait.Do(ctx, func(ctx context.Context) (*Tuple, error) { return q.tryPop(ctx) })
}

func (q *PyArrayFeedQueue) tryPop(ctx context.Context) (*Tuple, error) {
	q.mu.Lock()
	if q.Pass() == 0 && !q.shut {
		q.open()
	}
	if wait.Began(ctx, q, q.Pass()) != q.Pass() {
		q.mu.Unlock()
		return nil, io.EOF
	}
	if q.n > 0 {
		t := q.take()
		q.counts.popped++
		wake := q.notFull.One()
		q.mu.Unlock()
		wake.Send()
		return t, nil
	}
	var err error
	switch {
	case q.failure != nil && !q.shut:
		err = q.failure
	case q.closed:
		err = io.EOF
	default:
		if q.feed != nil {
			q.feed.Starved()
		}
		err = q.notEmpty.Enter(ctx)
	}
	q.mu.Unlock()
	return nil, err
}

// Close ends the given pass (0: the current one): no more pushes, what is queued is delivered, then
// io.EOF. Another pass is left alone.
func (q *PyArrayFeedQueue) Close(pass uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case pass != 0 && pass != q.Pass():
	case q.feed != nil && !q.closed && !q.shut:
		q.feed.Ending(nil)
	default:
		q.end()
	}
}

// end is for the lock's holder.
func (q *PyArrayFeedQueue) end() {
	q.closed = true
	q.notFull.All()
	q.notEmpty.All()
}

// Fail ends the given pass (0: the current one) as Close does, but with failure at its end. The
// first one counts; a pass that has ended otherwise cannot fail any more.
func (q *PyArrayFeedQueue) Fail(pass uint64, failure error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if pass == 0 {
		pass = q.Pass()
	}
	if err := q.takes(pass); err != nil {
		return err
	}
	if q.feed != nil {
		if !q.feed.Ending(failure) {
			return Errorf(Closed, "the queue is closed: pass %d takes no more tuples", pass)
		}
		return nil
	}
	q.failure = failure
	q.end()
	return nil
}

// Finish ends a pass that its Feed was asked to end, with a failure or nil.
func (q *PyArrayFeedQueue) Finish(pass uint64, failure error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.takes(pass) == nil {
		q.failure = failure
		q.end()
	}
}

// Feed is what fills the queue, or nil.
func (q *PyArrayFeedQueue) Feed() Feed { return q.feed }

// Reopen ends the current pass, drops what is queued and begins the next, whose number it answers
// with the number of tuples dropped.
func (q *PyArrayFeedQueue) Reopen() (pass, dropped uint64, err error) {
	q.mu.Lock()
	if q.shut {
		err = q.isShut()
		q.mu.Unlock()
		return 0, 0, err
	}
	old := q.empty()
	q.open()
	pass = q.Pass()
	q.mu.Unlock()
	release(old)
	if q.delivery != nil {
		q.delivery.dropBefore(pass)
	}
	return pass, uint64(len(old)), nil
}

// Clear drops what is queued, in the middle of the pass, gives its memory back to the system, and answers
// the number of tuples. Those that wait for room get it.
func (q *PyArrayFeedQueue) Clear() int {
	q.mu.Lock()
	old := q.empty()
	for range old { // as many pops would: all at once would lose their order
		q.notFull.One().Send()
	}
	q.mu.Unlock()
	release(old)
	q.pool.Trim()
	return len(old)
}

// open begins the next pass. The lock is held.
func (q *PyArrayFeedQueue) open() {
	q.pass.Add(1)
	q.closed, q.failure = false, nil
	if q.feed != nil {
		q.feed.Turned(q.Pass())
	}
	q.notFull.All()
	q.notEmpty.All()
	q.opened.All()
}

// empty takes all that is queued out. The lock is held.
func (q *PyArrayFeedQueue) empty() []*Tuple {
	var old []*Tuple
	for q.n > 0 {
		old = append(old, q.take())
	}
	q.counts.dropped += uint64(len(old))
	return old
}

func release(old []*Tuple) {
	for _, t := range old {
		t.Release()
	}
}

// WaitPass waits until a pass with a number above after is open, and answers its number.
func (q *PyArrayFeedQueue) WaitPass(ctx context.Context, after uint64) (uint64, error) {
	return wait.Do(ctx, func(ctx context.Context) (uint64, error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case q.shut:
			return 0, q.isShut()
		case q.Pass() > after && !q.closed:
			return q.Pass(), nil
		}
		return 0, q.opened.Enter(ctx)
	})
}

// Shutdown closes for good and drops what is queued. Twice is fine.
func (q *PyArrayFeedQueue) Shutdown() { q.shutdown(false) }

func (q *PyArrayFeedQueue) shutdown(deserted bool) {
	q.mu.Lock()
	q.deserted = q.deserted || deserted && !q.shut
	q.shut = true
	if q.feed != nil {
		q.feed.Turned(0)
	}
	old := q.empty()
	q.end()
	q.opened.All()
	q.mu.Unlock()
	release(old)
	if q.delivery != nil {
		q.delivery.Drop()
	}
}

// Info is the state of a queue at one moment.
type Info struct {
	Size, Capacity, Reserved              int
	Bytes, BytesLimit                     int64
	Pass                                  uint64
	Closed, Failed, ShutDown, Restartable bool
	WaitingProducers, WaitingConsumers    int
	Pushed, Popped, Dropped, PushedBytes  uint64
	ProducersWaited, ConsumersWaited      time.Duration // summed over threads
}

// Info looks at the queue.
func (q *PyArrayFeedQueue) Info() Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Info{
		Size: q.n, Capacity: q.capacity, Reserved: q.reserved,
		Bytes: q.bytes, BytesLimit: q.bytesLimit, Pass: q.Pass(),
		Closed: q.closed, Failed: q.failure != nil, ShutDown: q.shut, Restartable: q.restartable,
		WaitingProducers: q.notFull.Len(), WaitingConsumers: q.notEmpty.Len(),
		Pushed: q.counts.pushed, Popped: q.counts.popped, Dropped: q.counts.dropped, PushedBytes: q.counts.pushedBytes,
		ProducersWaited: q.notFull.Waited(), ConsumersWaited: q.notEmpty.Waited(),
	}
}

// PyArrayFeedQueueHolder is what a Variable holds before there is a queue: it puts the making off
// until the queue's shape is known.
type PyArrayFeedQueueHolder struct {
	mu     sync.Mutex
	feeder *PyArrayFeedQueue
}

// InitOnce makes the queue, and answers it with a reference that the caller drops. A second time is
// an error.
func (h *PyArrayFeedQueueHolder) InitOnce(o Options) (*PyArrayFeedQueue, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeder != nil {
		return nil, Errorf(State, "init_once: this holder's queue was made already, with capacity %d", h.feeder.capacity)
	}
	q, err := newQueue(o)
	if err != nil {
		return nil, err
	}
	h.feeder = q
	return q.Retain(), nil
}

// Feeder is the queue, with a reference that the caller drops; an error before InitOnce.
func (h *PyArrayFeedQueueHolder) Feeder() (*PyArrayFeedQueue, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeder == nil {
		return nil, Errorf(State, "feeder: the holder has no queue before init_once")
	}
	return h.feeder.Retain(), nil
}

// Drop lets go of the queue.
func (h *PyArrayFeedQueueHolder) Drop() {
	h.mu.Lock()
	q := h.feeder
	h.feeder = nil
	h.mu.Unlock()
	if q != nil {
		q.Drop()
	}
}
