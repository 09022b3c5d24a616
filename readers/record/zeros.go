package record

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// zerosPool allocates the memory of tuples of zeros.
var zerosPool = memory.NewUnpooled(memory.Batch)

// ZerosLike returns a tuple with the dtypes, dims, rows and pass of the first instance of a Chunk, whose elements are zeros.
// The sequences of its slots with LoD (level of detail) are empty. spec is that of the instances.
func ZerosLike(c *Chunk, spec *pyfeed.Spec) (*pyfeed.Tuple, error) {
	like, pass := c.PeekSpec(0)
	t := pyfeed.NewTuple(len(like.Slots))
	t.Pass = pass
	for i := range like.Slots {
		from, to := &like.Slots[i], &t.Slots[i]
		to.DType, to.Place = from.DType, from.Place
		var room [pyfeed.MaxRank]int64
		dims := append(room[:0], from.Dims()...)
		for level := range from.LoD {
			sequences := int64(0)
			if level == 0 {
				sequences = spec.RowsAdded(like, i)
			}
			to.LoD = append(to.LoD, make([]int64, sequences+1))
			dims[0] = 0
		}
		err := to.SetDims(dims)
		if err == nil {
			_, err = to.Measure()
		}
		if err != nil {
			t.Release()
			return nil, pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
	}
	if err := t.Allocate(zerosPool); err != nil {
		t.Release()
		return nil, err
	}
	for i := range t.Slots {
		clear(t.Slots[i].Data)
	}
	return t, nil
}
