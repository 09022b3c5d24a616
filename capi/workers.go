package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"context"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

//export pfgo_map_workers
func pfgo_map_workers(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return answer(e, err)
	}
	w := decorators.WorkersOf(r)
	if w == nil {
		return answer(pyfeed.Errorf(pyfeed.State, "workers: expected a map reader, found another kind"), err)
	}
	*out = give(w)
	return C.PF_OK
}

// taken is a tuple and the ticket for its result.
type taken struct {
	tuple  *pyfeed.Tuple
	ticket uint64
}

//export pfgo_map_take
func pfgo_map_take(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, ticket *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	giveBack(out)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return answer(e, err)
	}
	t, e := blocking(call, func(ctx context.Context) (t taken, e error) {
		t.tuple, t.ticket, e = w.Take(ctx)
		return t, e
	})
	if e == nil {
		*ticket = C.uint64_t(t.ticket)
		if e = lendOut(t.tuple, out); e != nil {
			w.Fail(t.ticket, e)
		}
	}
	return answer(e, err)
}

//export pfgo_map_room
func pfgo_map_room(h C.pf_handle, ticket C.uint64_t, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return answer(e, err)
	}
	t, e := parse(tensors, n, false)
	if e != nil {
		return answer(e, err)
	}
	if e = w.Allocate(t); e != nil {
		t.Release()
		return answer(e, err)
	}
	return lendRoom(t, tensors, call, err)
}

//export pfgo_map_give
func pfgo_map_give(h C.pf_handle, ticket, loan C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if trace.On() {
		knownThread().MarkPusher()
		if l, there := loans.get(uint64(loan)); there {
			noteFilled(l, "result of map")
		}
	}
	l, _ := loans.get(uint64(loan))
	torn := l.whole(uint64(loan))
	_, _ = takeBack(uint64(loan))
	w, e := lookup[*decorators.MapWorkers](h)
	if e == nil && torn != nil {
		w.Fail(uint64(ticket), torn)
		e = torn
	}
	if e != nil {
		l.tuple.Release()
		return answer(e, err)
	}
	return answer(w.Give(uint64(ticket), l.tuple), err)
}

func failureOf(f *C.pf_failure) *pyfeed.ProducerError {
	return &pyfeed.ProducerError{
		Type:      C.GoString(f._type),
		Message:   C.GoString(f.message),
		Traceback: C.GoString(f.traceback),
		Token:     uint64(f.token),
	}
}

//export pfgo_map_fail
func pfgo_map_fail(h C.pf_handle, ticket C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e == nil {
		w.Fail(uint64(ticket), failureOf(failure))
	}
	return answer(e, err)
}

// mostMapThreads bounds the threads that are inside a C function at one time.
const mostMapThreads = 1024

//export pfgo_map_run
func pfgo_map_run(h C.pf_handle, function, context_ unsafe.Pointer, threads C.uint32_t, finished unsafe.Pointer, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return answer(e, err)
	}
	if threads == 0 || threads > mostMapThreads {
		return answer(pyfeed.Errorf(pyfeed.Invalid, "num_threads: expected 1 to %d, found %d", mostMapThreads, threads), err)
	}
	m := &mapping{workers: w, handle: give(w), function: function, context: context_, finished: finished}
	m.running.Store(int32(threads))
	for range threads {
		wait.Go(m.run, func(fault error) { poison(fault.Error()) })
	}
	return C.PF_OK
}

// mapping is a C function at work.
type mapping struct {
	workers                     *decorators.MapWorkers
	handle                      C.pf_handle
	function, context, finished unsafe.Pointer
	running                     atomic.Int32
}

func (m *mapping) run() {
	out := (*C.pf_tuple)(C.calloc(1, C.sizeof_pf_tuple))
	out.size = C.sizeof_pf_tuple
	for m.step(out) {
	}
	C.free(unsafe.Pointer(out))
	if m.running.Add(-1) == 0 {
		pfgo_release(m.handle, nil)
		if m.finished != nil {
			C.pfi_call_release((*[0]byte)(m.finished), m.context)
		}
	}
}

func (m *mapping) step(out *C.pf_tuple) bool {
	t, ticket, e := m.workers.Take(context.Background())
	if e != nil {
		_, closed := e.(*pyfeed.Error)
		return !closed
	}
	if e := lendOut(t, out); e != nil {
		m.workers.Fail(ticket, e)
		return true
	}
	answer := C.pfi_call_map(m.function, m.context, m.handle, C.uint64_t(ticket), out)
	giveBack(out)
	text := "the function gave no result"
	if answer != 0 {
		text = fmt.Sprintf("the function answered %d", int(answer))
	}
	m.workers.Fail(ticket, &pyfeed.ProducerError{Message: text}) // of no effect where there is a result
	return true
}
