package tfrecord

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/readers/record"
)

// A checksum, a search and the reading of a long record can be interrupted at any poll. The next call continues.
func TestInterrupted(t *testing.T) {
	long := strings.Repeat("0123456789", 10_000)
	lost := appendRecord(nil, []byte(long))
	lost[0] ^= 1 // the length
	spoilt := appendRecord(nil, []byte(long))
	spoilt[100] ^= 1 // the data
	data := slices.Concat(file("a", long), spoilt, file("b"), lost, file("c", long))
	if n := tested.Interrupted(t, data, record.Config{}); n < 15 {
		t.Errorf("found %d polls", n)
	}
}

// The parsing of a long example can be interrupted at any poll. The next call parses it again.
func TestInterruptedExamples(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n = 5_000
	}
	ints, floats, texts := make([]int64, n), make([]float32, n), make([]string, n)
	var single [][]byte
	for i := range n {
		ints[i], floats[i], texts[i] = int64(i)<<(i%40), float32(i), fmt.Sprint(i)
		single = append(single, fixed32(1, uint32(i)))
	}
	long := example(
		entry("ints", intList(ints...)),
		entry("narrow", intList(slices.Repeat([]int64{7}, 10*n)...)),
		entry("floats", floatList(floats...)),
		entry("single", sub(2, single...)),
		entry("texts", strs(texts...)),
		entry("raw", strs(strings.Repeat("r", 8*n))),
		entry("unknown", strs(texts...)),
	)
	short := example(entry("ints", intList(1)), entry("narrow", intList(2)), entry("floats", floatList(3)),
		entry("single", floatList(4)), entry("texts", strs("5")), entry("raw", strs("6")))
	features := []string{
		`{"name": "ints", "dtype": "int64", "kind": "variable"}`,
		`{"name": "texts", "dtype": "bytes", "kind": "variable"}`,
		`{"name": "narrow", "dtype": "uint8", "kind": "variable"}`,
		`{"name": "floats", "dtype": "float32", "kind": "variable"}`,
		`{"name": "floats", "dtype": "float64", "kind": "variable"}`,
		`{"name": "single", "dtype": "float32", "kind": "variable"}`,
		`{"name": "raw", "dtype": "uint8", "kind": "variable", "raw": true}`,
	}
	if testing.Short() {
		features = features[:2]
	}
	for _, feature := range features {
		t.Run(feature, func(t *testing.T) {
			c := config(t, `{"features": [`+feature+`]}`)
			bare := tested.Interrupted(t, file(short, short), *c)
			if looks := tested.Interrupted(t, file(short, long, short), *c); looks < bare+8 {
				t.Errorf("found %d polls, %d without the long example", looks, bare)
			}
		})
	}
}

// The parsing of long steps, and of many, can be interrupted at any poll. So can the copy of one value.
func TestInterruptedSteps(t *testing.T) {
	const size = 400_000
	n := size / 100
	ints, floats, texts, many := make([]int64, n), make([]float32, n), make([]string, n), make([][]byte, n)
	for i := range n {
		ints[i], floats[i], texts[i], many[i] = int64(i), float32(i), strings.Repeat("t", 100), intList(slices.Repeat([]int64{int64(i)}, 50)...)
	}
	value := strings.Repeat("v", size)
	for about, c := range map[string]struct {
		steps [][]byte
		polls int
	}{
		`"dtype": "int64"`:                {many, 20},
		`"dtype": "uint8", "raw": true`:   {[][]byte{strs("r"), strs(value)}, 20},
		`"dtype": "bytes"`:                {[][]byte{strs(value), strs("b")}, 20},
		`"dtype": "bytes", "shape": []`:   {[][]byte{strs(texts...)}, 20},
		`"dtype": "float64", "shape": []`: {[][]byte{floatList(floats...)}, 1},
	} {
		t.Run(about, func(t *testing.T) {
			feature := listed(`"name": "x", "kind": "variable", ` + about)
			long, none := sequence("", steps("x", c.steps...)), sequence("", steps("y", c.steps...))
			conf := config(t, `{"features": [`+feature+`]}`)
			bare := tested.Interrupted(t, file(none, none), *conf)
			if looks := tested.Interrupted(t, file(long, none), *conf); looks < bare+c.polls {
				t.Errorf("expected at least %d more polls than %d, found %d in all", c.polls, bare, looks)
			}
		})
	}
}
