package idx

import (
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open begins to read a file, which says itself what its instances look like.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsOf[Options](c).Compression, c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	h, err := readHeader(f)
	if err != nil {
		return nil, err
	}
	return &records{header: h, file: f, arena: memory.NewArena(c.Pool), reversed: !record.BigEndian && h.dtype.Size() > 1}, nil
}

// records reads: what is in the machine's byte order is used where it lies, the rest is turned round into memory
// of its own.
type records struct {
	*header
	file     *storage.File
	arena    *memory.Arena
	reversed bool
	record   int64 // number of the next
	err      error // what ended the instances
}

func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	return []pyfeed.Slot{r.slot()}, nil, nil
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	if r.record == r.count {
		r.err = r.atEnd()
		return 0, r.err
	}
	data, err := r.file.Peek(r.size)
	if len(data) < r.size {
		r.err = r.ended(len(data), err)
		return 0, r.err
	}
	n := int(min(int64(len(out)), int64(len(data)/r.size), r.count-r.record))
	if r.file.Mapped() {
		n = storage.InWindow(r.file.Offset(), r.size, n)
	}
	if r.reversed {
		n, err = r.turn(out[:n], data)
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

// turn fills out with instances in the machine's byte order, as many as there is memory for.
func (r *records) turn(out []*pyfeed.Tuple, data []byte) (int, error) {
	r.file.Hold(1).Release() // so that the windows of a mapped file move along
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

// shape gives a tuple its one slot, without data yet.
func (r *records) shape(t *pyfeed.Tuple) *pyfeed.LoDTensor {
	if len(t.Slots) != 1 {
		t.Resize(1)
	}
	s := &t.Slots[0]
	s.DType = r.dtype
	_ = s.SetDims(r.dims) // whose rank was checked
	return s
}

// ended is why there is no whole instance where the header promised one.
func (r *records) ended(left int, err error) error {
	if shrunk := r.file.Intact(); shrunk != nil {
		return shrunk
	}
	if err != nil {
		return err
	}
	return r.file.Corrupt(r.file.Offset(), r.record, "expected %d bytes, instance %d of %d, found %d and the end of the file",
		r.size, r.record+1, r.count, left)
}

// atEnd is io.EOF, or that there is more than the header said.
func (r *records) atEnd() error {
	data, err := r.file.Peek(1)
	switch shrunk := r.file.Intact(); {
	case shrunk != nil:
		return shrunk
	case err != nil:
		return err
	case len(data) > 0:
		return r.file.Corrupt(r.file.Offset(), r.record, "expected the end of the file behind %d instances, found more bytes", r.count)
	}
	return io.EOF
}

// Resync finds nothing: only the header, or the end of a file of fixed-size instances, can be damaged.
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
