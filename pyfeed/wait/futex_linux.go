package wait

import (
	"syscall"
	"unsafe"
)

const futexWakePrivate = 1 | 128 // FUTEX_WAKE | FUTEX_PRIVATE_FLAG, linux/futex.h

// futexWake wakes the thread that sleeps on word. The call does not block, so the scheduler need
// not hear of it; an address that is no longer mapped is an error that does not matter.
func futexWake(word *uint32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate, 1, 0, 0, 0)
}
