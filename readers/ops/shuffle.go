package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

type shuffleAttributes struct {
	BufferSize uint64 `json:"buffer_size" required:"true" doc:"tuples of a block"`
	Seed       uint64 `json:"seed"`
}

var shuffle = definition[shuffleAttributes]{
	name:    "create_shuffle_reader",
	doc:     "Block by block, the next one is read while this one is served; one order for one seed, another each pass",
	inputs:  oneInput,
	check:   func(a *shuffleAttributes) error { return decorators.CheckBufferSize(a.BufferSize) },
	outputs: inputSlots[shuffleAttributes],
	make: func(c *call, a *shuffleAttributes) (readers.Reader, error) {
		return decorators.NewShuffleReader(c.in[0], a.BufferSize, a.Seed)
	},
}
