package record

import (
	"encoding/binary"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// OptionsFrom returns the format's options of a Config, or zero options if it has none.
func OptionsFrom[O any](c *Config) *O {
	if o, _ := c.Options.(*O); o != nil {
		return o
	}
	return new(O)
}

// BeginFunc makes Records that read f and close it.
type BeginFunc func(f *storage.File, c *Config) (Records, error)

// OpenRecords opens a file and begins to read it. compression overrides that of the Config unless it is "".
func OpenRecords(path, compression string, c *Config, begin BeginFunc) (Records, error) {
	o := c.Storage
	if compression != "" {
		o.Compression = compression
	}
	f, err := storage.Open(path, o, c.Pool)
	if err != nil {
		return nil, err
	}
	return BeginRecords(f, c, begin)
}

// BeginRecords calls begin and takes over the file: if it cannot be read, BeginRecords closes it. If the file has
// become shorter or a page of it cannot be read, BeginRecords returns that error instead of any error of begin.
func BeginRecords(f *storage.File, c *Config, begin BeginFunc) (Records, error) {
	r, err := begin(f, c)
	if err == nil {
		if err = f.CheckTruncated(); err != nil {
			r.Close()
			return nil, err
		}
	}
	if err != nil {
		if f.Interrupt().MayExplain(err) {
			err = storage.ErrInterrupted
		}
		if shrunk := f.CheckTruncated(); shrunk != nil {
			err = shrunk
		}
		f.Close()
		return nil, err
	}
	return r, nil
}

// ClearInterrupt returns the sticky error to keep after a Read returned err: nil for ErrInterrupted, else err.
func ClearInterrupt(err error) error {
	if err == storage.ErrInterrupted {
		return nil
	}
	return err
}

// CopyReversed copies the elements of from and reverses the bytes of each. It returns an error if it is interrupted.
func CopyReversed(interrupt *storage.Interrupt, d pyfeed.DType, to, from []byte) error {
	for len(from) > storage.PollEvery {
		copy(to, from[:storage.PollEvery])
		d.Reverse(to[:storage.PollEvery])
		to, from = to[storage.PollEvery:], from[storage.PollEvery:]
		if err := interrupt.Poll(); err != nil {
			return err
		}
	}
	d.Reverse(to[:copy(to, from)])
	return nil
}

// BytesSlot is the slot of a byte string or text, of any length.
var BytesSlot = pyfeed.Slot{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}

// Offsets allocates the ragged offsets (LoD, level of detail) of many records together in Go's heap. Each such
// allocation is collected after the last tuple with offsets in it is gone. A tensor with such offsets MUST set InHeap.
type Offsets struct{ free []int64 }

// Get returns n offsets, all 0.
func (o *Offsets) Get(n int) []int64 {
	const many = 1024
	if n > len(o.free) {
		if n > many/4 {
			return make([]int64, n)
		}
		o.free = make([]int64, many)
	}
	got := o.free[:n:n]
	o.free = o.free[n:]
	return got
}

// Sequence gives a tensor the dtype, dims and offsets of a byte string of n bytes, without its data.
func (o *Offsets) Sequence(s *pyfeed.LoDTensor, n int) {
	level := o.Get(2)
	level[1] = int64(n)
	s.DType = pyfeed.Uint8
	_ = s.SetDims(level[1:]) // cannot fail: there is one dimension
	s.LoD = append(s.LoD[:0], level)
	s.InHeap = true
}

// Record makes a tuple of one byte string, as BytesSlot describes it, which refers to the bytes of record in b. It
// takes over a reference to b.
func (o *Offsets) Record(t *pyfeed.Tuple, record []byte, b *memory.Buffer) {
	if len(t.Slots) != 1 {
		t.Resize(1)
	}
	s := &t.Slots[0]
	o.Sequence(s, len(record))
	s.Hold(record, b)
	s.ReadOnly = true
}

// BigEndian reports whether the machine stores the high byte of a number first.
var BigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// PutElement stores the low size bytes of bits as an element of that size.
func PutElement(to []byte, size int, bits uint64) {
	switch size {
	case 1:
		to[0] = byte(bits)
	case 2:
		binary.NativeEndian.PutUint16(to, uint16(bits))
	case 4:
		binary.NativeEndian.PutUint32(to, uint32(bits))
	case 8:
		binary.NativeEndian.PutUint64(to, bits)
	}
}

// Integer returns an element of an integer dtype or of bool; for uint64, its bits. It returns false for any other
// dtype.
func Integer(d pyfeed.DType, element []byte) (int64, bool) {
	order := binary.NativeEndian
	switch d {
	case pyfeed.Bool, pyfeed.Uint8:
		return int64(element[0]), true
	case pyfeed.Int8:
		return int64(int8(element[0])), true
	case pyfeed.Uint16:
		return int64(order.Uint16(element)), true
	case pyfeed.Int16:
		return int64(int16(order.Uint16(element))), true
	case pyfeed.Uint32:
		return int64(order.Uint32(element)), true
	case pyfeed.Int32:
		return int64(int32(order.Uint32(element))), true
	case pyfeed.Int64, pyfeed.Uint64:
		return int64(order.Uint64(element)), true
	}
	return 0, false
}
