// Package readers holds what a training loop reads from: the Reader interface, the reader of a
// queue, the decorators, the holder that hides which it is, and the operators that make them.
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
)

// A Reader delivers tuples, pass by pass.
//
// Its methods are called by one caller at a time: a ReaderHolder sees to that. They wait only by
// [wait.List.Enter], so that no caller keeps another out while it sleeps: ReadNext, ReadMany and HasNext then
// answer [wait.ErrWouldBlock] and keep what they have, for the next call to go on from there.
type Reader interface {
	// ReadNext is the next tuple, which is the caller's then, or io.EOF at the end of the pass.
	ReadNext(ctx context.Context) (*pyfeed.Tuple, error)
	// ReadMany adds the next instances to a Lot, as many as are there without waiting, but at least one and at
	// most so many, and answers how many. It spares those who move many the cost of many calls, and of tuples.
	ReadMany(ctx context.Context, l *Lot, most int) (int, error)
	// HasNext says whether there is a next tuple. It reads ahead.
	HasNext(ctx context.Context) (bool, error)
	// ReInit starts over, from any state, with a pass of that number: 0 is the one a reader begins with. The
	// order of a pass depends on its number, never on how far an earlier one had come.
	ReInit(pass uint64) error
	// Spec is what the tuples look like.
	Spec() *pyfeed.Spec
	// Describe adds what this Reader did to its Stats, whose kind it sets. The counts are there already.
	Describe(*Stats)
	// Close gives everything back. The Reader MUST NOT be used afterwards.
	Close()
}

// Stats is what a reader did, since it was made.
type Stats struct {
	Reader string `json:"reader"` // its kind, such as "batch"
	Tuples int64  `json:"tuples"` // delivered
	Bytes  int64  `json:"bytes"`  // of their data
	Passes int64  `json:"passes"` // begun by resets and from the start
	// PassID is the pass of the last tuple, where a multi_pass reader below goes on to further ones; from 0.
	PassID int64 `json:"pass_id"`
	// Waited is the time that callers slept in it because there was nothing to read, summed.
	Waited float64          `json:"waited_seconds"`
	Slots  []SlotAttributes `json:"slots"` // what its tuples look like
	Extra  map[string]any   `json:"details,omitempty"`
	Below  []Stats          `json:"below,omitempty"` // of the readers it reads
}

// ahead turns a function that reads into ReadNext, ReadMany and HasNext. The function is a ReadMany.
type ahead struct {
	read func(ctx context.Context, l *Lot, most int) (int, error)
	many int // that are read for a ReadNext, if they are there; 0: one
	next Lot
	// left wakes so many callers at most, for whom some of many are left: they sleep where read would wake them. nil: none do.
	left func(n int)
}

func (a *ahead) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	if a.next.Len() == 0 {
		n, err := a.read(ctx, &a.next, max(a.many, 1))
		if err != nil {
			return nil, err
		}
		if n > 1 && a.left != nil {
			a.left(n - 1)
		}
	}
	return a.next.one(), nil
}

func (a *ahead) ReadMany(ctx context.Context, l *Lot, most int) (int, error) {
	switch {
	case most == 0:
		return 0, nil
	case a.next.Len() > 0:
		return a.next.move(l, most), nil
	}
	return a.read(ctx, l, most)
}

func (a *ahead) HasNext(ctx context.Context) (bool, error) {
	if a.next.Len() > 0 {
		return true, nil
	}
	_, err := a.read(ctx, &a.next, 1)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

func (a *ahead) drop() { a.next.drop() }

// single makes a ReadMany of a function that reads one tuple.
func single(read func(context.Context) (*pyfeed.Tuple, error)) func(context.Context, *Lot, int) (int, error) {
	return func(ctx context.Context, l *Lot, _ int) (int, error) {
		t, err := read(ctx)
		if err != nil {
			return 0, err
		}
		l.Add(t)
		return 1, nil
	}
}

// several makes a ReadMany of a function that fills the front of a slice with tuples, and answers how many.
func several(read func(context.Context, []*pyfeed.Tuple) (int, error)) func(context.Context, *Lot, int) (int, error) {
	return func(ctx context.Context, l *Lot, most int) (int, error) {
		n, err := read(ctx, l.room(min(most, chunkSize)))
		l.added(n)
		return n, err
	}
}

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
	last   int64 // the pass of the last tuple
	room   Lot

	delivery *pyfeed.Delivery // of what is meant for a device and not there yet; else nil
}

// NewHolder owns the Reader from now on.
func NewHolder(r Reader) *ReaderHolder {
	h := &ReaderHolder{reader: r}
	h.references.Store(1)
	if place, there := h.target(); place.Kind == pyfeed.CUDA && !there {
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
		return nil, h.outward(err)
	}
	if err = settle(ctx, t); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

// settle makes a tuple fit to leave the library.
func settle(ctx context.Context, t *pyfeed.Tuple) error {
	if trace.On() {
		return settleTraced(ctx, t)
	}
	_, err := t.Settle(settling)
	return err
}

func settleTraced(ctx context.Context, t *pyfeed.Tuple) error {
	start := trace.Begin()
	copied, err := t.Settle(settling)
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

// settling is the memory of tuples that had to be copied to leave the library.
var settling = memory.NewCounter(memory.Batch)

// ReadMany fills the front of out with the next tuples, as many as are there without waiting, but at least one, and
// answers how many. Any thread; pyfeed.Cancelled if the reader is reset meanwhile.
func (h *ReaderHolder) ReadMany(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	n, err := wait.Do(ctx, func(ctx context.Context) (int, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.stale(ctx); err != nil {
			return 0, err
		}
		if _, err := h.many(ctx, &h.room, len(out)); err != nil {
			return 0, err
		}
		return h.room.Take(out), nil
	})
	return n, h.outward(err)
}

func (h *ReaderHolder) many(ctx context.Context, l *Lot, most int) (int, error) {
	before := l.bytes
	n, err := h.reader.ReadMany(ctx, l, most)
	if n > 0 {
		h.tuples += int64(n)
		h.bytes += int64(l.bytes - before)
		_, h.last = l.like(l.Len() - 1)
	}
	return n, err
}

// gathers says whether the Reader's tuples are batches, which gather leads to.
func (h *ReaderHolder) gathers() bool {
	_, is := h.reader.(*BatchReader)
	return is
}

// Stats is what the Reader did so far.
func (h *ReaderHolder) Stats() Stats {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Stats{Tuples: h.tuples, Bytes: h.bytes, Passes: int64(h.resets.Load()) + 1, PassID: h.last, Slots: Describe(h.reader.Spec())}
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
	if err = h.outward(err); err == io.EOF {
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
