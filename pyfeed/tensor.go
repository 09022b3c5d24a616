package pyfeed

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// MaxRank bounds the number of dimensions, so that a tensor's description needs no allocation.
const MaxRank = 8

// Dims are the sizes of a tensor's dimensions, the slowest first. In a Slot, -1 matches anything.
type Dims []int64

// LoDTensor is a contiguous tensor, last dimension fastest, with a level of detail. It holds one
// reference to the memory it lies in, or none if that belongs to its maker. Moving is copying the
// struct and forgetting the original.
type LoDTensor struct {
	DType    DType
	Place    Place
	ReadOnly bool // lent: its owner still has it
	LoD      LoD
	Data     []byte
	InHeap   bool // the offsets lie in Go's heap, where C must not look: see Tuple.EnsureExportable

	rank   int
	dims   [MaxRank]int64
	size   int // bytes that DType and dims call for, once measured
	buffer *memory.Buffer
}

// Dims is a view of the dimensions.
func (t *LoDTensor) Dims() Dims { return t.dims[:t.rank] }

// SetDims copies the dimensions in. More than MaxRank of them are refused.
func (t *LoDTensor) SetDims(dims Dims) error {
	if len(dims) > MaxRank {
		return fmt.Errorf("rank: expected at most %d dimensions, found %d", MaxRank, len(dims))
	}
	t.rank = copy(t.dims[:], dims)
	return nil
}

// Measure works out the bytes that dtype and dims call for, or says that they call for the impossible.
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
		return 0, fmt.Errorf("dims %v of %v are more bytes than there are", slices.Clone(t.Dims()), t.DType) // a copy: t would go to the heap
	}
	t.size = int(n)
	return t.size, nil
}

// Rows is the number of instances: sequences if there is a LoD, else the first dimension.
func (t *LoDTensor) Rows() int64 {
	if len(t.LoD) > 0 {
		return t.LoD.Sequences()
	}
	return t.dims[0]
}

// Share makes to, which is empty, a second reference to the same tensor.
func (t *LoDTensor) Share(to *LoDTensor) {
	if t.buffer != nil {
		t.buffer.Retain(1)
	}
	lod := append(to.LoD[:0], t.LoD...)
	*to = *t
	to.LoD = lod
}

// CheckLoD says what is wrong with the LoD.
func (t *LoDTensor) CheckLoD() error {
	if len(t.LoD) == 0 {
		return nil
	}
	if t.rank == 0 {
		return fmt.Errorf("LoD: expected a tensor with a first dimension, found a scalar")
	}
	return t.LoD.check(t.dims[0])
}

// Size is the bytes of data of all slots.
func (t *Tuple) Size() int {
	n := 0
	for i := range t.Slots {
		n += len(t.Slots[i].Data)
	}
	return n
}

// Hold makes the tensor a view of data, which lies in b, and takes over one reference to b.
func (t *LoDTensor) Hold(data []byte, b *memory.Buffer) { t.Data, t.buffer = data, b }

// CheckTruncated is an error about slot i, the tensor's, if the data lies in a mapped file which has become shorter, was written
// to or could not be read meanwhile, as far as is known: it may read as zeros then. Whose memory the data is makes no difference.
func (t *LoDTensor) CheckTruncated(i int) error {
	if t.buffer != nil && t.buffer.IsMapped() {
		return TornError(t.buffer.TornAt(unsafe.Pointer(unsafe.SliceData(t.Data)), len(t.Data)), i)
	}
	return TornError(memory.TornAt(unsafe.Pointer(unsafe.SliceData(t.Data)), len(t.Data)), i)
}

// TornError is the error about slot i whose data lies in a mapped file that is torn; nil if none is.
func TornError(tear *memory.Tear, i int) error {
	if tear == nil {
		return nil
	}
	err := SlotErrorf(Corrupt, i, "%v", tear)
	err.At = &Location{File: tear.File, Offset: -1, Record: -1}
	if tear.Refused != 0 {
		err.Kind, err.Cause, err.At.Offset = IO, tear.Refused, tear.From
	}
	return err
}

// IsUnique reports whether the tensor has the only reference to its memory, and the host may write it.
func (t *LoDTensor) IsUnique() bool {
	return t.buffer != nil && !t.ReadOnly && t.buffer.IsUnique() && !t.OnDevice()
}

// AllocateTensor makes the tensor, which is empty, one of that dtype, dims and LoD, whose offsets are copied, in memory of the
// pool that is yet to be written. After an error it is empty still.
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

// place puts offsets and data into b, from at on, and answers where they end.
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

// Extend makes the tensor, which has no LoD and is the only one in its memory, or has none yet, one of n rows in memory of
// the pool; its first kept rows stay. After an error it is as it was.
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

// Complete makes a tensor that was extended one of n rows, which it has, with a copy of the offsets behind its data. After an
// error it is as it was.
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

// Drop releases the tensor's memory and zeroes it.
func (t *LoDTensor) Drop() {
	if b := t.takeBuffer(); b != nil {
		b.Release()
	}
}

// takeBuffer zeroes the tensor, and answers its memory with the reference.
func (t *LoDTensor) takeBuffer() *memory.Buffer {
	b, lod := t.buffer, t.LoD
	clear(lod)
	*t = LoDTensor{LoD: lod[:0]}
	return b
}

// Tuple is the slots of one instance or one batch. It has one owner, who releases it.
type Tuple struct {
	Slots []LoDTensor
	Pass  int64 // of a reader that goes on to further passes by itself: which one it is of, from 0
	From  Origin
}

// Origin is the record of a file that a tuple is, or that the first of those is that a batch was made of. The zero Origin
// is that of a tuple from no file.
type Origin struct {
	File        *string // nil: none
	Record      int64
	Count       int32 // of a batch, the tuples in it; else 0
	Approximate bool  // Record is
}

// Location is the same for errors; nil: there is no file.
func (o *Origin) Location() *Location {
	if o.File == nil {
		return nil
	}
	return &Location{File: *o.File, Offset: -1, Record: o.Record, Approximate: o.Approximate}
}

// String says what the tuple is, such as "x.npy, record 7"; "" of one from no file that is no batch.
func (o *Origin) String() string {
	text := ""
	if at := o.Location(); at != nil {
		text = at.String()
	}
	if o.Count == 0 {
		return text
	}
	batch := fmt.Sprintf("a batch of %d", o.Count)
	if text == "" {
		return batch
	}
	return batch + " that begins with " + text
}

// Batch is the Origin of a batch of n tuples whose first has this one.
func (o Origin) Batch(n int) Origin {
	o.Count = int32(min(n, math.MaxInt32))
	return o
}

// Released tuples, for NewTuple. A sync.Pool is slower here: one thread makes what another releases. They are not chained,
// so that none has to come into the cache before the one behind it is known.
var freeTuples struct {
	mu     sync.Mutex
	tuples []*Tuple
}

const maxFreeTuples = 1 << 15

// NewTuple makes a tuple of n empty slots.
func NewTuple(n int) *Tuple {
	var t *Tuple
	freeTuples.mu.Lock()
	if last := len(freeTuples.tuples) - 1; last >= 0 {
		t, freeTuples.tuples = freeTuples.tuples[last], freeTuples.tuples[:last]
	}
	freeTuples.mu.Unlock()
	if t == nil {
		t = new(Tuple)
	}
	t.Resize(n)
	return t
}

// Release drops the tensors. The tuple MUST NOT be used afterwards.
func (t *Tuple) Release() {
	for i := range t.Slots {
		t.Slots[i].Drop()
	}
	t.reset()
	freeTuples.mu.Lock()
	if len(freeTuples.tuples) < maxFreeTuples {
		freeTuples.tuples = append(freeTuples.tuples, t)
	}
	freeTuples.mu.Unlock()
}

// reset leaves nothing but the slots.
func (t *Tuple) reset() {
	t.Pass, t.From = 0, Origin{}
}

// NewTuples fills out with tuples of n empty slots, at less than the cost of as many NewTuple.
func NewTuples(out []*Tuple, n int) {
	freeTuples.mu.Lock()
	left := max(0, len(freeTuples.tuples)-len(out))
	i := copy(out, freeTuples.tuples[left:])
	freeTuples.tuples = freeTuples.tuples[:left]
	freeTuples.mu.Unlock()
	if i < len(out) {
		fresh := make([]Tuple, len(out)-i)
		slots := make([]LoDTensor, n*len(fresh))
		for j := range fresh {
			fresh[j].Slots = slots[j*n : (j+1)*n : (j+1)*n]
			out[i+j] = &fresh[j]
		}
	}
	for _, t := range out {
		t.Resize(n)
	}
}

// Resize makes an empty tuple one of n empty slots.
func (t *Tuple) Resize(n int) {
	if n > cap(t.Slots) {
		t.Slots = make([]LoDTensor, n)
	}
	t.Slots = t.Slots[:n]
}

// ReleaseAll releases many tuples, and forgets them.
func ReleaseAll(all []*Tuple) {
	var held releaseBatch
	for _, t := range all {
		for j := range t.Slots {
			held.add(t.Slots[j].takeBuffer())
		}
		t.reset()
	}
	freeTuples.mu.Lock()
	freeTuples.tuples = append(freeTuples.tuples, all[:min(len(all), maxFreeTuples-len(freeTuples.tuples))]...)
	freeTuples.mu.Unlock()
	clear(all)
	held.drop()
}

// releaseBatch gathers references to few buffers, to release them together: neighbours mostly lie in the same buffer, whose
// count other threads want as well.
type releaseBatch struct {
	to [16]*memory.Buffer // each where its address says, so that none is looked for
	n  [16]int
}

// add takes a reference over; nil is fine.
func (r *releaseBatch) add(b *memory.Buffer) {
	if b == nil {
		return
	}
	i := uintptr(unsafe.Pointer(b)) / unsafe.Sizeof(*b) % uintptr(len(r.to))
	if r.to[i] == b {
		r.n[i]++
		return
	}
	if r.to[i] != nil {
		r.to[i].ReleaseMany(r.n[i])
	}
	r.to[i], r.n[i] = b, 1
}

func (r *releaseBatch) drop() {
	for i, b := range r.to {
		if b != nil {
			b.ReleaseMany(r.n[i])
		}
	}
}

// EnsureExportable makes a tuple fit to leave the library: its offsets out of Go's heap, its elements aligned. One
// that is not is copied; any other is left as it is. One whose file has shrunk, as far as is known, is Corrupt.
func (t *Tuple) EnsureExportable(pool *memory.Pool) (copied bool, err error) {
	fit := true
	for i := range t.Slots {
		s := &t.Slots[i]
		at := uintptr(unsafe.Pointer(unsafe.SliceData(s.Data)))
		fit = fit && !s.InHeap && at%uintptr(min(max(s.DType.Size(), 1), 8)) == 0
	}
	if fit {
		return false, t.CheckTruncated()
	}
	return true, t.Move(pool)
}

// Move copies the data into memory of a pool's, in place of that which it is in.
func (t *Tuple) Move(pool *memory.Pool) error {
	old := NewTuple(len(t.Slots))
	defer old.Release()
	for i := range t.Slots {
		from, to := &old.Slots[i], &t.Slots[i]
		*from, *to = *to, LoDTensor{}
		to.DType, to.Place, to.dims, to.rank, to.size = from.DType, from.Place, from.dims, from.rank, len(from.Data)
		to.LoD = append(to.LoD, from.LoD...)
	}
	if err := t.Allocate(pool); err != nil {
		return err
	}
	for i := range t.Slots {
		Copy(t.Slots[i].Data, old.Slots[i].Data)
	}
	return old.CheckTruncated()
}

// Pinned is the one piece of memory that all data of t lies in and a device copies from by itself, its fields aligned as
// a device likes them; false if they do not lie so. Fields without elements lie anywhere.
func (t *Tuple) Pinned() ([]byte, bool) {
	var b *memory.Buffer
	begin, end, sum := ^uintptr(0), uintptr(0), 0
	for i := range t.Slots {
		s := &t.Slots[i]
		sum += len(s.Data)
		if len(s.Data) == 0 {
			continue
		}
		at := uintptr(unsafe.Pointer(unsafe.SliceData(s.Data)))
		if s.buffer == nil || !s.buffer.Pinned() || b != nil && b != s.buffer || at%memory.SourceAlignment != 0 {
			return nil, false
		}
		b = s.buffer
		begin, end = min(begin, at), max(end, at+uintptr(len(s.Data)))
	}
	if b == nil {
		return nil, true
	}
	if end-begin > 2*uintptr(sum)+4096 { // rows of a large batch, far apart
		return nil, false
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&begin)), end-begin), true
}

// OnDevice says whether the tuple lies in a device's memory.
func (t *Tuple) OnDevice() bool { return len(t.Slots) > 0 && t.Slots[0].OnDevice() }

// CheckTruncated is the first error of its slots'.
func (t *Tuple) CheckTruncated() error {
	for i := range t.Slots {
		if err := t.Slots[i].CheckTruncated(i); err != nil {
			return err
		}
	}
	return nil
}

const int64Size = 8

// Allocate lays the slots, which have DType, dims and LoD and were measured, out in one buffer: a field each,
// aligned, its LoD before its data. The offsets of the LoD are copied, the data is as it comes.
func (t *Tuple) Allocate(pool *memory.Pool) error {
	total := 0
	for i := range t.Slots {
		s := &t.Slots[i]
		for _, level := range s.LoD {
			total += pool.Align(len(level) * int64Size)
		}
		total += pool.Align(s.size)
	}
	if len(t.Slots) == 0 {
		return nil
	}
	b, err := pool.Get(max(total, 1))
	if err != nil {
		return err
	}
	b.Retain(len(t.Slots) - 1)
	at := 0
	for i := range t.Slots {
		at = t.Slots[i].place(b, at, pool)
	}
	return nil
}

// Borrow makes the slots, whose Data belongs to owner, hold on to it: the owner reclaims it when the
// last of them is dropped.
func (t *Tuple) Borrow(owner memory.Owner) {
	total := 0
	for i := range t.Slots {
		total += len(t.Slots[i].Data)
	}
	b := memory.Borrow(total, owner)
	b.Retain(len(t.Slots) - 1)
	for i := range t.Slots {
		t.Slots[i].buffer = b
		t.Slots[i].ReadOnly = true
	}
}

// Copy copies in pieces, between which Go's scheduler and collector can get in.
func Copy(to, from []byte) {
	const piece = 1 << 20
	for len(from) > piece {
		copy(to, from[:piece])
		to, from = to[piece:], from[piece:]
	}
	copy(to, from)
}
