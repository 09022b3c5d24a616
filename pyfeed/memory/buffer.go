package memory

import (
	"context"
	"sync/atomic"
	"unsafe"
)

// A Buffer is a block of memory outside Go's heap. It begins with one reference; the last Release returns it to its
// pool or owner. All methods are safe for concurrent use.
type Buffer struct {
	data  unsafe.Pointer
	size  int // as requested
	class int // as allocated
	refs  atomic.Int32

	pool  *Pool   // nil for lent or mapped memory
	next  *Buffer // in the pool's free list
	owner Owner

	resident    Resident // nil for host memory
	pinned      bool     // a device can copy from it directly
	ownerCounts bool     // the owner counts the memory: lent and returned do not include it

	mapped *Mapping // the mapping that the memory is a part of; nil for other memory
}

// IsMapped reports whether the memory is part of a mapped file.
func (b *Buffer) IsMapped() bool { return b.mapped != nil }

// TornAt returns the damage of the mapped file that contains the size bytes at p of the Buffer's memory: these bytes
// may differ from what was in the file. It returns nil if there is none, or if the memory is not a file's.
func (b *Buffer) TornAt(p unsafe.Pointer, size int) *Tear {
	if b.mapped == nil || !b.mapped.IsTorn() {
		return nil
	}
	return b.mapped.TornAt(p, size)
}

// An Owner has lent memory to the library. Reclaim is called on any thread, with no lock held, when the library has
// released it.
type Owner interface{ Reclaim() }

// A Resident is device memory that holds a tuple, as its consumer sees it. All methods are safe for concurrent use.
// Streams are CUDA streams as integers: 0 and 1 are the legacy default stream, 2 is the per-thread default stream.
type Resident interface {
	Owner
	// Use makes work submitted to the stream from now on wait until the tuple is on the device. The host does not wait.
	Use(stream uint64) error
	// Release declares that work submitted to the stream so far is the last to access the tuple. Without Release, the
	// memory is reused after the work that the streams of Use have when the last reference is dropped.
	Release(stream uint64) error
	// Synchronize blocks the host until the tuple is on the device.
	Synchronize(ctx context.Context) error
	// Download copies from the device to host memory and waits for the end of the copy. from is a part of the tuple.
	Download(to, from []byte) error
}

// Bytes returns the memory. It MUST NOT be used after the last Release.
func (b *Buffer) Bytes() []byte { return unsafe.Slice((*byte)(b.data), b.size) }

// Pointer returns the address of the memory.
func (b *Buffer) Pointer() unsafe.Pointer { return b.data }

// Resident returns the device memory that the Buffer represents; nil for host memory.
func (b *Buffer) Resident() Resident { return b.resident }

// Size returns the requested number of bytes.
func (b *Buffer) Size() int { return b.size }

// IsUnique reports whether there is only one reference. Its holder may write to the memory.
func (b *Buffer) IsUnique() bool { return b.refs.Load() == 1 }

// HasOnly reports whether there are exactly n references and the memory is a pool's ordinary host memory. The holder of
// all n references may then write to it.
func (b *Buffer) HasOnly(n int) bool { return b.pool != nil && !b.pinned && b.refs.Load() == int32(n) }

// Retain adds n references.
func (b *Buffer) Retain(n int) {
	if n > 0 && b.refs.Add(int32(n)) <= int32(n) {
		panic("memory: a released buffer was retained")
	}
}

// Release drops a reference. The last one returns the memory to its pool or owner.
func (b *Buffer) Release() { b.ReleaseMany(1) }

// ReleaseMany drops n references, as Release does.
func (b *Buffer) ReleaseMany(n int) {
	switch n := b.refs.Add(int32(-n)); {
	case n > 0:
		return
	case n < 0:
		panic("memory: a buffer was released more often than retained")
	}
	if b.pool != nil {
		b.pool.takeBack(b)
		return
	}
	if b.mapped == nil && !b.ownerCounts {
		returned.bytes.Add(int64(b.size))
		returned.buffers.Add(1)
	}
	if b.owner != nil {
		b.owner.Reclaim()
	}
}

// lent and returned count the bytes and buffers that were lent and that were returned. Mostly different threads do the
// two. With a single count, or two counts in one cache line, the threads would wait for each other's core
// (docs/performance.md, "Handing small tuples": 751 → 704 ns).
var lent, returned struct {
	_              [64]byte
	bytes, buffers atomic.Int64
	_              [64]byte
}

// Borrow makes a Buffer for size bytes that belong to owner, with one reference. The last Release calls the owner's
// Reclaim.
func Borrow(size int, owner Owner) *Buffer {
	b := &Buffer{size: size, owner: owner}
	b.refs.Store(1)
	lent.bytes.Add(int64(size))
	lent.buffers.Add(1)
	return b
}

// Wrap gives b, which has no references, size bytes at p and n references. The owner counts the memory. The last
// Release calls the owner's Reclaim, which may Wrap b again.
func (b *Buffer) Wrap(p unsafe.Pointer, size int, owner Owner, n int) {
	b.data, b.size, b.owner, b.ownerCounts = p, size, owner, true
	b.refs.Store(int32(n))
}

// WrapResident is Wrap for device memory, which has no host address.
func (b *Buffer) WrapResident(size int, resident Resident, n int) {
	b.resident = resident
	b.Wrap(nil, size, resident, n)
}

// Pin marks the memory as pinned: devices can copy from it directly. It may be called only before other threads see the
// Buffer.
func (b *Buffer) Pin() { b.pinned = true }

// Pinned reports whether devices can copy from the memory directly.
func (b *Buffer) Pinned() bool { return b.pinned }

// ForgetOwner makes the last Release of borrowed memory not call the owner. It may be called only before other threads
// see the Buffer.
func (b *Buffer) ForgetOwner() { b.owner = nil }
