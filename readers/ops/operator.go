// Package ops has the operators that make readers. Programs name them, and pf_reader_create runs them. Each operator is
// described in a file of its own: its attributes, their checks, the slots of its reader, and how the reader is made.
// From these descriptions come the registry, the schema in operators.json, the table in capi/pyfeed.h and the tests of
// the Python and C++ signatures. The comment of the list in registry.go says what a new operator needs.
package ops

import (
	"cmp"
	"context"
	"encoding/json"
	"reflect"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Operator describes an operator.
type Operator struct {
	Name       string      `json:"name"`
	Doc        string      `json:"doc"`
	Inputs     Inputs      `json:"inputs"`
	Attributes []Attribute `json:"attributes"`

	check       func(attributes []byte) error
	outputSlots func(in [][]record.SlotAttributes, attributes []byte) ([]record.SlotAttributes, error)
	// make takes over the references to the readers in. It waits for files until ctx is done; with [wait.NonBlocking]
	// it returns wait.ErrWouldBlock if it would have to wait.
	make func(ctx context.Context, scope *pyfeed.Scope, in []*readers.ReaderHolder, attributes []byte) (readers.Reader, error)
}

// Inputs is how many readers an operator reads.
type Inputs struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Attribute describes an attribute of an operator.
type Attribute struct {
	Name string `json:"name"`
	Kind string `json:"kind"` // "integer", "number", "boolean", "string", "array" or "object", or two joined by "or"
	// Default is the value of an attribute that is left out, as JSON; nil: the attribute MUST be given.
	Default json.RawMessage `json:"default,omitempty"`
	// Absent says what a default of null means.
	Absent string `json:"absent,omitempty"`
	Doc    string `json:"doc,omitempty"`
}

// definition defines an operator. The fields of A are its attributes. Their tags are json, the name; required, if there
// is no default; and absent and doc, as in Attribute.
type definition[A any] struct {
	name     string
	doc      string
	inputs   Inputs
	defaults A
	// anyPlace says that tuples of the inputs may be in device memory, because the reader does not access their data.
	anyPlace bool
	// check returns an error for attributes that are known to be invalid before a reader is made. nil: there is no
	// check.
	check func(a *A) error
	// outputs returns the slots of the reader for the slots of its inputs, which are known. It returns nil if the slots
	// are known only after the reader is made.
	outputs func(in [][]record.SlotAttributes, a *A) ([]record.SlotAttributes, error)
	// make takes over the references to its inputs.
	make func(c *call, a *A) (readers.Reader, error)
}

// call has the arguments of running an operator.
type call struct {
	ctx   context.Context
	scope *pyfeed.Scope
	in    []*readers.ReaderHolder
}

var (
	noInputs = Inputs{0, 0}
	oneInput = Inputs{1, 1}
)

// inputSlots is the outputs function of readers that deliver the tuples that they read.
func inputSlots[A any](in [][]record.SlotAttributes, _ *A) ([]record.SlotAttributes, error) {
	return in[0], nil
}

// operator makes an Operator from a definition.
func (d definition[A]) operator() *Operator {
	read := func(attributes []byte) (A, error) {
		a := d.defaults
		err := record.DecodeAttributes(d.name, attributes, &a)
		if err == nil && d.check != nil {
			err = d.check(&a)
		}
		return a, err
	}
	return &Operator{
		Name:       d.name,
		Doc:        d.doc,
		Inputs:     d.inputs,
		Attributes: describeAttributes(reflect.ValueOf(d.defaults)),
		check: func(attributes []byte) error {
			_, err := read(attributes)
			return err
		},
		outputSlots: func(in [][]record.SlotAttributes, attributes []byte) ([]record.SlotAttributes, error) {
			for _, slots := range in {
				if slots == nil {
					return nil, nil
				}
			}
			a, err := read(attributes)
			if err != nil {
				return nil, err
			}
			return d.outputs(in, &a)
		},
		make: func(ctx context.Context, scope *pyfeed.Scope, in []*readers.ReaderHolder, attributes []byte) (readers.Reader, error) {
			a, err := read(attributes)
			if !d.anyPlace {
				for _, h := range in {
					err = cmp.Or(err, h.CheckHost(d.name))
				}
			}
			if err != nil {
				for _, h := range in {
					h.Drop()
				}
				return nil, err
			}
			return d.make(&call{ctx, scope, in}, &a)
		},
	}
}

// describeAttributes describes the fields of a struct of attributes, whose values are the defaults.
func describeAttributes(defaults reflect.Value) []Attribute {
	all := []Attribute{}
	for i := range defaults.NumField() {
		field := defaults.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		a := Attribute{Name: name, Kind: kindOf(field.Type), Absent: field.Tag.Get("absent"), Doc: field.Tag.Get("doc")}
		if field.Tag.Get("required") == "" {
			text, err := json.Marshal(defaults.Field(i).Interface())
			if err != nil { // the definition is wrong
				panic(err)
			}
			a.Default = text
		}
		all = append(all, a)
	}
	return all
}

// kindOf returns the JSON name of the values that a field of this type takes.
func kindOf(t reflect.Type) string {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return "object"
	case reflect.TypeFor[placesAttribute]():
		return "object or array"
	}
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem()) + " or null"
	case reflect.Slice:
		return "array"
	case reflect.Struct:
		return "object"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	}
	return "integer"
}

// checkInputs returns an error if the operator does not take n inputs.
func (o *Operator) checkInputs(n int) error {
	if n >= o.Inputs.Min && n <= o.Inputs.Max {
		return nil
	}
	want := strconv.Itoa(o.Inputs.Min)
	if o.Inputs.Max > o.Inputs.Min {
		want += " or more"
	}
	return pyfeed.Errorf(pyfeed.Invalid, "%s: inputs: expected %s, found %d", o.Name, want, n)
}
