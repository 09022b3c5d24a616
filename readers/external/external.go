// Package external is for formats whose files are read by threads outside the library, Python's or a C program's.
package external

import (
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Format is a format whose files are read by threads outside the library. Each waits for a file to be opened, and pushes its
// instances into a queue that the file's Records read.
type Format struct {
	tag   string
	slots []pyfeed.Slot
	names []string

	mu       sync.Mutex
	idle     wait.List
	requests []*ReadRequest
	gone     bool
}

// ReadRequest is a file to be read into a queue. It holds a reference to the queue, which the thread that takes it drops.
type ReadRequest struct {
	Path    string
	Options json.RawMessage
	Queue   *pyfeed.Consumer
}

// queueCapacity is how many instances of a file wait to be read.
const queueCapacity = 64

// Register adds a format. slots, JSON as of open_files or nothing, are what its instances look like where
// open_files is not told.
func Register(tag string, suffixes []string, slots []byte) (*Format, error) {
	f := &Format{tag: tag}
	f.idle.Init(&f.mu)
	f.idle.Named("waits for a file to be opened", trace.Wait)
	var attributes []record.SlotAttributes
	err := record.DecodeAttributes("register_format: slots", slots, &attributes)
	if err == nil && attributes != nil {
		if f.slots, f.names, err = record.ParseSlots(attributes); err == nil {
			_, err = pyfeed.NewSpec(f.slots)
		}
	}
	if err == nil {
		err = record.Register(record.Format{Tag: tag, Suffixes: suffixes, Options: func() any { return new(json.RawMessage) }, Open: f.open, Waits: true})
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Wait is the next file to be read, for any thread.
func (f *Format) Wait(ctx context.Context) (*ReadRequest, error) {
	return wait.Do(ctx, func(ctx context.Context) (*ReadRequest, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.gone {
			return nil, pyfeed.Errorf(pyfeed.Closed, "format %q is no longer read", f.tag)
		}
		if len(f.requests) == 0 {
			return nil, f.idle.Enter(ctx)
		}
		first := f.requests[0]
		f.requests = f.requests[1:]
		return first, nil
	})
}

// Drop says that no thread reads the format's files any more.
func (f *Format) Drop() {
	f.mu.Lock()
	f.gone = true
	requests := f.requests
	f.requests = nil
	f.idle.All()
	f.mu.Unlock()
	for _, r := range requests {
		_ = r.Queue.Fail(pyfeed.PassCurrent, f.unread())
		r.Queue.Drop()
	}
}

func (f *Format) unread() error {
	return pyfeed.Errorf(pyfeed.State, "format %q: expected a thread that reads its files, found that they have ended", f.tag)
}

func (f *Format) open(path string, c *record.Config) (record.Records, error) {
	slots := c.Slots
	if slots == nil {
		slots = f.slots
	}
	r := &records{format: f, slots: slots, names: f.names}
	if slots == nil {
		return r, nil // to be asked for them, in vain
	}
	queue, err := pyfeed.NewQueue(pyfeed.QueueOptions{Capacity: queueCapacity, Slots: slots})
	if err != nil {
		return nil, err
	}
	r.queue = queue
	r.request = &ReadRequest{Path: path, Queue: queue}
	if raw, is := c.Options.(*json.RawMessage); is {
		r.request.Options = *raw
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r, nil
}

// records are the instances that a thread pushes.
type records struct {
	format  *Format
	slots   []pyfeed.Slot
	names   []string
	queue   *pyfeed.Consumer
	request *ReadRequest // until the first read
	ctx     context.Context
	cancel  context.CancelFunc
}

func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if r.slots == nil {
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "format %q does not say what its instances look like: give slots", r.format.tag)
	}
	return r.slots, r.names, nil
}

// send has a thread read the file.
func (r *records) send() error {
	f := r.format
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gone {
		return f.unread()
	}
	r.request.Queue.Retain()
	f.requests = append(f.requests, r.request)
	r.request = nil
	f.idle.One().Send()
	return nil
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	if r.request != nil {
		if err := r.send(); err != nil {
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
		ctx = wait.NonBlocking
	}
	return len(out), nil
}

// Resync finds nothing: the thread that pushes has said that it cannot go on.
func (r *records) Resync() error { return io.EOF }

func (r *records) Intact() error    { return nil }
func (r *records) Unchanged() error { return nil }

// Interrupt ends the wait for a push.
func (r *records) Interrupt() { r.cancel() }

func (r *records) Close() {
	if r.queue == nil {
		return
	}
	r.cancel()
	r.queue.Shutdown()
	r.queue.Drop()
}
