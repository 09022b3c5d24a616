package readers

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// ReadFunc is the type of [Reader.ReadMany].
type ReadFunc func(ctx context.Context, c *record.Chunk, limit int) (int, error)

// PeekBuffer implements ReadNext, ReadMany and HasNext with one function, Read. Readers embed it.
type PeekBuffer struct {
	Read ReadFunc
	// Many is how many instances ReadNext reads at once, as far as they can be read without waiting. 0 means one.
	Many int
	// WakeOthers wakes at most n other callers that wait for Read. ReadNext calls it when it has read n more instances
	// than it returns. nil: no caller waits.
	WakeOthers func(n int)

	next record.Chunk
}

// ReadNext implements [Reader].
func (b *PeekBuffer) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	if b.next.Len() == 0 {
		n, err := b.Read(ctx, &b.next, max(b.Many, 1))
		if err != nil {
			return nil, err
		}
		if n > 1 && b.WakeOthers != nil {
			b.WakeOthers(n - 1)
		}
	}
	return b.next.TakeOne() // a damaged record stays, for later calls
}

// ReadMany implements [Reader].
func (b *PeekBuffer) ReadMany(ctx context.Context, c *record.Chunk, limit int) (int, error) {
	switch {
	case limit == 0:
		return 0, nil
	case b.next.Len() > 0:
		return b.next.MoveTo(c, limit), nil
	}
	return b.Read(ctx, c, limit)
}

// HasNext implements [Reader].
func (b *PeekBuffer) HasNext(ctx context.Context) (bool, error) {
	if b.next.Len() == 0 {
		_, err := b.Read(ctx, &b.next, 1)
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
	err := b.next.VerifyNext()
	return err == nil, err
}

// HasPeeked reports whether HasNext has read a tuple that was not delivered yet.
func (b *PeekBuffer) HasPeeked() bool { return b.next.Len() > 0 }

// TakePeeked returns the tuple that HasNext has read, or nil if there is none.
func (b *PeekBuffer) TakePeeked() (*pyfeed.Tuple, error) {
	if b.next.Len() == 0 {
		return nil, nil
	}
	return b.next.TakeOne()
}

// DropPeeked releases the tuples that were read ahead and not delivered.
func (b *PeekBuffer) DropPeeked() { b.next.Release() }

// FromFunc returns a ReadFunc that calls a function which reads one tuple.
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

// FromBatchFunc returns a ReadFunc that calls a function which fills the front of a slice with tuples and returns how
// many.
func FromBatchFunc(read func(context.Context, []*pyfeed.Tuple) (int, error)) ReadFunc {
	return func(ctx context.Context, c *record.Chunk, limit int) (int, error) {
		n, err := read(ctx, c.Reserve(min(limit, record.ChunkSize)))
		c.Commit(n)
		return n, err
	}
}
