package main

// #include "internal.h"
import "C"

import (
	"context"
	"math"
	"unsafe"

	"github.com/pyfeed/pyfeed/cuda"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

//export pfgo_cuda_available
func pfgo_cuda_available(available *C.uint8_t, reason **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	ok, why := cuda.Available()
	*available = cbool(ok)
	if reason != nil && !ok {
		*reason = C.CString(why)
	}
	return C.PF_OK
}

//export pfgo_cuda_device_count
func pfgo_cuda_device_count(count *C.uint32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	n, e := cuda.Count()
	if e != nil {
		return setError(pyfeed.Errorf(pyfeed.Unsupported, "%v", e), err)
	}
	*count = C.uint32_t(n)
	return C.PF_OK
}

//export pfgo_cuda_device_stats
func pfgo_cuda_device_stats(device C.uint32_t, out *C.pf_cuda_device_info, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	info, e := cuda.Info(int(min(device, math.MaxInt32)))
	if e != nil {
		return setError(e, err)
	}
	out.device = device
	out.free_bytes, out.total_bytes = C.uint64_t(info.Free), C.uint64_t(info.Total)
	name := unsafe.Slice((*byte)(unsafe.Pointer(&out.name)), len(out.name))
	copy(name[:len(name)-1], info.Name)
	return C.PF_OK
}

// firstResident returns the device memory that a slot lies in. It returns nil if the slot is in host memory or if an
// earlier slot lies in the same memory, as it does in most tuples. So a loop over all slots visits each device buffer
// once.
func firstResident(t *pyfeed.Tuple, slot int) memory.Resident {
	r := t.Slots[slot].Resident()
	if r == nil {
		return nil
	}
	for i := slot - 1; i >= 0; i-- {
		if t.Slots[i].Resident() == r {
			return nil
		}
	}
	return r
}

//export pfgo_tuple_use
func pfgo_tuple_use(id, stream C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := findLoan("use", id)
	if e != nil {
		return setError(e, err)
	}
	for i := range l.tuple.Slots {
		if r := firstResident(l.tuple, i); r != nil {
			if e := r.Use(uint64(stream)); e != nil {
				return setError(e, err)
			}
		}
	}
	return C.PF_OK
}

//export pfgo_tuple_release_on
func pfgo_tuple_release_on(id, stream C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := findLoan("release", id)
	if e != nil {
		return setError(e, err)
	}
	for i := range l.tuple.Slots {
		if r := firstResident(l.tuple, i); r != nil {
			if e := r.Release(uint64(stream)); e != nil {
				return setError(e, err)
			}
		}
	}
	releaseLoan(uint64(id))
	return C.PF_OK
}

//export pfgo_tuple_synchronize
func pfgo_tuple_synchronize(id C.uint64_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := findLoan("synchronize", id)
	if e != nil {
		return setError(e, err)
	}
	_, e = blocking(call, func(ctx context.Context) (struct{}, error) {
		for i := range l.tuple.Slots {
			if r := firstResident(l.tuple, i); r != nil {
				if e := r.Synchronize(ctx); e != nil {
					return struct{}{}, e
				}
			}
		}
		return struct{}{}, nil
	})
	return setError(e, err)
}

//export pfgo_tuple_download
func pfgo_tuple_download(id C.uint64_t, slot C.uint32_t, to unsafe.Pointer, nbytes C.uint64_t, call *C.pfi_call,
	err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := findLoan("download", id)
	if e != nil {
		return setError(e, err)
	}
	if n := len(l.tuple.Slots); uint64(slot) >= uint64(n) {
		return setError(pyfeed.Errorf(pyfeed.Slots, "slot: expected 0 to %d, found %d", n-1, slot), err)
	}
	s := &l.tuple.Slots[slot]
	if uint64(nbytes) != uint64(len(s.Data)) {
		return setError(pyfeed.SlotErrorf(pyfeed.Invalid, int(slot), "nbytes: expected %d, found %d", len(s.Data), nbytes), err)
	}
	r := s.Resident()
	if r == nil {
		call.dest = elementAt((*C.pf_tensor)(l.view.Pointer()), int(slot), C.sizeof_pf_tensor)
		return C.PFI_COPY
	}
	return setError(r.Download(unsafe.Slice((*byte)(to), nbytes), s.Data), err)
}
