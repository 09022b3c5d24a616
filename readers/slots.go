package readers

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// SlotAttributes is a slot as attributes and descriptions say it.
type SlotAttributes struct {
	Name      string      `json:"name,omitempty"`
	DType     string      `json:"dtype"` // "float32" and the like; "" or "any": what the first tuple has
	Dims      pyfeed.Dims `json:"dims"`
	LoDLevels int         `json:"lod_levels,omitempty"`
}

// slotsOf turns attributes into slots and names.
func slotsOf(all []SlotAttributes) (slots []pyfeed.Slot, names []string, err error) {
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

// Describe is what the tuples of a Spec look like, as attributes say it.
func Describe(spec *pyfeed.Spec) []SlotAttributes {
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

// fields are the JSON names of a struct's fields.
func fields(of any) []string {
	t := reflect.TypeOf(of)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return []string{fmt.Sprint(t)}
	}
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, fields(reflect.Zero(f.Type).Interface())...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}
