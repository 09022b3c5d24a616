package main

// #include "internal.h"
import "C"

import (
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

// finishOpening waits for the opening that a call has begun, and ends it with the call.
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
	if err != nil { // it was dropped meanwhile
		r.Close()
		return err
	}
	return ops.Put(s, C.GoString(out), r)
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
	return readTuple(call, "next", r.ReadNext, out, err)
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

//export pfgo_reader_reset
func pfgo_reader_reset(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e == nil {
		e = r.ReInit()
	}
	return setError(e, err)
}
