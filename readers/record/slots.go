package record

import "github.com/pyfeed/pyfeed/pyfeed"

// SlotAttributes is a slot as attributes and descriptions say it.
type SlotAttributes struct {
	Name      string      `json:"name,omitempty"`
	DType     string      `json:"dtype"` // "float32" and the like; "" or "any": what the first tuple has
	Dims      pyfeed.Dims `json:"dims"`
	LoDLevels int         `json:"lod_levels,omitempty"`
}

// ParseSlots turns attributes into slots and names.
func ParseSlots(all []SlotAttributes) (slots []pyfeed.Slot, names []string, err error) {
	named := 0
	for i, a := range all {
		d, ok := pyfeed.Any, true
		if a.DType != "" {
			d, ok = pyfeed.DTypeOf(a.DType)
		}
		if !ok {
			return nil, nil, pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected the name of one, found %q", a.DType)
		}
		slots = append(slots, pyfeed.Slot{Name: a.Name, DType: d, Dims: a.Dims, LoDLevels: a.LoDLevels})
		names = append(names, a.Name)
		if a.Name != "" {
			named++
		}
	}
	if named == 0 {
		names = nil
	}
	return slots, names, nil
}

// DescribeSpec is what the tuples of a Spec look like, as attributes say it.
func DescribeSpec(spec *pyfeed.Spec) []SlotAttributes {
	all := make([]SlotAttributes, spec.Len())
	for i := range all {
		s := spec.Slot(i)
		all[i] = SlotAttributes{Name: s.Name, DType: s.DType.String(), Dims: s.Dims, LoDLevels: s.LoDLevels}
		if all[i].Dims == nil {
			all[i].Dims = pyfeed.Dims{}
		}
	}
	return all
}

// CheckSlots says what is wrong with slots.
func CheckSlots(all []SlotAttributes) error {
	_, err := checkSlots(all, false)
	return err
}

// NormalizeSlots is slots as DescribeSpec says them. Slots that make no sense are refused.
func NormalizeSlots(all []SlotAttributes) ([]SlotAttributes, error) { return checkSlots(all, false) }

// BatchedSlots are the slots of batches of instances of these slots.
func BatchedSlots(all []SlotAttributes) ([]SlotAttributes, error) { return checkSlots(all, true) }

func checkSlots(all []SlotAttributes, batched bool) ([]SlotAttributes, error) {
	if all == nil {
		return nil, nil
	}
	slots, _, err := ParseSlots(all)
	if err != nil {
		return nil, err
	}
	spec, err := pyfeed.NewSpec(slots)
	if err == nil && batched {
		spec, err = spec.Batched()
	}
	if err != nil {
		return nil, err
	}
	return DescribeSpec(spec), nil
}
