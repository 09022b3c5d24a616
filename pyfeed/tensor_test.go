package pyfeed

import (
	"errors"
	"slices"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

func TestManyTuplesAreMadeAndReleasedAsOne(t *testing.T) {
	before := memory.Count()
	p := memory.NewPool(memory.File)
	for range 3 {
		all := make([]*Tuple, 1000)
		NewTuples(all, 2)
		b, err := p.Get(8)
		if err != nil {
			t.Fatal(err)
		}
		b.Retain(len(all) - 1)
		for i, tuple := range all {
			if len(tuple.Slots) != 2 || tuple.Pass != 0 || tuple.From != (Origin{}) || tuple.Slots[0].Data != nil || len(tuple.Slots[1].LoD) != 0 {
				t.Fatalf("tuple %d is not empty: %+v", i, tuple)
			}
			tuple.Pass, tuple.From = 7, Origin{File: new(string), Record: 7}
			tuple.Slots[0].Hold(b.Bytes(), b)
			tuple.Slots[1].LoD = append(tuple.Slots[1].LoD, []int64{0, 1})
		}
		ReleaseAll(all)
		if i := slices.IndexFunc(all, func(t *Tuple) bool { return t != nil }); i >= 0 {
			t.Errorf("ReleaseAll left tuple %d in the slice", i)
		}
	}
	ReleaseAll(nil)
	p.Close()
	if after := memory.Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// When very many tuples are released together, only maxFreeTuples are kept for reuse. An early version then stopped
// keeping any until all of them were used up.
func TestSpareTuplesAreLimitedAndKeptInUse(t *testing.T) {
	for range 2 {
		all := make([]*Tuple, maxFreeTuples+100)
		NewTuples(all, 1)
		ReleaseAll(all)
		if len(freeTuples.tuples) != maxFreeTuples {
			t.Fatalf("expected %d spare tuples, found %d", maxFreeTuples, len(freeTuples.tuples))
		}
	}
	few := make([]*Tuple, 10)
	NewTuples(few, 1)
	first := few[0]
	ReleaseAll(few)
	NewTuples(few, 1)
	defer ReleaseAll(few)
	if !slices.Contains(few, first) {
		t.Fatal("expected the tuple released last to be reused")
	}
}

// ReleaseAll drops the references to each buffer together, for any number of buffers.
func TestReleaseAllDropsEveryReference(t *testing.T) {
	before := memory.Count()
	pool := memory.NewPool(memory.Batch)
	var buffers []*memory.Buffer
	for range 7 {
		b, err := pool.Get(100)
		if err != nil {
			t.Fatal(err)
		}
		buffers = append(buffers, b)
	}
	all := make([]*Tuple, 300)
	NewTuples(all, 2)
	for i, tuple := range all {
		for j := range tuple.Slots {
			b := buffers[(i*i+j)%len(buffers)]
			b.Retain(1)
			tuple.Slots[j].Hold(b.Bytes(), b)
		}
	}
	ReleaseAll(all)
	for i, b := range buffers {
		if !b.IsUnique() {
			t.Errorf("buffer %d has references left", i)
		}
		b.Release()
	}
	for i, tuple := range all {
		if tuple != nil {
			t.Fatalf("ReleaseAll left tuple %d in the slice", i)
		}
	}
	pool.Close()
	if after := memory.Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// EnsureExportable copies a tuple whose elements are not aligned or whose offsets are in Go's heap. Any other stays in
// place.
func TestEnsureExportable(t *testing.T) {
	before := memory.Count()
	p := memory.NewPool(memory.File)
	b, err := p.Get(64)
	if err != nil {
		t.Fatal(err)
	}
	copy(b.Bytes(), "0123456789abcdefghijklmnopqrstuv")
	for _, c := range []struct {
		at    int
		lod   LoD
		heap  bool
		moves bool
	}{
		{8, nil, false, false}, {3, nil, false, true}, {8, LoD{{0, 1, 2}}, true, true},
	} {
		tuple := NewTuple(2)
		for i := range tuple.Slots {
			s := &tuple.Slots[i]
			s.DType, s.InHeap, s.ReadOnly = Int64, c.heap && i == 1, true
			if i == 1 {
				s.LoD = append(s.LoD, c.lod...)
			}
			if err := s.SetDims(Dims{2}); err != nil {
				t.Fatal(err)
			}
			b.Retain(1)
			s.Hold(b.Bytes()[c.at*i:c.at*i+16], b)
		}
		want := []string{string(tuple.Slots[0].Data), string(tuple.Slots[1].Data)}
		was := unsafe.SliceData(tuple.Slots[1].Data)
		if _, err := tuple.EnsureExportable(p); err != nil {
			t.Fatal(err)
		}
		for i := range tuple.Slots {
			s := &tuple.Slots[i]
			if string(s.Data) != want[i] || !slices.Equal(s.Dims(), Dims{2}) || s.DType != Int64 || s.InHeap {
				t.Errorf("at %d: slot %d: wrong contents %+v", c.at, i, s)
			}
			if uintptr(unsafe.Pointer(unsafe.SliceData(s.Data)))%8 != 0 {
				t.Errorf("at %d: slot %d is not aligned", c.at, i)
			}
		}
		if c.lod != nil && !slices.Equal(tuple.Slots[1].LoD[0], c.lod[0]) {
			t.Errorf("wrong LoD %v", tuple.Slots[1].LoD)
		}
		if moved := was != unsafe.SliceData(tuple.Slots[1].Data); moved != c.moves || moved == tuple.Slots[1].ReadOnly {
			t.Errorf("at %d: moved: %v, read only: %v", c.at, moved, tuple.Slots[1].ReadOnly)
		}
		tuple.Release()
	}
	b.Release()
	p.Close()
	if after := memory.Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

func TestReverse(t *testing.T) {
	for d, want := range map[DType]string{Uint8: "abcdefgh", Int16: "badcfehg", Float32: "dcbahgfe", Int64: "hgfedcba",
		Complex64: "dcbahgfe", Complex128: "hgfedcba", Bool: "abcdefgh"} {
		data := []byte("abcdefgh")
		if d.Reverse(data); string(data) != want {
			t.Errorf("%v: expected %s, found %s", d, want, data)
		}
	}
}

// Reverse is compared with a reversal byte by byte, for many numbers of elements and any alignment. Bytes around the
// elements must not change.
func TestReverseOfManySizes(t *testing.T) {
	const around = 3
	for d := Bool; d.Valid(); d++ {
		part := d.Size()
		if d == Complex64 || d == Complex128 { // two numbers in each element
			part /= 2
		}
		for _, n := range []int{0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 1001, 1<<12 + 1} {
			for begin := range around {
				data := make([]byte, begin+n*d.Size()+around)
				for i := range data {
					data[i] = byte(i*7 + i>>8)
				}
				want := slices.Clone(data)
				for at := begin; at < begin+n*d.Size(); at += part {
					slices.Reverse(want[at : at+part])
				}
				if d.Reverse(data[begin : begin+n*d.Size()]); !slices.Equal(data, want) {
					t.Fatalf("%v: %d elements at byte %d: wrong bytes", d, n, begin)
				}
			}
		}
	}
}

func TestNamesOfDTypes(t *testing.T) {
	for d := Any; d < numDTypes; d++ {
		if got, ok := DTypeOf(d.String()); got != d || !ok {
			t.Errorf("the dtype named %v: found %v, %v", d, got, ok)
		}
	}
	if _, ok := DTypeOf("float31"); ok {
		t.Error("expected no dtype named float31")
	}
}

func TestErrorsSayWhere(t *testing.T) {
	cause := errors.New("cause")
	e := &Error{Kind: Corrupt, Slot: -1, Text: "expected more", At: &Location{File: "f", Offset: 12, Record: -1}, Cause: cause}
	if e.Error() != "f, byte 12: expected more" || !errors.Is(e, cause) {
		t.Errorf("found %v", e)
	}
	e.At = &Location{File: "f", Offset: -1, Record: 3}
	if e.Error() != "f, record 3: expected more" {
		t.Errorf("found %v", e)
	}
	e.At.Approximate = true
	if e.Error() != "f, about record 3: expected more" {
		t.Errorf("found %v", e)
	}
}

func TestAFaultInTheBackgroundIsCaught(t *testing.T) {
	faults := make(chan error)
	wait.Go(func() { panic("mine") }, func(fault error) { faults <- fault })
	if fault := <-faults; fault == nil || fault.Error()[:4] != "mine" {
		t.Errorf("found %v", fault)
	}
	done := make(chan struct{})
	wait.Go(func() { close(done) }, func(fault error) { t.Error(fault) })
	<-done
}

// All sequences are empty, at both levels.
func TestALoDWhoseSequencesAreAllEmpty(t *testing.T) {
	s := LoDTensor{DType: Uint8, LoD: LoD{{0, 0, 0}, {0}}}
	if err := s.SetDims(Dims{0}); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckLoD(); err != nil {
		t.Error(err)
	}
}
