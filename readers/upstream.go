package readers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Upstream is the link from a reader to a reader below it. If another caller resets the reader below while the reader
// above is in the middle of a pass, the two are no longer in the same pass: reads through the Upstream then fail. One
// caller at a time calls its methods that read.
type Upstream struct {
	*ReaderHolder
	// 1 more than the number of resets of the reader below at the first read in this pass of the reader above; 0: no
	// read yet.
	began atomic.Uint64
	// The reader below was in another pass than the one that the reader above counts. The order may depend on the pass.
	otherPass atomic.Bool
}

// NewUpstream returns a link for the reader above. It takes over the caller's reference to h.
func NewUpstream(h *ReaderHolder) *Upstream { return &Upstream{ReaderHolder: h} }

// ReadInto calls ReadMany of the reader below. The reader above may reset the reader below while this call waits.
func (u *Upstream) ReadInto(ctx context.Context, c *record.Chunk, limit int) (int, error) {
	return wait.Do(ctx, func(ctx context.Context) (int, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.resume(); err != nil {
			return 0, err
		}
		return u.readInto(ctx, c, limit)
	})
}

// ReadPending calls ReadPending of the reader below, which MUST be Deferred.
func (u *Upstream) ReadPending(ctx context.Context) (Pending, error) {
	return u.readPending(ctx, func(ctx context.Context) (Pending, error) { return u.reader.(Deferred).ReadPending(ctx) })
}

// ReadPendingPart calls ReadPendingPart of the reader below, which MUST be Divisible.
func (u *Upstream) ReadPendingPart(ctx context.Context, part Part) (Pending, error) {
	return u.readPending(ctx, func(ctx context.Context) (Pending, error) { return u.reader.(Divisible).ReadPendingPart(ctx, part) })
}

func (u *Upstream) readPending(ctx context.Context, read func(context.Context) (Pending, error)) (Pending, error) {
	return wait.Do(ctx, func(ctx context.Context) (Pending, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.resumeAt(ctx); err != nil {
			return nil, err
		}
		p, err := read(ctx)
		if err != nil {
			return nil, err
		}
		bytes, pass := p.Size()
		u.tuples, u.bytes, u.last = u.tuples+1, u.bytes+int64(bytes), pass
		return p, nil
	})
}

// ReadPart calls ReadPart of the reader below, which MUST be Divisible.
func (u *Upstream) ReadPart(ctx context.Context, part Part) (*pyfeed.Tuple, error) {
	return wait.Do(ctx, func(ctx context.Context) (*pyfeed.Tuple, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.resumeAt(ctx); err != nil {
			return nil, err
		}
		t, err := u.reader.(Divisible).ReadPart(ctx, part)
		if err != nil {
			return nil, err
		}
		u.tuples, u.bytes, u.last = u.tuples+1, u.bytes+int64(t.Size()), t.Pass
		return t, nil
	})
}

// resumeAt is resume, and then drops the tuples before a restored position. The caller holds the lock.
func (u *Upstream) resumeAt(ctx context.Context) error {
	if err := u.resume(); err != nil {
		return err
	}
	return u.skipAhead(ctx)
}

// inOtherPass reports whether another caller than the reader above has begun the pass of the reader below. The passes of a
// PassSource are its own.
func (u *Upstream) inOtherPass() bool {
	_, source := u.reader.(PassSource)
	return !source && u.resets.Load() > 0 && u.begunBy.Load() != u
}

// Begin resets the reader below to the start of the given pass.
func (u *Upstream) Begin(pass uint64) error {
	err := u.BeginNext(pass)
	if err == nil {
		u.otherPass.Store(false)
	}
	return err
}

// BeginNext is Begin for a reader that goes on with the next pass by itself: positions in the passes before may still be
// saved.
func (u *Upstream) BeginNext(pass uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	began := u.began.Swap(0) // before the reset: a caller at the end of a pass may read it without the lock
	err := u.begin(pass, u)
	if err != nil {
		u.began.Store(began)
	}
	return err
}

// JoinPass lets the call behind ctx, which may have waited in the previous pass, go on in the current passes of all
// sources below.
func (h *ReaderHolder) JoinPass(ctx context.Context) {
	if source, is := h.reader.(PassSource); is {
		source.JoinPass(ctx)
	}
	for _, u := range h.upstreams() {
		u.JoinPass(ctx)
	}
}

// resume notes the first read in this pass, or returns an error if the reader was reset since. The caller holds the
// lock.
func (u *Upstream) resume() error {
	if u.began.Load() == 0 {
		u.began.Store(u.resets.Load() + 1)
		if u.inOtherPass() {
			u.otherPass.Store(true)
		}
		if !u.readBy.CompareAndSwap(nil, u) && u.readBy.Load() != u {
			u.shared.Store(true)
		}
		return nil
	}
	return u.moved()
}

// moved returns an error if the reader was reset in the middle of a pass of the reader above. It may be called without the
// lock. The reader above changes began before it resets this reader, so if both have changed, another caller has not.
func (u *Upstream) moved() error {
	if began := u.began.Load(); began != 0 && began != u.resets.Load()+1 && began == u.began.Load() {
		return &resetBelow{u.label()}
	}
	return nil
}

// external translates err for callers of the holder: an error about a reset of a reader below names the reader that the
// caller has to reset. external also checks for such resets at io.EOF, which may be the end of another pass of the
// reader below.
func (h *ReaderHolder) external(err error) error {
	if err == nil || err == wait.ErrWouldBlock {
		return err
	}
	if err == io.EOF {
		if moved := h.movedBelow(); moved != nil {
			err = moved
		}
	}
	var reset *resetBelow
	if !errors.As(err, &reset) {
		return err
	}
	return pyfeed.Errorf(pyfeed.State, "the reader %s was reset in the middle of a pass of %s, which reads from it: reset %s, "+
		"which resets all readers below it", reset.name, h.label(), h.label())
}

// movedBelow returns an error if any reader below was reset in the middle of a pass of the reader above it.
func (h *ReaderHolder) movedBelow() error {
	d, is := h.reader.(Decorator)
	if !is {
		return nil
	}
	for _, u := range d.Upstreams() {
		if err := u.moved(); err != nil {
			return err
		}
		if err := u.movedBelow(); err != nil {
			return err
		}
	}
	return nil
}

// label returns the name of the reader for messages.
func (h *ReaderHolder) label() string {
	if h.name != "" {
		return fmt.Sprintf("%q", h.name)
	}
	return "below"
}

// resetBelow is the error that the reader called name was reset while the reader above was in the middle of a pass.
type resetBelow struct{ name string }

func (e *resetBelow) Error() string {
	return fmt.Sprintf("the reader %s was reset in the middle of a pass of a reader above it", e.name)
}
