package tfrecord

import (
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers"
)

// Wherever a look interrupts a checksum, a search or the reading of a long record, the next call goes on.
func TestInterrupted(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	lost := appendRecord(nil, []byte(long))
	lost[0] ^= 1 // the length
	spoilt := appendRecord(nil, []byte(long))
	spoilt[100] ^= 1 // the data
	data := slices.Concat(file("a", long), spoilt, file("b"), lost, file("c", long))
	if n := tested.Interrupted(t, data, readers.Config{}); n < 15 {
		t.Errorf("found %d looks", n)
	}
}
