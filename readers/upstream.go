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

// Upstream is a reader as the one above it has it. It refuses to go on once that reader was reset by others in the middle of
// a pass of the one above: the two would not be in the same pass any more. Its ReadInto and ReadPending are called by one
// caller at a time.
type Upstream struct {
	*ReaderHolder
	// 1 more than the resets of the reader when something was first read of it in this pass of the one above; 0: nothing was.
	began atomic.Uint64
}

// NewUpstream takes over a reference to a reader, for the one above it.
func NewUpstream(h *ReaderHolder) *Upstream { return &Upstream{ReaderHolder: h} }

// ReadInto is the Reader's ReadMany, for the reader above, which may reset it in the middle of a read of its own.
func (u *Upstream) ReadInto(ctx context.Context, c *record.Chunk, most int) (int, error) {
	return wait.Do(ctx, func(ctx context.Context) (int, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.resume(); err != nil {
			return 0, err
		}
		return u.readInto(ctx, c, most)
	})
}

// ReadPending is that of the Reader, which MUST be Deferred, for the reader above.
func (u *Upstream) ReadPending(ctx context.Context) (Pending, error) {
	return wait.Do(ctx, func(ctx context.Context) (Pending, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.resume(); err != nil {
			return nil, err
		}
		p, err := u.reader.(Deferred).ReadPending(ctx)
		if err != nil {
			return nil, err
		}
		bytes, pass := p.Size()
		u.tuples, u.bytes, u.last = u.tuples+1, u.bytes+int64(bytes), pass
		return p, nil
	})
}

// Begin starts the Reader over with a pass of that number.
func (u *Upstream) Begin(pass uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	began := u.began.Swap(0) // before: a caller at the end of a pass may look
	err := u.begin(pass)
	if err != nil {
		u.began.Store(began)
	}
	return err
}

// resume notes that something is read of it in this pass, or refuses it. The lock is held.
func (u *Upstream) resume() error {
	if u.began.Load() == 0 {
		u.began.Store(u.resets.Load() + 1)
		return nil
	}
	return u.moved()
}

// moved is an error if the reader was reset in the middle of a pass of the one above.
func (u *Upstream) moved() error {
	if began := u.began.Load(); began != 0 && began != u.resets.Load()+1 {
		return &resetBelow{u.label()}
	}
	return nil
}

// external is what a caller is told in place of err: of a reset of a reader below, which reader to reset in its place. At the
// end of a pass too: it may be that of another pass than the one below is in.
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

// movedBelow is an error about a reader anywhere below that was reset in the middle of a pass of the one above it.
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

// label is what messages call the reader.
func (h *ReaderHolder) label() string {
	if h.name != "" {
		return fmt.Sprintf("%q", h.name)
	}
	return "below"
}

// resetBelow says that a reader of that label was reset while the one above was in the middle of a pass.
type resetBelow struct{ name string }

func (e *resetBelow) Error() string {
	return fmt.Sprintf("the reader %s was reset in the middle of a pass of a reader above it", e.name)
}
