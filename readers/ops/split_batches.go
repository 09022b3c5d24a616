package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

type splitBatchesAttributes struct {
	Rank  uint64 `json:"rank"`
	World uint64 `json:"world" required:"true"`
	Even  string `json:"even" doc:"drop, repeat or pad: what happens to a batch of a size that world does not divide"`
}

var splitBatches = definition[splitBatchesAttributes]{
	name: "create_split_batches_reader",
	doc: "The rank-th of world equal parts of each batch. The input is a batch reader whose batch_size is divisible by world. " +
		"The state of any rank can be loaded by all ranks, with any world",
	inputs:   oneInput,
	defaults: splitBatchesAttributes{Even: string(readers.EvenDrop)},
	check: func(a *splitBatchesAttributes) error {
		return decorators.CheckPart("split_batches", a.Rank, a.World, readers.Even(a.Even))
	},
	outputs: inputSlots[splitBatchesAttributes],
	make: func(c *call, a *splitBatchesAttributes) (readers.Reader, error) {
		return decorators.NewSplitBatchesReader(c.in[0], a.Rank, a.World, readers.Even(a.Even))
	},
}
