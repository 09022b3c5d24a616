package decorators

import (
	"cmp"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
)

// stackedBatch is a batch into which instances are copied as they come, while they are in the processor's cache, and then
// released. All its slots are stacked. A large batch grows with its tuples: each of its slots has memory of its own, whose
// pages move to where there is room for more.
type stackedBatch struct {
	batch *pyfeed.Tuple // nil before the first tuple
	pool  *memory.Pool  // of a batch that grows; else nil
	most  int           // tuples of such a batch
	n     int           // tuples in it
	bytes int           // of those
	err   error         // why there will be no batch of them
}

// maxAllocated bounds what is allocated before it is known how many tuples there are.
const maxAllocated = 64 << 20

// takes says whether the instances of a batch that begins with those of c are copied as they come.
func (s *stackedBatch) takes(c *record.Chunk, size int, pool *memory.Pool) bool {
	if s.batch != nil || s.err != nil {
		return true
	}
	first, _ := c.PeekSpec(0)
	if fit := maxAllocated / (1 + first.Size()); size > fit {
		if pool.Pinned() {
			return false // its pages do not move
		}
		s.pool, s.most = pool, size
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

// extend makes the batch one of n rows, with those that are in it.
func (s *stackedBatch) extend(n int) error {
	for i := range s.batch.Slots {
		if err := s.batch.Slots[i].Extend(n, s.n, s.pool); err != nil {
			return err
		}
	}
	return nil
}

// reserve has room for n tuples more, if the batch grows.
func (s *stackedBatch) reserve(n int) error {
	if s.pool == nil || s.n+n <= int(s.batch.Slots[0].Dims()[0]) {
		return nil
	}
	return s.extend(min(max(2*s.n, s.n+n), s.most))
}

// begin is a batch of so many instances that look as the first of c, without memory.
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

// setRows makes the i-th slot one of n rows.
func (s *stackedBatch) setRows(i int, row pyfeed.Dims, n int) error {
	var room [pyfeed.MaxRank]int64
	to := &s.batch.Slots[i]
	err := to.SetDims(append(append(room[:0], int64(n)), row...))
	if err == nil {
		_, err = to.Measure()
	}
	if err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
	}
	return nil
}

// add writes instances behind those that are there. They stay c's; the caller is on the track.
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

// fits is an error about the first instance that does not look like the others.
func (s *stackedBatch) fits(c *record.Chunk) error {
	fit := true
	for i := range c.NumBlocks() {
		fit = fit && s.firstMismatch(c.BlockSpec(i)) < 0
	}
	for _, t := range c.Tuples() {
		fit = fit && (t == nil || s.firstMismatch(t) < 0)
	}
	for k := 0; !fit && k < c.Len(); k++ {
		t, _ := c.PeekSpec(k)
		if i := s.firstMismatch(t); i >= 0 {
			to := &s.batch.Slots[i]
			return mismatchError(i, s.n+k, &t.Slots[i], to.DType, to.Dims()[1:], c.Origin(k))
		}
	}
	return nil
}

// firstMismatch is the first slot that is not as in the batch, or -1.
func (s *stackedBatch) firstMismatch(t *pyfeed.Tuple) int {
	for i := range t.Slots {
		from, to := &t.Slots[i], &s.batch.Slots[i]
		if from.DType != to.DType || !slices.Equal(from.Dims(), to.Dims()[1:]) {
			return i
		}
	}
	return -1
}

// write copies the instances from the first to before end to their rows.
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

// finish is the batch, which is the caller's then.
func (s *stackedBatch) finish() (*pyfeed.Tuple, error) {
	if s.err != nil {
		err := s.err
		s.drop()
		return nil, err
	}
	if s.pool != nil {
		if s.err = s.extend(s.n); s.err != nil { // cuts it to what is there
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
	*s = stackedBatch{}
	return batch, nil
}

func (s *stackedBatch) drop() {
	if s.batch != nil {
		s.batch.Release()
	}
	*s = stackedBatch{}
}
