package recordio

import (
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/formattest"
)

// Wherever a look interrupts a checksum, a search or the unpacking of a chunk, the next call goes on.
func TestInterrupted(t *testing.T) {
	long := pseudo(100_000, 1)
	packed := chunkOf(false, gzipped, 2, formattest.Gzip(payloadOf(long, "d")))
	spoilt := chunkOf(false, uncompressed, 1, payloadOf(long))
	spoilt[100] ^= 1
	lost := chunkOf(false, uncompressed, 1, payloadOf(long))
	lost[0] ^= 1
	data := slices.Concat(chunkOf(false, uncompressed, 2, payloadOf("a", long)), spoilt, packed,
		chunkOf(false, uncompressed, 1, payloadOf("b")), lost, chunkOf(false, uncompressed, 1, payloadOf("c")))
	if n := tested.Interrupted(t, data, readers.Config{Options: &Options{Records: "bytes"}}); n < 15 {
		t.Errorf("found %d looks", n)
	}
}
