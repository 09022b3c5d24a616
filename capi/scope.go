package main

// #include "internal.h"
import "C"

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"

	"github.com/go-python/gopy/gopyh"
)

//export pfgo_memory
func pfgo_memory(out *C.pf_memory_stats, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	out.handles = C.uint64_t(gopyh.NumHandles())
	out.tuples_on_loan = C.uint64_t(loans.len())
	m := memory.Count()
	out.live_queue_bytes = C.uint64_t(m.Live[memory.Queue])
	out.live_lent_bytes = C.uint64_t(m.Live[memory.Lent])
	out.live_batch_bytes = C.uint64_t(m.Live[memory.Batch])
	out.live_view_bytes = C.uint64_t(m.Live[memory.View])
	out.live_file_bytes = C.uint64_t(m.Live[memory.File])
	out.live_mapped_bytes = C.uint64_t(m.Live[memory.Mapped])
	out.live_buffers = C.uint64_t(m.Buffers)
	out.idle_bytes = C.uint64_t(m.Idle)
	out.pinned_bytes = C.uint64_t(m.Slabs[memory.PinnedSlab])
	out.device_bytes = C.uint64_t(m.Slabs[memory.DeviceSlab])
	out.shared_bytes = C.uint64_t(m.Slabs[memory.SharedSlab])
	return C.PF_OK
}

//export pfgo_scope_new
func pfgo_scope_new(parent C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	var above *pyfeed.Scope
	if parent != 0 {
		var e error
		if above, e = lookup[*pyfeed.Scope](parent); e != nil {
			return answer(e, err)
		}
	}
	*out = give(pyfeed.NewScope(above))
	return C.PF_OK
}

//export pfgo_scope_global
func pfgo_scope_global(out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	*out = give(pyfeed.GlobalScope().Retain())
	return C.PF_OK
}

//export pfgo_scope_var
func pfgo_scope_var(scope C.pf_handle, name *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	return giveVariable(scope, name, (*pyfeed.Scope).Var, out, err)
}

//export pfgo_scope_find
func pfgo_scope_find(scope C.pf_handle, name *C.char, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	return giveVariable(scope, name, (*pyfeed.Scope).FindVar, out, err)
}

func giveVariable(scope C.pf_handle, name *C.char, from func(*pyfeed.Scope, string) (*pyfeed.Variable, error),
	out *C.pf_handle, err *C.pf_error) C.pf_status {
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return answer(e, err)
	}
	v, e := from(s, C.GoString(name))
	if e != nil {
		return answer(e, err)
	}
	*out = give(variable{v})
	return C.PF_OK
}

//export pfgo_scope_erase
func pfgo_scope_erase(scope C.pf_handle, name *C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	s, e := lookup[*pyfeed.Scope](scope)
	if e == nil {
		e = s.Erase(C.GoString(name))
	}
	return answer(e, err)
}

//export pfgo_var_kind
func pfgo_var_kind(h C.pf_handle, out *C.int32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return answer(e, err)
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
		return answer(e, err)
	}
	t := pyfeed.NewTuple(1)
	if e = v.ShareTensor(&t.Slots[0]); e != nil {
		t.Release()
		return answer(e, err)
	}
	return answer(lendOut(t, out), err)
}

// variablesPool is the memory of tensors that C writes into variables.
var variablesPool = memory.NewUnpooled(memory.Batch)

//export pfgo_var_room
func pfgo_var_room(h C.pf_handle, tensor *C.pf_tensor, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if _, e := lookup[variable](h); e != nil {
		return answer(e, err)
	}
	t, e := parse(tensor, 1, false)
	if e != nil {
		return answer(e, err)
	}
	if e = t.Slots[0].CheckLoD(); e == nil {
		_, e = t.Slots[0].Measure()
	}
	if e != nil {
		t.Release()
		return answer(pyfeed.SlotErrorf(pyfeed.Shape, 0, "%v", e), err)
	}
	if e = t.Allocate(variablesPool); e != nil {
		t.Release()
		return answer(e, err)
	}
	return lendRoom(t, tensor, call, err)
}

//export pfgo_var_set
func pfgo_var_set(h C.pf_handle, id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, _ := loans.get(uint64(id))
	torn := l.whole(uint64(id))
	defer releaseLoan(uint64(id))
	v, e := lookup[variable](h)
	if e == nil {
		e = torn
	}
	if e == nil {
		e = v.SetTensor(&l.tuple.Slots[0])
	}
	return answer(e, err)
}
