package program

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// An operator is a type of Op: its arguments, its checks when a program is built, and its execution.
type operator struct {
	ins, outs       arity
	inKind, outKind desc.Kind // kind of all inputs, and of all outputs; 0: Tensor
	attributes      []attribute
	checkedBelow    bool // check has another package check the attributes, which are not listed here
	category        trace.Category

	// check checks an Op with what is known of its variables, and records what it determines about its outputs. It may
	// be nil.
	check func(c *checking) error
	// prepare computes data for step once for each plan. It may be nil.
	prepare func(op *desc.Op) (any, error)
	// step executes the operator. It is tried again if it returns wait.ErrWouldBlock: see [Run.Resume].
	step func(r *Run, in *instruction, ctx context.Context) error
}

type arity struct{ min, max int }

const many = 1 << 10 // the maximum number of arguments

func exactly(n int) arity { return arity{n, n} }

func (a arity) String() string {
	switch {
	case a.min == a.max:
		return fmt.Sprint(a.min)
	case a.max == many:
		return fmt.Sprintf("%d or more", a.min)
	}
	return fmt.Sprintf("%d to %d", a.min, a.max)
}

// An attribute of an operator.
type attribute struct {
	name     string
	value    desc.Value // the default; its Kind is the expected kind
	required bool
	open     bool // accepts values of any kind
}

// operatorNames returns the names of all operators, sorted.
func operatorNames() []string { return slices.Sorted(maps.Keys(operators)) }

// checking is the check of one Op.
type checking struct {
	program *Program
	known   map[*desc.Variable]desc.Variable // found out during the check; replaces the variables' descriptions
	block   int
	op      *desc.Op
	kind    *operator
	in, out []*desc.Variable // copies; check records in out what it finds out
}

// check checks an Op that is being added. It returns what the Op newly determines about variables, or an error. All
// operators that already use those variables are checked again. Therefore whether a program is valid does not depend on
// the order in which its operators are added; loading adds them in another order than the user did.
func (p *Program) check(at site) (map[*desc.Variable]desc.Variable, error) {
	known := make(map[*desc.Variable]desc.Variable)
	news, err := p.checkOne(at, known)
	if err == nil {
		err = p.checkBodies(at)
	}
	if err != nil {
		return nil, p.refused(at, known, err)
	}
	for len(news) > 0 {
		v := news[len(news)-1]
		news = news[:len(news)-1]
		// Also checks the new Op again, which may use v as an input.
		for _, user := range append(slices.Clip(p.users[v]), at) {
			more, err := p.checkOne(user, known)
			if err != nil {
				other := p.refused(user, known, err)
				return nil, p.refused(at, known, prefixError(cause(err, "%v", other), "what it determines about %q conflicts with another operator", v.Name))
			}
			news = append(news, more...)
		}
	}
	return known, nil
}

// refused makes an OpError for an Op.
func (p *Program) refused(at site, known map[*desc.Variable]desc.Variable, err error) *OpError {
	var found []string
	for _, name := range at.op.Inputs {
		if v, _ := p.find(at.block, name); v != nil {
			is := *v
			if now, more := known[v]; more {
				is = now
			}
			found = append(found, name+" "+describe(&is))
		}
	}
	return &OpError{Block: at.block, Index: at.index, Op: at.op, Found: strings.Join(found, ", "), Cause: err}
}

// checkOne checks one Op, adds what it determines about its outputs to known, and returns the outputs for which that is
// new.
func (p *Program) checkOne(at site, known map[*desc.Variable]desc.Variable) (news []*desc.Variable, err error) {
	c := &checking{program: p, known: known, block: at.block, op: at.op, kind: operators[at.op.Type]}
	if c.kind == nil {
		return nil, pyfeed.Errorf(pyfeed.NotFound, "operator: expected one of %s, found %q", strings.Join(operatorNames(), ", "), c.op.Type)
	}
	if err := c.arguments(); err != nil {
		return nil, err
	}
	if err := c.checkAttributes(); err != nil {
		return nil, err
	}
	if c.kind.check == nil {
		return nil, nil
	}
	if err := c.kind.check(c); err != nil {
		return nil, err
	}
	for i, name := range c.op.Outputs {
		v, _ := p.find(at.block, name)
		before, after := c.now(v), c.out[i]
		if before.DType != after.DType || before.Shaped != after.Shaped || (before.Slots == nil) != (after.Slots == nil) {
			known[v] = *after
			news = append(news, v)
		}
	}
	return news, nil
}

// now returns what is known of a variable at this point of the check.
func (c *checking) now(v *desc.Variable) *desc.Variable {
	is := *v
	if more, there := c.known[v]; there {
		is = more
	}
	return &is
}

func (c *checking) arguments() error {
	for i, name := range c.op.Inputs {
		v, _ := c.program.find(c.block, name)
		if v == nil {
			return prefixError(unknownVariable(name, c.block), "input %d", i)
		}
		c.in = append(c.in, c.now(v))
	}
	seen := make(map[*desc.Variable]bool)
	for i, name := range c.op.Outputs {
		v, _ := c.program.find(c.block, name)
		if v == nil {
			return prefixError(unknownVariable(name, c.block), "output %d", i)
		}
		if seen[v] {
			return pyfeed.Errorf(pyfeed.Invalid, "output %d: expected each output once, found %q twice", i, name)
		}
		seen[v] = true
		c.out = append(c.out, c.now(v))
	}
	if err := count("inputs", c.kind.ins, len(c.in)); err != nil {
		return err
	}
	if err := count("outputs", c.kind.outs, len(c.out)); err != nil {
		return err
	}
	if err := kinds("input", c.in, c.kind.inKind); err != nil {
		return err
	}
	return kinds("output", c.out, c.kind.outKind)
}

func count(what string, want arity, found int) error {
	if found < want.min || found > want.max {
		return pyfeed.Errorf(pyfeed.Slots, "%s: expected %v, found %d", what, want, found)
	}
	return nil
}

func kinds(what string, all []*desc.Variable, want desc.Kind) error {
	if want == 0 {
		want = desc.Tensor
	}
	for i, v := range all {
		if v.Kind != want {
			return pyfeed.Errorf(pyfeed.Invalid, "%s %d: expected a %v, found %q, which is a %v", what, i, want, v.Name, v.Kind)
		}
	}
	return nil
}

func (c *checking) checkAttributes() error {
	if c.kind.checkedBelow {
		return nil
	}
	if c.kind.attributes == nil && c.kind.prepare == nil && len(c.op.Attributes) > 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "attributes: expected none, found %q", c.op.Attributes[0].Name)
	}
	for _, a := range c.op.Attributes {
		at := slices.IndexFunc(c.kind.attributes, func(k attribute) bool { return k.name == a.Name })
		if at < 0 {
			var names []string
			for _, k := range c.kind.attributes {
				names = append(names, k.name)
			}
			return pyfeed.Errorf(pyfeed.Invalid, "attributes: expected %s, found %q", strings.Join(names, ", "), a.Name)
		}
		k := c.kind.attributes[at]
		number := k.value.Kind == desc.FloatValue && a.Value.Kind == desc.IntValue
		if !k.open && a.Value.Kind != k.value.Kind && !number {
			return pyfeed.Errorf(pyfeed.Invalid, "attribute %q: expected %v, found %v", a.Name, k.value.Kind, a.Value.Kind)
		}
	}
	for _, k := range c.kind.attributes {
		if _, given := c.op.Attributes.Get(k.name); k.required && !given {
			return pyfeed.Errorf(pyfeed.Invalid, "attributes: expected %q, which was not given", k.name)
		}
	}
	return nil
}

// valueOf returns an attribute's Value, or its default.
func valueOf(op *desc.Op, name string) desc.Value {
	if v, given := op.Attributes.Get(name); given {
		return v
	}
	for _, k := range operators[op.Type].attributes {
		if k.name == name {
			return k.value
		}
	}
	return desc.Value{}
}

// dimsOf returns the value of an attribute that is a list of sizes.
func dimsOf(op *desc.Op, name string) (pyfeed.Dims, error) {
	list := valueOf(op, name).List
	if len(list) > pyfeed.MaxRank {
		return nil, pyfeed.Errorf(pyfeed.Shape, "attribute %q: expected at most %d dimensions, found %d", name, pyfeed.MaxRank, len(list))
	}
	dims := pyfeed.Dims{}
	for i, v := range list {
		if v.Kind != desc.IntValue || v.Int < 0 {
			return nil, pyfeed.Errorf(pyfeed.Shape, "attribute %q: dimension %d: expected a size, found %v", name, i, v)
		}
		dims = append(dims, v.Int)
	}
	return dims, nil
}

// note records the dtype, dims and LoD levels of output i. It fails if they contradict what is known, and keeps what is
// known more precisely.
func (c *checking) note(i int, dtype pyfeed.DType, dims pyfeed.Dims, shaped bool, lodLevels int) error {
	v := c.out[i]
	if dtype != pyfeed.Any {
		if v.DType != pyfeed.Any && v.DType != dtype {
			return pyfeed.SlotErrorf(pyfeed.Type, i, "output %q: dtype: expected %v, as declared, found %v", v.Name, v.DType, dtype)
		}
		v.DType = dtype
	}
	if !shaped {
		return nil
	}
	if !v.Shaped {
		v.Dims, v.Shaped, v.LoDLevels = slices.Clone(dims), true, lodLevels
		return nil
	}
	fits := len(dims) == len(v.Dims)
	for j := range dims {
		fits = fits && (dims[j] == v.Dims[j] || dims[j] == -1 || v.Dims[j] == -1)
	}
	if !fits {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "output %q: expected dims %s, as declared, found %s", v.Name, dimsText(v.Dims), dimsText(dims))
	}
	if v.LoDLevels != lodLevels {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "output %q: LoD: expected %d levels, as declared, found %d", v.Name, v.LoDLevels, lodLevels)
	}
	return nil
}

// conforms returns an error if a tensor does not match the declaration of a variable.
func conforms(t *pyfeed.LoDTensor, v *desc.Variable, what string, i int) error {
	return checkConforms(t.DType, t.Dims(), len(t.LoD), v, what, i)
}

func checkConforms(dtype pyfeed.DType, found pyfeed.Dims, lodLevels int, v *desc.Variable, what string, i int) error {
	if v.DType != pyfeed.Any && dtype != v.DType {
		return pyfeed.SlotErrorf(pyfeed.Type, i, "%s %q: dtype: expected %v, found %v", what, v.Name, v.DType, dtype)
	}
	if !v.Shaped {
		return nil
	}
	fits := len(found) == len(v.Dims)
	for j := 0; fits && j < len(found); j++ {
		fits = v.Dims[j] == -1 || v.Dims[j] == found[j]
	}
	if !fits {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s %q: expected dims %s, found %s", what, v.Name, dimsText(v.Dims), dimsText(found))
	}
	if lodLevels != v.LoDLevels {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s %q: LoD: expected %d levels, found %d", what, v.Name, v.LoDLevels, lodLevels)
	}
	return nil
}

// describe describes what is known of a variable for errors.
func describe(v *desc.Variable) string {
	if v.Kind != desc.Tensor {
		return v.Kind.String()
	}
	s := "tensor"
	if v.DType != pyfeed.Any {
		s = v.DType.String()
	}
	if v.Shaped {
		s += " " + dimsText(v.Dims)
	}
	return s
}

func dimsText(dims pyfeed.Dims) string {
	var s []string
	for _, d := range dims {
		s = append(s, fmt.Sprint(d))
	}
	if len(s) == 1 {
		return "(" + s[0] + ",)"
	}
	return "(" + strings.Join(s, ", ") + ")"
}

func intValue(i int64) desc.Value   { return desc.Value{Kind: desc.IntValue, Int: i} }
func boolValue(b bool) desc.Value   { return desc.Value{Kind: desc.BoolValue, Bool: b} }
func textValue(s string) desc.Value { return desc.Value{Kind: desc.TextValue, Text: s} }

// limited returns an integer attribute. It fails if the value is below least.
func limited(op *desc.Op, name string, least int64) (int64, error) {
	n := valueOf(op, name).Int
	if n < least {
		return 0, pyfeed.Errorf(pyfeed.Invalid, "attribute %q: expected at least %d, found %d", name, least, n)
	}
	return n, nil
}
