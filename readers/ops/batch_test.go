package ops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func TestBatchConcatenates(t *testing.T) {
	for _, dropLast := range []bool{false, true} {
		scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Rows})
		if err := createBatch(scope, "batch", "reader", 2, dropLast); err != nil {
			t.Fatal(err)
		}
		h := reader(t, scope, "batch")
		readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 1, 2))
		readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{0}))
		readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, 3))
		q.Close(pyfeed.PassCurrent)
		if got := readertest.Next(t, h); got != "[2] [] [1 2]" {
			t.Errorf("first batch: found %s", got)
		}
		want := "[1] [] [3]"
		if dropLast {
			want = "EOF"
		}
		if got := readertest.Next(t, h); got != want {
			t.Errorf("last, drop_last %v: expected %s, found %s", dropLast, want, got)
		}
		if got := readertest.Next(t, h); got != "EOF" {
			t.Errorf("expected the end, found %s", got)
		}
	}
}

func TestBatchStacks(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: append(readertest.Cells, pyfeed.Slot{DType: pyfeed.Int64})})
	if err := createBatch(scope, "batch", "reader", 2, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 1, 2), readertest.Numbers(nil, 5))
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 3, 4), readertest.Numbers(nil, 6))
	if got := readertest.Next(t, h); got != "[2 2] [] [1 2 3 4] [2] [] [5 6]" {
		t.Errorf("found %s", got)
	}
	if got := fmt.Sprint(h.Spec().Slot(0).Dims, h.Spec().Slot(1).Dims); got != "[-1 2] [-1]" {
		t.Errorf("spec: %s", got)
	}
}

func TestBatchMergesLoD(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{-1}, LoDLevels: 2}}})
	if err := createBatch(scope, "batch", "reader", 3, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	with := func(s pyfeed.LoDTensor, lod pyfeed.LoD) pyfeed.LoDTensor { s.LoD = lod; return s }
	readertest.Push(t, q, with(readertest.Numbers(pyfeed.Dims{3}, 1, 2, 3), pyfeed.LoD{{0, 2}, {0, 1, 3}}))
	readertest.Push(t, q, with(readertest.Numbers(pyfeed.Dims{0}), pyfeed.LoD{{0, 1}, {0, 0}}))
	readertest.Push(t, q, with(readertest.Numbers(pyfeed.Dims{2}, 4, 5), pyfeed.LoD{{0, 1, 2}, {0, 1, 2}}))
	if got := readertest.Next(t, h); got != "[5] [[0 2 3 4 5] [0 1 3 3 4 5]] [1 2 3 4 5]" {
		t.Errorf("found %s", got)
	}
}

func TestBatchKeepsInstancesWhenAWaitEnds(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Rows})
	if err := createBatch(scope, "batch", "reader", 2, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, 1))
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	if _, err := h.ReadNext(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("expected a timeout, found %v", err)
	}
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, 2))
	if got := readertest.Next(t, h); got != "[2] [] [1 2]" {
		t.Errorf("found %s", got)
	}
}

// A pass may end during a call whose context is cancelled. The instances gathered by then are still the last batch of
// the pass.
func TestBatchKeepsTheEndThatACallFindsWhichIsGivenUp(t *testing.T) {
	scope := readertest.Scope(t)
	create(t, scope, "create_random_data_generator", "source", nil, `{"slots": [{"dtype": "int64", "dims": []}], "count": 3}`)
	create(t, scope, "create_batch_reader", "batches", []string{"source"}, `{"batch_size": 2}`)
	h, _ := readers.Capability[readers.Reader](create(t, scope, "create_multi_pass_reader", "passes", []string{"batches"}, `{"pass_num": 2}`))
	ctx, cancel := context.WithCancel(background)
	cancel()
	caller := &wait.Parker{Context: ctx} // it has waited, and its context is cancelled
	for i, want := range []int64{2, 1, 2, 1} {
		tuple, err := h.ReadNext(caller)
		if err != nil {
			t.Fatal(err)
		}
		if n := tuple.Slots[0].Dims()[0]; n != want {
			t.Errorf("batch %d: expected %d instances, found %d", i, want, n)
		}
		tuple.Release()
	}
	if _, err := h.ReadNext(caller); err != io.EOF {
		t.Errorf("expected the end, found %v", err)
	}
}

func TestBatchDeliversBeforeAFailure(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Rows})
	if err := createBatch(scope, "batch", "reader", 2, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, 1))
	if err := q.Fail(pyfeed.PassCurrent, &pyfeed.ProducerError{Type: "ValueError", Message: "boom"}); err != nil {
		t.Fatal(err)
	}
	if got := readertest.Next(t, h); got != "[1] [] [1]" {
		t.Errorf("found %s", got)
	}
	for range 2 {
		if got := readertest.Next(t, h); got != "the producer failed: ValueError: boom" {
			t.Errorf("found %s", got)
		}
	}
}

func TestBatchRefusesMismatchedTuples(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{1, -1}}}})
	if err := createBatch(scope, "batch", "reader", 2, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1, 2}, 1, 2))
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1, 3}, 1, 2, 3))
	_, err := h.ReadNext(background)
	readertest.Expect(t, err, pyfeed.Shape, "slot 0: tuple 1 of a batch: expected int64 [1 2] as in tuple 0, found int64 [1 3]")
}

func TestCreateBatchReaderRefuses(t *testing.T) {
	scope, _ := feed(t, pyfeed.QueueOptions{Capacity: 1, Slots: []pyfeed.Slot{{Dims: make(pyfeed.Dims, 8)}}})
	readertest.Expect(t, createBatch(scope, "b", "reader", 0, false), pyfeed.Invalid, "batch_size: expected 1 to 2^31 tuples, found 0")
	readertest.Expect(t, createBatch(scope, "b", "reader", 2, false), pyfeed.Shape, "batching adds a dimension")
	readertest.Expect(t, createBatch(scope, "b", "none", 2, false), pyfeed.NotFound, `variable "none"`)
	readertest.Expect(t, createBatch(scope, "b", "feed", 2, false), pyfeed.State, "expected a reader in it")
	readertest.Expect(t, createPyArray(scope, "b", "reader"), pyfeed.State, "expected a queue in it")
}

// ragged makes a batch reader of tuples with three slots. rows has the number of sequences or rows that the first two
// slots of each tuple add to a batch; the third slot is stacked.
func ragged(t *testing.T, rows []int64, attributes string) *readers.ReaderHolder {
	t.Helper()
	scope := pyfeed.NewScope(nil)
	t.Cleanup(scope.Drop)
	v, err := scope.Var("feeder")
	if err != nil {
		t.Fatal(err)
	}
	slots := []pyfeed.Slot{
		{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1},
		{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1, 2}},
		{DType: pyfeed.Uint8, Dims: pyfeed.Dims{3}},
	}
	q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 100, Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Drop()
	for _, n := range rows {
		tensors := make([]pyfeed.LoDTensor, 3)
		for i, dims := range []pyfeed.Dims{{2 * n}, {n, 2}, {3}} {
			tensors[i].DType = pyfeed.Uint8
			_ = tensors[i].SetDims(dims)
			size, _ := tensors[i].Measure()
			tensors[i].Data = make([]byte, size)
		}
		level := []int64{0}
		for i := range n {
			level = append(level, 2*(i+1))
		}
		tensors[0].LoD = pyfeed.LoD{level}
		if err := q.Push(context.Background(), pyfeed.PassCurrent, tensors); err != nil {
			t.Fatal(err)
		}
	}
	q.Close(pyfeed.PassCurrent)
	for _, op := range []struct{ op, out, in, attributes string }{
		{"create_py_array_reader", "reader", "", `{"feeder_name": "feeder"}`},
		{"create_batch_reader", "batch", "reader", attributes},
	} {
		var in []string
		if op.in != "" {
			in = []string{op.in}
		}
		if err := ops.Create(scope, op.op, op.out, in, []byte(op.attributes)); err != nil {
			t.Fatal(err)
		}
	}
	b, err := readers.FindHolder(scope, "batch")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Drop)
	return b
}

func TestABatchRefusesTuplesWhoseSlotsAddDifferentNumbersOfRows(t *testing.T) {
	read := func(rows []int64, attributes string) (string, error) {
		b, err := ragged(t, rows, attributes).ReadNext(context.Background())
		if err != nil {
			return "", err
		}
		defer b.Release()
		return fmt.Sprint(b.Slots[0].Dims(), b.Slots[0].LoD, b.Slots[1].Dims(), b.Slots[2].Dims()), nil
	}
	if found, err := read([]int64{1, 1, 1}, `{"batch_size": 2}`); err != nil || found != "[4] [[0 2 4]] [2 2] [2 3]" {
		t.Errorf("found %s, %v", found, err)
	}
	if found, err := read([]int64{1, 3}, `{"batch_size": 2, "ragged": true}`); err != nil || found != "[8] [[0 2 4 6 8]] [4 2] [2 3]" {
		t.Errorf("found %s, %v", found, err)
	}
	want := "slot 2: tuple 1 of a batch: expected 3 rows, as slot 0 adds, found 1: "
	for _, rows := range [][]int64{{1, 3}, {1, 3, 1}} {
		_, err := read(rows, `{"batch_size": 2}`)
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.Shape || e.Slot != 2 || !strings.HasPrefix(e.Error(), want) {
			t.Errorf("expected %q, found %v", want, err)
		}
	}
}

// fill sets all bytes to a value, by few copies.
func fill(data []byte, value byte) {
	data[0] = value
	for n := 1; n < len(data); n *= 2 {
		copy(data[n:], data[:n])
	}
}

// A batch that is too large to be allocated before the number of its tuples is known grows with its tuples.
func TestALargeBatchGrows(t *testing.T) {
	const rows, size = 150, 1 << 20
	before := memory.Count()
	slots := []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{size}}, {DType: pyfeed.Int64}}
	scope := pyfeed.NewScope(nil)
	v, _ := scope.Var("feeder")
	q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 2, Slots: slots})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		large, small := make([]byte, size), make([]byte, 8)
		for k := range rows {
			fill(large, byte(k))
			small[0] = byte(k)
			tensors := []pyfeed.LoDTensor{{DType: pyfeed.Uint8, Data: large}, {DType: pyfeed.Int64, Data: small}}
			_ = tensors[0].SetDims(pyfeed.Dims{size})
			_ = q.Push(background, pyfeed.PassCurrent, tensors)
		}
		q.Close(pyfeed.PassCurrent)
	}()
	if err := createPyArray(scope, "reader", "feeder"); err != nil {
		t.Fatal(err)
	}
	if err := createBatch(scope, "batch", "reader", 1<<31, false); err != nil {
		t.Fatal(err)
	}
	h, _ := readers.FindHolder(scope, "batch")
	b, err := h.ReadNext(background)
	if err != nil {
		t.Fatal(err)
	}
	if found := fmt.Sprint(b.Slots[0].Dims(), b.Slots[1].Dims(), len(b.Slots[0].Data), len(b.Slots[1].Data)); found != fmt.Sprint("[150 1048576] [150] ", rows*size, 8*rows) {
		t.Errorf("found %s", found)
	}
	for k := range rows {
		row := b.Slots[0].Data[k*size:][:size]
		if row[0] != byte(k) || row[size-1] != byte(k) || bytes.Count(row, []byte{byte(k)}) != size || b.Slots[1].Data[8*k] != byte(k) {
			t.Errorf("row %d has the data of another row", k)
		}
	}
	if live := memory.Count().Live[memory.Batch] - before.Live[memory.Batch]; live != rows*size+8*rows {
		t.Errorf("too much memory is in use: %d bytes", live)
	}
	b.Release()
	h.Drop()
	q.Drop()
	scope.Drop()
	if after := memory.Count(); after != before {
		t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
	}
}

// The same for concatenated slots with LoD. The error about a tuple that does not fit has the tuple's number in the
// batch.
func TestALargeBatchOfSequencesGrows(t *testing.T) {
	const rows, size = 250, 1 << 20
	before := memory.Count()
	slots := []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1, -1}, LoDLevels: 1}, {DType: pyfeed.Int64}}
	for _, wrong := range []int{-1, 220} {
		scope := pyfeed.NewScope(nil)
		v, _ := scope.Var("feeder")
		q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 2, Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		pushed := make(chan struct{})
		go func() {
			defer close(pushed)
			large, small := make([]byte, size), make([]byte, 8)
			for k := range rows {
				fill(large, byte(k))
				small[0] = byte(k)
				n, width := int64(k%4), int64(2)
				if k == wrong {
					width = 1
				}
				data := large[:n*width*(size/8)]
				tensors := []pyfeed.LoDTensor{{DType: pyfeed.Uint8, Data: data, LoD: pyfeed.LoD{{0, n * (size / 8)}}}, {DType: pyfeed.Int64, Data: small}}
				_ = tensors[0].SetDims(pyfeed.Dims{n * (size / 8), width})
				if q.Push(background, pyfeed.PassCurrent, tensors) != nil {
					return
				}
			}
			q.Close(pyfeed.PassCurrent)
		}()
		if err := createPyArray(scope, "reader", "feeder"); err != nil {
			t.Fatal(err)
		}
		if err := createBatch(scope, "batch", "reader", 1<<31, false); err != nil {
			t.Fatal(err)
		}
		h, _ := readers.FindHolder(scope, "batch")
		b, err := h.ReadNext(background)
		if wrong >= 0 {
			want := "slot 0: tuple 220 of a batch: expected uint8"
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("expected %q, found %v", want, err)
			}
		} else if err != nil {
			t.Fatal(err)
		} else {
			at := int64(0)
			for k := range rows {
				n := int64(k%4) * (size / 8)
				found := b.Slots[0].Data[2*at:][:2*n]
				if bytes.Count(found, []byte{byte(k)}) != int(2*n) || b.Slots[0].LoD[0][k+1] != at+n || b.Slots[1].Data[8*k] != byte(k) {
					t.Errorf("tuple %d has the data of another tuple", k)
				}
				at += n
			}
			if err := b.Slots[0].CheckLoD(); err != nil || b.Slots[0].Dims()[0] != at || b.Slots[1].Dims()[0] != rows || len(b.Slots[0].Data) != int(2*at) {
				t.Errorf("found %v, %v, %v", err, b.Slots[0].Dims(), b.Slots[1].Dims())
			}
			b.Release()
		}
		q.Shutdown()
		<-pushed
		h.Drop()
		q.Drop()
		scope.Drop()
	}
	if after := memory.Count(); after != before {
		t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
	}
}

func TestABatchBeforeDamageIsDelivered(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 10)
	readertest.DamageID(t, names[0], 40, -1)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	h := create(t, scope, "create_batch_reader", "batches", []string{"files"}, `{"batch_size": 4}`)
	got, err := readertest.Drain(h)
	if !slices.Equal(got, []int64{0, 1, 2, 3, 4}) {
		t.Errorf("found %v", got)
	}
	readertest.Expect(t, err, pyfeed.Corrupt, "found -1")
}

func TestAFailedCreateLeavesNoVariable(t *testing.T) {
	scope, _ := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Cells})
	readertest.Expect(t, createBatch(scope, "new", "reader", 0, false), pyfeed.Invalid, "batch_size")
	readertest.Expect(t, createBatch(scope, "new", "nobody", 2, false), pyfeed.NotFound, "nobody")
	if _, err := scope.FindVar("new"); err == nil {
		t.Error("a failed create has left a variable")
	}
}
