package pyfeed

import (
	"math"
	"strconv"
)

// Pass is the number of a pass, counted from 0. The special values are not 0, so that a forgotten field never means one
// of them.
type Pass uint64

const (
	// PassCurrent stands for the pass that is current when a call begins.
	PassCurrent Pass = math.MaxUint64
	// PassNone stands for no pass. A restartable queue has no pass before the first one is opened.
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

// next returns the number of the pass after p. The pass after PassNone is 0.
func (p Pass) next() Pass {
	if p == PassNone {
		return 0
	}
	return p + 1
}

// After reports whether p is a pass, not PassNone, that comes after other. Every pass comes after PassNone.
func (p Pass) After(other Pass) bool {
	return p != PassNone && (other == PassNone || p > other)
}
