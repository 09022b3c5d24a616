package jsonl

import (
	"cmp"
	"fmt"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates a file for writing. A tuple becomes an object with a name for each slot, "slot0" and so on unless
// there are names. Numbers of several dimensions, or with a LoD (level of detail), become lists. The last level of
// uint8 with one dimension is that of text, which MUST be UTF-8. NaN and infinities are errors.
func Create(path string, c *record.Config) (record.Writer, error) {
	o := record.OptionsFrom[Options](c)
	if o.Columns != nil || o.DTypes != nil || o.Default != nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: columns, dtypes and default are for reading", tag)
	}
	w := &writer{}
	w.Names = c.Names
	w.Encode = w.encode
	var err error
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
		if err = w.setNames(len(c.Slots)); err != nil {
			return nil, err
		}
	}
	if w.Sink, err = storage.Create(path, cmp.Or(o.Compression, c.Storage.Compression)); err != nil {
		return nil, err
	}
	return w, nil
}

type writer struct {
	record.FileWriter
	names []string // as they are written; nil: the first tuple decides how many there are
	line  []byte
}

// setNames prepares the names of n slots, with the quotes and the colon.
func (w *writer) setNames(n int) error {
	seen := make(map[string]bool)
	for i := range n {
		name := w.SlotName(i)
		if seen[name] {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: expected names that differ, found %q twice", tag, name)
		}
		seen[name] = true
		if err := record.CheckName(i, tag, name); err != nil {
			return err
		}
		text := append(appendText(nil, []byte(name)), ": "...)
		w.names = append(w.names, string(text))
	}
	return nil
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.names == nil {
		if err := w.setNames(len(t.Slots)); err != nil {
			return err
		}
	}
	if len(t.Slots) != len(w.names) {
		return pyfeed.Errorf(pyfeed.Slots, "%s: slots: expected %d, as in the first tuple, found %d", tag, len(w.names), len(t.Slots))
	}
	w.line = append(w.line[:0], '{')
	for i := range t.Slots {
		if i > 0 {
			w.line = append(w.line, ", "...)
		}
		w.line = append(w.line, w.names[i]...)
		if err := w.slot(i, &t.Slots[i]); err != nil {
			return err
		}
	}
	w.line = append(w.line, '}', '\n')
	_, err := w.Sink.Write(w.line)
	return err
}

// slot appends the value of a slot.
func (w *writer) slot(i int, s *pyfeed.LoDTensor) error {
	size, err := s.Measure()
	if err == nil {
		err = s.CheckLoD()
	}
	switch {
	case err != nil:
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s: %v", tag, err)
	case size != len(s.Data):
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s: expected %d bytes of data, found %d", tag, size, len(s.Data))
	case len(s.LoD) > 0 && s.LoD.Sequences() != 1:
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%s: expected one sequence, that of an instance, found a batch of %d", tag, s.LoD.Sequences())
	}
	if _, ok := number.KindOf(s.DType); !ok {
		return pyfeed.SlotErrorf(pyfeed.Type, i, "%s: dtype: expected real numbers, bool, or text, found %v", tag, s.DType)
	}
	if len(s.LoD) == 0 {
		err = w.numbers(s.DType, s.Dims(), s.Data)
	} else {
		err = w.sequence(s, 0, 0)
	}
	if err != nil {
		return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %v", tag, err)
	}
	return nil
}

// sequence appends a sequence of a level.
func (w *writer) sequence(s *pyfeed.LoDTensor, level int, n int64) error {
	begin, end := s.LoD[level][n], s.LoD[level][n+1]
	dims := s.Dims()
	isText := s.DType == pyfeed.Uint8 && len(dims) == 1
	if level == len(s.LoD)-1 {
		row := 0
		if dims[0] > 0 {
			row = len(s.Data) / int(dims[0])
		}
		data := s.Data[int(begin)*row : int(end)*row]
		if isText {
			return w.text(data)
		}
		return w.numbers(s.DType, append(pyfeed.Dims{end - begin}, dims[1:]...), data)
	}
	w.line = append(w.line, '[')
	for k := begin; k < end; k++ {
		if k > begin {
			w.line = append(w.line, ", "...)
		}
		if err := w.sequence(s, level+1, k); err != nil {
			return err
		}
	}
	w.line = append(w.line, ']')
	return nil
}

// numbers appends a number, or lists of numbers.
func (w *writer) numbers(d pyfeed.DType, dims pyfeed.Dims, data []byte) error {
	if len(dims) > 0 {
		w.line = append(w.line, '[')
		for k := range dims[0] {
			if k > 0 {
				w.line = append(w.line, ", "...)
			}
			row := len(data) / int(dims[0])
			if err := w.numbers(d, dims[1:], data[int(k)*row:][:row]); err != nil {
				return err
			}
		}
		w.line = append(w.line, ']')
		return nil
	}
	before := len(w.line)
	w.line = number.Append(w.line, data, d)
	switch v := string(w.line[before:]); v {
	case "nan", "inf", "-inf":
		name := map[string]string{"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[v]
		return fmt.Errorf("expected numbers that JSON has, found %s", name)
	}
	return nil
}

// text appends a string.
func (w *writer) text(data []byte) error {
	if !utf8.Valid(data) {
		at := 0
		for at < len(data) {
			r, n := utf8.DecodeRune(data[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
		return fmt.Errorf("expected text in UTF-8, found the byte %#02x at position %d of %d: JSON cannot hold other bytes", data[at], at, len(data))
	}
	w.line = appendText(w.line, data)
	return nil
}

// appendText appends a string in quotes.
func appendText(to, data []byte) []byte {
	to = append(to, '"')
	begin := 0
	for i, c := range data {
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		to = append(to, data[begin:i]...)
		begin = i + 1
		switch c {
		case '"', '\\':
			to = append(to, '\\', c)
		case '\n':
			to = append(to, `\n`...)
		case '\t':
			to = append(to, `\t`...)
		case '\r':
			to = append(to, `\r`...)
		default:
			to = fmt.Appendf(to, `\u%04x`, c)
		}
	}
	return append(append(to, data[begin:]...), '"')
}
