package decorators

import (
	"cmp"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// stackedBatch is a batch whose slots are all stacked. Instances are copied into it as they arrive, while they are in
// the processor's cache, and then released. A large batch grows with its tuples: each of its slots has memory of its
// own, whose pages are remapped to a larger address range instead of being copied.
type stackedBatch struct {
	batch     *pyfeed.Tuple // nil before the first tuple
	pool      *memory.Pool  // of a batch that grows; nil: the batch does not grow
	maxTuples int           // of a batch that grows
	n         int           // tuples in it
	bytes     int           // of those tuples
	err       error         // why the batch cannot be built
	largest   int           // bytes of the largest batch so far, which is kept from batch to batch
}

// maxAllocated is how many bytes are allocated at once for the first batches, whose size may be a mistake. A batch that
// is larger than that, and than all before it, grows.
const maxAllocated = 64 << 20

// takes reports whether instances can be copied as they arrive. Before the first instances, it makes a batch for those
// of c.
func (s *stackedBatch) takes(c *record.Chunk, size int, pool *memory.Pool) bool {
	if s.batch != nil || s.err != nil {
		return true
	}
	first, _ := c.PeekSpec(0)
	if fit := max(maxAllocated/(1+first.Size()), s.largest/max(first.Size(), 1)); size > fit {
		if pool.Pinned() {
			return false // pinned pages cannot be remapped
		}
		s.pool, s.maxTuples = pool, size
		s.err = s.begin(c, max(fit, 1))
		if s.err == nil {
			s.err = s.extend(max(fit, 1))
		}
		return true
	}
	if s.err = s.begin(c, size); s.err == nil {
		s.err = s.batch.Allocate(pool)
	}
	return true
}

// extend gives the batch room for n rows and keeps the rows it has.
func (s *stackedBatch) extend(n int) error {
	for i := range s.batch.Slots {
		if err := s.batch.Slots[i].Extend(n, s.n, s.pool); err != nil {
			return err
		}
	}
	return nil
}

// reserve makes room for n more tuples if the batch grows.
func (s *stackedBatch) reserve(n int) error {
	if s.pool == nil || s.n+n <= int(s.batch.Slots[0].Dims()[0]) {
		return nil
	}
	return s.extend(min(max(2*s.n, s.n+n), s.maxTuples))
}

// begin makes a batch of size instances like the first of c, without memory.
func (s *stackedBatch) begin(c *record.Chunk, size int) error {
	first, pass := c.PeekSpec(0)
	s.batch = pyfeed.NewTuple(len(first.Slots))
	s.batch.Pass, s.batch.From = pass, c.Origin(0)
	for i := range first.Slots {
		from, to := &first.Slots[i], &s.batch.Slots[i]
		to.DType, to.Place = from.DType, from.Place
		if err := s.setRows(i, from.Dims(), size); err != nil {
			return err
		}
	}
	return nil
}

// setRows sets the dims of the i-th slot for n rows.
func (s *stackedBatch) setRows(i int, row pyfeed.Dims, n int) error {
	var room [pyfeed.MaxRank]int64
	return setDims(&s.batch.Slots[i], i, append(append(room[:0], int64(n)), row...))
}

// add appends the instances of c, which c still owns. Spans are recorded on track.
func (s *stackedBatch) add(c *record.Chunk, track trace.Track) {
	start, n, bytes := trace.Begin(), c.Len(), c.Bytes()
	if s.err == nil {
		s.err = s.fits(c)
	}
	if s.err == nil {
		s.err = s.reserve(n)
	}
	if s.err == nil {
		s.err = cmp.Or(parallelCopy(n, bytes, func(first, end int) error { return s.write(c, first, end) }), c.CheckTruncated())
	}
	trace.CopySince(track, "batch", start, bytes)
	s.n, s.bytes = s.n+n, s.bytes+bytes
}

// fits returns an error for the first instance that does not match the batch.
func (s *stackedBatch) fits(c *record.Chunk) error {
	k, i := findMismatch(c, s.firstMismatch)
	if k < 0 {
		return nil
	}
	t, _ := c.PeekSpec(k)
	to := &s.batch.Slots[i]
	return mismatchError(i, s.n+k, &t.Slots[i], to.DType, to.Dims()[1:], c.Origin(k))
}

// firstMismatch returns the first slot that does not match the batch, or -1.
func (s *stackedBatch) firstMismatch(t *pyfeed.Tuple) int {
	for i := range t.Slots {
		from, to := &t.Slots[i], &s.batch.Slots[i]
		if from.DType != to.DType || !slices.Equal(from.Dims(), to.Dims()[1:]) {
			return i
		}
	}
	return -1
}

// write copies the instances first to end-1 to their rows.
func (s *stackedBatch) write(c *record.Chunk, first, end int) error {
	for i := range s.batch.Slots {
		to := s.batch.Slots[i].Data
		size := len(to) / int(s.batch.Slots[i].Dims()[0])
		if err := c.CopySlot(to[(s.n+first)*size:], i, size, first, end); err != nil {
			return err
		}
	}
	return nil
}

// finish returns the batch, which the caller owns.
func (s *stackedBatch) finish() (*pyfeed.Tuple, error) {
	if s.err != nil {
		err := s.err
		s.drop()
		return nil, err
	}
	if s.pool != nil {
		if s.err = s.extend(s.n); s.err != nil { // cuts it to the rows it has
			return s.finish()
		}
	}
	for i := range s.batch.Slots {
		to := &s.batch.Slots[i]
		size := len(to.Data) / int(to.Dims()[0])
		if err := s.setRows(i, to.Dims()[1:], s.n); err != nil {
			s.err = err
			return s.finish()
		}
		to.Data = to.Data[:s.n*size]
	}
	batch := s.batch
	batch.From = batch.From.Batch(s.n)
	*s = stackedBatch{largest: max(s.largest, s.bytes)}
	return batch, nil
}

func (s *stackedBatch) drop() {
	if s.batch != nil {
		s.batch.Release()
	}
	*s = stackedBatch{largest: s.largest}
}
