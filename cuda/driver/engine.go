package driver

// #cgo noescape pfd_copy_and_record
// #cgo nocallback pfd_copy_and_record
// #include "calls.h"
import "C"

import (
	"unsafe"

	"gorgonia.org/cu"
)

// The functions of this file must be called on a thread that is attached to the context of the streams and events. They
// do not allocate, except for an error.

// Attach makes the context current on the calling thread until Detach. The caller MUST have locked its goroutine to the
// thread. From then on, graph captures on other threads do not restrict the thread's calls.
func (c Context) Attach() error { return check(C.pfd_attach(c.c())) }

// Detach leaves the calling thread without a context.
func Detach() error { return check(C.pfd_detach()) }

// Handles of cu have the same representation as the driver's.
func (s Stream) cu() cu.Stream { return *(*cu.Stream)(unsafe.Pointer(&s)) }
func (e Event) cu() cu.Event   { return *(*cu.Event)(unsafe.Pointer(&e)) }

// Copy submits a copy to the device. The memory at from must be pinned, and MUST NOT change until the copy is done.
func Copy(to uint64, from unsafe.Pointer, bytes int, s Stream) error {
	return checked("cuMemcpyHtoDAsync", cu.MemcpyHtoDAsync(cu.DevicePtr(to), from, int64(bytes), s.cu()))
}

// CopyAndRecord submits a copy and records e after it.
func CopyAndRecord(to uint64, from unsafe.Pointer, bytes int, s Stream, e Event) error {
	return check(C.pfd_copy_and_record(C.uint64_t(to), from, C.uint64_t(bytes), C.uintptr_t(s), C.uintptr_t(e)))
}

// WaitEvent makes work submitted to the stream from now on wait for e.
func WaitEvent(s Stream, e Event) error {
	return checked("cuStreamWaitEvent", s.cu().Wait(e.cu(), 0))
}

// Record records e on the stream, after all work submitted so far.
func Record(e Event, s Stream) error { return checked("cuEventRecord", e.cu().Record(s.cu())) }

// Synchronize blocks until e has happened. The thread sleeps.
func Synchronize(e Event) error { return checked("cuEventSynchronize", e.cu().Synchronize()) }

// Query reports whether e has happened.
func Query(e Event) (done bool, err error) {
	r := C.pfd_query(C.uintptr_t(e))
	if r.code == C.CUDA_ERROR_NOT_READY {
		return false, nil
	}
	return r.code == C.CUDA_SUCCESS, check(r)
}

// Elapsed returns the time between two events with timing, in milliseconds.
func Elapsed(a, b Event) (ms float64, err error) {
	ms, err = a.cu().Elapsed(b.cu())
	return ms, checked("cuEventElapsedTime", err)
}
