// Package memory keeps the bytes of tuples outside Go's heap: aligned, pooled, reference-counted and counted by
// purpose.
//
// They are outside Go's heap for three reasons. C and Python hold pointers into them for as long as they like. Go's
// garbage collector would scan and zero gigabytes for nothing, and set its pace by them. And the first access to a new
// page costs far more than the copy into it, so that buffers must be reused, which needs an explicit release. No
// finalizer frees anything.
package memory

// #include "memory.h"
import "C"

import (
	"errors"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// Alignment of every buffer, in bytes: a cache line, and a good alignment for NumPy and SIMD code.
const Alignment = 64

// align rounds n up to a multiple of Alignment.
func align(n int) int { return (n + Alignment - 1) &^ (Alignment - 1) }

// ErrNoMemory is in the chain of every failed allocation.
var ErrNoMemory = errors.New("out of memory")

// A Purpose is what memory is used for. Each purpose has its own count.
type Purpose uint8

const (
	Queue  Purpose = iota // tuples pushed by copy or written in place
	Lent                  // memory of producers, lent to the library
	Batch                 // batches and variables
	View                  // descriptors of tuples for C
	File                  // data read or decompressed from files, and tuples made of it
	Mapped                // files mapped for reading: their pages belong to the page cache
	numPurposes
)

// A Slab is a kind of large memory block. Pinned slabs are cut into Buffers; the others are used as a whole. The bytes
// of a slab are counted as a whole.
type Slab uint8

const (
	PinnedSlab Slab = iota // pinned host memory, which devices copy from directly
	DeviceSlab             // memory of a device
	SharedSlab             // memory shared with worker processes
	numSlabs
)

var slabBytes [numSlabs]atomic.Int64

// CountSlab adds bytes to the count of a kind of slab; bytes is negative when a slab is released.
func CountSlab(s Slab, bytes int) { slabBytes[s].Add(int64(bytes)) }

// NewSlab allocates n bytes and touches each page. It uses huge pages if the system has them. n MUST be a multiple of
// SlabUnit.
func NewSlab(n int) (unsafe.Pointer, error) {
	p, err := allocate(n)
	if err != nil {
		return nil, err
	}
	populate(unsafe.Slice((*byte)(p), n))
	return p, nil
}

// FreeSlab releases the memory of NewSlab.
func FreeSlab(p unsafe.Pointer, n int) { C.pfm_free(p, C.size_t(n)) }

// SlabUnit is the size of a huge page.
const SlabUnit = C.PFM_HUGE

func allocate(class int) (unsafe.Pointer, error) {
	p := C.pfm_alloc(C.size_t(class))
	if p == nil {
		return nil, fmt.Errorf("%w: the system could not allocate %d bytes", ErrNoMemory, class)
	}
	return p, nil
}

func free(p unsafe.Pointer, class int) {
	unpoison(p, class)
	C.pfm_free(p, C.size_t(class))
}
