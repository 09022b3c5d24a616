package tar

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// recordSize is the unit to which tar programs fill archives, in bytes.
const recordSize = 20 * blockSize

// writer writes an archive. Each slot of a tuple becomes a member, in the order of the slots. The same tuples give the
// same bytes: members have no owner and no time.
type writer struct {
	record.FileWriter
	plan   *plan // nil: the first tuple decides
	keys   int   // the slot of the key; -1: keys are numbers
	number int64
	key    []byte
	name   []byte
	buf    []byte
	dtypes []pyfeed.DType // of arrays; set by the first tuple
}

// Create creates an archive.
func Create(path string, c *record.Config) (record.Writer, error) {
	o, err := optionsOf(c)
	if err != nil {
		return nil, err
	}
	w := &writer{keys: -1}
	w.Encode, w.Finish, w.Names = w.encode, w.finish, c.Names
	fields := o.Fields
	if fields == nil {
		fields = fieldsOfNames(c.Names)
	}
	if fields != nil || c.Slots != nil || len(c.Names) > 0 {
		if err := w.begin(fields, c.Slots); err != nil {
			return nil, err
		}
	}
	if c.Slots != nil {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
	}
	if w.Sink, err = storage.Create(path, cmp.Or(o.Compression, c.Storage.Compression)); err != nil {
		return nil, err
	}
	return w, nil
}

// begin decides the members of an instance.
func (w *writer) begin(fields []Field, slots []pyfeed.Slot) (err error) {
	if fields == nil {
		return pyfeed.Errorf(pyfeed.Invalid, "slots: expected a name for each, its members' extension, such as jpg, npy or cls, or fields")
	}
	if w.plan, err = newPlan(fields, slots); err != nil {
		return err
	}
	if w.plan.members == 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "fields: expected one that is a member, found the key only")
	}
	w.dtypes = make([]pyfeed.DType, len(w.plan.fields))
	for i, f := range w.plan.fields {
		if f.kind == keyKind {
			w.keys = i
		}
		if f.path != nil {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "path: expected none for writing: a member is one number")
		}
		for j := range w.plan.fields[:i] {
			if w.plan.fields[j].ext == f.ext {
				return pyfeed.SlotErrorf(pyfeed.Invalid, i, "name: expected another extension than slot %d has, found .%s", j, f.ext)
			}
		}
	}
	return nil
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.plan == nil {
		if err := w.begin(fieldsOfNames(w.Names), nil); err != nil {
			return err
		}
	}
	if err := w.check(t); err != nil {
		return err
	}
	if w.keys < 0 {
		w.key = fmt.Appendf(w.key[:0], "%09d", w.number)
	} else if err := w.takeKey(&t.Slots[w.keys]); err != nil {
		return err
	}
	for i := range t.Slots {
		if i == w.keys {
			continue
		}
		if err := w.member(i, &t.Slots[i]); err != nil {
			return err
		}
	}
	w.number++
	return nil
}

// check returns an error if a tuple does not match the fields.
func (w *writer) check(t *pyfeed.Tuple) error {
	if len(t.Slots) != len(w.plan.fields) {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected %d, found %d", len(w.plan.fields), len(t.Slots))
	}
	for i := range t.Slots {
		s, f := &t.Slots[i], &w.plan.fields[i]
		size, err := s.Measure()
		if err == nil && size != len(s.Data) {
			err = fmt.Errorf("expected %d bytes, found %d", size, len(s.Data))
		}
		if err == nil {
			err = s.CheckLoD()
		}
		if err != nil {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
		if len(s.LoD) > 1 || len(s.LoD) == 1 && s.Rows() != 1 {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "LoD: expected that of one sequence, found %v", s.LoD)
		}
		switch {
		case f.kind.number():
			if s.DType != f.dtype && (f.explicit || !isNumber(s.DType) || f.kind == intKind && isFloat(s.DType)) {
				return pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected %v for .%s, found %v", f.dtype, f.ext, s.DType)
			}
			if len(s.Data) != s.DType.Size() {
				return pyfeed.SlotErrorf(pyfeed.Shape, i, "expected one number for .%s, found dims %v", f.ext, s.Dims())
			}
			f.dtype, f.explicit = s.DType, true
		case f.kind == npyKind:
			if w.dtypes[i] == pyfeed.Any {
				w.dtypes[i] = s.DType
			}
			if s.DType != w.dtypes[i] {
				return pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected %v, as in the first tuple, found %v", w.dtypes[i], s.DType)
			}
		default:
			if s.DType != pyfeed.Uint8 {
				return pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected uint8 for .%s, whose members are bytes, found %v (kind npy holds arrays)", f.ext, s.DType)
			}
			if len(s.Dims()) != 1 {
				return pyfeed.SlotErrorf(pyfeed.Shape, i, "rank: expected 1 for .%s, whose members are bytes, found dims %v (kind npy holds arrays)", f.ext, s.Dims())
			}
		}
	}
	return nil
}

func isFloat(d pyfeed.DType) bool { return d == pyfeed.Float32 || d == pyfeed.Float64 }

// isNumber reports whether a number of that dtype can be written as text.
func isNumber(d pyfeed.DType) bool { return d >= pyfeed.Bool && d <= pyfeed.Uint64 || isFloat(d) }

// takeKey sets the key, if it will be read as the same key.
func (w *writer) takeKey(s *pyfeed.LoDTensor) error {
	key := s.Data
	stem, is := keyOfName(append(append(w.name[:0], key...), ".x"...))
	switch {
	case !is || len(stem) != len(key) || bytes.IndexByte(key, 0) >= 0 || key[0] == '/':
		return pyfeed.SlotErrorf(pyfeed.Invalid, w.keys, "key: expected a name without dots, with folders or without, found %q", key)
	case len(key) > maxHeaderBytes/2:
		return pyfeed.SlotErrorf(pyfeed.Invalid, w.keys, "key: expected at most %d bytes, found %d", maxHeaderBytes/2, len(key))
	case w.number > 0 && bytes.Equal(key, w.key):
		return pyfeed.SlotErrorf(pyfeed.Invalid, w.keys, "key: expected another than that of the tuple before, found %q", key)
	}
	w.key = append(w.key[:0], key...)
	return nil
}

// member writes a slot.
func (w *writer) member(i int, s *pyfeed.LoDTensor) error {
	f := &w.plan.fields[i]
	w.name = append(append(append(w.name[:0], w.key...), '.'), f.ext...)
	var head []byte
	data := s.Data
	switch {
	case f.kind.number():
		text, err := appendNumber(w.buf[:0], s.DType, s.Data, f.kind)
		if err != nil {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%v", err)
		}
		w.buf, data = text, text
	case f.kind == npyKind:
		head = npy.Header(s.DType, s.Dims())
	}
	size := len(head) + len(data)
	if err := w.header(size); err != nil {
		return err
	}
	for _, part := range [][]byte{head, data, zeros[:roundToBlocks(size)-size]} {
		if _, err := w.Sink.Write(part); err != nil {
			return err
		}
	}
	return nil
}

var zeros [recordSize]byte

// appendNumber writes an element as text that is read as the same number.
func appendNumber(to []byte, d pyfeed.DType, b []byte, k kind) ([]byte, error) {
	switch d {
	case pyfeed.Bool:
		if k == jsonKind {
			return strconv.AppendBool(to, b[0] != 0), nil
		}
		return append(to, '0'+min(b[0], 1)), nil
	case pyfeed.Uint64:
		return strconv.AppendUint(to, binary.NativeEndian.Uint64(b), 10), nil
	}
	if n, is := record.Integer(d, b); is {
		return strconv.AppendInt(to, n, 10), nil
	}
	v, bits := 0.0, 64
	if d == pyfeed.Float32 {
		v, bits = float64(math.Float32frombits(binary.NativeEndian.Uint32(b))), 32
	} else {
		v = math.Float64frombits(binary.NativeEndian.Uint64(b))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		if k == jsonKind {
			return to, fmt.Errorf("expected a number that JSON has, found %v", v)
		}
		return strconv.AppendFloat(to, v, 'g', -1, bits), nil
	}
	return strconv.AppendFloat(to, v, 'g', -1, bits), nil
}

// header writes the header of the member w.name. If a header has no room for the name or the size, it writes a pax
// header before it.
func (w *writer) header(size int) error {
	var records []byte
	prefix, name, fits := split(w.name)
	if !fits {
		records = appendPax(records, "path", w.name)
		prefix, name = nil, w.name[:100]
	}
	if int64(size) >= 1<<33 {
		records = appendPax(records, "size", strconv.AppendInt(nil, int64(size), 10))
	}
	if records != nil {
		h := newBlock(nil, []byte("././@PaxHeader"), len(records), typePax)
		for _, part := range [][]byte{h[:], records, zeros[:roundToBlocks(len(records))-len(records)]} {
			if _, err := w.Sink.Write(part); err != nil {
				return err
			}
		}
	}
	if int64(size) >= 1<<33 {
		size = 0 // like Python
	}
	h := newBlock(prefix, name, size, typeRegular)
	_, err := w.Sink.Write(h[:])
	return err
}

// split divides a name into the parts of a header: a prefix of at most 155 bytes, a slash that is not stored, and at
// most 100 bytes.
func split(whole []byte) (prefix, name []byte, fits bool) {
	if len(whole) <= 100 {
		return nil, whole, true
	}
	for i, c := range whole {
		if c == '/' && i > 0 && i <= 155 && len(whole)-i-1 <= 100 && len(whole)-i-1 > 0 {
			return whole[:i], whole[i+1:], true
		}
	}
	return nil, nil, false
}

// appendPax appends a record, whose length includes its own digits.
func appendPax(to []byte, key string, value []byte) []byte {
	n := len(key) + len(value) + 3 // a space, an equals sign and the end of the line
	length := n
	for length != n+len(strconv.Itoa(length)) {
		length = n + len(strconv.Itoa(length))
	}
	return fmt.Appendf(to, "%d %s=%s\n", length, key, value)
}

// newBlock returns a header with owner 0 and time 0.
func newBlock(prefix, name []byte, size int, kind byte) (h block) {
	copy(h[:100], name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x00%011o\x00", size, 0))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	copy(h[345:500], prefix)
	copy(h[148:], fmt.Sprintf("%06o\x00 ", h.sum()))
	return h
}

// finish ends the archive.
func (w *writer) finish() error {
	left := recordSize - int(w.Sink.Offset()%recordSize)
	if left < 2*blockSize {
		left += recordSize
	}
	for left > 0 {
		n, err := w.Sink.Write(zeros[:min(left, recordSize)])
		if err != nil {
			return err
		}
		left -= n
	}
	return nil
}
