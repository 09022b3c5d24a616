package idx

import (
	"fmt"
	"io"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open opens a file for reading. The file describes its instances.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsFrom[Options](c).Compression, c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	h, err := readHeader(f)
	if err != nil {
		return nil, err
	}
	return &records{header: h, file: f, arena: memory.NewArena(c.Pool), reversed: !record.BigEndian && h.dtype.Size() > 1}, nil
}

// records reads a file. Instances in the machine's byte order are views of the file; others are converted into memory
// of the arena.
type records struct {
	*header
	file     *storage.File
	arena    *memory.Arena
	reversed bool
	record   int64 // number of the next record
	err      error // the error at the end
}

func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	return []pyfeed.Slot{r.slot()}, nil, nil
}

// Count implements record.Counted.
func (r *records) Count() int64 { return r.count }

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	if r.record == r.count {
		r.err = r.endError()
		return 0, r.err
	}
	data, err := r.file.Peek(r.size)
	if len(data) < r.size {
		r.err = r.ended(len(data), err)
		return 0, r.err
	}
	n := int(min(int64(len(out)), int64(len(data)/r.size), r.count-r.record))
	if r.file.IsMapped() {
		n = storage.InWindow(r.file.Offset(), r.size, n)
	}
	if r.reversed {
		n, err = r.readSwapped(out[:n], data)
	} else {
		buffer := r.file.Hold(n)
		for i, t := range out[:n] {
			s := r.shape(t)
			s.Hold(data[i*r.size:(i+1)*r.size:(i+1)*r.size], buffer)
			s.ReadOnly = true
		}
	}
	r.file.Skip(n * r.size)
	r.record += int64(n)
	if n == 0 {
		r.err = err
	}
	return n, r.err
}

// readSwapped fills out with instances converted to the machine's byte order.
func (r *records) readSwapped(out []*pyfeed.Tuple, data []byte) (int, error) {
	r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
	for i, t := range out {
		to, b, err := r.arena.Get(r.size)
		if err != nil {
			return i, err
		}
		r.shape(t).Hold(to, b)
		if err := record.CopyReversed(r.file.Interrupt(), r.dtype, to, data[i*r.size:(i+1)*r.size]); err != nil {
			t.Slots[0].Drop()
			return i, err
		}
	}
	return len(out), nil
}

// shape gives a tuple its slot, without data.
func (r *records) shape(t *pyfeed.Tuple) *pyfeed.LoDTensor {
	if len(t.Slots) != 1 {
		t.Resize(1)
	}
	s := &t.Slots[0]
	s.DType = r.dtype
	_ = s.SetDims(r.dims) // cannot fail: the rank was checked
	return s
}

// ended returns the error that an instance that the header counts is missing or incomplete.
func (r *records) ended(left int, err error) error {
	if shrunk := r.file.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	if err != nil {
		return err
	}
	return r.file.Corrupt(r.file.Offset(), r.record, "expected %d bytes, instance %d of %d, found %d and the end of the file",
		r.size, r.record+1, r.count, left)
}

// endError returns io.EOF, or an error if the file has more data than its header says.
func (r *records) endError() error {
	data, err := r.file.Peek(1)
	switch shrunk := r.file.CheckTruncated(); {
	case shrunk != nil:
		return shrunk
	case err != nil:
		return err
	case len(data) > 0:
		return r.file.Corrupt(r.file.Offset(), r.record, "expected the end of the file after %d instances, found more bytes", r.count)
	}
	return io.EOF
}

// Resync ends the file: only the header, or the end of a file of fixed-size instances, can be damaged.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Position implements record.Seeker. It is the number of the instance.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.record}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	if p.Offset < 0 || p.Offset > min(r.count, (math.MaxInt64-r.dataOffset())/int64(max(r.size, 1))) || p.Inner != 0 {
		return record.BadPosition(r.file.Path(), p, fmt.Sprintf("the number of one of %d instances", r.count))
	}
	if err := r.file.SeekTo(r.dataOffset() + p.Offset*int64(r.size)); err != nil {
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
