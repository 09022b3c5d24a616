package idx

import (
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Wherever a look interrupts the reading of long records, or their turning round, the next call goes on.
func TestInterrupted(t *testing.T) {
	data := make([]byte, 2*4*20_000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	if n := tested.Interrupted(t, append([]byte{0, 0, 12, 2, 0, 0, 0, 2, 0, 0, 0x4e, 0x20}, data...), record.Config{}); n < 5 {
		t.Errorf("found %d looks", n)
	}
}
