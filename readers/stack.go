package readers

import (
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// stack is a batch whose tuples are written into it as they come, while they are in the processor's cache, and
// let go of. That takes slots that are stacked, and room for a whole batch from the first tuple on.
type stack struct {
	possible bool
	batch    *pyfeed.Tuple // nil before the first tuple
	n        int           // tuples in it
	bad      error         // why there will be no batch of them
}

// mostStacked bounds what is allocated before it is known how many tuples there are.
const mostStacked = 64 << 20

// takes says whether the tuples of a batch that begins with first go into the stack.
func (s *stack) takes(first *pyfeed.Tuple, size int, pool *memory.Pool) bool {
	if !s.possible || s.batch != nil || s.bad != nil {
		return s.possible
	}
	if size > mostStacked/(1+first.Size()) {
		return false
	}
	pass := first.Pass
	if rows := first.Rows(); rows != nil {
		first = rows.First()
	}
	s.batch = pyfeed.NewTuple(len(first.Slots))
	s.batch.Pass = pass
	for i := range first.Slots {
		from, to := &first.Slots[i], &s.batch.Slots[i]
		to.DType, to.Place = from.DType, from.Place
		if s.bad = s.setRows(i, from.Dims(), size); s.bad != nil {
			return true
		}
	}
	s.bad = s.batch.Allocate(pool)
	return true
}

// setRows makes the i-th slot one of n rows.
func (s *stack) setRows(i int, row pyfeed.Dims, n int) error {
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

// add writes tuples behind those that are there. They stay the caller's, who is on the track.
func (s *stack) add(parts []*pyfeed.Tuple, track trace.Track) {
	start, bytes := trace.Begin(), 0
	for _, t := range parts {
		bytes += t.Size()
	}
	if s.bad == nil {
		s.bad = share(len(parts), bytes, func(first, end int) error { return s.write(parts[first:end], s.n+first) })
	}
	trace.CopySince(track, "batch", start, bytes)
	s.n += len(parts)
}

// write writes tuples into the batch from a row on.
func (s *stack) write(parts []*pyfeed.Tuple, row int) error {
	var fit *pyfeed.Rows // look as they have to
	for k, t := range parts {
		rows, like := t.Rows(), t
		if rows != nil {
			like = rows.First()
		}
		for i := range like.Slots {
			from, to := &like.Slots[i], &s.batch.Slots[i]
			if dims := to.Dims()[1:]; (rows == nil || rows != fit) && (from.DType != to.DType || !slices.Equal(from.Dims(), dims)) {
				return mismatched(i, row+k, from, to.DType, dims)
			}
			data := t.Data(i)
			pyfeed.Copy(to.Data[(row+k)*len(data):], data)
			if err := from.Intact(i); err != nil {
				return err
			}
		}
		fit = rows
	}
	return nil
}

// finish is the batch, which is the caller's then.
func (s *stack) finish() (*pyfeed.Tuple, error) {
	if s.bad != nil {
		err := s.bad
		s.drop()
		return nil, err
	}
	for i := range s.batch.Slots {
		to := &s.batch.Slots[i]
		size := len(to.Data) / int(to.Dims()[0])
		if err := s.setRows(i, to.Dims()[1:], s.n); err != nil {
			s.bad = err
			return s.finish()
		}
		to.Data = to.Data[:s.n*size]
	}
	batch := s.batch
	s.batch, s.n = nil, 0
	return batch, nil
}

func (s *stack) drop() {
	if s.batch != nil {
		s.batch.Release()
	}
	s.batch, s.n, s.bad = nil, 0, nil
}
