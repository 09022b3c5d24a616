package arrow

import "encoding/binary"

// A builder writes a FlatBuffer from its beginning to its end: tables first, and what they refer to behind them.
type builder struct{ data []byte }

// newBuilder begins a buffer. The reference to the root table is at offset 0.
func newBuilder() *builder { return &builder{make([]byte, 4, 512)} }

// align appends zeros until n bytes more end at a multiple of size.
func (b *builder) align(size, n int) {
	for (len(b.data)+n)%size != 0 {
		b.data = append(b.data, 0)
	}
}

// tableField is a field of a table.
type tableField struct {
	number int
	size   int // 1, 2, 4 or 8; a reference has 4
	value  uint64
}

// reference is a field that refers to something that is written later.
func reference(number int) tableField { return tableField{number, 4, 0} }

// table appends a table. It returns the offsets of the table and of its fields.
func (b *builder) table(fields ...tableField) (at int, offsets []int) {
	last := -1
	for _, f := range fields {
		last = max(last, f.number)
	}
	vtable := make([]uint16, last+1)
	size := 4
	inside := make([]int, len(fields))
	for i, f := range fields {
		size = (size + f.size - 1) &^ (f.size - 1)
		inside[i] = size
		vtable[f.number] = uint16(size)
		size += f.size
	}
	bytes := 4 + 2*len(vtable)
	b.align(8, bytes)
	b.data = binary.LittleEndian.AppendUint16(b.data, uint16(bytes))
	b.data = binary.LittleEndian.AppendUint16(b.data, uint16(size))
	for _, offset := range vtable {
		b.data = binary.LittleEndian.AppendUint16(b.data, offset)
	}
	at = len(b.data)
	b.data = binary.LittleEndian.AppendUint32(b.data, uint32(bytes))
	b.data = append(b.data, make([]byte, size-4)...)
	for i, f := range fields {
		var value [8]byte
		binary.LittleEndian.PutUint64(value[:], f.value)
		copy(b.data[at+inside[i]:], value[:f.size])
		offsets = append(offsets, at+inside[i])
	}
	return at, offsets
}

// refer makes the reference at an offset refer to another offset behind it.
func (b *builder) refer(from, to int) { binary.LittleEndian.PutUint32(b.data[from:], uint32(to-from)) }

// vector appends a vector of n elements, and makes a reference refer to it. The caller appends the elements.
func (b *builder) vector(from, n, alignment int) {
	b.align(alignment, 4)
	b.refer(from, len(b.data))
	b.data = binary.LittleEndian.AppendUint32(b.data, uint32(n))
}

// text appends a string.
func (b *builder) text(from int, s string) {
	b.vector(from, len(s), 4)
	b.data = append(append(b.data, s...), 0)
}

// references appends a vector of n references. It returns their offsets.
func (b *builder) references(from, n int) (offsets []int) {
	b.vector(from, n, 4)
	for range n {
		offsets = append(offsets, len(b.data))
		b.data = append(b.data, 0, 0, 0, 0)
	}
	return offsets
}

func (b *builder) long(v int64) { b.data = binary.LittleEndian.AppendUint64(b.data, uint64(v)) }
