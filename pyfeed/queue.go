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

// QueueOptions of a PyArrayFeedQueue.
type QueueOptions struct {
	Capacity   uint64 // in tuples
	BytesLimit uint64 // of all tuples queued or being written; 0: none
	Slots      []Slot
	Place      Place
	// Restartable: the producer can start over. The queue begins without a pass, the first Pop opens
	// one, and a reset of its reader the next; the producer follows with WaitPass.
	Restartable bool
	// AnyTuple: there are no Slots, tuples need not look alike.
	AnyTuple bool
	// Feed fills the queue in place of producers of this process; nil: they do.
	Feed Feed
	// Labels are those of a package that wraps the queue; nil: a queue's own.
	Labels *QueueLabels
}

// QueueLabels are what errors and traces call a queue and the waits in it.
type QueueLabels struct {
	Queue     string         // such as "queue"
	ForTuple  string         // a consumer's wait while the queue is empty, such as "waits for a push"
	TupleWait trace.Category // of that wait
}

var queueLabels = &QueueLabels{Queue: "queue", ForTuple: "waits for a push", TupleWait: trace.Producer}

// Input is the producers' end of a queue: the queue itself, or the Feed that wraps it.
type Input interface {
	// Reserve waits for room for a tuple and gives it memory: see PyArrayFeedQueue.Reserve.
	Reserve(ctx context.Context, pass Pass, t *Tuple) (Reservation, error)
	// Lend queues a tuple whose memory stays its owner's: see PyArrayFeedQueue.Lend.
	Lend(ctx context.Context, pass Pass, t *Tuple, owner memory.Owner) error
	// Close ends a pass: see PyArrayFeedQueue.Close.
	Close(pass Pass)
	// Fail ends a pass with an error: see PyArrayFeedQueue.Fail.
	Fail(pass Pass, failure error) error
}

// A Feed wraps a queue that worker processes fill. It is the Input of this process's producers, which may only end a pass;
// the tuples come from it by [PyArrayFeedQueue.Put].
type Feed interface {
	Input
	// Expect has the pass end when so many workers have ended their part of it.
	Expect(workers uint32)
	// Exited reports the exit status, or minus the signal, of a worker process.
	Exited(pid int, status int32)

	// The queue calls the following with its lock held: they MUST NOT wait, nor call the queue.

	// Starved: a consumer found the queue empty.
	Starved()
	// PassBegan: a pass has begun.
	PassBegan(pass Pass)
	// ShutDown: the queue takes no more.
	ShutDown()
}

// PyArrayFeedQueue is a bounded first-in-first-out queue of tuples, for any number of producers and
// consumers. It is made with its [Consumer], by which the tuples are popped.
//
// A tuple goes in in two steps, so that no lock is held while bytes move: Reserve checks it, waits for
// room and gives it memory, Reservation.Commit queues it. Order is that of the Commits. A tuple that has its data
// already is Put.
//
// The queue runs in passes. Close and Fail end one, Reopen begins the next. What was
// begun in a pass never lands in another.
type PyArrayFeedQueue struct {
	labels      *QueueLabels
	spec        *Spec
	place       Place
	capacity    int
	bytesLimit  int64
	restartable bool
	pool        *memory.Pool
	feed        Feed         // that wraps the queue; or nil
	references  atomic.Int32 // the Consumer, and Producers

	_ [52]byte // what stays as it is has cache lines to itself

	// What each tuple changes on its way in and out lies in two lines, which go to and fro between the processors of
	// producers and consumers.
	mu       sync.Mutex // guards what follows; held for tens of nanoseconds
	ring     []cell     // grows up to capacity
	head, n  int
	reserved int   // tuples that are being written
	bytes    int64 // of both

	pass       atomic.Uint64 // written under the lock
	closed     bool          // this pass takes no more
	isShutDown bool
	abandoned  bool // shut down, because no consumer was left
	failure    error
	counts     struct{ pushed, popped, dropped, pushedBytes uint64 }

	notFull  wait.List
	notEmpty wait.List
	opened   wait.List
	_        [16]byte // up to a size of which Go's allocator has each at the beginning of a line
}

// cell is a tuple in the ring, with the bytes that it counts for.
type cell struct {
	tuple *Tuple
	bytes int64
}

// NewQueue makes a queue with one reference of a consumer.
func NewQueue(o QueueOptions) (*Consumer, error) {
	switch {
	case o.Capacity == 0:
		return nil, Errorf(Invalid, "capacity: expected at least 1 tuple, found 0")
	case o.Capacity > 1<<40:
		return nil, Errorf(Invalid, "capacity: expected at most 2^40 tuples, found %d", o.Capacity)
	case o.BytesLimit > 1<<62:
		return nil, Errorf(Invalid, "bytes_limit: expected at most 2^62 bytes, found %d", o.BytesLimit)
	}
	spec := new(Spec)
	if !o.AnyTuple {
		var err error
		if spec, err = NewSpec(o.Slots); err != nil {
			return nil, err
		}
	}
	pool, err := HostPool(o.Place, memory.Queue)
	if err != nil {
		return nil, err
	}
	labels := o.Labels
	if labels == nil {
		labels = queueLabels
	}
	q := &PyArrayFeedQueue{
		labels: labels, spec: spec, place: o.Place, capacity: int(o.Capacity), bytesLimit: int64(o.BytesLimit),
		restartable: o.Restartable, pool: pool, feed: o.Feed,
	}
	q.pass.Store(uint64(PassNone))
	if !o.Restartable {
		q.pass.Store(0)
	}
	for _, l := range []*wait.List{&q.notFull, &q.notEmpty, &q.opened} {
		l.Init(&q.mu)
	}
	q.notFull.Named("waits for room in a "+labels.Queue, trace.Full)
	q.notEmpty.Named(labels.ForTuple, labels.TupleWait)
	q.opened.Named("waits for a pass", trace.Wait)
	return newConsumer(q), nil
}

// retain adds a reference, of the Consumer or a Producer.
func (q *PyArrayFeedQueue) retain() { q.references.Add(1) }

// release takes a reference away. With the last one the queue's memory goes.
func (q *PyArrayFeedQueue) release() {
	if q.references.Add(-1) == 0 {
		q.pool.Close()
	}
}

// Place is where consumers want the tuples.
func (q *PyArrayFeedQueue) Place() Place { return q.place }

// Spec is what the queue's tuples look like.
func (q *PyArrayFeedQueue) Spec() *Spec { return q.spec }

// Feed is what wraps the queue; nil: nothing does.
func (q *PyArrayFeedQueue) Feed() Feed { return q.feed }

// Input is where producers of this process push. The queue's own methods of that name are for what wraps it.
func (q *PyArrayFeedQueue) Input() Input {
	if q.feed != nil {
		return q.feed
	}
	return q
}

// Restartable says whether a new pass can be asked for.
func (q *PyArrayFeedQueue) Restartable() bool { return q.restartable }

// Pass is the number of the current pass; PassNone before the first.
func (q *PyArrayFeedQueue) Pass() Pass { return Pass(q.pass.Load()) }

// resolve makes PassCurrent the number of the pass.
func (q *PyArrayFeedQueue) resolve(pass Pass) Pass {
	if pass == PassCurrent {
		return q.Pass()
	}
	return pass
}

// A Reservation is room in a queue for a tuple that is being written. The zero Reservation is none.
type Reservation struct {
	queue *PyArrayFeedQueue
	pass  Pass
	bytes int64
}

// Reserve waits for room for t, whose slots have DType, dims and LoD, in the given pass, and gives it memory.
// Commit or Cancel of the Reservation MUST follow.
func (q *PyArrayFeedQueue) Reserve(ctx context.Context, pass Pass, t *Tuple) (Reservation, error) {
	bytes, err := q.checkTuple(t)
	if err != nil {
		return Reservation{}, err
	}
	r := Reservation{q, q.resolve(pass), bytes}
	_, err = wait.Do(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, q.tryReserve(ctx, r.pass, bytes) })
	if err != nil {
		return Reservation{}, err
	}
	if err := t.Allocate(q.pool); err != nil {
		r.release()
		return Reservation{}, err
	}
	return r, nil
}

func (q *PyArrayFeedQueue) tryReserve(ctx context.Context, pass Pass, bytes int64) error {
	q.mu.Lock()
	wake, err := q.reserveBytes(ctx, pass, bytes)
	if err == nil {
		q.reserved++
	}
	q.mu.Unlock()
	wake.Send()
	return err
}

// Held says whether there is a Reservation: the zero one is none.
func (r *Reservation) Held() bool { return r.queue != nil }

// Bytes is the size of the tuple's data.
func (r *Reservation) Bytes() int64 { return r.bytes }

// Commit queues the tuple that the room was reserved for, or a copy of it at a device. If its pass is over the tuple is
// released and the answer an error. It never waits.
func (r *Reservation) Commit(t *Tuple) error {
	q := r.queue
	q.mu.Lock()
	if err := q.checkPass(r.pass); err != nil {
		q.mu.Unlock()
		r.Cancel(t)
		return err
	}
	q.reserved--
	wake := q.pushBack(t, r.bytes)
	q.mu.Unlock()
	wake.Send()
	return nil
}

// Cancel gives the room back, and releases the tuple.
func (r *Reservation) Cancel(t *Tuple) {
	r.release()
	t.Release()
}

// release gives the room back.
func (r *Reservation) release() {
	q := r.queue
	q.mu.Lock()
	q.reserved--
	q.bytes -= r.bytes
	wake := q.notFull.One()
	q.mu.Unlock()
	wake.Send()
}

// Put queues t, which has its data, in one step. It waits for room. On an error t is still the
// caller's.
func (q *PyArrayFeedQueue) Put(ctx context.Context, pass Pass, t *Tuple) error {
	bytes, err := q.checkTuple(t)
	if err != nil {
		return err
	}
	at := q.resolve(pass)
	_, err = wait.Do(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, q.tryPut(ctx, at, bytes, t) })
	return err
}

func (q *PyArrayFeedQueue) tryPut(ctx context.Context, pass Pass, bytes int64, t *Tuple) error {
	q.mu.Lock()
	wake, err := q.reserveBytes(ctx, pass, bytes)
	var arrived wait.Wake
	if err == nil {
		arrived = q.pushBack(t, bytes)
	}
	q.mu.Unlock()
	wake.Send()
	arrived.Send()
	return err
}

// Lend queues t, whose slots have Data of their own, which owner reclaims when the consumer is
// done, unless the answer is an error. It waits for room. t is the queue's, come what may.
func (q *PyArrayFeedQueue) Lend(ctx context.Context, pass Pass, t *Tuple, owner memory.Owner) error {
	if len(t.Slots) > 0 {
		t.Borrow(owner)
	}
	err := q.Put(ctx, pass, t)
	if err != nil {
		for i := range t.Slots {
			t.Slots[i].buffer.ForgetOwner()
		}
		t.Release()
	}
	return err
}

// Push copies the tensors into the queue as a tuple. It waits for room.
func (q *PyArrayFeedQueue) Push(ctx context.Context, pass Pass, from []LoDTensor) error {
	r, t, err := ReserveCopy(ctx, q, pass, from)
	if err != nil {
		return err
	}
	return r.Commit(t)
}

// ReserveCopy copies the tensors to room that is reserved by in. It waits for that.
func ReserveCopy(ctx context.Context, in Input, pass Pass, from []LoDTensor) (Reservation, *Tuple, error) {
	t := NewTuple(len(from))
	for i := range from {
		s := &t.Slots[i]
		if err := from[i].OnHost(); err != nil {
			t.Release()
			return Reservation{}, nil, err
		}
		s.DType, s.LoD = from[i].DType, append(s.LoD, from[i].LoD...)
		_ = s.SetDims(from[i].Dims())
	}
	r, err := in.Reserve(ctx, pass, t)
	if err != nil {
		t.Release()
		return Reservation{}, nil, err
	}
	start := trace.Begin()
	for i := range from {
		Copy(t.Slots[i].Data, from[i].Data)
	}
	for i := range from {
		if err := from[i].CheckTruncated(i); err != nil {
			r.Cancel(t)
			return Reservation{}, nil, err
		}
	}
	if start != 0 {
		trace.CopySince(wait.TrackOf(ctx), "push", start, int(r.bytes))
	}
	return r, t, nil
}

// checkTuple says why the queue would never take t, and answers the bytes that t counts for.
func (q *PyArrayFeedQueue) checkTuple(t *Tuple) (bytes int64, err error) {
	if err := q.spec.Check(t); err != nil {
		return 0, err
	}
	for i := range t.Slots {
		t.Slots[i].Place = q.place.host()
		bytes += int64(t.Slots[i].size)
	}
	if q.bytesLimit > 0 && bytes > q.bytesLimit {
		return 0, Errorf(TooLarge, "bytes_limit: expected a tuple of at most %d bytes, found %d", q.bytesLimit, bytes)
	}
	return bytes, nil
}

// NoteProducer notes for the trace on which track the next tuples are made: that of the caller behind ctx, a run or a thread
// that reads. Without it, nothing is known of producers.
func (q *PyArrayFeedQueue) NoteProducer(ctx context.Context) {
	q.mu.Lock()
	q.notEmpty.ServedBy(wait.TrackOf(ctx))
	q.mu.Unlock()
}

// reserveBytes takes room for a tuple of so many bytes, or has the caller wait for it. The lock is held.
func (q *PyArrayFeedQueue) reserveBytes(ctx context.Context, pass Pass, bytes int64) (wake wait.Wake, err error) {
	if err := q.checkPass(pass); err != nil {
		return wake, err
	}
	full := q.n+q.reserved >= q.capacity
	if q.bytesLimit > 0 {
		// Small tuples must not keep a large one out for ever.
		full = full || q.bytes+bytes > q.bytesLimit || q.notFull.HasEarlier(ctx)
	}
	if full {
		return wake, q.notFull.Enter(ctx)
	}
	q.bytes += bytes
	if q.bytesLimit > 0 && q.n+q.reserved+1 < q.capacity {
		wake = q.notFull.One() // one large tuple taken out can be room for several
	}
	return wake, nil
}

// CheckPass says why a push of that pass would be refused; nil: it would not.
func (q *PyArrayFeedQueue) CheckPass(pass Pass) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.checkPass(pass)
}

// checkPass says why a push of that pass is refused. The lock is held.
func (q *PyArrayFeedQueue) checkPass(pass Pass) error {
	switch {
	case q.isShutDown:
		return q.shutDownError()
	case q.Pass() == PassNone:
		return Errorf(Closed, "the queue has no pass open yet: its producer waits for one with wait_pass")
	case pass != q.Pass():
		return Errorf(Closed, "pass %v of the queue is over, it is at pass %v", pass, q.Pass())
	case q.failure != nil:
		return Errorf(Closed, "the queue is closed: pass %v has failed", pass)
	case q.closed:
		return Errorf(Closed, "the queue is closed: pass %v takes no more tuples", pass)
	}
	return nil
}

// shutDownError says why a queue that is shut down takes nothing. The lock is held.
func (q *PyArrayFeedQueue) shutDownError() error {
	if q.abandoned {
		return Errorf(Closed, "the %s is shut down: no reader of it is left, nor any other consumer", q.labels.Queue)
	}
	return Errorf(Closed, "the %s is shut down", q.labels.Queue)
}

// pushBack queues a tuple for which there is room. The lock is held.
func (q *PyArrayFeedQueue) pushBack(t *Tuple, bytes int64) wait.Wake {
	if q.n == len(q.ring) {
		q.grow()
	}
	at := q.head + q.n
	if at >= len(q.ring) {
		at -= len(q.ring)
	}
	q.ring[at] = cell{t, bytes}
	q.n++
	q.counts.pushed++
	q.counts.pushedBytes += uint64(bytes)
	return q.notEmpty.One()
}

func (q *PyArrayFeedQueue) grow() {
	ring := make([]cell, min(max(2*len(q.ring), 16), q.capacity))
	k := copy(ring, q.ring[q.head:])
	copy(ring[k:], q.ring[:q.head])
	q.ring, q.head = ring, 0
}

func (q *PyArrayFeedQueue) popFront() *Tuple {
	c := q.ring[q.head]
	q.ring[q.head].tuple = nil
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
	q.n--
	q.bytes -= c.bytes
	return c.tuple
}

// Pop takes the oldest tuple, which is the caller's then. It waits for one. After the last: io.EOF
// if the queue was closed, the failure if it failed. On its way to a device the tuple is still in the host's memory,
// unless it was put there before.
func (q *PyArrayFeedQueue) Pop(ctx context.Context) (*Tuple, error) {
	t, _, err := q.PopPass(ctx)
	return t, err
}

// PopPass is Pop, with the pass that the tuple is of.
func (q *PyArrayFeedQueue) PopPass(ctx context.Context) (*Tuple, Pass, error) {
	p, err := wait.Do(ctx, func(ctx context.Context) (popped, error) { return q.tryPop(ctx) })
	return p.tuple, p.pass, err
}

type popped struct {
	tuple *Tuple
	pass  Pass
}

func (q *PyArrayFeedQueue) tryPop(ctx context.Context) (popped, error) {
	q.mu.Lock()
	if q.Pass() == PassNone && !q.isShutDown {
		q.beginPass()
	}
	pass := q.Pass()
	if wait.Began(ctx, q, uint64(pass)) != uint64(pass) {
		q.mu.Unlock()
		return popped{}, io.EOF
	}
	if q.n > 0 {
		t := q.popFront()
		q.counts.popped++
		wake := q.notFull.One()
		q.mu.Unlock()
		wake.Send()
		return popped{t, pass}, nil
	}
	var err error
	switch {
	case q.failure != nil && !q.isShutDown:
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
	return popped{}, err
}

// Close ends the given pass: no more pushes, what is queued is delivered, then
// io.EOF. Another pass is left alone.
func (q *PyArrayFeedQueue) Close(pass Pass) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.resolve(pass) == q.Pass() {
		q.endPass()
	}
}

// endPass ends the pass, and wakes all that wait in it. The lock is held.
func (q *PyArrayFeedQueue) endPass() {
	q.closed = true
	q.notFull.All()
	q.notEmpty.All()
}

// Fail ends the given pass as Close does, but with failure at its end. The
// first one counts; a pass that has ended otherwise cannot fail any more.
func (q *PyArrayFeedQueue) Fail(pass Pass, failure error) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.checkPass(q.resolve(pass)); err != nil {
		return err
	}
	q.failure = failure
	q.endPass()
	return nil
}

// Reopen ends the current pass, drops what is queued and begins the next, whose number it answers
// with the number of tuples dropped.
func (q *PyArrayFeedQueue) Reopen() (pass Pass, dropped uint64, err error) {
	q.mu.Lock()
	if q.isShutDown {
		err = q.shutDownError()
		q.mu.Unlock()
		return PassNone, 0, err
	}
	old := q.takeAll()
	q.beginPass()
	pass = q.Pass()
	q.mu.Unlock()
	releaseTuples(old)
	return pass, uint64(len(old)), nil
}

// isCurrent says whether what was popped in a pass may still be delivered: the queue is in that pass, and not shut down.
func (q *PyArrayFeedQueue) isCurrent(pass Pass) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.isShutDown && pass == q.Pass()
}

// Clear drops what is queued, in the middle of the pass, gives its memory back to the system, and answers
// the number of tuples. Those that wait for room get it.
func (q *PyArrayFeedQueue) Clear() int {
	q.mu.Lock()
	old := q.takeAll()
	for range old { // as many pops would: all at once would lose their order
		q.notFull.One().Send()
	}
	q.mu.Unlock()
	releaseTuples(old)
	q.pool.Trim()
	return len(old)
}

// beginPass begins the next pass. The lock is held.
func (q *PyArrayFeedQueue) beginPass() {
	q.pass.Store(uint64(q.Pass().next()))
	q.closed, q.failure = false, nil
	if q.feed != nil {
		q.feed.PassBegan(q.Pass())
	}
	q.notFull.All()
	q.notEmpty.All()
	q.opened.All()
}

// takeAll takes all that is queued out. The lock is held.
func (q *PyArrayFeedQueue) takeAll() []*Tuple {
	var old []*Tuple
	for q.n > 0 {
		old = append(old, q.popFront())
	}
	q.counts.dropped += uint64(len(old))
	return old
}

func releaseTuples(old []*Tuple) {
	for _, t := range old {
		t.Release()
	}
}

// WaitPass waits until a pass with a number above after (PassNone: any) is open, and answers its number.
func (q *PyArrayFeedQueue) WaitPass(ctx context.Context, after Pass) (Pass, error) {
	return wait.Do(ctx, func(ctx context.Context) (Pass, error) {
		q.mu.Lock()
		defer q.mu.Unlock()
		switch {
		case q.isShutDown:
			return PassNone, q.shutDownError()
		case q.Pass().After(after) && !q.closed:
			return q.Pass(), nil
		}
		return PassNone, q.opened.Enter(ctx)
	})
}

// Shutdown closes for good and drops what is queued. Twice is fine.
func (q *PyArrayFeedQueue) Shutdown() { q.shutdown(false) }

func (q *PyArrayFeedQueue) shutdown(abandoned bool) {
	q.mu.Lock()
	q.abandoned = q.abandoned || abandoned && !q.isShutDown
	q.isShutDown = true
	if q.feed != nil {
		q.feed.ShutDown()
	}
	old := q.takeAll()
	q.endPass()
	q.opened.All()
	q.mu.Unlock()
	releaseTuples(old)
}

// QueueInfo is the state of a queue at one moment.
type QueueInfo struct {
	Size, Capacity, Reserved              int
	Bytes, BytesLimit                     int64
	Pass                                  Pass
	Closed, Failed, ShutDown, Restartable bool
	WaitingProducers, WaitingConsumers    int
	Pushed, Popped, Dropped, PushedBytes  uint64
	ProducersWaited, ConsumersWaited      time.Duration // summed over threads
}

// Info looks at the queue.
func (q *PyArrayFeedQueue) Info() QueueInfo {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueInfo{
		Size: q.n, Capacity: q.capacity, Reserved: q.reserved,
		Bytes: q.bytes, BytesLimit: q.bytesLimit, Pass: q.Pass(),
		Closed: q.closed, Failed: q.failure != nil, ShutDown: q.isShutDown, Restartable: q.restartable,
		WaitingProducers: q.notFull.Len(), WaitingConsumers: q.notEmpty.Len(),
		Pushed: q.counts.pushed, Popped: q.counts.popped, Dropped: q.counts.dropped, PushedBytes: q.counts.pushedBytes,
		ProducersWaited: q.notFull.Waited(), ConsumersWaited: q.notEmpty.Waited(),
	}
}
