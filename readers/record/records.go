package record

import (
	"encoding/binary"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// OptionsOf are a format's own, which a Config was given; the zero ones if it was given none.
func OptionsOf[O any](c *Config) *O {
	if o, _ := c.Options.(*O); o != nil {
		return o
	}
	return new(O)
}

// BeginFunc makes Records of a file, which they close.
type BeginFunc func(f *storage.File, c *Config) (Records, error)

// OpenRecords opens a file and begins to read it. It is compressed as compression says, or if that is "" as Config does.
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

// BeginRecords takes the file over: if it cannot be read, it is closed. That it has shrunk, or cannot be read, explains any
// other error.
func BeginRecords(f *storage.File, c *Config, begin BeginFunc) (Records, error) {
	r, err := begin(f, c)
	if err == nil {
		if err = f.Intact(); err != nil {
			r.Close()
			return nil, err
		}
	}
	if err != nil {
		if f.Interrupt().Explains(err) {
			err = storage.ErrInterrupted
		}
		if shrunk := f.Intact(); shrunk != nil {
			err = shrunk
		}
		f.Close()
		return nil, err
	}
	return r, nil
}

// ClearInterrupt is with which error, of those that ended the last Read, the next one begins: an interruption is over.
func ClearInterrupt(err error) error {
	if err == storage.ErrInterrupted {
		return nil
	}
	return err
}

// CopyReversed copies from, as elements in the byte order that is not the machine's, unless it is interrupted.
func CopyReversed(i *storage.Interrupt, d pyfeed.DType, to, from []byte) error {
	for len(from) > storage.LookEvery {
		copy(to, from[:storage.LookEvery])
		d.Reverse(to[:storage.LookEvery])
		to, from = to[storage.LookEvery:], from[storage.LookEvery:]
		if err := i.Look(); err != nil {
			return err
		}
	}
	d.Reverse(to[:copy(to, from)])
	return nil
}

// BytesSlot is that of bytes, or of text: as many as an instance has.
var BytesSlot = pyfeed.Slot{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}

// Offsets hands out room for the offsets of LoDs, in Go's heap: one allocation for those of many records, which goes
// with the last tuple that has some of it. A tensor with such offsets MUST say so: InHeap.
type Offsets struct{ free []int64 }

// Get is n offsets, which are 0.
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

// Sequence makes a tensor one of n bytes, as BytesSlot describes it. It does not hold them yet.
func (o *Offsets) Sequence(s *pyfeed.LoDTensor, n int) {
	level := o.Get(2)
	level[1] = int64(n)
	s.DType = pyfeed.Uint8
	_ = s.SetDims(level[1:]) // one is not too many
	s.LoD = append(s.LoD[:0], level)
	s.InHeap = true
}

// Record fills a tuple with a record, as BytesSlot describes it, where it lies in b. It takes over a reference to b.
func (o *Offsets) Record(t *pyfeed.Tuple, record []byte, b *memory.Buffer) {
	if len(t.Slots) != 1 {
		t.Resize(1)
	}
	s := &t.Slots[0]
	o.Sequence(s, len(record))
	s.Hold(record, b)
	s.ReadOnly = true
}

// BigEndian says whether the machine puts the high byte of a number first.
var BigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

// PutElement stores the low bytes of an element of that size.
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

// Integer is an element of a dtype of integers, or a bool; of uint64 its bits. false: the dtype is another.
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
