package mds

import (
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// ReadBlock implements record.BlockReader for samples of one size, and for samples of which one column of bytes is read.
func (r *records) ReadBlock(limit int) *record.Block {
	if r.err = record.ClearInterrupt(r.err); r.err != nil || limit < record.MinBlock || r.record == r.count {
		return nil
	}
	inPlace := func(f field) bool { return f.kind == number || f.kind == array && !f.ragged }
	switch {
	case len(r.fields) == 1 && r.fields[0].kind == opaque:
		return r.spans(limit)
	case r.varying == 0 && !record.BigEndian && len(r.fields) > 0 && !slices.ContainsFunc(r.fields, func(f field) bool { return !inPlace(f) }):
		return r.rows(limit)
	}
	return nil
}

// rows returns samples of one size.
func (r *records) rows(limit int) *record.Block {
	if _, err := r.sample(); err != nil { // Read returns it
		return nil
	}
	base, err := r.file.Peek(int(r.fixed))
	if err != nil {
		return nil
	}
	n := min(limit, len(base)/int(r.fixed))
	if r.file.IsMapped() {
		n = storage.InWindow(r.file.Offset(), int(r.fixed), n)
	}
	n = int(min(int64(n), r.count-r.record))
	first := r.offset(r.record)
	for i := 1; i < n; i++ {
		if r.offset(r.record+int64(i)+1) != first+int64(i+1)*r.fixed {
			n = i
		}
	}
	slots := make([]pyfeed.LoDTensor, len(r.fields))
	for i := range r.fields {
		f, s := &r.fields[i], &slots[i]
		begin, end := int(r.bounds[f.column]), int(r.bounds[f.column+1])
		s.DType, s.ReadOnly = f.slot.DType, true
		s.Data = base[begin : end : (n-1)*int(r.fixed)+end]
		_ = s.SetDims(f.slot.Dims) // cannot fail: the rank was checked
	}
	block := record.NewBlock(slots, int(r.fixed), n, r.file.Hold(n))
	r.file.Skip(n * int(r.fixed))
	r.record += int64(n)
	return block
}

// spans returns samples of which one column of bytes is read.
func (r *records) spans(limit int) *record.Block {
	if _, err := r.sample(); err != nil { // Read returns it
		return nil
	}
	base, err := r.file.Peek(0)
	if err != nil {
		return nil
	}
	first, window := r.file.Offset(), int64(memory.WindowSize)
	if !r.file.IsMapped() {
		window = int64(len(base)) + first + 1
	}
	f := &r.fields[0]
	var spans []record.Span
	for len(spans) < limit && r.record < r.count && r.follows() && r.file.Offset()/window == first/window {
		data, err := r.sample()
		if err != nil {
			break // Read returns it
		}
		at := r.file.Offset() - first + r.bounds[f.column]
		spans = append(spans, record.Span{At: uint32(at), Size: uint32(r.bounds[f.column+1] - r.bounds[f.column])})
		r.file.Skip(len(data))
		r.record++
	}
	if len(spans) == 0 {
		return nil
	}
	if r.file.IsMapped() {
		return record.NewSpanBlock(base, spans, r.file.HoldAt(first, len(spans)))
	}
	return record.NewSpanBlock(base, spans, r.file.Hold(len(spans)))
}
