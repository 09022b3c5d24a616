// Package program builds and runs programs: blocks of operators over variables, which run without Python. The package
// desc has the data of a program and its file formats. This package has the operators, the checks of a program while it
// is built, and the Executor.
package program

import (
	"slices"
	"strings"
	"sync"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// maxDepth limits the nesting of blocks, and so the time needed to find a variable of an outer block.
const maxDepth = 100

// A Program is built operator by operator. Each operator is checked when it is added. All methods are safe for
// concurrent use.
type Program struct {
	mu    sync.Mutex
	desc  *desc.Program
	names []map[string]*desc.Variable // of each block, its variables by name
	depth []int
	body  []bool // for each block, whether it is in use as the body of an operator
	users map[*desc.Variable][]site
	ops   int
	vars  int
	plan  *plan // plan of the present program, or nil
}

// A site is the position of an operator.
type site struct {
	block, index int
	op           *desc.Op
}

// New makes a Program with one empty block.
func New() *Program {
	p := empty(&desc.Program{Version: desc.FormatVersion})
	p.addBlock(-1, nil)
	return p
}

func empty(of *desc.Program) *Program {
	return &Program{desc: of, users: make(map[*desc.Variable][]site)}
}

// Drop does nothing: a Program is freed by the garbage collector. It satisfies the interface of handles.
func (p *Program) Drop() {}

// AddBlock adds a block inside parent and returns its index. The block becomes the body of an operator that is added to
// parent later.
func (p *Program) AddBlock(parent int) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkBlock(parent); err != nil {
		return 0, err
	}
	return p.addBlockChecked(parent, nil)
}

func (p *Program) addBlockChecked(parent int, unknown []byte) (int, error) {
	if len(p.desc.Blocks) == desc.MaxBlocks {
		return 0, pyfeed.Errorf(pyfeed.TooLarge, "program: expected at most %d blocks", desc.MaxBlocks)
	}
	if p.depth[parent] == maxDepth {
		return 0, pyfeed.Errorf(pyfeed.TooLarge, "block within block %d: expected blocks nested at most %d deep", parent, maxDepth)
	}
	return p.addBlock(parent, unknown), nil
}

func (p *Program) addBlock(parent int, unknown []byte) int {
	depth := 1
	if parent >= 0 {
		depth += p.depth[parent]
	}
	p.desc.Blocks = append(p.desc.Blocks, &desc.Block{Parent: parent, Unknown: unknown})
	p.names = append(p.names, make(map[string]*desc.Variable))
	p.depth = append(p.depth, depth)
	p.body = append(p.body, parent < 0)
	return len(p.desc.Blocks) - 1
}

func (p *Program) checkBlock(block int) error {
	if block < 0 || block >= len(p.desc.Blocks) {
		return pyfeed.Errorf(pyfeed.NotFound, "block: expected 0 to %d, found %d", len(p.desc.Blocks)-1, block)
	}
	return nil
}

// AddVariable adds a variable to a block. The Program takes ownership of v.
func (p *Program) AddVariable(block int, v *desc.Variable) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkBlock(block); err != nil {
		return err
	}
	return p.addVariable(block, v)
}

func (p *Program) addVariable(block int, v *desc.Variable) error {
	if v.Name == "" {
		return pyfeed.Errorf(pyfeed.Invalid, "variable: expected a name, found an empty string")
	}
	if strings.ContainsRune(v.Name, 0) { // C strings cannot contain a zero byte
		return pyfeed.Errorf(pyfeed.Invalid, "variable: expected a name without a zero byte, found %q", v.Name)
	}
	if p.names[block][v.Name] != nil {
		return pyfeed.Errorf(pyfeed.State, "variable %q: block %d has one of that name", v.Name, block)
	}
	if outer, _ := p.find(block, v.Name); outer != nil {
		for _, at := range p.users[outer] {
			if p.within(at.block, block) {
				return pyfeed.Errorf(pyfeed.State, "variable %q: block %d, op %d: %s already uses the variable of that name outside block %d, which this one would hide",
					v.Name, at.block, at.index, at.op.Type, block)
			}
		}
	}
	var err error
	switch v.Kind {
	case desc.Tensor:
		if v.Slots != nil {
			return pyfeed.Errorf(pyfeed.Invalid, "variable %q: expected slots of a reader or stage only, found those of a tensor", v.Name)
		}
		err = checkTensor(v)
	case desc.Reader, desc.Stage:
		if v.DType != pyfeed.Any || v.Shaped || v.LoDLevels != 0 {
			return pyfeed.Errorf(pyfeed.Invalid, "variable %q: expected dtype, dims and lod_levels of a tensor only; those of a %v are in its slots", v.Name, v.Kind)
		}
		err = record.CheckSlots(v.Slots)
	default:
		return pyfeed.Errorf(pyfeed.Invalid, "variable %q: kind: expected tensor, reader or stage, found number %d", v.Name, v.Kind)
	}
	if err != nil {
		return prefixError(err, "variable %q", v.Name)
	}
	if p.vars == desc.MaxVariables {
		return pyfeed.Errorf(pyfeed.TooLarge, "program: expected at most %d variables", desc.MaxVariables)
	}
	p.vars++
	p.names[block][v.Name] = v
	b := p.desc.Blocks[block]
	b.Variables = append(b.Variables, v)
	p.plan = nil
	return nil
}

func checkTensor(v *desc.Variable) error {
	if v.DType != pyfeed.Any && !v.DType.Valid() {
		return pyfeed.Errorf(pyfeed.Type, "dtype: found number %d", int32(v.DType))
	}
	if len(v.Dims) > pyfeed.MaxRank {
		return pyfeed.Errorf(pyfeed.Shape, "rank: expected at most %d dimensions, found %d", pyfeed.MaxRank, len(v.Dims))
	}
	for i, d := range v.Dims {
		if d < -1 {
			return pyfeed.Errorf(pyfeed.Shape, "dimension %d: expected a size or -1, found %d", i, d)
		}
	}
	if v.LoDLevels < 0 || v.LoDLevels > pyfeed.MaxLoDLevels {
		return pyfeed.Errorf(pyfeed.Shape, "LoD: expected 0 to %d levels, found %d", pyfeed.MaxLoDLevels, v.LoDLevels)
	}
	if v.Shaped && len(v.Dims) == 0 && v.LoDLevels > 0 {
		return pyfeed.Errorf(pyfeed.Shape, "LoD: expected a first dimension with %d levels, found a scalar", v.LoDLevels)
	}
	return nil
}

// Variable returns a copy of the description of the variable that the block sees under the given name.
func (p *Program) Variable(block int, name string) (*desc.Variable, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkBlock(block); err != nil {
		return nil, err
	}
	v, _ := p.find(block, name)
	if v == nil {
		return nil, unknownVariable(name, block)
	}
	c := *v
	return &c, nil
}

// find returns the variable that the block sees under the given name, and the block that has it.
func (p *Program) find(block int, name string) (*desc.Variable, int) {
	for ; block >= 0; block = p.desc.Blocks[block].Parent {
		if v := p.names[block][name]; v != nil {
			return v, block
		}
	}
	return nil, -1
}

// within reports whether block is outer or is nested in it.
func (p *Program) within(block, outer int) bool {
	for block > outer {
		block = p.desc.Blocks[block].Parent
	}
	return block == outer
}

func unknownVariable(name string, block int) error {
	return pyfeed.Errorf(pyfeed.NotFound, "variable %q: there is none in block %d or those around it", name, block)
}

// AddOp adds an operator at the end of a block. The Program takes ownership of op. It records what the operator
// determines about its outputs. On an error the Program is unchanged.
func (p *Program) AddOp(block int, op *desc.Op) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.checkBlock(block); err != nil {
		return err
	}
	return p.addOp(block, op)
}

func (p *Program) addOp(block int, op *desc.Op) error {
	if p.ops == desc.MaxOps {
		return pyfeed.Errorf(pyfeed.TooLarge, "program: expected at most %d operators", desc.MaxOps)
	}
	b := p.desc.Blocks[block]
	at := site{block, len(b.Ops), op}
	known, err := p.check(at)
	if err != nil {
		return err
	}
	for v, is := range known {
		*v = is
	}
	for _, body := range bodies(op) {
		p.body[body] = true
	}
	b.Ops = append(b.Ops, op)
	p.use(at)
	p.ops++
	p.plan = nil
	return nil
}

// use records the variables that an operator uses.
func (p *Program) use(at site) {
	for _, all := range [2][]string{at.op.Inputs, at.op.Outputs} {
		for _, name := range all {
			v, _ := p.find(at.block, name)
			if is := p.users[v]; len(is) == 0 || is[len(is)-1].op != at.op {
				p.users[v] = append(is, at)
			}
		}
	}
}

// Clone returns an independent copy.
func (p *Program) Clone() *Program {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := empty(p.desc.Clone())
	c.depth, c.body, c.ops, c.vars = slices.Clone(p.depth), slices.Clone(p.body), p.ops, p.vars
	for _, b := range c.desc.Blocks {
		names := make(map[string]*desc.Variable)
		for _, v := range b.Variables {
			names[v.Name] = v
		}
		c.names = append(c.names, names)
	}
	for i, b := range c.desc.Blocks {
		for j, op := range b.Ops {
			c.use(site{i, j, op})
		}
	}
	return c
}

// Desc calls f with the Program's data. It does not change during the call, and f MUST NOT change it.
func (p *Program) Desc(f func(*desc.Program)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.desc)
}

// From makes a Program from its data, and checks the data as if it were being built. It takes ownership of d.
func From(d *desc.Program) (*Program, error) {
	p := empty(&desc.Program{Version: d.Version, Unknown: d.Unknown})
	if d.Version != desc.FormatVersion {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "program: expected version %d, found %d", desc.FormatVersion, d.Version)
	}
	if len(d.Blocks) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "program: expected at least 1 block, found 0")
	}
	for i, b := range d.Blocks {
		if i == 0 {
			if b.Parent != -1 {
				return nil, pyfeed.Errorf(pyfeed.Invalid, "block 0: parent: expected -1, found %d", b.Parent)
			}
			p.addBlock(-1, b.Unknown)
		} else {
			if b.Parent < 0 || b.Parent >= i {
				return nil, pyfeed.Errorf(pyfeed.Invalid, "block %d: parent: expected a block before it, found %d", i, b.Parent)
			}
			if _, err := p.addBlockChecked(b.Parent, b.Unknown); err != nil {
				return nil, err
			}
		}
		for _, v := range b.Variables {
			if err := p.addVariable(i, v); err != nil {
				return nil, prefixError(err, "block %d", i)
			}
		}
	}
	return p, p.addAll(d)
}

// addAll adds the operators in building order: the operators of a body come before the operator that has the body.
func (p *Program) addAll(d *desc.Program) error {
	added := make([]bool, len(d.Blocks))
	type place struct{ block, op int }
	add := func(first int) error {
		added[first] = true
		for path := []place{{first, 0}}; len(path) > 0; {
			at := &path[len(path)-1]
			ops := d.Blocks[at.block].Ops
			if at.op == len(ops) {
				path = path[:len(path)-1]
				continue
			}
			op, inner := ops[at.op], -1
			for _, body := range bodies(op) {
				if body > at.block && body < len(d.Blocks) && !added[body] {
					inner = body
					break
				}
			}
			if inner >= 0 {
				added[inner] = true
				path = append(path, place{inner, 0})
				continue
			}
			if err := p.addOp(at.block, op); err != nil {
				return err
			}
			at.op++
		}
		return nil
	}
	for i := range d.Blocks { // including blocks that are not the body of an operator, so that saving keeps them
		if !added[i] {
			if err := add(i); err != nil {
				return err
			}
		}
	}
	return nil
}
