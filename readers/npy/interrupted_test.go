package npy

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// The reading and the conversion of rows can be interrupted at any poll. The next call continues.
func TestInterrupted(t *testing.T) {
	for _, fortran := range []bool{false, true} {
		for _, swapped := range []bool{false, true} {
			dims := pyfeed.Dims{2, 3, 8_000}
			in, _ := lay(pyfeed.Int32, dims, fortran, swapped)
			descr := "<i4"
			if swapped {
				descr = ">i4"
			}
			n := tested.Interrupted(t, file(1, dict(descr, fortran, "(2, 3, 8000)"), in), record.Config{})
			if n < 5 {
				t.Errorf("fortran %v, swapped %v: found %d polls", fortran, swapped, n)
			}
		}
	}
}
