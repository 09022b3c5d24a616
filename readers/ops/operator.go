// Package ops has the operators that make readers: what a program names, and what pf_reader_create runs. An operator is
// described once, in a file of its own: its attributes, their checks, the slots of its reader, and how that is made. The
// registry, the schema in operators.json, the table in capi/pyfeed.h and the tests of the Python and C++ signatures are made of
// these descriptions.
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
	// make owns the references to the readers in. It waits for files at most as long as ctx goes on; with [wait.NonBlocking]
	// it returns wait.ErrWouldBlock if it would have to.
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
	Kind string `json:"kind"` // "integer", "number", "boolean", "string", "array" or "object", or two with "or" between
	// Default is what it is if left out, as JSON; nil: it MUST be given.
	Default json.RawMessage `json:"default,omitempty"`
	// Absent says what a default of null stands for.
	Absent string `json:"absent,omitempty"`
	Doc    string `json:"doc,omitempty"`
}

// definition is what an operator is described by. Its attributes are the fields of A, with these tags: json, their names;
// required, if there is no default; absent and doc, as in Attribute.
type definition[A any] struct {
	name     string
	doc      string
	inputs   Inputs
	defaults A
	// anyPlace says that tuples of the inputs may be at a device: the reader does not look at them.
	anyPlace bool
	// check says what is wrong with attributes, as far as that is possible without making a reader. nil: nothing is.
	check func(a *A) error
	// outputs are the slots of the reader, given those of its inputs, which are known; nil slots: they are not known before
	// it is made.
	outputs func(in [][]record.SlotAttributes, a *A) ([]record.SlotAttributes, error)
	// make owns the references to its inputs.
	make func(c *call, a *A) (readers.Reader, error)
}

// call is what an operator is run with.
type call struct {
	ctx   context.Context
	scope *pyfeed.Scope
	in    []*readers.ReaderHolder
}

var (
	noInput  = Inputs{0, 0}
	oneInput = Inputs{1, 1}
)

// inputSlots is the outputs of readers that deliver what they read.
func inputSlots[A any](in [][]record.SlotAttributes, _ *A) ([]record.SlotAttributes, error) {
	return in[0], nil
}

// operator makes an Operator of a definition.
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

// describeAttributes describes the fields of a struct of attributes, which has their defaults.
func describeAttributes(defaults reflect.Value) []Attribute {
	all := []Attribute{}
	for i := range defaults.NumField() {
		field := defaults.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		a := Attribute{Name: name, Kind: kindOf(field.Type), Absent: field.Tag.Get("absent"), Doc: field.Tag.Get("doc")}
		if field.Tag.Get("required") == "" {
			text, err := json.Marshal(defaults.Field(i).Interface())
			if err != nil { // an operator is defined wrongly
				panic(err)
			}
			a.Default = text
		}
		all = append(all, a)
	}
	return all
}

// kindOf is what JSON calls that which a field of this type takes.
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

// checkInputs says what is wrong with n inputs.
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
