package idx

import (
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// The reading and the conversion of long records can be interrupted at any poll. The next call continues.
func TestInterrupted(t *testing.T) {
	data := make([]byte, 2*4*20_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if n := tested.Interrupted(t, append([]byte{0, 0, 12, 2, 0, 0, 0, 2, 0, 0, 0x4e, 0x20}, data...), record.Config{}); n < 5 {
		t.Errorf("found %d polls", n)
	}
}
