package decorators

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// prefetcher reads chunks ahead of its consumers in a goroutine. The goroutine starts with the first read and ends with
// the pass, an error, or a stop.
//
// Waking the goroutine, and being woken by it, takes as long as reading some small batches. So a consumer that finds
// nothing ready may read by itself if reads are cheap.
type prefetcher struct {
	name string
	// fill reads the next chunk into p, which is empty. An error that comes with instances is returned after them, and
	// ends the prefetcher. There is one call of fill at a time.
	fill func(ctx context.Context, p *prefetched) error
	// finish completes a chunk that fill has read. The goroutine and consumers may each finish a chunk at the same
	// time; spans are recorded on track. An error ends the prefetcher, after the instances of the chunk. nil: fill
	// completes the chunk.
	finish func(p *prefetched, track trace.Track) error
	// direct reads what fill would read, for a consumer that finds nothing ready and the goroutine idle. There is one
	// call of it at a time, never during a fill. If direct and finish are nil, consumers do not read.
	direct readers.ReadFunc
	limit  int // most chunks in the queue, beside one being taken and one read by a consumer

	mu           sync.Mutex
	consumers    wait.List
	stateChanged sync.Cond
	queue        []*prefetched
	spareChunks  []*prefetched
	end          error // the error of fill, or why nothing more is read
	cancel       context.CancelFunc
	running      bool
	readAhead    bool // the goroutine should read until there is no room
	reading      bool // the goroutine or a consumer is reading from below
	hasDelivered bool // a consumer has taken something, in this pass or an earlier one
	pace
}

// prefetched is a chunk that was read ahead.
type prefetched struct {
	record.Chunk
	pending   readers.Pending // to be finished
	finishing bool
	err       error // why it, or the chunk behind it, could not be finished
}

func newPrefetcher(name string, limit int, fill func(context.Context, *prefetched) error) *prefetcher {
	p := &prefetcher{name: name, fill: fill, limit: limit}
	p.consumers.Init(&p.mu)
	p.consumers.Named("waits for "+name, trace.Wait)
	p.stateChanged.L = &p.mu
	p.pauseTime, p.readTime = 2*longPause, 2*expensiveRead // initial values: only the goroutine reads until measured
	return p
}

// take is a readers.ReadFunc.
func (p *prefetcher) take(ctx context.Context, to *record.Chunk, limit int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumerCame()
	n, err := p.takeReady(to, limit)
	for blocked := false; n == 0 && err == nil && !blocked && p.consumerMayRead(); {
		if p.finish == nil {
			if n, err = p.readDirect(ctx, to, limit); err == wait.ErrWouldBlock {
				blocked, err = true, nil // only the goroutine waits for the reader below
			}
		} else {
			blocked = p.readOne(nonBlockingContext(ctx)) == wait.ErrWouldBlock
			n, err = p.takeReady(to, limit) // the goroutine may have finished a chunk meanwhile, which precedes the end
		}
	}
	if n == 0 {
		if err != nil {
			return 0, err
		}
		p.resume()
		return 0, p.consumers.Enter(ctx)
	}
	left := len(p.queue) > 0 || p.end != nil
	if left {
		p.consumers.WakeOne().Send() // another consumer can take the rest
	}
	if p.shouldResume(left) {
		p.resume()
	}
	p.hasDelivered = true
	if p.consumersRead() {
		p.consumerLeft()
	}
	return n, nil
}

// wakeConsumers wakes at most n consumers, for instances that a caller has taken but not delivered.
func (p *prefetcher) wakeConsumers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0 && p.consumers.Len() > 0; n-- {
		p.consumers.WakeOne().Send()
	}
}

// consumersRead reports whether consumers may read by themselves.
func (p *prefetcher) consumersRead() bool { return p.direct != nil || p.finish != nil }

// consumerMayRead reports whether a consumer that finds nothing ready may read now. A consumer's read cannot be
// interrupted, so reads have to be known to be cheap.
func (p *prefetcher) consumerMayRead() bool {
	sourceFree := !p.reading && p.end == nil
	hasRoom := p.numUntaken() <= p.limit // one chunk more than the goroutine may leave
	return p.consumersRead() && !p.readIsExpensive() && sourceFree && hasRoom
}

// shouldResume reports whether a consumer that has taken something should wake the goroutine. left: more can be taken.
func (p *prefetcher) shouldResume(left bool) bool {
	consumerStarves := !left && p.consumers.Len() > 0
	worthWaking := !p.consumersRead() || p.readAheadPays() || consumerStarves
	return p.isHalfEmpty() && !p.isFirstTake(left) && worthWaking
}

// isHalfEmpty reports whether half of the room is free. Woken then, rather than for each chunk, the goroutine does more
// work for each wake-up (docs/performance.md, "Small records": 700 → 100 context switches in 1,250 batches).
func (p *prefetcher) isHalfEmpty() bool {
	return p.numUntaken() < p.limit && p.numUntaken() <= (p.limit+1)/2
}

// isFirstTake reports whether this is the reader's first take and has left something for the next take, which then
// wakes the goroutine. If few cores are free, the goroutine would take the core of the consumer that has just got its
// first instances (docs/performance.md, "The first batch": without this, some first batches took 3.7 ms instead of
// 1.2).
func (p *prefetcher) isFirstTake(left bool) bool {
	return !p.hasDelivered && !p.consumersRead() && left
}

// takeReady takes instances that were read ahead. If it returns 0 and no error, the consumer has to wait.
func (p *prefetcher) takeReady(to *record.Chunk, limit int) (int, error) {
	if len(p.queue) == 0 {
		return 0, p.end
	}
	first := p.queue[0]
	switch {
	case first.finishing:
		return 0, nil
	case first.err != nil && first.Len() == 0: // it stays in the queue, for further takes
		if p.end != first.err {
			p.setEnd(first.err)
		}
		return 0, first.err
	}
	n := first.MoveTo(to, limit)
	if first.Len() == 0 && first.err == nil {
		p.spareChunks = append(p.spareChunks, first)
		p.queue = append(p.queue[:0], p.queue[1:]...)
	}
	return n, nil
}

// nonBlockingContext returns the context for reads by a consumer. Such reads never wait; only the goroutine waits,
// since it can be stopped.
func nonBlockingContext(ctx context.Context) context.Context {
	if track := wait.TrackOf(ctx); track != 0 {
		return (&wait.Traced{Context: context.Background(), Track: track}).NonBlocking()
	}
	return wait.NonBlocking
}

// readDirect reads in the consumer's thread.
func (p *prefetcher) readDirect(ctx context.Context, to *record.Chunk, limit int) (n int, err error) {
	err = p.readUnlocked(func() error {
		n, err = p.direct(nonBlockingContext(ctx), to, limit)
		return err
	})
	if err != nil && err != wait.ErrWouldBlock {
		p.setEnd(err)
	}
	return n, err
}

// readOne reads a chunk and finishes it. An error of fill ends the prefetcher. After ErrWouldBlock nothing has changed.
func (p *prefetcher) readOne(ctx context.Context) error {
	c := new(prefetched)
	if n := len(p.spareChunks); n > 0 {
		c, p.spareChunks = p.spareChunks[n-1], p.spareChunks[:n-1]
	}
	err := p.readUnlocked(func() error { return p.fill(ctx, c) })
	if err == nil && p.finish != nil {
		p.queue = append(p.queue, c)
		p.finishUnlocked(c, wait.TrackOf(ctx))
		return nil
	}
	if c.Len() > 0 {
		p.queue = append(p.queue, c)
	} else {
		p.spareChunks = append(p.spareChunks, c)
	}
	if err != nil && err != wait.ErrWouldBlock {
		p.setEnd(err)
	}
	return err
}

// readUnlocked reads from below without the lock. It takes the lock again even after a panic, as the callers expect.
func (p *prefetcher) readUnlocked(read func() error) error {
	p.reading = true
	p.mu.Unlock()
	start := trace.Now()
	complete := false
	defer func() {
		p.mu.Lock()
		p.reading = false
		p.readTook(start)
		if !complete {
			p.setEnd(pyfeed.Errorf(pyfeed.Fault, "a thread that reads ahead failed: see standard error"))
		}
	}()
	err := read()
	complete = true
	return err
}

// finishUnlocked finishes a chunk without the lock. It takes the lock again even after a panic.
func (p *prefetcher) finishUnlocked(c *prefetched, track trace.Track) {
	c.finishing = true
	if p.readAhead {
		p.stateChanged.Signal() // the goroutine may have waited for the end of a consumer's read
	}
	p.mu.Unlock()
	start := trace.Now()
	err := error(pyfeed.Errorf(pyfeed.Fault, "a thread that makes a batch failed: see standard error"))
	complete := false
	defer func() {
		p.mu.Lock()
		p.finishTook(start)
		if !complete {
			c.Release()
		}
		c.finishing, c.err = false, err
		if p.queue[0] == c {
			p.consumers.WakeOne().Send()
		}
	}()
	err = p.finish(c, track)
	complete = true
}

// resume makes the goroutine read until there is no room.
func (p *prefetcher) resume() {
	p.readAhead = true
	switch {
	case p.end != nil:
	case p.running:
		p.stateChanged.Signal()
	default:
		p.start()
	}
}

// pace measures whether reading ahead pays: the time between two takes of consumers, and the times to read and to
// finish a chunk. Each value is a moving average in nanoseconds. The last measurement has a weight of 1/4, and is
// clipped at twice the value's threshold.
type pace struct {
	leftAt                          int64 // when the last consumer left with something; 0: no pause is measured
	pauseTime, readTime, finishTime int64
}

// Measured in docs/performance.md, "double_buffer over tiny batches" and the end of the section before it: a sleep and
// a wake-up for every other tiny batch cost 13 µs a batch; two threads that each copy a batch pay from 40 µs on.
const (
	longPause     = 20_000  // between two takes of a consumer, long enough for the goroutine to read a chunk
	expensiveRead = 200_000 // of a read, beside which the cost of a wake-up is negligible
	minBatchWork  = 40_000  // of the finishing that one wake-up moves to the goroutine
)

func (p *pace) consumerLeft() { p.leftAt = trace.Now() }

func (p *pace) consumerCame() {
	if p.leftAt != 0 {
		p.pauseTime += (min(trace.Now()-p.leftAt, 2*longPause) - p.pauseTime) / 4
		p.leftAt = 0
	}
}

func (p *pace) readTook(start int64) {
	p.readTime += (min(trace.Now()-start, 2*expensiveRead) - p.readTime) / 4
}

func (p *pace) finishTook(start int64) {
	p.finishTime += (min(trace.Now()-start, 2*minBatchWork) - p.finishTime) / 4
}

// readAheadPays reports whether waking the goroutine pays.
func (p *prefetcher) readAheadPays() bool {
	return p.consumersPause() || p.readIsExpensive() || p.finishingIsExpensive()
}

// consumersPause reports whether consumers compute long enough between two takes for the goroutine to read meanwhile.
func (p *pace) consumersPause() bool { return p.pauseTime >= longPause }

// readIsExpensive reports whether reads take so long that only the goroutine, which can be stopped, should read.
func (p *pace) readIsExpensive() bool { return p.readTime >= expensiveRead }

// finishingIsExpensive reports whether finishing the chunks of half the room, the work of one wake-up, pays for a
// second thread.
func (p *prefetcher) finishingIsExpensive() bool {
	return p.finish != nil && p.finishTime*int64(p.limit+1)/2 >= minBatchWork
}

// numUntaken returns the number of chunks from which nothing was taken.
func (p *prefetcher) numUntaken() int {
	if len(p.queue) > 0 && !p.queue[0].finishing && p.queue[0].PartlyTaken() {
		return len(p.queue) - 1
	}
	return len(p.queue)
}

func (p *prefetcher) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.running = cancel, true
	wait.Go(func() { p.run(ctx) }, func(fault error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.exit(pyfeed.Errorf(pyfeed.Fault, "a thread that reads ahead: %v", fault))
	})
}

// run is the loop of the goroutine.
func (p *prefetcher) run(ctx context.Context) {
	var lane trace.Lane
	defer lane.Done()
	traced := &wait.Traced{Context: ctx}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.isIdle(ctx) {
			full := trace.Begin()
			for p.isIdle(ctx) {
				p.stateChanged.Wait()
			}
			trace.Since(lane.Track(p.name), trace.Full, "no room", full)
		}
		if err := cmp.Or(p.end, ctx.Err()); err != nil { // the readers below may never wait, and so never check ctx
			p.exit(err)
			return
		}
		start := trace.Begin()
		traced.Track = lane.Track(p.name)
		p.consumers.ServedBy(traced.Track)
		err := p.readOne(traced)
		trace.Since(traced.Track, trace.Read, p.name, start)
		if err != nil {
			p.exit(err)
			return
		}
		p.readAhead = p.numUntaken() < p.limit
		p.consumers.WakeOne().Send()
	}
}

// track returns the goroutine's track in the current recording; 0: it has recorded nothing yet.
func (p *prefetcher) track() trace.Track {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.consumers.Server()
}

// isIdle reports whether the goroutine has nothing to do.
func (p *prefetcher) isIdle(ctx context.Context) bool {
	room := p.numUntaken() < p.limit && !p.reading && (p.readAhead || !p.consumersRead())
	return !room && p.end == nil && ctx.Err() == nil
}

// exit is called when the goroutine ends.
func (p *prefetcher) exit(end error) {
	p.running = false
	p.setEnd(end)
}

// setEnd ends reading ahead for this pass.
func (p *prefetcher) setEnd(end error) {
	p.end = end
	p.stateChanged.Broadcast()
	p.consumers.WakeAll()
}

// stop ends the goroutine and releases what it has read. The next take starts it again.
func (p *prefetcher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
		p.stateChanged.Broadcast()
	}
	for p.running {
		p.stateChanged.Wait()
	}
	for _, c := range p.queue {
		c.Release()
	}
	p.queue, p.cancel, p.spareChunks, p.readAhead = nil, nil, nil, false
	if !pyfeed.IsKind(p.end, pyfeed.Fault) {
		p.end = nil
	}
	p.consumers.WakeAll()
}

// waited returns the total time that consumers have slept.
func (p *prefetcher) waited() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.consumers.Waited()
}
