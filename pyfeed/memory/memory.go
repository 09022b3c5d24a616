// Package memory keeps the bytes of tuples outside Go's heap: aligned, pooled, reference-counted and
// counted by purpose.
//
// Outside, because C and Python hold pointers into them for as long as they like, because Go's
// collector would otherwise scan, pace itself by and zero gigabytes that it has no business with,
// and because a page touched for the first time costs far more than the copy into it: so buffers
// are kept and used again, and their release is explicit. No finalizer frees anything.
package memory

// #include "memory.h"
import "C"

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Alignment is that of every buffer, in bytes: a cache line, and what NumPy and SIMD code like best.
const Alignment = 64

// Align rounds n up to a multiple of Alignment.
func Align(n int) int { return (n + Alignment - 1) &^ (Alignment - 1) }

// ErrNoMemory is in the chain of every failed allocation.
var ErrNoMemory = errors.New("out of memory")

// A Purpose says what memory is for. Counts are kept apart.
type Purpose uint8

const (
	Queue  Purpose = iota // tuples pushed by copy or written in place
	Lent                  // producers' own memory, not ours
	Batch                 // batches and variables
	View                  // descriptors of tuples for C
	File                  // what was read or decompressed from files, and made of it
	Mapped                // files mapped for reading: the system's memory, not ours
	numPurposes
)

// A Buffer is a piece of memory outside Go's heap. It begins with one reference; the last Release
// gives it back. Any thread.
type Buffer struct {
	data  unsafe.Pointer
	size  int // asked for
	class int // really there
	refs  atomic.Int32

	processor int32 // on which it was handed out, from 1; 0: not known

	pool  *Pool   // nil for memory that is lent or mapped
	next  *Buffer // in the pool's free list
	owner Owner

	resident  Resident // nil for the host's memory
	pinned    bool     // a device copies from it by itself
	uncounted bool     // the owner counts the memory

	mapped *Mapping // the memory is a file's; nil for other memory
}

// IsMapped reports whether the memory is a mapped file's.
func (b *Buffer) IsMapped() bool { return b.mapped != nil }

// TornAt is why so many bytes from p on, of the memory, which is a mapped file's, may not be what was in the file; nil:
// they are, or the memory is no file's.
func (b *Buffer) TornAt(p unsafe.Pointer, size int) *Tear {
	if b.mapped == nil || !b.mapped.IsTorn() {
		return nil
	}
	return b.mapped.TornAt(p, size)
}

// An Owner has lent memory and reclaims it: on any thread, with no lock held.
type Owner interface{ Reclaim() }

// A Resident is memory of a device with a tuple in it, as its consumer sees it. Any thread. Streams are CUDA's, as
// integers: 0 and 1 are the legacy default stream, 2 is that of the calling thread.
type Resident interface {
	Owner
	// Use has what is submitted to the stream from now on wait until the tuple is there. Nothing waits on the host.
	Use(stream uint64) error
	// Release says that what was submitted to the stream until now is the last there to touch the tuple. Without it,
	// that is what was submitted to the streams of Use until the last reference goes.
	Release(stream uint64) error
	// Synchronize waits on the host until the tuple is there.
	Synchronize(ctx context.Context) error
	// Download copies from the device, out of from, which lies in the tuple, and waits until that is done.
	Download(to, from []byte) error
}

// Bytes is the memory. It MUST NOT be used after the last Release.
func (b *Buffer) Bytes() []byte { return unsafe.Slice((*byte)(b.data), b.size) }

// Pointer is where the memory begins.
func (b *Buffer) Pointer() unsafe.Pointer { return b.data }

// Resident is the device memory that the Buffer stands for; nil: it is the host's memory.
func (b *Buffer) Resident() Resident { return b.resident }

// Size is the number of bytes that were asked for.
func (b *Buffer) Size() int { return b.size }

// IsUnique reports whether there is one reference only: its holder may write.
func (b *Buffer) IsUnique() bool { return b.refs.Load() == 1 }

// HasOnly reports whether the memory is a pool's, of the host's own, with n references: the holder of all of them may write.
func (b *Buffer) HasOnly(n int) bool { return b.pool != nil && !b.pinned && b.refs.Load() == int32(n) }

// Retain adds n references.
func (b *Buffer) Retain(n int) {
	if n > 0 && b.refs.Add(int32(n)) <= int32(n) {
		panic("memory: a released buffer was retained")
	}
}

// Release drops a reference, and with the last one the buffer.
func (b *Buffer) Release() { b.ReleaseMany(1) }

// ReleaseMany drops n references.
func (b *Buffer) ReleaseMany(n int) {
	switch n := b.refs.Add(int32(-n)); {
	case n > 0:
		return
	case n < 0:
		panic("memory: a buffer was released more often than retained")
	}
	if b.pool != nil {
		b.pool.put(b)
		return
	}
	if b.mapped == nil && !b.uncounted {
		returned.bytes.Add(int64(b.size))
		returned.buffers.Add(1)
	}
	if b.owner != nil {
		b.owner.Reclaim()
	}
}

// What was lent, and what of it was given back, mostly by two threads: were it one count, or did the two lie in one line
// of the processor's cache, each thread would wait for the other's core.
var lent, returned struct {
	_              [64]byte
	bytes, buffers atomic.Int64
	_              [64]byte
}

// Borrow counts size bytes that belong to owner. The last Release has it reclaim them.
func Borrow(size int, owner Owner) *Buffer {
	b := &Buffer{size: size, owner: owner}
	b.refs.Store(1)
	lent.bytes.Add(int64(size))
	lent.buffers.Add(1)
	return b
}

// Wrap makes b, which has no references, n references to size bytes at p, memory that its owner counts.
// The last Release has the owner reclaim it, which may Wrap it again.
func (b *Buffer) Wrap(p unsafe.Pointer, size int, owner Owner, n int) {
	b.data, b.size, b.owner, b.uncounted = p, size, owner, true
	b.refs.Store(int32(n))
}

// WrapResident is Wrap for memory of a device, whose addresses are none of the host's.
func (b *Buffer) WrapResident(size int, resident Resident, n int) {
	b.resident = resident
	b.Wrap(nil, size, resident, n)
}

// Pin says that devices copy from the memory by themselves. It is for a Buffer that no other thread has seen.
func (b *Buffer) Pin() { b.pinned = true }

// Pinned says whether devices copy from the memory by themselves.
func (b *Buffer) Pinned() bool { return b.pinned }

// ForgetOwner makes the last Release of borrowed memory call nobody. It is for a Buffer that no other
// thread has seen.
func (b *Buffer) ForgetOwner() { b.owner = nil }

// A Slab is large memory that Buffers are made of, or that is none of theirs. It is counted whole.
type Slab uint8

const (
	PinnedSlab Slab = iota // of the host's, from which devices copy by themselves
	DeviceSlab             // of a device's
	SharedSlab             // that worker processes write to
	numSlabs
)

var slabBytes [numSlabs]atomic.Int64

// CountSlab adds bytes, fewer than 0 when they are given back.
func CountSlab(s Slab, bytes int) { slabBytes[s].Add(int64(bytes)) }

// NewSlab maps memory made of huge pages, if the system has them, each touched: n MUST be a multiple of SlabUnit.
func NewSlab(n int) (unsafe.Pointer, error) {
	p, err := allocate(n)
	if err != nil {
		return nil, err
	}
	populate(unsafe.Slice((*byte)(p), n))
	return p, nil
}

// FreeSlab gives the memory of NewSlab back.
func FreeSlab(p unsafe.Pointer, n int) { C.pfm_free(p, C.size_t(n)) }

// SlabUnit is the size of a huge page.
const SlabUnit = C.PFM_HUGE

func allocate(class int) (unsafe.Pointer, error) {
	p := C.pfm_alloc(C.size_t(class))
	if p == nil {
		return nil, fmt.Errorf("%w: the system gave no %d bytes", ErrNoMemory, class)
	}
	return p, nil
}

func free(p unsafe.Pointer, class int) {
	unpoison(p, class)
	C.pfm_free(p, C.size_t(class))
}
