package prefetch

import "unsafe"

// copyLines copies n bytes, at least 64, and prefetches the n bytes at next.
//
//go:noescape
func copyLines(to, from unsafe.Pointer, n int, next unsafe.Pointer)
