package tfrecord

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// texts returns a slot of values of bytes.
func texts(values ...string) pyfeed.LoDTensor {
	level := []int64{0}
	for _, v := range values {
		level = append(level, level[len(level)-1]+int64(len(v)))
	}
	return formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{level[len(level)-1]}, []byte(strings.Join(values, "")), []int64{0, int64(len(values))}, level)
}

// write writes tuples and returns the bytes of the file.
func write(t *testing.T, c *record.Config, tuples ...*pyfeed.Tuple) ([]byte, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.tfrecord")
	if err := tested.Write(t, path, c, tuples...); err != nil {
		return nil, err
	}
	return os.ReadFile(path)
}

func withLoD(s pyfeed.LoDTensor, lod ...[]int64) pyfeed.LoDTensor {
	s.LoD = lod
	return s
}

func writes(t *testing.T, c *record.Config, want []byte, tuples ...*pyfeed.Tuple) {
	t.Helper()
	found, err := write(t, c, tuples...)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(found, want) {
		t.Errorf("expected %x, found %x", want, found)
	}
}

func TestWriteRecords(t *testing.T) {
	want := file("first", "", "third")
	tuples := []*pyfeed.Tuple{formattest.Tuple(formattest.Text("first")), formattest.Tuple(formattest.Text("")), formattest.Tuple(formattest.Text("third"))}
	for _, names := range [][]string{nil, {""}, {"record"}} {
		for _, slots := range [][]pyfeed.Slot{nil, {record.BytesSlot}, {{Dims: pyfeed.Dims{-1}, LoDLevels: 1}}} {
			c := config(t, "")
			c.Slots, c.Names = slots, names
			writes(t, c, want, tuples...)
		}
	}
	// Without a LoD (level of detail), as in a tuple of one array.
	writes(t, config(t, ""), file("abc", "de"), formattest.Tuple(formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{3}, []byte("abc"))), formattest.Tuple(formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{2}, []byte("de"))))
	writes(t, config(t, ""), nil)
	_, err := write(t, config(t, ""), tuples[0], formattest.Tuple(formattest.Tensor(pyfeed.Int8, pyfeed.Dims{1}, []byte("x"), []int64{0, 1})))
	formattest.Expect(t, err, pyfeed.Type, "slot 0: dtype: expected uint8, found int8")
	_, err = write(t, config(t, ""), tuples[0], formattest.Tuple(formattest.Text("a"), formattest.Text("b")))
	formattest.Expect(t, err, pyfeed.Slots, "slots: expected 1, found 2")
	_, err = write(t, config(t, ""), formattest.Tuple(formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{3}, []byte("abc"), []int64{0, 1, 3})))
	formattest.Expect(t, err, pyfeed.Shape, "slot 0: expected one instance for each record, found a batch of 2")
	_, err = write(t, config(t, ""), formattest.Tuple(formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{3}, []byte("ab"), []int64{0, 3})))
	formattest.Expect(t, err, pyfeed.Shape, "slot 0: expected 3 bytes, dims [3] of uint8, found 2")
	device := formattest.Text("abc")
	device.Place = pyfeed.CUDAPlace(1)
	_, err = write(t, config(t, ""), formattest.Tuple(device))
	formattest.Expect(t, err, pyfeed.Invalid, "slot 0: place: expected memory of the host, found CUDAPlace(1)")
}

func TestWriteCompressed(t *testing.T) {
	c := record.Config{Options: new(Options)}
	say := func(c *record.Config, compression string) { c.Options = &Options{Compression: compression} }
	tested.Compressions(t, c, say, formattest.Tuple(formattest.Text("abc")), "none", "gzip", "zlib")
	_, err := Create(filepath.Join(t.TempDir(), "a.tfrecord.zst"), config(t, ""))
	formattest.Expect(t, err, pyfeed.Invalid, `compression: expected none, gzip or zlib, found "zstd"`)
}

func TestWriteGolden(t *testing.T) {
	slots := formattest.Tuple(
		formattest.TensorOf([]int64{1, -2, 300}),
		formattest.TensorOf([]float32{0.5, 2}),
		texts("xy", ""), formattest.Text("jpeg"),
		formattest.Tensor(pyfeed.Float32, pyfeed.Dims{0}, nil, []int64{0, 0}))
	want := appendRecord(nil, goldenExample)
	c := config(t, "")
	c.Names = []string{"a", "b", "c", "d", "e"}
	writes(t, c, want, slots)
	c.Slots = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{3}}, {DType: pyfeed.Float32, Dims: pyfeed.Dims{2}},
		{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 2}, {DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1},
		{DType: pyfeed.Float32, Dims: pyfeed.Dims{-1}, LoDLevels: 1}}
	writes(t, c, want, slots)
	writes(t, config(t, `{"features": [{"name": "a", "dtype": "int64", "shape": [3]}, {"name": "b", "dtype": "float32", "shape": [2]},
		{"name": "c", "dtype": "bytes", "shape": [2]}, {"name": "d", "dtype": "bytes"}, {"name": "e", "kind": "variable", "dtype": "float32"}]}`), want, slots)
}

// Tuples that are written with features and read with the same features are equal.
func TestRoundTrip(t *testing.T) {
	for _, c := range []struct {
		feature string
		slot    pyfeed.LoDTensor
	}{
		{`"dtype": "bool", "shape": [3]`, formattest.Tensor(pyfeed.Bool, pyfeed.Dims{3}, []byte{0, 1, 1})},
		{`"dtype": "int8", "shape": [2]`, formattest.TensorOf([]int8{-128, 127})},
		{`"dtype": "uint8", "shape": [2, 1]`, formattest.TensorOf([]uint8{0, 255}, 2, 1)},
		{`"dtype": "int16", "shape": [2]`, formattest.TensorOf([]int16{-1 << 15, 1<<15 - 1})},
		{`"dtype": "uint16", "shape": [2]`, formattest.TensorOf([]uint16{0, 1<<16 - 1})},
		{`"dtype": "int32", "shape": [2]`, formattest.TensorOf([]int32{-1 << 31, 1<<31 - 1})},
		{`"dtype": "uint32", "shape": [2]`, formattest.TensorOf([]uint32{0, 1<<32 - 1})},
		{`"dtype": "int64", "shape": [2]`, formattest.TensorOf([]int64{math.MinInt64, math.MaxInt64})},
		{`"dtype": "uint64", "shape": [2]`, formattest.TensorOf([]uint64{0, math.MaxInt64})},
		{`"dtype": "float32", "shape": [2]`, formattest.TensorOf([]float32{0.1, float32(math.Inf(-1))})},
		{`"dtype": "float64", "shape": [3]`, formattest.TensorOf([]float64{0.25, math.Inf(1), float64(float32(0.1))})},
		{`"dtype": "int64", "shape": [0]`, formattest.Tensor(pyfeed.Int64, pyfeed.Dims{0}, nil)},
		{`"dtype": "int64"`, formattest.TensorOf(int64(3))},
		{`"dtype": "bytes"`, formattest.Text("")},
		{`"dtype": "bytes"`, formattest.Text("words")},
		{`"dtype": "bytes", "shape": [2]`, texts("", "x")},
		{`"dtype": "bytes", "kind": "variable"`, texts("a", "", "bc")},
		{`"dtype": "int32", "kind": "variable", "shape": [2]`, withLoD(formattest.TensorOf([]int32{1, -2, 3, 4}, 2, 2), []int64{0, 2})},
		{`"dtype": "int32", "kind": "variable", "shape": [2]`, formattest.Tensor(pyfeed.Int32, pyfeed.Dims{0, 2}, nil, []int64{0, 0})},
		{`"dtype": "float64", "kind": "variable"`, withLoD(formattest.TensorOf([]float64{-1.5}), []int64{0, 1})},
		{`"dtype": "float16", "raw": true, "shape": [2]`, formattest.Tensor(pyfeed.Float16, pyfeed.Dims{2}, []byte{1, 2, 3, 4})},
		{`"dtype": "complex128", "raw": true`, formattest.Tensor(pyfeed.Complex128, pyfeed.Dims{}, make([]byte, 16))},
		{`"dtype": "uint8", "raw": true, "shape": [0]`, formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{0}, nil)},
		{`"dtype": "int32", "raw": true, "kind": "variable", "shape": [1]`, formattest.Tensor(pyfeed.Int32, pyfeed.Dims{2, 1}, []byte("abcdefgh"), []int64{0, 2})},
		{`"dtype": "int32", "raw": true, "kind": "variable"`, formattest.Tensor(pyfeed.Int32, pyfeed.Dims{0}, nil, []int64{0, 0})},
		{`"dtype": "int32", "kind": "ragged", "row_lengths": ["r", "s"]`,
			withLoD(formattest.TensorOf([]int32{1, 2}), []int64{0, 2}, []int64{0, 2, 3}, []int64{0, 1, 1, 2})},
		{`"dtype": "bytes", "kind": "ragged", "row_splits": ["r"]`,
			formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{3}, []byte("abc"), []int64{0, 2}, []int64{0, 0, 2}, []int64{0, 2, 3})},
	} {
		features := `{"features": [{"name": "x", ` + c.feature + `}]}`
		data, err := write(t, config(t, features), formattest.Tuple(c.slot), formattest.Tuple(c.slot))
		if err != nil {
			t.Errorf("%s: %v", c.feature, err)
			continue
		}
		r := inMemory(t, config(t, features), data)
		for range 2 {
			got := pyfeed.NewTuple(1)
			if n, err := r.Read([]*pyfeed.Tuple{got}); n != 1 || err != nil {
				t.Fatalf("%s: %d, %v", c.feature, n, err)
			}
			if found, want := formattest.FormatTuple(got), formattest.FormatTensor(&c.slot); found != want || got.Slots[0].DType != c.slot.DType {
				t.Errorf("%s: expected %s, found %s", c.feature, want, found)
			}
			got.Release()
		}
	}
}

// The features that divide a ragged feature may be slots themselves.
func TestPartitionsThatAreSlots(t *testing.T) {
	c := config(t, `{"features": [{"name": "n", "kind": "variable", "dtype": "int32"},
		{"name": "x", "kind": "ragged", "dtype": "int64", "row_lengths": ["n"]}, {"name": "y", "kind": "ragged", "dtype": "int64", "row_lengths": ["n"]}]}`)
	n := withLoD(formattest.TensorOf([]int32{2, 1}), []int64{0, 2})
	x := withLoD(formattest.TensorOf([]int64{7, 8, 9}), []int64{0, 2}, []int64{0, 2, 3})
	data, err := write(t, c, formattest.Tuple(n, x, x))
	if err != nil {
		t.Fatal(err)
	}
	seen, err := all(t, inMemory(t, c, data), 2)
	formattest.ExpectTexts(t, seen, "[2 1] [7 8 9]lod[[0 2 3]] [7 8 9]lod[[0 2 3]]")
	if err != nil {
		t.Error(err)
	}
	y := withLoD(formattest.TensorOf([]int64{7, 8, 9}), []int64{0, 2}, []int64{0, 1, 3})
	_, err = write(t, c, formattest.Tuple(n, x, y))
	formattest.Expect(t, err, pyfeed.Shape, `slot 2: feature "n": expected the same values as from another slot, found other values`)
}

func TestWriteErrors(t *testing.T) {
	one := formattest.TensorOf([]int64{1})
	_, err := write(t, config(t, ""), formattest.Tuple(one))
	formattest.Expect(t, err, pyfeed.Invalid, "slot 0: expected a name for the feature, found none: give names, features, or one slot of bytes")
	named := func(names ...string) *record.Config {
		c := config(t, "")
		c.Names = names
		return c
	}
	_, err = write(t, named("a", "a"), formattest.Tuple(one, one))
	formattest.Expect(t, err, pyfeed.Invalid, `feature 1 "a": expected names that differ`)
	_, err = write(t, named("a"), formattest.Tuple(one, one))
	formattest.Expect(t, err, pyfeed.Invalid, "slot 1: expected a name for the feature")
	_, err = write(t, named("a"), formattest.Tuple(one), formattest.Tuple(formattest.TensorOf([]int64{1, 2})))
	formattest.Expect(t, err, pyfeed.Shape, "slot 0: dimension 0: expected 1, found 2")
	_, err = write(t, named("a"), formattest.Tuple(formattest.Tensor(pyfeed.Float16, pyfeed.Dims{1}, []byte{1, 2})))
	formattest.Expect(t, err, pyfeed.Type, `feature 0 "a": dtype: expected "bytes", bool, an integer dtype, float32 or float64, found "float16": use "raw": true for the memory of an array`)
	_, err = write(t, named("a"), formattest.Tuple(formattest.TensorOf([]float64{math.NaN(), 0.1})))
	formattest.Expect(t, err, pyfeed.Type, `slot 0: feature "a": value 1: expected a value that float32 represents exactly, found 0.1: cast it, or use raw`)
	_, err = write(t, named("a"), formattest.Tuple(formattest.TensorOf([]uint64{1 << 63})))
	formattest.Expect(t, err, pyfeed.Type, `slot 0: feature "a": value 0: expected a value that int64 can represent, found 9223372036854775808`)
	_, err = write(t, named("a"), formattest.Tuple(withLoD(formattest.TensorOf([]int64{1}), []int64{0, 1}, []int64{0, 1})))
	formattest.Expect(t, err, pyfeed.Invalid, `slot 0: feature "a": expected a fixed shape, a level of LoD, or two of bytes, found dims [-1] with 2 levels: give features`)
	_, err = write(t, named("a"), formattest.Tuple(withLoD(formattest.TensorOf(int64(1)), []int64{0, 1})))
	formattest.Expect(t, err, pyfeed.Shape, "slot 0: LoD: expected a first dimension of -1 with 1 levels")
	c := named("a")
	c.Slots = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{-1}}}
	_, err = write(t, c)
	formattest.Expect(t, err, pyfeed.Invalid, "with 0 levels: give features")
	_, err = write(t, config(t, `{"features": [{"name": "a", "dtype": "bytes", "shape": [2]}]}`), formattest.Tuple(texts("x")))
	formattest.Expect(t, err, pyfeed.Shape, `slot 0: feature "a": expected 2 byte strings, shape [2], found 1`)
	_, err = write(t, config(t, `{"features": [{"name": "a", "dtype": "bytes"}]}`), formattest.Tuple(formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{2}, []byte("xy"), []int64{0, 1, 2})))
	formattest.Expect(t, err, pyfeed.Shape, "expected one instance for each record, found a batch of 2")
	_, err = Create(filepath.Join(t.TempDir(), "no", "folder"), config(t, ""))
	formattest.Expect(t, err, pyfeed.IO, "no such file or directory")
}

func TestAbort(t *testing.T) {
	tested.Abort(t, config(t, ""), formattest.Tuple(formattest.Text("x")))
}
