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

// What Resume answers when a Run is not over but its caller has something to do.
var (
	ErrKernel = errors.New("a foreign kernel is to be called") // see Run.Call
	ErrYield  = errors.New("the caller is to look around")     // it was asked for by Yield
)

// A Run is a program on its way. It belongs to one caller; only Yield is for others.
//
// It is a loop over frames, one for each block that it is in, rather than calls within calls: so it can be left at any
// operator that has to wait, its thread can sleep outside Go, and no nesting of blocks makes a stack grow.
type Run struct {
	plan     *plan
	executor *Executor
	pool     *memory.Pool
	place    pyfeed.Place
	scope    *pyfeed.Scope
	vars     []*pyfeed.Variable // by number
	fetched  []int              // numbers of variables
	frames   []frame
	calls    []Call
	counts   []int64
	readers  []readerRef
	pending  *Call        // the foreign kernel that is to be called
	opening  *ops.Opening // of the operator it is at, if that takes long; else nil
	waiting  bool         // the operator it is at has been begun, and would have blocked
	yield    atomic.Bool

	tuple    *pyfeed.Tuple // on its way into the staging buffer
	operands [2]pyfeed.LoDTensor
	element  [2][16]byte
	text     []byte

	lane                     trace.Lane
	traced                   wait.Traced // its track, for those that record what they do for it
	began, opBegan, waitedAt int64
}

// A frame is a block that the Run is in, and where.
type frame struct {
	code []instruction
	at   int
}

// bind gives a Run its scope, its kernels and the variables to be fetched.
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

// Feed moves the slots of a tuple, which it takes over, into variables of the first block. Before the first Resume.
func (r *Run) Feed(names []string, t *pyfeed.Tuple) error {
	defer t.Release()
	if len(t.Slots) != len(names) {
		return pyfeed.Errorf(pyfeed.Slots, "feed: tensors: expected %d, as there are names, found %d", len(names), len(t.Slots))
	}
	for i, name := range names { // all of them, before anything is changed
		if err := r.CheckFeed(i, name, &t.Slots[i]); err != nil {
			return err
		}
	}
	for i, name := range names {
		if err := r.vars[r.plan.top[name]].SetTensor(&t.Slots[i]); err != nil {
			return about(err, "feed")
		}
	}
	return nil
}

// CheckFeed says what is wrong with a tensor to be fed, of which only dtype, dims and LoD are looked at.
func (r *Run) CheckFeed(i int, name string, t *pyfeed.LoDTensor) error {
	at, err := r.plan.topVariable(name, "feed")
	if err == nil {
		err = conforms(t, r.plan.variables[at].of, "feed", i)
	}
	return err
}

// Yield has Resume answer ErrYield before the next operator. Any thread.
func (r *Run) Yield() { r.yield.Store(true) }

// Call is the foreign kernel that is to be called; Answer MUST follow before the next Resume.
func (r *Run) Call() *Call { return r.pending }

// Answer says how the foreign kernel ended.
func (c *Call) Answer(err error) {
	c.err, c.done = err, true
	c.run.pending = nil
}

// Resume goes on from where the Run is. nil: it is over. Of other answers, only wait.ErrWouldBlock, ErrKernel and
// ErrYield let it be resumed again; io.EOF, in an OpError, is a read at the end of the data.
//
// Each operator is first tried without a wait; only one that has to wait gets to see ctx. So the generations that a
// Parker remembers are those of one operator: a loop may reset a reader and read on.
func (r *Run) Resume(ctx context.Context) error {
	for len(r.frames) > 0 {
		f := &r.frames[len(r.frames)-1]
		if f.at == len(f.code) {
			r.frames = r.frames[:len(r.frames)-1]
			continue
		}
		if r.yield.Load() { // not at the very end, when all is done
			r.yield.Store(false)
			return ErrYield
		}
		in := &f.code[f.at]
		if in.kind.step == nil {
			if err := r.enter(f, in); err != nil {
				return r.failed(in, err)
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
		return r.failed(in, err)
	}
	r.noteRun()
	return nil
}

// enter goes into a body, or past the operator.
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

// failed is an error of an operator, with what it was about.
func (r *Run) failed(in *instruction, err error) error {
	var known []string
	for i, variable := range in.in {
		known = append(known, in.op.Inputs[i]+" "+r.found(variable))
	}
	r.noteRun()
	if r.isUninitialized(in) {
		err = followed(err, "; it is the scope's: has the startup program been run in it?")
	}
	return &OpError{Block: in.block, Index: in.index, Op: in.op, Found: strings.Join(known, ", "), Cause: err}
}

// isUninitialized says whether an input is a variable of the scope that nobody has put anything in.
func (r *Run) isUninitialized(in *instruction) (yes bool) {
	for _, variable := range in.in {
		if r.plan.variables[variable].scope {
			r.vars[variable].With(func(c pyfeed.Content) { yes = yes || c == nil })
		}
	}
	return yes
}

// Stopped is err, which ended the Run from outside, with the operator that it was at.
func (r *Run) Stopped(err error) error {
	for i := len(r.frames) - 1; i >= 0; i-- {
		if f := &r.frames[i]; f.at < len(f.code) { // else the end of a body, whose operator is in the block around it
			return r.failed(&f.code[f.at], err)
		}
	}
	return err
}

// found is what is in a variable, in a few words.
func (r *Run) found(variable int) string {
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

// Fetch shares the tensors that were asked for.
func (r *Run) Fetch() (*pyfeed.Tuple, error) {
	t := pyfeed.NewTuple(len(r.fetched))
	for i, at := range r.fetched {
		if err := r.vars[at].ShareTensor(&t.Slots[i]); err != nil {
			t.Release()
			return nil, about(err, "fetch")
		}
	}
	return t, nil
}

// End lets go of everything. The Run MUST NOT be used afterwards.
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
	r.executor.leave()
	r.executor = nil
	if r.scope != nil {
		r.scope.Drop()
		r.scope = nil
	}
	r.plan.put(r)
}

// ---- What the trace gets to know ----

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

// Track is that of the run, for a kernel that reads itself; 0 without a recording.
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
