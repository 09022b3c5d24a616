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

// A Context is the primary context of a device. Its methods may be called on any thread unless they say otherwise. They
// leave the thread with the context and the capture mode that it had before.
type Context uintptr

// A Stream is a stream made by NewStream.
type Stream uintptr

// An Event is a point in a stream.
type Event uintptr

func (c Context) c() C.uintptr_t { return C.uintptr_t(c) }

// MemInfo returns the free and the total bytes of the device's memory.
func (c Context) MemInfo() (free, total int64, err error) {
	var f, t C.uint64_t
	err = check(C.pfd_memory_info(c.c(), &f, &t))
	return int64(f), int64(t), err
}

// Alloc allocates device memory aligned to 256 bytes.
func (c Context) Alloc(bytes int64) (addr uint64, err error) {
	var to C.uint64_t
	err = check(C.pfd_alloc(c.c(), C.uint64_t(bytes), &to))
	return uint64(to), err
}

// Free frees memory of Alloc. The driver waits for all work of the device first.
func (c Context) Free(addr uint64) error { return check(C.pfd_free(c.c(), C.uint64_t(addr))) }

// Register pins host memory, so that all devices can copy from and to it directly. It is limited to 64 GiB at a time.
func (c Context) Register(p unsafe.Pointer, bytes int) error {
	return check(C.pfd_register(c.c(), p, C.uint64_t(bytes)))
}

// Unregister undoes Register with the same p.
func (c Context) Unregister(p unsafe.Pointer) error { return check(C.pfd_unregister(c.c(), p)) }

// HostAlloc allocates pinned memory from the driver. For large blocks, Register with huge pages is faster.
func (c Context) HostAlloc(bytes int) (p unsafe.Pointer, err error) {
	err = check(C.pfd_host_alloc(c.c(), C.uint64_t(bytes), &p))
	return p, err
}

// HostFree frees memory of HostAlloc.
func (c Context) HostFree(p unsafe.Pointer) error { return check(C.pfd_host_free(c.c(), p)) }

// NewStream makes a stream that does not wait for the legacy default stream. It has the device's highest priority if
// high is set, otherwise the default priority.
func (c Context) NewStream(high bool) (Stream, error) {
	var s C.uintptr_t
	err := check(C.pfd_new_stream(c.c(), truth(high), &s))
	return Stream(s), err
}

// DestroyStream destroys a stream after the work submitted to it is done. It does not wait for that.
func (c Context) DestroyStream(s Stream) error {
	return check(C.pfd_destroy_stream(c.c(), C.uintptr_t(s)))
}

// SynchronizeStream waits for all work submitted to a stream.
func (c Context) SynchronizeStream(s Stream) error {
	return check(C.pfd_synchronize_stream(c.c(), C.uintptr_t(s)))
}

// NewEvent makes an event. Threads that wait for it sleep. With timing, it can be measured but is slower.
func (c Context) NewEvent(timing bool) (Event, error) {
	var e C.uintptr_t
	err := check(C.pfd_new_event(c.c(), truth(timing), &e))
	return Event(e), err
}

// DestroyEvent destroys an event. Streams that wait for it keep waiting for its work.
func (c Context) DestroyEvent(e Event) error {
	return check(C.pfd_destroy_event(c.c(), C.uintptr_t(e)))
}

// Use makes work submitted to a stream from now on wait for e. The stream is a consumer's CUstream as an integer: 0 and
// 1 are the legacy default stream, 2 is the per-thread default stream. A stream that is being captured fails with
// [ErrCapturing], a stream of another context with [ErrForeign]; neither is changed.
func (c Context) Use(stream uint64, e Event) error {
	return refused(stream, C.pfd_use(c.c(), C.uintptr_t(stream), C.uintptr_t(e)))
}

// Release records e on a consumer's stream, after all work submitted so far. Streams are as for Use.
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

// Download copies from the device to any host memory and waits for the end of the copy. It does not wait for other work
// submitted to the device.
func (c Context) Download(to unsafe.Pointer, from uint64, bytes int) error {
	return check(C.pfd_download(c.c(), to, C.uint64_t(from), C.uint64_t(bytes)))
}

func truth(b bool) C.int {
	if b {
		return 1
	}
	return 0
}
