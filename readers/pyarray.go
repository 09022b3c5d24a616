package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// PyArrayReader reads a PyArrayFeedQueue.
type PyArrayReader struct {
	ahead
	queue *pyfeed.PyArrayFeedQueue
	pass  uint64 // that the last tuple was of, or the last end
}

// NewPyArrayReader takes over a reference to the queue.
func NewPyArrayReader(q *pyfeed.PyArrayFeedQueue) *PyArrayReader {
	r := &PyArrayReader{queue: q, pass: q.Pass()}
	r.read = single(r.pop)
	return r
}

func (r *PyArrayReader) pop(ctx context.Context) (*pyfeed.Tuple, error) {
	pass := r.queue.Pass()
	t, err := r.queue.Pop(ctx)
	switch {
	case err == nil:
		r.pass = t.QueuePass()
	case pyfeed.Ends(ctx, err):
		r.pass = max(r.pass, pass)
	}
	return t, err
}

// ReInit asks the producer of a restartable queue for the next pass. Any other queue cannot: what
// was pushed once is gone. But where a new pass of it has begun, of which nothing was read yet, there is nothing to do.
func (r *PyArrayReader) ReInit(uint64) error {
	if !r.queue.Restartable() {
		if r.queue.Pass() > r.pass {
			r.drop()
			return nil
		}
		return pyfeed.Errorf(pyfeed.State, "a PyArrayReader cannot start over: what was pushed into its queue is gone. "+
			"Make the reader with from_generator, which runs its function again, or begin a new pass with the queue's reopen() and push again")
	}
	r.drop()
	_, _, err := r.queue.Reopen()
	return err
}

// Spec is the queue's.
func (r *PyArrayReader) Spec() *pyfeed.Spec { return r.queue.Spec() }

// Describe names it.
func (r *PyArrayReader) Describe(s *Stats) {
	s.Reader = "py_array"
	s.Waited = r.queue.Info().ConsumersWaited.Seconds()
}

// Close lets go of the queue.
func (r *PyArrayReader) Close() {
	r.drop()
	r.queue.Drop()
}
