package tfrecord

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// steps makes an entry of the map of feature lists.
func steps(key string, features ...[]byte) []byte {
	var all []byte
	for _, f := range features {
		all = append(all, sub(1, f)...)
	}
	return message(sub(1, []byte(key)), sub(2, all))
}

// sequence makes a SequenceExample.
func sequence(context string, lists ...[]byte) string {
	var all []byte
	for _, l := range lists {
		all = append(all, sub(1, l)...)
	}
	return context + string(sub(2, all))
}

func listed(about string) string { return `{"part": "feature_lists", ` + about + "}" }

func TestSteps(t *testing.T) {
	for name, c := range map[string]struct{ features, example, want string }{
		"floats":           {listed(`"name": "x", "dtype": "float32"`), sequence("", steps("x", floatList(1.5), floatList(2))), "[1.5 2]"},
		"rows":             {listed(`"name": "x", "dtype": "float64", "shape": [2]`), sequence("", steps("x", floatList(1, 2), floatList(3, 4), floatList(5, 6))), "[1 2 3 4 5 6]dims[3 2]"},
		"ints":             {listed(`"name": "x", "dtype": "int64"`), sequence("", steps("x", intList(-1), intList(1<<62))), "[-1 4611686018427387904]"},
		"bools":            {listed(`"name": "x", "dtype": "bool", "shape": [2]`), sequence("", steps("x", intList(1, 0))), "[true false]dims[1 2]"},
		"bytes":            {listed(`"name": "x", "dtype": "bytes"`), sequence("", steps("x", strs("ab"), strs(""), strs("c"))), `"abc"lod[[0 2 2 3]]`},
		"pairs of bytes":   {listed(`"name": "x", "dtype": "bytes", "shape": [2]`), sequence("", steps("x", strs("ab", ""), strs("c", "d"))), `"abcd"lod[[0 2 4] [0 2 2 3 4]]`},
		"raw":              {listed(`"name": "x", "dtype": "uint8", "shape": [2], "raw": true`), sequence("", steps("x", strs("ab"), strs("cd"))), "[97 98 99 100]dims[2 2]"},
		"variable":         {listed(`"name": "x", "dtype": "int32", "kind": "variable"`), sequence("", steps("x", intList(1, 2), intList(), nil, intList(3))), "[1 2 3]lod[[0 2 2 2 3]]"},
		"variable floats":  {listed(`"name": "x", "dtype": "float32", "kind": "variable", "shape": [2]`), sequence("", steps("x", floatList(), floatList(1, 2, 3, 4))), "[1 2 3 4]dims[2 2]lod[[0 0 2]]"},
		"variable bytes":   {listed(`"name": "x", "dtype": "bytes", "kind": "variable"`), sequence("", steps("x", strs("a", "bc"), strs(), strs("d"))), `"abcd"lod[[0 2 2 3] [0 1 3 4]]`},
		"variable raw":     {listed(`"name": "x", "dtype": "int16", "kind": "variable", "raw": true`), sequence("", steps("x", strs("\x01\x00\x02\x00"), strs(), strs(""))), "[1 2]lod[[0 2 2 2]]"},
		"no steps":         {listed(`"name": "x", "dtype": "int64"`), sequence("", steps("x")), "[]"},
		"missing":          {listed(`"name": "x", "dtype": "int64", "shape": [3], "allow_missing": true`), "", "[]dims[0 3]"},
		"missing bytes":    {listed(`"name": "x", "dtype": "bytes", "allow_missing": true`), sequence("", steps("y", strs("a"))), `""lod[[0]]`},
		"missing variable": {listed(`"name": "x", "dtype": "bytes", "kind": "variable"`), "", `""lod[[0] [0]]`},
		"context and lists": {`{"name": "id", "dtype": "bytes"}, ` + listed(`"name": "x", "dtype": "int8"`) + `, {"name": "n", "dtype": "int64", "default": 7, "part": "context"}`,
			sequence(example(entry("id", strs("k"))), steps("y", floatList(1)), steps("x", intList(5))), `"k" [5] 7`},
		"lists before the context":  {`{"name": "id", "dtype": "bytes"}, ` + listed(`"name": "x", "dtype": "int8"`), sequence("", steps("x", intList(5))) + example(entry("id", strs("k"))), `"k" [5]`},
		"only the context":          {`{"name": "id", "dtype": "bytes", "part": "context"}`, sequence(example(entry("id", strs("k"))), steps("x", intList(5))), `"k"`},
		"an Example is one too":     {`{"name": "id", "dtype": "bytes", "part": "context"}`, example(entry("id", strs("k"))), `"k"`},
		"a list in two parts":       {listed(`"name": "x", "dtype": "int8"`), sequence("", message(sub(1, []byte("x")), sub(2, sub(1, intList(1))), sub(2, sub(1, intList(2))))), "[1 2]"},
		"lists in two parts":        {listed(`"name": "x", "dtype": "int8"`) + ", " + listed(`"name": "y", "dtype": "int8"`), sequence("", steps("x", intList(1))) + sequence("", steps("y", intList(2))), "[1] [2]"},
		"the last list of a name":   {listed(`"name": "x", "dtype": "int8"`), sequence("", steps("x", intList(1)), steps("x", intList(2), intList(3))), "[2 3]"},
		"numbers that are unpacked": {listed(`"name": "x", "dtype": "int64", "shape": [2]`), sequence("", steps("x", sub(3, varint(1, 5), varint(1, 6)))), "[5 6]dims[1 2]"},
		"unknown fields":            {listed(`"name": "x", "dtype": "int64"`), string(varint(7, 1)) + sequence("", message(sub(1, []byte("x")), sub(2, varint(9, 1), sub(1, intList(1)), sub(3, []byte("?"))))), "[1]"},
	} {
		t.Run(name, func(t *testing.T) {
			parses(t, c.features, c.example, c.want)
			// Many equal records, whose names come in a known order.
			seen, err := parse(t, c.features, strings.Split(strings.Repeat(c.example+"|", 40), "|")[:40]...)
			if err != nil || len(seen) != 40 || seen[39] != c.want {
				t.Errorf("of 40 records: found %d, %v", len(seen), err)
			}
		})
	}
}

func TestWrongSteps(t *testing.T) {
	good := sequence("", steps("x", intList(1)))
	for _, c := range []struct {
		features, example string
		kind              pyfeed.Kind
		want              string
	}{
		{listed(`"name": "words", "dtype": "int64"`), sequence("", steps("word", intList(1)), steps("y")), pyfeed.Shape, `feature "words": not in the feature lists, whose features are "word", "y": did you mean "word"?`},
		{listed(`"name": "x", "dtype": "int64"`), example(entry("x", intList(1))), pyfeed.Shape, `feature "x": not in the feature lists, which has no features: give "allow_missing": true if it is optional`},
		{`{"name": "c", "dtype": "int64"}, ` + listed(`"name": "x", "dtype": "int64"`), good, pyfeed.Shape, `feature "c": not in the context, which has no features`},
		{listed(`"name": "x", "dtype": "int64"`), sequence("", steps("x", intList(1), intList(1, 2))), pyfeed.Shape, `feature "x": step 1: expected 1 int64, shape [], found 2`},
		{listed(`"name": "x", "dtype": "int64", "shape": [2]`), sequence("", steps("x", intList(1, 2), intList(1))), pyfeed.Shape, `feature "x": step 1: expected 2 int64s, shape [2], found 1`},
		{listed(`"name": "x", "dtype": "int64"`), sequence("", steps("x", intList(1), nil)), pyfeed.Shape, `feature "x": step 1: expected 1 int64, shape [], found a message Feature without a list`},
		{listed(`"name": "x", "dtype": "int64"`), sequence("", steps("x", intList(1), floatList(1))), pyfeed.Type, `feature "x": step 1: expected int64s, found floats: use the dtype "float32"`},
		{listed(`"name": "x", "dtype": "int8"`), sequence("", steps("x", intList(1), intList(200))), pyfeed.Type, `feature "x": value 1: expected a value that fits into int8, found 200`},
		{listed(`"name": "x", "dtype": "int64", "kind": "variable", "shape": [2]`), sequence("", steps("x", intList(1))), pyfeed.Shape, `feature "x": step 0: expected rows of 2 int64s, shape [2], found 1`},
		{listed(`"name": "x", "dtype": "uint8", "raw": true`), sequence("", steps("x", strs("a", "b"))), pyfeed.Shape, `feature "x": step 0: expected 1 value of raw bytes, found 2`},
		{listed(`"name": "x", "dtype": "int64"`), sequence("", message(sub(1, []byte("x")), sub(2, []byte{0x0a, 5}))), pyfeed.Corrupt, `feature "x": expected a message Feature, found bytes that cannot be parsed as one`},
		{listed(`"name": "x", "dtype": "int64"`), sequence("", steps("x", sub(3, sub(1, []byte{0x80})))), pyfeed.Corrupt, `feature "x": expected a message Feature`},
		{listed(`"name": "x", "dtype": "int64"`), string(sub(2, []byte{0x0a, 5})), pyfeed.Corrupt, `expected a tf.train.SequenceExample, found no field at byte 0 of its 4`},
	} {
		_, err := parse(t, c.features, c.example)
		if e := formattest.Expect(t, err, c.kind, c.want); e.At == nil || e.At.Record != 0 {
			t.Errorf("found the place %+v", e.At)
		}
	}
	for about, want := range map[string]string{
		`{"name": "x", "dtype": "int64", "part": "lists"}`:                                 `feature 0 "x": part: expected context or feature_lists, found "lists"`,
		listed(`"name": "x", "dtype": "int64", "default": 1`):                              `default: expected none of a feature list: allow_missing makes one that is missing empty`,
		listed(`"name": "x", "dtype": "int64", "kind": "ragged", "row_lengths": ["n"]`):    `kind: expected fixed or variable steps of a feature list, found ragged`,
		listed(`"name": "x", "dtype": "int64", "kind": "variable", "allow_missing": true`): `allow_missing: expected a feature list with fixed steps`,
		`{"name": "x", "dtype": "int64", "allow_missing": true}`:                           `allow_missing: expected a feature list with fixed steps`,
		`{"name": "x", "dtype": "int64"}, ` + listed(`"name": "x", "dtype": "int64"`):      `expected names that differ, found this one twice`,
		listed(`"name": "x", "dtype": "float32", "shape": [1, 2, 3, 4, 5, 6, 7, 8]`):       `shape: expected at most 8 dimensions of a slot`,
	} {
		_, err := Open("none.tfrecord", config(t, `{"features": [`+about+`]}`))
		formattest.Expect(t, err, pyfeed.Invalid, want)
	}
}

// What is written as a SequenceExample is read again, and has the bytes that the encoders of the tests make.
func TestWriteSteps(t *testing.T) {
	features := strings.Join([]string{`{"name": "id", "dtype": "int64"}`, listed(`"name": "f", "dtype": "float64", "shape": [2]`), listed(`"name": "i", "dtype": "int8", "kind": "variable"`),
		listed(`"name": "b", "dtype": "bytes"`), listed(`"name": "p", "dtype": "bytes", "shape": [2]`), listed(`"name": "v", "dtype": "bytes", "kind": "variable"`),
		listed(`"name": "r", "dtype": "int16", "raw": true, "kind": "variable"`), listed(`"name": "s", "dtype": "uint8", "raw": true, "shape": [2]`)}, ", ")
	want := sequence(example(entry("id", intList(9))), steps("f", floatList(1, 2), floatList(3, 4)), steps("i", intList(1), sub(3), intList(-2, 3)), steps("b", strs("ab"), strs("")),
		steps("p", strs("a", "bc")), steps("v", strs("x", "y"), strs()), steps("r", strs("\x01\x00"), strs()), steps("s", strs("ab"), strs("cd")))
	c := config(t, `{"features": [`+features+`]}`)
	r := inMemory(t, c, file(want))
	out := []*pyfeed.Tuple{pyfeed.NewTuple(8)}
	if n, err := r.Read(out); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	defer pyfeed.ReleaseAll(out)
	path := filepath.Join(t.TempDir(), "a.tfrecord")
	if err := tested.Write(t, path, c, out...); err != nil {
		t.Fatal(err)
	}
	bytes := &record.Config{Pool: c.Pool}
	b, err := Open(path, bytes)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	seen, err := all(t, b, 2)
	if err != nil {
		t.Fatal(err)
	}
	text := formattest.Text(want)
	formattest.ExpectTexts(t, seen, formattest.FormatTensor(&text))
	// Steps of the wrong size are refused.
	bad := formattest.Tuple(formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{3}, []byte("abc"), []int64{0, 2}, []int64{0, 2, 3}, []int64{0, 1, 2, 3}))
	err = tested.Write(t, filepath.Join(t.TempDir(), "b.tfrecord"), config(t, `{"features": [`+listed(`"name": "p", "dtype": "bytes", "shape": [2]`)+`]}`), bad)
	formattest.Expect(t, err, pyfeed.Shape, `feature "p": expected 2 byte strings, shape [2], found 1`)
}
