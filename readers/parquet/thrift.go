package parquet

import (
	"encoding/binary"
	"fmt"
)

// The types of values in Thrift's compact protocol, which is specified at
// https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
const (
	thriftTrue   = 1
	thriftFalse  = 2
	thriftByte   = 3
	thriftI16    = 4
	thriftI32    = 5
	thriftI64    = 6
	thriftDouble = 7
	thriftBinary = 8
	thriftList   = 9
	thriftSet    = 10
	thriftMap    = 11
	thriftStruct = 12
)

// maxThriftDepth limits how deeply structs and lists that are skipped may be nested.
const maxThriftDepth = 32

// thriftReader decodes Thrift's compact protocol. After an error it returns zeros, and err has the first error. It
// allocates no more than the bytes that are there justify: a list has at most as many elements as bytes follow it.
type thriftReader struct {
	data []byte
	at   int
	err  error
}

// fail sets the error and moves to the end of the data.
func (r *thriftReader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = &thriftError{r.at, fmt.Sprintf(format, args...)}
	}
	r.at = len(r.data)
}

// thriftError is an error at an offset of the data.
type thriftError struct {
	at   int
	text string
}

func (e *thriftError) Error() string { return e.text }

// short reports whether err is that the data ends too early, so that more data may help.
func (r *thriftReader) short() bool {
	e, is := r.err.(*thriftError)
	return is && e.text == thriftShort
}

const thriftShort = "expected more data, found the end"

func (r *thriftReader) byte() byte {
	if r.at >= len(r.data) {
		r.fail(thriftShort)
		return 0
	}
	b := r.data[r.at]
	r.at++
	return b
}

func (r *thriftReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.data[r.at:])
	switch {
	case n == 0:
		r.fail(thriftShort)
		return 0
	case n < 0:
		r.fail("expected an integer of at most 64 bits, found a longer one")
		return 0
	}
	r.at += n
	return v
}

func (r *thriftReader) int() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

// item returns a view of a byte string.
func (r *thriftReader) item() []byte {
	n := r.uvarint()
	if n > uint64(len(r.data)-r.at) {
		r.fail(thriftShort)
		return nil
	}
	b := r.data[r.at : r.at+int(n) : r.at+int(n)]
	r.at += int(n)
	return b
}

// fields calls field for each field of a struct. field MUST consume the value; it may call skip for that. The value of
// a boolean is its type.
func (r *thriftReader) fields(field func(id int, kind byte)) {
	id := 0
	for r.err == nil {
		head := r.byte()
		if head == 0 {
			return
		}
		if delta := int(head >> 4); delta != 0 {
			id += delta
		} else {
			id = int(int16(r.int()))
		}
		field(id, head&15)
	}
}

// list returns the number and the type of the elements of a list or a set.
func (r *thriftReader) list() (n int, kind byte) {
	head := r.byte()
	size := uint64(head >> 4)
	if size == 15 {
		size = r.uvarint()
	}
	if size > uint64(len(r.data)-r.at) {
		r.fail(thriftShort)
		return 0, 0
	}
	return int(size), head & 15
}

// each calls element for each element of a list that has elements of a kind, until there is an error.
func (r *thriftReader) each(kind byte, element func()) {
	n, found := r.list()
	if n > 0 && found != kind {
		r.fail("expected a list of elements of type %d, found type %d", kind, found)
	}
	for i := 0; i < n && r.err == nil; i++ {
		element()
	}
}

// is reports whether a field has the type that it should have. It fails otherwise. The methods below return the values
// of fields, of which they check the type.
func (r *thriftReader) is(found, expected byte) bool {
	if found != expected {
		r.fail("expected a field of type %d, found type %d", expected, found)
		return false
	}
	return true
}

func (r *thriftReader) i32(kind byte) int32 {
	if !r.is(kind, thriftI32) {
		return 0
	}
	v := r.int()
	if v != int64(int32(v)) {
		r.fail("expected an integer of 32 bits, found %d", v)
		return 0
	}
	return int32(v)
}

func (r *thriftReader) i64(kind byte) int64 {
	if !r.is(kind, thriftI64) {
		return 0
	}
	return r.int()
}

// i8 returns the value of a field of one byte.
func (r *thriftReader) i8(kind byte) byte {
	if !r.is(kind, thriftByte) {
		return 0
	}
	return r.byte()
}

// bytes returns a view of a field that is a byte string.
func (r *thriftReader) bytes(kind byte) []byte {
	if !r.is(kind, thriftBinary) {
		return nil
	}
	return r.item()
}

// structure calls field for each field of a field that is a struct.
func (r *thriftReader) structure(kind byte, field func(id int, kind byte)) {
	if r.is(kind, thriftStruct) {
		r.fields(field)
	}
}

// structures calls element for each element of a field that is a list of structs. element MUST consume it.
func (r *thriftReader) structures(kind byte, element func()) {
	if r.is(kind, thriftList) {
		r.each(thriftStruct, element)
	}
}

// skip skips a value of a field.
func (r *thriftReader) skip(kind byte) { r.skipValue(kind, false, maxThriftDepth) }

// skipValue skips a value. In a collection, a boolean has a byte of its own.
func (r *thriftReader) skipValue(kind byte, inCollection bool, depth int) {
	if depth == 0 {
		r.fail("expected values that are nested at most %d levels deep, found more", maxThriftDepth)
		return
	}
	switch kind {
	case thriftTrue, thriftFalse:
		if inCollection {
			r.byte()
		}
	case thriftByte:
		r.byte()
	case thriftI16, thriftI32, thriftI64:
		r.uvarint()
	case thriftDouble:
		for range 8 {
			r.byte()
		}
	case thriftBinary:
		r.item()
	case thriftList, thriftSet:
		n, of := r.list()
		for i := 0; i < n && r.err == nil; i++ {
			r.skipValue(of, true, depth-1)
		}
	case thriftMap:
		n := r.uvarint()
		if n == 0 {
			return
		}
		kinds := r.byte()
		for i := uint64(0); i < n && r.err == nil; i++ {
			r.skipValue(kinds>>4, true, depth-1)
			r.skipValue(kinds&15, true, depth-1)
		}
	case thriftStruct:
		r.fields(func(_ int, kind byte) { r.skipValue(kind, false, depth-1) })
	default:
		r.fail("expected the type of a value, 1 to 12, found %d", kind)
	}
}

// thriftWriter encodes Thrift's compact protocol.
type thriftWriter struct {
	data []byte
	last []int // the last field of each open struct
}

// begin begins a struct. The first one is the whole value.
func (w *thriftWriter) begin() { w.last = append(w.last, 0) }

// end ends a struct.
func (w *thriftWriter) end() {
	w.data = append(w.data, 0)
	w.last = w.last[:len(w.last)-1]
}

// field begins a field.
func (w *thriftWriter) field(id int, kind byte) {
	last := &w.last[len(w.last)-1]
	if delta := id - *last; delta > 0 && delta < 16 {
		w.data = append(w.data, byte(delta)<<4|kind)
	} else {
		w.data = append(w.data, kind)
		w.data = binary.AppendVarint(w.data, int64(id))
	}
	*last = id
}

func (w *thriftWriter) int(id int, kind byte, v int64) {
	w.field(id, kind)
	w.data = binary.AppendVarint(w.data, v)
}

func (w *thriftWriter) i32(id int, v int) { w.int(id, thriftI32, int64(v)) }

func (w *thriftWriter) i64(id int, v int64) { w.int(id, thriftI64, v) }

func (w *thriftWriter) bool(id int, v bool) {
	kind := byte(thriftFalse)
	if v {
		kind = thriftTrue
	}
	w.field(id, kind)
}

// i8 writes a field of one byte.
func (w *thriftWriter) i8(id int, v byte) {
	w.field(id, thriftByte)
	w.data = append(w.data, v)
}

func (w *thriftWriter) bytes(id int, v string) {
	w.field(id, thriftBinary)
	w.item(v)
}

// item appends a byte string as an element of a list.
func (w *thriftWriter) item(v string) {
	w.data = binary.AppendUvarint(w.data, uint64(len(v)))
	w.data = append(w.data, v...)
}

// list begins a list of n elements, which the caller appends.
func (w *thriftWriter) list(id int, kind byte, n int) {
	w.field(id, thriftList)
	if n < 15 {
		w.data = append(w.data, byte(n)<<4|kind)
		return
	}
	w.data = append(w.data, 0xf0|kind)
	w.data = binary.AppendUvarint(w.data, uint64(n))
}

// structure writes a field that is a struct.
func (w *thriftWriter) structure(id int, fields func()) {
	w.field(id, thriftStruct)
	w.begin()
	fields()
	w.end()
}
