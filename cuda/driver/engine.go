package driver

// #cgo noescape pfd_copy_and_record
// #cgo nocallback pfd_copy_and_record
// #include "calls.h"
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// The functions of this file are for a thread that is attached to the context that streams and events are of. Nothing here
// allocates, unless the answer is an error.

// Attach makes the context current on this thread, to which the caller MUST have locked its goroutine, until Detach. No
// capture of another thread's forbids it anything from then on.
func (c Context) Attach() error { return check(C.pfd_attach(c.c())) }

// Detach leaves this thread without a context.
func Detach() error { return check(C.pfd_detach()) }

// The handles of cu's are the driver's and nothing else.
func (s Stream) cu() cu.Stream { return *(*cu.Stream)(unsafe.Pointer(&s)) }
func (e Event) cu() cu.Event   { return *(*cu.Event)(unsafe.Pointer(&e)) }

// Copy begins to copy to the device. The memory at from, which is pinned, MUST stay as it is until that is done.
func Copy(to uint64, from unsafe.Pointer, bytes int, s Stream) error {
	return checked("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(to), from, int64(bytes), s.cu()))
}

// CopyAndRecord does the same, and records e behind the copy.
func CopyAndRecord(to uint64, from unsafe.Pointer, bytes int, s Stream, e Event) error {
	return check(C.pfd_copy_and_record(C.uint64_t(to), from, C.uint64_t(bytes), C.uintptr_t(s), C.uintptr_t(e)))
}

// WaitEvent has what is submitted to the stream from now on wait for e.
func WaitEvent(s Stream, e Event) error {
	return checked("cuStreamWaitEvent", s.cu().Wait(e.cu(), 0))
}

// Record records e in the stream, behind all that was submitted to it until now.
func Record(e Event, s Stream) error { return checked("cuEventRecord", e.cu().Record(s.cu())) }

// Synchronize waits for e, asleep.
func Synchronize(e Event) error { return checked("cuEventSynchronize", e.cu().Synchronize()) }

// Query says whether e is over.
func Query(e Event) (done bool, err error) {
	r := C.pfd_query(C.uintptr_t(e))
	if r.code == C.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return r.code == C.CUDA_SUCCESS, check(r)
}

// Elapsed is the time between two events with clocks, in milliseconds.
func Elapsed(a, b Event) (ms float64, err error) {
	ms, err = a.cu().Elapsed(b.cu())
	return ms, checked("cuEventElapsedTime", err)
}
