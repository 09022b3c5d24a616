package tar

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// kind is the kind of a member's content.
type kind uint8

const (
	bytesKind kind = iota
	textKind
	intKind
	floatKind
	jsonKind
	npyKind
	keyKind // not a member: the instance's key
)

var kinds = map[string]kind{"bytes": bytesKind, "text": textKind, "int": intKind, "float": floatKind, "json": jsonKind, "npy": npyKind}

// The kinds of members by extension, as in WebDataset.
var kindOf = map[string]kind{
	"npy": npyKind,
	"cls": intKind, "cls2": intKind, "class": intKind, "count": intKind, "id": intKind, "index": intKind, "inx": intKind,
	"json": jsonKind, "jsn": jsonKind,
	"txt": textKind, "text": textKind, "transcript": textKind,
}

// number reports whether the content is read as a scalar.
func (k kind) number() bool { return k == intKind || k == floatKind || k == jsonKind }

const keyName = "__key__"

// plan describes how instances become tuples.
type plan struct {
	fields  []field
	members int // fields that come from members
	exts    []extension
}

// field describes how a slot is made.
type field struct {
	name     string // of the slot
	ext      string // the first of the field's extensions
	kind     kind
	dtype    pyfeed.DType // of a field of numbers
	explicit bool         // dtype was given, not set by default
	path     []string
	lod      bool // it is a sequence
	rank1    bool // a number has one dimension of one element

	optional bool
	absent   []byte // content for an instance without the member
}

// extension is an extension that fields are read from.
type extension struct {
	name string // in lower case
	uses []use
}

type use struct {
	field int
	rank  int32 // the position among the field's extensions
}

// newPlan makes a plan of fields. slots are those of the tuples; nil: they are not known.
func newPlan(fields []Field, slots []pyfeed.Slot) (*plan, error) {
	if slots != nil && len(slots) != len(fields) {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "fields: expected %d, one for each slot, found %d", len(slots), len(fields))
	}
	p := &plan{}
	for i, f := range fields {
		var slot *pyfeed.Slot
		if slots != nil {
			slot = &slots[i]
		}
		if err := p.add(i, f, slot); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *plan) add(i int, f Field, slot *pyfeed.Slot) error {
	invalid := func(format string, args ...any) error {
		return pyfeed.Errorf(pyfeed.Invalid, "fields: %d, %q: %s", i, f.Name, fmt.Sprintf(format, args...))
	}
	to := field{name: f.Name, path: f.Path, lod: slot != nil && slot.LoDLevels == 1}
	if f.Name == keyName {
		if f.Kind != "" && f.Kind != "text" || f.Path != nil || f.DType != "" {
			return invalid("the key is text: expected no other kind, no path and no dtype")
		}
		to.kind = keyKind
	} else {
		for rank, name := range strings.Split(strings.ToLower(f.Name), ";") {
			name = strings.TrimPrefix(strings.TrimSpace(name), ".")
			if name == "" || strings.ContainsAny(name, "/\x00") {
				return invalid("name: expected extensions with semicolons between them, such as jpg;png")
			}
			if rank == 0 {
				to.ext = name
			}
			e := p.extension(name)
			for _, u := range e.uses {
				if u.field == i {
					return invalid("name: extension %s is given twice", name)
				}
			}
			e.uses = append(e.uses, use{i, int32(rank)})
		}
		to.name = to.ext
		if len(f.Path) > 0 {
			to.name += "." + strings.Join(f.Path, ".")
		}
		p.members++
		to.kind = kindOf[to.ext[strings.LastIndexByte(to.ext, '.')+1:]]
		sequence := to.lod && slot.DType == pyfeed.Uint8 && to.kind.number()
		if sequence && f.Kind == "" && f.Path == nil && f.DType == "" {
			to.kind = textKind // the slot is for text
		}
		if f.Kind != "" {
			k, known := kinds[f.Kind]
			if !known {
				return invalid("kind: expected bytes, text, int, float, json or npy, found %q", f.Kind)
			}
			to.kind = k
		}
		if f.Path != nil && to.kind != jsonKind {
			return invalid("path: expected one for kind json only")
		}
		if f.DType != "" && !to.kind.number() {
			return invalid("dtype: expected one for kinds int, float and json only")
		}
	}
	if to.kind.number() {
		to.dtype = pyfeed.Float64
		if to.kind == intKind {
			to.dtype = pyfeed.Int64
		}
		if slot != nil {
			to.rank1 = len(slot.Dims) == 1
			if slot.DType != pyfeed.Any {
				to.dtype, to.explicit = slot.DType, true
			}
		}
		if f.DType != "" {
			d, known := pyfeed.DTypeOf(f.DType)
			if !known || d == pyfeed.Any {
				return invalid("dtype: expected the name of one, found %q", f.DType)
			}
			to.dtype, to.explicit = d, true
		}
		switch to.dtype {
		case pyfeed.Float16, pyfeed.BFloat16, pyfeed.Complex64, pyfeed.Complex128:
			return invalid("dtype: expected bool, an integer, float32 or float64 for a number in text, found %v", to.dtype)
		}
	} else if slot == nil && to.kind != npyKind {
		to.lod = true
	}
	if err := to.setAbsent(f); err != nil {
		return invalid("%v", err)
	}
	for j := range p.fields {
		if p.fields[j].name == to.name {
			return invalid("field %d has the same name", j)
		}
	}
	p.fields = append(p.fields, to)
	return nil
}

// setAbsent sets the content for an instance without the member.
func (to *field) setAbsent(f Field) error {
	given := len(f.Default) > 0 && string(f.Default) != "null"
	to.optional = f.Optional || given
	if !to.optional {
		return nil
	}
	if to.kind == keyKind || to.kind == npyKind {
		return errors.New("optional: expected false for the key and for arrays, which have no default, found true")
	}
	text, isText := "", !given
	if given {
		isText = json.Unmarshal(f.Default, &text) == nil
	}
	if !to.kind.number() {
		if !isText {
			return fmt.Errorf("default: expected a string for bytes and text, found %s", f.Default)
		}
		to.absent = []byte(text)
		return nil
	}
	from := []byte(f.Default)
	if isText {
		from = []byte(text)
	}
	plain := field{kind: intKind, dtype: to.dtype}
	var element [8]byte
	if expected, _ := plain.number(element[:], from); expected != "" {
		return fmt.Errorf("default: expected %s, for an instance without the member, found %s", expected, excerpt(from))
	}
	to.absent = element[:to.dtype.Size()]
	return nil
}

func (p *plan) extension(name string) *extension {
	if i := p.find([]byte(name), 0); i >= 0 {
		return &p.exts[i]
	}
	p.exts = append(p.exts, extension{name: name})
	return &p.exts[len(p.exts)-1]
}

// find returns the number of an extension, or -1. It tries guess first.
func (p *plan) find(ext []byte, guess int) int {
	if guess < len(p.exts) && p.exts[guess].name == string(ext) {
		return guess
	}
	for i := range p.exts {
		if p.exts[i].name == string(ext) {
			return i
		}
	}
	for _, c := range ext {
		if c-'A' < 26 || c >= 0x80 {
			lower := bytes.ToLower(ext)
			for i := range p.exts {
				if p.exts[i].name == string(lower) {
					return i
				}
			}
			break
		}
	}
	return -1
}

// slot returns the slot of a field. That of an array is inferred from the first tensor.
func (f *field) slot(first *pyfeed.LoDTensor) pyfeed.Slot {
	switch {
	case f.kind.number():
		return pyfeed.Slot{DType: f.dtype, Dims: pyfeed.Dims{}}
	case f.kind == npyKind:
		return pyfeed.Slot{DType: first.DType, Dims: append(pyfeed.Dims{}, first.Dims()...)}
	}
	return record.BytesSlot
}

// trim removes the white space that Python's int and float ignore.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0]-'\t' < 5) {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1]-'\t' < 5) {
		b = b[:len(b)-1]
	}
	return b
}

// number parses a member's number into an element of the field's dtype. On success expected is ""; otherwise it says
// what was expected instead of found.
func (f *field) number(to, from []byte) (expected string, found []byte) {
	found = from
	switch f.kind {
	case jsonKind:
		value, at, ok := jsonAt(from, f.path)
		if !ok {
			return "JSON", from[min(at, len(from)):]
		}
		if value == nil {
			return "a value at " + strings.Join(f.path, "."), from
		}
		found = value
	default:
		found = trim(from)
	}
	if f.dtype == pyfeed.Float32 || f.dtype == pyfeed.Float64 {
		return f.float(to, found), found
	}
	if f.dtype == pyfeed.Bool {
		switch string(found) {
		case "true", "1":
			to[0] = 1
		case "false", "0":
			to[0] = 0
		default:
			return "a boolean", found
		}
		return "", nil
	}
	bits := 8 * f.dtype.Size()
	magnitude, negative, ok := integer(found)
	signed := f.dtype >= pyfeed.Int8 && f.dtype <= pyfeed.Int64
	least, limit := uint64(0), uint64(math.MaxUint64)>>(64-bits)
	if signed {
		least = 1 << (bits - 1)
		limit = least - 1
	}
	switch {
	case !ok:
		return fmt.Sprintf("an integer, %v", f.dtype), found
	case !negative && magnitude > limit, negative && magnitude > least:
		return fmt.Sprintf("an integer that fits into %v", f.dtype), found
	}
	if negative {
		magnitude = -magnitude
	}
	record.PutElement(to, f.dtype.Size(), magnitude)
	return "", nil
}

func (f *field) float(to, from []byte) (expected string) {
	for _, c := range from {
		if c == '_' || c|0x20 == 'x' || c|0x20 == 'p' { // digits that only Go accepts
			return "a number"
		}
	}
	v, err := strconv.ParseFloat(unsafe.String(unsafe.SliceData(from), len(from)), 8*f.dtype.Size())
	if err != nil {
		return fmt.Sprintf("a number, %v", f.dtype)
	}
	if f.dtype == pyfeed.Float32 {
		binary.NativeEndian.PutUint32(to, math.Float32bits(float32(v)))
	} else {
		binary.NativeEndian.PutUint64(to, math.Float64bits(v))
	}
	return ""
}

// integer parses an optional sign and digits.
func integer(b []byte) (n uint64, negative, ok bool) {
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false, false
		}
		n = n*10 + d
	}
	return n, negative, len(b) > 0
}
