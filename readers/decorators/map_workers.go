package decorators

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// MapWorkers is a map reader as its workers have it. They do not keep it open.
type MapWorkers struct{ reader *mapReader }

// mapped is a Reader that has workers.
type mapped interface{ workers() *MapWorkers }

func (r *mapReader) workers() *MapWorkers { return &MapWorkers{r} }

// WorkersOf is the map reader in a holder, for its workers; nil: the holder has another kind of reader.
func WorkersOf(h *readers.ReaderHolder) *MapWorkers {
	r, is := readers.Capability[mapped](h)
	if !is {
		return nil
	}
	return r.workers()
}

// Drop does nothing: the reader is not the workers'.
func (*MapWorkers) Drop() {}

// Take is the next tuple for a worker, and the ticket to give its result for. It waits until the reader is
// read from and there is room; pyfeed.Closed when the reader is gone. The tuple is fit to leave the library.
func (w *MapWorkers) Take(ctx context.Context) (*pyfeed.Tuple, uint64, error) {
	for {
		t, err := w.reader.take(ctx)
		if err != nil {
			return nil, 0, err
		}
		if err = readers.EnsureExportable(ctx, t.tuple); err == nil {
			return t.tuple, t.ticket, nil
		}
		t.tuple.Release()
		w.Fail(t.ticket, err) // the consumer's to see, like any error below
	}
}

// Give is the result for a ticket, which the reader owns from now on, unless it is refused: the ticket is
// still open then. A ticket of a pass that was reset is forgotten.
func (w *MapWorkers) Give(ticket uint64, t *pyfeed.Tuple) error {
	if err := w.reader.spec.Check(t); err != nil {
		return err
	}
	w.reader.resolve(ticket, result{tuple: t})
	return nil
}

// Fail says that there will be no result for a ticket: the consumer gets the error in its place.
func (w *MapWorkers) Fail(ticket uint64, err error) { w.reader.resolve(ticket, result{err: err}) }

// Allocate checks what a result looks like and allocates its memory.
func (w *MapWorkers) Allocate(t *pyfeed.Tuple) error {
	if err := w.reader.spec.Check(t); err != nil {
		return err
	}
	return t.Allocate(w.reader.pool.Load())
}
