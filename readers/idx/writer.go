package idx

import (
	"cmp"
	"math"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create begins to write a file. What the slots leave open, the first tuple decides.
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
			if err = w.settle(c.Slots); err != nil {
				return nil, err
			}
		}
	}
	w.Sink, err = storage.CreatePatched(path, cmp.Or(record.OptionsOf[Options](c).Compression, c.Storage.Compression))
	if err != nil {
		return nil, err
	}
	return w, nil
}

// writer writes. The number of instances comes first in the file and is known last: it is written over in the end.
type writer struct {
	record.FileWriter
	header  header
	settled bool   // the header is decided
	begun   bool   // the header is written
	turned  []byte // an instance in the file's byte order
}

// settle fixes what instances look like.
func (w *writer) settle(slots []pyfeed.Slot) (err error) {
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
	w.header.dtype, w.header.dims, w.settled = s.DType, slices.Clone(s.Dims), true
	w.Spec, err = pyfeed.NewSpec(slots)
	return err
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if !w.settled {
		if err := w.settle(record.DescribeTuple(t)); err != nil {
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
		w.turned = append(w.turned[:0], data...)
		h.dtype.Reverse(w.turned)
		data = w.turned
	}
	h.count++
	_, err := w.Sink.Write(data)
	return err
}

// begin writes the header once, with the number of instances there is by then.
func (w *writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	_, err := w.Sink.Write(w.header.bytes())
	return err
}

// finish writes the number of instances. Without any tuple and without slots, they are of no bytes, uint8.
func (w *writer) finish() error {
	if err := w.begin(); err != nil {
		return err
	}
	return w.Sink.Patch(0, w.header.bytes())
}
