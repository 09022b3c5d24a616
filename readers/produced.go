package readers

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// ProducedFormat is a format whose files are read by somebody else's threads, Python's or a C program's. Each
// waits for a file to be opened, and pushes its instances into a queue that the file's Records read.
type ProducedFormat struct {
	tag   string
	slots []pyfeed.Slot
	names []string

	mu       sync.Mutex
	idle     wait.List
	requests []*Production
	gone     bool
}

// Production is a file to be read into a queue, which holds a reference that its taker drops.
type Production struct {
	Path    string
	Options json.RawMessage
	Queue   *pyfeed.PyArrayFeedQueue
}

// producedCapacity is how many instances of a file wait to be read.
const producedCapacity = 64

// RegisterProduced adds a format. slots, JSON as of open_files or nothing, are what its instances look like where
// open_files is not told.
func RegisterProduced(tag string, suffixes []string, slots []byte) (*ProducedFormat, error) {
	p := &ProducedFormat{tag: tag}
	p.idle.Init(&p.mu)
	p.idle.Named("waits for a file to be opened", trace.Wait)
	var attributes []SlotAttributes
	err := decode("register_format: slots", slots, &attributes)
	if err == nil && attributes != nil {
		if p.slots, p.names, err = slotsOf(attributes); err == nil {
			_, err = pyfeed.NewSpec(p.slots)
		}
	}
	if err == nil {
		err = Register(Format{Tag: tag, Suffixes: suffixes, Options: func() any { return new(json.RawMessage) }, Open: p.open, Waits: true})
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Wait is the next file to be read, for any thread.
func (p *ProducedFormat) Wait(ctx context.Context) (*Production, error) {
	return wait.Do(ctx, func(ctx context.Context) (*Production, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.gone {
			return nil, pyfeed.Errorf(pyfeed.Closed, "format %q is no longer read", p.tag)
		}
		if len(p.requests) == 0 {
			return nil, p.idle.Enter(ctx)
		}
		first := p.requests[0]
		p.requests = p.requests[1:]
		return first, nil
	})
}

// Drop says that nobody reads the format's files any more.
func (p *ProducedFormat) Drop() {
	p.mu.Lock()
	p.gone = true
	requests := p.requests
	p.requests = nil
	p.idle.All()
	p.mu.Unlock()
	for _, r := range requests {
		_ = r.Queue.Fail(0, p.unread())
		r.Queue.Drop()
	}
}

func (p *ProducedFormat) unread() error {
	return pyfeed.Errorf(pyfeed.State, "format %q: expected a thread that reads its files, found that they have ended", p.tag)
}

func (p *ProducedFormat) open(path string, c *Config) (Records, error) {
	slots := c.Slots
	if slots == nil {
		slots = p.slots
	}
	r := &produced{format: p, slots: slots, names: p.names}
	if slots == nil {
		return r, nil // to be asked for them, in vain
	}
	var holder pyfeed.PyArrayFeedQueueHolder
	queue, err := holder.InitOnce(pyfeed.Options{Capacity: producedCapacity, Slots: slots})
	if err != nil {
		return nil, err
	}
	holder.Drop()
	r.queue = queue
	r.request = &Production{Path: path, Queue: queue}
	if raw, is := c.Options.(*json.RawMessage); is {
		r.request.Options = *raw
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// produced are the instances that a thread pushes.
type produced struct {
	format  *ProducedFormat
	slots   []pyfeed.Slot
	names   []string
	queue   *pyfeed.PyArrayFeedQueue
	request *Production // until the first read
	ctx     context.Context
	cancel  context.CancelFunc
}

func (r *produced) Describe() ([]pyfeed.Slot, []string, error) {
	if r.slots == nil {
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "format %q does not say what its instances look like: give slots", r.format.tag)
	}
	return r.slots, r.names, nil
}

// ask has somebody read the file.
func (r *produced) ask() error {
	p := r.format
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return p.unread()
	}
	r.request.Queue.Retain()
	p.requests = append(p.requests, r.request)
	r.request = nil
	p.idle.One().Send()
	return nil
}

func (r *produced) Read(out []*pyfeed.Tuple) (int, error) {
	if r.request != nil {
		if err := r.ask(); err != nil {
			return 0, err
		}
	}
	ctx := r.ctx // waits for the first, takes what is there besides
	for i := range out {
		t, err := r.queue.Pop(ctx)
		if err != nil {
			if i > 0 && (err == wait.ErrWouldBlock || err == io.EOF) {
				return i, nil
			}
			return i, err
		}
		out[i].Release()
		out[i] = t
		ctx = wait.Never
	}
	return len(out), nil
}

// Resync finds nothing: who pushes has said that it cannot go on.
func (r *produced) Resync() error { return io.EOF }

func (r *produced) Intact() error    { return nil }
func (r *produced) Unchanged() error { return nil }

// Interrupt ends the wait for who pushes.
func (r *produced) Interrupt() { r.cancel() }

func (r *produced) Close() {
	if r.queue == nil {
		return
	}
	r.cancel()
	r.queue.Shutdown()
	r.queue.Drop()
}
