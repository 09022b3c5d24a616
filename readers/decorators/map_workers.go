package decorators

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// MapWorkers is a map reader's interface for its workers. They do not keep the reader open.
type MapWorkers struct{ reader *mapReader }

// mapped is a Reader that has workers.
type mapped interface{ workers() *MapWorkers }

func (r *mapReader) workers() *MapWorkers { return &MapWorkers{r} }

// WorkersOf returns the interface for workers of the map reader in a holder; nil: the holder has another kind of
// reader.
func WorkersOf(h *readers.ReaderHolder) *MapWorkers {
	r, is := readers.Capability[mapped](h)
	if !is {
		return nil
	}
	return r.workers()
}

// Drop does nothing: workers hold no reference to the reader.
func (*MapWorkers) Drop() {}

// Take returns the next tuple for a worker, and the ticket to give its result for. It waits until the reader is read
// from and has room, and returns pyfeed.Closed once the reader is closed. The tuple can be exported from the library.
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
		w.Fail(t.ticket, err) // the consumer gets it, like any error of a reader below
	}
}

// TakeInside is Take for callers in the library: the tuple can perhaps not be exported.
func (w *MapWorkers) TakeInside(ctx context.Context) (*pyfeed.Tuple, uint64, error) {
	t, err := w.reader.take(ctx)
	return t.tuple, t.ticket, err
}

// FirstTicket returns the ticket of the first tuple that is or will be taken since the last reset of the reader.
func (w *MapWorkers) FirstTicket() uint64 {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	return w.reader.start
}

// OnReset sets a function that is called when a reset has made all tickets invalid, or when the end of the reader (closed)
// will: then the tickets may still be open for a moment. It must not block or call the reader.
func (w *MapWorkers) OnReset(f func(closed bool)) {
	w.reader.mu.Lock()
	defer w.reader.mu.Unlock()
	w.reader.onReset = f
	if w.reader.closed {
		f(true)
	}
}

// Give passes the result for a ticket to the reader, which owns it from then on. If Give returns an error, the caller
// still owns the tuple and the ticket stays open. For a ticket of a pass that was reset, the result is dropped.
func (w *MapWorkers) Give(ticket uint64, t *pyfeed.Tuple) error {
	if err := w.Check(t); err != nil {
		return err
	}
	w.reader.resolve(ticket, result{tuple: t})
	return nil
}

// Fail reports that a ticket has no result. The consumer gets the error in its place.
func (w *MapWorkers) Fail(ticket uint64, err error) { w.reader.resolve(ticket, result{err: err}) }

// Skip reports that the tuple of a ticket is left out because of an error of the function. The consumer gets the result of
// the next tuple in its place; the error is in the reader's Stats.
//
// Above virtual shards, the consumer gets an error instead: the processes would not have the same number of tuples.
func (w *MapWorkers) Skip(ticket uint64, err error) {
	if w.reader.source.VirtualShards().Total > 0 {
		w.Fail(ticket, pyfeed.Errorf(pyfeed.State, "map: expected no tuple to be skipped above virtual shards, found one, because of: %v", err))
		return
	}
	w.reader.skipTuple(ticket, err)
}

// Position returns the number of a ticket's tuple in its pass, from 0. It does not depend on the timing of threads, and is
// the same after the position of the reader was saved and restored. Above virtual shards, it is the number among the tuples
// of all processes. If a multi_pass reader is below, the pass is one of the reader below that, numbered over all resets. It
// is an error of kind State if the ticket is completed or was reset.
func (w *MapWorkers) Position(ticket uint64) (readers.Position, error) {
	p, open := w.reader.positionOf(ticket)
	if !open {
		return p, pyfeed.Errorf(pyfeed.State, "ticket: expected one without a result of this pass, found %d", ticket)
	}
	p.N = w.reader.source.VirtualShards().OfJob(p.N)
	return p, nil
}

// Check returns an error if a tuple does not fit the slots of the results.
func (w *MapWorkers) Check(t *pyfeed.Tuple) error { return w.reader.spec.Check(t) }

// Allocate checks the dtypes and dims of a result and allocates its memory.
func (w *MapWorkers) Allocate(t *pyfeed.Tuple) error {
	if err := w.Check(t); err != nil {
		return err
	}
	return t.Allocate(w.reader.pool.Load())
}
