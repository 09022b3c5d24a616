package npy

import (
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A Column is an array that is being written. Each tuple's slot with the number Slot is one of its rows.
type Column struct {
	Slot  int
	Whole bool // one tuple is the whole array, not a row
	Rows  int64

	fixed bool
	dtype pyfeed.DType
	dims  pyfeed.Dims // of a row
	size  int         // bytes of a row
}

// SetSlot sets the dtype and dims of a row, unless the slot leaves them open.
func (c *Column) SetSlot(s pyfeed.Slot) error {
	if s.LoDLevels > 0 {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.Slot, "LoD: expected 0 levels, because the rows of an array are of one size, found %d", s.LoDLevels)
	}
	if s.DType != pyfeed.Any && !s.DType.Valid() {
		return pyfeed.SlotErrorf(pyfeed.Type, c.Slot, "expected a dtype, found number %d", int32(s.DType))
	}
	if s.DType == pyfeed.Any || slices.Contains(s.Dims, -1) {
		return nil
	}
	size, err := byteSize(s.DType, s.Dims)
	if err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.Slot, "%v", err)
	}
	c.dtype, c.dims, c.size, c.fixed = s.DType, slices.Clone(s.Dims), size, true
	return nil
}

// Add checks a row, or the whole array, and counts it.
func (c *Column) Add(t *pyfeed.LoDTensor) error {
	if !c.fixed {
		if err := c.SetSlot(pyfeed.Slot{DType: t.DType, Dims: t.Dims(), LoDLevels: len(t.LoD)}); err != nil {
			return err
		}
	}
	switch {
	case t.DType != c.dtype:
		return pyfeed.SlotErrorf(pyfeed.Type, c.Slot, "dtype: expected %v, as in the tuples before, found %v", c.dtype, t.DType)
	case !slices.Equal(t.Dims(), c.dims):
		return pyfeed.SlotErrorf(pyfeed.Shape, c.Slot, "dims: expected %v, as in the tuples before, because the rows of an array are of one size, found %v",
			c.dims, t.Dims())
	case len(t.LoD) > 0:
		return pyfeed.SlotErrorf(pyfeed.Shape, c.Slot, "LoD: expected 0 levels, because the rows of an array are of one size, found %d", len(t.LoD))
	case t.Place.Kind == pyfeed.CUDA:
		return pyfeed.SlotErrorf(pyfeed.Invalid, c.Slot, "place: expected memory of the host, found %v", t.Place)
	case len(t.Data) != c.size:
		return pyfeed.SlotErrorf(pyfeed.Shape, c.Slot, "expected %d bytes, dims %v of %v, found %d", c.size, c.dims, c.dtype, len(t.Data))
	case c.Whole && c.Rows > 0:
		return pyfeed.Errorf(pyfeed.Slots, "instances: expected one tuple, which is the whole file, found a second: write rows, or a file for each")
	}
	c.Rows++
	return nil
}

// Header returns the header of the array for the rows added so far. Its size does not depend on their number.
func (c *Column) Header() ([]byte, error) {
	if !c.fixed || c.Whole && c.Rows == 0 {
		return nil, pyfeed.SlotErrorf(pyfeed.State, c.Slot, "expected at least one tuple, found none: its dtype and shape are needed unless slots give them")
	}
	dims := c.dims
	if !c.Whole {
		dims = append(pyfeed.Dims{c.Rows}, dims...)
	}
	if _, err := byteSize(c.dtype, dims); err != nil {
		return nil, pyfeed.SlotErrorf(pyfeed.TooLarge, c.Slot, "%v", err)
	}
	return Header(c.dtype, dims), nil
}

// Create creates a file of one array. Each tuple is a row; with instances "file", the only tuple is the whole array.
// The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	whole, err := Whole(record.OptionsFrom[Options](c).Instances)
	if err != nil {
		return nil, err
	}
	w := &writer{column: Column{Whole: whole}}
	w.Encode, w.Finish = w.encode, w.finish
	if len(c.Slots) > 0 {
		if err = one(len(c.Slots)); err == nil {
			err = w.column.SetSlot(c.Slots[0])
		}
		if err == nil {
			w.Spec, err = pyfeed.NewSpec(c.Slots)
		}
		if err != nil {
			return nil, err
		}
	}
	if w.Sink, err = storage.CreatePatched(path, c.Storage.Compression); err != nil {
		return nil, err
	}
	return w, nil
}

func one(slots int) error {
	if slots == 1 {
		return nil
	}
	return pyfeed.Errorf(pyfeed.Slots, "slots: expected 1, because a file holds one array, found %d: npz holds many", slots)
}

// writer writes a file. The header comes first in the file but has the number of rows, so it is overwritten at the end.
type writer struct {
	record.FileWriter
	column Column
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	err := one(len(t.Slots))
	if err == nil {
		err = w.column.Add(&t.Slots[0])
	}
	if err == nil {
		err = w.begin()
	}
	if err == nil {
		_, err = w.Sink.Write(t.Slots[0].Data)
	}
	return err
}

// begin writes the header if it was not written before, with the number of rows so far.
func (w *writer) begin() error {
	if w.Sink.Offset() > 0 {
		return nil
	}
	head, err := w.column.Header()
	if err == nil {
		_, err = w.Sink.Write(head)
	}
	return err
}

// finish writes the header again, with the final number of rows.
func (w *writer) finish() error {
	if err := w.begin(); err != nil {
		return err
	}
	head, err := w.column.Header()
	if err == nil {
		err = w.Sink.Patch(0, head)
	}
	return err
}
