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
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// A recording is a trace. Dropping it, with its last handle, stops it.
type recording struct{ *trace.Recording }

func (r recording) Drop() { r.Stop() }

//export pfgo_trace_start
func pfgo_trace_start(limit C.uint64_t, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := trace.Start(int(min(uint64(limit), math.MaxInt)))
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

// A cBuffer is text in C's memory. A trace may be large, so it is not copied from Go's heap; the caller gets the buffer
// itself.
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

// detach returns the text, zero-terminated. The caller of the library frees it.
func (t *cBuffer) detach() (*C.char, error) {
	if _, err := t.Write([]byte{0}); err != nil {
		return nil, err
	}
	text := (*C.char)(t.data)
	*t = cBuffer{}
	return text, nil
}

// callerThread returns the calling thread, if it has read during the current recording; else nil. Call trace.On first,
// which is cheaper. A call from C does not change its thread.
func callerThread() *trace.Thread { return trace.CurrentThread(trace.ThreadID()) }

// tracedBlocking is blocking for a call of a consumer, which reads tuples. It records the call and its sleeps on the
// track of the thread.
func tracedBlocking[T any](call *C.pfi_call, name string, try func(context.Context) (T, error)) (T, error) {
	if !trace.On() {
		return blocking(call, try)
	}
	return recordBlocking(call, name, try)
}

func recordBlocking[T any](call *C.pfi_call, name string, try func(context.Context) (T, error)) (T, error) {
	thread := trace.ReadingThread(trace.ThreadID())
	if thread == nil { // the recording has just ended
		return blocking(call, try)
	}
	now := trace.Now()
	switch {
	case call.phase == C.PFI_FIRST:
		call.trace_begin = C.int64_t(now)
		thread.Began(now)
	default: // a sleep that began before the recording counts from the start of the recording
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

// traceCopy records that C has copied into a loan. A loan without copyBegan was written in place, or no recording was
// on.
func traceCopy(l *writeLoan, name string) {
	if l.copyBegan == 0 {
		return
	}
	bytes := 0
	for i := range l.tuple.Slots {
		bytes += len(l.tuple.Slots[i].Data)
	}
	trace.CopySince(callerThread().Track(), name, l.copyBegan, bytes)
}
