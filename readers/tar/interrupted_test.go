package tar

import (
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Skipping members, a run of zeros, and reading or converting a long member can be interrupted at any poll, also within
// an instance. The next call continues.
func TestInterrupted(t *testing.T) {
	size := 96_000
	if testing.Short() {
		size = 70_000 // more than two polls
	}
	long := strings.Repeat("0123456789abcdef", size/16)
	turned := strings.Replace(array(pyfeed.Dims{int64(size/1000 + 32), 256}, make([]int32, (size/1000+32)*256)...), "<i4", ">i4", 1)
	whole := pack(part{"a.cls", "1", 0}, part{"a.jpg", long, 0}, part{"a.npy", turned, 0}, part{"a.no", long, 0}, part{"README", long, 0},
		part{"b.cls", "2", 0}, part{"b.jpg", "b", 0}, part{"b.npy", turned, 0}, part{"b.no", "x", 0})
	cut := pack(part{"c.cls", "3", 0}, part{"c.jpg", long, 0})
	lost := fixed(pack(part{"d.cls", "4", 0}))
	lost[150] ^= 0x55
	noise := strings.Repeat("x", 200*blockSize)
	data := slices.Concat(whole, cut, lost, []byte(noise), pack(part{"e.cls", "5", 0}, part{"e.jpg", long, 0}, part{"e.npy", turned, 0}),
		make([]byte, 200*blockSize))
	for _, c := range []record.Config{
		{Options: &Options{Fields: fields("cls", "jpg", "npy")}},
		{},
	} {
		if n := tested.Interrupted(t, data, c); n < 15 {
			t.Errorf("found %d polls", n)
		}
	}
}
