package program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/staging"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/files"
	_ "github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// kernel registers a kernel for the duration of a test.
func kernel(t testing.TB, name string, run func(ctx context.Context, c *Call) error) *Kernel {
	t.Helper()
	k := &Kernel{Name: name, Run: run}
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Unregister(k) })
	return k
}

func scopeOf(t testing.TB) *pyfeed.Scope {
	scope := pyfeed.NewScope(nil)
	t.Cleanup(scope.Drop)
	return scope
}

// counted adds a loop that runs its body n times.
func (b *builder) counted(n int64, fill func(*builder)) {
	b.t.Helper()
	b.constant("i", "int64", 0)
	b.constant("n", "int64", n)
	b.tensor("more")
	b.op("less_than", names("i", "n"), names("more"))
	b.while("more", func(b *builder) {
		fill(b)
		b.op("increment", names("i"), names("i"))
		b.op("less_than", names("i", "n"), names("more"))
	})
}

func (b *builder) call(kernel string, ins, outs []string) {
	b.t.Helper()
	b.op("call", ins, outs, text("kernel", kernel))
}

// queue makes a queue of int64s in the scope's variable "feed".
func queue(t testing.TB, scope *pyfeed.Scope, o pyfeed.QueueOptions) *pyfeed.Consumer {
	t.Helper()
	if o.Slots == nil {
		o.Slots = []pyfeed.Slot{{DType: pyfeed.Int64}}
	}
	v, err := scope.Var("feed")
	if err != nil {
		t.Fatal(err)
	}
	q, err := v.InitQueue(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.Drop)
	return q
}

func push(q *pyfeed.Consumer, pass pyfeed.Pass, values ...int64) error {
	for _, v := range values {
		if err := q.Push(background, pass, []pyfeed.LoDTensor{scalar(v)}); err != nil {
			return err
		}
	}
	return nil
}

// reading adds a reader of that queue.
func (b *builder) reading() {
	b.t.Helper()
	b.persistable("r", desc.Reader)
	b.op("create_py_array_reader", nil, names("r"), text("feeder_name", "feed"))
}

func int64Of(t *pyfeed.LoDTensor) int64 { return elements[int64](t.Data)[0] }

// until waits until the condition holds.
func until(there func() bool) {
	for !there() {
		runtime.Gosched()
	}
}

// ---- Space ----

func TestBlocksWithinBlocksTakeNoStack(t *testing.T) {
	var depths []int
	kernel(t, "depth", func(context.Context, *Call) error {
		depths = append(depths, runtime.Callers(0, make([]uintptr, 1<<16)))
		return nil
	})
	b := build(t)
	b.constant("yes", "bool", 1)
	b.call("depth", nil, nil)
	var nest func(b *builder, left int)
	nest = func(b *builder, left int) {
		b.call("depth", nil, nil)
		if left > 0 {
			b.op("if_else", names("yes"), nil, integer("true_block", int64(b.body(func(b *builder) { nest(b, left-1) }))))
		}
	}
	nest(b, 98)
	b.run()
	if len(depths) != 100 || slices.Max(depths) != slices.Min(depths) {
		t.Errorf("%d calls, from %d to %d frames deep", len(depths), slices.Min(depths), slices.Max(depths))
	}
}

// A loop that reads and calls kernels allocates nothing, however often it runs, and leaks nothing.
func TestALoopAllocatesNothing(t *testing.T) {
	rounds := int64(200_000)
	if testing.Short() {
		rounds = 5_000
	}
	e, scope := executor(t), scopeOf(t)
	q := queue(t, scope, pyfeed.QueueOptions{Capacity: 2})
	next := []pyfeed.LoDTensor{scalar(int64(3))}
	kernel(t, "produce", func(ctx context.Context, c *Call) error { return q.Push(ctx, pyfeed.PassCurrent, next) })
	kernel(t, "add", func(_ context.Context, c *Call) error {
		sum, x := c.Outs[0].Data, c.Ins[1].Data
		binary.NativeEndian.PutUint64(sum, binary.NativeEndian.Uint64(sum)+binary.NativeEndian.Uint64(x))
		return nil
	})
	kernel(t, "copy", func(_ context.Context, c *Call) error {
		out, err := c.Output(0, pyfeed.Int64, pyfeed.Dims{}, nil)
		if err == nil {
			copy(out.Data, c.Ins[0].Data)
		}
		return err
	})
	run := func(n int64) (mallocs uint64) {
		b := build(t)
		b.reading()
		b.constant("sum", "int64", 0)
		for _, name := range names("x", "y", "z", "has", "small", "no") {
			b.tensor(name)
		}
		b.counted(n, func(b *builder) {
			b.call("produce", nil, nil)
			b.op("has_next", names("r"), names("has"))
			body := b.body(func(b *builder) {
				b.op("read", names("r"), names("x"))
				b.call("add", names("sum", "x"), names("sum"))
			})
			b.op("if_else", names("has"), nil, integer("true_block", int64(body)))
			b.op("assign", names("x"), names("y"))
			b.op("increment", names("y"), names("y"))
			b.call("copy", names("y"), names("z"))
			b.op("less_equal", names("z", "x"), names("small"))
			b.op("logical_not", names("small"), names("no"))
			b.op("fill_constant", nil, names("z"), text("dtype", "int64"), integer("value", 7))
		})
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		out, err := e.Run(background, b.p, scope, nil, nil, names("sum", "no"))
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if got := int64Of(&out.Slots[0]); got != 3*n || out.Slots[1].Data[0] != 1 {
			t.Errorf("expected a sum of %d, found %d", 3*n, got)
		}
		out.Release()
		return after.Mallocs - before.Mallocs
	}
	few := run(10)
	if many := run(rounds); many > few+uint64(rounds)/100 {
		t.Errorf("expected as many allocations in many rounds as in 10: %d in 10 rounds, %d in %d", few, many, rounds)
	}
}

func TestVariablesOfARunGoWithIt(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	b := build(t)
	b.tensor("own")
	b.persistable("kept", desc.Tensor)
	b.op("fill_constant", nil, names("own"), list("dims", 1000), text("dtype", "uint8"))
	b.op("assign", names("own"), names("kept"))
	b.op("fill_constant", nil, names("own"), list("dims", 1000), text("dtype", "uint8"), integer("value", 1))
	body := b.body(func(b *builder) {
		b.tensor("inner")
		b.op("fill_constant", nil, names("inner"), list("dims", 1000), text("dtype", "uint8"))
	})
	b.constant("yes", "bool", 1)
	b.op("if_else", names("yes"), nil, integer("true_block", int64(body)))
	before := memory.Count()
	for range 3 {
		out, err := e.Run(background, b.p, scope, nil, nil, names("own"))
		if err != nil {
			t.Fatal(err)
		}
		if n := memory.Count().Live[memory.Batch] - before.Live[memory.Batch]; n != 2000 {
			t.Errorf("expected 2000 bytes in use, 1000 kept in the scope and 1000 fetched, found %d", n)
		}
		out.Release()
		if n := memory.Count().Live[memory.Batch] - before.Live[memory.Batch]; n != 1000 {
			t.Errorf("expected 1000 bytes in use, kept in the scope, found %d", n)
		}
	}
	// A run does not see the variables of the previous run.
	b = build(t)
	b.tensor("own")
	b.tensor("copy")
	b.persistable("kept", desc.Tensor)
	b.op("assign", names("kept"), names("copy"))
	b.op("assign", names("own"), names("copy"))
	_, err := b.in(e, scope, nil)
	fails(t, err, pyfeed.State, "block 0, op 1: assign", "expected a tensor in it, found none")
}

func TestAnErrorInTheMiddleLeavesNothing(t *testing.T) {
	kernelsOfTests(t)
	kernel(t, "fail at 5", func(_ context.Context, c *Call) error {
		if int64Of(c.Ins[0]) == 5 {
			return io.ErrUnexpectedEOF
		}
		_, err := c.Output(1, pyfeed.Float32, pyfeed.Dims{100}, nil)
		return err
	})
	e, scope := executor(t), scopeOf(t)
	q := queue(t, scope, pyfeed.QueueOptions{Capacity: 10})
	if err := push(q, pyfeed.PassCurrent, 0, 1, 2, 3, 4, 5, 6); err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.reading()
	b.tensor("x")
	b.tensor("big")
	b.counted(100, func(b *builder) {
		b.op("read", names("r"), names("x"))
		b.call("fail at 5", names("x"), names("x", "big"))
	})
	_, err := b.in(e, scope, nil)
	var at *OpError
	if !errors.Is(err, io.ErrUnexpectedEOF) || !errors.As(err, &at) || at.Place() != "block 1, op 1: call" {
		t.Errorf("expected io.ErrUnexpectedEOF at block 1, op 1, found %v", err)
	}
	if !strings.Contains(err.Error(), "with x int64 ()") {
		t.Errorf("expected the description of the inputs in the error, found %v", err)
	}
	if left := memory.Count().Live[memory.Batch]; left != 0 {
		t.Errorf("%d bytes were not freed", left)
	}
	q.Close(pyfeed.PassCurrent)
	_, err = b.in(e, scope, nil) // continues to read at 6
	if !errors.Is(err, io.EOF) {
		t.Errorf("expected io.EOF after the pushed tuples, found %v", err)
	}
}

// ---- Kernels ----

func TestAKernelIsFinishedOnce(t *testing.T) {
	e := executor(t)
	finished, called := 0, 0
	k := &Kernel{Name: "self", Finished: func() { finished++ }}
	k.Run = func(context.Context, *Call) error {
		Unregister(k) // further calls have no effect
		called++
		if finished != 0 {
			t.Error("Finished was called while the kernel was running")
		}
		return nil
	}
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	other := &Kernel{Name: "self"}
	fails(t, Register(other), pyfeed.State, "", `kernel "self": there is one of that name`)
	Unregister(other)
	if !slices.Contains(Kernels(), "self") {
		t.Error("Unregister of another kernel removed the registered one")
	}
	b := build(t)
	b.call("self", nil, nil)
	b.call("self", nil, nil)
	b.counted(3, func(b *builder) { b.call("self", nil, nil) })
	if _, err := b.in(e, scopeOf(t), nil); err != nil {
		t.Fatal(err)
	}
	if called != 5 || finished != 1 {
		t.Errorf("expected 5 calls and 1 call of Finished, found %d and %d", called, finished)
	}
	_, err := b.in(e, scopeOf(t), nil)
	fails(t, err, pyfeed.NotFound, "block 0, op 0: call", `kernel "self": it is not registered`)

	// A kernel may be registered again, even while a run holds it.
	finished = 0
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	r, err := e.Begin(b.p, scopeOf(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	Unregister(k)
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	r.End()
	if finished != 0 {
		t.Error("Finished was called for a registered kernel")
	}
	Unregister(k)
	if finished != 1 {
		t.Errorf("expected 1 call of Finished, found %d", finished)
	}
}

func TestARunThatDoesNotBeginHoldsNoKernel(t *testing.T) {
	finished := false
	k := &Kernel{Name: "there", Run: func(context.Context, *Call) error { return nil }, Finished: func() { finished = true }}
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.call("there", nil, nil)
	b.call("not there", nil, nil)
	e := executor(t)
	for range 3 {
		_, err := b.in(e, scopeOf(t), nil)
		fails(t, err, pyfeed.NotFound, "block 0, op 1: call", `kernel "not there": it is not registered; there are `)
	}
	Unregister(k)
	if !finished {
		t.Error("a run that did not begin holds the kernel")
	}
}

func TestAKernelsPanicIsItsError(t *testing.T) {
	kernel(t, "panic", func(_ context.Context, c *Call) error {
		if _, err := c.Output(0, pyfeed.Int8, pyfeed.Dims{1}, nil); err != nil {
			return err
		}
		panic("no more")
	})
	b := build(t)
	b.tensor("x")
	b.constant("y", "int8", 1)
	b.call("panic", names("y"), names("x", "y"))
	_, err := b.in(executor(t), scopeOf(t), nil)
	var p *pyfeed.ProducerError
	var at *OpError
	if !errors.As(err, &p) || p.Type != "panic" || p.Message != "no more" || !strings.Contains(p.Traceback, "lifetime_test.go") ||
		!errors.As(err, &at) || at.Place() != "block 0, op 1: call" {
		t.Errorf("expected the panic as a ProducerError at block 0, op 1, found %v", err)
	}
}

func TestKernelOutputsMatchDeclarations(t *testing.T) {
	kernel(t, "lazy", func(context.Context, *Call) error { return nil })
	kernel(t, "int8", func(_ context.Context, c *Call) error {
		_, err := c.Output(0, pyfeed.Int8, pyfeed.Dims{2}, nil)
		return err
	})
	kernel(t, "ragged", func(_ context.Context, c *Call) error {
		_, err := c.Output(0, pyfeed.Int8, pyfeed.Dims{2}, pyfeed.LoD{{0, 3}})
		return err
	})
	kernel(t, "huge", func(_ context.Context, c *Call) error {
		_, err := c.Output(0, pyfeed.Float64, pyfeed.Dims{1 << 40, 1 << 40}, nil)
		return err
	})
	for _, c := range []struct {
		kernel, out string
		kind        pyfeed.Kind
		text        string
	}{
		{"lazy", "y", pyfeed.Slots, `slot 0: kernel "lazy" set no tensor for output "y"`},
		{"int8", "x", pyfeed.Type, `slot 0: output "x": dtype: expected int16, found int8`},
		{"ragged", "y", pyfeed.Shape, "LoD level 0: expected the last offset to be 2"},
		{"huge", "z", pyfeed.Shape, "more bytes than there are"},
	} {
		b := build(t)
		b.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, DType: pyfeed.Int16})
		b.tensor("y")
		b.persistable("z", desc.Tensor)
		b.call(c.kernel, nil, names(c.out))
		_, err := b.in(executor(t), scopeOf(t), nil)
		fails(t, err, c.kind, "block 0, op 0: call", c.text)
	}
}

// A tensor that is input and output is written in place, unless it is shared. Other references keep the old values.
func TestInPlaceUnlessLent(t *testing.T) {
	var same *byte
	inPlace := false
	kernel(t, "double", func(_ context.Context, c *Call) error {
		inPlace = &c.Outs[0].Data[0] == same && &c.Ins[0].Data[0] == same
		for i := range c.Outs[0].Data {
			c.Outs[0].Data[i] *= 2
		}
		return nil
	})
	e, scope := executor(t), scopeOf(t)
	b := build(t)
	b.persistable("x", desc.Tensor)
	b.op("fill_constant", nil, names("x"), list("dims", 3), text("dtype", "uint8"), integer("value", 3))
	if _, err := b.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	b = build(t)
	b.persistable("x", desc.Tensor)
	b.call("double", names("x"), names("x"))
	run := func() *pyfeed.Tuple {
		t.Helper()
		same = at(t, scope, "x")
		out, err := e.Run(background, b.p, scope, nil, nil, names("x"))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := run()
	if got := show(&first.Slots[0]); !inPlace || got != "uint8 [3] [6 6 6]" {
		t.Errorf("wrong result: in place %v, %s", inPlace, got)
	}
	second := run()
	if got := show(&second.Slots[0]); inPlace || got != "uint8 [3] [12 12 12]" {
		t.Errorf("wrong result: in place %v, %s", inPlace, got)
	}
	if got := show(&first.Slots[0]); got != "uint8 [3] [6 6 6]" {
		t.Errorf("a shared tensor was changed to %s", got)
	}
	first.Release()
	second.Release()
	third := run()
	if got := show(&third.Slots[0]); !inPlace || got != "uint8 [3] [24 24 24]" {
		t.Errorf("wrong result: in place %v, %s", inPlace, got)
	}
	third.Release()
}

// A kernel that fails leaves the variable that it was writing with its previous tensor.
func TestAFailedKernelLeavesItsVariable(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	var how func(c *Call) error
	kernel(t, "fails", func(_ context.Context, c *Call) error { return how(c) })
	fill := build(t)
	fill.persistable("x", desc.Tensor)
	fill.op("fill_constant", nil, names("x"), list("dims", 2), text("dtype", "int8"), integer("value", 4))
	b := build(t)
	b.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, Persistable: true, DType: pyfeed.Int8, Shaped: true, Dims: pyfeed.Dims{2}})
	b.call("fails", names("x"), names("x"))
	read := build(t)
	read.persistable("x", desc.Tensor)
	read.op("increment", names("x"), names("x"), step(intValue(0)))
	var lent *pyfeed.Tuple
	for name, f := range map[string]func(c *Call) error{
		"at once": func(c *Call) error { return io.ErrUnexpectedEOF },
		"with another tensor": func(c *Call) error {
			_, err := c.Output(0, pyfeed.Int64, pyfeed.Dims{5}, nil)
			return errors.Join(err, io.ErrUnexpectedEOF)
		},
		"without one":            func(c *Call) error { _, err := c.Output(0, pyfeed.Int64, pyfeed.Dims{-1}, nil); return err },
		"since it does not suit": func(c *Call) error { _, err := c.Output(0, pyfeed.Int8, pyfeed.Dims{3}, nil); return err },
		"with a panic":           func(c *Call) error { c.Outs[0].Drop(); panic("no") },
	} {
		for _, shared := range []bool{false, true} {
			if _, err := fill.in(e, scope, nil); err != nil {
				t.Fatal(err)
			}
			if shared {
				var err error
				if lent, err = e.Run(background, read.p, scope, nil, nil, names("x")); err != nil {
					t.Fatal(err)
				}
			}
			how = f
			if _, err := b.in(e, scope, nil); err == nil {
				t.Fatalf("%s: expected an error", name)
			}
			got, err := read.in(e, scope, nil, "x")
			if err != nil || got[0] != "int8 [2] [4 4]" {
				t.Errorf("%s, shared %v: expected the previous tensor, found %v, %v", name, shared, got, err)
			}
			if shared {
				lent.Release()
			}
		}
	}
}

func TestTensorsWrittenInPlaceAreRefused(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	fill, other := build(t), build(t)
	fill.persistable("x", desc.Tensor)
	fill.op("fill_constant", nil, names("x"), text("dtype", "int8"))
	if _, err := fill.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	var errs []error
	kernel(t, "long", func(ctx context.Context, c *Call) error {
		_, err := other.in(e, scope, nil)
		errs = append(errs, err)
		_, err = fill.in(e, scope, nil)
		errs = append(errs, err)
		_, err = e.Run(background, New(), scope, nil, nil, nil)
		errs = append(errs, err)
		return nil
	})
	other.persistable("x", desc.Tensor)
	other.tensor("y")
	other.op("assign", names("x"), names("y"))
	b := build(t)
	b.persistable("x", desc.Tensor)
	b.call("long", names("x"), names("x"))
	if _, err := b.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	const text = `variable "x": a kernel is writing its tensor in place right now`
	fails(t, errs[0], pyfeed.State, "block 0, op 0: assign", text)
	fails(t, errs[1], pyfeed.State, "block 0, op 0: fill_constant", text)
	if errs[2] != nil {
		t.Error(errs[2])
	}
	if _, err := other.in(e, scope, nil); err != nil {
		t.Errorf("after the kernel: %v", err)
	}
}

func TestForeignKernelsAreTheCallers(t *testing.T) {
	finished := 0
	k := &Kernel{Name: "foreign", Foreign: "theirs", Finished: func() { finished++ }}
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.tensor("x")
	b.tensor("sum")
	b.constant("by", "int64", 2)
	b.op("fill_constant", nil, names("sum"), text("dtype", "int64"))
	b.counted(3, func(b *builder) { b.call("foreign", names("sum", "by"), names("x", "sum")) })
	e, scope := executor(t), scopeOf(t)

	_, err := b.in(e, scope, nil)
	fails(t, err, pyfeed.Unsupported, "block 1, op 0: call", `kernel "foreign" is not a Go kernel`)

	begin := func() *Run {
		t.Helper()
		r, err := e.Begin(b.p, scope, names("x", "sum"))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := begin()
	for range 3 {
		if err := r.Resume(wait.NonBlocking); err != ErrKernel {
			t.Fatalf("expected a kernel to call, found %v", err)
		}
		if err := r.Resume(wait.NonBlocking); err != ErrKernel { // Answer was not called
			t.Fatalf("expected a kernel to call, found %v", err)
		}
		c := r.Call()
		if c.Kernel.Foreign != "theirs" || len(c.Ins) != 2 || len(c.Outs) != 2 {
			t.Fatalf("wrong call %+v", c)
		}
		x, err := c.Output(0, pyfeed.Int64, pyfeed.Dims{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		copy(x.Data, c.Ins[0].Data)
		binary.NativeEndian.PutUint64(c.Outs[1].Data, uint64(int64Of(c.Ins[0])+int64Of(c.Ins[1])))
		c.Answer(nil)
	}
	r.Yield()
	if err := r.Resume(wait.NonBlocking); err != ErrYield {
		t.Errorf("expected ErrYield, found %v", err)
	}
	if err := r.Resume(wait.NonBlocking); err != nil {
		t.Error(err)
	}
	out, err := r.Fetch()
	if err != nil {
		t.Fatal(err)
	}
	if x, sum := int64Of(&out.Slots[0]), int64Of(&out.Slots[1]); x != 4 && x != 6 || sum != 6 {
		t.Errorf("wrong results: %d and %d", x, sum)
	}
	out.Release()
	r.End()

	r = begin()
	_ = r.Resume(wait.NonBlocking)
	r.Call().Answer(io.ErrNoProgress)
	if err := r.Resume(wait.NonBlocking); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("expected the kernel's error, found %v", err)
	}
	r.End()

	r = begin() // End is called during the kernel's call
	_ = r.Resume(wait.NonBlocking)
	Unregister(k)
	if finished != 0 {
		t.Error("Finished was called during the kernel's call")
	}
	r.End()
	if finished != 1 {
		t.Errorf("expected 1 call of Finished, found %d", finished)
	}
}

// ---- Waiting ----

// A gate has tokens. A kernel waits for a token and takes it.
type gate struct {
	mu     sync.Mutex
	list   wait.List
	tokens int
}

func newGate() *gate {
	g := new(gate)
	g.list.Init(&g.mu)
	return g
}

func (g *gate) pass(ctx context.Context, _ *Call) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tokens == 0 {
		return g.list.Enter(ctx)
	}
	g.tokens--
	return nil
}

func (g *gate) open() {
	g.mu.Lock()
	g.tokens++
	wake := g.list.WakeOne()
	g.mu.Unlock()
	wake.Send()
}

func (g *gate) waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list.Len()
}

func TestAKernelThatWaitsIsResumed(t *testing.T) {
	g := newGate()
	calls := 0
	kernel(t, "gate", func(ctx context.Context, c *Call) error {
		calls++
		if _, err := c.Output(0, pyfeed.Int64, pyfeed.Dims{}, nil); err != nil {
			return err
		}
		if c.Outs[0].Data[0]++; calls == 1 {
			c.Outs[0].Data[0] = 1
		}
		return g.pass(ctx, c)
	})
	b := build(t)
	b.tensor("x")
	b.call("gate", nil, names("x"))
	scope, e := scopeOf(t), executor(t)
	done := make(chan error)
	go func() {
		_, err := b.in(e, scope, nil, "x")
		done <- err
	}()
	until(func() bool { return g.waiting() == 1 })
	g.open()
	if err := <-done; err != nil || calls != 3 { // a try without waiting, a try that waits, and one after the wake-up
		t.Errorf("expected 3 calls, found %d: %v", calls, err)
	}
}

// A run that waits, or that never ends, is cancelled from outside. The error names the operator, and nothing is leaked.
func TestCancelledRunsSayWhereTheyWere(t *testing.T) {
	reason := errors.New("enough")
	g := newGate()
	kernel(t, "gate", g.pass)
	buffer, err := staging.Get(pyfeed.CPUPlace(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	buffer.Clear()
	looks := new(atomic.Int64)
	kernel(t, "look", func(context.Context, *Call) error { looks.Add(1); return nil })
	for name, c := range map[string]struct {
		build func(b *builder)
		there func(q *pyfeed.Consumer) bool
		place string
	}{
		"a read": {func(b *builder) {
			b.tensor("x")
			b.counted(3, func(b *builder) { b.op("read", names("r"), names("x")) })
		}, func(q *pyfeed.Consumer) bool { return q.Info().WaitingConsumers == 1 }, "block 1, op 0: read"},
		"has_next": {func(b *builder) {
			b.tensor("x")
			b.op("has_next", names("r"), names("x"))
		}, func(q *pyfeed.Consumer) bool { return q.Info().WaitingConsumers == 1 }, "block 0, op 1: has_next"},
		"unstage": {func(b *builder) {
			b.tensor("x")
			b.persistable("s", desc.Stage)
			b.op("unstage", names("s"), names("x"))
		}, func(*pyfeed.Consumer) bool { return buffer.Stats().WaitingConsumers == 1 }, "block 0, op 1: unstage"},
		"stage": {func(b *builder) {
			b.persistable("s", desc.Stage)
			b.constant("x", "int8", 1)
			for range 4 { // there is room for three
				b.op("stage", names("x"), names("s"))
			}
		}, func(*pyfeed.Consumer) bool { return buffer.Stats().WaitingProducers == 1 }, "block 0, op 5: stage"},
		"a kernel": {func(b *builder) { b.call("gate", nil, nil) },
			func(*pyfeed.Consumer) bool { return g.waiting() == 1 }, "block 0, op 1: call"},
		"an endless loop": {func(b *builder) {
			b.constant("yes", "bool", 1)
			b.while("yes", func(b *builder) { b.call("look", nil, nil) })
		}, func(*pyfeed.Consumer) bool { return looks.Load() > 1000 }, ""},
		"an empty endless loop": {func(b *builder) {
			b.constant("yes", "bool", 1)
			b.call("look", nil, nil)
			b.while("yes", func(b *builder) {})
		}, func(*pyfeed.Consumer) bool { return looks.Load() > 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			looks.Store(0)
			e, scope := executor(t), scopeOf(t)
			q := queue(t, scope, pyfeed.QueueOptions{Capacity: 2})
			b := build(t)
			b.reading()
			c.build(b)
			ctx, cancel := context.WithCancelCause(background)
			done := make(chan error)
			go func() {
				_, err := e.Run(ctx, b.p, scope, nil, nil, nil)
				done <- err
			}()
			until(func() bool { return c.there(q) })
			cancel(reason)
			err := <-done
			var at *OpError
			if !errors.Is(err, reason) || c.place != "" && (!errors.As(err, &at) || at.Place() != c.place) {
				t.Errorf("wrong error: %v", err)
			}
			buffer.Clear()
			if g.waiting() != 0 || q.Info().WaitingConsumers != 0 {
				t.Error("a caller is still waiting")
			}
			// The next run gets the tuple that is pushed next.
			if err := push(q, pyfeed.PassCurrent, 5); err != nil {
				t.Fatal(err)
			}
			b = build(t)
			b.reading()
			b.tensor("x")
			b.op("read", names("r"), names("x"))
			if got, err := b.in(e, scope, nil, "x"); err != nil || got[0] != "int64 [] [5]" {
				t.Errorf("wrong result of the next run: %v, %v", got, err)
			}
		})
	}
}

// A run resets its reader and continues to read many times, and waits for the producer in between.
func TestARunReadsPassAfterPass(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	q := queue(t, scope, pyfeed.QueueOptions{Capacity: 2, Restartable: true})
	const passes, each = 20, 7
	produced := make(chan error, 1)
	go func() {
		produced <- func() error {
			before := pyfeed.PassNone
			for pass := range pyfeed.Pass(passes) {
				if got, err := q.WaitPass(background, before); err != nil || got != pass {
					return fmt.Errorf("expected pass %v, found %v, %v", pass, got, err)
				}
				before = pass
				for i := range int64(each) {
					if err := push(q, pass, int64(pass)*100+i); err != nil {
						return err
					}
				}
				q.Close(pass)
			}
			return nil
		}()
	}()
	var seen []int64
	kernel(t, "see", func(_ context.Context, c *Call) error { seen = append(seen, int64Of(c.Ins[0])); return nil })
	b := build(t)
	b.reading()
	b.op("create_double_buffer_reader", names("r"), names("r"))
	b.tensor("x")
	b.tensor("has")
	b.counted(passes, func(b *builder) {
		b.op("has_next", names("r"), names("has"))
		b.while("has", func(b *builder) {
			b.op("read", names("r"), names("x"))
			b.call("see", names("x"), nil)
			b.op("has_next", names("r"), names("has"))
		})
		b.tensor("last")
		b.constant("one before", "int64", passes-1)
		b.op("less_than", names("i", "one before"), names("last"))
		body := b.body(func(b *builder) { b.op("reset", names("r"), nil) })
		b.op("if_else", names("last"), nil, integer("true_block", int64(body)))
	})
	if _, err := b.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-produced; err != nil {
		t.Fatal(err)
	}
	var want []int64
	for pass := range int64(passes) {
		for i := range int64(each) {
			want = append(want, pass*100+i)
		}
	}
	if !slices.Equal(seen, want) {
		t.Errorf("expected %v, found %v", want, seen)
	}
}

// read uses the reader that is in the variable at the time, however often it has read another one before.
func TestAReaderThatIsMadeAnewIsTheOneThatIsRead(t *testing.T) {
	b := build(t)
	b.persistable("r", desc.Reader)
	b.tensor("x")
	b.tensor("has")
	slot := desc.Value{Kind: desc.MapValue, Map: desc.Attributes{list("dims"), text("dtype", "int64")}}
	b.counted(3, func(b *builder) {
		b.op("create_random_data_generator", nil, names("r"), integer("count", 1),
			desc.Attribute{Name: "slots", Value: desc.Value{Kind: desc.ListValue, List: []desc.Value{slot}}})
		b.op("read", names("r"), names("x"))
		b.op("has_next", names("r"), names("has"))
		b.op("reset", names("r"), nil)
		b.op("read", names("r"), names("x"))
	})
	b.gives(nil, "has i", "bool [] [false]", "int64 [] [3]")
}

func TestTheEndOfTheDataEndsARun(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	q := queue(t, scope, pyfeed.QueueOptions{Capacity: 2})
	if err := push(q, pyfeed.PassCurrent, 1, 2); err != nil {
		t.Fatal(err)
	}
	q.Close(pyfeed.PassCurrent)
	b := build(t)
	b.reading()
	b.persistable("x", desc.Tensor)
	b.counted(5, func(b *builder) { b.op("read", names("r"), names("x")) })
	_, err := b.in(e, scope, nil)
	var at *OpError
	if !errors.Is(err, io.EOF) || !errors.As(err, &at) || at.Place() != "block 1, op 0: read" {
		t.Errorf("wrong result: %v", err)
	}
	v, _ := scope.Var("x")
	_ = v.ReadTensor(func(x *pyfeed.LoDTensor) error {
		if got := show(x); got != "int64 [] [2]" {
			t.Errorf("expected the last tuple read, found %s", got)
		}
		return nil
	})
}

// ---- Threads ----

// Many threads run one program in one scope. Each tuple is read once, and each increment counts.
func TestThreadsShareAProgramAndItsScope(t *testing.T) {
	const threads, each = 8, 200
	e, scope := executor(t), scopeOf(t)
	q := queue(t, scope, pyfeed.QueueOptions{Capacity: 16})
	seen := make([]atomic.Int32, threads*each)
	kernel(t, "see", func(_ context.Context, c *Call) error { seen[int64Of(c.Ins[0])].Add(1); return nil })
	start := build(t)
	start.reading()
	start.op("create_double_buffer_reader", names("r"), names("r"))
	start.persistable("total", desc.Tensor)
	start.op("fill_constant", nil, names("total"), text("dtype", "int64"))
	start.persistable("shown", desc.Tensor)
	start.op("assign", names("total"), names("shown"))
	if _, err := start.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.persistable("r", desc.Reader)
	b.persistable("total", desc.Tensor)
	b.persistable("shown", desc.Tensor)
	b.tensor("x")
	b.tensor("y")
	b.counted(each, func(b *builder) {
		b.op("read", names("r"), names("x"))
		b.call("see", names("x"), nil)
		b.op("increment", names("total"), names("total"))
		b.op("assign", names("total"), names("y"))
		b.op("assign", names("y"), names("shown"))
		b.op("less_equal", names("shown", "total"), names("more")) // not needed; it disturbs the other threads
		b.op("fill_constant", nil, names("y"), text("dtype", "int64"), integer("value", -1))
		b.op("increment", names("y"), names("y"))
	})
	errs := make(chan error, threads+1)
	for range threads {
		go func() {
			_, err := b.in(e, scope, nil, "i", "y")
			errs <- err
		}()
	}
	go func() {
		for v := range int64(threads * each) {
			if err := push(q, pyfeed.PassCurrent, v); err != nil {
				errs <- err
				return
			}
		}
		errs <- nil
	}()
	for range threads + 1 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	for i := range seen {
		if n := seen[i].Load(); n != 1 {
			t.Errorf("tuple %d was read %d times", i, n)
		}
	}
	v, _ := scope.Var("total")
	_ = v.ReadTensor(func(x *pyfeed.LoDTensor) error {
		if got := int64Of(x); got != threads*each {
			t.Errorf("expected %d, found %d", threads*each, got)
		}
		return nil
	})
}

// Many threads build, clone, save and run a program at the same time. A run uses the program as it was when the run
// began.
func TestAProgramGrowsWhileItRuns(t *testing.T) {
	e := executor(t)
	b := build(t)
	b.constant("x", "int64", 0)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if err := b.try("increment", names("x"), names("x")); err != nil {
					t.Error(err)
				}
			}
		})
		all.Go(func() {
			scope := pyfeed.NewScope(nil)
			defer scope.Drop()
			last := int64(0)
			for range 100 {
				out, err := e.Run(background, b.p, scope, nil, nil, names("x"))
				if err != nil {
					t.Error(err)
					return
				}
				now := int64Of(&out.Slots[0])
				out.Release()
				if now < last {
					t.Errorf("the program has lost operators: %d after %d", now, last)
				}
				last = now
				_ = b.p.Clone()
				_, _ = b.p.Variable(0, "x")
			}
		})
	}
	all.Wait()
	if got := b.run("x"); got[0] != 400 {
		t.Errorf("expected 400, found %d", got[0])
	}
}

// ---- Complete training loops ----

// numbersFile writes an npy file of n rows.
func numbersFile(t *testing.T, n int) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "numbers.npy")
	w, err := files.CreateWriter(name, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		tuple := pyfeed.NewTuple(1)
		tuple.Slots[0] = of(pyfeed.Dims{2}, int64(i), int64(-i))
		if err := w.Write(tuple); err != nil {
			t.Fatal(err)
		}
		tuple.Release()
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return name
}

func texts(name string, all ...string) desc.Attribute {
	v := desc.Value{Kind: desc.ListValue}
	for _, s := range all {
		v.List = append(v.List, textValue(s))
	}
	return desc.Attribute{Name: name, Value: v}
}

// collecting registers the kernel "train", which records its batches.
func collecting(t *testing.T) *[]string {
	batches := new([]string)
	kernel(t, "train", func(_ context.Context, c *Call) error {
		*batches = append(*batches, show(c.Ins[0]))
		return nil
	})
	return batches
}

// direct returns the batches of the same readers without a program, over several passes.
func direct(t *testing.T, passes int, steps ...[2]string) (batches []string) {
	t.Helper()
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	var ins []string
	for i, op := range steps {
		out := fmt.Sprint("r", i)
		if err := ops.Create(scope, op[0], out, ins, []byte(op[1])); err != nil {
			t.Fatal(err)
		}
		ins = names(out)
	}
	v, _ := scope.FindVar(ins[0])
	h, err := readers.HolderOf(v)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Drop()
	for pass := range passes {
		if pass > 0 {
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
		for {
			tuple, err := h.ReadNext(background)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			batches = append(batches, show(&tuple.Slots[0]))
			tuple.Release()
		}
	}
	return batches
}

func TestTheListingWithAPassCount(t *testing.T) {
	file := numbersFile(t, 103)
	batches := collecting(t)
	e, scope := executor(t), scopeOf(t)
	const passes = 3

	startup := build(t)
	for _, name := range names("multiple_reader", "shuffle_reader", "batch_reader", "double_buffer_reader") {
		startup.persistable(name, desc.Reader)
	}
	startup.op("open_files", nil, names("multiple_reader"), texts("filenames", file))
	startup.op("create_shuffle_reader", names("multiple_reader"), names("shuffle_reader"), integer("buffer_size", 30), integer("seed", 5))
	startup.op("create_batch_reader", names("shuffle_reader"), names("batch_reader"), integer("batch_size", 8))
	startup.op("create_double_buffer_reader", names("batch_reader"), names("double_buffer_reader"))
	if _, err := startup.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}

	b := build(t)
	b.persistable("double_buffer_reader", desc.Reader)
	b.constant("not_completed", "bool", 1)
	b.constant("pass_count", "int64", 0)
	b.constant("required_pass_num", "int64", passes)
	b.while("not_completed", func(b *builder) {
		b.tensor("has_next")
		b.op("has_next", names("double_buffer_reader"), names("has_next"))
		yes := b.body(func(b *builder) {
			b.tensor("batch_data")
			b.op("read", names("double_buffer_reader"), names("batch_data"))
			b.call("train", names("batch_data"), nil)
		})
		no := b.body(func(b *builder) {
			b.op("reset", names("double_buffer_reader"), nil)
			b.op("increment", names("pass_count"), names("pass_count"))
			b.op("less_than", names("pass_count", "required_pass_num"), names("not_completed"))
		})
		b.op("if_else", names("has_next"), nil, integer("false_block", int64(no)), integer("true_block", int64(yes)))
	})
	for name, p := range variants(t, b.p) {
		*batches = nil
		v, _ := scope.FindVar("double_buffer_reader")
		h, err := readers.HolderOf(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Begin(0); err != nil { // resets the reader to the first pass
			t.Fatal(err)
		}
		h.Drop()
		if _, err := e.Run(background, p, scope, nil, nil, nil); err != nil {
			t.Fatal(err)
		}
		want := direct(t, passes, [2]string{"open_files", fmt.Sprintf(`{"filenames": [%q]}`, file)},
			[2]string{"create_shuffle_reader", `{"buffer_size": 30, "seed": 5}`}, [2]string{"create_batch_reader", `{"batch_size": 8}`})
		if len(want) != 13*passes || !slices.Equal(*batches, want) {
			t.Errorf("%s: found %d batches, expected %d: %v", name, len(*batches), len(want), *batches)
		}
	}
}

func TestTheListingWithAMultiPassReader(t *testing.T) {
	file := numbersFile(t, 50)
	batches := collecting(t)
	e, scope := executor(t), scopeOf(t)
	startup := build(t)
	for _, name := range names("multiple_reader", "batch_reader", "multi_pass_reader", "double_buffer_reader") {
		startup.persistable(name, desc.Reader)
	}
	startup.op("open_files", nil, names("multiple_reader"), texts("filenames", file))
	startup.op("create_batch_reader", names("multiple_reader"), names("batch_reader"), integer("batch_size", 7))
	startup.op("create_multi_pass_reader", names("batch_reader"), names("multi_pass_reader"), integer("pass_num", 4))
	startup.op("create_double_buffer_reader", names("multi_pass_reader"), names("double_buffer_reader"))
	if _, err := startup.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.persistable("double_buffer_reader", desc.Reader)
	b.constant("not_completed", "bool", 1)
	b.while("not_completed", func(b *builder) {
		b.tensor("batch_data")
		b.op("read", names("double_buffer_reader"), names("batch_data"))
		b.call("train", names("batch_data"), nil)
		b.op("has_next", names("double_buffer_reader"), names("not_completed"))
	})
	if _, err := b.in(e, scope, nil); err != nil {
		t.Fatal(err)
	}
	want := direct(t, 4, [2]string{"open_files", fmt.Sprintf(`{"filenames": [%q]}`, file)}, [2]string{"create_batch_reader", `{"batch_size": 7}`})
	if len(want) != 8*4 || !slices.Equal(*batches, want) {
		t.Errorf("found %d batches, expected %d: %v", len(*batches), len(want), *batches)
	}
}

// Two tuples warm up the staging buffer. Then each run stages the next tuple and trains with the oldest one. At the end
// no more tuples are fed.
func TestTheListingWithAStagingArea(t *testing.T) {
	buffer, err := staging.Get(pyfeed.CPUPlace(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	buffer.Clear()
	batches := collecting(t)
	e, scope := executor(t), scopeOf(t)
	b := build(t)
	b.variable(&desc.Variable{Name: "image", Kind: desc.Tensor, DType: pyfeed.Float32, Shaped: true, Dims: pyfeed.Dims{-1, 2}})
	b.variable(&desc.Variable{Name: "label", Kind: desc.Tensor, DType: pyfeed.Int64, Shaped: true, Dims: pyfeed.Dims{-1, 1}})
	b.variable(&desc.Variable{Name: "stage", Kind: desc.Stage})
	b.op("stage", names("image", "label"), names("stage"))
	stage := &builder{t, b.p.Clone(), 0}
	b.tensor("image_out")
	b.tensor("label_out")
	b.op("unstage", names("stage"), names("image_out", "label_out"))
	b.call("train", names("label_out"), nil)
	if v, err := b.p.Variable(0, "image_out"); err != nil || describe(v) != "float32 (-1, 2)" {
		t.Errorf("found %+v, %v", v, err)
	}
	data := func(i int) fed {
		return fed{"image": of(pyfeed.Dims{1, 2}, float32(i), 0), "label": of(pyfeed.Dims{1, 1}, int64(i))}
	}
	for i := range 10 {
		p := b
		if i < 2 {
			p = stage
		}
		if _, err := p.in(e, scope, data(i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if _, err := b.in(e, scope, nil); err != nil {
			t.Fatal(err)
		}
	}
	var want []string
	for i := range 10 {
		like := of(pyfeed.Dims{1, 1}, int64(i))
		want = append(want, show(&like))
	}
	if !slices.Equal(*batches, want) || buffer.Size() != 0 {
		t.Errorf("expected %v, found %v", want, *batches)
	}
	some := data(0)
	delete(some, "label")
	_, err = b.in(e, scope, some)
	fails(t, err, pyfeed.State, "block 0, op 0: stage", `variable "label": expected a tensor in it, found none`)
}

// ---- Faults that are only found at run time ----

func TestAReaderOfAnotherNumberOfSlotsKeepsItsTuples(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	v, _ := scope.Var("r")
	f := newFake(2, false)
	v.Set(readers.NewHolder(f))
	wrong, right := build(t), build(t)
	for _, b := range []*builder{wrong, right} {
		b.persistable("r", desc.Reader)
		b.tensor("id")
		b.tensor("row")
	}
	wrong.op("read", names("r"), names("id"))
	_, err := wrong.in(e, scope, nil)
	fails(t, err, pyfeed.Slots, "block 0, op 0: read", "expected a reader of 1 slots, as there are outputs, found one of 2")
	right.op("read", names("r"), names("id", "row"))
	if got, err := right.in(e, scope, nil, "id"); err != nil || got[0] != "int64 [] [0]" {
		t.Errorf("wrong result: %v, %v", got, err)
	}
	v.Set(nil)
	_, err = right.in(e, scope, nil)
	fails(t, err, pyfeed.State, "block 0, op 0: read", `variable "r": expected a reader in it, found none`)
}

func TestReadersThatCannotBeMadeLeaveNothing(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	b := build(t)
	for _, name := range names("a", "b", "zip") {
		b.persistable(name, desc.Reader)
	}
	b.op("create_zip_reader", names("a", "b"), names("zip"))
	f := newFake(2, false)
	closed := make(chan bool, 1)
	v, _ := scope.Var("a")
	v.Set(readers.NewHolder(&closing{f, closed}))
	_, err := b.in(e, scope, nil)
	fails(t, err, pyfeed.State, "block 0, op 0: create_zip_reader", `variable "b": expected a reader in it, found none`)
	v.Set(nil)
	if len(closed) != 1 {
		t.Error("the first reader was not released")
	}
	b = build(t)
	b.variable(&desc.Variable{Name: "a", Kind: desc.Reader, Slots: slots("int8", 4)})
	b.op("create_py_array_reader", nil, names("a"), text("feeder_name", "feed"))
	_, err = b.in(e, scope, nil)
	fails(t, err, pyfeed.NotFound, "block 0, op 0: create_py_array_reader", `variable "feed"`)
	queue(t, scope, pyfeed.QueueOptions{Capacity: 1})
	_, err = b.in(e, scope, nil)
	fails(t, err, pyfeed.Type, "block 0, op 0: create_py_array_reader", "slot 0: dtype: expected int8, as declared, found int64")
}

// closing reports when it is closed.
type closing struct {
	readers.Reader
	closed chan bool
}

func (c *closing) Close() {
	c.Reader.Close()
	c.closed <- true
}

// A tensor that a kernel shares with ShareInput does not change, whatever the kernel and other operators write.
func TestASharedInputStaysAsItIs(t *testing.T) {
	var lent, other pyfeed.LoDTensor
	kernel(t, "lend", func(_ context.Context, c *Call) error {
		if err := errors.Join(c.ShareInput(0, &lent), c.ShareInput(1, &other)); err != nil {
			return err
		}
		if &other.Data[0] != &c.Ins[1].Data[0] {
			t.Error("an input that is not written was copied")
		}
		c.Outs[0].Data[0] = 9
		return nil
	})
	b := build(t)
	b.constant("x", "int8", 1)
	b.constant("y", "int8", 2)
	b.call("lend", names("x", "y"), names("x"))
	b.op("increment", names("y"), names("y"))
	b.gives(nil, "x y", "int8 [] [9]", "int8 [] [3]")
	if show(&lent) != "int8 [] [1]" || show(&other) != "int8 [] [2]" {
		t.Errorf("a shared input was changed: %s and %s", show(&lent), show(&other))
	}
	lent.Drop()
	other.Drop()
}

func TestAYieldThatComesTooLateIsForgotten(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	b := build(t)
	b.constant("x", "int8", 1)
	for range 2 {
		r, err := e.Begin(b.p, scope, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Resume(wait.NonBlocking); err != nil {
			t.Error(err)
		}
		r.Yield()
		r.End()
	}
}

// A caller can run a program with calls that never wait, trying again from time to time.
func TestARunMayBePolled(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	q := queue(t, scope, pyfeed.QueueOptions{Capacity: 3})
	b := build(t)
	b.reading()
	b.tensor("x")
	b.counted(3, func(b *builder) { b.op("read", names("r"), names("x")) })
	r, err := e.Begin(b.p, scope, names("x"))
	if err != nil {
		t.Fatal(err)
	}
	defer r.End()
	for v := range int64(3) {
		for range 2 {
			if err := r.Resume(wait.NonBlocking); err != wait.ErrWouldBlock {
				t.Fatalf("expected ErrWouldBlock, found %v", err)
			}
		}
		if err := push(q, pyfeed.PassCurrent, v); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Resume(wait.NonBlocking); err != nil {
		t.Fatal(err)
	}
}

func TestExecutorsAreOfPlacesThatThereAre(t *testing.T) {
	for place, kind := range map[pyfeed.Place]pyfeed.Kind{pyfeed.CUDAPlace(99): pyfeed.Invalid, {Kind: 9}: pyfeed.Unsupported} {
		_, err := NewExecutor(place)
		fails(t, err, kind, "", place.String())
	}
}

func TestAStagedTupleHasToSuitItsOutputs(t *testing.T) {
	buffer, err := staging.Get(pyfeed.CPUPlace(), 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	buffer.Clear()
	e := executor(t)
	for _, c := range []struct {
		outs []string
		kind pyfeed.Kind
		text string
	}{
		{names("a", "b"), pyfeed.Slots, "expected a staged tuple of 2 slots, as there are outputs, found one of 1, which is lost"},
		{names("bool"), pyfeed.Type, `slot 0: output "bool": dtype: expected bool, found int8`},
	} {
		from, to := build(t), build(t)
		for _, b := range []*builder{from, to} { // neither program knows the slots of the other
			b.persistable("s", desc.Stage)
			b.tensor("a")
			b.tensor("b")
			b.variable(&desc.Variable{Name: "bool", Kind: desc.Tensor, DType: pyfeed.Bool})
		}
		from.op("stage", names("a"), names("s"))
		if _, err := from.in(e, scopeOf(t), fed{"a": scalar[int8](1)}); err != nil {
			t.Fatal(err)
		}
		to.op("unstage", names("s"), c.outs)
		_, err := to.in(e, scopeOf(t), nil)
		fails(t, err, c.kind, "block 0, op 0: unstage", c.text)
		if buffer.Size() != 0 {
			t.Error("the tuple is still in the buffer")
		}
	}
}

func TestStagingHasOneSetOfLimits(t *testing.T) {
	if _, err := staging.Get(pyfeed.CPUPlace(), 3, 0); err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.persistable("s", desc.Stage)
	b.constant("x", "int8", 1)
	b.op("stage", names("x"), names("s"), integer("capacity", 4))
	b.refused(nil, pyfeed.State, "block 0, op 1: stage", "capacity 3 and bytes_limit 0, found capacity 4")
}

func TestWritesToErasedVariables(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	kernel(t, "erase", func(_ context.Context, c *Call) error { return scope.Erase("w") })
	for _, after := range []func(b *builder){
		func(b *builder) { b.op("fill_constant", nil, names("w")) },
		func(b *builder) { b.op("assign", names("x"), names("w")) },
		func(b *builder) { b.op("increment", names("x"), names("w")) },
	} {
		b := build(t)
		b.persistable("w", desc.Tensor)
		b.constant("x", "float32", 1)
		b.op("fill_constant", nil, names("w"))
		b.call("erase", nil, nil)
		after(b)
		_, err := b.in(e, scope, nil)
		fails(t, err, pyfeed.NotFound, "", "variable \"w\": it was erased from its scope meanwhile")
	}

	b := build(t) // the kernel that writes the variable in place erases it
	b.persistable("w", desc.Tensor)
	b.op("fill_constant", nil, names("w"), list("dims", 1000))
	b.call("erase", names("w"), names("w"))
	_, err := b.in(e, scope, nil)
	fails(t, err, pyfeed.NotFound, "block 0, op 1: call", "erased")

	b = build(t)
	b.persistable("w", desc.Reader)
	b.op("create_random_data_generator", nil, names("w"), desc.Attribute{Name: "slots", Value: slotsOfOne()})
	b.call("erase", nil, nil)
	b.op("create_random_data_generator", nil, names("w"), desc.Attribute{Name: "slots", Value: slotsOfOne()})
	_, err = b.in(e, scope, nil)
	fails(t, err, pyfeed.NotFound, "block 0, op 2: create_random_data_generator", "erased")
}

// slotsOfOne is an attribute with one slot of float32 without dims.
func slotsOfOne() desc.Value {
	return desc.Value{Kind: desc.ListValue, List: []desc.Value{{Kind: desc.MapValue, Map: desc.Attributes{
		{Name: "dims", Value: desc.Value{Kind: desc.ListValue}},
		{Name: "dtype", Value: textValue("float32")},
	}}}}
}

func TestAKernelThatHasACopyKeepsOthersOutToo(t *testing.T) {
	e, scope := executor(t), scopeOf(t)
	inside, goOn := make(chan bool), make(chan bool)
	kernel(t, "slow", func(_ context.Context, c *Call) error {
		inside <- true
		<-goOn
		return nil
	})
	b := build(t)
	b.persistable("w", desc.Tensor)
	b.op("fill_constant", nil, names("w"), text("dtype", "int64"))
	// Shares the tensor, so that the kernel gets a copy.
	held, err := e.Run(context.Background(), b.p, scope, nil, nil, names("w"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()

	b = build(t)
	b.persistable("w", desc.Tensor)
	b.call("slow", names("w"), names("w"))
	first := make(chan error)
	go func() {
		_, err := b.in(e, scope, nil)
		first <- err
	}()
	<-inside
	_, err = b.in(e, scope, nil)
	fails(t, err, pyfeed.State, "block 0, op 0: call", "a kernel is writing its tensor in place right now")
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
}
