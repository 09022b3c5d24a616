package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"errors"
	"io"
	"syscall"
	"unsafe"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

var (
	errTimeout   = errors.New("timed out")
	errCancelled = pyfeed.Errorf(pyfeed.Cancelled, "the wait was cancelled")
)

var statuses = map[pyfeed.Kind]C.pf_status{
	pyfeed.Closed:      C.PF_CLOSED,
	pyfeed.Cancelled:   C.PF_CANCELLED,
	pyfeed.Invalid:     C.PF_INVALID,
	pyfeed.Shape:       C.PF_SHAPE,
	pyfeed.Type:        C.PF_DTYPE,
	pyfeed.Slots:       C.PF_SLOTS,
	pyfeed.TooLarge:    C.PF_TOO_LARGE,
	pyfeed.State:       C.PF_STATE,
	pyfeed.NotFound:    C.PF_NOT_FOUND,
	pyfeed.Unsupported: C.PF_UNSUPPORTED,
	pyfeed.Corrupt:     C.PF_CORRUPT,
	pyfeed.IO:          C.PF_IO,
	pyfeed.Fault:       C.PF_POISONED,
	pyfeed.CUDAError:   C.PF_CUDA_ERROR,
}

// fillable reports whether the caller passed a struct, of a size that this library can fill in.
func fillable(err *C.pf_error) bool { return err != nil && err.size >= C.PF_ERROR_SIZE_V1 }

// fillError stores a status, a slot and a message in the caller's struct, if there is one, and returns the status.
func fillError(err *C.pf_error, status C.pf_status, slot int, text string) C.pf_status {
	if !fillable(err) {
		return status
	}
	C.pf_error_release(err)
	err.status = status
	err.slot = C.int32_t(slot)
	err.message = C.CString(text)
	return status
}

// setError returns the status for an error and fills in the caller's struct. It returns PF_OK for nil and
// PFI_WOULD_BLOCK for wait.ErrWouldBlock, and then leaves the struct unchanged.
func setError(e error, err *C.pf_error) C.pf_status {
	switch e {
	case nil:
		return C.PF_OK
	case wait.ErrWouldBlock:
		return C.PFI_WOULD_BLOCK
	case io.EOF:
		return fillError(err, C.PF_END, -1, "the end of the data: this pass has no more tuples")
	case errTimeout:
		return fillError(err, C.PF_TIMEOUT, -1, "the time to wait went by")
	}
	switch e := e.(type) {
	case *program.OpError:
		return setOpError(e, err)
	case *pyfeed.Error:
		if e.Kind == pyfeed.Fault {
			poison(e.Text)
		}
		st := fillError(err, statuses[e.Kind], e.Slot, e.Error())
		if fillable(err) {
			setLocation(e.At, err)
			var number syscall.Errno
			if errors.As(e.Cause, &number) {
				err.os_errno = C.int32_t(number)
			}
			if e.CUDA != nil {
				err.cuda_code, err.cuda_name = C.int32_t(e.CUDA.Code), cStringOrNil(e.CUDA.Name)
			}
		}
		return st
	case staleHandle:
		return fillError(err, C.PF_STALE_HANDLE, -1, e.Error())
	case *pyfeed.ProducerError:
		st := fillError(err, C.PF_FAILED, -1, e.Error())
		if fillable(err) {
			err.cause_type = cStringOrNil(e.Type)
			err.cause_message = cStringOrNil(e.Message)
			err.cause_traceback = cStringOrNil(e.Traceback)
			err.cause_token = C.uint64_t(e.Token)
			err.context = C.uint32_t(len(e.Place))
			setLocation(e.At, err)
			err.worker, err.exit_status = C.int64_t(e.Worker), C.int32_t(e.ExitStatus)
		}
		return st
	}
	if errors.Is(e, memory.ErrNoMemory) {
		return fillError(err, C.PF_NO_MEMORY, -1, e.Error())
	}
	return fillError(err, C.PF_FAILED, -1, e.Error())
}

// setLocation stores the location in a file, if there is one.
func setLocation(at *pyfeed.Location, err *C.pf_error) {
	if at == nil {
		return
	}
	err.file = C.CString(at.File)
	err.offset, err.record = C.int64_t(at.Offset), C.int64_t(at.Record)
	if at.Approximate {
		err.approximate = 1
	}
}

// setOpError is setError for the cause of an operator's error. It puts the operator in front of the message.
func setOpError(e *program.OpError, err *C.pf_error) C.pf_status {
	st := setError(e.Cause, err)
	if fillable(err) {
		text := e.Context()
		if err.context > 0 {
			err.context += C.uint32_t(len(": "))
		}
		err.context += C.uint32_t(len(text))
		if err.message != nil {
			text += ": " + C.GoString(err.message)
			C.free(unsafe.Pointer(err.message))
		}
		err.message = C.CString(text)
		err.op = C.CString(e.Place())
	}
	return st
}
