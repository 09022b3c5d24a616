package raw

import (
	"io"
	"math"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open opens a file for reading, after its header.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsFrom[Options](c).Compression, c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	l, err := newLayout(c)
	if err != nil {
		return nil, err
	}
	for left := l.header; left > 0; {
		b, err := f.Peek(1)
		if err == nil && len(b) == 0 {
			err = f.Corrupt(f.Offset(), -1, "expected a header of %d bytes, found %d", l.header, l.header-left)
		}
		if err != nil {
			return nil, err
		}
		n := int(min(left, int64(len(b))))
		f.Skip(n)
		left -= int64(n)
	}
	return &records{layout: l, file: f, arena: memory.NewArena(c.Pool)}, nil
}

// records reads a file. Slots in the machine's byte order are views of the file; others are converted into memory of
// the arena.
type records struct {
	*layout
	file   *storage.File
	arena  *memory.Arena
	record int64 // number of the next record
	err    error // the error at the end
}

// Count implements record.Counted.
func (r *records) Count() int64 {
	if size := r.file.Size(); size >= r.header {
		return (size - r.header) / int64(r.size)
	}
	return -1
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	data, err := r.file.Peek(r.size)
	if len(data) < r.size {
		r.err = r.endError(len(data), err)
		return 0, r.err
	}
	n := r.available(len(data), len(out))
	views := 0
	for j := range r.fields {
		if !r.fields[j].reversed {
			views++
		}
	}
	var buffer *memory.Buffer
	if views > 0 {
		buffer = r.file.Hold(n * views)
	} else {
		r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
	}
	for i, t := range out[:n] {
		if len(t.Slots) != len(r.fields) {
			t.Resize(len(r.fields))
		}
		for j := range r.fields {
			f, s := &r.fields[j], &t.Slots[j]
			in := data[f.at : f.at+f.size : f.at+f.size]
			s.DType = f.dtype
			_ = s.SetDims(f.dims) // cannot fail: the rank was checked
			if !f.reversed {
				s.Hold(in, buffer)
				s.ReadOnly = true
				continue
			}
			got, b, err := r.arena.Get(f.size)
			if err == nil {
				s.Hold(got, b)
				err = record.CopyReversed(r.file.Interrupt(), f.dtype, got, in)
			}
			if err != nil {
				r.releaseFrom(out[:n], i, buffer, views)
				r.err = err
				return 0, err
			}
		}
		data = data[r.size:]
	}
	r.file.Skip(n * r.size)
	r.record += int64(n)
	return n, nil
}

// ReadBlock implements record.BlockReader for records that are used in place.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || limit == 0 || slices.ContainsFunc(r.fields, func(f field) bool { return f.reversed }) {
		return nil
	}
	data, err := r.file.Peek(r.size)
	if err != nil || len(data) < r.size { // Read returns the error
		return nil
	}
	n := r.available(len(data), limit)
	slots := make([]pyfeed.LoDTensor, len(r.fields))
	for j := range r.fields {
		f, s := &r.fields[j], &slots[j]
		s.DType, s.Data, s.ReadOnly = f.dtype, data[f.at:f.at+f.size:n*r.size], true
		_ = s.SetDims(f.dims) // cannot fail: the rank was checked
	}
	rows := record.NewBlock(slots, r.size, n, r.file.Hold(n))
	r.file.Skip(n * r.size)
	r.record += int64(n)
	return rows
}

// available returns how many records, at most limit, are complete in the first bytes of data and in the same memory.
func (r *records) available(bytes, limit int) int {
	n := min(limit, bytes/r.size)
	if r.file.IsMapped() {
		n = storage.InWindow(r.file.Offset(), r.size, n)
	}
	return n
}

// releaseFrom releases the tuples up to the i-th, which could not be filled, and the references that no slot has taken.
func (r *records) releaseFrom(out []*pyfeed.Tuple, i int, buffer *memory.Buffer, views int) {
	left := len(out) * views // references that no slot has taken
	for _, t := range out[:i+1] {
		for j := range t.Slots {
			if t.Slots[j].ReadOnly {
				left--
			}
			t.Slots[j].Drop()
		}
	}
	for ; left > 0; left-- {
		buffer.Release()
	}
}

// endError returns the error why there is no further complete record.
func (r *records) endError(left int, err error) error {
	if shrunk := r.file.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	if err != nil {
		return err
	}
	if left == 0 {
		return io.EOF
	}
	return r.file.Corrupt(r.file.Offset(), r.record, "expected %d bytes, a record, found %d and the end of the file", r.size, left)
}

// Resync ends the file: only the end of a file of fixed-size records can be damaged.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Position implements record.Seeker. It is the number of the record.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.record}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	if p.Offset < 0 || p.Offset > (math.MaxInt64-r.header)/int64(r.size) || p.Inner != 0 {
		return record.BadPosition(r.file.Path(), p, "the number of a record")
	}
	if err := r.file.SeekTo(r.header + p.Offset*int64(r.size)); err != nil {
		return err
	}
	r.record, r.err = p.Offset, nil
	return nil
}

func (r *records) CheckTruncated() error { return r.file.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.file.CheckUnchanged() }

func (r *records) Close() {
	r.arena.Close()
	r.file.Close()
	r.err = io.EOF
}
