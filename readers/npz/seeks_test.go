package npz

import (
	"archive/zip"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position of arrays of all orders, and finds the same damage.
func TestSeeks(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		data := archive(t, method, matrix("a", 50, 3, false, false), matrix("b", 50, 3, true, false), matrix("c", 50, 3, false, true))
		if n := tested.Seeks(t, data, record.Config{}); n < 10 {
			t.Errorf("found %d positions", n)
		}
		data[300] ^= 1
		if n := tested.Seeks(t, data, record.Config{}); n < 1 {
			t.Errorf("damaged: found %d positions", n)
		}
	}
}
