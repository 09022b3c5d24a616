package pyfeed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
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

// scalar is a slot of one int64.
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

// until waits for a state of the queue.
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
	for round := range 10 { // so that the ring turns
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

func TestCloseDeliversWhatIsQueued(t *testing.T) {
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

// The first implementation of the design put a blocked producer's tuple into the next pass.
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
			t.Errorf("something was left behind: %+v", i)
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
	q.Close(0) // of an earlier pass: no matter
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
		t.Error("the producer was not told of the end")
	}
	if _, _, err := q.Reopen(); kindOf(err) != Closed {
		t.Errorf("a reopen after the end: %v", err)
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
		t.Errorf("a call that timed out left something behind: %+v", i)
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

// Small tuples that always fit must not keep a large one waiting for ever, and room for several small
// ones must be given to several.
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
	start(1, 2) // would fit as soon as one is popped, but came later
	start(2, 3)
	for i := range 10 {
		tuple, _ := q.Pop(background)
		tuple.Release()
		if i < 9 {
			until(q, func(i QueueInfo) bool { return i.WaitingProducers == 3 })
			if err := q.Push(wait.NonBlocking, PassCurrent, bytesOf(1)); err != wait.ErrWouldBlock {
				t.Fatal("a newcomer overtook")
			}
		}
	}
	all.Wait()
	if i := q.Info(); i.Size != 3 || i.Bytes != 98 {
		t.Errorf("expected all three to be in, found %d of %d bytes", i.Size, i.Bytes)
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
		t.Error("memory that was refused was given back as if it had been taken")
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
		t.Error("the holder still has the queue")
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

func TestSpecSaysWhatDoesNotFit(t *testing.T) {
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
		{slots, []LoDTensor{f(2, 3, 1), n(2)}, Shape, "slot 0: rank: expected 2, dims [-1 3], found 3, dims [2 3 1]"},
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

func TestSpecRefusesWhatCannotBe(t *testing.T) {
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
		t.Error("a tuple that was refused settled a dtype")
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
		t.Errorf("no elements: found %d bytes, %v", n, err)
	}
}

func TestLoDTravelsWithTheTuple(t *testing.T) {
	q := makeQueue(t, QueueOptions{Capacity: 1, Slots: []Slot{{DType: Uint8, Dims: Dims{-1}, LoDLevels: 2}}})
	in := tensor(t, Uint8, Dims{5}, []byte{1, 2, 3, 4, 5})
	in.LoD = LoD{{0, 1, 3}, {0, 2, 2, 5}}
	if err := q.Push(background, PassCurrent, []LoDTensor{in}); err != nil {
		t.Fatal(err)
	}
	in.LoD[0][1], in.Data[0] = 99, 99 // the producer's own again
	tuple, _ := q.Pop(background)
	defer tuple.Release()
	out := &tuple.Slots[0]
	if fmt.Sprint(out.LoD, out.Data) != "[[0 1 3] [0 2 2 5]] [1 2 3 4 5]" {
		t.Errorf("found %v %v", out.LoD, out.Data)
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
		t.Error("Var answered a parent's variable")
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
	parent.Drop() // the child still has it
	if q.Info().ShutDown {
		t.Error("a parent went before its child")
	}
	child.Drop()
	if q.Info().ShutDown {
		t.Error("a queue went before its last reference")
	}
	q.Drop()
	if !q.Info().ShutDown || memory.Count().Live[memory.Queue] != 0 {
		t.Error("a queue outlived its last reference")
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
	second.Release() // what was in the variable
	if seen.Data[0] != 1 {
		t.Error("a share changed when the variable did")
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
	if n := testing.AllocsPerRun(1000, turn); n > 0.1 { // the collector may empty the pool of tuples
		t.Errorf("a push and a pop: %v allocations", n)
	}
}

// Every tuple once, in each producer's order, whatever else happens to the queue.
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
				// The order of two pops is that in which they hold this lock.
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
						runtime.Gosched() // closed for a while only
					}
				}
			}
		})
	}
	lost := make([]map[int]bool, producers) // refused, and so told
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
			// Wait until all is delivered: a reopen drops what is left.
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

// What each tuple changes must not share a cache line with what every push and pop only looks at.
func TestWhatATupleChangesLiesInTwoCacheLines(t *testing.T) {
	const line = 64
	var q PyArrayFeedQueue
	if begin, end := unsafe.Offsetof(q.mu), unsafe.Offsetof(q.notFull); begin%line != 0 || end-begin > 2*line {
		t.Errorf("expected two lines of %d bytes, found bytes %d to %d", line, begin, end)
	}
	queues := make([]*PyArrayFeedQueue, 100)
	for i := range queues {
		queues[i] = new(PyArrayFeedQueue)
		if over := uintptr(unsafe.Pointer(queues[i])) % line; over != 0 {
			t.Fatalf("queue %d: expected it at the beginning of a line, found it %d bytes behind", i, over)
		}
	}
	runtime.KeepAlive(queues)
}

// blockedPush pushes through the producer until room is wanted, and answers what that push was answered.
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
			t.Fatalf("with a consumer left, a push was answered %v", err)
		default:
		}
	}
	popped, err := q.Pop(background)
	if err != nil {
		t.Fatal(err)
	}
	popped.Release()
	until(q, func(i QueueInfo) bool { return i.WaitingProducers == 1 && i.Size == 2 }) // the push that waited went on
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
		t.Errorf("found %+v", i)
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
