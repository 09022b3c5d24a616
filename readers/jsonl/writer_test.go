package jsonl

import (
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

func TestWrite(t *testing.T) {
	text := func(s string) pyfeed.LoDTensor { return formattest.Text(s) }
	number := formattest.TensorOf
	for _, c := range []struct {
		name   string
		config record.Config
		tuples []*pyfeed.Tuple
		want   string
		back   []string
	}{
		{"kinds", record.Config{Names: []string{"id", "x\"y", "", "tëxt"}}, []*pyfeed.Tuple{
			formattest.Tuple(number(int64(math.MinInt64)), number([]float32{1, 0.1, 1e-10}), number(uint64(math.MaxUint64)), text("a\"b\\c\n\r\t\x00\x1f/é")),
			formattest.Tuple(number(int64(0)), number([]float32{16777216, -0.5, 3e38}), number(uint64(0)), text("")),
		}, `{"id": -9223372036854775808, "x\"y": [1.0, 0.1, 1e-10], "slot2": 18446744073709551615, "tëxt": "a\"b\\c\n\r\t\u0000\u001f/é"}` + "\n" +
			`{"id": 0, "x\"y": [1.6777216e+07, -0.5, 3e+38], "slot2": 0, "tëxt": ""}` + "\n",
			[]string{`-9223372036854775808 [1 0.1 1e-10] 18446744073709551615 "a\"b\\c\n\r\t\x00\x1f/é"`, `0 [1.6777216e+07 -0.5 3e+38] 0 ""`}},
		{"lists", record.Config{}, []*pyfeed.Tuple{formattest.Tuple(
			formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{5}, []byte("abcde"), []int64{0, 3}, []int64{0, 2, 2, 5}),
			formattest.Tensor(pyfeed.Int8, pyfeed.Dims{3}, []byte{1, 2, 255}, []int64{0, 2}, []int64{0, 1, 3}),
			formattest.Tensor(pyfeed.Uint8, pyfeed.Dims{2, 2}, []byte{1, 2, 3, 4}, []int64{0, 2}),
			formattest.TensorOf([]int16{1, 2, 3, 4}, 2, 2),
			formattest.Tensor(pyfeed.Bool, pyfeed.Dims{2}, []byte{0, 1}),
			formattest.Tensor(pyfeed.Float16, pyfeed.Dims{}, []byte{0x66, 0x2e}),
		)}, `{"slot0": ["ab", "", "cde"], "slot1": [[1], [2, -1]], "slot2": [[1, 2], [3, 4]], "slot3": [[1, 2], [3, 4]], "slot4": [false, true], "slot5": 0.1}` + "\n",
			[]string{`"abcde"lod[[0 2 2 5]] [1 2 -1]lod[[0 1 3]] [1 2 3 4]lod[[0 2 4]] [1 2 3 4]lod[[0 2 4]] [false true] 0.1`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.jsonl")
			if err := tested.Write(t, path, &c.config, c.tuples...); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(path)
			if err != nil || string(data) != c.want {
				t.Errorf("expected\n%s\nfound %v\n%s", c.want, err, data)
			}
			formattest.WithPool(t, func(pool *memory.Pool) {
				r, err := Open(path, &record.Config{Pool: pool})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				if got, err := formattest.Lines(t, r, 2); err != io.EOF || !slices.Equal(got, c.back) {
					t.Errorf("expected %q, found %v, %q", c.back, err, got)
				}
			})
		})
	}
}

func TestWriteErrors(t *testing.T) {
	one := formattest.Tuple(formattest.TensorOf(int32(1)))
	for _, c := range []struct {
		config record.Config
		tuples []*pyfeed.Tuple
		kind   pyfeed.Kind
		want   string
	}{
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.TensorOf([]float64{1, math.NaN()}))}, pyfeed.Invalid, "slot 0: jsonl: expected numbers that JSON has, found NaN"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.TensorOf(math.Inf(-1)))}, pyfeed.Invalid, "slot 0: jsonl: expected numbers that JSON has, found -Infinity"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.TensorOf(float32(math.Inf(1))))}, pyfeed.Invalid, "found Infinity"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("a\xffb"))}, pyfeed.Invalid, "slot 0: jsonl: expected text in UTF-8, found the byte 0xff at position 1 of 3: JSON cannot hold other bytes"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.Zeros(pyfeed.Complex64))}, pyfeed.Type, "slot 0: jsonl: dtype: expected real numbers, bool, or text, found complex64"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.Tensor(pyfeed.Int8, pyfeed.Dims{2}, []byte{1, 2}, []int64{0, 1, 2}))}, pyfeed.Shape, "slot 0: jsonl: expected one sequence, that of an instance, found a batch of 2"},
		{record.Config{}, []*pyfeed.Tuple{one, formattest.Tuple(formattest.TensorOf(int32(1)), formattest.TensorOf(int32(1)))}, pyfeed.Slots, "jsonl: slots: expected 1, as in the first tuple, found 2"},
		{record.Config{Names: []string{"slot1"}}, []*pyfeed.Tuple{formattest.Tuple(formattest.TensorOf(int32(1)), formattest.TensorOf(int32(1)))}, pyfeed.Invalid, `slot 1: jsonl: expected names that differ, found "slot1" twice`},
		{record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{}}}}, []*pyfeed.Tuple{one}, pyfeed.Type, "int64"},
		{record.Config{Options: formattest.Options[Options](t, `{"columns": ["a"]}`)}, nil, pyfeed.Invalid, "jsonl: columns, dtypes and default are for reading"},
	} {
		err := tested.Write(t, filepath.Join(t.TempDir(), "a.jsonl"), &c.config, c.tuples...)
		formattest.Expect(t, err, c.kind, c.want)
	}
	tested.Abort(t, &record.Config{}, one)
}

func TestCompression(t *testing.T) {
	say := func(c *record.Config, compression string) { c.Options = &Options{Compression: compression} }
	tested.Compressions(t, record.Config{}, say, formattest.Tuple(formattest.Text("some text")), "none", "gzip", "zlib", "zstd", "snappy")
}
