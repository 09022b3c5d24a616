package raw

import (
	"cmp"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates a file for writing. The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	w := &writer{config: *c}
	w.Encode = w.encode
	if _, err := newLayout(&record.Config{Options: c.Options, Slots: []pyfeed.Slot{{DType: pyfeed.Uint8}}}); err != nil {
		return nil, err
	}
	var err error
	open := func(s pyfeed.Slot) bool { return s.DType == pyfeed.Any || slices.Contains(s.Dims, -1) }
	switch {
	case len(c.Slots) == 0:
	case slices.ContainsFunc(c.Slots, open):
		w.Spec, err = pyfeed.NewSpec(c.Slots)
	default:
		err = w.setSlots(c.Slots)
	}
	if err != nil {
		return nil, err
	}
	o := record.OptionsFrom[Options](c)
	if w.Sink, err = storage.Create(path, cmp.Or(o.Compression, c.Storage.Compression)); err != nil {
		return nil, err
	}
	if err := w.zeros(o.HeaderBytes); err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

type writer struct {
	record.FileWriter
	config  record.Config
	layout  *layout // nil: the first tuple decides
	swapped []byte  // a slot in the file's byte order
}

// setSlots sets the slots of all records.
func (w *writer) setSlots(slots []pyfeed.Slot) (err error) {
	c := w.config
	c.Slots = slots
	if w.layout, err = newLayout(&c); err == nil {
		w.Spec, err = pyfeed.NewSpec(slots)
	}
	return err
}

func (w *writer) zeros(n int64) error {
	var block [4096]byte
	for n > 0 {
		k, err := w.Sink.Write(block[:min(n, int64(len(block)))])
		if err != nil {
			return err
		}
		n -= int64(k)
	}
	return nil
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.layout == nil {
		if err := w.setSlots(record.DescribeTuple(t)); err != nil {
			return err
		}
	}
	for j := range w.layout.fields {
		f, data := &w.layout.fields[j], t.Slots[j].Data
		if len(data) != f.size {
			return pyfeed.SlotErrorf(pyfeed.Shape, j, "expected %d bytes of data, found %d", f.size, len(data))
		}
		if f.reversed {
			w.swapped = append(w.swapped[:0], data...)
			f.dtype.Reverse(w.swapped)
			data = w.swapped
		}
		if _, err := w.Sink.Write(data); err != nil {
			return err
		}
	}
	return nil
}
