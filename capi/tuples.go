package main

// #include "internal.h"
import "C"

import (
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/cuda"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// A loan is a tuple that is lent to C, with the descriptors that C reads. The descriptors do not lie in Go's heap.
type loan struct {
	tuple *pyfeed.Tuple
	view  *memory.Buffer // the descriptors
}

// A writeLoan is the loan of a tuple that C writes. It is a type of its own to keep loan small, since a loan is copied
// for every tuple that is popped.
type writeLoan struct {
	loan
	tensors     *C.pf_tensor       // the tensors that C copies, one for each slot; nil: C writes in place
	faults      uint32             // written in place: the count of faults in mapped files when it was lent
	copyBegan   int64              // for the trace: when C began to copy; or 0
	reservation pyfeed.Reservation // the room in a queue; or none
}

// drop releases the tuple of a loan that has ended, and its reservation.
func (l *writeLoan) drop() {
	if l.reservation.Held() {
		l.reservation.Cancel(l.tuple)
	} else {
		l.tuple.Release()
	}
}

// writeBit marks the ids of writeLoans. A table never has so many rows that an index contains this bit.
const writeBit = 1 << 31

var (
	loans      table[loan]
	writeLoans table[writeLoan]
	views      = memory.NewPool(memory.View)
)

// view returns the descriptors of a tuple, for C to read, and the memory that they are in.
func view(t *pyfeed.Tuple) (*memory.Buffer, *C.pf_tensor, error) {
	size := len(t.Slots) * C.sizeof_pf_tensor
	for i := range t.Slots {
		size += len(t.Slots[i].Dims())*8 + len(t.Slots[i].LoD)*C.sizeof_pf_lod_level
	}
	b, err := views.Get(size)
	if err != nil {
		return nil, nil, err
	}
	clear(b.Bytes())
	slots := unsafe.Slice((*C.pf_tensor)(b.Pointer()), len(t.Slots))
	rest := unsafe.Add(b.Pointer(), len(slots)*C.sizeof_pf_tensor)
	for i := range slots {
		rest = describe(&t.Slots[i], &slots[i], rest)
	}
	return b, unsafe.SliceData(slots), nil
}

// lendTuple lends C a tuple to read, through the struct of the caller. After an error the tuple is released.
func lendTuple(t *pyfeed.Tuple, out *C.pf_tuple) error {
	b, slots, err := view(t)
	if err != nil {
		t.Release()
		return err
	}
	out.num_slots = C.uint32_t(len(t.Slots))
	out.slots = slots
	out.loan = C.uint64_t(loans.put(loan{t, b}))
	return nil
}

// lendToWrite lends C a tuple to write. After an error the tuple is released.
func lendToWrite(l *writeLoan) (id uint64, slots *C.pf_tensor, err error) {
	if l.view, slots, err = view(l.tuple); err != nil {
		l.drop()
		return 0, nil, err
	}
	return writeLoans.put(*l) | writeBit, slots, nil
}

// lendInPlace lends C a tuple to write, through the struct of the caller. The reservation may be none. After an error the
// tuple is released.
func lendInPlace(t *pyfeed.Tuple, r pyfeed.Reservation, out *C.pf_tuple) error {
	id, slots, err := lendToWrite(&writeLoan{loan: loan{tuple: t}, faults: memory.RearmFaults(), reservation: r})
	if err != nil {
		return err
	}
	out.num_slots = C.uint32_t(len(t.Slots))
	out.slots = slots
	out.loan = C.uint64_t(id)
	return nil
}

// describe fills in out. It stores dims and LoD in the memory from rest on, and returns the end of what it stored.
// Fields that it does not write MUST be zero.
func describe(s *pyfeed.LoDTensor, out *C.pf_tensor, rest unsafe.Pointer) unsafe.Pointer {
	out.size = C.sizeof_pf_tensor
	out.dtype = C.pf_dtype(s.DType)
	out.place = cPlace(s.Place)
	out.flags = 0
	if s.ReadOnly {
		out.flags = C.PF_READ_ONLY
	}
	if s.Place.Kind == pyfeed.CUDA && cuda.Emulated() {
		out.flags |= C.PF_HOST_EMULATED
	}
	out.data = unsafe.Pointer(unsafe.SliceData(s.Data))
	out.nbytes = C.uint64_t(len(s.Data))

	dims := s.Dims()
	out.rank = C.int32_t(len(dims))
	out.dims = (*C.int64_t)(rest)
	copy(unsafe.Slice((*int64)(rest), len(dims)), dims)
	rest = unsafe.Add(rest, len(dims)*8)

	out.lod_levels = C.uint32_t(len(s.LoD))
	out.lod = (*C.pf_lod_level)(rest)
	levels := unsafe.Slice(out.lod, len(s.LoD))
	for j, level := range s.LoD {
		levels[j] = C.pf_lod_level{(*C.int64_t)(unsafe.SliceData(level)), C.uint64_t(len(level))}
	}
	return unsafe.Add(rest, len(levels)*C.sizeof_pf_lod_level)
}

// truncation returns an error if the tuple may contain zeros in place of bytes that a mapped file has lost. The zero
// writeLoan, of an id that was not found, has no error.
func (l *writeLoan) truncation() error {
	if l.view == nil {
		return nil
	}
	if l.tensors != nil {
		return truncation(l.tensors, C.uint32_t(len(l.tuple.Slots)))
	}
	if memory.FaultCount() != l.faults {
		return pyfeed.Errorf(pyfeed.Corrupt, "a mapped file shrank, was written to or could not be read, before or while the tuple was written: the tuple may contain damaged data")
	}
	return nil
}

// truncation returns an error about the first of C's tensors that lies in a mapped file which has lost bytes: zeros may
// have been copied in their place. It returns nil if there is none.
func truncation(tensors *C.pf_tensor, n C.uint32_t) error {
	if !memory.AnyTorn() {
		return nil
	}
	return firstTruncation(tensors, n)
}

func firstTruncation(tensors *C.pf_tensor, n C.uint32_t) error {
	for i := range int(n) {
		if err := pyfeed.TornError(tearAt(elementAt(tensors, i, tensors.size)), i); err != nil {
			return err
		}
	}
	return nil
}

// tearAt returns the tear of the mapped file that a tensor of C lies in; nil if that file is whole or the tensor lies
// in none.
func tearAt(in *C.pf_tensor) *memory.Tear {
	low, high := 0, pyfeed.DType(in.dtype).Size() // the range of its bytes, relative to data
	dims := unsafe.Slice((*int64)(in.dims), in.rank)
	if slices.Contains(dims, 0) {
		return nil
	}
	if in.strides == nil {
		for _, d := range dims {
			high *= int(d)
		}
	} else {
		for j, stride := range unsafe.Slice((*int64)(in.strides), in.rank) {
			if reach := int(stride * (dims[j] - 1)); reach < 0 {
				low += reach
			} else {
				high += reach
			}
		}
	}
	return memory.TornAt(unsafe.Add(in.data, low), high-low)
}

// findLoan returns a tuple that is on loan to C. what is the operation, for the error.
func findLoan(what string, id C.uint64_t) (loan, error) {
	var l loan
	var ok bool
	if id&writeBit != 0 {
		var w writeLoan
		w, ok = writeLoans.get(uint64(id &^ writeBit))
		l = w.loan
	} else {
		l, ok = loans.get(uint64(id))
	}
	if !ok {
		return l, pyfeed.Errorf(pyfeed.State, "%s: expected a tuple on loan, found one that was released already", what)
	}
	return l, nil
}

// endWriteLoan ends the loan of a tuple that C has written, and returns it. ok is false if there is none of that id.
func endWriteLoan(id uint64) (l writeLoan, ok bool) {
	if l, ok = writeLoans.remove(id &^ writeBit); ok {
		l.view.Release()
	}
	return l, ok
}

// releaseLoan ends a loan, if there is one of that id, and releases its tuple.
func releaseLoan(id uint64) {
	if id&writeBit != 0 {
		if l, ok := endWriteLoan(id); ok {
			l.drop()
		}
	} else if l, ok := loans.remove(id); ok {
		l.view.Release()
		l.tuple.Release()
	}
}

//export pfgo_tuple_release
func pfgo_tuple_release(id C.uint64_t) {
	defer guard(nil, nil)
	releaseLoan(uint64(id))
}

// releaseTuple releases the tuple that the struct of the caller still holds, if any.
func releaseTuple(held *C.pf_tuple) {
	if held.loan != 0 {
		id := uint64(held.loan)
		held.loan = 0
		releaseLoan(id)
	}
}

//export pfgo_tuple_share
func pfgo_tuple_share(id C.uint64_t, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := findLoan("share", id)
	if e != nil {
		return setError(e, err)
	}
	t := pyfeed.NewTuple(len(l.tuple.Slots))
	for i := range t.Slots {
		l.tuple.Slots[i].Share(&t.Slots[i])
	}
	return setError(lendTuple(t, out), err)
}

// elementAt returns element i of an array of C structs, which may be larger or smaller than those of this library.
// internal.h has the same for C; a call of C from Go would cost more than the access.
func elementAt[T any](first *T, i int, size C.uint32_t) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), i*int(size)))
}

// parseTensors converts C's tensors to a tuple. LoD and, if withData is set, Data are views of C's memory. The caller
// releases the tuple.
func parseTensors(tensors *C.pf_tensor, n C.uint32_t, withData bool) (*pyfeed.Tuple, error) {
	t := pyfeed.NewTuple(int(n))
	for i := range t.Slots {
		if err := parseTensor(&t.Slots[i], i, elementAt(tensors, i, tensors.size), withData); err != nil {
			t.Release()
			return nil, err
		}
	}
	return t, nil
}

func parseTensor(s *pyfeed.LoDTensor, i int, in *C.pf_tensor, withData bool) error {
	s.DType = pyfeed.DType(in.dtype)
	if !s.DType.Valid() {
		return pyfeed.SlotErrorf(pyfeed.Type, i, "expected a dtype, found number %d", int(in.dtype))
	}
	_ = s.SetDims(unsafe.Slice((*int64)(in.dims), in.rank)) // pfi_check_tensors has checked the rank
	for _, level := range unsafe.Slice(in.lod, in.lod_levels) {
		s.LoD = append(s.LoD, unsafe.Slice((*int64)(level.offsets), level.count))
	}
	if withData {
		n, err := s.Measure()
		if err != nil {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
		s.Data = unsafe.Slice((*byte)(in.data), n)
	}
	return nil
}
