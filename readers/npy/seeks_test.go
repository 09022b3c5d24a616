package npy

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, whatever the order of the elements is, and finds the same damage at the end.
func TestSeeks(t *testing.T) {
	rows := int64(50)
	if testing.Short() {
		rows = 33
	}
	for _, fortran := range []bool{false, true} {
		for _, descr := range []string{"<i4", ">i4"} {
			in, _ := lay(pyfeed.Int32, pyfeed.Dims{rows, 3}, fortran, descr == ">i4")
			whole := file(1, dict(descr, fortran, tuple(pyfeed.Dims{rows, 3})), in)
			for i, data := range [][]byte{whole, whole[:len(whole)-40], append(whole, 1)} {
				if testing.Short() && (i%2 > 0) == (fortran == (descr == ">i4")) {
					continue
				}
				if n := tested.Seeks(t, data, record.Config{}); n < 10 {
					t.Errorf("fortran %v, %s: found %d positions", fortran, descr, n)
				}
			}
		}
	}
	if n := tested.Seeks(t, file(1, dict("<i4", false, "(50, 0)"), nil), record.Config{}); n < 10 {
		t.Errorf("without data: found %d positions", n)
	}
	if n := tested.Seeks(t, file(1, dict("<i4", false, "(2, 2)"), make([]byte, 16)), record.Config{Options: &Options{Instances: "file"}}); n < 2 {
		t.Errorf("one instance: found %d positions", n)
	}
}
