package memory

import "golang.org/x/sys/unix"

// AdviseHuge advises the system to use huge pages for data. Without them, it is only slower.
func AdviseHuge(data []byte) { _ = unix.Madvise(data, unix.MADV_HUGEPAGE) }

// MapPages maps the pages of data in one system call, for writing. It reports false if the system cannot, as Linux
// before 5.14: each first access to a page then takes a page fault.
func MapPages(data []byte) bool { return unix.Madvise(data, unix.MADV_POPULATE_WRITE) == nil }
