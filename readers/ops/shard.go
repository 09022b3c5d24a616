package ops

import (
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

type shardAttributes struct {
	Rank  uint64 `json:"rank"`
	World uint64 `json:"world" required:"true"`
	Even  string `json:"even" doc:"drop, repeat or pad: all parts get the same number of tuples; empty: they may differ by one"`
}

var shard = definition[shardAttributes]{
	name:   "create_shard_reader",
	doc:    "Every world-th tuple, from the rank-th on",
	inputs: oneInput,
	check: func(a *shardAttributes) error {
		return decorators.CheckShard(a.Rank, a.World, readers.Even(a.Even))
	},
	outputs: inputSlots[shardAttributes],
	make: func(c *call, a *shardAttributes) (readers.Reader, error) {
		return decorators.NewShardReader(c.in[0], a.Rank, a.World, readers.Even(a.Even))
	},
}
