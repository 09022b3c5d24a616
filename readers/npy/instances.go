package npy

import (
	"encoding/binary"
	"errors"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// InPlace says whether the data can be used as it lies in the file.
func (a *Array) InPlace() bool { return !a.Fortran && !a.Swapped }

// Rows is the length of the first dimension; 1 without any.
func (a *Array) Rows() int64 {
	if len(a.Shape) == 0 {
		return 1
	}
	return a.Shape[0]
}

// Decode makes of the data, as it lies in the file, Size bytes in the machine's byte order, last dimension fastest,
// unless it is interrupted.
func (a *Array) Decode(to, from []byte, stop *storage.Interrupt) error {
	return a.decode(to[:a.Size], from, 0, a.Rows(), stop)
}

// decode is Decode for n rows from the first on, which lie together in from unless the array is in Fortran order.
func (a *Array) decode(to, from []byte, first int, n int64, stop *storage.Interrupt) error {
	switch {
	case a.Fortran:
		if err := a.gather(to, from, first, int(n), stop); err != nil || !a.Swapped {
			return err
		}
		return record.CopyReversed(stop, a.DType, to, to)
	case a.Swapped:
		return record.CopyReversed(stop, a.DType, to, from[:len(to)])
	}
	return stop.Copy(to, from[:len(to)])
}

const (
	line   = 64        // bytes of a cache line
	cached = 256 << 10 // bytes that stay in a core's own cache
)

// gather puts n rows from the first on, whose elements lie a column apart in from, one behind the other. It goes by
// blocks of rows, and in these of elements that are neighbours in a row, so that it uses all of the cache lines that
// it touches on either side.
func (a *Array) gather(to, from []byte, first, n int, stop *storage.Interrupt) error {
	size, rows := a.DType.Size(), int(a.Shape[0])
	row := a.Size / rows
	// The dimension that is the fastest in the file, the one that is the fastest in a row, and those between.
	inner := a.Shape[1:]
	last := len(inner) - 1
	high, wide := int(inner[0]), 1
	between := 1
	if last > 0 {
		wide = int(inner[last])
		for _, d := range inner[1:last] {
			between *= int(d)
		}
	}
	var steps [maxRank]int // bytes in a row between neighbours of each inner dimension
	for d, step := last, size; d >= 0; d-- {
		steps[d] = step
		step *= int(inner[d])
	}
	block, few := max(line/size, cached/row), line/size
	done := 0 // bytes since the last look
	for begin := 0; begin < n; begin += block {
		count := min(block, n-begin)
		for middle := range between {
			at := begin * row
			for d, rest := 1, middle; d < last; d++ {
				at += rest % int(inner[d]) * steps[d]
				rest /= int(inner[d])
			}
			for left := 0; left < wide; left += few {
				for y := range high {
					if done += few * count * size; done > storage.LookEvery {
						if done = 0; stop.Look() != nil {
							return storage.ErrInterrupted
						}
					}
					for x := left; x < min(left+few, wide); x++ {
						column := y + high*(middle+between*x)
						in := from[(column*rows+first+begin)*size:]
						scatter(to[at+y*steps[0]+x*size:], in[:count*size], row, size)
					}
				}
			}
		}
	}
	return nil
}

// scatter puts the elements of from a stride of bytes apart.
func scatter(to, from []byte, stride, size int) {
	order, at := binary.NativeEndian, 0
	switch size {
	case 1:
		for _, b := range from {
			to[at] = b
			at += stride
		}
	case 2:
		for ; len(from) >= 2; from = from[2:] {
			order.PutUint16(to[at:], order.Uint16(from))
			at += stride
		}
	case 4:
		for ; len(from) >= 4; from = from[4:] {
			order.PutUint32(to[at:], order.Uint32(from))
			at += stride
		}
	case 8:
		for ; len(from) >= 8; from = from[8:] {
			order.PutUint64(to[at:], order.Uint64(from))
			at += stride
		}
	default:
		for ; len(from) >= size; from = from[size:] {
			copy(to[at:at+size], from)
			at += stride
		}
	}
}

// A Source is where the data of an array comes from. Offsets are in bytes from the beginning of the data.
type Source interface {
	// Peek is the data from an offset on, at least n bytes unless it ends before. An error is that of reading:
	// the end is none. Offsets only rise, but for an array in Fortran order, for which all is asked for, always.
	Peek(at, n int) ([]byte, error)
	// Hold gives references to the memory of n instances of size bytes from an offset on, that Peek has shown; or
	// of as many, at least one, as are in the same memory, and says of how many.
	Hold(at, size, n int) (*memory.Buffer, int)
	// Interrupt ends what takes long.
	Interrupt() *storage.Interrupt
}

// ErrShort says that the data ends before the next instance does.
var ErrShort = errors.New("expected more data, found the end")

// short is why there is no next instance: the error of reading, if it was one.
func short(err error) error {
	if err == nil {
		err = ErrShort
	}
	return err
}

// Instances are an array's rows, or all of it as one, in order. One caller at a time.
type Instances struct {
	Dims  pyfeed.Dims // of each
	Size  int         // bytes of each
	Count int64
	Next  int64 // number of the next, from 0

	array *Array
	pool  *memory.Pool
	rows  int            // of the array in each
	tile  *memory.Buffer // instances that were decoded, the next first; nil: none
	at    int            // of the next, in the tile
}

// mostEmpty bounds instances without data: a header of a few bytes can claim any number.
const mostEmpty = 1 << 24

// tileSize is the most memory for rows that are gathered together so as not to read a cache line for each
// element, in bytes.
const tileSize = 16 << 20

// Instances divides the array, whole into one, else into rows: an array without dimensions is one too. Memory for
// what must be decoded comes from pool.
func (a *Array) Instances(whole bool, pool *memory.Pool) (*Instances, error) {
	in := &Instances{Dims: a.Shape, Size: a.Size, Count: 1, array: a, pool: pool, rows: int(a.Rows())}
	if !whole && len(a.Shape) > 0 {
		in.Dims, in.Count, in.rows = a.Shape[1:], a.Shape[0], 1
		if in.Count > 0 {
			in.Size /= int(in.Count)
		}
	}
	if len(in.Dims) > pyfeed.MaxRank {
		return nil, pyfeed.Errorf(pyfeed.Shape, "shape: expected instances of at most %d dimensions, found %d", pyfeed.MaxRank, len(in.Dims))
	}
	if in.Size == 0 && in.Count > mostEmpty {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "shape: expected at most %d instances without data, found %d", mostEmpty, in.Count)
	}
	return in, nil
}

// Slot is what an instance looks like.
func (in *Instances) Slot() pyfeed.Slot { return pyfeed.Slot{DType: in.array.DType, Dims: in.Dims} }

// Read makes a slot of the front of out the next instances, and says of how many: io.EOF behind the last.
func (in *Instances) Read(out []*pyfeed.Tuple, slot int, from Source) (n int, err error) {
	n = int(min(int64(len(out)), in.Count-in.Next))
	switch {
	case n == 0:
		if len(out) > 0 {
			err = io.EOF
		}
		return 0, err
	case in.array.InPlace() || in.Size == 0:
		n, err = in.view(out[:n], slot, from)
	default:
		n, err = in.decoded(out[:n], slot, from)
	}
	in.Next += int64(n)
	return n, err
}

// Ready has a Read of the next instances begin at once, and answers of how many at least. All that takes long is done here,
// and goes on at the next call where it is interrupted.
func (in *Instances) Ready(from Source) (n int, err error) {
	switch {
	case in.Next == in.Count:
		return 0, nil
	case in.array.InPlace() || in.Size == 0:
		_, err = from.Peek(int(in.Next)*in.Size, in.Size)
		return int(in.Count - in.Next), err
	case in.tile == nil:
		if err = in.decode(from); err != nil {
			return 0, err
		}
	}
	return (in.tile.Size() - in.at) / in.Size, nil
}

func (in *Instances) fill(t *pyfeed.Tuple, slot int, data []byte, b *memory.Buffer) *pyfeed.LoDTensor {
	s := &t.Slots[slot]
	s.DType = in.array.DType
	_ = s.SetDims(in.Dims) // whose number was checked
	s.Hold(data, b)
	return s
}

// view answers instances that are used where they lie.
func (in *Instances) view(out []*pyfeed.Tuple, slot int, from Source) (int, error) {
	size := in.Size
	at := int(in.Next) * size
	data, err := from.Peek(at, size)
	n := len(out)
	if size > 0 {
		n = min(n, len(data)/size, max(1, memory.WindowSize/size))
	}
	if n == 0 || size == 0 && err != nil {
		return 0, short(err)
	}
	for i := 0; i < n; {
		b, held := from.Hold(at, size, n-i)
		for _, t := range out[i : i+held] {
			in.fill(t, slot, data[:size:size], b).ReadOnly = true
			data = data[size:]
		}
		i, at = i+held, at+held*size
	}
	return n, nil
}

// View is the next instances, most at most, if they can be used where they lie and are there: Read tells of all else.
func (in *Instances) View(most int, from Source) *record.Block {
	size, at := in.Size, int(in.Next)*in.Size
	n := int(min(int64(most), in.Count-in.Next))
	if n == 0 || size == 0 || !in.array.InPlace() {
		return nil
	}
	data, err := from.Peek(at, size)
	if n = min(n, len(data)/size); n == 0 || err != nil {
		return nil
	}
	b, n := from.Hold(at, size, n)
	s := pyfeed.LoDTensor{DType: in.array.DType, ReadOnly: true, Data: data[: size : n*size]}
	_ = s.SetDims(in.Dims) // whose number was checked
	in.Next += int64(n)
	return record.NewBlock([]pyfeed.LoDTensor{s}, size, n, b)
}

// decoded answers instances from a tile, and decodes the next if there is none.
func (in *Instances) decoded(out []*pyfeed.Tuple, slot int, from Source) (int, error) {
	size := in.Size
	if in.tile == nil {
		if err := in.decode(from); err != nil {
			return 0, err
		}
	}
	data := in.tile.Bytes()[in.at:]
	n := min(len(out), len(data)/size)
	in.tile.Retain(n)
	for i, t := range out[:n] {
		in.fill(t, slot, data[i*size:(i+1)*size:(i+1)*size], in.tile)
	}
	if in.at += n * size; in.at == in.tile.Size() {
		in.Close()
	}
	return n, nil
}

func (in *Instances) decode(from Source) error {
	a, size := in.array, in.Size
	n := min(int(in.Count-in.Next), max(1, memory.WindowSize/size))
	at, least := int(in.Next)*size, size
	if a.Fortran {
		n = min(int(in.Count-in.Next), max(n, min(line/a.DType.Size(), tileSize/size)))
		at, least = 0, a.Size
	}
	data, err := from.Peek(at, least)
	n = min(n, in.there(len(data)))
	if n <= 0 {
		return short(err)
	}
	b, err := in.pool.Get(n * size)
	if err != nil {
		return err
	}
	to := b.Bytes()
	if err := a.decode(to, data, int(in.Next), int64(n*in.rows), from.Interrupt()); err != nil {
		b.Release()
		return err
	}
	if !a.Fortran {
		used, _ := from.Hold(at, len(to), 1) // so that what is used up is let go of
		used.Release()
	}
	in.tile, in.at = b, 0
	return nil
}

// there is how many of the next instances are whole in so many bytes that Peek has shown.
func (in *Instances) there(bytes int) int {
	a := in.array
	if !a.Fortran {
		return bytes / in.Size
	}
	size, rows := a.DType.Size(), int(a.Shape[0])
	// Those of which the last column has an element.
	whole := max(0, min(bytes, a.Size)/size-(a.Size/size-rows))
	return whole/in.rows - int(in.Next)
}

// Close lets go of what was decoded ahead.
func (in *Instances) Close() {
	if in.tile != nil {
		in.tile.Release()
		in.tile = nil
	}
}
