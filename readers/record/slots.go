package record

import "github.com/pyfeed/pyfeed/pyfeed"

// SlotAttributes is a slot in the form that attributes and descriptions have.
type SlotAttributes struct {
	Name      string      `json:"name,omitempty"`
	DType     string      `json:"dtype"` // a name such as "float32"; "" or "any": the first tuple decides
	Dims      pyfeed.Dims `json:"dims"`
	LoDLevels int         `json:"lod_levels,omitempty"`
}

// ParseSlots converts attributes to slots and names. names is nil if no slot has a name.
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

// DescribeSpec returns the slots of a Spec in the form of attributes.
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

// CheckSlots returns an error if the slots are not valid.
func CheckSlots(all []SlotAttributes) error {
	_, err := normalize(all, false)
	return err
}

// NormalizeSlots returns slots in the form that DescribeSpec returns, or an error if they are not valid.
func NormalizeSlots(all []SlotAttributes) ([]SlotAttributes, error) { return normalize(all, false) }

// BatchedSlots returns the slots of batches of such instances.
func BatchedSlots(all []SlotAttributes) ([]SlotAttributes, error) { return normalize(all, true) }

func normalize(all []SlotAttributes, batched bool) ([]SlotAttributes, error) {
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
