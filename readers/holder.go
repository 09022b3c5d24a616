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

// ReaderHolder wraps a Reader of any type, lets any number of threads read from it, and is what a Variable holds. After
// HasNext has returned true, the next ReadNext of the holder returns a tuple, in whichever thread it is called.
type ReaderHolder struct {
	references atomic.Int32
	name       string        // of the variable that the reader was made for, for messages; may be ""
	resets     atomic.Uint64 // written under the lock
	looped     atomic.Bool   // a loop began since the last reset
	failed     atomic.Bool   // a read failed since the last reset

	// For State, which does not lock readers below, because a thread that reads ahead may be within a long read.
	delivered    atomic.Int64             // tuples of this pass that consumers got; tuples that readers above got do not count
	readBy       atomic.Pointer[Upstream] // the first that has read in this pass
	shared       atomic.Bool              // another Upstream has read in this pass
	begunBy      atomic.Pointer[Upstream] // the reader above that has begun this pass; nil: another caller has, or the pass is the first
	waitingCalls atomic.Int32             // of consumers

	mu     sync.Mutex
	reader Reader
	pass   uint64
	tuples int64
	bytes  int64
	last   int64        // the pass of the last tuple
	chunk  record.Chunk // space for ReadMany
	damage error        // of a record that ReadMany has taken; it stays for the rest of the pass
	ahead  int64        // tuples before a restored position, which are still to be dropped
	ended  bool         // a consumer was told that the pass has ended

	delivery *pyfeed.Delivery // copies the tuples to their device; nil if no copy is needed
}

// NewHolder returns a holder that owns the Reader, with one reference.
func NewHolder(r Reader) *ReaderHolder {
	h := &ReaderHolder{reader: r}
	h.references.Store(1)
	if place, there := h.OutputPlace(); place.Kind == pyfeed.CUDA && !there {
		h.delivery = pyfeed.NewDelivery(place)
	}
	return h
}

// Named sets the name of the variable that the holder is made for, and returns h. It is called before other threads
// have h.
func (h *ReaderHolder) Named(variable string) *ReaderHolder {
	h.name = variable
	return h
}

// Retain adds a reference.
func (h *ReaderHolder) Retain() *ReaderHolder {
	h.references.Add(1)
	return h
}

// Drop releases a reference; the last one closes the Reader.
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

// ReadNext calls ReadNext of the Reader. Any thread may call it. It returns pyfeed.Cancelled if the reader is reset
// during the call. The tuple can be exported from the library, and is at the device that it is meant for.
func (h *ReaderHolder) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	return h.ReadNextInLoop(ctx, 0)
}

// ReadNextInLoop is ReadNext within a loop: it also returns pyfeed.Cancelled if the reader was reset after the loop
// began. Loop 0 stands for no loop.
func (h *ReaderHolder) ReadNextInLoop(ctx context.Context, loop Loop) (*pyfeed.Tuple, error) {
	t, err := wait.Do(ctx, func(ctx context.Context) (*pyfeed.Tuple, error) {
		resets := h.resets.Load() // before the lock, which a reset may have
		if loop != 0 {
			resets = uint64(loop) - 1
		}
		if trace.On() {
			h.lockTraced(ctx)
		} else {
			h.mu.Lock()
		}
		defer h.mu.Unlock()
		if err := h.stale(ctx, resets); err != nil {
			return nil, err
		}
		t, err := h.next(ctx)
		switch err {
		case nil:
			h.tuples++
			h.bytes += int64(t.Size())
			h.last = t.Pass
			h.delivered.Add(1)
		case io.EOF:
			h.ended = true
		}
		return t, err
	})
	if err != nil {
		err = h.external(err)
		h.noteError(ctx, err)
		return nil, err
	}
	if err = EnsureExportable(ctx, t); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// EnsureExportable makes a tuple fit to leave the library: it copies slots that are not aligned, or that lie in Go's
// heap.
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

// lockTraced waits for the lock and records the wait: without that, the trace would show the caller at work.
func (h *ReaderHolder) lockTraced(ctx context.Context) {
	if !h.mu.TryLock() {
		start := trace.Begin()
		h.mu.Lock()
		trace.Since(wait.TrackOf(ctx), trace.Wait, "waits for another consumer", start)
	}
}

func (h *ReaderHolder) next(ctx context.Context) (*pyfeed.Tuple, error) {
	if h.damage != nil {
		return nil, h.damage
	}
	if h.ahead > 0 {
		if err := h.skipAhead(ctx); err != nil {
			return nil, err
		}
	}
	if h.delivery != nil {
		return h.delivery.Next(ctx, h.reader.ReadNext)
	}
	return h.reader.ReadNext(ctx)
}

// exportPool allocates the memory of tuples that had to be copied to leave the library.
var exportPool = memory.NewUnpooled(memory.Batch)

// ReadMany fills the front of out with the next tuples: as many as can be read without waiting, but at least one. It
// returns how many. Any thread may call it. It returns pyfeed.Cancelled if the reader is reset during the call.
func (h *ReaderHolder) ReadMany(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	n, err := wait.Do(ctx, func(ctx context.Context) (int, error) {
		resets := h.resets.Load() // before the lock, which a reset may have
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.stale(ctx, resets); err != nil {
			return 0, err
		}
		n, err := h.readInto(ctx, &h.chunk, len(out))
		if err != nil {
			h.ended = h.ended || err == io.EOF
			return 0, err
		}
		defer h.chunk.Release()
		bytes := h.chunk.Bytes()
		if h.damage = h.chunk.Verify(record.Checkpoint{}, nil); h.damage != nil {
			left := h.chunk.Len()
			h.tuples -= int64(n - left)
			h.bytes -= int64(bytes - h.chunk.Bytes())
			if n = left; n == 0 {
				return 0, h.damage
			}
			_, h.last = h.chunk.PeekSpec(n - 1)
		}
		h.delivered.Add(int64(n))
		return h.chunk.Take(out)
	})
	return n, h.external(err)
}

// readInto calls ReadMany of the Reader and counts the tuples. The caller holds the lock.
func (h *ReaderHolder) readInto(ctx context.Context, c *record.Chunk, limit int) (int, error) {
	if h.damage != nil {
		return 0, h.damage
	}
	if h.ahead > 0 {
		if err := h.skipAhead(ctx); err != nil {
			return 0, err
		}
	}
	before := c.Bytes()
	n, err := h.reader.ReadMany(ctx, c, limit)
	if n > 0 {
		h.tuples += int64(n)
		h.bytes += int64(c.Bytes() - before)
		_, h.last = c.PeekSpec(c.Len() - 1)
	}
	return n, err
}

// Capability returns the Reader as a T, an interface for what only some readers can do, if it implements T. The
// concrete type stays hidden.
func Capability[T any](h *ReaderHolder) (T, bool) {
	t, is := h.reader.(T)
	return t, is
}

// Stats returns what the Reader has done since it was made.
func (h *ReaderHolder) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Tuples: h.tuples, Bytes: h.bytes, Passes: int64(h.resets.Load()) + 1, PassID: h.last, Slots: record.DescribeSpec(h.reader.Spec())}
	h.reader.Describe(&s)
	switch n := h.Length(); n {
	case Unknown:
	case Endless:
		s.Length = new(int64)
		*s.Length = -1
	default:
		s.Length = &n
	}
	return s
}

// HasNext calls HasNext of the Reader. Any thread may call it. It returns pyfeed.Cancelled if the reader is reset
// during the call.
func (h *ReaderHolder) HasNext(ctx context.Context) (bool, error) {
	has, err := wait.Do(ctx, func(ctx context.Context) (bool, error) {
		resets := h.resets.Load() // before the lock, which a reset may have
		if trace.On() {
			h.lockTraced(ctx)
		} else {
			h.mu.Lock()
		}
		defer h.mu.Unlock()
		if err := h.stale(ctx, resets); err != nil {
			return false, err
		}
		if h.delivery != nil && h.delivery.Ready() {
			return true, nil
		}
		if h.damage != nil {
			return false, h.damage
		}
		if h.ahead > 0 {
			if err := h.skipAhead(ctx); err != nil {
				return false, err
			}
		}
		has, err := h.reader.HasNext(ctx)
		h.ended = h.ended || err == nil && !has
		return has, err
	})
	if err == nil && !has {
		err = io.EOF
	}
	if err = h.external(err); err == io.EOF {
		err = nil
	}
	if err != nil {
		h.noteError(ctx, err)
	}
	return has, err
}

// stale returns an error if the reader was reset after the call began, when resets was its number of resets. The caller
// holds the lock.
func (h *ReaderHolder) stale(ctx context.Context, resets uint64) error {
	if wait.GenerationAtStart(ctx, h, resets) != h.resets.Load() {
		return pyfeed.Errorf(pyfeed.Cancelled, "the reader was reset while this call waited in it")
	}
	return nil
}

// CallWaits implements [wait.CallCounter].
func (h *ReaderHolder) CallWaits() { h.waitingCalls.Add(1) }

// CallEnded implements [wait.CallCounter].
func (h *ReaderHolder) CallEnded() { h.waitingCalls.Add(-1) }

// ReInit resets the Reader to the start of the next pass. Calls that wait in the reader are cancelled.
func (h *ReaderHolder) ReInit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reset(h.pass + 1)
}

// Begin resets the Reader to the start of pass number pass.
func (h *ReaderHolder) Begin(pass uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.begin(pass, nil)
}

// begin is Begin for a reader above; nil: for another caller. The caller holds the lock.
func (h *ReaderHolder) begin(pass uint64, by *Upstream) error {
	before := h.begunBy.Swap(by)
	// ReInit wakes the calls that wait in the reader.
	if err := h.reader.ReInit(pass); err != nil {
		h.begunBy.Store(before)
		return err
	}
	if h.delivery != nil {
		h.delivery.Drop()
	}
	h.pass, h.ahead, h.ended, h.damage = pass, 0, false, nil
	h.delivered.Store(0)
	h.readBy.Store(nil)
	h.shared.Store(false)
	h.failed.Store(false)
	h.resets.Add(1)
	return nil
}

// Spec returns the Spec of the Reader.
func (h *ReaderHolder) Spec() *pyfeed.Spec { return h.reader.Spec() }

// HolderOf returns the holder in a variable, with a reference that the caller drops.
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

// FindHolder returns the holder in the variable of that name, with a reference that the caller drops.
func FindHolder(scope *pyfeed.Scope, name string) (*ReaderHolder, error) {
	v, err := scope.FindVar(name)
	if err != nil {
		return nil, err
	}
	return HolderOf(v)
}
