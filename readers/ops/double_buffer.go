package ops

import (
	"bytes"
	"encoding/json"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

type doubleBufferAttributes struct {
	Place placesAttribute `json:"place" doc:"where tuples are made ready; or a list of places, which get them in turn"`
	Depth uint64          `json:"depth" doc:"tuples made ready ahead at each"`
}

var doubleBuffer = definition[doubleBufferAttributes]{
	name:     "create_double_buffer_reader",
	doc:      "Reads ahead, in a thread of its own",
	inputs:   oneInput,
	defaults: doubleBufferAttributes{Place: placesAttribute{pyfeed.CPUPlace()}, Depth: 2},
	check: func(a *doubleBufferAttributes) error { // whether the machine has the place is not checked
		if err := decorators.CheckDepth(a.Depth); err != nil {
			return err
		}
		return decorators.CheckPlaces(a.Place)
	},
	outputs: inputSlots[doubleBufferAttributes],
	make: func(c *call, a *doubleBufferAttributes) (readers.Reader, error) {
		return decorators.NewDoubleBufferReader(c.in[0], a.Place, a.Depth)
	},
}

// placesAttribute is a place, or a list of them.
type placesAttribute []pyfeed.Place

type placeAttribute struct {
	Kind   int32 `json:"kind"`
	Device int32 `json:"device"`
}

// UnmarshalJSON reads an object, or a list of objects.
func (p *placesAttribute) UnmarshalJSON(data []byte) error {
	all := make([]placeAttribute, 1)
	var into any = &all[0]
	if data[0] == '[' {
		into = &all
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	*p = nil
	for _, a := range all {
		*p = append(*p, pyfeed.Place{Kind: pyfeed.PlaceKind(a.Kind), Device: a.Device})
	}
	return nil
}

// MarshalJSON writes an object, or a list of objects.
func (p placesAttribute) MarshalJSON() ([]byte, error) {
	all := make([]placeAttribute, len(p))
	for i, place := range p {
		all[i] = placeAttribute{int32(place.Kind), place.Device}
	}
	if len(all) == 1 {
		return json.Marshal(all[0])
	}
	return json.Marshal(all)
}
