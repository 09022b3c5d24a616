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
	doc:     "Shuffles block by block; the next block is read while the current one is served. The seed determines the order, which differs from pass to pass",
	inputs:  oneInput,
	check:   func(a *shuffleAttributes) error { return decorators.CheckBufferSize(a.BufferSize) },
	outputs: inputSlots[shuffleAttributes],
	make: func(c *call, a *shuffleAttributes) (readers.Reader, error) {
		return decorators.NewShuffleReader(c.in[0], a.BufferSize, a.Seed)
	},
}
