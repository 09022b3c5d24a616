package shared

import (
	"syscall"
	"unsafe"
)

// From linux/futex.h. The private variants cannot be used, because the words are shared with other processes.
const (
	futexWaitOp = 0
	futexWakeOp = 1
)

// futexWait sleeps while word has the given value. It may return early.
func futexWait(word unsafe.Pointer, value uint32) {
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(word), futexWaitOp, uintptr(value), 0, 0, 0)
}

// futexWake wakes up to n sleepers in any process. It does not block.
func futexWake(word unsafe.Pointer, n int) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(word), futexWakeOp, uintptr(n), 0, 0, 0)
}
