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
	"github.com/pyfeed/pyfeed/readers/processes"
)

//export pfgo_map_workers_create
func pfgo_map_workers_create(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	w := decorators.WorkersOf(r)
	if w == nil {
		return setError(pyfeed.Errorf(pyfeed.State, "workers: expected a map reader, found another kind"), err)
	}
	*out = newHandle(w)
	return C.PF_OK
}

// A mapInput is a tuple and the ticket for its result.
type mapInput struct {
	tuple  *pyfeed.Tuple
	ticket uint64
}

//export pfgo_map_workers_next
func pfgo_map_workers_next(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, ticket *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	releaseTuple(out)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return setError(e, err)
	}
	in, e := blocking(call, func(ctx context.Context) (in mapInput, e error) {
		in.tuple, in.ticket, e = w.Take(ctx)
		return in, e
	})
	if e == nil {
		*ticket = C.uint64_t(in.ticket)
		if e = lendTuple(in.tuple, out); e != nil {
			w.Fail(in.ticket, e)
		}
	}
	return setError(e, err)
}

// allocateResult returns a tuple like C's tensors, with memory, for the result of a map.
func allocateResult(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t) (*pyfeed.Tuple, error) {
	w, err := lookup[*decorators.MapWorkers](h)
	if err != nil {
		return nil, err
	}
	t, err := parseTensors(tensors, n, false)
	if err != nil {
		return nil, err
	}
	if err = w.Allocate(t); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}

//export pfgo_map_workers_allocate
func pfgo_map_workers_allocate(h C.pf_handle, ticket C.uint64_t, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	t, e := allocateResult(h, tensors, n)
	if e != nil {
		return setError(e, err)
	}
	return lendForCopy(&writeLoan{loan: loan{tuple: t}, tensors: tensors}, call, err)
}

//export pfgo_map_workers_complete
func pfgo_map_workers_complete(h C.pf_handle, ticket, loan C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, _ := endWriteLoan(uint64(loan))
	if trace.On() {
		callerThread().MarkPusher()
		traceCopy(&l, "result of map")
	}
	truncated := l.truncation()
	w, e := lookup[*decorators.MapWorkers](h)
	if e == nil && truncated != nil {
		w.Fail(uint64(ticket), truncated)
		e = truncated
	}
	if e != nil {
		l.tuple.Release()
		return setError(e, err)
	}
	return setError(w.Give(uint64(ticket), l.tuple), err)
}

//export pfgo_map_workers_reserve
func pfgo_map_workers_reserve(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	t, e := allocateResult(h, tensors, n)
	if e != nil {
		return setError(e, err)
	}
	return setError(lendInPlace(t, pyfeed.Reservation{}, out), err)
}

//export pfgo_map_workers_commit
func pfgo_map_workers_commit(h C.pf_handle, ticket, id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return setError(e, err)
	}
	lent, e := findLoan("commit", id)
	if e == nil {
		e = w.Check(lent.tuple) // it may have been reserved for another reader
	}
	if e != nil {
		return setError(e, err)
	}
	l, e := takeReservation(uint64(id), false)
	if e == nil {
		e = w.Give(uint64(ticket), l.tuple)
	}
	return setError(e, err)
}

//export pfgo_map_workers_fail
func pfgo_map_workers_fail(h C.pf_handle, ticket C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e == nil {
		w.Fail(uint64(ticket), producerError(failure))
	}
	return setError(e, err)
}

//export pfgo_map_workers_skip
func pfgo_map_workers_skip(h C.pf_handle, ticket C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e == nil {
		w.Skip(uint64(ticket), producerError(failure))
	}
	return setError(e, err)
}

//export pfgo_map_workers_position
func pfgo_map_workers_position(h C.pf_handle, ticket C.uint64_t, pass, index *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return setError(e, err)
	}
	at, e := w.Position(uint64(ticket))
	if e == nil {
		*pass, *index = C.uint64_t(at.Pass), C.uint64_t(at.N)
	}
	return setError(e, err)
}

// maxMapThreads is the largest number of threads of one pfgo_map_workers_start.
const maxMapThreads = 1024

//export pfgo_map_workers_start
func pfgo_map_workers_start(h C.pf_handle, function, context_ unsafe.Pointer, threads C.uint32_t, finished unsafe.Pointer, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return setError(e, err)
	}
	if threads == 0 || threads > maxMapThreads {
		return setError(pyfeed.Errorf(pyfeed.Invalid, "num_threads: expected 1 to %d, found %d", maxMapThreads, threads), err)
	}
	m := &mapThreads{workers: w, handle: newHandle(w), function: function, context: context_, finished: finished}
	m.liveThreads.Store(int32(threads))
	for range threads {
		wait.Go(m.run, func(fault error) { poison(fault.Error()) })
	}
	return C.PF_OK
}

// mapThreads are the threads that call a C function for a map reader.
type mapThreads struct {
	workers                     *decorators.MapWorkers
	handle                      C.pf_handle
	function, context, finished unsafe.Pointer
	liveThreads                 atomic.Int32
}

func (m *mapThreads) run() {
	out := (*C.pf_tuple)(C.calloc(1, C.sizeof_pf_tuple))
	out.size = C.sizeof_pf_tuple
	for m.step(out) {
	}
	C.free(unsafe.Pointer(out))
	if m.liveThreads.Add(-1) == 0 {
		pfgo_release(m.handle, nil)
		if m.finished != nil {
			C.pfi_call_release((*[0]byte)(m.finished), m.context)
		}
	}
}

func (m *mapThreads) step(out *C.pf_tuple) bool {
	t, ticket, e := m.workers.Take(context.Background())
	if e != nil {
		_, closed := e.(*pyfeed.Error)
		return !closed
	}
	if e := lendTuple(t, out); e != nil {
		m.workers.Fail(ticket, e)
		return true
	}
	result := C.pfi_call_map(m.function, m.context, m.handle, C.uint64_t(ticket), out)
	releaseTuple(out)
	text := "the function gave no result"
	if result != 0 {
		text = fmt.Sprintf("the function returned %d", int(result))
	}
	m.workers.Fail(ticket, &pyfeed.ProducerError{Message: text}) // does nothing if the ticket has its result
	return true
}

//export pfgo_map_processes_create
func pfgo_map_processes_create(h, queue C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, e := lookup[*decorators.MapWorkers](h)
	if e != nil {
		return setError(e, err)
	}
	q, e := lookup[*pyfeed.Consumer](queue)
	if e != nil {
		return setError(e, err)
	}
	p, e := processes.New(w, q.Retain(), func(fault error) { poison(fault.Error()) })
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(p)
	return C.PF_OK
}

//export pfgo_map_processes_next
func pfgo_map_processes_next(h C.pf_handle, call *C.pfi_call, out *C.pf_map_event, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	p, e := lookup[*processes.Pool](h)
	if e != nil {
		return setError(e, err)
	}
	event, e := blocking(call, p.Next)
	if e != nil {
		return setError(e, err)
	}
	out.kind = C.uint32_t(event.Kind)
	out.ticket = C.uint64_t(event.Ticket)
	if f := &event.Failure; event.Kind == processes.TaskFailed {
		out._type, out.message, out.traceback = cStringOrNil(f.Type), cStringOrNil(f.Message), cStringOrNil(f.Traceback)
		if out.detail_bytes = C.uint64_t(len(f.Pickle)); len(f.Pickle) > 0 {
			out.detail = C.CBytes(f.Pickle)
		}
	}
	return C.PF_OK
}
