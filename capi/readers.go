package main

// #include <string.h>
// #include "internal.h"
import "C"

import (
	"context"
	"encoding/json"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// borrow views a C string for the length of a call.
func borrow(s *C.char) string { return unsafe.String((*byte)(unsafe.Pointer(s)), C.strlen(s)) }

// optional is the bytes of a C string that may be NULL.
func optional(s *C.char) []byte {
	if s == nil {
		return nil
	}
	return []byte(C.GoString(s))
}

//export pfgo_create_reader
func pfgo_create_reader(scope C.pf_handle, op, out *C.char, ins **C.char, n C.uint32_t, attributes *C.char, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if call.phase != C.PFI_FIRST {
		return answer(opened(scope, out, call), err)
	}
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return answer(e, err)
	}
	names := make([]string, n)
	for i, name := range unsafe.Slice(ins, n) {
		names[i] = C.GoString(name)
	}
	e = ops.CreateNow(s, C.GoString(op), C.GoString(out), names, optional(attributes))
	if e == wait.ErrWouldBlock {
		call.opening = C.uint64_t(openings.put(ops.Open(s, C.GoString(op), optional(attributes))))
		e = opened(scope, out, call)
	}
	return answer(e, err)
}

var openings table[*ops.Opening]

// opened waits for the opening that a call has begun, and ends it with the call.
func opened(scope C.pf_handle, out *C.char, call *C.pfi_call) error {
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
		return answer(e, err)
	}
	return answer(asJSON(r.Stats(), out), err)
}

// asJSON gives a value out as a string.
func asJSON(v any, out **C.char) error {
	text, e := json.Marshal(v)
	if e == nil {
		*out = C.CString(string(text))
	}
	return e
}

//export pfgo_reader_of
func pfgo_reader_of(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return answer(e, err)
	}
	r, e := readers.HolderOf(v.Variable)
	if e != nil {
		return answer(e, err)
	}
	*out = give(r)
	return C.PF_OK
}

//export pfgo_reader_next
func pfgo_reader_next(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	giveBack(out)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return answer(e, err)
	}
	return next(call, "next", r.ReadNext, out, err)
}

//export pfgo_reader_has_next
func pfgo_reader_has_next(h C.pf_handle, call *C.pfi_call, out *C.uint8_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e != nil {
		return answer(e, err)
	}
	has, e := reading(call, "has_next", r.HasNext)
	*out = yes(has)
	return answer(e, err)
}

//export pfgo_reader_reset
func pfgo_reader_reset(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, e := lookup[*readers.ReaderHolder](h)
	if e == nil {
		e = r.ReInit()
	}
	return answer(e, err)
}

//export pfgo_read
func pfgo_read(scope C.pf_handle, reader *C.char, outs **C.char, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return answer(e, err)
	}
	var few [8]string // a buffer on the stack for what is usual
	names := few[:0]
	for _, name := range unsafe.Slice(outs, n) {
		names = append(names, borrow(name))
	}
	_, e = reading(call, "read", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ops.Read(ctx, s, borrow(reader), names)
	})
	return answer(e, err)
}
