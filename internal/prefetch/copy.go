// Package prefetch copies memory of which the next part to be copied is known, but not adjacent.
package prefetch

import "unsafe"

// Least is the least size in bytes that Copy can copy.
const Least = 64

// Most is the largest size in bytes for which Copy is faster than the built-in copy: the processor prefetches most of a
// larger part by itself (docs/performance.md, "Copies that prefetch").
const Most = 16 << 10

// Distance returns how many parts ahead the part at next should be, for parts of n bytes.
func Distance(n int) int { return max(1, min(distanceBytes/n, maxDistance)) }

// A part that is prefetched too early may be evicted before it is copied, one that is prefetched too late has not
// arrived.
const (
	distanceBytes = 8 << 10
	maxDistance   = 16
)

// Copy copies n bytes, at least Least, from one place to another, which do not overlap. Meanwhile it prefetches the n
// bytes at next, which a later call copies. next may be any address: nothing is read there.
func Copy(to, from unsafe.Pointer, n int, next unsafe.Pointer) { copyLines(to, from, n, next) }
