package ops

import (
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// operators are all there are: a new one is defined in a file of its own, and added here.
var operators = index(
	pyArray.operator(),
	openFiles.operator(),
	fileReader.operator(),
	batch.operator(),
	shuffle.operator(),
	multiPass.operator(),
	doubleBuffer.operator(),
	mapped.operator(),
	zip.operator(),
	shard.operator(),
	randomData.operator(),
)

type registry struct {
	all    []*Operator // as listed
	byName map[string]*Operator
}

func index(all ...*Operator) registry {
	r := registry{all, make(map[string]*Operator, len(all))}
	for _, o := range all {
		r.byName[o.Name] = o
	}
	return r
}

// All are the operators that make readers.
func All() []*Operator { return slices.Clone(operators.all) }

// Names are those of all operators, sorted.
func Names() []string {
	names := make([]string, 0, len(operators.all))
	for _, o := range operators.all {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

// find is the operator of that name.
func find(name string) (*Operator, error) {
	o := operators.byName[name]
	if o == nil {
		return nil, pyfeed.Errorf(pyfeed.NotFound, "operator: expected one of %s, found %q", strings.Join(Names(), ", "), name)
	}
	return o, nil
}

// Check says what is wrong with an operator of n inputs and these attributes, as far as it can be said without making its
// reader.
func Check(name string, n int, attributes []byte) error {
	o, err := find(name)
	if err != nil {
		return err
	}
	if err := o.checkInputs(n); err != nil {
		return err
	}
	return o.check(attributes)
}

// OutputSlots are the slots of the reader of an operator, which Check found good, given those of its inputs; nil: they are not
// known before it is made.
func OutputSlots(name string, in [][]record.SlotAttributes, attributes []byte) ([]record.SlotAttributes, error) {
	o, err := find(name)
	if err != nil {
		return nil, err
	}
	return o.outputSlots(in, attributes)
}
