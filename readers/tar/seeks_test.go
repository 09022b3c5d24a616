package tar

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, also behind damage. The fields may have to be inferred from the first instance.
func TestSeeks(t *testing.T) {
	instances := func(from, to int) []byte {
		var parts []part
		for i := from; i < to; i++ {
			parts = append(parts, part{fmt.Sprintf("%d.cls", i), fmt.Sprint(i), 0}, part{fmt.Sprintf("%d.jpg", i), "image", 0}, part{"README", "no", 0})
		}
		return pack(parts...)
	}
	lost := fixed(pack(part{"lost.cls", "4", 0}))
	lost[150] ^= 0x55
	incomplete := pack(part{"incomplete.cls", "4", 0})
	wrong := pack(part{"wrong.cls", "four", 0}, part{"wrong.jpg", "image", 0})
	n := 10
	if testing.Short() {
		n = 3
	}
	whole := instances(0, 20)
	ends := make([]byte, 2*blockSize)
	for i, data := range [][]byte{
		slices.Concat(whole, ends),
		whole,
		slices.Concat(whole, lost, instances(20, 20+n), incomplete, instances(20+n, 20+2*n), wrong, instances(20+2*n, 20+3*n), ends),
		slices.Concat(whole, ends, ends, instances(20, 20+n), ends),
	} {
		for k, o := range []Options{{Fields: fields("cls", "jpg", "__key__")}, {}, {End: "file"}} {
			if testing.Short() && (i+k)%2 > 0 {
				continue
			}
			if n := tested.Seeks(t, data, record.Config{Options: &o}); n < 6 {
				t.Errorf("found %d positions", n)
			}
		}
	}
}
