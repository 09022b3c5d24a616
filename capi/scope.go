package main

// #include "internal.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
)

//export pfgo_scope_create
func pfgo_scope_create(parent C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	var parentScope *pyfeed.Scope
	if parent != 0 {
		var e error
		if parentScope, e = lookup[*pyfeed.Scope](parent); e != nil {
			return setError(e, err)
		}
	}
	*out = newHandle(pyfeed.NewScope(parentScope))
	return C.PF_OK
}

//export pfgo_scope_global
func pfgo_scope_global(out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	*out = newHandle(pyfeed.GlobalScope().Retain())
	return C.PF_OK
}

//export pfgo_scope_var
func pfgo_scope_var(scope C.pf_handle, name *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	return newVariableHandle(scope, name, (*pyfeed.Scope).Var, out, err)
}

//export pfgo_scope_find
func pfgo_scope_find(scope C.pf_handle, name *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	return newVariableHandle(scope, name, (*pyfeed.Scope).FindVar, out, err)
}

func newVariableHandle(scope C.pf_handle, name *C.char, from func(*pyfeed.Scope, string) (*pyfeed.Variable, error),
	out *C.pf_handle, err *C.pf_error) C.pf_status {
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return setError(e, err)
	}
	v, e := from(s, C.GoString(name))
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(variable{v})
	return C.PF_OK
}

//export pfgo_scope_erase
func pfgo_scope_erase(scope C.pf_handle, name *C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	s, e := lookup[*pyfeed.Scope](scope)
	if e == nil {
		e = s.Erase(C.GoString(name))
	}
	return setError(e, err)
}

//export pfgo_var_kind
func pfgo_var_kind(h C.pf_handle, out *C.int32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return setError(e, err)
	}
	v.With(func(c pyfeed.Content) {
		switch c.(type) {
		case *pyfeed.LoDTensor:
			*out = C.PF_VAR_TENSOR
		case *pyfeed.PyArrayFeedQueueHolder:
			*out = C.PF_VAR_QUEUE
		case *readers.ReaderHolder:
			*out = C.PF_VAR_READER
		}
	})
	return C.PF_OK
}

//export pfgo_var_get_tensor
func pfgo_var_get_tensor(h C.pf_handle, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return setError(e, err)
	}
	t := pyfeed.NewTuple(1)
	if e = v.ShareTensor(&t.Slots[0]); e != nil {
		t.Release()
		return setError(e, err)
	}
	return setError(lendTuple(t, out), err)
}

// variablePool allocates the tensors that C writes into variables.
var variablePool = memory.NewUnpooled(memory.Batch)

//export pfgo_var_allocate
func pfgo_var_allocate(h C.pf_handle, tensor *C.pf_tensor, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if _, e := lookup[variable](h); e != nil {
		return setError(e, err)
	}
	t, e := parseTensors(tensor, 1, false)
	if e != nil {
		return setError(e, err)
	}
	if e = t.Slots[0].CheckLoD(); e == nil {
		_, e = t.Slots[0].Measure()
	}
	if e != nil {
		t.Release()
		return setError(pyfeed.SlotErrorf(pyfeed.Shape, 0, "%v", e), err)
	}
	if e = t.Allocate(variablePool); e != nil {
		t.Release()
		return setError(e, err)
	}
	return lendForCopy(&writeLoan{loan: loan{tuple: t}, tensors: tensor}, call, err)
}

//export pfgo_var_set
func pfgo_var_set(h C.pf_handle, id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, _ := endWriteLoan(uint64(id))
	defer l.drop()
	truncated := l.truncation()
	v, e := lookup[variable](h)
	if e == nil {
		e = truncated
	}
	if e == nil {
		e = v.SetTensor(&l.tuple.Slots[0])
	}
	return setError(e, err)
}

//export pfgo_var_get_queue
func pfgo_var_get_queue(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return setError(e, err)
	}
	q, e := v.Feeder()
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(q)
	return C.PF_OK
}

//export pfgo_var_get_reader
func pfgo_var_get_reader(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return setError(e, err)
	}
	r, e := readers.HolderOf(v.Variable)
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(r)
	return C.PF_OK
}

//export pfgo_scope_read
func pfgo_scope_read(scope C.pf_handle, reader *C.char, outs **C.char, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return setError(e, err)
	}
	var few [8]string // on the stack: most tuples have no more slots
	names := few[:0]
	for _, name := range unsafe.Slice(outs, n) {
		names = append(names, borrowString(name))
	}
	_, e = tracedBlocking(call, "read", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, ops.Read(ctx, s, borrowString(reader), names)
	})
	return setError(e, err)
}
