package raw

import (
	"io"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open begins to read a file behind its header.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsOf[Options](c).Compression, c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	l, err := lay(c)
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

// records reads: what is in the machine's byte order is used where it lies, the rest is turned round into memory
// of its own.
type records struct {
	*layout
	file   *storage.File
	arena  *memory.Arena
	record int64 // number of the next
	err    error // what ended the records
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	data, err := r.file.Peek(r.size)
	if len(data) < r.size {
		r.err = r.ended(len(data), err)
		return 0, r.err
	}
	n := r.there(len(data), len(out))
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
		r.file.Hold(1).Release() // so that the windows of a mapped file move along
	}
	for i, t := range out[:n] {
		if len(t.Slots) != len(r.fields) {
			t.Resize(len(r.fields))
		}
		for j := range r.fields {
			f, s := &r.fields[j], &t.Slots[j]
			in := data[f.at : f.at+f.size : f.at+f.size]
			s.DType = f.dtype
			_ = s.SetDims(f.dims) // whose rank was checked
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
				r.undo(out[:n], i, buffer, views)
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

// ReadBlock is Rowed's: of records that are used where they lie.
func (r *records) ReadBlock(most int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || most == 0 || slices.ContainsFunc(r.fields, func(f field) bool { return f.reversed }) {
		return nil
	}
	data, err := r.file.Peek(r.size)
	if err != nil || len(data) < r.size { // of which Read tells
		return nil
	}
	n := r.there(len(data), most)
	slots := make([]pyfeed.LoDTensor, len(r.fields))
	for j := range r.fields {
		f, s := &r.fields[j], &slots[j]
		s.DType, s.Data, s.ReadOnly = f.dtype, data[f.at:f.at+f.size:n*r.size], true
		_ = s.SetDims(f.dims) // whose rank was checked
	}
	rows := record.NewBlock(slots, r.size, n, r.file.Hold(n))
	r.file.Skip(n * r.size)
	r.record += int64(n)
	return rows
}

// there is how many records, most at most, lie in the same memory at the front of so many bytes.
func (r *records) there(bytes, most int) int {
	n := min(most, bytes/r.size)
	if r.file.Mapped() {
		n = storage.InWindow(r.file.Offset(), r.size, n)
	}
	return n
}

// undo takes back what was made when there is no memory for the i-th tuple.
func (r *records) undo(out []*pyfeed.Tuple, i int, buffer *memory.Buffer, views int) {
	left := len(out) * views // references that no slot took over
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

// ended is why there is no whole record any more.
func (r *records) ended(left int, err error) error {
	if shrunk := r.file.Intact(); shrunk != nil {
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

// Resync finds nothing: only the end of a file of fixed-size records can be damaged.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

func (r *records) Intact() error { return r.file.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.file.Unchanged() }

func (r *records) Close() {
	r.arena.Close()
	r.file.Close()
	r.err = io.EOF
}
