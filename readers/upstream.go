package readers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// upstream is a reader as the one above it has it. It refuses to go on once that reader was reset by others in the middle of
// a pass of the one above: the two would not be in the same pass any more. Its readMany and gather are called by one
// caller at a time.
type upstream struct {
	*ReaderHolder
	// 1 more than the resets of the reader when something was first read of it in this pass of the one above; 0: nothing was.
	began atomic.Uint64
}

// above takes over a reference to a reader, for the one above it.
func above(h *ReaderHolder) *upstream { return &upstream{ReaderHolder: h} }

// readMany is the Reader's, for the reader above, which may reset it in the middle of a read of its own.
func (u *upstream) readMany(ctx context.Context, l *Lot, most int) (int, error) {
	return wait.Do(ctx, func(ctx context.Context) (int, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.goOn(); err != nil {
			return 0, err
		}
		return u.many(ctx, l, most)
	})
}

// gather is what the next batch is made of, for the reader above.
func (u *upstream) gather(ctx context.Context) (*gathered, error) {
	return wait.Do(ctx, func(ctx context.Context) (*gathered, error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if err := u.goOn(); err != nil {
			return nil, err
		}
		g, err := u.reader.(*BatchReader).gatherNext(ctx)
		if err == nil {
			bytes, pass := g.size()
			u.tuples, u.bytes, u.last = u.tuples+1, u.bytes+int64(bytes), pass
		}
		return g, err
	})
}

// Begin starts the Reader over with a pass of that number.
func (u *upstream) Begin(pass uint64) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	began := u.began.Swap(0) // before: a caller at the end of a pass may look
	err := u.begin(pass)
	if err != nil {
		u.began.Store(began)
	}
	return err
}

// goOn notes that something is read of it in this pass, or refuses it. The lock is held.
func (u *upstream) goOn() error {
	if u.began.Load() == 0 {
		u.began.Store(u.resets.Load() + 1)
		return nil
	}
	return u.moved()
}

// moved is an error if the reader was reset in the middle of a pass of the one above.
func (u *upstream) moved() error {
	if began := u.began.Load(); began != 0 && began != u.resets.Load()+1 {
		return &resetBelow{u.label()}
	}
	return nil
}

// A decorated Reader has readers below.
type decorated interface{ below() []*upstream }

// outward is what a caller is told in place of err: of a reset of a reader below, which reader to reset in its place. At the
// end of a pass too: it may be that of another pass than the one below is in.
func (h *ReaderHolder) outward(err error) error {
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
	d, is := h.reader.(decorated)
	if !is {
		return nil
	}
	for _, u := range d.below() {
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

func (r *BatchReader) below() []*upstream        { return []*upstream{r.under} }
func (r *DoubleBufferReader) below() []*upstream { return []*upstream{r.under} }
func (r *MapReader) below() []*upstream          { return []*upstream{r.under} }
func (r *MultiPassReader) below() []*upstream    { return []*upstream{r.under} }
func (r *ShardReader) below() []*upstream        { return []*upstream{r.under} }
func (r *ShuffleReader) below() []*upstream      { return []*upstream{r.under} }

func (r *ZipReader) below() []*upstream {
	all := make([]*upstream, len(r.legs))
	for i := range r.legs {
		all[i] = r.legs[i].under
	}
	return all
}
