package program

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// Resume returns these errors if the caller must act before the Run can continue.
var (
	ErrKernel = errors.New("a foreign kernel must be called")                // see Run.Call
	ErrYield  = errors.New("the caller must check for timeouts and signals") // requested by Yield
)

// A Run is one execution of a program. It belongs to one caller; other threads may only call Yield.
//
// It is a loop over frames, one for each block that is being executed, instead of nested calls. Therefore a Run can be
// interrupted at any operator that has to wait, the calling thread can sleep outside Go, and nested blocks do not grow
// the stack.
type Run struct {
	plan     *plan
	executor *Executor
	pool     *memory.Pool
	place    pyfeed.Place
	scope    *pyfeed.Scope
	vars     []*pyfeed.Variable // by number in the plan
	fetched  []int              // numbers of variables
	frames   []frame
	calls    []Call
	counts   []int64
	readers  []readerRef
	pending  *Call        // the foreign kernel to call; nil: none
	opening  *ops.Opening // of the current operator, while files are being opened; else nil
	waiting  bool         // the current operator has been tried and has to wait
	yield    atomic.Bool

	tuple    *pyfeed.Tuple // waiting for room in the staging buffer
	operands [2]pyfeed.LoDTensor
	element  [2][16]byte
	text     []byte

	lane                     trace.Lane
	traced                   wait.Traced // carries the run's track to the readers that it calls
	began, opBegan, waitedAt int64
}

// A frame is a block that is being executed, and the position in it.
type frame struct {
	code []instruction
	at   int
}

// bind sets the scope, the kernels and the variables to fetch.
func (r *Run) bind(scope *pyfeed.Scope, fetches []string) error {
	r.scope = scope.Retain()
	for i, c := range r.plan.variables {
		if !c.scope {
			continue
		}
		v, err := scope.FindVar(c.name)
		if err != nil {
			if v, err = scope.Var(c.name); err != nil {
				return err
			}
		}
		r.vars[i] = v
	}
	for i, in := range r.plan.calls {
		k, err := kernelOf(valueOf(in.op, "kernel").Text)
		if err != nil {
			return &OpError{Block: in.block, Index: in.index, Op: in.op, Cause: err}
		}
		r.calls[i].Kernel = k
	}
	r.fetched = r.fetched[:0]
	for _, name := range fetches {
		at, err := r.plan.topVariable(name, "fetch")
		if err != nil {
			return err
		}
		r.fetched = append(r.fetched, at)
	}
	r.frames = append(r.frames[:0], frame{code: r.plan.code[0]})
	return nil
}

func (p *plan) topVariable(name, what string) (int, error) {
	at, known := p.top[name]
	if !known {
		return 0, pyfeed.Errorf(pyfeed.NotFound, "%s: the program has no variable %q in its first block", what, name)
	}
	if k := p.variables[at].of.Kind; k != desc.Tensor {
		return 0, pyfeed.Errorf(pyfeed.Invalid, "%s: expected a tensor, found %q, which is a %v", what, name, k)
	}
	return at, nil
}

// Feed moves the slots of a tuple into variables of the first block, and takes ownership of the tuple. It must be
// called before the first Resume.
func (r *Run) Feed(names []string, t *pyfeed.Tuple) error {
	defer t.Release()
	if len(t.Slots) != len(names) {
		return pyfeed.Errorf(pyfeed.Slots, "feed: tensors: expected %d, as there are names, found %d", len(names), len(t.Slots))
	}
	for i, name := range names { // check all tensors before the first change
		if err := r.CheckFeed(i, name, &t.Slots[i]); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := r.vars[r.plan.top[name]].SetTensor(&t.Slots[i]); err != nil {
			return prefixError(err, "feed")
		}
	}
	return nil
}

// CheckFeed returns an error if a tensor cannot be fed to the variable. It checks only dtype, dims and LoD.
func (r *Run) CheckFeed(i int, name string, t *pyfeed.LoDTensor) error {
	at, err := r.plan.topVariable(name, "feed")
	if err == nil {
		err = conforms(t, r.plan.variables[at].of, "feed", i)
	}
	return err
}

// Yield makes Resume return ErrYield before the next operator. It may be called on any thread.
func (r *Run) Yield() { r.yield.Store(true) }

// Call returns the foreign kernel to call after ErrKernel. The caller MUST call Answer before the next Resume.
func (r *Run) Call() *Call { return r.pending }

// Answer sets the result of the foreign kernel.
func (c *Call) Answer(err error) {
	c.err, c.done = err, true
	c.run.pending = nil
}

// Resume continues the Run. It returns nil when the Run is finished. The Run can be resumed after wait.ErrWouldBlock,
// ErrKernel and ErrYield; any other error ends it. A read at the end of the data gives io.EOF in an OpError.
//
// Each operator is first tried without waiting. Only an operator that has to wait gets ctx. Therefore the generations
// that a Parker remembers belong to one operator, and a loop may reset a reader and continue to read.
func (r *Run) Resume(ctx context.Context) error {
	for len(r.frames) > 0 {
		f := &r.frames[len(r.frames)-1]
		if f.at == len(f.code) {
			r.frames = r.frames[:len(r.frames)-1]
			continue
		}
		if r.yield.Load() { // not when all operators are done
			r.yield.Store(false)
			return ErrYield
		}
		in := &f.code[f.at]
		if in.kind.step == nil {
			if err := r.enter(f, in); err != nil {
				return r.opError(in, err)
			}
			continue
		}
		nonBlocking := wait.NonBlocking
		if trace.On() {
			nonBlocking = r.noteBegin()
		}
		err := wait.ErrWouldBlock
		if !r.waiting || ctx == wait.NonBlocking {
			err = in.kind.step(r, in, nonBlocking)
		}
		if err == wait.ErrWouldBlock && ctx != wait.NonBlocking {
			p, parked := ctx.(*wait.Parker)
			if parked {
				p.Track = r.traced.Track
			}
			if err = in.kind.step(r, in, ctx); err == nil && parked {
				p.Finish()
			}
		}
		switch err {
		case nil:
			f.at++
			r.waiting = false
			if r.opBegan != 0 {
				r.noteEnd(in)
			}
			continue
		case wait.ErrWouldBlock:
			r.waiting = true
			if r.opBegan != 0 && r.waitedAt == 0 {
				r.waitedAt = trace.Now()
			}
			return err
		case ErrKernel:
			r.pending = &r.calls[in.state]
			return err
		}
		return r.opError(in, err)
	}
	r.noteRun()
	return nil
}

// enter enters the body of an operator, or skips the operator.
func (r *Run) enter(f *frame, in *instruction) error {
	yes, err := isTrue(r.vars[in.in[0]])
	if err != nil {
		return err
	}
	body := in.body[0]
	switch {
	case in.kind == whileOp && !yes:
		body = -1
		f.at++
	case in.kind == ifElseOp:
		f.at++
		if !yes {
			body = in.body[1]
		}
	}
	if body >= 0 {
		r.frames = append(r.frames, frame{code: r.plan.code[body]})
	}
	return nil
}

// opError adds the operator and its inputs to an error.
func (r *Run) opError(in *instruction, err error) error {
	var known []string
	for i, variable := range in.in {
		known = append(known, in.op.Inputs[i]+" "+r.describeInput(variable))
	}
	r.noteRun()
	if r.isUninitialized(in) {
		err = suffixError(err, "; it is a variable of the scope: has the startup program been run in it?")
	}
	return &OpError{Block: in.block, Index: in.index, Op: in.op, Found: strings.Join(known, ", "), Cause: err}
}

// isUninitialized reports whether an input is a variable of the scope without content.
func (r *Run) isUninitialized(in *instruction) (yes bool) {
	for _, variable := range in.in {
		if r.plan.variables[variable].scope {
			r.vars[variable].With(func(c pyfeed.Content) { yes = yes || c == nil })
		}
	}
	return yes
}

// Stopped adds the current operator to err, which ended the Run from outside.
func (r *Run) Stopped(err error) error {
	for i := len(r.frames) - 1; i >= 0; i-- {
		// At the end of a body, the operator of the body is in the frame below.
		if f := &r.frames[i]; f.at < len(f.code) {
			return r.opError(&f.code[f.at], err)
		}
	}
	return err
}

// describeInput describes the content of a variable for errors.
func (r *Run) describeInput(variable int) string {
	of := r.plan.variables[variable].of
	if of.Kind != desc.Tensor {
		return of.Kind.String()
	}
	text := "without a tensor"
	_ = r.vars[variable].ReadTensor(func(t *pyfeed.LoDTensor) error {
		text = t.DType.String() + " " + dimsText(t.Dims())
		return nil
	})
	return text
}

// Fetch returns the fetched tensors, shared with their variables. The caller owns the tuple.
func (r *Run) Fetch() (*pyfeed.Tuple, error) {
	t := pyfeed.NewTuple(len(r.fetched))
	for i, at := range r.fetched {
		if err := r.vars[at].ShareTensor(&t.Slots[i]); err != nil {
			t.Release()
			return nil, prefixError(err, "fetch")
		}
	}
	return t, nil
}

// End releases everything that the Run holds. The Run MUST NOT be used afterwards.
func (r *Run) End() {
	for i := range r.calls {
		c := &r.calls[i]
		if c.begun {
			_ = c.finish(false)
		}
		if c.Kernel != nil {
			c.Kernel.drop()
			c.Kernel, c.Shared = nil, nil
		}
	}
	for i := range r.readers {
		r.readers[i].drop()
	}
	if r.tuple != nil {
		r.tuple.Release()
		r.tuple = nil
	}
	for i, c := range r.plan.variables {
		if c.scope {
			r.vars[i] = nil
		} else {
			_ = r.vars[i].Set(nil)
		}
	}
	clear(r.counts)
	r.stopOpening()
	r.frames, r.pending, r.waiting = r.frames[:0], nil, false
	r.traced.Track, r.began, r.opBegan, r.waitedAt = 0, 0, 0, 0
	r.yield.Store(false)
	r.executor.release()
	r.executor = nil
	if r.scope != nil {
		r.scope.Drop()
		r.scope = nil
	}
	r.plan.put(r)
}

// ---- Spans for the trace ----

func (r *Run) noteBegin() context.Context {
	now := trace.Now()
	r.traced.Track = r.lane.Track("run")
	if r.began == 0 {
		r.began = now
	}
	switch {
	case r.opBegan == 0:
		r.opBegan = now
	case r.waitedAt != 0:
		at := r.frames[len(r.frames)-1]
		trace.Span(r.traced.Track, trace.Wait, at.code[at.at].title, r.waitedAt, now)
		r.waitedAt = 0
	}
	return r.traced.NonBlocking()
}

// Track returns the run's track, for a kernel that reads itself; 0 without a recording.
func (r *Run) Track() trace.Track { return r.traced.Track }

func (r *Run) noteEnd(in *instruction) {
	trace.Since(r.traced.Track, in.kind.category, in.title, r.opBegan)
	r.opBegan, r.waitedAt = 0, 0
}

func (r *Run) noteRun() {
	if r.began != 0 {
		trace.Since(r.traced.Track, trace.Run, "run", r.began)
		r.lane.Done()
		r.traced.Track, r.began, r.opBegan, r.waitedAt = 0, 0, 0, 0
	}
}
