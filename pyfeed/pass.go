package pyfeed

import (
	"math"
	"strconv"
)

// Pass is the number of a pass, from 0. No zero value stands for another thing.
type Pass uint64

const (
	// PassCurrent is whichever pass is current when a call begins.
	PassCurrent Pass = math.MaxUint64
	// PassNone is no pass: a restartable queue is in none before the first.
	PassNone Pass = math.MaxUint64 - 1
)

func (p Pass) String() string {
	switch p {
	case PassCurrent:
		return "current"
	case PassNone:
		return "none"
	}
	return strconv.FormatUint(uint64(p), 10)
}

// next is the number of the pass after this one, which may be none.
func (p Pass) next() Pass {
	if p == PassNone {
		return 0
	}
	return p + 1
}

// After says whether it is a pass with a number above that of the other, which may be none.
func (p Pass) After(other Pass) bool {
	return p != PassNone && (other == PassNone || p > other)
}
