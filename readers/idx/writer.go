package idx

import (
	"cmp"
	"math"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates a file for writing. The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	w := &writer{header: header{dtype: pyfeed.Uint8}}
	w.Encode, w.Finish = w.encode, w.finish
	var err error
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
		open := func(s pyfeed.Slot) bool { return s.DType == pyfeed.Any || slices.Contains(s.Dims, -1) }
		if !slices.ContainsFunc(c.Slots, open) {
			if err = w.setSlots(c.Slots); err != nil {
				return nil, err
			}
		}
	}
	w.Sink, err = storage.CreatePatched(path, cmp.Or(record.OptionsFrom[Options](c).Compression, c.Storage.Compression))
	if err != nil {
		return nil, err
	}
	return w, nil
}

// writer writes a file. The number of instances comes first in the file but is known last, so it is overwritten at the
// end.
type writer struct {
	record.FileWriter
	header        header
	headerSet     bool   // the slots of the header are known
	headerWritten bool   // the header was written
	swapped       []byte // an instance in the file's byte order
}

// setSlots sets the slots of all instances.
func (w *writer) setSlots(slots []pyfeed.Slot) (err error) {
	if len(slots) != 1 {
		return pyfeed.Errorf(pyfeed.Slots, "idx: slots: expected 1, because a file holds one array, found %d", len(slots))
	}
	s := slots[0]
	if _, known := typeOf(s.DType); !known {
		return pyfeed.SlotErrorf(pyfeed.Type, 0, "idx: dtype: expected %s, found %v", names, s.DType)
	}
	if s.LoDLevels != 0 {
		return pyfeed.SlotErrorf(pyfeed.Shape, 0, "idx: LoD: expected 0 levels, because instances are of one size, found %d", s.LoDLevels)
	}
	for i, d := range s.Dims {
		if d < 1 || d > math.MaxUint32 {
			return pyfeed.SlotErrorf(pyfeed.Shape, 0, "idx: dimension %d: expected 1 to %d, found %d", i, uint32(math.MaxUint32), d)
		}
	}
	var t pyfeed.LoDTensor
	t.DType = s.DType
	if err = t.SetDims(s.Dims); err == nil {
		w.header.size, err = t.Measure()
	}
	if err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, 0, "idx: %v", err)
	}
	w.header.dtype, w.header.dims, w.headerSet = s.DType, slices.Clone(s.Dims), true
	w.Spec, err = pyfeed.NewSpec(slots)
	return err
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if !w.headerSet {
		if err := w.setSlots(record.DescribeTuple(t)); err != nil {
			return err
		}
	}
	h, data := &w.header, t.Slots[0].Data
	if len(data) != h.size {
		return pyfeed.SlotErrorf(pyfeed.Shape, 0, "expected %d bytes of data, found %d", h.size, len(data))
	}
	if h.count == math.MaxUint32 {
		return pyfeed.Errorf(pyfeed.TooLarge, "idx: expected at most %d instances, found one more", uint32(math.MaxUint32))
	}
	if err := w.begin(); err != nil {
		return err
	}
	if h.dtype.Size() > 1 && !record.BigEndian {
		w.swapped = append(w.swapped[:0], data...)
		h.dtype.Reverse(w.swapped)
		data = w.swapped
	}
	h.count++
	_, err := w.Sink.Write(data)
	return err
}

// begin writes the header if it was not written before, with the number of instances so far.
func (w *writer) begin() error {
	if w.headerWritten {
		return nil
	}
	w.headerWritten = true
	_, err := w.Sink.Write(w.header.bytes())
	return err
}

// finish writes the number of instances. Without tuples and slots, the file has 0 instances of uint8.
func (w *writer) finish() error {
	if err := w.begin(); err != nil {
		return err
	}
	return w.Sink.Patch(0, w.header.bytes())
}
