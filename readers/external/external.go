// Package external is for formats whose files are read by threads outside the library, such as Python's or a C
// program's.
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

// Format is a format whose files are read by threads outside the library. Each such thread waits for a file to be
// opened, and pushes its instances into a queue. The file's Records read from that queue.
type Format struct {
	tag   string
	slots []pyfeed.Slot
	names []string

	mu       sync.Mutex
	waiting  wait.List
	requests []*ReadRequest
	closed   bool
}

// ReadRequest asks a thread to read a file into a queue. The thread that takes the request drops its reference to the
// queue.
type ReadRequest struct {
	Path    string
	Options json.RawMessage
	Queue   *pyfeed.Consumer
}

// queueCapacity is how many instances of a file wait in its queue at most.
const queueCapacity = 64

// Register adds a format. slots are the slots of its instances, as JSON like the slots of open_files, or nothing. They
// are used when the caller of open_files gives none.
func Register(tag string, suffixes []string, slots []byte) (*Format, error) {
	f := &Format{tag: tag}
	f.waiting.Init(&f.mu)
	f.waiting.Named("waits for a file to be opened", trace.Wait)
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

// NextRequest waits for and returns the next file to be read. Any thread may call it.
func (f *Format) NextRequest(ctx context.Context) (*ReadRequest, error) {
	return wait.Do(ctx, func(ctx context.Context) (*ReadRequest, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.closed {
			return nil, pyfeed.Errorf(pyfeed.Closed, "format %q is no longer read", f.tag)
		}
		if len(f.requests) == 0 {
			return nil, f.waiting.Enter(ctx)
		}
		first := f.requests[0]
		f.requests = f.requests[1:]
		return first, nil
	})
}

// Drop tells the format that no thread reads its files any more. All requests fail.
func (f *Format) Drop() {
	f.mu.Lock()
	f.closed = true
	requests := f.requests
	f.requests = nil
	f.waiting.WakeAll()
	f.mu.Unlock()
	for _, r := range requests {
		_ = r.Queue.Fail(pyfeed.PassCurrent, f.errClosed())
		r.Queue.Drop()
	}
}

func (f *Format) errClosed() error {
	return pyfeed.Errorf(pyfeed.State, "format %q: expected a thread that reads its files, found that they have ended", f.tag)
}

func (f *Format) open(path string, c *record.Config) (record.Records, error) {
	slots := c.Slots
	if slots == nil {
		slots = f.slots
	}
	r := &records{format: f, slots: slots, names: f.names}
	if slots == nil {
		return r, nil // Describe will return an error that asks for slots
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

// records reads the instances that a thread pushes.
type records struct {
	format  *Format
	slots   []pyfeed.Slot
	names   []string
	queue   *pyfeed.Consumer
	request *ReadRequest // nil from the first read on
	ctx     context.Context
	cancel  context.CancelFunc
}

func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	if r.slots == nil {
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "format %q does not say what its instances look like: give slots", r.format.tag)
	}
	return r.slots, r.names, nil
}

// sendRequest wakes a thread to read the file.
func (r *records) sendRequest() error {
	f := r.format
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.errClosed()
	}
	r.request.Queue.Retain()
	f.requests = append(f.requests, r.request)
	r.request = nil
	f.waiting.WakeOne().Send()
	return nil
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	if r.request != nil {
		if err := r.sendRequest(); err != nil {
			return 0, err
		}
	}
	ctx := r.ctx // waits for the first instance only; the others are taken if they are in the queue already
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

// Resync ends the file: an error of the pushing thread means that it cannot go on.
func (r *records) Resync() error { return io.EOF }

func (r *records) CheckTruncated() error { return nil }
func (r *records) CheckUnchanged() error { return nil }

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
