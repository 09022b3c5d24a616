package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

type shardAttributes struct {
	Rank  uint64 `json:"rank"`
	World uint64 `json:"world" required:"true"`
}

var shard = definition[shardAttributes]{
	name:    "create_shard_reader",
	doc:     "Every world-th tuple, from the rank-th on",
	inputs:  oneInput,
	check:   func(a *shardAttributes) error { return decorators.CheckShard(a.Rank, a.World) },
	outputs: inputSlots[shardAttributes],
	make: func(c *call, a *shardAttributes) (readers.Reader, error) {
		return decorators.NewShardReader(c.in[0], a.Rank, a.World)
	},
}
