package pyfeed

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// MaxRank is the largest number of dimensions. The limit lets a tensor store its dims without an allocation.
const MaxRank = 8

// Dims are the sizes of a tensor's dimensions, in row-major order. In a Slot, -1 matches any size.
type Dims []int64

// LoDTensor is a contiguous row-major tensor with optional ragged offsets (LoD, level of detail). It holds one
// reference to its memory, or none if its maker owns the memory. A tensor is moved by copying the struct and forgetting
// the original.
type LoDTensor struct {
	DType    DType
	Place    Place
	ReadOnly bool // the memory is lent: its owner may still read it
	LoD      LoD
	Data     []byte
	InHeap   bool // the offsets are in Go's heap, which C must not read: see Tuple.EnsureExportable

	rank   int
	dims   [MaxRank]int64
	size   int // size in bytes by DType and dims; set by Measure
	buffer *memory.Buffer
}

// Dims returns a view of the dimensions.
func (t *LoDTensor) Dims() Dims { return t.dims[:t.rank] }

// SetDims copies the dimensions. It fails if there are more than MaxRank.
func (t *LoDTensor) SetDims(dims Dims) error {
	if len(dims) > MaxRank {
		return fmt.Errorf("rank: expected at most %d dimensions, found %d", MaxRank, len(dims))
	}
	t.rank = copy(t.dims[:], dims)
	return nil
}

// Measure computes the size in bytes from dtype and dims. It fails if a dimension is negative or the size overflows.
func (t *LoDTensor) Measure() (int, error) {
	n, over := uint64(t.DType.Size()), false
	for i, d := range t.Dims() {
		if d < 0 {
			return 0, fmt.Errorf("dimension %d: expected a size, found %d", i, d)
		}
		high, low := bits.Mul64(n, uint64(d))
		over = (over || high != 0 || low > math.MaxInt64) && d > 0
		n = low
	}
	if over {
		// The dims are cloned because t would otherwise escape to the heap.
		return 0, fmt.Errorf("dims %v of %v are more bytes than there are", slices.Clone(t.Dims()), t.DType)
	}
	t.size = int(n)
	return t.size, nil
}

// Rows returns the number of instances: the outermost sequences if there is a LoD, else the first dimension.
func (t *LoDTensor) Rows() int64 {
	if len(t.LoD) > 0 {
		return t.LoD.Sequences()
	}
	return t.dims[0]
}

// Share makes to, which must be empty, a second reference to the same tensor.
func (t *LoDTensor) Share(to *LoDTensor) {
	if t.buffer != nil {
		t.buffer.Retain(1)
	}
	lod := append(to.LoD[:0], t.LoD...)
	*to = *t
	to.LoD = lod
}

// CheckLoD returns an error if the LoD is not valid.
func (t *LoDTensor) CheckLoD() error {
	if len(t.LoD) == 0 {
		return nil
	}
	if t.rank == 0 {
		return fmt.Errorf("LoD: expected a tensor with a first dimension, found a scalar")
	}
	return t.LoD.check(t.dims[0])
}

// Hold makes the tensor a view of data, which is part of b, and takes over one reference to b.
func (t *LoDTensor) Hold(data []byte, b *memory.Buffer) { t.Data, t.buffer = data, b }

// CheckTruncated returns an error about slot i if the data is in a mapped file that is known to have shrunk, to have
// been written to, or to be unreadable: the data may then read as zeros. It checks lent memory too, which may be in a
// file that the library has mapped.
func (t *LoDTensor) CheckTruncated(i int) error {
	if t.buffer != nil && t.buffer.IsMapped() {
		return TornError(t.buffer.TornAt(unsafe.Pointer(unsafe.SliceData(t.Data)), len(t.Data)), i)
	}
	return TornError(memory.TornAt(unsafe.Pointer(unsafe.SliceData(t.Data)), len(t.Data)), i)
}

// TornError makes an error about slot i from the damage of a mapped file, tear; nil if tear is nil.
func TornError(tear *memory.Tear, i int) error {
	if tear == nil {
		return nil
	}
	err := SlotErrorf(Corrupt, i, "%v", tear)
	err.At = &Location{File: tear.File, Offset: -1, Record: -1}
	if tear.ReadError != 0 {
		err.Kind, err.Cause, err.At.Offset = IO, tear.ReadError, tear.Offset
	}
	return err
}

// isUnique reports whether the tensor holds the only reference to its memory and the host may write to it.
func (t *LoDTensor) isUnique() bool {
	return t.buffer != nil && !t.ReadOnly && t.buffer.IsUnique() && !t.OnDevice()
}

// AllocateTensor gives an empty tensor the dtype, dims and LoD, and allocates memory from the pool. The offsets are
// copied; the data is uninitialized. After an error the tensor is still empty.
func (t *LoDTensor) AllocateTensor(dtype DType, dims Dims, lod LoD, pool *memory.Pool) (err error) {
	defer func() {
		if err != nil {
			t.Drop()
		}
	}()
	if !dtype.Valid() {
		return Errorf(Type, "expected a dtype, found number %d", int32(dtype))
	}
	if err := t.SetDims(dims); err != nil {
		return Errorf(Shape, "%v", err)
	}
	t.DType = dtype
	t.LoD = append(t.LoD[:0], lod...)
	size, err := t.Measure()
	if err == nil {
		err = t.CheckLoD()
	}
	if err != nil {
		return Errorf(Shape, "%v", err)
	}
	total := size
	for _, level := range lod {
		total += pool.Align(len(level) * int64Size)
	}
	b, err := pool.Get(max(total, 1))
	if err != nil {
		return err
	}
	t.place(b, 0, pool)
	return nil
}

// place lays out offsets and data in b, beginning at offset at, and returns the offset behind them.
func (t *LoDTensor) place(b *memory.Buffer, at int, pool *memory.Pool) int {
	for j, level := range t.LoD {
		in := unsafe.Slice((*int64)(unsafe.Add(b.Pointer(), at)), len(level))
		copy(in, level)
		t.LoD[j] = in
		at += pool.Align(len(level) * int64Size)
	}
	t.Data = unsafe.Slice((*byte)(unsafe.Add(b.Pointer(), at)), t.size)
	t.buffer = b
	return at + pool.Align(t.size)
}

// Extend resizes the tensor to n rows in memory of the pool and keeps the first kept rows. The tensor has no LoD, and
// either no memory or the only reference to it. After an error it is unchanged.
func (t *LoDTensor) Extend(n, kept int, pool *memory.Pool) error {
	before := t.dims[0]
	t.dims[0] = int64(n)
	size, err := t.Measure()
	row := size / max(n, 1)
	var b *memory.Buffer
	switch {
	case err != nil:
	case t.buffer == nil:
		b, err = pool.Get(max(size, 1))
	default:
		b, err = pool.Resize(t.buffer, max(size, 1), kept*row)
	}
	if err != nil {
		t.dims[0] = before
		t.size = row * int(before)
		return err
	}
	t.Hold(unsafe.Slice((*byte)(b.Pointer()), size), b)
	return nil
}

// Complete sets the final number of rows, n, of a tensor that was grown with Extend, and copies the LoD offsets behind
// its data. After an error the tensor is unchanged.
func (t *LoDTensor) Complete(n int, lod LoD, pool *memory.Pool) error {
	before := t.dims[0]
	t.dims[0] = int64(n)
	size, err := t.Measure()
	total := pool.Align(size)
	for _, level := range lod {
		total += pool.Align(len(level) * int64Size)
	}
	var b *memory.Buffer
	if err == nil {
		b, err = pool.Resize(t.buffer, max(total, 1), size)
	}
	if err != nil {
		t.dims[0], t.size = before, len(t.Data)
		return err
	}
	t.Hold(unsafe.Slice((*byte)(b.Pointer()), size), b)
	at := pool.Align(size)
	for _, level := range lod {
		in := unsafe.Slice((*int64)(unsafe.Add(b.Pointer(), at)), len(level))
		copy(in, level)
		t.LoD = append(t.LoD, in)
		at += pool.Align(len(level) * int64Size)
	}
	return nil
}

// Drop releases the tensor's memory and clears the tensor.
func (t *LoDTensor) Drop() {
	if b := t.takeBuffer(); b != nil {
		b.Release()
	}
}

// takeBuffer clears the tensor, and returns its buffer with the reference.
func (t *LoDTensor) takeBuffer() *memory.Buffer {
	b, lod := t.buffer, t.LoD
	clear(lod)
	*t = LoDTensor{LoD: lod[:0]}
	return b
}

const int64Size = 8

// Copy copies in pieces of 1 MiB, so that Go's scheduler and garbage collector can interrupt between them.
func Copy(to, from []byte) {
	const piece = 1 << 20
	for len(from) > piece {
		copy(to, from[:piece])
		to, from = to[piece:], from[piece:]
	}
	copy(to, from)
}
