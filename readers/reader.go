// Package readers holds what a training loop reads from: the Reader interface, the reader of a
// queue, the decorators, the holder that hides which it is, and the operators that make them.
package readers

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// A Reader delivers tuples, pass by pass.
//
// Its methods are called by one caller at a time: a ReaderHolder sees to that. They wait only by
// [wait.List.Enter], so that no caller keeps another out while it sleeps: ReadNext and HasNext then
// answer [wait.ErrWouldBlock] and keep what they have, for the next call to go on from there.
type Reader interface {
	// ReadNext is the next tuple, which is the caller's then, or io.EOF at the end of the pass.
	ReadNext(ctx context.Context) (*pyfeed.Tuple, error)
	// HasNext says whether there is a next tuple. It reads ahead.
	HasNext(ctx context.Context) (bool, error)
	// ReInit starts over, from any state.
	ReInit() error
	// Spec is what the tuples look like.
	Spec() *pyfeed.Spec
	// Close gives everything back. The Reader MUST NOT be used afterwards.
	Close()
}

// ahead turns a function that reads into a ReadNext and a HasNext.
type ahead struct {
	read func(context.Context) (*pyfeed.Tuple, error)
	next *pyfeed.Tuple
}

func (a *ahead) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	if t := a.next; t != nil {
		a.next = nil
		return t, nil
	}
	return a.read(ctx)
}

func (a *ahead) HasNext(ctx context.Context) (bool, error) {
	if a.next != nil {
		return true, nil
	}
	t, err := a.read(ctx)
	switch err {
	case nil:
		a.next = t
		return true, nil
	case io.EOF:
		return false, nil
	}
	return false, err
}

func (a *ahead) drop() {
	if a.next != nil {
		a.next.Release()
		a.next = nil
	}
}

// ReaderHolder hides which Reader it is, lets any number of threads read from it, and is what a
// Variable holds. A true HasNext holds for the holder's next ReadNext, whoever makes it.
type ReaderHolder struct {
	references atomic.Int32

	mu     sync.Mutex
	reader Reader
	resets uint64
}

// NewHolder owns the Reader from now on.
func NewHolder(r Reader) *ReaderHolder {
	h := &ReaderHolder{reader: r}
	h.references.Store(1)
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
		h.reader.Close()
	}
}

// ReadNext is the Reader's, for any thread; pyfeed.Cancelled if the reader is reset meanwhile.
func (h *ReaderHolder) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	return wait.Do(ctx, func(ctx context.Context) (*pyfeed.Tuple, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.stale(ctx); err != nil {
			return nil, err
		}
		return h.reader.ReadNext(ctx)
	})
}

// HasNext is the Reader's, for any thread; pyfeed.Cancelled if the reader is reset meanwhile.
func (h *ReaderHolder) HasNext(ctx context.Context) (bool, error) {
	return wait.Do(ctx, func(ctx context.Context) (bool, error) {
		h.mu.Lock()
		defer h.mu.Unlock()
		if err := h.stale(ctx); err != nil {
			return false, err
		}
		return h.reader.HasNext(ctx)
	})
}

func (h *ReaderHolder) stale(ctx context.Context) error {
	if wait.Began(ctx, h, h.resets) != h.resets {
		return pyfeed.Errorf(pyfeed.Cancelled, "the reader was reset while this call waited in it")
	}
	return nil
}

// ReInit starts the Reader over. Calls that wait in it are cancelled.
func (h *ReaderHolder) ReInit() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	// Those that wait are woken by what they wait for: starting over moves it.
	if err := h.reader.ReInit(); err != nil {
		return err
	}
	h.resets++
	return nil
}

// Spec is the Reader's.
func (h *ReaderHolder) Spec() *pyfeed.Spec { return h.reader.Spec() }
