package tfrecord

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Records that differ in nothing but values: their CRCs are checked and their values found without parsing each.

// pattern is a record with its header, and what others have in common with it that are parsed as it was, for they differ in
// values alone that are used where they lie. So others need not be parsed.
type pattern struct {
	record   []byte
	constant []record.Span // of it: all but the values
	values   []record.Span // by slot
	retryAt  int64         // record from which on others are compared with it, or it is made anew
}

// verifyUniform reports whether b begins with such a record, the CRC of whose data is right.
func (p *pattern) verifyUniform(b []byte) bool {
	n := len(p.record)
	if n == 0 || len(b) < n+footerSize {
		return false
	}
	for _, s := range p.constant {
		if !bytes.Equal(b[s.At:s.At+s.Size], p.record[s.At:s.At+s.Size]) {
			return false
		}
	}
	return crc(b[headerSize:n]) == binary.LittleEndian.Uint32(b[n:])
}

// setPattern makes the pattern that of a record with its header, which lies in the buffer in and has been verified. false: there
// is none, since it is no record of the features, or has some that do not lie there.
func (e *examples) setPattern(data []byte, in *memory.Buffer) bool {
	p := &e.pattern
	p.record, p.constant, p.values = p.record[:0], p.constant[:0], p.values[:0]
	t := pyfeed.NewTuple(len(e.columns))
	defer t.Release()
	views, err := e.fill(t, data[headerSize:], in)
	in.Retain(views)
	if err != nil || views < len(e.columns) || len(data) > math.MaxUint32 {
		return false
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	for i := range t.Slots {
		value := t.Slots[i].Data
		p.values = append(p.values, record.Span{At: uint32(uintptr(unsafe.Pointer(unsafe.SliceData(value))) - begin), Size: uint32(len(value))})
	}
	at := uint32(0)
	for _, v := range slices.SortedFunc(slices.Values(p.values), func(a, b record.Span) int { return cmp.Compare(a.At, b.At) }) {
		p.constant = append(p.constant, record.Span{At: at, Size: v.At - at})
		at = v.At + v.Size
	}
	p.constant = append(p.constant, record.Span{At: at, Size: uint32(len(data)) - at})
	p.record = append(p.record, data...)
	return true
}

// readUniform is those of the records at the front of b that differ in the values of their features alone: limit at most, which
// begin before end. nil: there are few, or something else is to be said about the first.
func (r *records) readUniform(b []byte, limit, end int) *record.Block {
	p, least := &r.examples.pattern, min(limit, minUniform)
	if r.record < p.retryAt || !hasValidHeader(b) || binary.LittleEndian.Uint64(b) > uint64(end/least) {
		return nil // without a look at the data, which Read is going to verify
	}
	if !p.verifyUniform(b) {
		data, v, err := r.verifyRecord(b)
		if err != nil || v != whole || !r.examples.setPattern(b[:headerSize+len(data)], r.f.Hold(0)) {
			p.retryAt = r.record + uniformRetryDistance
			return nil
		}
	}
	size := len(p.record) + footerSize
	at, n := size, 1
	for n < limit && at < end && p.verifyUniform(b[at:]) {
		at += size
		n++
	}
	if n < least {
		p.retryAt = r.record + uniformRetryDistance
		return nil
	}
	slots := make([]pyfeed.LoDTensor, len(p.values))
	for i, v := range p.values {
		c, s := &r.examples.columns[i], &slots[i]
		s.DType, s.Data, s.ReadOnly = c.slot.DType, b[v.At:v.At+v.Size:at], true
		_ = s.SetDims(c.dims[:len(c.slot.Dims)]) // whose rank was checked
	}
	rows := record.NewBlock(slots, size, n, r.f.Hold(n))
	r.f.Skip(at)
	r.record += int64(n)
	return rows
}
