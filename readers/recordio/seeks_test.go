package recordio

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position within and between chunks, also behind damage.
func TestSeeks(t *testing.T) {
	for name, data := range small(t) {
		t.Run(name, func(t *testing.T) {
			if n := tested.Seeks(t, data, record.Config{}); n < 1 {
				t.Errorf("found %d positions", n)
			}
			first, step := 9, 37
			if testing.Short() { // in the header of the first chunk, or in the data of the last one
				if step = len(data); strings.HasSuffix(name, "tensors") {
					first = len(data) - 5
				}
			}
			for at := first; at < len(data); at += step {
				damaged := slices.Clone(data)
				damaged[at] ^= 0x10
				tested.Seeks(t, damaged, record.Config{})
			}
		})
	}
	var records []string
	for i := range 30 {
		records = append(records, fmt.Sprint("record ", i))
	}
	first, wrong, second := chunkOf(false, 0, 20, payloadOf(records[:20]...)), chunkOf(false, 0, 3, payloadOf(records[:2]...)), chunkOf(false, 0, 10, payloadOf(records[20:]...))
	spoilt := slices.Clone(second)
	spoilt[len(spoilt)-1] ^= 1
	for _, o := range []Options{{}, {Records: "bytes"}} {
		if n := tested.Seeks(t, slices.Concat(first, wrong, second, spoilt, first), record.Config{Options: &o}); n < 20 {
			t.Errorf("found %d positions", n)
		}
	}
}
