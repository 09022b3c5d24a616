package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"syscall"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// A recording stops with its last handle.
type recording struct{ *trace.Recording }

func (r recording) Drop() { r.Stop() }

//export pfgo_trace_start
func pfgo_trace_start(most C.uint64_t, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := trace.Start(int(min(uint64(most), math.MaxInt)))
	if e != nil {
		kind := pyfeed.Invalid
		if errors.Is(e, trace.ErrOn) {
			kind = pyfeed.State
		}
		return setError(pyfeed.Errorf(kind, "%v", e), err)
	}
	*out = newHandle(recording{r})
	return C.PF_OK
}

//export pfgo_trace_stop
func pfgo_trace_stop(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[recording](h)
	if e == nil {
		r.Stop()
	}
	return setError(e, err)
}

//export pfgo_trace_export
func pfgo_trace_export(h C.pf_handle, form *C.char, out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[recording](h)
	if e != nil {
		return setError(e, err)
	}
	var write func(io.Writer) error
	switch f := C.GoString(form); f {
	case "chrome":
		write = r.Chrome
	case "summary":
		write = func(w io.Writer) error { return json.NewEncoder(w).Encode(r.Summary()) }
	case "table":
		write = func(w io.Writer) error { _, e := io.WriteString(w, r.Table()); return e }
	default:
		return setError(pyfeed.Errorf(pyfeed.Invalid, "form: expected chrome, summary or table, found %q", f), err)
	}
	if !r.Stopped() {
		return setError(pyfeed.Errorf(pyfeed.State, "the recording has not ended: stop it first"), err)
	}
	var text cBuffer
	if e = write(&text); e == nil {
		*out, e = text.detach()
	}
	C.free(text.data)
	return setError(e, err)
}

// A cBuffer is text in C's memory: it may be large, and becomes the caller's.
type cBuffer struct {
	data           unsafe.Pointer
	size, capacity int
}

func (t *cBuffer) Write(p []byte) (int, error) {
	if t.size+len(p) > t.capacity {
		capacity := max(2*t.capacity, t.size+len(p), 4096)
		data := C.realloc(t.data, C.size_t(capacity))
		if data == nil {
			return 0, memory.ErrNoMemory
		}
		t.data, t.capacity = data, capacity
	}
	copy(unsafe.Slice((*byte)(t.data), t.capacity)[t.size:], p)
	t.size += len(p)
	return len(p), nil
}

// detach returns the text, zero-terminated, for the caller to free.
func (t *cBuffer) detach() (*C.char, error) {
	if _, err := t.Write([]byte{0}); err != nil {
		return nil, err
	}
	text := (*C.char)(t.data)
	*t = cBuffer{}
	return text, nil
}

// callerThread is the calling thread, if it has read in the current recording; else nil. Ask trace.On first, which is
// cheaper. A call from C stays on its thread.
func callerThread() *trace.Thread { return trace.KnownThread(syscall.Gettid()) }

// tracedBlocking is blocking for a consumer's call, which returns tuples or waits for them. The call and its sleeps are
// recorded on the thread's track.
func tracedBlocking[T any](call *C.pfi_call, name string, try func(context.Context) (T, error)) (T, error) {
	if !trace.On() {
		return blocking(call, try)
	}
	return recordBlocking(call, name, try)
}

func recordBlocking[T any](call *C.pfi_call, name string, try func(context.Context) (T, error)) (T, error) {
	thread := trace.ReadingThread(syscall.Gettid())
	if thread == nil { // the recording has just ended
		return blocking(call, try)
	}
	now := trace.Now()
	switch {
	case call.phase == C.PFI_FIRST:
		call.trace_begin = C.int64_t(now)
		thread.Began(now)
	default: // what began before the recording counts from the recording's start
		trace.Span(thread.Track(), trace.Wait, name, max(int64(call.sleep_begin), 1), now)
	}
	v, err := blocking(call, try)
	switch {
	case err == wait.ErrWouldBlock:
		call.sleep_begin = C.int64_t(trace.Now())
		return v, err
	case err != errTimeout:
		thread.Ended(name, max(int64(call.trace_begin), 1), trace.Answered)
	case call.may_wait == 0:
		thread.Ended(name, max(int64(call.trace_begin), 1), trace.Tried)
	default:
		thread.Ended(name, max(int64(call.trace_begin), 1), trace.Unanswered)
	}
	return v, err
}

// markCopyBegin notes that C is about to copy into a loan.
func markCopyBegin(id uint64) {
	if start := trace.Begin(); start != 0 {
		loans.mu.Lock()
		defer loans.mu.Unlock()
		loans.find(id).value.copyBegan = start
	}
}

// traceCopy records C's copy into a loan; a loan that was not marked was written in place.
func traceCopy(l loan, name string) {
	if l.copyBegan == 0 {
		return
	}
	bytes := 0
	for i := range l.tuple.Slots {
		bytes += len(l.tuple.Slots[i].Data)
	}
	trace.CopySince(callerThread().Track(), name, l.copyBegan, bytes)
}
