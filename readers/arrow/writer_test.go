package arrow

import (
	"io"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// tuples are instances of every kind of slot that can be written.
func tuples() []*pyfeed.Tuple {
	lists := func(values any, lod ...[]int64) pyfeed.LoDTensor {
		s := formattest.TensorOf(values)
		s.LoD = lod
		return s
	}
	two := formattest.TensorOf([]int16{1, 2, 3, 4}, 2, 2)
	two.LoD = pyfeed.LoD{{0, 2}}
	words := formattest.Text("abcde")
	words.LoD = pyfeed.LoD{{0, 2}, {0, 2, 5}}
	half := formattest.Tensor(pyfeed.Float16, pyfeed.Dims{2}, []byte{0, 0x3c, 0, 0xc0})
	return []*pyfeed.Tuple{
		formattest.Tuple(formattest.TensorOf(int8(-1)), formattest.TensorOf(uint8(2)), formattest.TensorOf(int16(-3)), formattest.TensorOf(uint16(4)),
			formattest.TensorOf(int32(-5)), formattest.TensorOf(uint32(6)), formattest.TensorOf(int64(-7)), formattest.TensorOf(uint64(8)), half,
			formattest.TensorOf(float32(1.5)), formattest.TensorOf(-2.25), formattest.TensorOf(true), formattest.TensorOf([]bool{true, false, true}),
			formattest.TensorOf([]uint8{1, 2, 3, 4, 5, 6}, 3, 2), formattest.Text("text"), lists([]int32{1, 2, 3}, []int64{0, 3}), two,
			lists([]float64{1, 2, 3}, []int64{0, 2}, []int64{0, 1, 3}), words),
		formattest.Tuple(formattest.TensorOf(int8(1)), formattest.TensorOf(uint8(1)), formattest.TensorOf(int16(1)), formattest.TensorOf(uint16(1)),
			formattest.TensorOf(int32(1)), formattest.TensorOf(uint32(1)), formattest.TensorOf(int64(1)), formattest.TensorOf(uint64(1)), half,
			formattest.TensorOf(float32(1)), formattest.TensorOf(1.0), formattest.TensorOf(false), formattest.TensorOf([]bool{false, false, true}),
			formattest.TensorOf([]uint8{6, 5, 4, 3, 2, 1}, 3, 2), formattest.Text(""), lists([]int32{}, []int64{0, 0}), two,
			lists([]float64{}, []int64{0, 0}, []int64{0}), words),
	}
}

// What is written is read again, whatever the batches and the compression.
func TestWriter(t *testing.T) {
	all := append(tuples(), tuples()...)
	all = append(all, tuples()[0])
	var want []string
	for _, tuple := range all {
		want = append(want, formattest.FormatTuple(tuple))
	}
	write := tested
	write.Create = Create
	for _, name := range []string{"a.arrow", "a.arrows", "a.arrow.gz", "a.arrows.zst", "a.feather"} {
		for _, compression := range []string{"", "lz4", "zstd"} {
			for _, records := range []int{0, 1, 2, 3} {
				formattest.WithPool(t, func(pool *memory.Pool) {
					path := filepath.Join(t.TempDir(), name)
					c := &record.Config{Pool: pool, Options: &Options{Compression: compression, BatchRecords: records}}
					if err := write.Write(t, path, c, all...); err != nil {
						t.Fatal(err)
					}
					r, err := Open(path, &record.Config{Pool: pool})
					if err != nil {
						t.Fatal(err)
					}
					defer r.Close()
					if batches := numBatches(r); name == "a.arrow" && batches != map[int]int{0: 1, 1: 5, 2: 3, 3: 2}[records] {
						t.Errorf("batch_records %d: found %d batches", records, batches)
					}
					got, err := formattest.Lines(t, r, 2)
					if err != io.EOF {
						t.Error(err)
					}
					formattest.ExpectTexts(t, got, want...)
				})
			}
		}
	}
}

func numBatches(r record.Records) int { return len(r.(*records).index.blocks) }

func TestWriterKeepsNamesAndSlots(t *testing.T) {
	write := tested
	write.Create = Create
	formattest.WithPool(t, func(pool *memory.Pool) {
		path := filepath.Join(t.TempDir(), "a.arrow")
		slots := []pyfeed.Slot{{Name: "x", DType: pyfeed.Float32, Dims: pyfeed.Dims{2, 3}}, {Name: "s", DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}}
		if err := write.Write(t, path, &record.Config{Pool: pool, Slots: slots}); err != nil { // no rows
			t.Fatal(err)
		}
		r, err := Open(path, &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		found, names, err := r.(record.Describer).Describe()
		if err != nil || len(found) != 2 || found[0].DType != pyfeed.Float32 || len(found[0].Dims) != 2 || found[1].LoDLevels != 1 || names[0] != "x" || names[1] != "s" {
			t.Errorf("found %+v, %v, %v", found, names, err)
		}
		if n, err := formattest.Drain(t, r, 2, nil); n != 0 || err != io.EOF {
			t.Errorf("expected no rows, found %d, %v", n, err)
		}
	})
}

func TestWriterErrors(t *testing.T) {
	write := tested
	write.Create = Create
	number := formattest.Tuple(formattest.TensorOf(int32(1)))
	several := formattest.Text("ab")
	several.LoD = pyfeed.LoD{{0, 1, 2}}
	for _, c := range []struct {
		config record.Config
		tuples []*pyfeed.Tuple
		want   string
	}{
		{record.Config{}, nil, "expected at least one tuple, found none"},
		{record.Config{}, []*pyfeed.Tuple{number, formattest.Tuple(formattest.TensorOf(int64(1)))}, "expected int32, found int64"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.Zeros(pyfeed.Complex64))}, "expected real numbers, bool, or byte strings, found complex64"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(formattest.Zeros(pyfeed.BFloat16))}, "found bfloat16"},
		{record.Config{}, []*pyfeed.Tuple{formattest.Tuple(several)}, "expected one sequence, that of an instance, found 2"},
		{record.Config{Options: &Options{Compression: "gzip"}}, nil, "compression: expected none, lz4 or zstd, found \"gzip\""},
		{record.Config{Options: &Options{Default: &one}}, nil, "columns and default are for reading"},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c.config.Pool = pool
			err := write.Write(t, filepath.Join(t.TempDir(), "a.arrow"), &c.config, c.tuples...)
			formattest.ExpectError(t, err, c.want)
		})
	}
	write.Abort(t, &record.Config{}, number)
	formattest.ExpectError(t, (&Options{BatchRecords: -1}).Check(), "batch_records: expected 1 to")
}
