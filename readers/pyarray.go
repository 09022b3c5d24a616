package readers

import "github.com/pyfeed/pyfeed/pyfeed"

// PyArrayReader reads a PyArrayFeedQueue.
type PyArrayReader struct {
	ahead
	queue *pyfeed.PyArrayFeedQueue
}

// NewPyArrayReader takes over a reference to the queue.
func NewPyArrayReader(q *pyfeed.PyArrayFeedQueue) *PyArrayReader {
	return &PyArrayReader{ahead{read: single(q.Pop)}, q}
}

// ReInit asks the producer of a restartable queue for the next pass. Any other queue cannot: what
// was pushed once is gone.
func (r *PyArrayReader) ReInit(uint64) error {
	if !r.queue.Restartable() {
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
