package npz

import (
	"archive/zip"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position of arrays of all orders, and finds the same damage.
func TestSeeks(t *testing.T) {
	rows := 50
	if testing.Short() {
		rows = 33
	}
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		data := archive(t, method, matrix("a", rows, 3, false, false), matrix("b", rows, 3, true, false), matrix("c", rows, 3, false, true))
		if n := tested.Seeks(t, data, record.Config{}); n < 10 {
			t.Errorf("found %d positions", n)
		}
		data[300] ^= 1
		if n := tested.Seeks(t, data, record.Config{}); n < 1 {
			t.Errorf("damaged: found %d positions", n)
		}
	}
}
