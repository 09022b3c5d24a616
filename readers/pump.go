package readers

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// pump reads ahead of its consumers, chunk by chunk, in a goroutine that begins with the first read and ends
// with the pass, an error or a stop.
//
// To wake a goroutine, and to be woken by it, takes as long as to read some small batches. So consumers may read
// themselves what is cheap, where they would have to wait for it otherwise.
type pump struct {
	name string
	// fill makes the next chunk, which is empty. An error that comes with instances is answered after them; the pump
	// ends with it. It is called by one at a time.
	fill func(ctx context.Context, c *chunk) error
	// make completes a chunk that fill has begun, by the goroutine and a consumer at a time, which is on the track. The
	// pump ends with its error. nil: fill does it all.
	make func(c *chunk, track trace.Track) error
	// direct is a ReadMany of what fill reads, for a consumer that finds nothing ready and the goroutine at rest. It is
	// called by one at a time, never while fill is. nil, without make: consumers do not read.
	direct func(ctx context.Context, l *Lot, most int) (int, error)
	limit  int // chunks that wait, at most, beside the one that is being taken, and one of a consumer's

	mu        sync.Mutex
	consumers wait.List
	changed   sync.Cond
	chunks    []*chunk
	idle      []*chunk
	end       error // what fill answered, or why nothing more is read
	cancel    context.CancelFunc
	running   bool
	ahead     bool // the goroutine is to read until there is no room
	reading   bool // somebody reads below
	begun     bool // a consumer has taken something, in this pass or before
	pace
}

// chunk is what is read at a time.
type chunk struct {
	Lot
	work *gathered // for make
	busy bool      // it is being made
	err  error     // why it could not be
}

func newPump(name string, limit int, fill func(context.Context, *chunk) error) *pump {
	p := &pump{name: name, fill: fill, limit: limit}
	p.consumers.Init(&p.mu)
	p.consumers.Named("waits for "+name, trace.Wait)
	p.changed.L = &p.mu
	p.away, p.cost = 2*longAway, 2*dear // until it is known
	return p
}

// take is a ReadMany.
func (p *pump) take(ctx context.Context, l *Lot, most int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.came()
	n, err := p.ready(l, most)
	for blocked := false; n == 0 && err == nil && !blocked && p.cheap() && !p.reading && p.end == nil && p.waiting() <= p.limit; {
		if p.make == nil {
			if n, err = p.readDirect(ctx, l, most); err == wait.ErrWouldBlock {
				blocked, err = true, nil // the goroutine waits for what is below
			}
		} else {
			blocked = p.readOne(below(ctx)) == wait.ErrWouldBlock
			n, err = p.ready(l, most) // which the goroutine may have made meanwhile; an end is behind what it makes still
		}
	}
	if n == 0 {
		if err != nil {
			return 0, err
		}
		p.goOn()
		return 0, p.consumers.Enter(ctx)
	}
	left := len(p.chunks) > 0 || p.end != nil
	if left {
		p.consumers.One().Send() // there is something left for another
	}
	// Where few cores are free, the goroutine would take that of the consumer who is on his way with the very first instances.
	// There are more of those: to wake it is for whoever comes next.
	unhurried := p.begun || p.shared() || !left
	p.begun = true
	// Woken for half of the room and not for each chunk, the goroutine has more to do at a time.
	if unhurried && p.waiting() < p.limit && p.waiting() <= (p.limit+1)/2 && (!p.shared() || p.pays() || !left && p.consumers.Len() > 0) {
		p.goOn()
	}
	if p.shared() {
		p.left()
	}
	return n, nil
}

// wake wakes so many consumers at most, for what was taken and is left all the same.
func (p *pump) wake(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; n > 0 && p.consumers.Len() > 0; n-- {
		p.consumers.One().Send()
	}
}

// shared says whether consumers read too.
func (p *pump) shared() bool { return p.direct != nil || p.make != nil }

// ready takes what was read ahead. Neither that nor an error: it takes waiting.
func (p *pump) ready(l *Lot, most int) (int, error) {
	if len(p.chunks) == 0 {
		return 0, p.end
	}
	first := p.chunks[0]
	switch {
	case first.busy:
		return 0, nil
	case first.err != nil: // and stays the first
		if p.end != first.err {
			p.finish(first.err)
		}
		return 0, first.err
	}
	n := first.move(l, most)
	if first.Len() == 0 {
		p.idle = append(p.idle, first)
		p.chunks = append(p.chunks[:0], p.chunks[1:]...)
	}
	return n, nil
}

// below is the context of what a consumer reads itself, as far as that does not take waiting: the goroutine, which is
// told to end by other ways, does the waiting.
func below(ctx context.Context) context.Context {
	if track := wait.TrackOf(ctx); track != 0 {
		return (&wait.Traced{Context: context.Background(), Track: track}).Never()
	}
	return wait.Never
}

// readDirect has the consumer read.
func (p *pump) readDirect(ctx context.Context, l *Lot, most int) (n int, err error) {
	err = p.read(func() error {
		n, err = p.direct(below(ctx), l, most)
		return err
	})
	if err != nil && err != wait.ErrWouldBlock {
		p.finish(err)
	}
	return n, err
}

// readOne reads a chunk and makes it, for a caller whose way down ctx is. An error of fill's is the pump's end; if it would
// block, nothing has happened.
func (p *pump) readOne(ctx context.Context) error {
	c := new(chunk)
	if n := len(p.idle); n > 0 {
		c, p.idle = p.idle[n-1], p.idle[:n-1]
	}
	err := p.read(func() error { return p.fill(ctx, c) })
	if err == nil && p.make != nil {
		p.chunks = append(p.chunks, c)
		p.complete(c, wait.TrackOf(ctx))
		return nil
	}
	if c.Len() > 0 {
		p.chunks = append(p.chunks, c)
	} else {
		p.idle = append(p.idle, c)
	}
	if err != nil && err != wait.ErrWouldBlock {
		p.finish(err)
	}
	return err
}

// read lets go of the lock to read below. After a panic too it is held again, as those above expect.
func (p *pump) read(below func() error) error {
	p.reading = true
	p.mu.Unlock()
	start := trace.Now()
	whole := false
	defer func() {
		p.mu.Lock()
		p.reading = false
		p.took(start)
		if !whole {
			p.finish(pyfeed.Errorf(pyfeed.Fault, "a thread that reads ahead: see what was printed"))
		}
	}()
	err := below()
	whole = true
	return err
}

// complete lets go of the lock to make a chunk. After a panic too it is held again.
func (p *pump) complete(c *chunk, track trace.Track) {
	c.busy = true
	if p.ahead {
		p.changed.Signal() // it may have waited for the one who read
	}
	p.mu.Unlock()
	start := trace.Now()
	err := error(pyfeed.Errorf(pyfeed.Fault, "a thread that makes a batch: see what was printed"))
	defer func() {
		p.mu.Lock()
		p.made(start)
		c.busy, c.err = false, err
		if p.chunks[0] == c {
			p.consumers.One().Send()
		}
	}()
	err = p.make(c, track)
}

// cheap says whether a consumer may read itself: it has no way to end a read that takes long.
func (p *pump) cheap() bool { return p.shared() && p.cost < dear }

// goOn has the goroutine read until there is no room.
func (p *pump) goOn() {
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
// and to make a chunk, in nanoseconds, averaged over the last few, none of which counts for more than twice of what would
// pay by itself.
type pace struct {
	since              int64 // when the consumer left that came last; 0: it is here
	away, cost, effort int64
}

const (
	longAway = 20_000  // while a consumer is away for that long, something can be read
	dear     = 200_000 // beside a read that takes so long, a wake-up is nothing
	worth    = 40_000  // the same of what is made side by side for one wake-up
)

func (p *pace) left() { p.since = trace.Now() }

func (p *pace) came() {
	if p.since != 0 {
		p.away += (min(trace.Now()-p.since, 2*longAway) - p.away) / 4
		p.since = 0
	}
}

func (p *pace) took(start int64) { p.cost += (min(trace.Now()-start, 2*dear) - p.cost) / 4 }

func (p *pace) made(start int64) { p.effort += (min(trace.Now()-start, 2*worth) - p.effort) / 4 }

func (p *pump) pays() bool {
	return p.away >= longAway || p.cost >= dear || p.make != nil && p.effort*int64(p.limit+1)/2 >= worth
}

// waiting is how many chunks nothing was taken of.
func (p *pump) waiting() int {
	if len(p.chunks) > 0 && !p.chunks[0].busy && p.chunks[0].front > 0 {
		return len(p.chunks) - 1
	}
	return len(p.chunks)
}

func (p *pump) start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel, p.running = cancel, true
	wait.Go(func() { p.run(ctx) }, func(fault error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.leave(pyfeed.Errorf(pyfeed.Fault, "a thread that reads ahead: %v", fault))
	})
}

func (p *pump) run(ctx context.Context) {
	var lane trace.Lane
	defer lane.Done()
	below := &wait.Traced{Context: ctx}
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
			p.leave(err)
			return
		}
		start := trace.Begin()
		below.Track = lane.Track(p.name)
		p.consumers.ServedBy(below.Track)
		err := p.readOne(below)
		trace.Since(below.Track, trace.Read, p.name, start)
		if err != nil {
			p.leave(err)
			return
		}
		p.ahead = p.waiting() < p.limit
		p.consumers.One().Send()
	}
}

// track is that of the goroutine, in the recording that is on; 0: it has recorded nothing yet.
func (p *pump) track() trace.Track {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.consumers.Server()
}

// rests says whether the goroutine has nothing to do.
func (p *pump) rests(ctx context.Context) bool {
	room := p.waiting() < p.limit && !p.reading && (p.ahead || !p.shared())
	return !room && p.end == nil && ctx.Err() == nil
}

// leave is the end of the goroutine.
func (p *pump) leave(end error) {
	p.running = false
	p.finish(end)
}

// finish is the end of reading ahead, for this pass.
func (p *pump) finish(end error) {
	p.end = end
	p.changed.Broadcast()
	p.consumers.All()
}

// stop ends the goroutine and drops what it has read: the next take begins anew.
func (p *pump) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cancel != nil {
		p.cancel()
		p.changed.Broadcast()
	}
	for p.running {
		p.changed.Wait()
	}
	for _, c := range p.chunks {
		c.drop()
	}
	p.chunks, p.cancel, p.idle, p.ahead = nil, nil, nil, false
	if !isFault(p.end) {
		p.end = nil
	}
	p.consumers.All()
}

// waited is how long consumers have slept in it, summed.
func (p *pump) waited() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.consumers.Waited()
}
