package main

// #include <stdlib.h>
// #include "internal.h"
import "C"

import (
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// A cKernel is a kernel that is a C function.
type cKernel struct {
	function C.pf_kernel
	context  unsafe.Pointer
}

// A kernelHandle is the registration of a kernel. Dropping it unregisters the kernel.
type kernelHandle struct{ kernel *program.Kernel }

func (r *kernelHandle) Drop() { program.Unregister(r.kernel) }

//export pfgo_kernel_register
func pfgo_kernel_register(name *C.char, function, context, finished unsafe.Pointer, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	k := &program.Kernel{Name: C.GoString(name), Foreign: &cKernel{C.pf_kernel(function), context}}
	if finished != nil {
		k.Finished = func() { C.pfi_call_release((*[0]byte)(finished), context) }
	}
	if e := program.Register(k); e != nil {
		return setError(e, err)
	}
	*out = newHandle(&kernelHandle{k})
	return C.PF_OK
}

//export pfgo_kernel_list
func pfgo_kernel_list(out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	names := program.Kernels()
	if names == nil {
		names = []string{}
	}
	return setError(setJSON(names, out), err)
}

// A callView is the pf_kernel_call that C sees of a call, with everything that it points to. It lies outside Go's heap.
// Each run makes one for each operator that calls a kernel.
type callView struct {
	memory *memory.Buffer
	call   *C.pf_kernel_call
	ins    []C.pf_tensor
	outs   []C.pf_tensor
	shapes unsafe.Pointer // dims and LoD: shapeBytes for each tensor
}

const shapeBytes = pyfeed.MaxRank*8 + pyfeed.MaxLoDLevels*C.sizeof_pf_lod_level

func newCallView(c *program.Call, run uint64) (*callView, error) {
	n := len(c.Ins) + len(c.Outs)
	texts := len(c.Kernel.Name) + len(c.Attributes) + 2
	b, err := views.Get(C.sizeof_pf_kernel_call + n*(C.sizeof_pf_tensor+shapeBytes) + texts)
	if err != nil {
		return nil, err
	}
	clear(b.Bytes())
	v := &callView{memory: b, call: (*C.pf_kernel_call)(b.Pointer())}
	next := unsafe.Add(b.Pointer(), C.sizeof_pf_kernel_call)
	v.ins = unsafe.Slice((*C.pf_tensor)(next), len(c.Ins))
	next = unsafe.Add(next, len(c.Ins)*C.sizeof_pf_tensor)
	v.outs = unsafe.Slice((*C.pf_tensor)(next), len(c.Outs))
	v.shapes = unsafe.Add(next, len(c.Outs)*C.sizeof_pf_tensor)
	next = unsafe.Add(v.shapes, n*shapeBytes)
	text := func(s string) *C.char {
		begin := next
		copy(unsafe.Slice((*byte)(next), len(s)), s)
		next = unsafe.Add(next, len(s)+1)
		return (*C.char)(begin)
	}
	*v.call = C.pf_kernel_call{
		size:       C.sizeof_pf_kernel_call,
		num_ins:    C.uint32_t(len(c.Ins)),
		num_outs:   C.uint32_t(len(c.Outs)),
		ins:        unsafe.SliceData(v.ins),
		outs:       unsafe.SliceData(v.outs),
		place:      cPlace(c.Place()),
		stream:     C.uint64_t(c.Stream()),
		kernel:     text(c.Kernel.Name),
		attributes: text(c.Attributes),
		run:        C.uint64_t(run),
	}
	return v, nil
}

// describe updates the descriptions of all tensors.
func (v *callView) describe(c *program.Call) {
	for i := range v.ins {
		describe(c.Ins[i], &v.ins[i], unsafe.Add(v.shapes, i*shapeBytes))
	}
	for i := range v.outs {
		v.describeOutput(c, i)
	}
}

func (v *callView) describeOutput(c *program.Call, i int) {
	describe(&c.Outs[i], &v.outs[i], unsafe.Add(v.shapes, (len(v.ins)+i)*shapeBytes))
}

// currentCall returns a run and the kernel call that it is in. It fails unless a kernel is running.
func currentCall(run C.uint64_t) (*programRun, *program.Call, error) {
	r, ok := findRun(run)
	if ok {
		if c := r.run.Call(); c != nil {
			return r, c, nil
		}
	}
	return nil, nil, pyfeed.Errorf(pyfeed.State, "kernel: expected a call while the kernel runs, found one after it has returned")
}

//export pfgo_kernel_output
func pfgo_kernel_output(run C.uint64_t, output C.uint32_t, like *C.pf_tensor, replace C.int, data *unsafe.Pointer, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	_, c, e := currentCall(run)
	if e != nil {
		return setError(e, err)
	}
	if int(output) >= len(c.Outs) {
		return setError(pyfeed.Errorf(pyfeed.Slots, "kernel %q: output: expected 0 to %d, found %d", c.Kernel.Name, len(c.Outs)-1, int(output)), err)
	}
	t, e := parseTensors(like, 1, false)
	if e != nil {
		return setError(e, err)
	}
	defer t.Release()
	wanted := &t.Slots[0]
	allocate := c.Output
	if replace != 0 {
		allocate = c.Replace
	}
	out, e := allocate(int(output), wanted.DType, wanted.Dims(), wanted.LoD)
	if e != nil {
		return setError(e, err)
	}
	c.Shared.(*callView).describeOutput(c, int(output))
	*data = unsafe.Pointer(unsafe.SliceData(out.Data))
	return C.PF_OK
}

//export pfgo_kernel_share
func pfgo_kernel_share(run C.uint64_t, input C.uint32_t, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	_, c, e := currentCall(run)
	if e != nil {
		return setError(e, err)
	}
	if int(input) >= len(c.Ins) {
		return setError(pyfeed.Errorf(pyfeed.Slots, "kernel %q: input: expected 0 to %d, found %d", c.Kernel.Name, len(c.Ins)-1, int(input)), err)
	}
	t := pyfeed.NewTuple(1)
	if e := c.ShareInput(int(input), &t.Slots[0]); e != nil {
		t.Release()
		return setError(e, err)
	}
	return setError(lendTuple(t, out), err)
}

//export pfgo_kernel_fail
func pfgo_kernel_fail(run C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, _, e := currentCall(run)
	if e == nil {
		r.failure = producerError(failure)
	}
	return setError(e, err)
}

// kernelError returns the error of a kernel that returned result; nil if result is 0.
func (r *programRun) kernelError(c *program.Call, result C.int32_t) error {
	failure := r.failure
	r.failure = nil
	switch {
	case result == 0:
		return nil
	case failure == nil:
		failure = &pyfeed.ProducerError{Message: fmt.Sprintf("it returned %d", int(result))}
	}
	failure.Who = fmt.Sprintf("kernel %q", c.Kernel.Name)
	return failure
}
