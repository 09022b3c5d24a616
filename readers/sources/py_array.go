// Package sources has the readers that a chain begins with, but for files.
package sources

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// pyArrayReader reads a PyArrayFeedQueue.
type pyArrayReader struct {
	readers.Lookahead
	queue *pyfeed.Consumer
	pass  pyfeed.Pass // that the last tuple was of, or the last end
}

// NewPyArrayReader takes over a reference to the queue.
func NewPyArrayReader(q *pyfeed.Consumer) readers.Reader {
	r := &pyArrayReader{queue: q, pass: q.Pass()}
	r.Read = readers.FromFunc(r.pop)
	return r
}

func (r *pyArrayReader) pop(ctx context.Context) (*pyfeed.Tuple, error) {
	pass := r.queue.Pass()
	t, popped, err := r.queue.PopPass(ctx)
	switch {
	case err == nil:
		r.pass = popped
	case pyfeed.IsFinal(ctx, err):
		if pass.After(r.pass) {
			r.pass = pass
		}
	}
	return t, err
}

// ReInit asks the producer of a restartable queue for the next pass. Any other queue cannot: what
// was pushed once is gone. But where a new pass of it has begun, of which nothing was read yet, there is nothing to do.
func (r *pyArrayReader) ReInit(uint64) error {
	if !r.queue.Restartable() {
		if r.queue.Pass().After(r.pass) {
			r.DropAhead()
			return nil
		}
		return pyfeed.Errorf(pyfeed.State, "a PyArrayReader cannot start over: what was pushed into its queue is gone. "+
			"Make the reader with from_generator, which runs its function again, or begin a new pass with the queue's reopen() and push again")
	}
	r.DropAhead()
	_, _, err := r.queue.Reopen()
	return err
}

// Spec is the queue's.
func (r *pyArrayReader) Spec() *pyfeed.Spec { return r.queue.Spec() }

// Describe names it.
func (r *pyArrayReader) Describe(s *readers.Stats) {
	s.Reader = "py_array"
	s.Waited = r.queue.Info().ConsumersWaited.Seconds()
}

// Close lets go of the queue.
func (r *pyArrayReader) Close() {
	r.DropAhead()
	r.queue.Drop()
}

// OutputPlace is readers.Placed's.
func (r *pyArrayReader) OutputPlace() (pyfeed.Place, bool) { return r.queue.Place(), false }
