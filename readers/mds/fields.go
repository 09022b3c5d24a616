package mds

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
)

// field is a slot: which column it takes, and how.
type field struct {
	column int
	kind   kind
	slot   pyfeed.Slot // DType Any, Dims nil: the first sample tells
	ragged bool        // arrays of different lengths, as a sequence with one level of LoD (level of detail)
	given  bool        // the caller gave the slot, or it was inferred from another file
}

// fieldsOf returns the slots of a file.
func fieldsOf(path string, h *header, c *record.Config) ([]field, error) {
	names := columns.Names{Count: len(h.columns)}
	for i := range h.columns {
		names.All = append(names.All, h.columns[i].name)
	}
	wrong := func(kind pyfeed.Kind, format string, args ...any) error {
		e := pyfeed.Errorf(kind, "columns: "+format, args...)
		e.At = &pyfeed.Location{File: path, Offset: -1, Record: -1}
		return e
	}
	list := record.OptionsFrom[Options](c).Columns
	if len(list) == 0 {
		if c.Slots == nil && len(h.columns) > columns.MaxSlots {
			return nil, wrong(pyfeed.Invalid, "expected at most %d where each is a slot, found %d: give columns", columns.MaxSlots, len(h.columns))
		}
		for i := range h.columns {
			list = append(list, columns.Column{Columns: columns.Select{Items: []any{i}, Single: true}})
		}
		if c.Slots != nil && !c.Inferred {
			list = list[:min(len(list), len(c.Slots))]
			for i := range list {
				if i < len(c.Names) && c.Names[i] != "" {
					list[i].Columns.Items = []any{c.Names[i]}
				}
			}
		}
	}
	if c.Slots != nil && len(c.Slots) != len(list) {
		return nil, wrong(pyfeed.Slots, "expected as many as slots, %d, found %d", len(c.Slots), len(list))
	}
	var fields []field
	for i, item := range list {
		chosen, _, err := names.Choose(item.Columns)
		if err != nil {
			return nil, wrong(pyfeed.Invalid, "%v", err)
		}
		if len(chosen) != 1 {
			return nil, wrong(pyfeed.Invalid, "expected one column for each slot, found %d", len(chosen))
		}
		f := field{column: chosen[0]}
		col := &h.columns[f.column]
		if err := f.set(col, &item); err != nil {
			e := err.(*pyfeed.Error)
			return nil, wrong(e.Kind, "%s: %s", names.Label(f.column), e.Text)
		}
		f.slot.Name = cmp.Or(item.Name, col.name)
		if c.Slots != nil {
			f.given = true
			if s := c.Slots[i]; f.kind == array && col.encoding.dims == nil {
				f.ragged = s.LoDLevels > 0
				f.slot.LoDLevels = min(s.LoDLevels, 1)
			}
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// set sets the slot of a column as the option describes it.
func (f *field) set(col *column, item *columns.Column) error {
	e := &col.encoding
	if f.kind = e.kind; item.DType == "bytes" {
		f.kind = opaque
	}
	switch {
	case item.Default != nil:
		return pyfeed.Errorf(pyfeed.Invalid, "default: expected none, because each sample has each column, found %q", *item.Default)
	case f.kind == pickle:
		return pyfeed.Errorf(pyfeed.Unsupported, "expected data, found pickled objects of Python, which may run any code: choose other columns, or dtype \"bytes\"")
	case f.kind == foreign:
		return pyfeed.Errorf(pyfeed.Unsupported, "expected a known encoding, found %.40q: choose other columns, or dtype \"bytes\"", e.name)
	}
	f.slot = pyfeed.Slot{DType: e.dtype, Dims: slices.Clone(e.dims)}
	switch {
	case f.kind == opaque:
		f.slot = pyfeed.Slot{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}
	case f.kind == array && e.dims == nil && item.Dims != nil:
		f.slot.Dims = slices.Clone(item.Dims)
	case f.kind == array && e.dims == nil:
		f.ragged, f.slot.LoDLevels = true, 1
	}
	if item.DType != "" && item.DType != "bytes" {
		d, known := pyfeed.DTypeOf(item.DType)
		if !known || f.kind == opaque || e.dtype != pyfeed.Any && d != e.dtype {
			natural := "bytes"
			if f.kind != opaque {
				natural = e.dtype.String()
			}
			return pyfeed.Errorf(pyfeed.Type, "dtype: expected %s, as the file says, or bytes, found %s", natural, item.DType)
		}
		f.slot.DType = d
	}
	if item.Dims != nil && !(f.kind == array && e.dims == nil) && !slices.Equal(item.Dims, f.slot.Dims) {
		return pyfeed.Errorf(pyfeed.Shape, "dims: expected %v, as the file says, found %v", shown(f.slot.Dims), item.Dims)
	}
	return nil
}

func shown(dims pyfeed.Dims) string { return fmt.Sprint([]int64(dims)) }
