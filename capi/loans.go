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

// A loan is a tuple that C has, with the descriptors it reads: they must not lie in Go's heap.
type loan struct {
	tuple       *pyfeed.Tuple
	view        *memory.Buffer     // the descriptors, and behind them the source
	filling     int64              // since when C copies into it, for the trace
	reservation pyfeed.Reservation // in a queue, of a tuple that C writes; or none
}

// drop releases the tuple of a loan that has ended.
func (l *loan) drop() {
	if l.reservation.Held() {
		l.reservation.Cancel(l.tuple)
	} else {
		l.tuple.Release()
	}
}

// A source is what C writes into the tuple of a loan. It lies in the loan's view and not in the loan, since loans are
// copied with every tuple that is popped.
type source struct {
	tensors *C.pf_tensor // what C copies, a tensor a slot; nil: C writes the tuple in place
	faults  uint32       // of mapped files, when the tuple was lent to be written in place
}

// source is that of a loan that was found.
func (l *loan) source() *source {
	view := l.view.Bytes()
	return (*source)(unsafe.Pointer(&view[len(view)-int(unsafe.Sizeof(source{}))]))
}

var (
	loans table[loan]
	views = memory.NewPool(memory.View)
)

// lend describes a tuple for C, which may write it from a source. On an error the tuple is released.
func lend(l *loan, from source) (id uint64, view *C.pf_tensor, err error) {
	t := l.tuple
	size := len(t.Slots)*C.sizeof_pf_tensor + int(unsafe.Sizeof(from))
	for i := range t.Slots {
		size += len(t.Slots[i].Dims())*8 + len(t.Slots[i].LoD)*C.sizeof_pf_lod_level
	}
	b, err := views.Get(size)
	if err != nil {
		l.drop()
		return 0, nil, err
	}
	clear(b.Bytes())
	slots := unsafe.Slice((*C.pf_tensor)(b.Pointer()), len(t.Slots))
	rest := unsafe.Add(b.Pointer(), len(slots)*C.sizeof_pf_tensor)
	for i := range slots {
		rest = show(&t.Slots[i], &slots[i], rest)
	}
	*(*source)(rest) = from
	l.view = b
	return loans.put(*l), unsafe.SliceData(slots), nil
}

// show describes a tensor in out, which is zeroed but for what show writes, with dims and LoD in the room from rest on. It
// answers where they end.
func show(s *pyfeed.LoDTensor, out *C.pf_tensor, rest unsafe.Pointer) unsafe.Pointer {
	out.size = C.sizeof_pf_tensor
	out.dtype = C.pf_dtype(s.DType)
	out.place = C.pf_place{C.int32_t(s.Place.Kind), C.int32_t(s.Place.Device)}
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

// lendOut lends a tuple to be read through the caller's struct.
func lendOut(t *pyfeed.Tuple, out *C.pf_tuple) error {
	return lendOutFrom(&loan{tuple: t}, source{}, out)
}

// lendOutFrom lends a tuple that may be written through the caller's struct.
func lendOutFrom(l *loan, from source, out *C.pf_tuple) error {
	n := len(l.tuple.Slots)
	id, view, err := lend(l, from)
	if err != nil {
		return err
	}
	out.num_slots = C.uint32_t(n)
	out.slots = view
	out.loan = C.uint64_t(id)
	return nil
}

// whole is an error if what C wrote into a tuple may be zeros that stand for what is missing of a mapped file. The loan was
// found by the id, or not. Another thread may have released it since, and its view may be another's: the tensors are
// C's only while the loan is there.
func (l *loan) whole(id uint64) error {
	if l.view == nil {
		return nil
	}
	from := *l.source()
	if from.tensors != nil {
		if _, there := loans.get(id); !there {
			return nil // takeBack says so
		}
		return whole(from.tensors, C.uint32_t(len(l.tuple.Slots)))
	}
	if memory.FaultCount() != from.faults {
		return pyfeed.Errorf(pyfeed.Corrupt, "a mapped file shrank, was written to or could not be read, before or while the slot was written, and some of that may be in it")
	}
	return nil
}

// whole is an error about the first of C's tensors that lies in a mapped file which is torn: what was copied of it may be
// zeros.
func whole(tensors *C.pf_tensor, n C.uint32_t) error {
	if !memory.AnyTorn() {
		return nil
	}
	return untorn(tensors, n)
}

func untorn(tensors *C.pf_tensor, n C.uint32_t) error {
	for i := range int(n) {
		if err := pyfeed.TornError(tearOf(at(tensors, i, tensors.size)), i); err != nil {
			return err
		}
	}
	return nil
}

// tearOf is the tear of the mapped file that a tensor of C's lies in; nil: it lies in none that is torn.
func tearOf(in *C.pf_tensor) *memory.Tear {
	low, high := 0, pyfeed.DType(in.dtype).Size() // of its bytes, from data on
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

// takeBack ends a loan, if there is one of that number.
func takeBack(id uint64) (l loan, there bool) {
	l, there = loans.remove(id)
	if there {
		l.view.Release()
	}
	return l, there
}

// releaseLoan ends a loan, if there is one of that number, and releases the tuple.
func releaseLoan(id uint64) {
	if l, there := takeBack(id); there {
		l.drop()
	}
}

//export pfgo_tuple_release
func pfgo_tuple_release(id C.uint64_t) {
	defer guard(nil, nil)
	releaseLoan(uint64(id))
}

// giveBack releases what the caller's struct still holds.
func giveBack(held *C.pf_tuple) {
	if held.loan != 0 {
		id := uint64(held.loan)
		held.loan = 0
		releaseLoan(id)
	}
}

//export pfgo_tuple_share
func pfgo_tuple_share(id C.uint64_t, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, ok := loans.get(uint64(id))
	if !ok {
		return answer(pyfeed.Errorf(pyfeed.State, "share: expected a tuple on loan, found one that was released already"), err)
	}
	t := pyfeed.NewTuple(len(l.tuple.Slots))
	for i := range t.Slots {
		l.tuple.Slots[i].Share(&t.Slots[i])
	}
	return answer(lendOut(t, out), err)
}

// at is the i-th of an array of C structs, whose elements may be larger than this library knows. It
// does in Go what internal.h does in C, since a call there costs more than all of this.
func at[T any](first *T, i int, size C.uint32_t) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), i*int(size)))
}

// parse reads C's tensors. LoD and, if withData, Data are views of C's memory.
func parse(tensors *C.pf_tensor, n C.uint32_t, withData bool) (*pyfeed.Tuple, error) {
	t := pyfeed.NewTuple(int(n))
	for i := range t.Slots {
		if err := parseSlot(&t.Slots[i], i, at(tensors, i, tensors.size), withData); err != nil {
			t.Release()
			return nil, err
		}
	}
	return t, nil
}

func parseSlot(s *pyfeed.LoDTensor, i int, in *C.pf_tensor, withData bool) error {
	s.DType = pyfeed.DType(in.dtype)
	if !s.DType.Valid() {
		return pyfeed.SlotErrorf(pyfeed.Type, i, "expected a dtype, found number %d", int(in.dtype))
	}
	_ = s.SetDims(unsafe.Slice((*int64)(in.dims), in.rank)) // entry.c has seen to the rank
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
