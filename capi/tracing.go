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

// A recording ends with its last handle.
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
		return answer(pyfeed.Errorf(kind, "%v", e), err)
	}
	*out = give(recording{r})
	return C.PF_OK
}

//export pfgo_trace_stop
func pfgo_trace_stop(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[recording](h)
	if e == nil {
		r.Stop()
	}
	return answer(e, err)
}

//export pfgo_trace_text
func pfgo_trace_text(h C.pf_handle, form *C.char, out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[recording](h)
	if e != nil {
		return answer(e, err)
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
		return answer(pyfeed.Errorf(pyfeed.Invalid, "form: expected chrome, summary or table, found %q", f), err)
	}
	if !r.Stopped() {
		return answer(pyfeed.Errorf(pyfeed.State, "the recording has not ended: stop it first"), err)
	}
	var text cText
	if e = write(&text); e == nil {
		*out, e = text.take()
	}
	C.free(text.data)
	return answer(e, err)
}

// cText is a text in C's memory, since it may be large and C is to have it.
type cText struct {
	data       unsafe.Pointer
	size, room int
}

func (t *cText) Write(p []byte) (int, error) {
	if t.size+len(p) > t.room {
		room := max(2*t.room, t.size+len(p), 4096)
		data := C.realloc(t.data, C.size_t(room))
		if data == nil {
			return 0, memory.ErrNoMemory
		}
		t.data, t.room = data, room
	}
	copy(unsafe.Slice((*byte)(t.data), t.room)[t.size:], p)
	t.size += len(p)
	return len(p), nil
}

// take is the text with a zero behind it, which is the caller's to free.
func (t *cText) take() (*C.char, error) {
	if _, err := t.Write([]byte{0}); err != nil {
		return nil, err
	}
	text := (*C.char)(t.data)
	*t = cText{}
	return text, nil
}

// knownThread is the thread that calls, if a recording is on in which it has read; else nil: ask trace.On first, which
// takes less. A call from C stays on its thread.
func knownThread() *trace.Thread { return trace.KnownThread(syscall.Gettid()) }

// reading is blocking for a call that takes tuples or looks for them: what a consumer waits in. It is recorded with its
// sleeps, on a track of the thread's.
func reading[T any](call *C.pfi_call, name string, try func(context.Context) (T, error)) (T, error) {
	if !trace.On() {
		return blocking(call, try)
	}
	return recorded(call, name, try)
}

func recorded[T any](call *C.pfi_call, name string, try func(context.Context) (T, error)) (T, error) {
	thread := trace.ReadingThread(syscall.Gettid())
	if thread == nil { // the recording has just ended
		return blocking(call, try)
	}
	now := trace.Now()
	switch {
	case call.phase == C.PFI_FIRST:
		call.began = C.int64_t(now)
		thread.Began(now)
	default: // what began before the recording counts from the recording's start
		trace.Span(thread.Track(), trace.Wait, name, max(int64(call.slept), 1), now)
	}
	v, err := blocking(call, try)
	switch {
	case err == wait.ErrWouldBlock:
		call.slept = C.int64_t(trace.Now())
		return v, err
	case err != errTimeout:
		thread.Ended(name, max(int64(call.began), 1), trace.Answered)
	case call.waits == 0:
		thread.Ended(name, max(int64(call.began), 1), trace.Tried)
	default:
		thread.Ended(name, max(int64(call.began), 1), trace.Unanswered)
	}
	return v, err
}

// noteFilling is for a loan that C is about to copy into.
func noteFilling(id uint64) {
	if start := trace.Begin(); start != 0 {
		loans.mu.Lock()
		defer loans.mu.Unlock()
		loans.find(id).value.filling = start
	}
}

// noteFilled is for a loan, which C has copied into if it has been noted; else it was filled in place.
func noteFilled(l loan, name string) {
	if l.filling == 0 {
		return
	}
	bytes := 0
	for i := range l.tuple.Slots {
		bytes += len(l.tuple.Slots[i].Data)
	}
	trace.CopySince(knownThread().Track(), name, l.filling, bytes)
}
