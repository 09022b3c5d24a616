//go:build asan

package memory

// #include <sanitizer/asan_interface.h>
import "C"

import "unsafe"

// AddressSanitizer reports any touch of memory that is idle, as it does for malloc's.
func poison(p unsafe.Pointer, n int) { C.__asan_poison_memory_region(p, C.size_t(n)) }

func unpoison(p unsafe.Pointer, n int) { C.__asan_unpoison_memory_region(p, C.size_t(n)) }
