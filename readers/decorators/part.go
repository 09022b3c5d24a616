package decorators

import (
	"github.com/pyfeed/pyfeed/pyfeed"
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
	return readers.CheckEven(op, even)
}

// keepPart releases the instances of c that do not belong to a part, and adds the tuples of zeros of the part. spec is
// that of the instances.
func keepPart(c *record.Chunk, p readers.Part, spec *pyfeed.Spec) error {
	first, count, zeros := p.Of(c.Len())
	var added []*pyfeed.Tuple
	for range zeros {
		t, err := record.ZerosLike(c, spec)
		if err != nil {
			pyfeed.ReleaseAll(added)
			return err
		}
		added = append(added, t)
	}
	c.Keep(first, count)
	for _, t := range added {
		c.Add(t)
	}
	return nil
}
