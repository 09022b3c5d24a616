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

// A foreign is a kernel of C's.
type foreign struct {
	function C.pf_kernel
	context  unsafe.Pointer
}

// A registration is the handle of a kernel.
type registration struct{ kernel *program.Kernel }

func (r *registration) Drop() { program.Unregister(r.kernel) }

//export pfgo_register_kernel
func pfgo_register_kernel(name *C.char, function, context, finished unsafe.Pointer, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	k := &program.Kernel{Name: C.GoString(name), Foreign: &foreign{C.pf_kernel(function), context}}
	if finished != nil {
		k.Finished = func() { C.pfi_call_release((*[0]byte)(finished), context) }
	}
	if e := program.Register(k); e != nil {
		return answer(e, err)
	}
	*out = give(&registration{k})
	return C.PF_OK
}

//export pfgo_kernels
func pfgo_kernels(out **C.char, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	names := program.Kernels()
	if names == nil {
		names = []string{}
	}
	return answer(asJSON(names, out), err)
}

// A shown is what C sees of a call: a pf_kernel_call with all that it points to, in memory that is not Go's. It is made
// once a run.
type shown struct {
	memory *memory.Buffer
	call   *C.pf_kernel_call
	ins    []C.pf_tensor
	outs   []C.pf_tensor
	room   unsafe.Pointer // for dims and LoD, so much a tensor:
}

const roomOfTensor = pyfeed.MaxRank*8 + pyfeed.MaxLoDLevels*C.sizeof_pf_lod_level

func newShown(c *program.Call, run uint64) (*shown, error) {
	n := len(c.Ins) + len(c.Outs)
	texts := len(c.Kernel.Name) + len(c.Attributes) + 2
	b, err := views.Get(C.sizeof_pf_kernel_call + n*(C.sizeof_pf_tensor+roomOfTensor) + texts)
	if err != nil {
		return nil, err
	}
	clear(b.Bytes())
	s := &shown{memory: b, call: (*C.pf_kernel_call)(b.Pointer())}
	at := unsafe.Add(b.Pointer(), C.sizeof_pf_kernel_call)
	s.ins = unsafe.Slice((*C.pf_tensor)(at), len(c.Ins))
	at = unsafe.Add(at, len(c.Ins)*C.sizeof_pf_tensor)
	s.outs = unsafe.Slice((*C.pf_tensor)(at), len(c.Outs))
	s.room = unsafe.Add(at, len(c.Outs)*C.sizeof_pf_tensor)
	at = unsafe.Add(s.room, n*roomOfTensor)
	text := func(t string) *C.char {
		from := at
		copy(unsafe.Slice((*byte)(at), len(t)), t)
		at = unsafe.Add(at, len(t)+1)
		return (*C.char)(from)
	}
	place := c.Place()
	*s.call = C.pf_kernel_call{
		size:       C.sizeof_pf_kernel_call,
		num_ins:    C.uint32_t(len(c.Ins)),
		num_outs:   C.uint32_t(len(c.Outs)),
		ins:        unsafe.SliceData(s.ins),
		outs:       unsafe.SliceData(s.outs),
		place:      C.pf_place{C.int32_t(place.Kind), C.int32_t(place.Device)},
		stream:     C.uint64_t(c.Stream()),
		kernel:     text(c.Kernel.Name),
		attributes: text(c.Attributes),
		run:        C.uint64_t(run),
	}
	return s, nil
}

// show describes the tensors as they are now.
func (s *shown) show(c *program.Call) {
	for i := range s.ins {
		show(c.Ins[i], &s.ins[i], unsafe.Add(s.room, i*roomOfTensor))
	}
	for i := range s.outs {
		s.showOutput(c, i)
	}
}

func (s *shown) showOutput(c *program.Call, i int) {
	show(&c.Outs[i], &s.outs[i], unsafe.Add(s.room, (len(s.ins)+i)*roomOfTensor))
}

// calling is the call that a run is in.
func calling(run C.uint64_t) (*running, *program.Call, error) {
	w, ok := runOf(run)
	if ok {
		if c := w.run.Call(); c != nil {
			return w, c, nil
		}
	}
	return nil, nil, pyfeed.Errorf(pyfeed.State, "kernel: expected to be called from within it, found that it has answered")
}

//export pfgo_kernel_output
func pfgo_kernel_output(run C.uint64_t, output C.uint32_t, like *C.pf_tensor, replace C.int, data *unsafe.Pointer, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	_, c, e := calling(run)
	if e != nil {
		return answer(e, err)
	}
	if int(output) >= len(c.Outs) {
		return answer(pyfeed.Errorf(pyfeed.Slots, "kernel %q: output: expected 0 to %d, found %d", c.Kernel.Name, len(c.Outs)-1, int(output)), err)
	}
	t, e := parse(like, 1, false)
	if e != nil {
		return answer(e, err)
	}
	defer t.Release()
	of := &t.Slots[0]
	room := c.Output
	if replace != 0 {
		room = c.Replace
	}
	out, e := room(int(output), of.DType, of.Dims(), of.LoD)
	if e != nil {
		return answer(e, err)
	}
	s := c.Shared.(*shown)
	s.showOutput(c, int(output))
	*data = unsafe.Pointer(unsafe.SliceData(out.Data))
	return C.PF_OK
}

//export pfgo_kernel_share
func pfgo_kernel_share(run C.uint64_t, input C.uint32_t, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	_, c, e := calling(run)
	if e != nil {
		return answer(e, err)
	}
	if int(input) >= len(c.Ins) {
		return answer(pyfeed.Errorf(pyfeed.Slots, "kernel %q: input: expected 0 to %d, found %d", c.Kernel.Name, len(c.Ins)-1, int(input)), err)
	}
	t := pyfeed.NewTuple(1)
	if e := c.ShareInput(int(input), &t.Slots[0]); e != nil {
		t.Release()
		return answer(e, err)
	}
	return answer(lendOut(t, out), err)
}

//export pfgo_kernel_fail
func pfgo_kernel_fail(run C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, _, e := calling(run)
	if e == nil {
		w.failure = failureOf(failure)
	}
	return answer(e, err)
}

// kernelError is what a kernel's answer says.
func (w *running) kernelError(c *program.Call, answer C.int32_t) error {
	failure := w.failure
	w.failure = nil
	switch {
	case answer == 0:
		return nil
	case failure == nil:
		failure = &pyfeed.ProducerError{Message: fmt.Sprintf("it answered %d", int(answer))}
	}
	failure.Who = fmt.Sprintf("kernel %q", c.Kernel.Name)
	return failure
}
