package ops

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/sources"
)

type randomDataAttributes struct {
	Slots []record.SlotAttributes `json:"slots" required:"true"`
	Low   float64                 `json:"low"`
	High  float64                 `json:"high"`
	Seed  uint64                  `json:"seed"`
	Count int64                   `json:"count" doc:"instances a pass; -1: without end"`
}

var randomData = definition[randomDataAttributes]{
	name:     "create_random_data_generator",
	doc:      "Random numbers from low to below high; of integers, high is included",
	inputs:   noInputs,
	defaults: randomDataAttributes{High: 1, Count: -1},
	check: func(a *randomDataAttributes) error {
		slots, _, err := record.ParseSlots(a.Slots)
		if err == nil {
			_, err = pyfeed.NewSpec(slots)
		}
		if err != nil {
			return err
		}
		return sources.CheckRandomData(slots, a.Low, a.High)
	},
	outputs: func(_ [][]record.SlotAttributes, a *randomDataAttributes) ([]record.SlotAttributes, error) {
		return record.NormalizeSlots(a.Slots)
	},
	make: func(_ *call, a *randomDataAttributes) (readers.Reader, error) {
		slots, _, err := record.ParseSlots(a.Slots)
		if err != nil {
			return nil, err
		}
		return sources.NewRandomDataGenerator(slots, a.Low, a.High, a.Seed, a.Count)
	},
}
