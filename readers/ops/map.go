package ops

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/record"
)

type mapAttributes struct {
	Slots    []record.SlotAttributes `json:"slots" absent:"those of the reader below"`
	Capacity uint64                  `json:"capacity" doc:"tuples taken and not yet delivered"`
	Ordered  bool                    `json:"ordered"`
	Seed     *uint64                 `json:"seed" absent:"none" doc:"the seed of the random numbers in the workers' functions; pf_reader_set_state compares it"`
}

// mapCapacity is the default capacity of a map. Python's default grows with the number of its threads.
const mapCapacity = 16

var mapped = definition[mapAttributes]{
	name:     "create_map_reader",
	doc:      "What workers make of the tuples: see pf_map_workers_next",
	inputs:   oneInput,
	defaults: mapAttributes{Capacity: mapCapacity, Ordered: true},
	check: func(a *mapAttributes) error {
		if err := record.CheckSlots(a.Slots); err != nil {
			return err
		}
		return decorators.CheckMapCapacity(a.Capacity)
	},
	outputs: func(in [][]record.SlotAttributes, a *mapAttributes) ([]record.SlotAttributes, error) {
		if a.Slots == nil {
			return in[0], nil
		}
		return record.NormalizeSlots(a.Slots)
	},
	make: func(c *call, a *mapAttributes) (readers.Reader, error) {
		var spec *pyfeed.Spec
		if a.Slots != nil {
			slots, _, err := record.ParseSlots(a.Slots)
			if err == nil {
				spec, err = pyfeed.NewSpec(slots)
			}
			if err != nil {
				c.in[0].Drop()
				return nil, err
			}
		}
		return decorators.NewMapReader(c.in[0], spec, a.Capacity, a.Ordered, a.Seed)
	},
}
