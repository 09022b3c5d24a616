//go:build asan

package memory

// #include <sanitizer/asan_interface.h>
import "C"

import "unsafe"

// poison makes AddressSanitizer report accesses to idle memory, as it does for freed memory of malloc.
func poison(p unsafe.Pointer, n int) { C.__asan_poison_memory_region(p, C.size_t(n)) }

func unpoison(p unsafe.Pointer, n int) { C.__asan_unpoison_memory_region(p, C.size_t(n)) }
