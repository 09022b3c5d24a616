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
	errTimeout = errors.New("timed out")
	errStopped = pyfeed.Errorf(pyfeed.Cancelled, "the wait was cancelled")
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

// known says whether the caller has a struct, of a size that this library can fill in.
func known(err *C.pf_error) bool { return err != nil && err.size >= C.PFI_LEAST_ERROR }

// fail fills the caller's struct in, if it has one.
func fail(err *C.pf_error, status C.pf_status, slot int, text string) C.pf_status {
	if !known(err) {
		return status
	}
	C.pf_error_release(err)
	err.status = status
	err.slot = C.int32_t(slot)
	err.message = C.CString(text)
	return status
}

// given is a C string, or NULL for what was not said.
func given(s string) *C.char {
	if s == "" {
		return nil
	}
	return C.CString(s)
}

// answer turns what Go answered into a status.
func answer(e error, err *C.pf_error) C.pf_status {
	switch e {
	case nil:
		return C.PF_OK
	case wait.ErrWouldBlock:
		return C.PFI_WOULD_BLOCK
	case io.EOF:
		return fail(err, C.PF_END, -1, "the end of the data: this pass has no more tuples")
	case errTimeout:
		return fail(err, C.PF_TIMEOUT, -1, "the time to wait went by")
	}
	switch e := e.(type) {
	case *program.OpError:
		return answerOp(e, err)
	case *pyfeed.Error:
		if e.Kind == pyfeed.Fault {
			poison(e.Text)
		}
		st := fail(err, statuses[e.Kind], e.Slot, e.Error())
		if known(err) {
			locate(e.At, err)
			var number syscall.Errno
			if errors.As(e.Cause, &number) {
				err.os_errno = C.int32_t(number)
			}
			if e.CUDA != nil && err.size >= C.PFI_ERROR_WITH_CUDA {
				err.cuda_code, err.cuda_name = C.int32_t(e.CUDA.Code), given(e.CUDA.Name)
			}
		}
		return st
	case staleHandle:
		return fail(err, C.PF_STALE_HANDLE, -1, e.Error())
	case *pyfeed.ProducerError:
		st := fail(err, C.PF_FAILED, -1, e.Error())
		if known(err) {
			err.cause_type = given(e.Type)
			err.cause_message = given(e.Message)
			err.cause_traceback = given(e.Traceback)
			err.cause_token = C.uint64_t(e.Token)
			err.context = C.uint32_t(len(e.Place))
			locate(e.At, err)
			if err.size >= C.PFI_ERROR_WITH_CUDA {
				err.worker, err.exit_status = C.int64_t(e.Worker), C.int32_t(e.ExitStatus)
			}
		}
		return st
	}
	if errors.Is(e, memory.ErrNoMemory) {
		return fail(err, C.PF_NO_MEMORY, -1, e.Error())
	}
	return fail(err, C.PF_FAILED, -1, e.Error())
}

// locate says where in a file it was.
func locate(at *pyfeed.Location, err *C.pf_error) {
	if at == nil {
		return
	}
	err.file = C.CString(at.File)
	err.offset, err.record = C.int64_t(at.Offset), C.int64_t(at.Record)
	if at.Approximate {
		err.approximate = 1
	}
}

// answerOp answers for the cause, with the operator in front of the sentence.
func answerOp(e *program.OpError, err *C.pf_error) C.pf_status {
	st := answer(e.Cause, err)
	if known(err) {
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
		if err.size >= C.PFI_ERROR_WITH_OP {
			err.op = C.CString(e.Place())
		}
	}
	return st
}
