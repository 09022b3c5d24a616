package tfrecord

import (
	"io"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// fuzzed are the features that the fuzzers read: one of each kind.
var fuzzed = []Feature{
	{Name: "a", DType: "int64", Kind: "variable"},
	{Name: "b", DType: "float32", Kind: "variable", Shape: []int64{2}},
	{Name: "c", DType: "bytes", Kind: "variable"},
	{Name: "d", DType: "bytes", Default: []byte(`"none"`)},
	{Name: "e", DType: "float64", Kind: "variable"},
	{Name: "f", DType: "uint8", Shape: []int64{3}, Default: []byte("1")},
	{Name: "g", DType: "int16", Raw: true, Kind: "variable"},
	{Name: "h", DType: "int32", Kind: "ragged", RowLengths: []string{"i", "j"}},
	{Name: "k", DType: "bytes", Kind: "ragged", RowSplits: []string{"l"}},
}

// drain reads to the end, goes on after damage, and checks that the results are consistent. It returns what was read,
// and the error at the end.
func drain(t *testing.T, c *record.Config, spec *pyfeed.Spec, out []*pyfeed.Tuple, data []byte,
	read func(record.Records, []*pyfeed.Tuple) (int, error),
) (all []string) {
	r, err := open(c, func(o storage.Options) (*storage.File, error) { return storage.New("a file", data, o, c.Pool) })
	if err != nil {
		return nil // the compressed data is damaged
	}
	defer r.Close()
	for damages := 0; ; {
		n, err := read(r, out)
		for _, tuple := range out[:n] {
			mergeSplits(t, tuple, spec)
			all = append(all, formattest.FormatTuple(tuple))
			for i := range tuple.Slots {
				tuple.Slots[i].Drop()
			}
		}
		switch {
		case err == io.EOF:
			return all
		case err == nil && n == 0:
			t.Fatal("neither a record nor an error")
		case err == nil:
			continue
		}
		all = append(all, err.Error())
		before := r.f.Offset()
		if err = r.Resync(); err == io.EOF {
			return all
		}
		if after := r.f.Offset(); err != nil || after <= before {
			t.Fatalf("Resync made no progress from byte %d, at %d: %v", before, after, err)
		}
		if damages++; damages > len(data) {
			t.Fatal("more damage than bytes")
		}
	}
}

// FuzzRecords fuzzes the frames of records, and whole compressed files.
func FuzzRecords(f *testing.F) {
	f.Add(goldenFile)
	f.Add(goldenZlib)
	f.Add(goldenGzip)
	f.Add(file("first", "", "third")[:40])
	damaged := file("first", "second", "third", "")
	damaged[2] ^= 1
	damaged[40] ^= 1
	f.Add(damaged)
	c := &record.Config{Pool: memory.NewPool(memory.File)}
	spec := specOf(f, []pyfeed.Slot{record.BytesSlot})
	out := make([]*pyfeed.Tuple, 4)
	pyfeed.NewTuples(out, 1)
	f.Cleanup(c.Pool.Close)
	f.Fuzz(func(t *testing.T, data []byte) {
		defer formattest.CheckLeaks(t)()
		tuples := drain(t, c, spec, out, data, record.Records.Read)
		if rows := drain(t, c, spec, out, data, formattest.Read); !slices.Equal(rows, tuples) {
			t.Errorf("expected %.1000q, found with blocks %.1000q", tuples, rows)
		}
	})
}

// fuzzedSteps are the features of SequenceExamples.
var fuzzedSteps = []Feature{
	{Name: "a", DType: "int64", Kind: "variable"},
	{Name: "b", DType: "float32", Part: "feature_lists", Shape: []int64{2}, AllowMissing: true},
	{Name: "c", DType: "bytes", Part: "feature_lists", Kind: "variable"},
	{Name: "d", DType: "bytes", Part: "feature_lists", AllowMissing: true},
	{Name: "e", DType: "float64", Part: "feature_lists", Kind: "variable"},
	{Name: "f", DType: "uint8", Part: "feature_lists", Kind: "variable", Shape: []int64{2}},
	{Name: "g", DType: "int16", Part: "feature_lists", Raw: true, Kind: "variable"},
	{Name: "h", DType: "int64", Part: "feature_lists", AllowMissing: true},
	{Name: "i", DType: "bytes", Part: "feature_lists", Shape: []int64{2}, AllowMissing: true},
}

// FuzzSequenceExample fuzzes the content of a record.
func FuzzSequenceExample(f *testing.F) {
	f.Add([]byte(sequence(example(entry("a", intList(1, 2))), steps("b", floatList(1, 2), floatList(3, 4)), steps("c", strs("a", "b"), strs()), steps("d", strs("x")),
		steps("e", floatList(1), nil), steps("f", intList(1, 2, 3, 4)), steps("g", strs("abcd"), strs()), steps("h", intList(5), sub(3, varint(1, 6))), steps("i", strs("", "y")))))
	f.Add([]byte(sequence("", message(sub(1, []byte("h")), sub(2, sub(1, intList(1))), sub(2, sub(1, sub(3, varint(1, 2)), sub(3, varint(1, 3))))))))
	fuzzMessage(f, fuzzedSteps)
}

// FuzzExample fuzzes the content of a record.
func FuzzExample(f *testing.F) {
	f.Add(goldenExample)
	f.Add([]byte(example(
		entry("a", sub(3, varint(1, 1), packedInts(2, -3))), entry("b", sub(2, fixed32(1, 5), packedFloats(1, 2, 3))), entry("c", strs("x", "", "yz")),
		entry("e", floatList(1, 2)), entry("f", intList(1, 2, 3)), entry("g", strs("abcd")), entry("h", intList(4, 5)), entry("i", intList(2, 0)),
		entry("j", intList(1, 1)), entry("k", strs("x", "y")), entry("l", intList(0, 2)))))
	f.Add([]byte(example(message(sub(2, intList(1)), sub(1, []byte("a")), sub(2, intList(2), floatList(1), intList(3), intList(4))))))
	fuzzMessage(f, fuzzed)
}

// fuzzMessage fuzzes the content of a record with these features.
func fuzzMessage(f *testing.F, features []Feature) {
	p, err := newPlan(features)
	if err != nil {
		f.Fatal(err)
	}
	pool := memory.NewPool(memory.File)
	f.Cleanup(pool.Close)
	slots, _ := p.describe()
	spec, tuple := specOf(f, slots), pyfeed.NewTuple(len(slots))
	f.Fuzz(func(t *testing.T, data []byte) {
		defer formattest.CheckLeaks(t)()
		in, err := pool.Get(len(data))
		if err != nil {
			t.Fatal(err)
		}
		record := in.Bytes()
		copy(record, data)
		e := newExamples(p, pool, nil)
		for range 2 { // the second time, the order of the features is known
			views, err := e.fill(tuple, record, in)
			in.Retain(views)
			if err == nil {
				mergeSplits(t, tuple, spec)
			}
			for i := range tuple.Slots {
				tuple.Slots[i].Drop()
			}
		}
		e.close()
		in.Release()
	})
}
