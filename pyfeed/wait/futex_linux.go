package wait

import (
	"syscall"
	"unsafe"
)

const futexWakePrivate = 1 | 128 // FUTEX_WAKE | FUTEX_PRIVATE_FLAG, linux/futex.h

// futexWake wakes the thread that sleeps on word. RawSyscall is enough, because the call does not block. If the address
// is no longer mapped, the call fails harmlessly.
func futexWake(word *uint32) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWakePrivate, 1, 0, 0, 0)
}
