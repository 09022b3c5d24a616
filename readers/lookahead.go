package readers

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// ReadFunc is the type of [Reader.ReadMany].
type ReadFunc func(ctx context.Context, c *record.Chunk, most int) (int, error)

// Lookahead makes ReadNext, ReadMany and HasNext of one function. Readers embed it.
type Lookahead struct {
	Read ReadFunc
	// Many is how many instances are read for a ReadNext, if they are there; 0: one.
	Many int
	// WakeOthers wakes at most n other callers, for whom some of Many are left: they sleep where Read would wake them. nil:
	// none do.
	WakeOthers func(n int)

	next record.Chunk
}

// ReadNext is Reader's.
func (l *Lookahead) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	if l.next.Len() == 0 {
		n, err := l.Read(ctx, &l.next, max(l.Many, 1))
		if err != nil {
			return nil, err
		}
		if n > 1 && l.WakeOthers != nil {
			l.WakeOthers(n - 1)
		}
	}
	return l.next.TakeOne(), nil
}

// ReadMany is Reader's.
func (l *Lookahead) ReadMany(ctx context.Context, c *record.Chunk, most int) (int, error) {
	switch {
	case most == 0:
		return 0, nil
	case l.next.Len() > 0:
		return l.next.MoveTo(c, most), nil
	}
	return l.Read(ctx, c, most)
}

// HasNext is Reader's.
func (l *Lookahead) HasNext(ctx context.Context) (bool, error) {
	if l.next.Len() > 0 {
		return true, nil
	}
	_, err := l.Read(ctx, &l.next, 1)
	if err == io.EOF {
		return false, nil
	}
	return err == nil, err
}

// TakeAhead takes the tuple that HasNext has read; nil: there is none.
func (l *Lookahead) TakeAhead() *pyfeed.Tuple {
	if l.next.Len() == 0 {
		return nil
	}
	return l.next.TakeOne()
}

// DropAhead releases what was read and not delivered.
func (l *Lookahead) DropAhead() { l.next.Release() }

// FromFunc makes a ReadFunc of a function that reads one tuple.
func FromFunc(read func(context.Context) (*pyfeed.Tuple, error)) ReadFunc {
	return func(ctx context.Context, c *record.Chunk, _ int) (int, error) {
		t, err := read(ctx)
		if err != nil {
			return 0, err
		}
		c.Add(t)
		return 1, nil
	}
}

// FromBatchFunc makes a ReadFunc of a function that fills the front of a slice with tuples, and returns how many.
func FromBatchFunc(read func(context.Context, []*pyfeed.Tuple) (int, error)) ReadFunc {
	return func(ctx context.Context, c *record.Chunk, most int) (int, error) {
		n, err := read(ctx, c.Reserve(min(most, record.ChunkSize)))
		c.Commit(n)
		return n, err
	}
}
