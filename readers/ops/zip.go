package ops

import (
	"slices"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/record"
)

type zipAttributes struct {
	Strict bool `json:"strict" doc:"readers that do not end together are an error"`
}

var zip = definition[zipAttributes]{
	name:   "create_zip_reader",
	doc:    "Joins the slots of its readers",
	inputs: Inputs{2, 1 << 10},
	outputs: func(in [][]record.SlotAttributes, _ *zipAttributes) ([]record.SlotAttributes, error) {
		return slices.Concat(in...), nil
	},
	make: func(c *call, a *zipAttributes) (readers.Reader, error) {
		return decorators.NewZipReader(c.in, a.Strict)
	},
}
