package raw

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, and finds the same damage at the end.
func TestSeeks(t *testing.T) {
	n := 50
	if testing.Short() {
		n = 33
	}
	data := make([]byte, n*7+16)
	for i := range data {
		data[i] = byte(i * 7)
	}
	slots := []pyfeed.Slot{{DType: pyfeed.Int32}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{3}}}
	for _, order := range []string{"little", "big"} {
		for _, data := range [][]byte{data, data[:len(data)-5]} {
			if n := tested.Seeks(t, data, record.Config{Slots: slots, Options: &Options{ByteOrder: order, HeaderBytes: 16}}); n < 10 {
				t.Errorf("found %d positions", n)
			}
		}
	}
}
