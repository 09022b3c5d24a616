package tfrecord

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// parse parses examples with features, which are given as JSON without the brackets of the list.
func parse(t testing.TB, features string, examples ...string) ([]string, error) {
	t.Helper()
	return all(t, inMemory(t, config(t, `{"features": [`+features+`]}`), file(examples...)), 10)
}

func parses(t *testing.T, features, example string, expected string) {
	t.Helper()
	seen, err := parse(t, features, example)
	if err != nil {
		t.Error(err)
	}
	formattest.ExpectTexts(t, seen, expected)
}

func mustRefuse(t *testing.T, features, example string, kind pyfeed.Kind, text string) {
	t.Helper()
	seen, err := parse(t, features, string(goldenExample), example)
	e := formattest.Expect(t, err, kind, text)
	if first := int64(frameSize + len(goldenExample)); e.At.Record != int64(len(seen)) || len(seen) == 1 && e.At.Offset != first {
		t.Errorf("%d records, then %+v at %+v", len(seen), e, e.At)
	}
}

func TestGoldenExample(t *testing.T) {
	r := inMemory(t, config(t, `{"features": [
		{"name": "a", "dtype": "int64", "shape": [3]},
		{"name": "b", "kind": "fixed", "dtype": "float32", "shape": [2, 1]},
		{"name": "c", "kind": "variable", "dtype": "bytes"},
		{"name": "d", "dtype": "bytes"},
		{"name": "e", "kind": "variable", "dtype": "float32", "shape": [2]}]}`), appendRecord(nil, goldenExample))
	slots, names, err := r.Describe()
	want := []pyfeed.Slot{
		{DType: pyfeed.Int64, Dims: pyfeed.Dims{3}},
		{DType: pyfeed.Float32, Dims: pyfeed.Dims{2, 1}},
		{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 2},
		{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1},
		{DType: pyfeed.Float32, Dims: pyfeed.Dims{-1, 2}, LoDLevels: 1},
	}
	if fmt.Sprint(slots) != fmt.Sprint(want) || fmt.Sprint(names) != "[a b c d e]" || err != nil {
		t.Errorf("found %v, %v, %v", slots, names, err)
	}
	spec, err := pyfeed.NewSpec(slots)
	if err != nil {
		t.Fatal(err)
	}
	tuple := pyfeed.NewTuple(0)
	defer tuple.Release()
	if n, err := r.Read([]*pyfeed.Tuple{tuple}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := spec.Check(tuple); err != nil {
		t.Error(err)
	}
	formattest.ExpectTexts(t, []string{formattest.FormatTuple(tuple)}, `[1 -2 300] [0.5 2]dims[2 1] "xy"lod[[0 2 2]] "jpeg" []dims[0 2]`)
	// Floats and single values of bytes are views of the file.
	for i, view := range []bool{false, true, false, true, false} {
		if tuple.Slots[i].ReadOnly != view {
			t.Errorf("slot %d: expected a view: %v", i, view)
		}
	}
}

func TestKindsOfFeatures(t *testing.T) {
	e := example(
		entry("ints", intList(1, 0, 255, -7, 1<<40)),
		entry("one", intList(5)),
		entry("floats", floatList(1, 2, 3, 4, 5, 6)),
		entry("words", strs("to", "", "be")),
		entry("raw", strs("\x01\x02\x03\x04\x05\x06\x07\x08")),
		entry("lengths", intList(2, 0, 1)),
		entry("splits", intList(0, 1, 3)),
	)
	for _, c := range []struct{ feature, want string }{
		{`"name": "ints", "dtype": "int64", "shape": [5]`, "[1 0 255 -7 1099511627776]"},
		{`"name": "ints", "dtype": "int64", "shape": [5, 1]`, "[1 0 255 -7 1099511627776]dims[5 1]"},
		{`"name": "one", "dtype": "int64"`, "5"},
		{`"name": "one", "dtype": "int64", "shape": []`, "5"},
		{`"name": "one", "dtype": "uint8"`, "5"},
		{`"name": "one", "dtype": "uint64"`, "5"},
		{`"name": "one", "dtype": "int16", "shape": [1]`, "[5]"},
		{`"name": "ints", "kind": "variable", "dtype": "int64"`, "[1 0 255 -7 1099511627776]"},
		{`"name": "ints", "kind": "variable", "dtype": "int64", "shape": [5]`, "[1 0 255 -7 1099511627776]dims[1 5]"},
		{`"name": "floats", "dtype": "float32", "shape": [2, 3]`, "[1 2 3 4 5 6]dims[2 3]"},
		{`"name": "floats", "dtype": "float64", "shape": [6]`, "[1 2 3 4 5 6]"},
		{`"name": "floats", "kind": "variable", "dtype": "float32", "shape": [3]`, "[1 2 3 4 5 6]dims[2 3]"},
		{`"name": "words", "dtype": "bytes", "shape": [3]`, `"tobe"lod[[0 2 2 4]]`},
		{`"name": "words", "kind": "variable", "dtype": "bytes"`, `"tobe"lod[[0 2 2 4]]`},
		{`"name": "raw", "dtype": "bytes"`, `"\x01\x02\x03\x04\x05\x06\a\b"`},
		{`"name": "raw", "raw": true, "dtype": "uint16", "shape": [2, 2]`, "[513 1027 1541 2055]dims[2 2]"},
		{`"name": "raw", "raw": true, "dtype": "float16", "shape": [4]`, "[0102 0304 0506 0708]"},
		{`"name": "raw", "kind": "variable", "raw": true, "dtype": "int16", "shape": [2]`, "[513 1027 1541 2055]dims[2 2]"},
		{`"name": "none", "kind": "variable", "raw": true, "dtype": "int16", "shape": [2]`, "[]dims[0 2]"},
		{`"name": "none", "kind": "variable", "dtype": "int64"`, "[]"},
		{`"name": "none", "kind": "variable", "dtype": "float32"`, "[]"},
		{`"name": "none", "kind": "variable", "dtype": "bytes"`, `""lod[[0]]`},
		{`"name": "floats", "kind": "ragged", "dtype": "float32", "shape": [2], "row_lengths": ["lengths"]`, "[1 2 3 4 5 6]dims[3 2]lod[[0 2 2 3]]"},
		{`"name": "words", "kind": "ragged", "dtype": "bytes", "row_splits": ["splits"]`, `"tobe"lod[[0 1 3] [0 2 2 4]]`},
		{`"name": "words", "kind": "ragged", "dtype": "bytes", "row_lengths": ["lengths"]`, `"tobe"lod[[0 2 2 3] [0 2 2 4]]`},
		{`"name": "words", "kind": "ragged", "dtype": "bytes", "row_splits": ["two", "splits"]`, ""},
		{`"name": "none", "kind": "ragged", "dtype": "int64", "row_splits": ["gone"]`, "[]lod[[0]]"},
		{`"name": "none", "kind": "ragged", "dtype": "int64", "row_lengths": ["gone", "too"]`, "[]lod[[0] [0]]"},
	} {
		if c.want != "" {
			parses(t, "{"+c.feature+"}", e, c.want)
		}
	}
}

func TestRaggedTwice(t *testing.T) {
	e := example(entry("v", intList(1, 2, 3)), entry("outer", intList(2, 0, 1)), entry("inner", intList(1, 2, 0)), entry("outer_splits", intList(0, 2, 2, 3)),
		entry("inner_splits", intList(0, 1, 3, 3)))
	parses(t, `{"name": "v", "kind": "ragged", "dtype": "int32", "row_lengths": ["outer", "inner"]}`, e, "[1 2 3]lod[[0 2 2 3] [0 1 3 3]]")
	parses(t, `{"name": "v", "kind": "ragged", "dtype": "int32", "row_splits": ["outer_splits", "inner_splits"]},
		{"name": "inner", "kind": "variable", "dtype": "int64"}`, e, "[1 2 3]lod[[0 2 2 3] [0 1 3 3]] [1 2 0]")
}

func TestRaggedThatDoesNotFit(t *testing.T) {
	ragged := func(how string) string { return `{"name": "v", "kind": "ragged", "dtype": "int64", ` + how + `}` }
	e := func(lengths ...int64) string {
		return example(entry("v", intList(1, 2, 3)), entry("r", intList(lengths...)))
	}
	refuse := func(how, example string, kind pyfeed.Kind, text string) {
		t.Helper()
		_, err := parse(t, ragged(how), example)
		formattest.Expect(t, err, kind, text)
	}
	lengths, splits := `"row_lengths": ["r"]`, `"row_splits": ["r"]`
	refuse(lengths, e(1, 1), pyfeed.Shape, `slot 0: feature "v": expected 2 rows as feature "r" says, found 3`)
	refuse(lengths, e(4, -1), pyfeed.Shape, `feature "r": value 1: expected the length of a row, found -1`)
	refuse(lengths, e(math.MaxInt64, 4), pyfeed.Shape, `value 1: expected the length of a row, found 4`)
	refuse(lengths, e(), pyfeed.Shape, `expected 0 rows as feature "r" says, found 3`)
	refuse(splits, e(1, 3), pyfeed.Shape, `value 0: expected splits that begin with 0 and never decrease, found 1`)
	refuse(splits, e(0, 2, 1, 3), pyfeed.Shape, `value 2: expected splits that begin with 0 and never decrease, found 1`)
	refuse(splits, e(0, 2), pyfeed.Shape, `expected 2 rows as feature "r" says, found 3`)
	refuse(`"row_lengths": ["q", "r"]`, example(entry("q", intList(1)), entry("r", intList(1, 2)), entry("v", intList(1, 2, 3))),
		pyfeed.Shape, `expected 1 rows as feature "q" says, found 2 in "r"`)
	refuse(lengths, example(entry("r", floatList(1))), pyfeed.Type, `feature "r": expected int64s, found floats`)
	refuse(lengths, example(entry("r", sub(3, sub(1, []byte{0x80})))), pyfeed.Corrupt, `feature "r": expected a message Feature`)
}

func TestDefaults(t *testing.T) {
	empty := example()
	for _, c := range []struct{ feature, want string }{
		{`"dtype": "int64", "default": 7`, "7"},
		{`"dtype": "int64", "default": -7, "shape": [2, 2]`, "[-7 -7 -7 -7]dims[2 2]"},
		{`"dtype": "int32", "default": [1, 2, 3], "shape": [3]`, "[1 2 3]"},
		{`"dtype": "uint8", "default": [[1, 2], [3, 255]], "shape": [2, 2]`, "[1 2 3 255]dims[2 2]"},
		{`"dtype": "bool", "default": true`, "true"},
		{`"dtype": "float32", "default": 0.5`, "0.5"},
		{`"dtype": "float64", "default": [1e3, 2], "shape": [2]`, "[1000 2]"},
		{`"dtype": "bytes", "default": "none"`, `"none"`},
		{`"dtype": "bytes", "default": ""`, `""`},
		{`"dtype": "bytes", "default": ["a", "bc"], "shape": [2]`, `"abc"lod[[0 1 3]]`},
		{`"dtype": "int64", "default": [], "shape": [0]`, "[]"},
	} {
		parses(t, `{"name": "x", `+c.feature+`}`, empty, c.want)
		// A Feature without a kind counts as missing, as in TensorFlow.
		parses(t, `{"name": "x", `+c.feature+`}`, example(entry("x")), c.want)
	}
	parses(t, `{"name": "x", "dtype": "int64", "default": 7}`, example(entry("x", intList(8))), "8")
	_, err := parse(t, `{"name": "x", "dtype": "int64", "default": 7}`, example(entry("x", intList())))
	formattest.Expect(t, err, pyfeed.Shape, `feature "x": expected 1 int64, shape [], found 0`)
}

func TestFeaturesMismatch(t *testing.T) {
	mustRefuse(t, `{"name": "a", "dtype": "int64", "shape": [3]}`, example(), pyfeed.Shape,
		`record 1: slot 0: feature "a": not in the example, which has no features: give "default" if it is optional`)
	mustRefuse(t, `{"name": "a", "dtype": "int64", "shape": [3]}`, example(entry("d", strs("x")), entry("b", floatList(1)), entry("d", strs("y"))), pyfeed.Shape,
		`feature "a": not in the example, whose features are "b", "d": give "default" if it is optional`)
	mustRefuse(t, `{"name": "a", "dtype": "int64", "shape": [3]}`, example(entry("a")), pyfeed.Shape,
		`feature "a": expected 3 int64s, shape [3], found a message Feature without a list`)
	mustRefuse(t, `{"name": "a", "dtype": "int64", "shape": [3]}, {"name": "d", "dtype": "bytes"}`, example(entry("a", intList(1, 2, 3)), entry("d", strs("a", "b"))),
		pyfeed.Shape, `slot 1: feature "d": expected 1 byte string, shape [], found 2: use "shape": [2], or "kind": "variable"`)
	mustRefuse(t, `{"name": "a", "dtype": "int64", "shape": [3]}`, example(entry("a", intList(1, 2))), pyfeed.Shape, "found 2")
	mustRefuse(t, `{"name": "b", "dtype": "float32", "shape": [2]}`, example(entry("b", floatList(1, 2, 3))), pyfeed.Shape, "expected 2 floats, shape [2], found 3")
	mustRefuse(t, `{"name": "b", "dtype": "float32", "shape": [2]}`, example(entry("b", intList(1, 2))), pyfeed.Type, `feature "b": expected floats, found int64s: use the dtype "int64"`)
	mustRefuse(t, `{"name": "d", "dtype": "bytes"}`, example(entry("d", floatList())), pyfeed.Type, `feature "d": expected bytes, found floats: use the dtype "float32"`)
	for dtype, list := range map[string]string{"uint8": "int64s", "bool": "int64s", "float64": "floats"} {
		_, err := parse(t, fmt.Sprintf(`{"name": "x", "dtype": %q}`, dtype), example(entry("x", strs("jpeg"))))
		formattest.Expect(t, err, pyfeed.Type,
			fmt.Sprintf(`feature "x": expected %s (for dtype %s), found bytes: use the dtype "bytes", or "raw": true for the memory of an array`, list, dtype))
	}
	for name, dtype := range map[string]string{"a": "int64", "b": "float32"} {
		mustRefuse(t, fmt.Sprintf(`{"name": %q, "kind": "variable", "dtype": %q}`, name, dtype), example(entry(name, strs("jpeg"))), pyfeed.Type,
			`s, found bytes: use the dtype "bytes", or "raw": true for the memory of an array`)
	}
	mustRefuse(t, `{"name": "a", "kind": "variable", "dtype": "int64", "shape": [3]}`, example(entry("a", intList(1, 2, 3, 4))), pyfeed.Shape,
		"expected rows of 3 int64s, shape [3], found 4")
	mustRefuse(t, `{"name": "d", "dtype": "uint8", "raw": true, "shape": [4]}`, example(entry("d", strs("abc"))), pyfeed.Shape,
		"expected 4 bytes, uint8, shape [4], found 3")
	mustRefuse(t, `{"name": "d", "dtype": "uint8", "raw": true, "shape": [4]}`, example(entry("d", strs("ab", "cd"))), pyfeed.Shape, "expected 1 value of raw bytes, found 2")
	mustRefuse(t, `{"name": "d", "kind": "variable", "dtype": "uint16", "raw": true}`, example(entry("d", strs("abc"))), pyfeed.Shape, "expected rows of 2 bytes, uint16")
	for dtype, v := range map[string]int64{"uint8": 256, "int8": -129, "uint16": -1, "int16": 1 << 15, "int32": 1 << 31, "uint32": 1 << 32, "uint64": -1, "bool": 2} {
		_, err := parse(t, fmt.Sprintf(`{"name": "x", "dtype": %q, "shape": [2]}`, dtype), example(entry("x", intList(1, v))))
		formattest.Expect(t, err, pyfeed.Type, fmt.Sprintf(`feature "x": value 1: expected a value that fits into %s, found %d`, dtype, v))
	}
}

// TestFeaturesMismatchAdvice tests what the message about a wrong number of values advises. It always ends with that.
func TestFeaturesMismatchAdvice(t *testing.T) {
	image := example(entry("x", strs(strings.Repeat("\x00", 784))))
	for _, c := range []struct{ feature, example, want string }{
		{`"dtype": "float32"`, example(entry("x", floatList(make([]float32, 784)...))), `expected 1 float, shape [], found 784: use "shape": [784], or "kind": "variable"`},
		{`"dtype": "uint8"`, example(entry("x", intList(1, 2))), `expected 1 int64, shape [], found 2: use "shape": [2], or "kind": "variable"`},
		{`"dtype": "bytes"`, example(entry("x", strs("a", "b"))), `expected 1 byte string, shape [], found 2: use "shape": [2], or "kind": "variable"`},
		{`"dtype": "int64"`, example(entry("x", intList())), "expected 1 int64, shape [], found 0"},
		{`"dtype": "float32", "shape": [7]`, example(entry("x", floatList(make([]float32, 8)...))), `expected 7 floats, shape [7], found 8: use "shape": [8], or "kind": "variable"`},
		{`"dtype": "int64", "shape": [3]`, example(entry("x", intList(1))), "expected 3 int64s, shape [3], found 1"},
		{`"dtype": "int64", "shape": [3, 1]`, example(entry("x", intList(1, 2))), "expected 3 int64s, shape [3 1], found 2"},
		{`"dtype": "int64", "shape": [1]`, example(entry("x", intList(1, 2))), `expected 1 int64, shape [1], found 2: use "shape": [2], or "kind": "variable"`},
		{`"dtype": "uint8", "raw": true`, image, `expected 1 byte, uint8, shape [], found 784: use "shape": [784]`},
		{`"dtype": "uint8", "raw": true, "shape": [783]`, image, `expected 783 bytes, uint8, shape [783], found 784: use "shape": [784]`},
		{`"dtype": "float32", "raw": true`, image, `expected 4 bytes, float32, shape [], found 784: use "shape": [196]`},
		{`"dtype": "float32", "raw": true`, example(entry("x", strs("12345"))), "expected 4 bytes, float32, shape [], found 5"},
		{`"dtype": "bytes", "shape": [784]`, image,
			`expected 784 byte strings, shape [784], found 1, of 784 bytes: for the memory of an array, use its dtype, such as "uint8", and "raw": true`},
		{`"dtype": "bytes", "shape": [196]`, image,
			`expected 196 byte strings, shape [196], found 1, of 784 bytes: for the memory of an array, use its dtype, such as "float32", and "raw": true`},
		{`"dtype": "bytes", "shape": [2]`, image, "expected 2 byte strings, shape [2], found 1, of 784 bytes"},
		{`"dtype": "bytes", "shape": [2]`, example(entry("x", strs(""))), "expected 2 byte strings, shape [2], found 1, of 0 bytes"},
		{`"dtype": "bytes", "shape": [0]`, image, "expected 0 byte strings, shape [0], found 1"},
		{`"dtype": "bytes", "shape": [3]`, example(entry("x", strs("a", "b"))), `expected 3 byte strings, shape [3], found 2: use "shape": [2], or "kind": "variable"`},
	} {
		_, err := parse(t, `{"name": "x", `+c.feature+`}`, c.example)
		formattest.Expect(t, err, pyfeed.Shape, `feature "x": `+c.want)
		if !strings.HasSuffix(err.Error(), c.want) {
			t.Errorf("%s: expected nothing after %q, found %v", c.feature, c.want, err)
		}
	}
}

func TestRangesOfIntegers(t *testing.T) {
	for dtype, limits := range map[string][2]int64{
		"int8": {-128, 127}, "uint8": {0, 255}, "int16": {-1 << 15, 1<<15 - 1}, "uint16": {0, 1<<16 - 1}, "int32": {-1 << 31, 1<<31 - 1},
		"uint32": {0, 1<<32 - 1}, "int64": {math.MinInt64, math.MaxInt64},
	} {
		parses(t, fmt.Sprintf(`{"name": "x", "dtype": %q, "shape": [2]}`, dtype), example(entry("x", intList(limits[0], limits[1]))), fmt.Sprint(limits))
	}
	parses(t, `{"name": "x", "dtype": "bool", "shape": [2]}`, example(entry("x", intList(0, 1))), "[false true]")
	parses(t, `{"name": "x", "dtype": "uint64"}`, example(entry("x", intList(math.MaxInt64))), "9223372036854775807")
}

// The error for a missing feature lists at most 20 names, wherever they are in the record.
func TestMissingFeatureAmongMany(t *testing.T) {
	var entries [][]byte
	for i := range 30 {
		entries = append(entries, entry(fmt.Sprintf("f%02d", (i*7)%30), intList(1)))
	}
	long := strings.Repeat("n", 200)
	for _, c := range []struct {
		example string
		first   int
		want    string
	}{
		{example(entries...), 20, " and others"},
		{string(sub(1, sub(1, entries[0]))) + string(varint(7, 1)) + string(sub(1, varint(9, 1), sub(1, entries[13]))), 2, ""},
		{example(message(sub(2, intList(1)), sub(1, []byte(long)))), 0, `"` + long[:100] + `"`},
		{example(entry("\xff\n", intList(1))), 0, `"\xff\n"`},
	} {
		names := make([]string, c.first)
		for i := range names {
			names[i] = fmt.Sprintf("%q", fmt.Sprintf("f%02d", i))
		}
		_, err := parse(t, `{"name": "label", "dtype": "int64"}`, c.example)
		e := formattest.Expect(t, err, pyfeed.Shape, "not in the example")
		if want := "whose features are " + strings.Join(names, ", ") + c.want + `: give "default" if it is optional`; !strings.HasSuffix(e.Text, want) {
			t.Errorf("expected %s, found %s", want, e.Text)
		}
	}
}

// The error for a missing feature suggests the nearest name in the record, unless it is requested by itself.
func TestMissingFeatureWithANearName(t *testing.T) {
	var entries [][]byte
	for i := range 30 {
		entries = append(entries, entry(fmt.Sprintf("f%02d", i), intList(1)))
	}
	many := example(append(entries, entry("label", intList(1)), entry("x1", intList(1)))...)
	for features, want := range map[string]string{
		`{"name": "lable", "dtype": "int64"}`:                               ` and others: did you mean "label"?`,
		`{"name": "LABEL", "dtype": "int64"}`:                               `: did you mean "label"?`,
		`{"name": "lable", "dtype": "uint8", "raw": true}`:                  `: did you mean "label"?`,
		`{"name": "x1", "dtype": "int64"}, {"name": "x2", "dtype": "int8"}`: `: give "default" if it is optional`,
		`{"name": "image", "dtype": "uint8", "raw": true}`:                  `: use "kind": "variable" if it is optional`,
	} {
		_, err := parse(t, features, many)
		if e := formattest.Expect(t, err, pyfeed.Shape, "not in the example"); !strings.HasSuffix(e.Text, want) {
			t.Errorf("%s: expected %s at the end, found %s", features, want, e.Text)
		}
	}
}

// After a record that does not fit, the next one is read.
func TestResyncSkipsAnExample(t *testing.T) {
	c := config(t, `{"features": [{"name": "words", "kind": "variable", "dtype": "bytes"}, {"name": "f", "dtype": "float32"}, {"name": "x", "dtype": "int64"}]}`)
	good := func(v int64) string {
		return example(entry("words", strs("a", "b")), entry("f", floatList(1)), entry("x", intList(v)))
	}
	bad := example(entry("words", strs("a", "b")), entry("f", floatList(1)), entry("x", intList(1, 2)))
	broken := example(entry("words", strs("a", "b")), entry("f", floatList(1)), entry("x", sub(3, []byte{0x0a, 2, 1})))
	r := inMemory(t, c, file(good(1), bad, good(2), "\xff", good(3), broken, good(4)))
	var seen []string
	for _, want := range []struct {
		kind pyfeed.Kind
		text string
	}{
		{pyfeed.Shape, `record 1: slot 2: feature "x"`},
		{pyfeed.Corrupt, "record 3: expected a tf.train.Example, found no field at byte 0 of its 1"},
		{pyfeed.Corrupt, `record 5: slot 2: feature "x": expected a message Feature, found bytes that cannot be parsed as one`},
	} {
		more, err := all(t, r, 10)
		seen = append(seen, more...)
		formattest.Expect(t, err, want.kind, want.text)
		if err = r.Resync(); err != nil {
			t.Fatal(err)
		}
	}
	more, err := all(t, r, 10)
	if err != nil {
		t.Error(err)
	}
	formattest.ExpectTexts(t, append(seen, more...), `"ab"lod[[0 1 2]] 1 1`, `"ab"lod[[0 1 2]] 1 2`, `"ab"lod[[0 1 2]] 1 3`,
		`"ab"lod[[0 1 2]] 1 4`)
}

// The same message can be encoded in many ways.
func TestProtobuf(t *testing.T) {
	features := `{"name": "i", "kind": "variable", "dtype": "int64"}, {"name": "f", "kind": "variable", "dtype": "float32"},
		{"name": "s", "kind": "variable", "dtype": "bytes"}`
	group := message(protowire.AppendTag(nil, 9, protowire.StartGroupType), varint(1, 5), protowire.AppendTag(nil, 9, protowire.EndGroupType))
	unknown := message(varint(7, 300), fixed32(8, 1), protowire.AppendFixed64(protowire.AppendTag(nil, 1000, protowire.Fixed64Type), 2), group, sub(6, []byte("x")))
	const plain = `[1 2 300] [0.5 2] "ab"lod[[0 1 2]]`
	half, two := math.Float32bits(0.5), math.Float32bits(2)
	for name, e := range map[string]string{
		"plain": example(entry("i", intList(1, 2, 300)), entry("f", floatList(0.5, 2)), entry("s", strs("a", "b"))),
		"not packed": example(entry("i", sub(3, varint(1, 1), varint(1, 2), varint(1, 300))), entry("f", sub(2, fixed32(1, half), fixed32(1, two))),
			entry("s", strs("a", "b"))),
		"packed in pieces": example(entry("i", sub(3, packedInts(1), packedInts(), varint(1, 2), packedInts(300))),
			entry("f", sub(2, packedFloats(0.5), packedFloats(), fixed32(1, two))), entry("s", strs("a", "b"))),
		"unknown fields": string(message(unknown, sub(1, unknown, sub(1, unknown, sub(1, []byte("i")), unknown, sub(2, unknown, sub(3, unknown, packedInts(1, 2), unknown, packedInts(300), unknown), unknown), unknown),
			unknown, sub(1, entry("f", sub(2, unknown, packedFloats(0.5, 2)))), sub(1, entry("?", intList(9))), sub(1, entry("s", sub(1, sub(1, []byte("a")), unknown, sub(1, []byte("b")))))), unknown)),
		"the last of a name": example(entry("i", floatList(8)), entry("s", strs("x")), entry("f", intList(7)), entry("i", intList(1, 2, 300)), entry("f", floatList(0.5, 2)), entry("s", strs("a", "b"))),
		"Features in pieces": example(entry("i", intList(9)), entry("f", floatList(0.5, 2))) + example(entry("s", strs("a", "b")), entry("i", intList(1, 2, 300))),
		"a value in pieces": example(
			message(sub(1, []byte("i")), sub(2, intList(1)), sub(2), sub(2, intList(2, 300))),
			message(sub(2, floatList(0.5)), sub(1, []byte("f")), sub(2, floatList(2))),
			message(sub(1, []byte("?")), sub(2, strs("a")), sub(1, []byte("s")), sub(2, strs("b")))),
		"a list in pieces": example(entry("i", intList(1), intList(2), intList(300)), entry("f", floatList(0.5), floatList(2)), entry("s", strs("a"), strs(), strs("b"))),
		"the last of one of": example(entry("i", intList(4), strs("x"), floatList(1), intList(1, 2), intList(300)), entry("f", floatList(3), intList(3), floatList(0.5, 2)),
			entry("s", floatList(1), strs("a", "b"))),
		"long varints": example(message([]byte{0x8a, 0x80, 0, 1, 'i'}, []byte{0x92, 0, 0x8b, 0x80, 0, 0x1a, 9, 0x8a, 0, 6, 0x81, 0, 2, 0xac, 0x82, 0}), entry("f", floatList(0.5, 2)), entry("s", strs("a", "b"))),
	} {
		seen, err := parse(t, features, e)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(seen, []string{plain}) {
			t.Errorf("%s: expected %q, found %q", name, plain, seen)
		}
	}
	// A missing key is the empty string, a missing value an empty Feature.
	parses(t, `{"name": "i", "kind": "variable", "dtype": "int64"}`, example(message(sub(2, intList(1))), nil, message(sub(1, []byte("i"))), nil), "[]")
	// A record of no bytes is an Example without features.
	parses(t, `{"name": "i", "kind": "variable", "dtype": "int64"}`, "", "[]")
	// Fields with these numbers but other types are unknown fields too.
	parses(t, `{"name": "i", "kind": "variable", "dtype": "int64"}`, string(varint(1, 5))+example(entry("i", varint(3, 1), sub(3, fixed32(1, 7), varint(1, 4)))), "[4]")
}

func TestPiecesAreCopied(t *testing.T) {
	parses(t, `{"name": "d", "dtype": "bytes"}, {"name": "r", "dtype": "uint8", "raw": true, "shape": [2]}, {"name": "f", "dtype": "float32"}`, example(
		message(sub(1, []byte("d")), sub(2, strs()), sub(2, strs("joined"))),
		message(sub(2, strs("ab")), sub(1, []byte("r")), sub(2)),
		entry("f", sub(2), floatList(1)),
	), `"joined" [97 98] 1`)
}

// To a parser that skips unknown fields, a SequenceExample is an Example of its context.
func TestSequenceExampleIsRefused(t *testing.T) {
	words := sub(1, sub(1, []byte("words")), sub(2, sub(1, strs("a")), sub(1, strs("b"))))
	optional := `{"name": "length", "kind": "variable", "dtype": "int64"}`
	context := example(entry("length", intList(2)))
	const message = "expected a tf.train.Example, found a tf.train.SequenceExample: give its features their \"part\", \"context\" or \"feature_lists\", or read its records as bytes, without features"
	for name, e := range map[string]string{
		"lists alone":              string(sub(2, words)),
		"context and lists":        context + string(sub(2, words)),
		"lists before the context": string(sub(2, words)) + context,
		"no lists in it":           context + string(sub(2)),
	} {
		t.Run(name, func(t *testing.T) {
			seen, err := parse(t, optional, context, e)
			formattest.ExpectTexts(t, seen, "[2]")
			at := formattest.Expect(t, err, pyfeed.Type, message).At
			if at.Record != 1 || at.Offset != int64(frameSize+len(context)) {
				t.Errorf("expected record 1 at byte %d, found %+v", frameSize+len(context), at)
			}
		})
	}
	// Many consecutive records, which are compared with a pattern, are refused like one.
	_, err := parse(t, `{"name": "x", "dtype": "float32", "default": 0}`, slices.Repeat([]string{string(sub(2, words))}, 2*minUniform)...)
	formattest.Expect(t, err, pyfeed.Type, message)
	// As bytes they are read.
	seen, err := all(t, inMemory(t, config(t, "{}"), file(context+string(sub(2, words)))), 10)
	if err != nil || len(seen) != 1 {
		t.Errorf("expected 1 record, found %q, %v", seen, err)
	}
}

func TestNotAMessage(t *testing.T) {
	features := `{"name": "i", "kind": "variable", "dtype": "int64"}, {"name": "f", "kind": "variable", "dtype": "float32"},
		{"name": "s", "kind": "variable", "dtype": "bytes"}`
	for name, e := range map[string]string{
		"a field without a number": "\x00\x00", "a wire type that is none": "\x0f", "a tag that does not end": "\x8a", "a length that does not end": "\x0a\x80",
		"a length beyond the end": "\x0a\x02\x00", "the largest length": "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "an end of no group": "\x0c",
		"a group that does not end": "\x0b\x08\x01", "a varint of 11 bytes": "\x08" + strings.Repeat("\xff", 10) + "\x01",
		"an entry that is none":         example([]byte{0xff}),
		"a key that is none":            example(message(sub(1, []byte("i")), []byte{0x12, 5})),
		"values behind which is more":   example(append(entry("i", intList(1)), 0x0a)),
		"a Feature that is none":        example(entry("i", []byte{0x1a, 5})),
		"a list that is none":           example(entry("i", sub(3, []byte{0x0a, 5}))),
		"a varint that does not end":    example(entry("i", sub(3, sub(1, []byte{1, 0x80})))),
		"a packed varint of 11 bytes":   example(entry("i", sub(3, sub(1, []byte(strings.Repeat("\xff", 10)+"\x01"))))),
		"a packed varint of 65 bits":    example(entry("i", sub(3, sub(1, []byte(strings.Repeat("\xff", 9)+"\x02"))))),
		"floats of 7 bytes":             example(entry("f", sub(2, sub(1, []byte("seven.."))))),
		"floats of 4 and 7 bytes":       example(entry("f", sub(2, packedFloats(1), sub(1, []byte("seven.."))))),
		"a float that is cut":           example(entry("f", sub(2, []byte{0x0d, 1, 2}))),
		"bytes that are cut":            example(entry("s", sub(1, sub(1, []byte("good")), []byte{0x0a, 9, 'b'}))),
		"a broken piece of one of them": example(entry("i", intList(1), []byte{0x1a, 5})),
	} {
		_, err := parse(t, features, e)
		if err == nil {
			t.Errorf("%s: expected an error", name)
			continue
		}
		formattest.Expect(t, err, pyfeed.Corrupt, "a file, byte 0, record 0: ")
	}
}

func TestVarints(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		var packed []byte
		want := make([]int64, random.IntN(40))
		for i := range want {
			want[i] = int64(random.Uint64() >> random.IntN(64) >> (random.IntN(2) * 58))
			packed = protowire.AppendVarint(packed, uint64(want[i]))
		}
		if n := countVarints(packed); n != len(want) {
			t.Fatalf("%x: expected %d values, found %d", packed, len(want), n)
		}
		found := make([]int64, len(want))
		if n := readVarints(found, packed); n != len(want) || !slices.Equal(found, want) {
			t.Fatalf("%x: expected %v, found %d, %v", packed, want, n, found)
		}
		if len(want) > 0 && readVarints(found[1:], packed) != -1 {
			t.Fatalf("%x: expected no room for %d values", packed, len(want))
		}
	}
}

func TestFeatureErrors(t *testing.T) {
	for features, text := range map[string]string{
		``:                           "features: expected at least 1, found 0",
		`{"dtype": "int64"}`:         `features: feature 0 "": name: expected one, found none`,
		`{"name": "x"}`:              `features: feature 0 "x": dtype: expected "bytes", bool, an integer dtype, float32 or float64, found none`,
		`{"name": "x", "raw": true}`: `features: feature 0 "x": dtype: expected that of the numbers in raw bytes, found none`,
		`{"name": "x", "dtype": "int64"}, {"name": "x", "dtype": "int64"}`:                                          `feature 1 "x": expected names that differ, found this one twice`,
		`{"name": "x", "dtype": "int64", "kind": "sparse"}`:                                                         `kind: expected fixed, variable or ragged, found "sparse"`,
		`{"name": "x", "dtype": "int64", "kind": "ragged"}`:                                                         "expected row_lengths or row_splits of a ragged feature, found 0 and 0",
		`{"name": "x", "dtype": "int64", "kind": "ragged", "row_lengths": ["a"], "row_splits": ["b"]}`:              "found 1 and 1",
		`{"name": "x", "dtype": "int64", "row_lengths": ["a"]}`:                                                     "row_lengths, row_splits: expected none unless kind is ragged",
		`{"name": "x", "dtype": "int8", "kind": "ragged", "raw": true, "row_lengths": ["a"]}`:                       "raw: expected a fixed or variable feature",
		`{"name": "x", "dtype": "int64", "kind": "variable", "default": 1}`:                                         "default: expected none unless kind is fixed",
		`{"name": "x", "dtype": "int8", "raw": true, "default": 1}`:                                                 "default: expected none of a raw feature",
		`{"name": "x", "dtype": "int64", "shape": [2, -1]}`:                                                         `shape: dimension 1: expected a size, found -1: use "kind": "variable" for a list of any length, or the dtype "bytes"`,
		`{"name": "x", "dtype": "bytes", "shape": [-1]}`:                                                            `found -1: use "kind": "variable" for any number of byte strings, or no shape for one of any length`,
		`{"name": "x", "dtype": "int64", "kind": "variable", "shape": [-1]}`:                                        "shape: dimension 0: expected a size, found -1",
		`{"name": "x", "dtype": "int64", "kind": "variable", "shape": [0]}`:                                         "shape: dimension 0: expected a size, found 0",
		`{"name": "x", "dtype": "int64", "shape": [1099511627776, 1099511627776]}`:                                  "shape: expected at most 2^40 values",
		`{"name": "x", "dtype": "int64", "shape": [1,1,1,1,1,1,1,1,1]}`:                                             "shape: expected at most 8 dimensions of a slot",
		`{"name": "x", "dtype": "int64", "kind": "variable", "shape": [1,1,1,1,1,1,1,1]}`:                           "shape: expected at most 8 dimensions of a slot",
		`{"name": "x", "dtype": "bytes", "shape": [2, 2]}`:                                                          `at most one dimension of fixed bytes and none of others, found [2 2]: for the memory of an array, use its dtype, such as "uint8", and "raw": true`,
		`{"name": "x", "dtype": "bytes", "kind": "variable", "shape": [2]}`:                                         "shape: expected at most one dimension of fixed bytes and none of others",
		`{"name": "x", "dtype": "int64", "kind": "ragged", "row_splits": ["1", "2", "3", "4", "5", "6", "7", "8"]}`: "LoD: expected at most 8 levels, found 9",
		`{"name": "x", "dtype": "int64", "default": 1.5}`:                                                           "default: expected int64, found 1.5",
		`{"name": "x", "dtype": "uint8", "default": 256}`:                                                           "default: expected a value that fits into uint8, found 256",
		`{"name": "x", "dtype": "int8", "default": 99999999999999999999}`:                                           "default: expected a value that fits into int8, found 99999999999999999999",
		`{"name": "x", "dtype": "int64", "default": "1"}`:                                                           "default: expected int64, found 1",
		`{"name": "x", "dtype": "float32", "default": 1e99}`:                                                        "default: expected a float32, found 1e99",
		`{"name": "x", "dtype": "float32", "default": true}`:                                                        "default: expected float32, found true",
		`{"name": "x", "dtype": "bytes", "default": 5}`:                                                             "default: expected bytes, found 5",
		`{"name": "x", "dtype": "int64", "default": [1, 2], "shape": [3]}`:                                          "default: expected 1 value or 3, found 2",
		`{"name": "x", "dtype": "int64", "default": 1, "shape": [99999999]}`:                                        "default: expected at most 2^24 values",
	} {
		c := config(t, `{"features": [`+features+`]}`)
		_, err := Open("nowhere", c)
		formattest.Expect(t, err, pyfeed.Invalid, text)
		_, err = Create("nowhere", c)
		formattest.Expect(t, err, pyfeed.Invalid, text)
	}
	parses(t, `{"name": "x", "dtype": "int64", "kind": "variable", "default": null}`, example(), "[]")

	const expected = `features: feature 0 "x": dtype: expected "bytes", bool, an integer dtype, float32 or float64, found `
	for feature, text := range map[string]string{
		`"dtype": "any"`:                  expected + `"any"`,
		`"dtype": "integer"`:              expected + `"integer"`,
		`"dtype": "text"`:                 expected + `"text": did you mean "bytes"?`,
		`"dtype": "String"`:               expected + `"String": did you mean "bytes"?`,
		`"dtype": "float16"`:              expected + `"float16": use "raw": true for the memory of an array`,
		`"dtype": "bytes", "raw": true`:   `dtype: expected that of the numbers in raw bytes, found "bytes"`,
		`"dtype": "bool", "raw": true`:    `dtype: expected that of the numbers in raw bytes, found "bool"`,
		`"dtype": "integer", "raw": true`: `dtype: expected that of the numbers in raw bytes, found "integer"`,
	} {
		_, err := Open("nowhere", config(t, `{"features": [{"name": "x", `+feature+`}]}`))
		if e := formattest.Expect(t, err, pyfeed.Type, text); !strings.HasSuffix(e.Text, text) {
			t.Errorf("%s: expected %s at the end, found %s", feature, text, e.Text)
		}
	}
}

func TestOptionsAreStrict(t *testing.T) {
	for options, want := range map[string]string{
		`{"features": [{"name": "y", "dtype": "int64"}, {"name": "x", "shap": [1], "dtype": "int64"}]}`: `features: feature "x": unknown field "shap"; ` +
			`there are name, part, allow_missing, kind, dtype, raw, shape, default, row_lengths, row_splits: did you mean "shape"?`,
		`{"features": [{"colour": 1, "name": "x"}]}`:                      "default, row_lengths, row_splits",
		`{"features": [{"type": "int64"}]}`:                               `features: unknown field "type"; there are name, part, allow_missing, kind, dtype, raw, shape, default, row_lengths, row_splits: did you mean "dtype"?`,
		`{"features": [{"name": "x", "row_lengths": "y"}]}`:               `features: feature "x": row_lengths: expected array, found string`,
		`{"features": [{"name": "x", "dtype": "int64", "shape": 1.5}]}`:   `features: feature "x": shape: expected integer, found number 1.5`,
		`{"features": [{"name": "x", "dtype": "int64", "shape": ["1"]}]}`: `features: feature "x": shape: expected integer, found string`,
		`{"features": ["x"]}`:                                             `features: expected a description with "name" and "dtype", found "x"`,
		`{"features": [null]}`:                                            `features: expected a description with "name" and "dtype", found null`,
		`{"features": "x"}`:                                               `features: expected a list of descriptions with "name" and "dtype", found "x"`,
		`{"features": {"x": "int64"}}`:                                    `features: expected a list of descriptions with "name" and "dtype", found {"x": "int64"}`,
		`{"feature": []}`:                                                 `unknown field "feature"; there are features, compression: did you mean "features"?`,
		`{"color": 1}`:                                                    "there are features, compression",
	} {
		err := record.DecodeAttributes("tfrecord", []byte(options), new(Options))
		formattest.Expect(t, err, pyfeed.Invalid, "tfrecord: attributes: ")
		formattest.Expect(t, err, pyfeed.Invalid, want)
		if strings.Contains(err.Error(), "did you mean") && !strings.Contains(want, "did you mean") {
			t.Errorf("%s: expected no suggestion, found %v", options, err)
		}
	}
}

func TestShapeOfOneNumber(t *testing.T) {
	parses(t, `{"name": "x", "dtype": "int64", "shape": 3}`, example(entry("x", intList(1, 2, 3))), "[1 2 3]")
	parses(t, `{"name": "x", "dtype": "int64", "shape": null}`, example(entry("x", intList(7))), "7")
}
