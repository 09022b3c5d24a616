package ops

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/sources"
)

type pyArrayAttributes struct {
	FeederName string `json:"feeder_name" required:"true" doc:"the variable of the queue"`
	NoOrder    string `json:"no_order" doc:"why the tuples cannot be pushed in the same order again: states are refused with this reason"`
}

var pyArray = definition[pyArrayAttributes]{
	name:   "create_py_array_reader",
	doc:    "The tuples that are pushed into a queue",
	inputs: noInputs,
	check: func(a *pyArrayAttributes) error {
		if a.FeederName == "" {
			return pyfeed.Errorf(pyfeed.Invalid, "feeder_name: expected the name of a queue's variable, found an empty string")
		}
		return nil
	},
	outputs: func([][]record.SlotAttributes, *pyArrayAttributes) ([]record.SlotAttributes, error) {
		return nil, nil // the queue decides
	},
	make: func(c *call, a *pyArrayAttributes) (readers.Reader, error) {
		v, err := c.scope.FindVar(a.FeederName)
		if err != nil {
			return nil, err
		}
		q, err := v.Feeder()
		if err != nil {
			return nil, err
		}
		if a.NoOrder != "" {
			return sources.NewUnorderedPyArrayReader(q, a.NoOrder), nil
		}
		return sources.NewPyArrayReader(q), nil
	},
}
