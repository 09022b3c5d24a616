package idx

import (
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, and finds the same damage at the end.
func TestSeeks(t *testing.T) {
	n := byte(50)
	if testing.Short() {
		n = 33
	}
	for _, head := range [][]byte{{0, 0, 8, 2, 0, 0, 0, n, 0, 0, 0, 4}, {0, 0, 12, 1, 0, 0, 0, n}} {
		data := make([]byte, int(n)*4)
		for i := range data {
			data[i] = byte(i)
		}
		for _, data := range [][]byte{data, data[:101], append(data, 1)} {
			if n := tested.Seeks(t, slices.Concat(head, data), record.Config{}); n < 10 {
				t.Errorf("found %d positions", n)
			}
		}
	}
}
