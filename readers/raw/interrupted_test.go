package raw

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// The reading and the conversion of long records can be interrupted at any poll. The next call continues.
func TestInterrupted(t *testing.T) {
	data := make([]byte, 2*(4*20_000+3))
	for i := range data {
		data[i] = byte(i * 7)
	}
	if n := tested.Interrupted(t, append([]byte(nil), data...), record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int32, Dims: pyfeed.Dims{20_000}}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{3}}}, Options: &Options{ByteOrder: "big"}}); n < 5 {
		t.Errorf("found %d polls", n)
	}
}
