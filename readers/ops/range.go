package ops

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/sources"
)

type rangeAttributes struct {
	Count         int64   `json:"count" required:"true"`
	Shuffle       *uint64 `json:"shuffle" absent:"the numbers are in order" doc:"a seed, by which they come in another order in each pass"`
	VirtualShards int     `json:"virtual_shards" absent:"world" doc:"how many equal parts the numbers are divided into, the same for all processes of a job"`
	Rank          int     `json:"rank" doc:"the process among world: it reads the parts rank, rank+world, …, one number of each in turn"`
	World         int     `json:"world" absent:"the numbers are not divided" doc:"the number of processes, which divides virtual_shards"`
	Even          string  `json:"even" doc:"drop, repeat or pad: how all parts get the same number of tuples if virtual_shards does not divide count; pad adds the number -1"`
}

func (a *rangeAttributes) division() sources.Division {
	d := sources.Division{VirtualShards: readers.VirtualShards{Total: a.VirtualShards, Rank: a.Rank, World: a.World, Even: readers.Even(a.Even)}}
	switch {
	case a.World == 0:
		d.World = 1
	case a.VirtualShards == 0 && a.World > 0:
		d.Total, d.Implied = a.World, true
	}
	return d
}

var numbers = definition[rangeAttributes]{
	name:     "create_range_reader",
	doc:      "The numbers from 0 to below count, as int64 without dimensions",
	inputs:   noInputs,
	defaults: rangeAttributes{Count: -1, Even: string(readers.EvenDrop)},
	check: func(a *rangeAttributes) error {
		if a.Count < 0 {
			return pyfeed.Errorf(pyfeed.Invalid, "count: expected at least 0, found %d", a.Count)
		}
		return a.division().Check("create_range_reader")
	},
	outputs: func([][]record.SlotAttributes, *rangeAttributes) ([]record.SlotAttributes, error) {
		return record.NormalizeSlots([]record.SlotAttributes{{Name: "index", DType: pyfeed.Int64.String(), Dims: []int64{}}})
	},
	make: func(_ *call, a *rangeAttributes) (readers.Reader, error) {
		return sources.NewRange(a.Count, a.Shuffle, a.division())
	},
}
