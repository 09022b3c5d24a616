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

// QueueOptions are the options of a PyArrayFeedQueue.
type QueueOptions struct {
	Capacity   uint64 // in tuples
	BytesLimit uint64 // limits the bytes of all tuples queued or being written; 0: no limit
	Slots      []Slot
	Place      Place
	// Restartable means that the producer can start over. The queue begins without a pass. The first Pop opens a pass,
	// and each reset of the queue's reader opens the next. The producer follows with WaitPass.
	Restartable bool
	// AnyTuple means that there are no Slots: each tuple may have its own.
	AnyTuple bool
	// Feed fills the queue; nil: producers of this process push.
	Feed Feed
	// Labels are given by a package that wraps the queue; nil: the queue's own.
	Labels *QueueLabels
}

// QueueLabels are the names that errors and traces use for a queue and the waits in it.
type QueueLabels struct {
	Queue     string         // such as "queue"
	ForTuple  string         // name of a consumer's wait while the queue is empty, such as "waits for a push"
	TupleWait trace.Category // category of that wait
}

var queueLabels = &QueueLabels{Queue: "queue", ForTuple: "waits for a push", TupleWait: trace.Producer}

// Input is the producers' end of a queue: the queue itself, or the Feed that wraps it.
type Input interface {
	// Reserve waits for room for a tuple and allocates its memory: see PyArrayFeedQueue.Reserve.
	Reserve(ctx context.Context, pass Pass, t *Tuple) (Reservation, error)
	// Lend queues a tuple whose memory still belongs to its owner: see PyArrayFeedQueue.Lend.
	Lend(ctx context.Context, pass Pass, t *Tuple, owner memory.Owner) error
	// Close ends a pass: see PyArrayFeedQueue.Close.
	Close(pass Pass)
	// Fail ends a pass with an error: see PyArrayFeedQueue.Fail.
	Fail(pass Pass, failure error) error
}

// A Feed wraps a queue that worker processes fill. The Feed queues the workers' tuples with [PyArrayFeedQueue.Put]. It
// is also the Input of producers in this process, which may only end a pass.
type Feed interface {
	Input
	// Expect sets the number of workers: the pass ends when that many have ended their part of it.
	Expect(workers uint32)
	// Exited reports the exit status of a worker process, or minus the signal number that ended it.
	Exited(pid int, status int32)
	// AtWork reports whether a worker process may still put a tuple into the queue without a pop: there is room, and a
	// worker is attached, or `coming` has the process id of one that has not attached in this pass. If the workers
	// compute the results of a map reader, it reports whether a result is still to come instead.
	AtWork(coming []int) bool

	// The queue calls the following methods with its lock held. They MUST NOT wait or call the queue.

	// Starved reports that a consumer found the queue empty.
	Starved()
	// PassBegan reports that a pass has begun.
	PassBegan(pass Pass)
	// ShutDown reports that the queue is shut down.
	ShutDown()
}

// PyArrayFeedQueue is a bounded first-in-first-out queue of tuples for any number of producers and consumers. It is
// made with its [Consumer], which pops the tuples.
//
// A push has two steps, so that no lock is held while bytes are copied: Reserve checks the tuple, waits for room and
// allocates memory; Reservation.Commit queues the tuple. Tuples are popped in the order of the Commits. Put queues a
// tuple that already has its data.
//
// The queue runs in passes. Close and Fail end the current pass, Reopen begins the next. A tuple that was begun in one
// pass is never queued in another.
type PyArrayFeedQueue struct {
	labels      *QueueLabels
	spec        *Spec
	place       Place
	capacity    int
	bytesLimit  int64
	restartable bool
	pool        *memory.Pool
	feed        Feed         // the wrapper of the queue, or nil
	references  atomic.Int32 // of the Consumer and the Producers

	_ [52]byte // keeps the fields above, which do not change, off the cache lines below

	// The fields that every push and pop changes fit into two cache lines, which move between the processors of
	// producers and consumers.
	mu       sync.Mutex // guards the fields below; held for tens of nanoseconds
	ring     []cell     // grows up to capacity
	head, n  int
	reserved int   // number of tuples being written
	bytes    int64 // of tuples queued or being written

	pass       atomic.Uint64 // written with the lock held
	closed     bool          // the pass accepts no more tuples
	isShutDown bool
	abandoned  bool // shut down because the last consumer was dropped
	failure    error
	counts     struct{ pushed, popped, dropped, pushedBytes uint64 }

	notFull  wait.List
	notEmpty wait.List
	opened   wait.List
	// Of a pass that goes on where a saved position was: tuples that the consumer has had before, and how many of them
	// the producer leaves out. The size of the struct is one that Go's allocator aligns to a cache line.
	had, leftOut int64
}

// cell is a queued tuple and the bytes that it counts as.
type cell struct {
	tuple *Tuple
	bytes int64
}

// NewQueue makes a queue and returns it with one consumer reference.
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

// retain adds a reference, for the Consumer or a Producer.
func (q *PyArrayFeedQueue) retain() { q.references.Add(1) }

// release releases a reference. The last release closes the memory pool.
func (q *PyArrayFeedQueue) release() {
	if q.references.Add(-1) == 0 {
		q.pool.Close()
	}
}

// Place returns the place where consumers want the tuples.
func (q *PyArrayFeedQueue) Place() Place { return q.place }

// Spec returns the description of the queue's tuples.
func (q *PyArrayFeedQueue) Spec() *Spec { return q.spec }

// Feed returns the wrapper of the queue, or nil.
func (q *PyArrayFeedQueue) Feed() Feed { return q.feed }

// Input returns the end that producers of this process push into: the Feed, or the queue itself. The queue's own
// methods of the same names are for the Feed.
func (q *PyArrayFeedQueue) Input() Input {
	if q.feed != nil {
		return q.feed
	}
	return q
}

// Restartable reports whether the producer can start a new pass.
func (q *PyArrayFeedQueue) Restartable() bool { return q.restartable }

// Pass returns the number of the current pass; PassNone before the first.
func (q *PyArrayFeedQueue) Pass() Pass { return Pass(q.pass.Load()) }

// resolve replaces PassCurrent with the number of the current pass.
func (q *PyArrayFeedQueue) resolve(pass Pass) Pass {
	if pass == PassCurrent {
		return q.Pass()
	}
	return pass
}

// A Reservation is room in a queue for a tuple that is being written. The zero Reservation holds no room.
type Reservation struct {
	queue *PyArrayFeedQueue
	pass  Pass
	bytes int64
}

// Reserve waits in the given pass for room for t, whose slots have DType, dims and LoD, and allocates t's memory. The
// caller MUST call Commit or Cancel of the Reservation.
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

// Held reports whether r holds room in a queue.
func (r *Reservation) Held() bool { return r.queue != nil }

// Bytes returns the size of the tuple's data.
func (r *Reservation) Bytes() int64 { return r.bytes }

// Commit queues t: the tuple that the room was reserved for, or its copy on a device. If the pass of the reservation is
// over, Commit releases t and returns an error. It never waits.
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

// Cancel releases the room and the tuple.
func (r *Reservation) Cancel(t *Tuple) {
	r.release()
	t.Release()
}

// release frees the room in the queue.
func (r *Reservation) release() {
	q := r.queue
	q.mu.Lock()
	q.reserved--
	q.bytes -= r.bytes
	wake := q.notFull.WakeOne()
	q.mu.Unlock()
	wake.Send()
}

// Put queues t, which has its data, in one step. It waits for room. If Put returns an error, the caller still owns t.
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

// Lend queues t, whose slots have Data that belongs to owner. The owner reclaims the Data when the consumer has
// released it. Lend waits for room. It always takes ownership of t; if it returns an error, it releases t without
// calling the owner.
func (q *PyArrayFeedQueue) Lend(ctx context.Context, pass Pass, t *Tuple, owner memory.Owner) error {
	if len(t.Slots) > 0 {
		t.borrow(owner)
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

// ReserveCopy waits for room in the input and copies the tensors there. The caller commits the Reservation.
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

// checkTuple returns the bytes that t counts as, or an error if the queue can never accept t.
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

// NoteProducer tells the trace which track produces the next tuples: the track of ctx's caller, a run or a reading
// thread. Without this call the trace cannot assign the waits of consumers to a producer.
func (q *PyArrayFeedQueue) NoteProducer(ctx context.Context) {
	q.mu.Lock()
	q.notEmpty.ServedBy(wait.TrackOf(ctx))
	q.mu.Unlock()
}

// reserveBytes reserves room for a tuple of the given size, or enters the caller into the wait list. The lock is held.
func (q *PyArrayFeedQueue) reserveBytes(ctx context.Context, pass Pass, bytes int64) (wake wait.Wake, err error) {
	if err := q.checkPass(pass); err != nil {
		return wake, err
	}
	full := q.n+q.reserved >= q.capacity
	if q.bytesLimit > 0 {
		// Newcomers wait behind earlier waiters, so that small tuples do not starve a large one.
		full = full || q.bytes+bytes > q.bytesLimit || q.notFull.HasEarlier(ctx)
	}
	if full {
		return wake, q.notFull.Enter(ctx)
	}
	q.bytes += bytes
	if q.bytesLimit > 0 && q.n+q.reserved+1 < q.capacity {
		wake = q.notFull.WakeOne() // popping one large tuple can make room for several
	}
	return wake, nil
}

// CheckPass returns the error that a push into the given pass would get; nil if it would be accepted.
func (q *PyArrayFeedQueue) CheckPass(pass Pass) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.checkPass(pass)
}

// checkPass is CheckPass with the lock held.
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

// shutDownError returns the error of calls after the shutdown. The lock is held.
func (q *PyArrayFeedQueue) shutDownError() error {
	if q.abandoned {
		return Errorf(Closed, "the %s is shut down: no reader of it is left, nor any other consumer", q.labels.Queue)
	}
	return Errorf(Closed, "the %s is shut down", q.labels.Queue)
}

// pushBack queues a tuple for which room is reserved. The lock is held.
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
	return q.notEmpty.WakeOne()
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

// Pop waits for the oldest tuple and returns it; the caller owns it. After the last tuple of the pass, Pop returns
// io.EOF if the queue was closed, or the failure if the queue failed. If the queue's place is a device, the tuple is in
// host memory unless it was copied to the device before it was queued.
func (q *PyArrayFeedQueue) Pop(ctx context.Context) (*Tuple, error) {
	t, _, err := q.PopPass(ctx)
	return t, err
}

// PopPass is Pop, and also returns the pass of the tuple.
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
	if wait.GenerationAtStart(ctx, q, uint64(pass)) != uint64(pass) {
		q.mu.Unlock()
		return popped{}, io.EOF
	}
	if q.n > 0 {
		t := q.popFront()
		q.counts.popped++
		wake := q.notFull.WakeOne()
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

// Close ends the given pass: pushes fail, the queued tuples are delivered, then consumers get io.EOF. If pass is not
// the current one, Close does nothing.
func (q *PyArrayFeedQueue) Close(pass Pass) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.resolve(pass) == q.Pass() {
		q.endPass()
	}
}

// endPass ends the pass and wakes all waiters in it. The lock is held.
func (q *PyArrayFeedQueue) endPass() {
	q.closed = true
	q.notFull.WakeAll()
	q.notEmpty.WakeAll()
}

// Fail ends the given pass as Close does, but consumers get failure instead of io.EOF. Only the first failure counts:
// Fail returns an error if the pass has already ended.
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

// Reopen ends the current pass, drops the queued tuples and begins the next pass. It returns the number of the new pass
// and the number of tuples dropped.
func (q *PyArrayFeedQueue) Reopen() (pass Pass, dropped uint64, err error) { return q.ReopenAt(0) }

// ReopenAt is Reopen for a consumer that has had the first tuples of the pass before. See Start.
func (q *PyArrayFeedQueue) ReopenAt(had int64) (pass Pass, dropped uint64, err error) {
	q.mu.Lock()
	if q.isShutDown {
		err = q.shutDownError()
		q.mu.Unlock()
		return PassNone, 0, err
	}
	old := q.takeAll()
	q.beginPass()
	q.had = had
	pass = q.Pass()
	q.mu.Unlock()
	releaseTuples(old)
	return pass, uint64(len(old)), nil
}

// JoinPass lets the call behind ctx pop tuples of the current pass, even if the call has waited in the previous pass.
// It is for a call that has begun the current pass itself. Any other call that waited gets the end of its own pass.
func (q *PyArrayFeedQueue) JoinPass(ctx context.Context) { wait.ForgetGeneration(ctx, q) }

// isCurrent reports whether a tuple popped in the given pass may still be delivered: the pass is current and the queue
// not shut down.
func (q *PyArrayFeedQueue) isCurrent(pass Pass) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.isShutDown && pass == q.Pass()
}

// Clear drops the queued tuples in the middle of the pass and returns their number. It wakes producers that wait for
// room, and returns the pool's idle memory to the system.
func (q *PyArrayFeedQueue) Clear() int {
	q.mu.Lock()
	old := q.takeAll()
	for range old { // one wake-up for each dropped tuple, as pops would do: WakeAll would lose the order of the waiters
		q.notFull.WakeOne().Send()
	}
	q.mu.Unlock()
	releaseTuples(old)
	q.pool.Trim()
	return len(old)
}

// beginPass begins the next pass. The lock is held.
func (q *PyArrayFeedQueue) beginPass() {
	q.pass.Store(uint64(q.Pass().next()))
	q.closed, q.failure, q.had, q.leftOut = false, nil, 0, 0
	if q.feed != nil {
		q.feed.PassBegan(q.Pass())
	}
	q.notFull.WakeAll()
	q.notEmpty.WakeAll()
	q.opened.WakeAll()
}

// takeAll removes all queued tuples and returns them. The lock is held.
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

// WaitPass waits until a pass after the given one (PassNone: any pass) is open, and returns its number.
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

// Start returns how many of the first tuples of a pass the consumer has had before, in a process whose saved position was
// restored. A producer that can begin behind them calls SetStart.
func (q *PyArrayFeedQueue) Start(pass Pass) (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.had, q.checkPass(q.resolve(pass))
}

// SetStart tells the consumer, before the first push of a pass, that the first n tuples of the pass are not pushed. n is
// at most what Start returns. The consumer drops the others that it has had before.
func (q *PyArrayFeedQueue) SetStart(pass Pass, n int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.checkPass(q.resolve(pass)); err != nil {
		return err
	}
	if n < 0 || n > q.had {
		return Errorf(Invalid, "start: expected 0 to %d tuples, which the consumer has had, found %d", q.had, n)
	}
	q.leftOut = n
	return nil
}

// SetHad says that the consumer has had the first n tuples of the current pass before, as ReopenAt does for a new pass.
// Nothing of the pass may have been popped. The producer may have called SetStart for another n. Calls that wait for a
// tuple try again, because the reader above has cancelled them.
func (q *PyArrayFeedQueue) SetHad(n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.had = n
	q.notEmpty.WakeAll()
}

// Repeated returns how many of the tuples that are pushed in the current pass the consumer has had before. It is negative
// if the producer has left out tuples that the consumer has not had: see SetHad.
func (q *PyArrayFeedQueue) Repeated() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.had - q.leftOut
}

// Shutdown closes the queue for good and drops the queued tuples. Further calls have no effect.
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
	q.opened.WakeAll()
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

// Info returns the current state of the queue.
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
