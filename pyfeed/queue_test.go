package pyfeed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

var background = context.Background()

// scalar is the slots of a tuple with one int64.
var scalar = []Slot{{DType: Int64, Dims: Dims{1}}}

func makeQueue(t testing.TB, o QueueOptions) *Consumer {
	t.Helper()
	before := memory.Count()
	var h PyArrayFeedQueueHolder
	q, err := h.InitOnce(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.Drop()
		h.Drop()
		if after := memory.Count(); after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
	return q
}

func tensor(t testing.TB, d DType, dims Dims, data []byte) LoDTensor {
	t.Helper()
	s := LoDTensor{DType: d, Data: data}
	if err := s.SetDims(dims); err != nil {
		t.Fatal(err)
	}
	if data == nil {
		n, err := s.Measure()
		if err != nil {
			t.Fatal(err)
		}
		s.Data = make([]byte, n)
	}
	return s
}

func number(n int) []LoDTensor {
	s := LoDTensor{DType: Int64, Data: binary.NativeEndian.AppendUint64(nil, uint64(n))}
	_ = s.SetDims(Dims{1})
	return []LoDTensor{s}
}

func numberOf(tuple *Tuple) int {
	defer tuple.Release()
	return int(binary.NativeEndian.Uint64(tuple.Slots[0].Data))
}

func push(t testing.TB, q *Consumer, numbers ...int) {
	t.Helper()
	for _, n := range numbers {
		if err := q.Push(background, PassCurrent, number(n)); err != nil {
			t.Fatal(err)
		}
	}
}

func pop(t testing.TB, q *Consumer) int {
	t.Helper()
	tuple, err := q.Pop(background)
	if err != nil {
		t.Fatal(err)
	}
	return numberOf(tuple)
}

// until waits until the queue's state meets a condition.
func until(q interface{ Info() QueueInfo }, is func(QueueInfo) bool) {
	for !is(q.Info()) {
		runtime.Gosched()
	}
}

func kindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

func expect(t testing.TB, err error, kind Kind, text string) {
	t.Helper()
	if kindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("expected an error of kind %d with %q, found %v", kind, text, err)
	}
}

func TestQueueKeepsOrder(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 5, Slots: scalar})
	for round := range 10 { // several rounds, so that the ring wraps around
		for i := range 5 {
			push(t, q, 10*round+i)
		}
		for i := range 5 {
			if n := pop(t, q); n != 10*round+i {
				t.Fatalf("expected %d, found %d", 10*round+i, n)
			}
		}
	}
}

func TestRingGrowsWhileItIsTurned(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1000, Slots: scalar})
	next, first := 0, 0
	for range 300 {
		for range 3 {
			push(t, q, next)
			next++
		}
		for range 2 {
			if n := pop(t, q); n != first {
				t.Fatalf("expected %d, found %d", first, n)
			}
			first++
		}
	}
}

func TestCloseDeliversQueuedTuples(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 2, Slots: scalar})
	done := make(chan error)
	go func() {
		for i := range 5 {
			if err := q.Push(background, PassCurrent, number(i)); err != nil {
				done <- fmt.Errorf("push %d: %w", i, err)
				return
			}
		}
		done <- nil
	}()
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 1 })
	q.Close(PassCurrent)
	q.Close(PassCurrent)
	err := <-done
	expect(t, err, Closed, "push 2: the queue is closed: pass 0 takes no more tuples")
	if a, b := pop(t, q), pop(t, q); a != 0 || b != 1 {
		t.Errorf("expected 0 and 1, found %d and %d", a, b)
	}
	for range 2 {
		if _, err := q.Pop(background); err != io.EOF {
			t.Errorf("expected io.EOF, found %v", err)
		}
	}
}

func TestFailureComesAfterTheTuplesBeforeIt(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 4, Slots: scalar})
	push(t, q, 1, 2)
	failure := &ProducerError{Type: "ValueError", Message: "boom"}
	if err := q.Fail(PassCurrent, failure); err != nil {
		t.Fatal(err)
	}
	expect(t, q.Push(background, PassCurrent, number(3)), Closed, "pass 0 has failed")
	expect(t, q.Fail(PassCurrent, failure), Closed, "pass 0 has failed")
	if a, b := pop(t, q), pop(t, q); a != 1 || b != 2 {
		t.Errorf("expected 1 and 2, found %d and %d", a, b)
	}
	for range 2 {
		if _, err := q.Pop(background); err != failure {
			t.Errorf("expected the failure, found %v", err)
		}
	}
	if _, _, err := q.Reopen(); err != nil {
		t.Fatal(err)
	}
	push(t, q, 4)
	if n := pop(t, q); n != 4 {
		t.Errorf("after a new pass: expected 4, found %d", n)
	}
}

// A blocked push must fail when the pass ends. An early version of the queue put its tuple into the next pass.
func TestAPushNeverLandsInALaterPass(t *testing.T) {
	for range 200 {
		q := makeQueue(t, QueueOptions{Capacity: 1, Slots: scalar})
		push(t, q, 1)
		done := make(chan error)
		go func() { done <- q.Push(background, PassCurrent, number(2)) }()
		until(q, func(i QueueInfo) bool { return i.WaitingProducers == 1 })
		pass, dropped, err := q.Reopen()
		if err != nil || pass != 1 || dropped != 1 {
			t.Fatalf("expected pass 1 and 1 dropped, found %v, %d, %v", pass, dropped, err)
		}
		expect(t, <-done, Closed, "pass 0 of the queue is over, it is at pass 1")
		push(t, q, 3)
		if n := pop(t, q); n != 3 {
			t.Fatalf("expected 3, found %d", n)
		}
	}
}

func TestACommitNeverLandsInALaterPass(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 2, Slots: scalar})
	for _, end := range []func(){func() { q.Close(PassCurrent) }, func() { _, _, _ = q.Reopen() }} {
		_, _, _ = q.Reopen()
		tuple := NewTuple(1)
		tuple.Slots[0] = tensor(t, Int64, Dims{1}, nil)
		r, err := q.Reserve(background, PassCurrent, tuple)
		if err != nil {
			t.Fatal(err)
		}
		end()
		expect(t, r.Commit(tuple), Closed, "")
		if i := q.Info(); i.Size != 0 || i.Reserved != 0 || i.Bytes != 0 {
			t.Errorf("expected an empty queue, found %+v", i)
		}
	}
}

func TestAPopNeverSeesALaterPass(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1, Slots: scalar})
	done := make(chan error)
	go func() {
		_, err := q.Pop(background)
		done <- err
	}()
	until(q, func(i QueueInfo) bool { return i.WaitingConsumers == 1 })
	_, _, _ = q.Reopen()
	push(t, q, 1)
	if err := <-done; err != io.EOF {
		t.Errorf("expected io.EOF, found %v", err)
	}
	if n := pop(t, q); n != 1 {
		t.Errorf("expected 1, found %d", n)
	}
}

func TestExplicitPass(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 3, Slots: scalar})
	_, _, _ = q.Reopen()
	expect(t, q.Push(background, 0, number(1)), Closed, "pass 0 of the queue is over")
	q.Close(0) // an earlier pass: has no effect
	if err := q.Push(background, 1, number(2)); err != nil {
		t.Error(err)
	}
	expect(t, q.Fail(0, &ProducerError{}), Closed, "")
	q.Close(1)
	expect(t, q.Push(background, 1, number(3)), Closed, "")
}

func TestRestartableQueueRunsPassByPass(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 2, Slots: scalar, Restartable: true})
	expect(t, q.Push(background, PassCurrent, number(1)), Closed, "no pass open yet")
	passes := make(chan Pass)
	go func() {
		defer close(passes)
		for pass := PassNone; ; {
			var err error
			if pass, err = q.WaitPass(background, pass); err != nil {
				return
			}
			passes <- pass
		}
	}()
	until(q, func(i QueueInfo) bool { return i.Pass == PassNone })
	if _, err := q.Pop(wait.NonBlocking); err != wait.ErrWouldBlock {
		t.Errorf("expected the first pop to open a pass and wait, found %v", err)
	}
	if p := <-passes; p != 0 {
		t.Errorf("expected pass 0, found %v", p)
	}
	_, _, _ = q.Reopen()
	if p := <-passes; p != 1 {
		t.Errorf("expected pass 1, found %v", p)
	}
	q.Shutdown()
	if _, open := <-passes; open {
		t.Error("expected WaitPass to end with the queue")
	}
	if _, _, err := q.Reopen(); kindOf(err) != Closed {
		t.Errorf("a reopen after the shutdown: expected an error of kind Closed, found %v", err)
	}
}

func TestShutdownWakesEverybody(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1, Slots: scalar})
	push(t, q, 1)
	errs := make(chan error)
	for range 3 {
		go func() { errs <- q.Push(background, PassCurrent, number(2)) }()
	}
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 3 })
	q.Shutdown()
	for range 3 {
		expect(t, <-errs, Closed, "shut down")
	}
	if _, err := q.Pop(background); err != io.EOF {
		t.Errorf("expected io.EOF, found %v", err)
	}
	if i := q.Info(); i.Dropped != 1 {
		t.Errorf("expected 1 tuple dropped, found %d", i.Dropped)
	}
}

func TestTimeouts(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1, Slots: scalar})
	ctx, cancel := context.WithTimeout(background, time.Millisecond)
	defer cancel()
	if _, err := q.Pop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("pop: %v", err)
	}
	push(t, q, 1)
	if err := q.Push(ctx, PassCurrent, number(2)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("push: %v", err)
	}
	if i := q.Info(); i.Size != 1 || i.WaitingProducers != 0 || i.WaitingConsumers != 0 {
		t.Errorf("a call that timed out changed the queue: %+v", i)
	}
}

func bytesOf(n int) []LoDTensor {
	s := LoDTensor{DType: Uint8, Data: make([]byte, n)}
	_ = s.SetDims(Dims{int64(n)})
	return []LoDTensor{s}
}

func TestBytesLimit(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 100, BytesLimit: 100, Slots: []Slot{{DType: Uint8, Dims: Dims{-1}}}})
	expect(t, q.Push(background, PassCurrent, bytesOf(101)), TooLarge, "expected a tuple of at most 100 bytes, found 101")
	for range 2 {
		if err := q.Push(background, PassCurrent, bytesOf(40)); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Push(wait.NonBlocking, PassCurrent, bytesOf(21)); err != wait.ErrWouldBlock {
		t.Errorf("expected no room for 21 bytes more, found %v", err)
	}
	if err := q.Push(wait.NonBlocking, PassCurrent, bytesOf(20)); err != nil {
		t.Errorf("expected room for 20 bytes more, found %v", err)
	}
	if i := q.Info(); i.Bytes != 100 {
		t.Errorf("bytes: expected 100, found %d", i.Bytes)
	}
}

// Small tuples that always fit must not starve a large one. When room for several small tuples becomes free, several
// producers must be woken.
func TestALargeTupleIsNotStarved(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 100, BytesLimit: 100, Slots: []Slot{{DType: Uint8, Dims: Dims{-1}}}})
	for range 10 {
		_ = q.Push(background, PassCurrent, bytesOf(10))
	}
	var all sync.WaitGroup
	start := func(n, waiting int) {
		all.Go(func() {
			if err := q.Push(background, PassCurrent, bytesOf(n)); err != nil {
				t.Error(err)
			}
		})
		until(q, func(i QueueInfo) bool { return i.WaitingProducers == waiting })
	}
	start(95, 1)
	start(1, 2) // would fit after one pop, but came later
	start(2, 3)
	for i := range 10 {
		tuple, _ := q.Pop(background)
		tuple.Release()
		if i < 9 {
			until(q, func(i QueueInfo) bool { return i.WaitingProducers == 3 })
			if err := q.Push(wait.NonBlocking, PassCurrent, bytesOf(1)); err != wait.ErrWouldBlock {
				t.Fatal("a later push overtook an earlier one")
			}
		}
	}
	all.Wait()
	if i := q.Info(); i.Size != 3 || i.Bytes != 98 {
		t.Errorf("expected all three tuples in the queue, found %d tuples of %d bytes", i.Size, i.Bytes)
	}
}

func TestAGivenUpLargeTupleLetsOthersIn(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 100, BytesLimit: 100, Slots: []Slot{{DType: Uint8, Dims: Dims{-1}}}})
	_ = q.Push(background, PassCurrent, bytesOf(50))
	ctx, cancel := context.WithCancel(background)
	large := make(chan error)
	go func() { large <- q.Push(ctx, PassCurrent, bytesOf(90)) }()
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 1 })
	small := make(chan error)
	go func() { small <- q.Push(background, PassCurrent, bytesOf(10)) }()
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 2 })
	cancel()
	if err := <-large; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-small; err != nil {
		t.Error(err)
	}
}

type returns struct{ n atomic.Int32 }

func (r *returns) Reclaim() { r.n.Add(1) }

func lend(q *Consumer, ctx context.Context, n int, r *returns) error {
	tuple := NewTuple(1)
	tuple.Slots[0] = number(n)[0]
	return q.Lend(ctx, PassCurrent, tuple, r)
}

func TestLentMemoryGoesBackWhenTheConsumerIsDone(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1, Slots: scalar})
	var r returns
	if err := lend(q, background, 7, &r); err != nil {
		t.Fatal(err)
	}
	if err := lend(q, wait.NonBlocking, 8, &r); err != wait.ErrWouldBlock {
		t.Errorf("expected a full queue, found %v", err)
	}
	tuple, err := q.Pop(background)
	if err != nil || r.n.Load() != 0 || !tuple.Slots[0].ReadOnly {
		t.Fatalf("expected a read-only tuple still lent, found %v, returns %d", err, r.n.Load())
	}
	var second LoDTensor
	tuple.Slots[0].Share(&second)
	if n := numberOf(tuple); n != 7 || r.n.Load() != 0 {
		t.Errorf("expected 7 and no return while a share is held, found %d and %d", n, r.n.Load())
	}
	second.Drop()
	if r.n.Load() != 1 {
		t.Errorf("expected 1 return, found %d", r.n.Load())
	}
	q.Close(PassCurrent)
	expect(t, lend(q, background, 9, &r), Closed, "")
	if r.n.Load() != 1 {
		t.Error("the owner of a refused tuple's memory was called")
	}
}

func TestLentMemoryGoesBackFromAQueueThatIsDropped(t *testing.T) {
	var h PyArrayFeedQueueHolder
	q, _ := h.InitOnce(QueueOptions{Capacity: 3, Slots: scalar})
	var r returns
	for i := range 3 {
		if err := lend(q, background, i, &r); err != nil {
			t.Fatal(err)
		}
	}
	q.Drop()
	if r.n.Load() != 0 {
		t.Error("expected the holder to keep the queue and its memory")
	}
	h.Drop()
	if r.n.Load() != 3 {
		t.Errorf("expected 3 returns, found %d", r.n.Load())
	}
}

func TestHolder(t *testing.T) {
	var h PyArrayFeedQueueHolder
	defer h.Drop()
	_, err := h.Feeder()
	expect(t, err, State, "no queue before init_once")
	_, err = h.InitOnce(QueueOptions{Capacity: 0, Slots: scalar})
	expect(t, err, Invalid, "capacity: expected at least 1 tuple, found 0")
	_, err = h.InitOnce(QueueOptions{Capacity: 1, Slots: scalar, Place: CUDAPlace(1)})
	expect(t, err, Unsupported, "CUDAPlace(1)")
	q, err := h.InitOnce(QueueOptions{Capacity: 1, Slots: scalar})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Drop()
	_, err = h.InitOnce(QueueOptions{Capacity: 1, Slots: scalar})
	expect(t, err, State, "made already")
}

func TestSpecMismatchErrors(t *testing.T) {
	slots := []Slot{
		{DType: Float32, Dims: Dims{-1, 3}},
		{DType: Int64, Dims: Dims{-1}},
	}
	lod := []Slot{{DType: Float32, Dims: Dims{-1}, LoDLevels: 2}}
	f := func(dims ...int64) LoDTensor { return tensor(t, Float32, dims, nil) }
	n := func(dims ...int64) LoDTensor { return tensor(t, Int64, dims, nil) }
	with := func(x LoDTensor, lod LoD) LoDTensor { x.LoD = lod; return x }
	for _, c := range []struct {
		slots []Slot
		tuple []LoDTensor
		kind  Kind
		text  string
	}{
		{slots, []LoDTensor{f(2, 3)}, Slots, "slots: expected 2, found 1"},
		{slots, []LoDTensor{f(2, 3, 1), n(2)}, Shape, "slot 0: shape: expected [-1 3], found [2 3 1]"},
		{slots, []LoDTensor{f(2, 4), n(2)}, Shape, "slot 0: dimension 1: expected 3, found 4: dims [2 4] for [-1 3]"},
		{slots, []LoDTensor{f(2, 3), f(2)}, Type, "slot 1: dtype: expected int64, found float32"},
		{slots, []LoDTensor{f(2, 3), n(1)}, Shape, "slot 1: batch dimension: expected 2, as in slot 0, found 1"},
		{slots, []LoDTensor{{DType: 77}, n(1)}, Type, "slot 0: expected a dtype, found number 77"},
		{lod, []LoDTensor{f(5)}, Shape, "slot 0: LoD: expected 2 levels, found 0"},
		{lod, []LoDTensor{with(f(5), LoD{{0, 1}, {}})}, Shape, "slot 0: LoD level 1: expected at least 1 offsets, found 0"},
		{lod, []LoDTensor{with(f(5), LoD{{0, 0}, {0}})}, Shape, "slot 0: LoD level 1: expected the last offset to be 5, the first dimension, found 0"},
		{lod, []LoDTensor{with(f(5), LoD{{0, 1}, {0, 2, 5}})}, Shape, "slot 0: LoD level 0: expected the last offset to be 2, the number of sequences of level 1, found 1"},
		{lod, []LoDTensor{with(f(5), LoD{{0, 1}, {1, 5}})}, Shape, "slot 0: LoD level 1: expected the first offset to be 0, found 1"},
		{lod, []LoDTensor{with(f(5), LoD{{0, 2}, {0, 6, 5}})}, Shape, "slot 0: LoD level 1: offset 2 decreases from 6 to 5"},
		{lod, []LoDTensor{with(f(5), LoD{{0, 1}, {0, 4}})}, Shape, "slot 0: LoD level 1: expected the last offset to be 5, the first dimension, found 4"},
	} {
		spec, err := NewSpec(c.slots)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, spec.Check(&Tuple{Slots: c.tuple}), c.kind, c.text)
	}
}

func TestSpecRefusesInvalidSlots(t *testing.T) {
	for text, slot := range map[string]Slot{
		"rank: expected at most 8":     {Dims: make(Dims, 9)},
		"dimension 1: expected a size": {Dims: Dims{1, -2}},
		"LoD: expected 0 to 8 levels":  {Dims: Dims{-1}, LoDLevels: 9},
		"a first dimension of -1 with": {Dims: Dims{3}, LoDLevels: 1},
	} {
		_, err := NewSpec([]Slot{slot})
		expect(t, err, Shape, text)
	}
	_, err := NewSpec([]Slot{{DType: 99}})
	expect(t, err, Type, "number 99")
	_, err = NewSpec(nil)
	expect(t, err, Slots, "expected at least 1")
}

func TestTheFirstTupleSettlesOpenDTypes(t *testing.T) {
	spec, _ := NewSpec([]Slot{{Dims: Dims{1}}, {Dims: Dims{1}}})
	batched, err := spec.Batched()
	if err != nil {
		t.Fatal(err)
	}
	bad := &Tuple{Slots: []LoDTensor{tensor(t, Int8, Dims{1}, nil), tensor(t, Int8, Dims{2}, nil)}}
	if spec.Check(bad) == nil || spec.Slot(0).DType != Any {
		t.Error("a refused tuple set a dtype")
	}
	good := &Tuple{Slots: []LoDTensor{tensor(t, Int8, Dims{1}, nil), tensor(t, Bool, Dims{1}, nil)}}
	if err := spec.Check(good); err != nil || spec.Slot(0).DType != Int8 || batched.Slot(1).DType != Bool {
		t.Errorf("expected int8 and bool, found %v, %v, %v", err, spec.Slot(0), batched.Slot(1))
	}
	other := &Tuple{Slots: []LoDTensor{tensor(t, Int8, Dims{1}, nil), tensor(t, Int8, Dims{1}, nil)}}
	expect(t, spec.Check(other), Type, "slot 1: dtype: expected bool, found int8")
}

func TestMeasureRefusesOverflow(t *testing.T) {
	x := LoDTensor{DType: Float64}
	_ = x.SetDims(Dims{1 << 31, 1 << 31, 1 << 31})
	if _, err := x.Measure(); err == nil {
		t.Error("2^93 elements were accepted")
	}
	_ = x.SetDims(Dims{1 << 31, 1 << 31, 0})
	if n, err := x.Measure(); n != 0 || err != nil {
		t.Errorf("a dimension of 0: expected 0 bytes, found %d, %v", n, err)
	}
}

func TestLoDTravelsWithTheTuple(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1, Slots: []Slot{{DType: Uint8, Dims: Dims{-1}, LoDLevels: 2}}})
	in := tensor(t, Uint8, Dims{5}, []byte{1, 2, 3, 4, 5})
	in.LoD = LoD{{0, 1, 3}, {0, 2, 2, 5}}
	if err := q.Push(background, PassCurrent, []LoDTensor{in}); err != nil {
		t.Fatal(err)
	}
	in.LoD[0][1], in.Data[0] = 99, 99 // changes in the producer's arrays do not affect the tuple
	tuple, _ := q.Pop(background)
	defer tuple.Release()
	out := &tuple.Slots[0]
	if fmt.Sprint(out.LoD, out.Data) != "[[0 1 3] [0 2 2 5]] [1 2 3 4 5]" {
		t.Errorf("expected the pushed offsets and data, found %v %v", out.LoD, out.Data)
	}
	if out.Rows() != 2 {
		t.Errorf("expected 2 sequences, found %d", out.Rows())
	}
}

func TestScope(t *testing.T) {
	parent := NewScope(nil)
	child := NewScope(parent)
	a, err := parent.Var("a")
	if err != nil {
		t.Fatal(err)
	}
	if found, _ := child.FindVar("a"); found != a {
		t.Error("a parent's variable was not found")
	}
	if own, _ := child.Var("a"); own == a {
		t.Error("Var returned the parent's variable")
	}
	_, err = child.FindVar("b")
	expect(t, err, NotFound, `variable "b": there is none in this scope or its parents`)
	expect(t, child.Erase("b"), NotFound, `variable "b"`)
	_, err = child.Var("")
	expect(t, err, Invalid, "expected a name")
	_, err = a.Feeder()
	expect(t, err, State, `variable "a": expected a queue in it, found none`)

	q, err := a.InitQueue(QueueOptions{Capacity: 1, Slots: scalar})
	if err != nil {
		t.Fatal(err)
	}
	push(t, q, 1)
	parent.Drop() // the child keeps its parent alive
	if q.Info().ShutDown {
		t.Error("a parent was destroyed before its child")
	}
	child.Drop()
	if q.Info().ShutDown {
		t.Error("a queue was shut down before its last reference was dropped")
	}
	q.Drop()
	if !q.Info().ShutDown || memory.Count().Live[memory.Queue] != 0 {
		t.Error("expected the queue to be shut down after its last reference was dropped")
	}
}

func TestVariableHoldsATensor(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 2, Slots: scalar})
	push(t, q, 1, 2)
	v, _ := NewScope(nil).Var("x")
	var seen LoDTensor
	expect(t, v.ShareTensor(&seen), State, "expected a tensor in it, found none")
	first, _ := q.Pop(background)
	v.SetTensor(&first.Slots[0])
	first.Release()
	if err := v.ShareTensor(&seen); err != nil {
		t.Fatal(err)
	}
	second, _ := q.Pop(background)
	v.SetTensor(&second.Slots[0])
	second.Release() // drops the first tensor, which SetTensor has moved out of the variable
	if seen.Data[0] != 1 {
		t.Error("a shared tensor changed when the variable was set")
	}
	seen.Drop()
	v.Set(nil)
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 4, Slots: scalar})
	in := number(1)
	turn := func() {
		_ = q.Push(background, PassCurrent, in)
		tuple, _ := q.Pop(background)
		tuple.Release()
	}
	turn()
	if n := testing.AllocsPerRun(1000, turn); n > 0.1 { // not 0: the garbage collector may empty a pool
		t.Errorf("a push and a pop: expected 0 allocations, found %v", n)
	}
}

// Each tuple is popped once, and the tuples of each producer keep their order, whatever else happens to the queue.
func TestStress(t *testing.T) {
	const producers, consumers = 8, 4
	perProducer := 5000
	if testing.Short() {
		perProducer = 500
	}
	q := makeQueue(t, QueueOptions{Capacity: 7, BytesLimit: 1 << 20, Slots: []Slot{
		{DType: Int64, Dims: Dims{2}}, {DType: Uint8, Dims: Dims{-1}}}})

	var mu sync.Mutex
	got := make([][]int, producers)
	var consuming, producing sync.WaitGroup
	finished := make(chan struct{})
	for range consumers {
		consuming.Go(func() {
			for {
				ctx, cancel := context.WithTimeout(background, 50*time.Microsecond)
				// The lock makes the order of pops the order of the results.
				mu.Lock()
				tuple, err := q.Pop(ctx)
				if err == nil {
					p := int(binary.NativeEndian.Uint64(tuple.Slots[0].Data))
					n := int(binary.NativeEndian.Uint64(tuple.Slots[0].Data[8:]))
					got[p] = append(got[p], n)
					for _, b := range tuple.Slots[1].Data {
						if b != byte(n) {
							t.Errorf("tuple %d of producer %d is damaged", n, p)
							break
						}
					}
					tuple.Release()
				}
				mu.Unlock()
				cancel()
				if err == io.EOF {
					select {
					case <-finished:
						return
					default:
						runtime.Gosched() // closed only until the next pass
					}
				}
			}
		})
	}
	lost := make([]map[int]bool, producers) // pushes refused with an error
	for p := range producers {
		lost[p] = make(map[int]bool)
		producing.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(p)))
			for n := 0; n < perProducer; {
				data := make([]byte, random.IntN(2000))
				for i := range data {
					data[i] = byte(n)
				}
				head := LoDTensor{DType: Int64, Data: binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, uint64(p)), uint64(n))}
				_ = head.SetDims(Dims{2})
				body := LoDTensor{DType: Uint8, Data: data}
				_ = body.SetDims(Dims{int64(len(data))})
				ctx, cancel := context.WithTimeout(background, time.Duration(random.IntN(200))*time.Microsecond)
				err := q.Push(ctx, PassCurrent, []LoDTensor{head, body})
				cancel()
				switch {
				case err == nil:
					n++
				case errors.Is(err, context.DeadlineExceeded):
				case kindOf(err) == Closed:
					lost[p][n] = true
					n++
					runtime.Gosched()
				default:
					t.Error(err)
					return
				}
			}
		})
	}
	stop := make(chan struct{})
	var meddling sync.WaitGroup
	meddling.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			if i%2 == 0 {
				q.Close(PassCurrent)
			} else {
				_ = q.Fail(PassCurrent, &ProducerError{Message: "on purpose"})
			}
			// Wait until all is delivered, because a reopen drops what is queued.
			until(q, func(i QueueInfo) bool { return i.Size == 0 && i.Reserved == 0 })
			_, dropped, err := q.Reopen()
			if err != nil || dropped != 0 {
				t.Errorf("reopen: %d dropped, %v", dropped, err)
			}
		}
	})
	producing.Wait()
	close(stop)
	meddling.Wait()
	q.Close(PassCurrent)
	close(finished)
	consuming.Wait()
	for p := range producers {
		next := 0
		for _, n := range got[p] {
			for lost[p][next] {
				next++
			}
			if n != next {
				t.Fatalf("producer %d: expected tuple %d, found %d", p, next, n)
			}
			next++
		}
		for lost[p][next] {
			next++
		}
		if next != perProducer {
			t.Errorf("producer %d: expected %d tuples, found %d", p, perProducer, next)
		}
	}
}

func BenchmarkPushPop(b *testing.B) {
	q := makeQueue(b, QueueOptions{Capacity: 4, Slots: scalar})
	in := number(1)
	for b.Loop() {
		_ = q.Push(background, PassCurrent, in)
		tuple, _ := q.Pop(background)
		tuple.Release()
	}
}

// The fields that every push and pop changes must not share a cache line with fields that they only read.
func TestTupleFieldsShareTwoCacheLines(t *testing.T) {
	const line = 64
	var q PyArrayFeedQueue
	if begin, end := unsafe.Offsetof(q.mu), unsafe.Offsetof(q.notFull); begin%line != 0 || end-begin > 2*line {
		t.Errorf("expected the fields to be in two lines of %d bytes, found bytes %d to %d", line, begin, end)
	}
	queues := make([]*PyArrayFeedQueue, 100)
	for i := range queues {
		queues[i] = new(PyArrayFeedQueue)
		if over := uintptr(unsafe.Pointer(queues[i])) % line; over != 0 {
			t.Fatalf("queue %d: expected it at the beginning of a cache line, found it %d bytes after", i, over)
		}
	}
	runtime.KeepAlive(queues)
}

// blockedPush pushes through the producer until a push blocks. The channel gets the error of that push.
func blockedPush(t *testing.T, p *Producer) chan error {
	answer := make(chan error, 1)
	q := p.Queue()
	one := []LoDTensor{tensor(t, Int64, Dims{1}, nil)}
	go func() {
		for {
			if err := q.Push(background, PassCurrent, one); err != nil {
				answer <- err
				return
			}
		}
	}()
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 1 })
	return answer
}

func TestProducersEndWithTheLastConsumer(t *testing.T) {
	before := memory.Count()
	var h PyArrayFeedQueueHolder
	q, err := h.InitOnce(QueueOptions{Capacity: 2, Slots: scalar})
	if err != nil {
		t.Fatal(err)
	}
	consumer, producer := q.Retain(), q.Producer()
	answer := blockedPush(t, producer)
	reserved := NewTuple(1)
	reserved.Slots[0] = LoDTensor{DType: Int64}
	_ = reserved.Slots[0].SetDims(Dims{1})
	for _, drop := range []func(){q.Drop, h.Drop} {
		drop()
		select {
		case err := <-answer:
			t.Fatalf("expected the push to wait while a consumer is left, found %v", err)
		default:
		}
	}
	popped, err := q.Pop(background)
	if err != nil {
		t.Fatal(err)
	}
	popped.Release()
	// The blocked push has succeeded, and the next one blocks.
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 1 && i.Size == 2 })
	consumer.Drop()
	want := "the queue is shut down: no reader of it is left, nor any other consumer"
	if err := <-answer; kindOf(err) != Closed || err.Error() != want {
		t.Errorf("expected %q, found %v", want, err)
	}
	if _, err := q.Reserve(background, PassCurrent, reserved); kindOf(err) != Closed {
		t.Errorf("expected a push to be refused, found %v", err)
	}
	reserved.Release()
	if _, err := q.WaitPass(background, 0); kindOf(err) != Closed {
		t.Errorf("expected wait_pass to end, found %v", err)
	}
	if i := q.Info(); !i.ShutDown || i.Size != 0 {
		t.Errorf("expected an empty queue that is shut down, found %+v", i)
	}
	if after := memory.Count(); after.Live != before.Live || after.Idle != before.Idle {
		t.Errorf("while a producer is left: counts %+v before, %+v after", before, after)
	}
	producer.Drop()
	if after := memory.Count(); after != before {
		t.Errorf("counts: %+v before, %+v after", before, after)
	}
}

func TestASlotThatIsBeingWrittenIsRefusedOnceNoConsumerIsLeft(t *testing.T) {
	before := memory.Count()
	var h PyArrayFeedQueueHolder
	q, err := h.InitOnce(QueueOptions{Capacity: 2, Slots: scalar})
	if err != nil {
		t.Fatal(err)
	}
	h.Drop()
	producer := q.Producer()
	slot := NewTuple(1)
	slot.Slots[0] = LoDTensor{DType: Int64}
	_ = slot.Slots[0].SetDims(Dims{1})
	r, err := q.Reserve(background, PassCurrent, slot)
	if err != nil {
		t.Fatal(err)
	}
	q.Drop()
	if err := r.Commit(slot); kindOf(err) != Closed {
		t.Errorf("expected %v, found %v", Closed, err)
	}
	producer.Drop()
	if after := memory.Count(); after != before {
		t.Errorf("counts: %+v before, %+v after", before, after)
	}
}

// expectStart compares what Start and Repeated return for the current pass.
func expectStart(t *testing.T, q *Consumer, start, repeated int64) {
	t.Helper()
	if n, err := q.Start(PassCurrent); n != start || err != nil {
		t.Errorf("start: expected %d, found %d, %v", start, n, err)
	}
	if n := q.Repeated(); n != repeated {
		t.Errorf("repeated: expected %d, found %d", repeated, n)
	}
}

// A consumer that has had the first tuples of the pass learns how many of them come again.
func TestStartOfAPassThatGoesOn(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 9, Slots: scalar})
	expectStart(t, q, 0, 0)
	q.SetHad(7)
	expectStart(t, q, 7, 7)
	for _, n := range []int64{3, 7, 0, 5} {
		if err := q.SetStart(0, n); err != nil {
			t.Fatal(err)
		}
		expectStart(t, q, 7, 7-n)
	}
	for _, n := range []int64{-1, 8, math.MinInt64, math.MaxInt64} {
		expect(t, q.SetStart(PassCurrent, n), Invalid, fmt.Sprintf("expected 0 to 7 tuples, which the consumer has had, found %d", n))
	}
	expectStart(t, q, 7, 2)

	// What the producer has left out stays left out if the consumer restores another position.
	q.SetHad(9)
	expectStart(t, q, 9, 4)
	q.SetHad(3)
	expectStart(t, q, 3, -2)
	q.SetHad(5)
	expectStart(t, q, 5, 0)
	push(t, q, 5, 6)
	for _, expected := range []int{5, 6} {
		if n := pop(t, q); n != expected {
			t.Errorf("expected %d, found %d", expected, n)
		}
	}
}

// Each pass begins with its own numbers, and a producer of another pass does not change them.
func TestStartsOfPasses(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 9, Slots: scalar, Restartable: true})
	_, err := q.Start(PassCurrent)
	expect(t, err, Closed, "no pass open yet")
	expect(t, q.SetStart(PassCurrent, 0), Closed, "no pass open yet")
	for i, had := range []int64{4, 0, 6} {
		pass, dropped, err := q.ReopenAt(had)
		if err != nil || pass != Pass(i) || dropped != uint64(min(i, 1)) {
			t.Fatalf("expected pass %d, found pass %v, %d tuples dropped, %v", i, pass, dropped, err)
		}
		if waited, err := q.WaitPass(background, PassNone); waited != pass || err != nil {
			t.Errorf("expected pass %v, found %v, %v", pass, waited, err)
		}
		expectStart(t, q, had, had)
		if err := q.SetStart(pass, had); err != nil {
			t.Error(err)
		}
		expectStart(t, q, had, 0)
		for _, other := range []Pass{pass + 1, pass + 7, PassNone} {
			_, err := q.Start(other)
			expect(t, err, Closed, "is over")
			expect(t, q.SetStart(other, 0), Closed, "is over")
		}
		expectStart(t, q, had, 0)
		push(t, q, i)
	}
	if _, _, err := q.Reopen(); err != nil {
		t.Fatal(err)
	}
	expectStart(t, q, 0, 0)
	q.Close(PassCurrent)
	expect(t, q.SetStart(PassCurrent, 0), Closed, "takes no more tuples")
	q.Shutdown()
	_, err = q.Start(PassCurrent)
	expect(t, err, Closed, "shut down")
	_, _, err = q.ReopenAt(3)
	expect(t, err, Closed, "shut down")
}

// A consumer that waits tries again when the position is restored: the call may be of a reader that was reset.
func TestSetHadWakesConsumers(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 9, Slots: scalar})
	over := errors.New("over")
	var stale atomic.Bool
	done := make(chan error)
	for range 3 {
		go func() {
			_, err := wait.Do(background, func(ctx context.Context) (*Tuple, error) {
				if stale.Load() {
					return nil, over
				}
				return q.Pop(ctx)
			})
			done <- err
		}()
	}
	until(q, func(i QueueInfo) bool { return i.WaitingConsumers == 3 })
	stale.Store(true)
	q.SetHad(2)
	for range 3 {
		if err := <-done; err != over {
			t.Errorf("expected the end of the call, found %v", err)
		}
	}
	// A consumer of the queue itself goes on waiting.
	popped := make(chan int)
	go func() {
		tuple, err := q.Pop(background)
		if err != nil {
			t.Error(err)
		}
		popped <- numberOf(tuple)
	}()
	until(q, func(i QueueInfo) bool { return i.WaitingConsumers == 1 })
	q.SetHad(1)
	push(t, q, 4)
	if n := <-popped; n != 4 {
		t.Errorf("expected 4, found %d", n)
	}
}

// Producers that follow a consumer from pass to pass see the start of the pass that they ask for, or its end.
func TestStartsWhileAConsumerReopens(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 4, Slots: scalar, Restartable: true})
	const passes = 300
	start := func(pass Pass) int64 { return int64(pass) % 5 }
	var all sync.WaitGroup
	for range 2 {
		all.Add(1)
		go func() {
			defer all.Done()
			for pass := PassNone; ; {
				var err error
				if pass, err = q.WaitPass(background, pass); err != nil {
					return // the queue is shut down
				}
				n, err := q.Start(pass)
				if err == nil {
					if n != start(pass) {
						t.Errorf("pass %v: expected start %d, found %d", pass, start(pass), n)
					}
					err = q.SetStart(pass, n)
				}
				if err == nil {
					err = q.Push(background, pass, number(int(pass)))
				}
				if err != nil && kindOf(err) != Closed {
					t.Error(err)
				}
			}
		}()
	}
	for i := range Pass(passes) {
		pass, _, err := q.ReopenAt(start(i))
		if err != nil || pass != i {
			t.Fatalf("expected pass %v, found %v, %v", i, pass, err)
		}
		for range i % 3 {
			if n := pop(t, q); n != int(i) {
				t.Errorf("expected a tuple of pass %v, found one of %d", i, n)
			}
			if n := q.Repeated(); n != 0 {
				t.Errorf("pass %v: expected that its producer left out all, found %d that come again", i, n)
			}
		}
	}
	q.Shutdown()
	all.Wait()
}
