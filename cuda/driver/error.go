package driver

// #include "calls.h"
import "C"

import (
	"errors"
	"fmt"
	"reflect"
)

// Error is an error returned by the driver.
type Error struct {
	Code int    // a CUresult
	Name string // such as "CUDA_ERROR_OUT_OF_MEMORY"; "" if the driver does not know the code
	Text string // such as "out of memory"
	Call string // the function that returned it
}

func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("%s: CUDA error %d, which this driver has no name for", e.Call, e.Code)
	}
	return fmt.Sprintf("%s: %s (%d): %s", e.Call, e.Name, e.Code, e.Text)
}

// OutOfMemory reports whether host or device memory is exhausted.
func (e *Error) OutOfMemory() bool { return e.Code == C.CUDA_ERROR_OUT_OF_MEMORY }

// NotReady reports whether the code is not an error, but means that an event has not happened yet.
func (e *Error) NotReady() bool { return e.Code == C.CUDA_ERROR_NOT_READY }

// Gone reports whether the driver has shut down because the process is ending.
func (e *Error) Gone() bool { return e.Code == C.CUDA_ERROR_DEINITIALIZED }

// Capture reports whether the error is about a graph capture in progress. The device is intact.
func (e *Error) Capture() bool {
	return e.Code >= C.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && e.Code <= C.CUDA_ERROR_CAPTURED_EVENT
}

// Sticky reports whether the device is lost to this process: all later calls return the same error. The codes are those
// for which cuda.h documents this. Other codes between them, such as the one for memory that is already registered,
// concern one call only.
func (e *Error) Sticky() bool {
	switch e.Code {
	case 46, // the device is unavailable
		214, 220, // uncorrectable error of memory, or of NVLink
		226,      // contained error
		700, 702, // illegal address, timeout
		709, 710, // the context was destroyed, or ended by an assertion
		714, 715, 716, 717, // faults of a kernel
		718, 719,
		721,      // leak of tensor memory
		810, 911: // process terminated by the MPS server; failure of an external device
		return true
	}
	return false
}

var (
	// ErrCapturing is in the chain of errors about a stream that is being captured into a graph. The stream was not
	// changed.
	ErrCapturing = errors.New("the stream is being captured into a graph")
	// ErrForeign is in the chain of errors about a stream of another context. The stream was not changed.
	ErrForeign = errors.New("the stream is not one of the device's primary context")
)

// check converts a result to an error, or nil.
func check(r C.pfd_result) error {
	if r.code == C.CUDA_SUCCESS {
		return nil
	}
	return newError(C.GoString(r.call), int(r.code))
}

// checked converts an error of cu. Its type is not exported, but it is a number. The driver knows more codes than cu.
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
