// Package sources has the readers at the beginning of a chain, except those of files.
package sources

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/state"
)

// pyArrayReader reads a PyArrayFeedQueue.
type pyArrayReader struct {
	readers.PeekBuffer
	queue *pyfeed.Consumer
	pass  pyfeed.Pass // of the last tuple or end of a pass that was popped
	loops pyfeed.LoopMark

	popped   bool  // a tuple of a queue that is not restartable is gone
	resuming bool  // a position was restored, and no tuple was popped since
	repeated int64 // tuples before a restored position, which are still to be dropped
	deferred bool  // ReInit leaves it to Restore to begin a pass

	noOrder string // why the tuples cannot be pushed in the same order again; "": they can
}

// NewUnorderedPyArrayReader makes a reader of a queue whose producer cannot push the same tuples in the same order again.
// The reader refuses to save its position, with the reason. It takes over a reference to the queue.
func NewUnorderedPyArrayReader(q *pyfeed.Consumer, reason string) readers.Reader {
	r := NewPyArrayReader(q).(*pyArrayReader)
	r.noOrder = reason
	return r
}

// NewPyArrayReader makes a reader of a queue. It takes over a reference to the queue.
func NewPyArrayReader(q *pyfeed.Consumer) readers.Reader {
	r := &pyArrayReader{queue: q, pass: q.Pass()}
	if q.Loops().In(r.pass) {
		r.loops.Set(r.pass)
	}
	r.Read = readers.FromFunc(r.pop)
	return r
}

func (r *pyArrayReader) pop(ctx context.Context) (*pyfeed.Tuple, error) {
	if r.resuming {
		if n := r.queue.Repeated(); n < 0 {
			return nil, pyfeed.Errorf(pyfeed.State, "expected the tuples from the position on that was restored, but the producer has left out "+
				"the first %d of them with set_start: restore the position before the producer begins", -n)
		}
	}
	var slice wait.TimeSlice
	for {
		t, err := r.popAny(ctx)
		if missing := r.missing(); err == io.EOF && missing > 0 {
			return nil, readers.ErrPassTooShort(missing)
		}
		if err != nil {
			return nil, err
		}
		if r.resuming {
			r.resuming, r.repeated = false, r.queue.Repeated()
		}
		if r.repeated == 0 {
			return t, nil
		}
		t.Release()
		r.repeated--
		if slice.Expired(ctx) {
			return nil, wait.ErrWouldBlock
		}
	}
}

// missing returns how many tuples before a restored position were not popped yet.
func (r *pyArrayReader) missing() int64 {
	if r.resuming {
		return r.queue.Repeated()
	}
	return r.repeated
}

func (r *pyArrayReader) popAny(ctx context.Context) (*pyfeed.Tuple, error) {
	pass := r.queue.Pass()
	t, popped, err := r.queue.PopPass(ctx)
	switch {
	case err == nil:
		r.pass, r.popped = popped, true
	case pyfeed.IsFinal(ctx, err):
		if pass.After(r.pass) {
			r.pass = pass
		}
	}
	return t, err
}

// ReInit asks the producer of a restartable queue for the next pass. Another queue cannot start over, since it does not
// keep pushed tuples. But if its producer has begun a new pass and nothing of that was read yet, ReInit succeeds and
// does nothing.
func (r *pyArrayReader) ReInit(uint64) error {
	if r.deferred {
		r.DropPeeked()
		return nil
	}
	if err := r.CanReInit(); err != nil {
		return err
	}
	r.DropPeeked()
	r.resuming, r.repeated = false, 0
	if !r.queue.Restartable() {
		return nil
	}
	_, _, err := r.queue.Reopen()
	return err
}

// CanReInit implements readers.PassSource.
func (r *pyArrayReader) CanReInit() error {
	if r.queue.Restartable() || r.HasNewPass() {
		return nil
	}
	if r.queue.Feed() != nil {
		return pyfeed.Errorf(pyfeed.State, "the reader of a SharedFeedQueue cannot start over: what was pushed into its queue is gone. "+
			"Call the queue's reopen(), then start() again, unless its workers are persistent")
	}
	return pyfeed.Errorf(pyfeed.State, "the reader of a PyArrayFeedQueue cannot start over: what was pushed into its queue is gone. "+
		"Call the queue's reopen(), then produce() or push() again. A reader of from_generator can start over")
}

// DeferPass implements readers.PassSource.
func (r *pyArrayReader) DeferPass(deferred bool) { r.deferred = deferred }

// Identity implements readers.Resumable. What is pushed is not known.
func (r *pyArrayReader) Identity() (string, []state.Option) { return "py_array_reader", nil }

// CheckState implements readers.StateChecker.
func (r *pyArrayReader) CheckState([]byte, bool) error {
	if !r.popped {
		return nil
	}
	return r.CanReInit()
}

// Save implements readers.Resumable: the number of tuples is all that is known.
func (r *pyArrayReader) Save(readers.Position, *readers.Saver) error {
	if r.noOrder != "" {
		return pyfeed.Errorf(pyfeed.State, "py_array_reader: expected an order that can be repeated, for a position that can be saved: %s", r.noOrder)
	}
	return nil
}

// Restore implements readers.Resumable. The tuples before the position are dropped when they are pushed again, unless
// the producer leaves them out: see PyArrayFeedQueue.Start.
func (r *pyArrayReader) Restore(p readers.Position, _ *readers.Restorer) (int64, error) {
	r.deferred = false
	if !r.queue.Restartable() {
		r.queue.SetHad(p.N)
	} else if _, _, err := r.queue.ReopenAt(p.N); err != nil {
		return 0, err
	}
	r.resuming, r.repeated = p.N > 0, 0
	return 0, nil
}

// HasNewPass implements readers.PassSource.
func (r *pyArrayReader) HasNewPass() bool { return r.queue.Pass().After(r.pass) }

// LoopBegan implements readers.PassSource.
func (r *pyArrayReader) LoopBegan() bool { return r.loops.In(r.queue.Pass()) }

// SetLoopBegan implements readers.PassSource.
func (r *pyArrayReader) SetLoopBegan(began bool) {
	for _, loops := range []*pyfeed.LoopMark{&r.loops, r.queue.Loops()} {
		if began {
			loops.Set(r.queue.Pass())
		} else {
			loops.Clear()
		}
	}
}

// JoinPass implements readers.PassSource.
func (r *pyArrayReader) JoinPass(ctx context.Context) { r.queue.JoinPass(ctx) }

// Spec returns that of the queue.
func (r *pyArrayReader) Spec() *pyfeed.Spec { return r.queue.Spec() }

// Describe implements readers.Reader.
func (r *pyArrayReader) Describe(s *readers.Stats) {
	s.Reader = "py_array_reader"
	s.Waited = r.queue.Info().ConsumersWaited.Seconds()
}

// Close releases the queue.
func (r *pyArrayReader) Close() {
	r.DropPeeked()
	r.queue.Drop()
}

// OutputPlace implements readers.Placed.
func (r *pyArrayReader) OutputPlace() (pyfeed.Place, bool) { return r.queue.Place(), false }
