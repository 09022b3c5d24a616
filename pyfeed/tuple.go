package pyfeed

import (
	"fmt"
	"math"
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Tuple holds the slots of one instance or one batch. It has one owner, which releases it.
type Tuple struct {
	Slots []LoDTensor
	Pass  int64 // number of the pass, from 0, if a reader runs several passes itself
	From  Origin
}

// Origin is the record of a file that a tuple was read from; for a batch, the record of its first tuple. The zero
// Origin means that the tuple does not come from a file.
type Origin struct {
	File        *string // nil: not from a file
	Record      int64
	Count       int32 // number of tuples in a batch; 0: not a batch
	Approximate bool  // Record is an estimate
}

// Location returns the origin as a Location for errors; nil if the tuple does not come from a file.
func (o *Origin) Location() *Location {
	if o.File == nil {
		return nil
	}
	return &Location{File: *o.File, Offset: -1, Record: o.Record, Approximate: o.Approximate}
}

// String describes the tuple for errors, such as "x.npy, record 7". It returns "" for a tuple that is not a batch and
// does not come from a file.
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

// Batch returns the Origin of a batch of n tuples, where o is the Origin of the first.
func (o Origin) Batch(n int) Origin {
	o.Count = int32(min(n, math.MaxInt32))
	return o
}

// freeTuples keeps released tuples for NewTuple. A sync.Pool is slower here, because one thread makes tuples and
// another releases them. An array is faster than a linked list, whose next link has to be read from uncached memory.
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

// Release drops the tensors and recycles the tuple. The caller MUST NOT use the tuple afterwards.
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

// reset clears all fields except the slots.
func (t *Tuple) reset() {
	t.Pass, t.From = 0, Origin{}
}

// NewTuples fills out with tuples of n empty slots each. It costs less than a NewTuple for each.
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

// Resize sets the number of slots of an empty tuple to n, all empty.
func (t *Tuple) Resize(n int) {
	if n > cap(t.Slots) {
		t.Slots = make([]LoDTensor, n)
	}
	t.Slots = t.Slots[:n]
}

// ReleaseAll releases many tuples and clears the slice.
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

// releaseBatch collects references to buffers and releases those to the same buffer together. Neighbouring tuples
// mostly lie in the same buffer, and other threads update its count too.
type releaseBatch struct {
	to [16]*memory.Buffer // indexed by a hash of the buffer's address
	n  [16]int
}

// add takes over a reference; b may be nil.
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

// Size returns the bytes of data of all slots.
func (t *Tuple) Size() int {
	n := 0
	for i := range t.Slots {
		n += len(t.Slots[i].Data)
	}
	return n
}

// EnsureExportable prepares a tuple to leave the library: it copies the tuple if offsets are in Go's heap or elements
// are not aligned, and otherwise leaves it unchanged. It fails with Corrupt if the tuple is in a mapped file that is
// known to have shrunk or changed.
func (t *Tuple) EnsureExportable(pool *memory.Pool) (copied bool, err error) {
	fit := true
	for i := range t.Slots {
		s := &t.Slots[i]
		at := uintptr(unsafe.Pointer(unsafe.SliceData(s.Data)))
		fit = fit && !s.InHeap && (at%8 == 0 || at%uintptr(min(max(s.DType.Size(), 1), 8)) == 0)
	}
	if fit {
		return false, t.CheckTruncated()
	}
	return true, t.Move(pool)
}

// Move copies the data into memory of the pool and releases the old memory.
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

// Pinned returns the pinned memory that contains all data of t, for a device to copy in one piece. It returns false if
// the data is not in one pinned buffer, or if a field is not aligned to SourceAlignment. Empty fields may be anywhere.
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
	if end-begin > 2*uintptr(sum)+4096 { // the rows of a large batch can lie far apart
		return nil, false
	}
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&begin)), end-begin), true
}

// OnDevice reports whether the tuple is in device memory.
func (t *Tuple) OnDevice() bool { return len(t.Slots) > 0 && t.Slots[0].OnDevice() }

// CheckTruncated returns the first error of LoDTensor.CheckTruncated among the slots.
func (t *Tuple) CheckTruncated() error {
	if !memory.AnyTorn() {
		return nil
	}
	return t.firstTruncation()
}

func (t *Tuple) firstTruncation() error {
	for i := range t.Slots {
		if err := t.Slots[i].CheckTruncated(i); err != nil {
			return err
		}
	}
	return nil
}

// Allocate lays out all slots in one buffer. The slots must have DType, dims and LoD and be measured
// (LoDTensor.Measure). Each slot is aligned, with its LoD before its data. Allocate copies the LoD offsets; the data is
// uninitialized.
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

// borrow makes all slots, whose Data belongs to owner, hold a reference to it. The owner reclaims the Data when the
// last slot is dropped.
func (t *Tuple) borrow(owner memory.Owner) {
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
