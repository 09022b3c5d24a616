package decorators

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// CheckPart returns an error of the operator op if the arguments do not name one of world parts.
func CheckPart(op string, rank, world uint64, even readers.Even) error {
	if rank >= world {
		return pyfeed.Errorf(pyfeed.Invalid, "%s: expected a rank below the world's size %d, found %d", op, world, rank)
	}
	if world > 1<<31 {
		return pyfeed.Errorf(pyfeed.Invalid, "%s: expected a world of at most 2^31 processes, found %d", op, world)
	}
	switch even {
	case readers.EvenDrop, readers.EvenRepeat, readers.EvenPad:
		return nil
	}
	return pyfeed.Errorf(pyfeed.Invalid, "%s: even: expected %q, %q or %q, found %q", op, readers.EvenDrop, readers.EvenRepeat, readers.EvenPad, even)
}

// keepPart releases the instances of c that do not belong to a part, and adds the tuples of zeros of the part. spec is
// that of the instances.
func keepPart(c *record.Chunk, p readers.Part, spec *pyfeed.Spec) error {
	first, count, zeros := p.Of(c.Len())
	var added []*pyfeed.Tuple
	for range zeros {
		like, pass := c.PeekSpec(0)
		t, err := zerosLike(like, spec)
		if err != nil {
			pyfeed.ReleaseAll(added)
			return err
		}
		t.Pass = pass
		added = append(added, t)
	}
	c.Keep(first, count)
	for _, t := range added {
		c.Add(t)
	}
	return nil
}

// zerosPool allocates the memory of tuples of zeros.
var zerosPool = memory.NewUnpooled(memory.Batch)

// zerosLike returns a tuple with the dtypes and dims of another, and with as many rows, whose elements are zeros. The
// sequences of its slots with LoD are empty.
func zerosLike(like *pyfeed.Tuple, spec *pyfeed.Spec) (*pyfeed.Tuple, error) {
	t := pyfeed.NewTuple(len(like.Slots))
	for i := range like.Slots {
		from, to := &like.Slots[i], &t.Slots[i]
		to.DType, to.Place = from.DType, from.Place
		var room [pyfeed.MaxRank]int64
		dims := append(room[:0], from.Dims()...)
		for level := range from.LoD {
			sequences := int64(0)
			if level == 0 {
				sequences = rowsAdded(spec, like, i)
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
