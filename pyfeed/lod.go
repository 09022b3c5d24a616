package pyfeed

import "fmt"

// LoD is ragged offsets (LoD, level of detail): it divides the first dimension of a tensor into sequences. The
// outermost level comes first. The offsets of each level count the sequences of the next level; those of the innermost
// level count rows of the first dimension. One level is the same as Arrow's list offsets, TensorFlow's row_splits and
// the offsets of PyTorch's jagged layout.
type LoD [][]int64

// MaxLoDLevels is the largest number of levels.
const MaxLoDLevels = 8

// Sequences returns the number of sequences of the outermost level.
func (l LoD) Sequences() int64 { return int64(len(l[0]) - 1) }

// check returns an error if l is not a valid LoD for a first dimension of the given number of rows.
func (l LoD) check(rows int64) error {
	for i, level := range l {
		// A level below the outermost has no sequences if all sequences above it are empty.
		if least := 1 + max(0, 1-i); len(level) < least {
			return fmt.Errorf("LoD level %d: expected at least %d offsets, found %d", i, least, len(level))
		}
	}
	for i, level := range l {
		if level[0] != 0 {
			return fmt.Errorf("LoD level %d: expected the first offset to be 0, found %d", i, level[0])
		}
		for j := 1; j < len(level); j++ {
			if level[j] < level[j-1] {
				return fmt.Errorf("LoD level %d: offset %d decreases from %d to %d", i, j, level[j-1], level[j])
			}
		}
		want, of := rows, "the first dimension"
		if i+1 < len(l) {
			want, of = int64(len(l[i+1])-1), fmt.Sprintf("the number of sequences of level %d", i+1)
		}
		if last := level[len(level)-1]; last != want {
			return fmt.Errorf("LoD level %d: expected the last offset to be %d, %s, found %d", i, want, of, last)
		}
	}
	return nil
}
