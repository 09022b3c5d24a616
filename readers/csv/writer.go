package csv

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// create creates a file for writing. The first tuple decides what the slots leave open.
func (f format) create(path string, c *record.Config) (record.Writer, error) {
	o := record.OptionsFrom[Options](c)
	w := &writer{tag: f.tag, header: o.Header == nil || *o.Header}
	w.Names = c.Names
	w.Encode, w.Finish = w.encode, w.begin
	var err error
	if w.dialect, err = f.dialect(o); err != nil {
		return nil, err
	}
	if o.Columns != nil || o.DTypes != nil || o.Missing != nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: columns, dtypes and missing are for reading", f.tag)
	}
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
		open := func(s pyfeed.Slot) bool {
			return s.DType == pyfeed.Any || s.LoDLevels == 0 && slices.Contains(s.Dims, -1)
		}
		if !slices.ContainsFunc(c.Slots, open) {
			if err = w.setSlots(c.Slots); err != nil {
				return nil, err
			}
		}
	}
	if w.Sink, err = storage.Create(path, cmp.Or(o.Compression, c.Storage.Compression)); err != nil {
		return nil, err
	}
	return w, nil
}

type writer struct {
	record.FileWriter
	dialect
	tag     string
	header  bool
	slots   []pyfeed.Slot // nil: the first tuple decides
	columns int
	begun   bool // the header was written, if there is one
	line    []byte
}

// setSlots sets the slots of all instances.
func (w *writer) setSlots(slots []pyfeed.Slot) (err error) {
	w.columns = 0
	for i, s := range slots {
		n, err := take(s)
		if err != nil {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s: %v", w.tag, err)
		}
		if _, ok := number.KindOf(s.DType); !ok {
			return pyfeed.SlotErrorf(pyfeed.Type, i, "%s: dtype: expected real numbers, bool, or text, found %v", w.tag, s.DType)
		}
		w.columns += n
	}
	if w.columns == 0 || w.columns > columns.Max {
		return pyfeed.Errorf(pyfeed.Shape, "%s: expected instances of 1 to %d elements, a column each, found %d", w.tag, columns.Max, w.columns)
	}
	if w.Spec, err = pyfeed.NewSpec(slots); err == nil {
		w.slots = slots
	}
	return err
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.slots == nil {
		if err := w.setSlots(record.DescribeTuple(t)); err != nil {
			return err
		}
		if err := w.Spec.Check(t); err != nil {
			return err
		}
	}
	if err := w.begin(); err != nil {
		return err
	}
	w.line = w.line[:0]
	for i := range t.Slots {
		if err := w.slot(i, &t.Slots[i]); err != nil {
			return err
		}
	}
	w.line[len(w.line)-1] = '\n'
	_, err := w.Sink.Write(w.line)
	return err
}

// begin writes the names of the columns once they are known. Without tuples and slots, the file stays empty.
func (w *writer) begin() error {
	if w.begun || !w.header || w.slots == nil {
		return nil
	}
	w.begun = true
	for i, s := range w.slots {
		n, _ := take(s)
		for k := range n {
			column := w.SlotName(i)
			if len(s.Dims) > 0 && s.LoDLevels == 0 {
				column += "_" + strconv.Itoa(k)
			}
			if err := w.text(i, []byte(column)); err != nil {
				return err
			}
		}
	}
	w.line[len(w.line)-1] = '\n'
	_, err := w.Sink.Write(w.line)
	return err
}

// slot appends the fields of a slot, each followed by a delimiter.
func (w *writer) slot(i int, s *pyfeed.LoDTensor) error {
	size, err := s.Measure()
	if err != nil || size != len(s.Data) {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "expected %d bytes of data, found %d", size, len(s.Data))
	}
	if w.slots[i].LoDLevels > 0 {
		if n := s.LoD.Sequences(); n != 1 {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s: expected one text, that of an instance, found %d", w.tag, n)
		}
		return w.text(i, s.Data)
	}
	step := s.DType.Size()
	for data := s.Data; len(data) > 0; data = data[step:] {
		w.line = append(number.Append(w.line, data, s.DType), w.delimiter)
	}
	return nil
}

// text appends a field as it is, or in quotes if it would be read as something else.
func (w *writer) text(slot int, data []byte) error {
	first := len(w.line) == 0
	plain := bytes.IndexByte(data, w.delimiter) < 0 && bytes.IndexByte(data, '\n') < 0 && bytes.IndexByte(data, '\r') < 0 &&
		(w.quote == 0 || bytes.IndexByte(data, w.quote) < 0)
	if first {
		blank := len(number.Trim(data)) == 0 && w.columns == 1 // some readers skip such a line even if it contains blanks
		comment := len(data) > 0 && w.comment != 0 && data[0] == w.comment
		plain = plain && !blank && !comment && (w.Sink.Offset() > 0 || !signature(data))
	}
	if plain {
		w.line = append(append(w.line, data...), w.delimiter)
		return nil
	}
	if w.quote == 0 {
		return pyfeed.SlotErrorf(pyfeed.Invalid, slot, "%s: expected text that needs no quotes, because the option quote is empty, found %s", w.tag, quoteField(data))
	}
	w.line = append(w.line, w.quote)
	for {
		k := bytes.IndexByte(data, w.quote)
		if k < 0 {
			break
		}
		w.line = append(append(w.line, data[:k+1]...), w.quote)
		data = data[k+1:]
	}
	w.line = append(append(w.line, data...), w.quote, w.delimiter)
	return nil
}

// signature reports whether a file that begins with data may be mistaken for compressed data, or for one with a byte
// order mark.
func signature(data []byte) bool {
	for _, c := range data[:min(len(data), 4)] {
		if c < ' ' || c > '~' {
			return true
		}
	}
	return false
}
