package npy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// InPlace reports whether the data can be used as it is in the file.
func (a *Array) InPlace() bool { return !a.Fortran && !a.Swapped }

// Rows returns the length of the first dimension, or 1 for an array without dimensions.
func (a *Array) Rows() int64 {
	if len(a.Shape) == 0 {
		return 1
	}
	return a.Shape[0]
}

// Decode converts the array's data from its form in the file to the machine's byte order, with the last dimension
// varying fastest. It writes Size bytes. It returns an error if it is interrupted.
func (a *Array) Decode(to, from []byte, stop *storage.Interrupt) error {
	return a.decode(to[:a.Size], from, 0, a.Rows(), stop)
}

// decode is Decode for n rows, beginning with row first. from begins with these rows; in Fortran order it is the whole
// array.
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
	cacheLine = 64 // bytes of a cache line
	tileRows  = 64 // rows of a tile, which then takes 4 KiB
)

// gather copies n rows, beginning with row first, from an array in Fortran order, where the elements of a row lie a
// column apart. It gathers a tile at a time, tileRows rows by a cache line of each, and then copies the tile to the rows.
// So it reads and writes whole cache lines. Without the tile, rows whose size is a power of two would share few sets of
// the cache: rows of 256 KiB took three times as long.
func (a *Array) gather(to, from []byte, first, n int, stop *storage.Interrupt) error {
	size, rows := a.DType.Size(), int(a.Shape[0])
	row := a.Size / rows
	// high is the dimension that varies fastest in the file, wide the one that varies fastest in a row, and between the
	// product of the others.
	inner := a.Shape[1:]
	last := len(inner) - 1
	high, wide := 1, int(inner[last])
	between := 1
	if last > 0 {
		high = int(inner[0])
		for _, d := range inner[1:last] {
			between *= int(d)
		}
	}
	var steps [maxRank]int // bytes in a row between neighbours of each inner dimension
	for d, step := last, size; d >= 0; d-- {
		steps[d] = step
		step *= int(inner[d])
	}
	var tile [tileRows * cacheLine]byte
	few := cacheLine / size
	done := 0 // bytes since the last poll
	for begin := 0; begin < n; begin += tileRows {
		count := min(tileRows, n-begin)
		for middle := range between {
			at := begin * row
			for d, rest := 1, middle; d < last; d++ {
				at += rest % int(inner[d]) * steps[d]
				rest /= int(inner[d])
			}
			for left := 0; left < wide; left += few {
				group := min(few, wide-left)
				for y := range high {
					if done += group * count * size; done > storage.PollEvery {
						if done = 0; stop.Poll() != nil {
							return storage.ErrInterrupted
						}
					}
					out := to[at+y*steps[0]+left*size:]
					whole := group*size == row // the tile would be the rows themselves
					gathered, stride := tile[:], cacheLine
					if whole {
						gathered, stride = out, row
					}
					for x := range group {
						column := y + high*(middle+between*(left+x))
						in := from[(column*rows+first+begin)*size:]
						scatter(gathered[x*size:], in[:count*size], stride, size)
					}
					for r := 0; r < count && !whole; r++ {
						copy(out[r*row:][:group*size], tile[r*cacheLine:])
					}
				}
			}
		}
	}
	return nil
}

// scatter copies the elements of from to positions that are stride bytes apart.
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

// A Source provides the data of an array. Offsets are in bytes from the beginning of the data.
type Source interface {
	// Peek returns the data from an offset on: at least n bytes, unless the data ends before. The end is not an error.
	// Offsets decrease only after SeekTo. For an array in Fortran order, the whole array is always requested.
	Peek(at, n int) ([]byte, error)
	// Hold returns references to the memory of n instances of size bytes at an offset, which Peek has returned. If not
	// all are in the same memory, it returns references for the first of them, at least one. It returns their number.
	Hold(at, size, n int) (*memory.Buffer, int)
	// Interrupt returns the Interrupt for long operations.
	Interrupt() *storage.Interrupt
}

// errTruncated is the error that the data ends within the next instance.
var errTruncated = errors.New("expected more data, found the end")

// short returns the error why there is no next instance: err, or errTruncated if err is nil.
func short(err error) error {
	if err == nil {
		err = errTruncated
	}
	return err
}

// Instances are the rows of an array, in order, or the whole array as one instance. One caller at a time uses it.
type Instances struct {
	Dims  pyfeed.Dims // of an instance
	Size  int         // bytes of an instance
	Count int64
	Next  int64 // number of the next instance, from 0

	array *Array
	pool  *memory.Pool
	rows  int            // rows of the array in each instance
	tile  *memory.Buffer // decoded instances, the next one first; nil: none
	at    int            // offset of the next instance in tile
	jumps bool           // instances are read here and there, so each is decoded alone
}

// maxEmpty limits the number of instances without data, since a header of a few bytes can claim any number.
const maxEmpty = 1 << 24

// tileSize is the most memory, in bytes, for rows that are gathered together. Gathered one by one, each element would
// cost a cache line.
const tileSize = 16 << 20

// Instances divides the array into rows, or into one instance if whole is set or the array has no dimensions. pool
// allocates memory for decoded data.
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
	if in.Size == 0 && in.Count > maxEmpty {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "shape: expected at most %d instances without data, found %d", maxEmpty, in.Count)
	}
	return in, nil
}

// CheckPosition returns an error unless p is the number of an instance, or of the one after the last.
func (in *Instances) CheckPosition(path string, p record.Position) error {
	if p.Offset < 0 || p.Offset > in.Count || p.Inner != 0 {
		return record.BadPosition(path, p, fmt.Sprintf("the number of one of %d instances", in.Count))
	}
	return nil
}

// SeekTo makes an instance the next one, whose number CheckPosition has accepted.
func (in *Instances) SeekTo(next int64) {
	if next == in.Next {
		return
	}
	in.jumps = in.Next > 0
	if in.tile != nil {
		in.at += int(next-in.Next) * in.Size
		if in.at < 0 || in.at >= in.tile.Size() {
			in.Close()
		}
	}
	in.Next = next
}

// Slot returns the slot of an instance.
func (in *Instances) Slot() pyfeed.Slot { return pyfeed.Slot{DType: in.array.DType, Dims: in.Dims} }

// Read fills a slot of the first tuples of out with the next instances, and returns how many; io.EOF after the last
// instance.
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

// Prepare makes sure that the next Read does not take long, and returns the least number of instances that it can read.
// After an interruption, the next call of Prepare goes on.
func (in *Instances) Prepare(from Source) (n int, err error) {
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
	_ = s.SetDims(in.Dims) // cannot fail: the number of dimensions was checked
	s.Hold(data, b)
	return s
}

// view returns instances as views of the file.
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

// View returns the next instances, at most limit, if they can be used in place and are in memory. nil: Read returns
// them, or the error.
func (in *Instances) View(limit int, from Source) *record.Block {
	data, n := in.viewable(limit, from)
	if n == 0 {
		return nil
	}
	size, at := in.Size, int(in.Next)*in.Size
	b, n := from.Hold(at, size, n)
	s := pyfeed.LoDTensor{DType: in.array.DType, ReadOnly: true, Data: data[: size : n*size]}
	_ = s.SetDims(in.Dims) // cannot fail: the number of dimensions was checked
	in.Next += int64(n)
	return record.NewBlock([]pyfeed.LoDTensor{s}, size, n, b)
}

// viewable returns the data of the next instances, and how many, at most limit, can be used in place and are in memory.
func (in *Instances) viewable(limit int, from Source) ([]byte, int) {
	n := int(min(int64(limit), in.Count-in.Next))
	if n == 0 || in.Size == 0 || !in.array.InPlace() {
		return nil, 0
	}
	data, err := from.Peek(int(in.Next)*in.Size, in.Size)
	if err != nil {
		return nil, 0
	}
	return data, min(n, len(data)/in.Size)
}

// Viewable returns for how many of the next instances, at most limit, View returns a Block or several.
func (in *Instances) Viewable(limit int, from Source) int {
	_, n := in.viewable(limit, from)
	return n
}

// decoded returns instances from the tile. It decodes the next tile if there is none.
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
		n = min(int(in.Count-in.Next), max(n, min(cacheLine/a.DType.Size(), tileSize/size)))
		at, least = 0, a.Size
	}
	if in.jumps {
		n = 1
	}
	data, err := from.Peek(at, least)
	n = min(n, in.available(len(data)))
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
		used, _ := from.Hold(at, len(to), 1) // unmaps the part of the file that was decoded
		used.Release()
	}
	in.tile, in.at = b, 0
	return nil
}

// available returns how many of the next instances are complete in the first n bytes that Peek has returned.
func (in *Instances) available(bytes int) int {
	a := in.array
	if !a.Fortran {
		return bytes / in.Size
	}
	size, rows := a.DType.Size(), int(a.Shape[0])
	// A row is complete if the last column has its element.
	whole := max(0, min(bytes, a.Size)/size-(a.Size/size-rows))
	return whole/in.rows - int(in.Next)
}

// Close releases the decoded instances.
func (in *Instances) Close() {
	if in.tile != nil {
		in.tile.Release()
		in.tile = nil
	}
}
