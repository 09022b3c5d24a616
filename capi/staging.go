package main

// #include "internal.h"
import "C"

import (
	"github.com/pyfeed/pyfeed/pyfeed/staging"
)

//export pfgo_staging_create
func pfgo_staging_create(place C.pf_place, capacity, bytesLimit C.uint64_t, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	b, e := staging.Get(goPlace(place),
		uint64(capacity), uint64(bytesLimit))
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(b)
	return C.PF_OK
}

//export pfgo_staging_put
func pfgo_staging_put(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	b, e := lookup[*staging.Buffer](h)
	if e != nil {
		return setError(e, err)
	}
	t, r, e := reserve(tensors, n, call, b.Reserve)
	if e != nil {
		return setError(e, err)
	}
	if st := copyTensors(t, &r, tensors, n, call, err); st != C.PF_OK {
		return st
	}
	return setError(b.Commit(&r, t), err)
}

//export pfgo_staging_commit
func pfgo_staging_commit(h C.pf_handle, id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := takeReservation(uint64(id), true)
	if e != nil {
		return setError(e, err)
	}
	b, e := lookup[*staging.Buffer](h)
	if e != nil {
		l.drop()
		return setError(e, err)
	}
	return setError(b.Commit(&l.reservation, l.tuple), err)
}

//export pfgo_staging_get
func pfgo_staging_get(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	releaseTuple(out)
	b, e := lookup[*staging.Buffer](h)
	if e != nil {
		return setError(e, err)
	}
	return readTuple(call, "get", b.Get, out, err)
}

//export pfgo_staging_clear
func pfgo_staging_clear(h C.pf_handle, dropped *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	b, e := lookup[*staging.Buffer](h)
	if e == nil {
		*dropped = C.uint64_t(b.Clear())
	}
	return setError(e, err)
}

//export pfgo_staging_stats
func pfgo_staging_stats(h C.pf_handle, out *C.pf_staging_info, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	b, e := lookup[*staging.Buffer](h)
	if e != nil {
		return setError(e, err)
	}
	place, i := b.Place(), b.Stats()
	out.place = cPlace(place)
	out.num_tuples = C.uint64_t(i.Size)
	out.capacity = C.uint64_t(i.Capacity)
	out.reserved_tuples = C.uint64_t(i.Reserved)
	out.bytes = C.uint64_t(i.Bytes)
	out.bytes_limit = C.uint64_t(i.BytesLimit)
	out.waiting_producers = C.uint32_t(i.WaitingProducers)
	out.waiting_consumers = C.uint32_t(i.WaitingConsumers)
	out.put = C.uint64_t(i.Pushed)
	out.got = C.uint64_t(i.Popped)
	out.dropped = C.uint64_t(i.Dropped)
	out.put_bytes = C.uint64_t(i.PushedBytes)
	out.producers_waited_ns = C.uint64_t(i.ProducersWaited)
	out.consumers_waited_ns = C.uint64_t(i.ConsumersWaited)
	return C.PF_OK
}

//export pfgo_staging_shutdown
func pfgo_staging_shutdown(err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	staging.Shutdown()
	return C.PF_OK
}
