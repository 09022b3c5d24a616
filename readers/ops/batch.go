package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/record"
)

type batchAttributes struct {
	BatchSize uint64 `json:"batch_size" required:"true"`
	DropLast  bool   `json:"drop_last"`
	Ragged    bool   `json:"ragged"`
}

var batch = definition[batchAttributes]{
	name: "create_batch_reader",
	doc: "Joins that many tuples to one: slots whose first dimension is -1 are concatenated along it and their LoD merged; " +
		"others are stacked under a new first dimension. The last batch of a pass may be smaller, unless drop_last. A tuple whose " +
		"slots add different numbers of rows to the batch is PF_SHAPE, unless ragged. A slot with LoD adds as many rows as it has " +
		"outermost sequences; a stacked slot adds one",
	inputs: oneInput,
	check:  func(a *batchAttributes) error { return decorators.CheckBatchSize(a.BatchSize) },
	outputs: func(in [][]record.SlotAttributes, _ *batchAttributes) ([]record.SlotAttributes, error) {
		return record.BatchedSlots(in[0])
	},
	make: func(c *call, a *batchAttributes) (readers.Reader, error) {
		return decorators.NewBatchReader(c.in[0], a.BatchSize, a.DropLast, a.Ragged)
	},
}
