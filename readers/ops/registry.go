package ops

import (
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// operators has all operators. A new one, such as shard, needs:
//   - its file here, and a line in this list
//   - its reader in readers/decorators, which is Resumable and knows its Length
//   - go test ./readers/ops -update, which writes operators.json and the table in capi/pyfeed.h
//   - methods in capi/pyfeed/reader.hpp, capi/pyfeed/layers.hpp, python/pyfeed/_reader.py and
//     python/pyfeed/program/layers.py
//   - rows in the tables of tests/python (test_operators.py, argument_table.py, test_reset_below.py) and of
//     program/adversarial_test.go
//   - its section in docs/readers.md, and rows in the tables of docs/resume.md and docs/program.md
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
	splitBatches.operator(),
	randomData.operator(),
	numbers.operator(),
)

type registry struct {
	all    []*Operator // in the order of the list
	byName map[string]*Operator
}

func index(all ...*Operator) registry {
	r := registry{all, make(map[string]*Operator, len(all))}
	for _, o := range all {
		r.byName[o.Name] = o
	}
	return r
}

// All returns the operators that make readers.
func All() []*Operator { return slices.Clone(operators.all) }

// names returns the names of all operators, sorted.
func names() []string {
	names := make([]string, 0, len(operators.all))
	for _, o := range operators.all {
		names = append(names, o.Name)
	}
	slices.Sort(names)
	return names
}

// find returns the operator of that name.
func find(name string) (*Operator, error) {
	o := operators.byName[name]
	if o == nil {
		return nil, pyfeed.Errorf(pyfeed.NotFound, "operator: expected one of %s, found %q", strings.Join(names(), ", "), name)
	}
	return o, nil
}

// Check returns an error for an operator with n inputs and these attributes, as far as errors are known before the
// reader is made.
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

// OutputSlots returns the slots of the reader of an operator that Check has accepted, for the slots of its inputs. nil:
// they are known only after the reader is made.
func OutputSlots(name string, in [][]record.SlotAttributes, attributes []byte) ([]record.SlotAttributes, error) {
	o, err := find(name)
	if err != nil {
		return nil, err
	}
	return o.outputSlots(in, attributes)
}
