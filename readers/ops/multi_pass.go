package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

type multiPassAttributes struct {
	PassNum uint64 `json:"pass_num" doc:"0 goes on for ever"`
}

var multiPass = definition[multiPassAttributes]{
	name:     "create_multi_pass_reader",
	doc:      "Resets the reader below at the end of each pass",
	inputs:   oneInput,
	anyPlace: true,
	check:    func(a *multiPassAttributes) error { return decorators.CheckPassNum(a.PassNum) },
	outputs:  inputSlots[multiPassAttributes],
	make: func(c *call, a *multiPassAttributes) (readers.Reader, error) {
		return decorators.NewMultiPassReader(c.in[0], a.PassNum)
	},
}
