package driver

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"reflect"
)

// Error is what the driver said.
type Error struct {
	Code int    // a CUresult
	Name string // such as "CUDA_ERROR_OUT_OF_MEMORY"; "" if the driver has none for it
	Text string // such as "out of memory"
	Call string // to which function it said so
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: CUDA error %d, which this driver has no name for", e.Call, e.Code)
	}
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// OutOfMemory says whether it is memory that is missing, the host's or the device's.
func (e *Error) OutOfMemory() bool { return e.Code == C.CUDA_ERROR_OUT_OF_MEMORY }

// NotReady says whether it is no error at all, but an event that is yet to come.
func (e *Error) NotReady() bool { return e.Code == C.CUDA_ERROR_NOT_READY }

// Gone says whether the process is ending, and the driver has gone before us.
func (e *Error) Gone() bool { return e.Code == C.CUDA_ERROR_DEINITIALIZED }

// Capture says whether it is about a graph that somebody captures. The device is well.
func (e *Error) Capture() bool {
	return e.Code >= C.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && e.Code <= C.CUDA_ERROR_CAPTURED_EVENT
}

// Sticky says whether the device is lost to this process: every later call will answer the same. These are the codes of
// which cuda.h says so. Numbers between them, such as that of memory that is registered already, are about one call only.
func (e *Error) Sticky() bool {
	switch e.Code {
	case 46, // the device is unavailable
		214, 220, // memory or NVLink failed beyond correction
		226,      // contained
		700, 702, // illegal address, timeout
		709, 710, // the context was destroyed, or ended by an assertion
		714, 715, 716, 717, // faults of a kernel
		718, 719,
		721,      // tensor memory left behind
		810, 911: // by the server of MPS, by another device
		return true
	}
	return false
}

var (
	// ErrCapturing is in the chain when a stream is being captured into a graph. It was not touched.
	ErrCapturing = errors.New("the stream is being captured into a graph")
	// ErrForeign is in the chain when a stream is not one of the context's. It was not touched.
	ErrForeign = errors.New("the stream is not one of the device's primary context")
)

// check makes an error of a result that is one.
func check(r C.pfd_result) error {
	if r.code == C.CUDA_SUCCESS {
		return nil
	}
	return newError(C.GoString(r.call), int(r.code))
}

// checked does the same with an error of cu's, whose type cu does not export. It is a number, and the driver knows more
// numbers than cu.
func checked(call string, err error) error {
	if err == nil {
		return nil
	}
	if v := reflect.ValueOf(err); v.CanInt() {
		return newError(call, int(v.Int()))
	}
	return fmt.Errorf("%s: %w", call, err)
}

func newError(call string, code int) error {
	e := &Error{Code: code, Call: call}
	if name := C.pfd_error_name(C.int32_t(code)); name != nil {
		e.Name = C.GoString(name)
	}
	if text := C.pfd_error_text(C.int32_t(code)); text != nil {
		e.Text = C.GoString(text)
	}
	return e
}
