package main

// #include "internal.h"
import "C"

import (
	"context"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
)

//export pfgo_reader_create
func pfgo_reader_create(scope C.pf_handle, op, out *C.char, ins **C.char, n C.uint32_t, attributes *C.char, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if call.phase != C.PFI_FIRST {
		return setError(finishOpening(scope, out, call), err)
	}
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return setError(e, err)
	}
	e = ops.CreateNow(s, C.GoString(op), C.GoString(out), goStrings(ins, n), optionalBytes(attributes))
	if e == wait.ErrWouldBlock {
		call.opening = C.uint64_t(openings.put(ops.Open(s, C.GoString(op), optionalBytes(attributes))))
		e = finishOpening(scope, out, call)
	}
	return setError(e, err)
}

var openings table[*ops.Opening]

// finishOpening waits for the opening that a call has begun in the background, and puts its reader into the scope. It
// stops the opening unless the call has to wait again.
func finishOpening(scope C.pf_handle, out *C.char, call *C.pfi_call) error {
	o, _ := openings.get(uint64(call.opening))
	r, err := blocking(call, o.Wait)
	if err != wait.ErrWouldBlock {
		openings.remove(uint64(call.opening))
		o.Stop()
	}
	if err != nil {
		return err
	}
	s, err := lookup[*pyfeed.Scope](scope)
	if err != nil { // the scope was dropped meanwhile
		r.Close()
		return err
	}
	return ops.Put(s, C.GoString(out), r)
}

//export pfgo_reader_get_state
func pfgo_reader_get_state(h C.pf_handle, out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	state, e := r.State()
	if e != nil {
		return setError(e, err)
	}
	*out = C.CString(string(state))
	return C.PF_OK
}

//export pfgo_reader_set_state
func pfgo_reader_set_state(h C.pf_handle, state *C.char, strict C.uint8_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	return setError(r.SetState([]byte(C.GoString(state)), strict != 0), err)
}

//export pfgo_reader_stats
func pfgo_reader_stats(h C.pf_handle, out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	return setError(setJSON(r.Stats(), out), err)
}

//export pfgo_reader_next
func pfgo_reader_next(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	releaseTuple(out)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	loop := readers.Loop(call.loop)
	return readTuple(call, "next", func(ctx context.Context) (*pyfeed.Tuple, error) { return r.ReadNextInLoop(ctx, loop) }, out, err)
}

//export pfgo_reader_at
func pfgo_reader_at(h C.pf_handle, index C.int64_t, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	releaseTuple(out)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	t, e := r.At(context.Background(), int64(index))
	if e == nil {
		e = lendTuple(t, out)
	}
	return setError(e, err)
}

//export pfgo_reader_has_next
func pfgo_reader_has_next(h C.pf_handle, call *C.pfi_call, out *C.uint8_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	has, e := tracedBlocking(call, "has_next", r.HasNext)
	*out = cbool(has)
	return setError(e, err)
}

//export pfgo_reader_begin_loop
func pfgo_reader_begin_loop(h C.pf_handle, current C.uint8_t, out *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return setError(e, err)
	}
	var loop readers.Loop
	if current != 0 {
		loop = r.JoinLoop()
	} else {
		loop, e = r.BeginLoop()
	}
	*out = C.uint64_t(loop)
	return setError(e, err)
}

//export pfgo_reader_reset
func pfgo_reader_reset(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e == nil {
		e = r.ReInit()
	}
	return setError(e, err)
}
