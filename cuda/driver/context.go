package driver

// #cgo noescape pfd_memory_info
// #cgo nocallback pfd_memory_info
// #cgo noescape pfd_alloc
// #cgo nocallback pfd_alloc
// #cgo noescape pfd_host_alloc
// #cgo nocallback pfd_host_alloc
// #cgo noescape pfd_new_stream
// #cgo nocallback pfd_new_stream
// #cgo noescape pfd_new_event
// #cgo nocallback pfd_new_event
// #cgo noescape pfd_register
// #cgo nocallback pfd_register
// #cgo noescape pfd_download
// #cgo nocallback pfd_download
// #include "calls.h"
import "C"

import (
	"fmt"
	"unsafe"
)

// A Context is a device's primary one. Its methods are for any thread, unless they say otherwise, and leave the thread as
// they found it: with the context, and the capture mode, that it had.
type Context uintptr

// A Stream is one that NewStream made, in whose order a device works.
type Stream uintptr

// An Event is a point in a stream.
type Event uintptr

func (c Context) c() C.uintptr_t { return C.uintptr_t(c) }

// MemInfo is how much of the device's memory is free, and how much there is, in bytes.
func (c Context) MemInfo() (free, total int64, err error) {
	var f, t C.uint64_t
	err = check(C.pfd_memory_info(c.c(), &f, &t))
	return int64(f), int64(t), err
}

// Alloc is memory of the device, aligned to 256 bytes.
func (c Context) Alloc(bytes int64) (addr uint64, err error) {
	var to C.uint64_t
	err = check(C.pfd_alloc(c.c(), C.uint64_t(bytes), &to))
	return uint64(to), err
}

// Free gives memory of Alloc back. The driver waits for all that the device does.
func (c Context) Free(addr uint64) error { return check(C.pfd_free(c.c(), C.uint64_t(addr))) }

// Register pins memory of the host's, so that all devices copy from and to it by themselves. It is not for more than 64 GiB
// at a time.
func (c Context) Register(p unsafe.Pointer, bytes int) error {
	return check(C.pfd_register(c.c(), p, C.uint64_t(bytes)))
}

// Unregister undoes Register: p is the same.
func (c Context) Unregister(p unsafe.Pointer) error { return check(C.pfd_unregister(c.c(), p)) }

// HostAlloc is pinned memory of the driver's. For large pieces Register is quicker, with huge pages.
func (c Context) HostAlloc(bytes int) (p unsafe.Pointer, err error) {
	err = check(C.pfd_host_alloc(c.c(), C.uint64_t(bytes), &p))
	return p, err
}

// HostFree gives memory of HostAlloc back.
func (c Context) HostFree(p unsafe.Pointer) error { return check(C.pfd_host_free(c.c(), p)) }

// NewStream makes a stream that does not wait for the legacy default stream, with the device's highest priority or the
// common one.
func (c Context) NewStream(high bool) (Stream, error) {
	var s C.uintptr_t
	err := check(C.pfd_new_stream(c.c(), truth(high), &s))
	return Stream(s), err
}

// DestroyStream destroys a stream once what was submitted to it is done. It does not wait for that.
func (c Context) DestroyStream(s Stream) error {
	return check(C.pfd_destroy_stream(c.c(), C.uintptr_t(s)))
}

// SynchronizeStream waits for all that was submitted to a stream.
func (c Context) SynchronizeStream(s Stream) error {
	return check(C.pfd_synchronize_stream(c.c(), C.uintptr_t(s)))
}

// NewEvent makes an event. Threads that wait for it sleep. One with a clock can be measured, and is slower.
func (c Context) NewEvent(timing bool) (Event, error) {
	var e C.uintptr_t
	err := check(C.pfd_new_event(c.c(), truth(timing), &e))
	return Event(e), err
}

// DestroyEvent destroys an event. Streams that wait for it go on to do so.
func (c Context) DestroyEvent(e Event) error {
	return check(C.pfd_destroy_event(c.c(), C.uintptr_t(e)))
}

// Use has what is submitted to a stream from now on wait for e. The stream is a consumer's, a CUstream as an integer: 0 and
// 1 are the legacy default stream, 2 is the calling thread's own. A stream that is being captured ([ErrCapturing]) or is
// another context's ([ErrForeign]) is left as it is.
func (c Context) Use(stream uint64, e Event) error {
	return refused(stream, C.pfd_use(c.c(), C.uintptr_t(stream), C.uintptr_t(e)))
}

// Release records e in a consumer's stream, behind all that was submitted to it until now. Streams are as for Use.
func (c Context) Release(stream uint64, e Event) error {
	return refused(stream, C.pfd_release(c.c(), C.uintptr_t(stream), C.uintptr_t(e)))
}

func refused(stream uint64, r C.pfd_result) error {
	switch r.code {
	case C.CUDA_SUCCESS:
		return nil
	case C.PFD_CAPTURING:
		return streamError(stream, ErrCapturing)
	case C.PFD_FOREIGN:
		return streamError(stream, ErrForeign)
	}
	return check(r)
}

func streamError(stream uint64, err error) error { return fmt.Errorf("stream %#x: %w", stream, err) }

// Download copies from the device to any memory of the host's, and waits until that is done. It does not wait for what
// others have submitted to the device.
func (c Context) Download(to unsafe.Pointer, from uint64, bytes int) error {
	return check(C.pfd_download(c.c(), to, C.uint64_t(from), C.uint64_t(bytes)))
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
