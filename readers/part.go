package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Even says what happens to tuples that cannot be divided evenly among the processes of a job. All processes get the same
// number of tuples, and each finds this number alone.
type Even string

// The values of Even.
const (
	EvenDrop   Even = "drop"   // the last tuples are left out
	EvenRepeat Even = "repeat" // the first tuples of those that are divided are delivered again
	EvenPad    Even = "pad"    // tuples of zeros are added
)

// CheckEven returns an error of the operator op if even is none of these values.
func CheckEven(op string, even Even) error {
	switch even {
	case EvenDrop, EvenRepeat, EvenPad:
		return nil
	}
	return pyfeed.Errorf(pyfeed.Invalid, "%s: even: expected %q, %q or %q, found %q", op, EvenDrop, EvenRepeat, EvenPad, even)
}

// Part is one of World equal parts of some tuples: that of process number Rank.
type Part struct {
	Rank, World int
	Even        Even
}

// Of returns the part of n tuples: the count tuples from the first-th on, and then a number of tuples of zeros. After the
// last of the n tuples, the part continues with the first.
func (p Part) Of(n int) (first, count, zeros int) {
	share := n / p.World
	if n%p.World > 0 && p.Even != EvenDrop {
		share++
	}
	switch first = p.Rank * share; p.Even {
	case EvenRepeat:
		first %= max(n, 1)
	case EvenPad:
		first = min(first, n)
		zeros = max(share-(n-first), 0)
	}
	return first, share - zeros, zeros
}

// Len returns the number of tuples of the part of n tuples.
func (p Part) Len(n int) int {
	_, count, zeros := p.Of(n)
	return count + zeros
}

// A Divisible is a Deferred reader of batches that can build a part of a batch, without the rest of it.
type Divisible interface {
	Deferred
	// BatchSize is the number of tuples of a whole batch.
	BatchSize() int
	// ReadPart returns the part of the next batch. It leaves out batches whose part is empty.
	ReadPart(ctx context.Context, p Part) (*pyfeed.Tuple, error)
	// ReadPendingPart is ReadPart without the copy.
	ReadPendingPart(ctx context.Context, p Part) (Pending, error)
	// PartLength is Length of the parts.
	PartLength(p Part) int64
}
