package program

import (
	"slices"
	"sync"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
)

// A plan is a program prepared for running. It does not change when the program does, so that many Runs share it.
type plan struct {
	variables []variable
	top       map[string]int // numbers of the variables in the first block, by name
	code      [][]instruction
	calls     []*instruction // instructions that call a kernel, indexed by state
	// Number of instructions with each kind of state.
	counters int
	readers  int
	deepest  int // the largest number of frames

	mu   sync.Mutex
	idle []*Run // finished Runs, for reuse
}

// A variable is a variable of a Run.
type variable struct {
	name  string
	of    *desc.Variable
	scope bool // it is in the scope, not in the Run
}

// An instruction is an operator prepared for running.
type instruction struct {
	kind    *operator
	op      *desc.Op
	block   int // position: the block, and the index in it
	index   int
	in, out []int            // numbers of variables
	outs    []*desc.Variable // the declarations of the outputs
	body    [2]int           // the bodies of while and if_else; -1: none
	state   int              // index of the operator's own state in a Run
	data    any              // result of prepare
	title   string           // name in traces
}

// planned returns the plan of the present program, and makes it if needed.
func (p *Program) planned() (*plan, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.plan != nil {
		return p.plan, nil
	}
	c := compiler{p: p, plan: &plan{top: make(map[string]int), code: make([][]instruction, len(p.desc.Blocks))}, variables: make(map[*desc.Variable]int)}
	for _, v := range p.desc.Blocks[0].Variables {
		c.plan.top[v.Name] = c.variable(v)
	}
	todo := []int{0}
	for len(todo) > 0 {
		block := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		c.plan.deepest = max(c.plan.deepest, p.depth[block])
		ops := p.desc.Blocks[block].Ops
		c.plan.code[block] = make([]instruction, len(ops))
		for i, op := range ops {
			in := &c.plan.code[block][i]
			if err := c.instruction(block, i, op, in); err != nil {
				return nil, &OpError{Block: block, Index: i, Op: op, Cause: err}
			}
			for _, body := range in.body {
				if body >= 0 {
					todo = append(todo, body)
				}
			}
		}
	}
	p.plan = c.plan
	return c.plan, nil
}

type compiler struct {
	p         *Program
	plan      *plan
	variables map[*desc.Variable]int
}

func (c *compiler) variable(v *desc.Variable) int {
	at, known := c.variables[v]
	if !known {
		at = len(c.plan.variables)
		c.variables[v] = at
		declared := *v
		declared.Dims = slices.Clone(v.Dims)
		c.plan.variables = append(c.plan.variables, variable{v.Name, &declared, v.Persistable})
	}
	return at
}

func (c *compiler) instruction(block, index int, op *desc.Op, in *instruction) (err error) {
	*in = instruction{kind: operators[op.Type], op: op, block: block, index: index, body: [2]int{-1, -1}, title: op.Type}
	for _, name := range op.Inputs {
		v, _ := c.p.find(block, name)
		in.in = append(in.in, c.variable(v))
	}
	for _, name := range op.Outputs {
		v, _ := c.p.find(block, name)
		at := c.variable(v)
		in.out = append(in.out, at)
		in.outs = append(in.outs, c.plan.variables[at].of)
	}
	for i, name := range bodyAttributes[op.Type] {
		if v, given := op.Attributes.Get(name); given {
			in.body[i] = int(v.Int)
		}
	}
	if in.kind.prepare != nil {
		in.data, err = in.kind.prepare(op)
	}
	switch in.kind {
	case callOp:
		in.state = len(c.plan.calls)
		in.title = valueOf(op, "kernel").Text
		c.plan.calls = append(c.plan.calls, in)
	case readOp, hasNextOp, resetOp, saveReaderOp: // those whose step calls Run.reader
		in.state = c.plan.readers
		c.plan.readers++
	case printOp:
		in.state = c.plan.counters
		c.plan.counters++
	}
	return err
}

// newRun makes a Run without a scope and kernels.
func (p *plan) newRun() *Run {
	r := &Run{
		plan:    p,
		vars:    make([]*pyfeed.Variable, len(p.variables)),
		calls:   make([]Call, len(p.calls)),
		counts:  make([]int64, p.counters),
		readers: make([]readerRef, p.readers),
		frames:  make([]frame, 0, p.deepest),
	}
	for i, c := range p.variables {
		if !c.scope {
			r.vars[i] = pyfeed.NewVariable(c.name)
		}
	}
	for i, in := range p.calls {
		r.calls[i] = newCall(r, in)
	}
	return r
}

// take returns an idle Run, or a new one.
func (p *plan) take() *Run {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		r := p.idle[n-1]
		p.idle = p.idle[:n-1]
		return r
	}
	return p.newRun()
}

// maxIdle limits the idle Runs that a plan keeps after many threads ran it.
const maxIdle = 16

func (p *plan) put(r *Run) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.idle) < maxIdle {
		p.idle = append(p.idle, r)
	}
}
