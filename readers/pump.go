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
	// ends with it.
	fill func(ctx context.Context, chunk *Lot) error
	// direct is a ReadMany of what fill reads, for a consumer that finds nothing ready and the goroutine at rest; nil:
	// consumers do not read. It is called by one at a time, never while fill is.
	direct func(ctx context.Context, l *Lot, most int) (int, error)
	limit  int // chunks that wait, at most, beside the one that is being taken

	mu        sync.Mutex
	consumers wait.List
	changed   sync.Cond
	chunks    []*Lot
	idle      []*Lot
	end       error
	cancel    context.CancelFunc
	running   bool
	ahead     bool // the goroutine is to read until there is no room
	reading   bool // somebody reads below
	pace
}

func newPump(name string, limit int, fill func(context.Context, *Lot) error) *pump {
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
	n, err := p.ready(l, most), p.end
	if n == 0 && err == nil && p.cheap() && !p.reading {
		if n, err = p.readDirect(ctx, l, most); err == wait.ErrWouldBlock {
			err = nil // the goroutine waits for what is below
		} else if err != nil {
			p.finish(err)
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
	// Woken for half of the room and not for each chunk, the goroutine has more to do at a time.
	if p.waiting() < p.limit && p.waiting() <= (p.limit+1)/2 && (p.direct == nil || p.pays() || !left && p.consumers.Len() > 0) {
		p.goOn()
	}
	if p.direct != nil {
		p.left()
	}
	return n, nil
}

// ready takes what was read ahead.
func (p *pump) ready(l *Lot, most int) int {
	if len(p.chunks) == 0 {
		return 0
	}
	first := p.chunks[0]
	n := first.move(l, most)
	if first.Len() == 0 {
		p.idle = append(p.idle, first)
		p.chunks = append(p.chunks[:0], p.chunks[1:]...)
	}
	return n
}

// readDirect has the consumer read, as far as that does not take waiting: the goroutine, which is told to end by other
// ways, does the waiting.
func (p *pump) readDirect(ctx context.Context, l *Lot, most int) (n int, err error) {
	below := wait.Never
	if track := wait.TrackOf(ctx); track != 0 {
		below = (&wait.Traced{Context: context.Background(), Track: track}).Never()
	}
	p.reading = true
	p.mu.Unlock()
	start := trace.Now()
	whole := false
	defer func() {
		p.mu.Lock()
		p.reading = false
		p.took(start)
		if !whole {
			p.finish(pyfeed.Errorf(pyfeed.Fault, "a consumer that reads: see what was printed"))
		}
	}()
	n, err = p.direct(below, l, most)
	whole = true
	return n, err
}

// cheap says whether a consumer may read itself: it has no way to end a read that takes long.
func (p *pump) cheap() bool { return p.direct != nil && p.cost < dear }

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

// pace is whether reading ahead pays: by how long consumers stay away between two reads, and how long a read takes, in
// nanoseconds, averaged over the last few, none of which counts for more than twice of what would pay by itself.
type pace struct {
	since      int64 // when the consumer left that came last; 0: it is here
	away, cost int64
}

const (
	longAway = 20_000  // while a consumer is away for that long, something can be read
	dear     = 200_000 // beside a read that takes so long, a wake-up is nothing
)

func (p *pace) left() { p.since = trace.Now() }

func (p *pace) came() {
	if p.since != 0 {
		p.away += (min(trace.Now()-p.since, 2*longAway) - p.away) / 4
		p.since = 0
	}
}

func (p *pace) took(start int64) { p.cost += (min(trace.Now()-start, 2*dear) - p.cost) / 4 }

func (p *pace) pays() bool { return p.away >= longAway || p.cost >= dear }

// waiting is how many chunks nothing was taken of.
func (p *pump) waiting() int {
	if len(p.chunks) > 0 && p.chunks[0].front > 0 {
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
		chunk := new(Lot)
		if n := len(p.idle); n > 0 {
			chunk, p.idle = p.idle[n-1], p.idle[:n-1]
		}
		start := trace.Begin()
		below.Track = lane.Track(p.name)
		err := p.fillUnlocked(below, chunk)
		trace.Since(below.Track, trace.Read, p.name, start)
		if chunk.Len() > 0 {
			p.chunks = append(p.chunks, chunk)
		}
		if err != nil {
			p.leave(err)
			return
		}
		p.ahead = p.waiting() < p.limit
		p.consumers.One().Send()
	}
}

// rests says whether the goroutine has nothing to do.
func (p *pump) rests(ctx context.Context) bool {
	room := p.waiting() < p.limit && !p.reading && (p.ahead || p.direct == nil)
	return !room && p.end == nil && ctx.Err() == nil
}

// fillUnlocked lets go of the lock to fill. After a panic too it is held again, as those above expect.
func (p *pump) fillUnlocked(ctx context.Context, chunk *Lot) error {
	p.reading = true
	p.mu.Unlock()
	start := trace.Now()
	defer func() {
		p.mu.Lock()
		p.reading = false
		p.took(start)
	}()
	return p.fill(ctx, chunk)
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
