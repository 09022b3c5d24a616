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

// prefetcher reads ahead of its consumers, chunk by chunk, in a goroutine that begins with the first read and ends
// with the pass, an error or a stop.
//
// To wake a goroutine, and to be woken by it, takes as long as to read some small batches. So consumers may read
// themselves what is cheap, where they would have to wait for it otherwise.
type prefetcher struct {
	name string
	// fill reads the next chunk, into one that is empty. An error that comes with instances is returned after them; the
	// prefetcher ends with it. It is called by one at a time.
	fill func(ctx context.Context, p *prefetched) error
	// finish completes a chunk that fill has begun, by the goroutine and a consumer at a time, which is on the track. The
	// prefetcher ends with its error. nil: fill does it all.
	finish func(p *prefetched, track trace.Track) error
	// direct reads what fill reads, for a consumer that finds nothing ready and the goroutine at rest. It is called by one at
	// a time, never while fill is. nil, without finish: consumers do not read.
	direct readers.ReadFunc
	limit  int // chunks that wait, at most, beside the one that is being taken, and one of a consumer's

	mu        sync.Mutex
	consumers wait.List
	changed   sync.Cond
	queue     []*prefetched
	idle      []*prefetched
	end       error // what fill returned, or why nothing more is read
	cancel    context.CancelFunc
	running   bool
	ahead     bool // the goroutine is to read until there is no room
	reading   bool // the goroutine or a consumer reads from below
	begun     bool // a consumer has taken something, in this pass or before
	pace
}

// prefetched is a chunk that is read ahead.
type prefetched struct {
	record.Chunk
	pending   readers.Pending // what is to be finished
	finishing bool
	err       error // why it could not be finished
}

func newPrefetcher(name string, limit int, fill func(context.Context, *prefetched) error) *prefetcher {
	p := &prefetcher{name: name, fill: fill, limit: limit}
	p.consumers.Init(&p.mu)
	p.consumers.Named("waits for "+name, trace.Wait)
	p.changed.L = &p.mu
	p.awayTime, p.readTime = 2*longAway, 2*expensiveRead // until it is known
	return p
}

// take is a readers.ReadFunc.
func (p *prefetcher) take(ctx context.Context, to *record.Chunk, most int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumerCame()
	n, err := p.takeReady(to, most)
	for blocked := false; n == 0 && err == nil && !blocked && p.consumerMayRead(); {
		if p.finish == nil {
			if n, err = p.readDirect(ctx, to, most); err == wait.ErrWouldBlock {
				blocked, err = true, nil // the goroutine waits for what is below
			}
		} else {
			blocked = p.readOne(nonBlockingContext(ctx)) == wait.ErrWouldBlock
			n, err = p.takeReady(to, most) // which the goroutine may have finished meanwhile; an end is behind what it finishes still
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
		p.consumers.One().Send() // there is something left for another
	}
	if p.shouldResume(left) {
		p.resume()
	}
	p.begun = true
	if p.shared() {
		p.consumerLeft()
	}
	return n, nil
}

// wakeConsumers wakes at most n consumers, for what was taken and is left all the same.
func (p *prefetcher) wakeConsumers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0 && p.consumers.Len() > 0; n-- {
		p.consumers.One().Send()
	}
}

// shared reports whether consumers read too.
func (p *prefetcher) shared() bool { return p.direct != nil || p.finish != nil }

// consumerMayRead reports whether a consumer that finds nothing ready may read itself. It has no way to end a read that takes
// long: so reads have to be known to be cheap.
func (p *prefetcher) consumerMayRead() bool {
	return p.shared() && p.readTime < expensiveRead && !p.reading && p.end == nil && p.untouched() <= p.limit
}

// shouldResume reports whether a consumer that has taken something wakes the goroutine: left says whether there is more.
func (p *prefetcher) shouldResume(left bool) bool {
	// Woken for half of the room and not for each chunk, the goroutine has more to do at a time.
	roomy := p.untouched() < p.limit && p.untouched() <= (p.limit+1)/2
	// Where few cores are free, the goroutine would take that of the consumer that has just got the very first instances. If
	// there are more of those, the next take wakes it.
	firstTake := !p.begun && !p.shared() && left
	return roomy && !firstTake && (!p.shared() || p.pays() || !left && p.consumers.Len() > 0)
}

// takeReady takes what was read ahead. 0 and no error: that takes waiting.
func (p *prefetcher) takeReady(to *record.Chunk, most int) (int, error) {
	if len(p.queue) == 0 {
		return 0, p.end
	}
	first := p.queue[0]
	switch {
	case first.finishing:
		return 0, nil
	case first.err != nil: // and stays the first
		if p.end != first.err {
			p.setEnd(first.err)
		}
		return 0, first.err
	}
	n := first.MoveTo(to, most)
	if first.Len() == 0 {
		p.idle = append(p.idle, first)
		p.queue = append(p.queue[:0], p.queue[1:]...)
	}
	return n, nil
}

// nonBlockingContext is for what a consumer reads itself, as far as that does not take waiting: the goroutine, which is told
// to end in other ways, does the waiting.
func nonBlockingContext(ctx context.Context) context.Context {
	if track := wait.TrackOf(ctx); track != 0 {
		return (&wait.Traced{Context: context.Background(), Track: track}).NonBlocking()
	}
	return wait.NonBlocking
}

// readDirect has the consumer read.
func (p *prefetcher) readDirect(ctx context.Context, to *record.Chunk, most int) (n int, err error) {
	err = p.readUnlocked(func() error {
		n, err = p.direct(nonBlockingContext(ctx), to, most)
		return err
	})
	if err != nil && err != wait.ErrWouldBlock {
		p.setEnd(err)
	}
	return n, err
}

// readOne reads a chunk and finishes it. An error of fill's is the prefetcher's end; if it would block, nothing has happened.
func (p *prefetcher) readOne(ctx context.Context) error {
	c := new(prefetched)
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
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
		p.idle = append(p.idle, c)
	}
	if err != nil && err != wait.ErrWouldBlock {
		p.setEnd(err)
	}
	return err
}

// readUnlocked unlocks to read from below. After a panic too the lock is held again, as the callers expect.
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
			p.setEnd(pyfeed.Errorf(pyfeed.Fault, "a thread that reads ahead: see what was printed"))
		}
	}()
	err := read()
	complete = true
	return err
}

// finishUnlocked unlocks to finish a chunk. After a panic too the lock is held again.
func (p *prefetcher) finishUnlocked(c *prefetched, track trace.Track) {
	c.finishing = true
	if p.ahead {
		p.changed.Signal() // it may have waited for the one who read
	}
	p.mu.Unlock()
	start := trace.Now()
	err := error(pyfeed.Errorf(pyfeed.Fault, "a thread that makes a batch: see what was printed"))
	defer func() {
		p.mu.Lock()
		p.finishTook(start)
		c.finishing, c.err = false, err
		if p.queue[0] == c {
			p.consumers.One().Send()
		}
	}()
	err = p.finish(c, track)
}

// resume has the goroutine read until there is no room.
func (p *prefetcher) resume() {
	p.ahead = true
	switch {
	case p.end != nil:
	case p.running:
		p.changed.Signal()
	default:
		p.start()
	}
}

// pace is whether reading ahead pays: by how long consumers stay away between two reads, and how long it takes to read
// and to finish a chunk, in nanoseconds, averaged over the last few, none of which counts for more than twice of what would
// pay by itself.
type pace struct {
	since                          int64 // when the consumer left that came last; 0: it is here
	awayTime, readTime, finishTime int64
}

// Measured in docs/performance.md, "double_buffer over tiny batches" and the end of the section before it: a sleep and a
// wake-up for every other tiny batch cost 13 µs a batch; two threads that each copy a batch are worth it from 40 µs on.
const (
	longAway      = 20_000  // while a consumer is away for that long, something can be read
	expensiveRead = 200_000 // beside a read that takes so long, a wake-up is nothing
	minBatchWork  = 40_000  // the same of what is finished side by side for one wake-up
)

func (p *pace) consumerLeft() { p.since = trace.Now() }

func (p *pace) consumerCame() {
	if p.since != 0 {
		p.awayTime += (min(trace.Now()-p.since, 2*longAway) - p.awayTime) / 4
		p.since = 0
	}
}

func (p *pace) readTook(start int64) {
	p.readTime += (min(trace.Now()-start, 2*expensiveRead) - p.readTime) / 4
}

func (p *pace) finishTook(start int64) {
	p.finishTime += (min(trace.Now()-start, 2*minBatchWork) - p.finishTime) / 4
}

// pays reports whether the goroutine is worth its wake-up.
func (p *prefetcher) pays() bool {
	return p.awayTime >= longAway || p.readTime >= expensiveRead ||
		p.finish != nil && p.finishTime*int64(p.limit+1)/2 >= minBatchWork
}

// untouched is the number of chunks that nothing was taken of.
func (p *prefetcher) untouched() int {
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

// run is the goroutine.
func (p *prefetcher) run(ctx context.Context) {
	var lane trace.Lane
	defer lane.Done()
	traced := &wait.Traced{Context: ctx}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.rests(ctx) {
			full := trace.Begin()
			for p.rests(ctx) {
				p.changed.Wait()
			}
			trace.Since(lane.Track(p.name), trace.Full, "no room", full)
		}
		if err := cmp.Or(p.end, ctx.Err()); err != nil { // what is below may never wait, and so never look
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
		p.ahead = p.untouched() < p.limit
		p.consumers.One().Send()
	}
}

// track is that of the goroutine, in the recording that is on; 0: it has recorded nothing yet.
func (p *prefetcher) track() trace.Track {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.consumers.Server()
}

// rests reports whether the goroutine has nothing to do.
func (p *prefetcher) rests(ctx context.Context) bool {
	room := p.untouched() < p.limit && !p.reading && (p.ahead || !p.shared())
	return !room && p.end == nil && ctx.Err() == nil
}

// exit is the end of the goroutine.
func (p *prefetcher) exit(end error) {
	p.running = false
	p.setEnd(end)
}

// setEnd is the end of reading ahead, for this pass.
func (p *prefetcher) setEnd(end error) {
	p.end = end
	p.changed.Broadcast()
	p.consumers.All()
}

// stop ends the goroutine and releases what it has read: the next take begins anew.
func (p *prefetcher) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
		p.changed.Broadcast()
	}
	for p.running {
		p.changed.Wait()
	}
	for _, c := range p.queue {
		c.Release()
	}
	p.queue, p.cancel, p.idle, p.ahead = nil, nil, nil, false
	if !pyfeed.IsKind(p.end, pyfeed.Fault) {
		p.end = nil
	}
	p.consumers.All()
}

// waited is how long consumers have slept in it, summed.
func (p *prefetcher) waited() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.consumers.Waited()
}
