package readers

import (
	"context"
	"sync"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// pump reads ahead of its consumers, chunk by chunk, in a goroutine that begins with the first read and ends
// with the pass, an error or a stop.
type pump struct {
	name string
	// fill makes the next chunk in the room it is given, which it may enlarge. An error that comes with tuples
	// is answered after them; the pump ends with it.
	fill  func(ctx context.Context, room []*pyfeed.Tuple) ([]*pyfeed.Tuple, error)
	limit int // chunks that wait, at most, beside the one that is being taken

	mu        sync.Mutex
	consumers wait.List
	changed   sync.Cond
	chunks    [][]*pyfeed.Tuple // the first from at on
	at        int
	idle      [][]*pyfeed.Tuple
	end       error
	cancel    context.CancelFunc
	running   bool
}

func newPump(name string, limit int, fill func(context.Context, []*pyfeed.Tuple) ([]*pyfeed.Tuple, error)) *pump {
	p := &pump{name: name, fill: fill, limit: limit}
	p.consumers.Init(&p.mu)
	p.consumers.Named("waits for "+name, trace.Wait)
	p.changed.L = &p.mu
	return p
}

// take is a ReadMany.
func (p *pump) take(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running && p.end == nil {
		p.start()
	}
	if len(p.chunks) == 0 {
		if p.end != nil {
			return 0, p.end
		}
		return 0, p.consumers.Enter(ctx)
	}
	first, before := p.chunks[0], p.waiting()
	n := copy(out, first[p.at:])
	p.at += n
	if p.at == len(first) {
		p.idle = append(p.idle, first)
		p.chunks = append(p.chunks[:0], p.chunks[1:]...)
		p.at = 0
	}
	if p.waiting() < before {
		p.changed.Signal()
	}
	if len(p.chunks) > 0 || p.end != nil {
		p.consumers.One().Send() // there is something left for another
	}
	return n, nil
}

// waiting is how many chunks nothing was taken of.
func (p *pump) waiting() int {
	if p.at > 0 {
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
		if p.waiting() >= p.limit && ctx.Err() == nil {
			full := trace.Begin()
			for p.waiting() >= p.limit && ctx.Err() == nil {
				p.changed.Wait()
			}
			trace.Since(lane.Track(p.name), trace.Full, "no room", full)
		}
		if err := ctx.Err(); err != nil { // what is below may never wait, and so never look
			p.leave(err)
			return
		}
		var room []*pyfeed.Tuple
		if n := len(p.idle); n > 0 {
			room, p.idle = p.idle[n-1], p.idle[:n-1]
		}
		start := trace.Begin()
		below.Track = lane.Track(p.name)
		chunk, err := p.fillUnlocked(below, room[:cap(room)])
		trace.Since(below.Track, trace.Read, p.name, start)
		if len(chunk) > 0 {
			p.chunks = append(p.chunks, chunk)
		}
		if err != nil {
			p.leave(err)
			return
		}
		p.consumers.One().Send()
	}
}

// fillUnlocked lets go of the lock to fill. After a panic too it is held again, as those above expect.
func (p *pump) fillUnlocked(ctx context.Context, room []*pyfeed.Tuple) ([]*pyfeed.Tuple, error) {
	p.mu.Unlock()
	defer p.mu.Lock()
	return p.fill(ctx, room)
}

// leave is the end of the goroutine.
func (p *pump) leave(end error) {
	p.running, p.end = false, end
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
	for i, c := range p.chunks {
		if i == 0 {
			c = c[p.at:]
		}
		pyfeed.ReleaseAll(c)
	}
	p.chunks, p.at, p.cancel, p.idle = nil, 0, nil, nil
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
