package tfrecord

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Reading goes on from every position, also behind damage.
func TestSeeks(t *testing.T) {
	var records, examples []string
	for i := range 40 {
		records = append(records, fmt.Sprint("record ", i))
		examples = append(examples, example(entry("x", intList(int64(i), 2))))
	}
	lost, spoilt := file("lost"), file("spoilt")
	lost[0] ^= 1
	spoilt[14] ^= 1
	data := slices.Concat(file(records[:9]...), spoilt, file(records[9:20]...), lost, file(records[20:]...))
	for _, data := range [][]byte{data, data[:len(data)-3], file(records...)} {
		if n := tested.Seeks(t, data, record.Config{}); n < 10 {
			t.Errorf("found %d positions", n)
		}
	}
	c := config(t, `{"features": [{"name": "x", "dtype": "int64", "shape": [2]}]}`)
	if n := tested.Seeks(t, slices.Concat(file(examples[:30]...), spoilt, file(examples[30:]...)), *c); n < 10 {
		t.Errorf("examples: found %d positions", n)
	}
}
