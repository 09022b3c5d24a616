package arrow

import (
	"encoding/binary"
	"errors"
	"math"
)

// errMetadata is the error of metadata with an offset or a size that is not valid.
var errMetadata = errors.New("expected metadata with offsets inside of it, found one outside")

// A flatbuffer reads the tables of a FlatBuffer (https://flatbuffers.dev/internals). Go's library for FlatBuffers has no
// verifier and panics for a wrong offset, so every offset is checked here. After the first wrong one, bad is set, and
// values may be anything; nothing is ever read outside of data.
type flatbuffer struct {
	data []byte
	bad  bool
	// nodes is how many more tables may be visited. Tables that several others refer to would otherwise make a small
	// buffer arbitrarily large.
	nodes int
	text  int // how many more bytes of text may be copied, for the same reason
}

func newFlatbuffer(data []byte) *flatbuffer {
	return &flatbuffer{data: data, nodes: len(data)/8 + 1, text: 4 * len(data)}
}

// table is a table: the offsets and sizes, in bytes, of the table and of its vtable. Sizes are read once only: the file
// may be written to meanwhile.
type table struct {
	b              *flatbuffer
	at, size       int
	vtable, fields int
}

// fits reports whether n bytes lie at an offset; otherwise the buffer is bad.
func (b *flatbuffer) fits(at, n int) bool {
	if at < 0 || n < 0 || n > len(b.data) || at > len(b.data)-n {
		b.bad = true
		return false
	}
	return true
}

func (b *flatbuffer) u16(at int) int {
	if !b.fits(at, 2) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(b.data[at:]))
}

func (b *flatbuffer) u32(at int) uint32 {
	if !b.fits(at, 4) {
		return 0
	}
	return binary.LittleEndian.Uint32(b.data[at:])
}

func (b *flatbuffer) i64(at int) int64 {
	if !b.fits(at, 8) {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(b.data[at:]))
}

// root returns the table that the buffer begins with.
func (b *flatbuffer) root() table { return b.table(0) }

// table returns the table that the reference at an offset refers to.
func (b *flatbuffer) table(reference int) table {
	to := b.u32(reference)
	if b.nodes--; b.nodes < 0 || to > math.MaxInt32 {
		b.bad = true
	}
	t := table{b: b, at: reference + int(to)}
	if b.bad || !b.fits(t.at, 4) {
		return table{b: b}
	}
	t.vtable = t.at - int(int32(b.u32(t.at)))
	t.fields = b.u16(t.vtable)
	t.size = b.u16(t.vtable + 2)
	if b.bad || t.fields < 4 || !b.fits(t.vtable, t.fields) || !b.fits(t.at, t.size) {
		b.bad = true
		return table{b: b}
	}
	return t
}

// find returns the offset of a field with n bytes; 0: the table has no such field.
func (t table) find(field, n int) int {
	slot := 4 + 2*field
	if t.b.bad || slot+2 > t.fields {
		return 0
	}
	offset := t.b.u16(t.vtable + slot)
	if offset == 0 {
		return 0
	}
	if offset+n > t.size {
		t.b.bad = true
		return 0
	}
	return t.at + offset
}

func (t table) byte(field int) byte {
	if at := t.find(field, 1); at > 0 {
		return t.b.data[at]
	}
	return 0
}

func (t table) bool(field int) bool { return t.byte(field) != 0 }

func (t table) short(field, otherwise int) int {
	if at := t.find(field, 2); at > 0 {
		return int(int16(t.b.u16(at)))
	}
	return otherwise
}

func (t table) int(field, otherwise int) int {
	if at := t.find(field, 4); at > 0 {
		return int(int32(t.b.u32(at)))
	}
	return otherwise
}

func (t table) long(field int) int64 {
	if at := t.find(field, 8); at > 0 {
		return t.b.i64(at)
	}
	return 0
}

// sub returns the table of a field, and whether there is one.
func (t table) sub(field int) (table, bool) {
	at := t.find(field, 4)
	if at == 0 {
		return table{b: t.b}, false
	}
	s := t.b.table(at)
	return s, !t.b.bad
}

// vector returns the offset of the first of n elements of size bytes.
func (t table) vector(field, size int) (at, n int) {
	reference := t.find(field, 4)
	if reference == 0 {
		return 0, 0
	}
	to := t.b.u32(reference)
	if to > math.MaxInt32 {
		t.b.bad = true
		return 0, 0
	}
	at = reference + int(to)
	count := t.b.u32(at)
	if t.b.bad || count > math.MaxInt32 || !t.b.fits(at+4, int(count)*size) {
		t.b.bad = true
		return 0, 0
	}
	return at + 4, int(count)
}

func (t table) text(field int) string {
	at, n := t.vector(field, 1)
	if t.b.text -= n; t.b.text < 0 {
		t.b.bad = true
		return ""
	}
	return string(t.b.data[at : at+n])
}

// tables returns the tables of a vector.
func (t table) tables(field int) []table {
	at, n := t.vector(field, 4)
	if n > t.b.nodes {
		t.b.bad = true
	}
	if t.b.bad || n == 0 {
		return nil
	}
	all := make([]table, n)
	for i := range all {
		all[i] = t.b.table(at + 4*i)
	}
	return all
}
