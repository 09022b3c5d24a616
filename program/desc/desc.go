// Package desc has the data of programs, and their forms: protobuf, JSON and diagrams.
package desc

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// FormatVersion is the version of the saved form. A reader of another version refuses the program. New fields do not
// change the version.
const FormatVersion = 1

// Program is the data of a program as it is saved. It has not been checked.
type Program struct {
	Version uint32
	Blocks  []*Block
	Unknown []byte // protobuf fields of later releases, kept unchanged; likewise in the types below
}

// A Block is a sequence of operators with variables. The first block is the program's. Every other block is the body of
// one operator in its parent, and sees the variables of its parent and of all blocks around that.
type Block struct {
	Parent    int // -1 for the first
	Variables []*Variable
	Ops       []*Op
	Unknown   []byte
}

// A Kind is the kind of a variable's content.
type Kind uint8

// The kinds of variables. The saved form uses the same numbers.
const (
	Tensor Kind = iota + 1
	Reader
	Stage // tuples in the staging buffer of the executor's place
)

var kindNames = []string{"", "tensor", "reader", "stage"}

func (k Kind) String() string {
	if int(k) < len(kindNames) && k > 0 {
		return kindNames[k]
	}
	return "kind " + strconv.Itoa(int(k))
}

// Variable describes a variable. Whatever is not known when a program is built is checked when it runs.
type Variable struct {
	Name string
	Kind Kind
	// Persistable variables are in the scope in which a program runs. The others belong to the run.
	Persistable bool

	// Fields of a tensor.
	DType     pyfeed.DType // Any: not known
	Dims      pyfeed.Dims  // -1 matches any size; unused unless Shaped
	Shaped    bool         // the rank is known
	LoDLevels int

	// Slots of a reader's tuples, or of staged tuples; nil: not known.
	Slots []record.SlotAttributes

	Unknown []byte
}

// label names the variable for messages. i is its index in the block.
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
	Where      string // source line that added it, such as "train.py:12"; may be ""
	Unknown    []byte
}

// Attributes are the parameters of an operator, sorted by name. Names are unique.
type Attributes []Attribute

// An Attribute is a named Value.
type Attribute struct {
	Name  string
	Value Value
}

// Get returns the Value of the given name.
func (a Attributes) Get(name string) (Value, bool) {
	for i := range a {
		if a[i].Name == name {
			return a[i].Value, true
		}
	}
	return Value{}, false
}

// A ValueKind says which field of a Value is in use.
type ValueKind uint8

// The kinds of Value. The saved form uses the same numbers.
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

// A Value is the value of an attribute. It can be any JSON value except null, with integers and floats told apart.
type Value struct {
	Kind  ValueKind
	Bool  bool
	Int   int64
	Float float64
	Text  string
	List  []Value
	Map   Attributes
}

// maxDepth limits the nesting of lists and maps in attributes. This many maps make about 100 nested protobuf messages,
// which is the limit of other protobuf readers.
const maxDepth = 32

// Clone returns a copy that shares no memory with the original.
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

// Clone returns a copy that shares no memory with the original.
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

// Clone returns a copy that shares no memory with the original.
func (op *Op) Clone() *Op {
	c := *op
	c.Inputs = slices.Clone(op.Inputs)
	c.Outputs = slices.Clone(op.Outputs)
	c.Attributes = op.Attributes.Clone()
	c.Unknown = slices.Clone(op.Unknown)
	return &c
}

// Clone returns a copy that shares no memory with the original.
func (a Attributes) Clone() Attributes {
	c := slices.Clone(a)
	for i := range c {
		c[i].Value = c[i].Value.Clone()
	}
	return c
}

// Clone returns a copy that shares no memory with the original.
func (v Value) Clone() Value {
	v.List = slices.Clone(v.List)
	for i := range v.List {
		v.List[i] = v.List[i].Clone()
	}
	v.Map = v.Map.Clone()
	return v
}
