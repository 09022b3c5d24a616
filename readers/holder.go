package readers

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/record"
)

// ReaderHolder hides which Reader it is, lets any number of threads read from it, and is what a
// Variable holds. A true HasNext holds for the holder's next ReadNext, whoever makes it.
type ReaderHolder struct {
	references atomic.Int32
	name       string        // of the variable it was made for, for messages; may be ""
	resets     atomic.Uint64 // written under the lock

	mu     sync.Mutex
	reader Reader
	pass   uint64
	tuples int64
	bytes  int64
	last   int64        // the pass of the last tuple
	chunk  record.Chunk // space for ReadMany

	delivery *pyfeed.Delivery // of what is meant for a device and not there yet; else nil
}

// NewHolder owns the Reader from now on.
func NewHolder(r Reader) *ReaderHolder {
	h := &ReaderHolder{reader: r}
	h.references.Store(1)
	if place, there := h.OutputPlace(); place.Kind == pyfeed.CUDA && !there {
		h.delivery = pyfeed.NewDelivery(place)
	}
	return h
}

// Named sets the name of the variable that it is made for, before others have it, and answers h.
func (h *ReaderHolder) Named(variable string) *ReaderHolder {
	h.name = variable
	return h
}

// Retain adds a reference.
func (h *ReaderHolder) Retain() *ReaderHolder {
	h.references.Add(1)
	return h
}

// Drop takes a reference away; the last one closes the Reader.
func (h *ReaderHolder) Drop() {
	if h.references.Add(-1) == 0 {
		h.mu.Lock()
		defer h.mu.Unlock()
		if h.delivery != nil {
			h.delivery.Close()
		}
		h.reader.Close()
	}
}

// ReadNext is the Reader's, for any thread; pyfeed.Cancelled if the reader is reset meanwhile. The tuple is
// fit to leave the library, and at the device that it is meant for.
func (h *ReaderHolder) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	t, err := wait.Do(ctx, func(ctx context.Context) (*pyfeed.Tuple, error) {
		if trace.On() {
			h.lockTraced(ctx)
		} else {
			h.mu.Lock()
		}
		defer h.mu.Unlock()
		if err := h.stale(ctx); err != nil {
			return nil, err
		}
		t, err := h.next(ctx)
		if err == nil {
			h.tuples++
			h.bytes += int64(t.Size())
			h.last = t.Pass
		}
		return t, err
	})
	if err != nil {
		return nil, h.external(err)
	}
	if err = EnsureExportable(ctx, t); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// EnsureExportable makes a tuple fit to leave the library: it copies what is not aligned, or lies in Go's heap.
func EnsureExportable(ctx context.Context, t *pyfeed.Tuple) error {
	if trace.On() {
		return ensureExportableTraced(ctx, t)
	}
	_, err := t.EnsureExportable(exportPool)
	return err
}

func ensureExportableTraced(ctx context.Context, t *pyfeed.Tuple) error {
	start := trace.Begin()
	copied, err := t.EnsureExportable(exportPool)
	if copied && start != 0 {
		trace.CopySince(wait.TrackOf(ctx), "align", start, t.Size())
	}
	return err
}

// lockTraced waits for other callers, whom the trace may show at work.
func (h *ReaderHolder) lockTraced(ctx context.Context) {
	if !h.mu.TryLock() {
		start := trace.Begin()
		h.mu.Lock()
		trace.Since(wait.TrackOf(ctx), trace.Wait, "waits for another consumer", start)
	}
}

func (h *ReaderHolder) next(ctx context.Context) (*pyfeed.Tuple, error) {
	if h.delivery != nil {
		return h.delivery.Next(ctx, h.reader.ReadNext)
	}
	return h.reader.ReadNext(ctx)
}

// exportPool is the memory of tuples that had to be copied to leave the library.
var exportPool = memory.NewUnpooled(memory.Batch)

// ReadMany fills the front of out with the next tuples, as many as are there without waiting, but at least one, and
// answers how many. Any thread; pyfeed.Cancelled if the reader is reset meanwhile.
func (h *ReaderHolder) ReadMany(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	n, err := wait.Do(ctx, func(ctx context.Context) (int, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.stale(ctx); err != nil {
			return 0, err
		}
		if _, err := h.readInto(ctx, &h.chunk, len(out)); err != nil {
			return 0, err
		}
		return h.chunk.Take(out), nil
	})
	return n, h.external(err)
}

// readInto is the Reader's ReadMany, counted. The lock is held.
func (h *ReaderHolder) readInto(ctx context.Context, c *record.Chunk, most int) (int, error) {
	before := c.Bytes()
	n, err := h.reader.ReadMany(ctx, c, most)
	if n > 0 {
		h.tuples += int64(n)
		h.bytes += int64(c.Bytes() - before)
		_, h.last = c.PeekSpec(c.Len() - 1)
	}
	return n, err
}

// Capability is the Reader, if it is a T too: an interface of what some readers can do beside reading. It does not tell
// which reader it is.
func Capability[T any](h *ReaderHolder) (T, bool) {
	t, is := h.reader.(T)
	return t, is
}

// Stats is what the Reader did so far.
func (h *ReaderHolder) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Tuples: h.tuples, Bytes: h.bytes, Passes: int64(h.resets.Load()) + 1, PassID: h.last, Slots: record.DescribeSpec(h.reader.Spec())}
	h.reader.Describe(&s)
	return s
}

// HasNext is the Reader's, for any thread; pyfeed.Cancelled if the reader is reset meanwhile.
func (h *ReaderHolder) HasNext(ctx context.Context) (bool, error) {
	has, err := wait.Do(ctx, func(ctx context.Context) (bool, error) {
		if trace.On() {
			h.lockTraced(ctx)
		} else {
			h.mu.Lock()
		}
		defer h.mu.Unlock()
		if err := h.stale(ctx); err != nil {
			return false, err
		}
		if h.delivery != nil && h.delivery.Ready() {
			return true, nil
		}
		return h.reader.HasNext(ctx)
	})
	if err == nil && !has {
		err = io.EOF
	}
	if err = h.external(err); err == io.EOF {
		err = nil
	}
	return has, err
}

func (h *ReaderHolder) stale(ctx context.Context) error {
	if wait.Began(ctx, h, h.resets.Load()) != h.resets.Load() {
		return pyfeed.Errorf(pyfeed.Cancelled, "the reader was reset while this call waited in it")
	}
	return nil
}

// ReInit starts the Reader over, with the next pass. Calls that wait in it are cancelled.
func (h *ReaderHolder) ReInit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begin(h.pass + 1)
}

// Begin starts the Reader over with a pass of that number.
func (h *ReaderHolder) Begin(pass uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begin(pass)
}

func (h *ReaderHolder) begin(pass uint64) error {
	// Those that wait are woken by what they wait for: starting over moves it.
	if err := h.reader.ReInit(pass); err != nil {
		return err
	}
	if h.delivery != nil {
		h.delivery.Drop()
	}
	h.pass = pass
	h.resets.Add(1)
	return nil
}

// Spec is the Reader's.
func (h *ReaderHolder) Spec() *pyfeed.Spec { return h.reader.Spec() }

// HolderOf is the holder in a variable, with a reference that the caller drops.
func HolderOf(v *pyfeed.Variable) (*ReaderHolder, error) {
	var h *ReaderHolder
	v.With(func(c pyfeed.Content) {
		if held, ok := c.(*ReaderHolder); ok {
			h = held.Retain()
		}
	})
	if h == nil {
		return nil, pyfeed.Errorf(pyfeed.State, "variable %q: expected a reader in it, found none", v.Name())
	}
	return h, nil
}

// FindHolder is the holder in the variable of that name, with a reference that the caller drops.
func FindHolder(scope *pyfeed.Scope, name string) (*ReaderHolder, error) {
	v, err := scope.FindVar(name)
	if err != nil {
		return nil, err
	}
	return HolderOf(v)
}
