// Package desc is what programs consist of, as plain data, and the forms it is written in: protobuf, JSON and pictures.
package desc

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// FormatVersion is that of the saved form. A reader of another one refuses it by name; fields that are added do not
// raise it.
const FormatVersion = 1

// Program is what a program consists of, as it is saved: of which nothing has been checked.
type Program struct {
	Version uint32
	Blocks  []*Block
	Unknown []byte // protobuf fields of later releases, kept as they are; so below
}

// A Block is a sequence of operators with variables of its own. The first is the program's; every other is the body of
// one operator in its parent, whose variables, and theirs, it sees.
type Block struct {
	Parent    int // -1 for the first
	Variables []*Variable
	Ops       []*Op
	Unknown   []byte
}

// A Kind is what a variable holds.
type Kind uint8

// The kinds of variables. The numbers are those of the saved form.
const (
	Tensor Kind = iota + 1
	Reader
	Stage // what was put into the staging buffer of the executor's place, and is to be got from there
)

var kindNames = []string{"", "tensor", "reader", "stage"}

func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Variable describes a variable. What is not known when a program is built is checked when it runs.
type Variable struct {
	Name string
	Kind Kind
	// Persistable variables are those of the scope that a program runs in. The others are the run's own.
	Persistable bool

	// Of a tensor.
	DType     pyfeed.DType // Any: not known
	Dims      pyfeed.Dims  // -1 matches anything; meaningless unless Shaped
	Shaped    bool         // whether the rank is known
	LoDLevels int

	// Of what a reader delivers, or a stage holds; nil: not known.
	Slots []record.SlotAttributes

	Unknown []byte
}

// label says for a message which variable it is: the i-th of its block.
func (v *Variable) label(i int) string {
	if v.Name == "" {
		return fmt.Sprintf("variable %d", i)
	}
	return "variable " + quote(v.Name)
}

// An Op is an operator with its arguments, in the order that its type defines.
type Op struct {
	Type       string
	Inputs     []string
	Outputs    []string
	Attributes Attributes
	Where      string // it was built, such as "train.py:12"; may be ""
	Unknown    []byte
}

// Attributes are the parameters of an operator, sorted by name, each once.
type Attributes []Attribute

// An Attribute is a named Value.
type Attribute struct {
	Name  string
	Value Value
}

// Get is the Value of that name.
func (a Attributes) Get(name string) (Value, bool) {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value, true
		}
	}
	return Value{}, false
}

// A ValueKind says which field of a Value counts.
type ValueKind uint8

// The kinds of Value. The numbers are those of the saved form.
const (
	BoolValue ValueKind = iota + 1
	IntValue
	FloatValue
	TextValue
	ListValue
	MapValue
)

var valueKindNames = []string{"nothing", "true or false", "an integer", "a number", "a text", "a list", "a map"}

func (k ValueKind) String() string {
	if int(k) < len(valueKindNames) {
		return valueKindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// A Value is an attribute's: JSON's, but that integers are not floats and there is no null.
type Value struct {
	Kind  ValueKind
	Bool  bool
	Int   int64
	Float float64
	Text  string
	List  []Value
	Map   Attributes
}

// maxDepth bounds how deep lists and maps in attributes may be nested. So many maps are 100 messages within one another,
// which is as deep as other readers of protobuf go.
const maxDepth = 32

// Clone is a copy that shares nothing with the original.
func (p *Program) Clone() *Program {
	c := *p
	c.Blocks = slices.Clone(p.Blocks)
	for i, b := range c.Blocks {
		block := *b
		block.Variables = slices.Clone(b.Variables)
		for j, v := range block.Variables {
			block.Variables[j] = v.Clone()
		}
		block.Ops = slices.Clone(b.Ops)
		for j, op := range block.Ops {
			block.Ops[j] = op.Clone()
		}
		block.Unknown = slices.Clone(b.Unknown)
		c.Blocks[i] = &block
	}
	c.Unknown = slices.Clone(p.Unknown)
	return &c
}

// Clone is a copy that shares nothing with the original.
func (v *Variable) Clone() *Variable {
	c := *v
	c.Dims = slices.Clone(v.Dims)
	c.Slots = slices.Clone(v.Slots)
	for i := range c.Slots {
		c.Slots[i].Dims = slices.Clone(c.Slots[i].Dims)
	}
	c.Unknown = slices.Clone(v.Unknown)
	return &c
}

// Clone is a copy that shares nothing with the original.
func (op *Op) Clone() *Op {
	c := *op
	c.Inputs = slices.Clone(op.Inputs)
	c.Outputs = slices.Clone(op.Outputs)
	c.Attributes = op.Attributes.Clone()
	c.Unknown = slices.Clone(op.Unknown)
	return &c
}

// Clone is a copy that shares nothing with the original.
func (a Attributes) Clone() Attributes {
	c := slices.Clone(a)
	for i := range c {
		c[i].Value = c[i].Value.Clone()
	}
	return c
}

// Clone is a copy that shares nothing with the original.
func (v Value) Clone() Value {
	v.List = slices.Clone(v.List)
	for i := range v.List {
		v.List[i] = v.List[i].Clone()
	}
	v.Map = v.Map.Clone()
	return v
}
