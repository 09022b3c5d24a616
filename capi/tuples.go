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

// A loan is a tuple that is lent to C, with the descriptors that C reads, which must not lie in Go's heap.
type loan struct {
	tuple       *pyfeed.Tuple
	view        *memory.Buffer     // the descriptors, and behind them the source
	copyBegan   int64              // for the trace: when C began to copy into the tuple, or 0
	reservation pyfeed.Reservation // of a tuple that C writes for a queue; else none
}

// drop releases the tuple of a loan that has ended.
func (l *loan) drop() {
	if l.reservation.Held() {
		l.reservation.Cancel(l.tuple)
	} else {
		l.tuple.Release()
	}
}

// A source says from where C writes into a lent tuple. It lies in the loan's view and not in the loan, since loans are
// copied with every tuple that is popped.
type source struct {
	tensors *C.pf_tensor // what C copies, a tensor for each slot; nil: C writes the tuple in place
	faults  uint32       // the count of faults in mapped files when the tuple was lent to be written in place
}

// source is the source of a loan that was found.
func (l *loan) source() *source {
	view := l.view.Bytes()
	return (*source)(unsafe.Pointer(&view[len(view)-int(unsafe.Sizeof(source{}))]))
}

var (
	loans table[loan]
	views = memory.NewPool(memory.View)
)

// lend describes a tuple for C, which may write into it from a source. On an error the tuple is released.
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
		rest = describe(&t.Slots[i], &slots[i], rest)
	}
	*(*source)(rest) = from
	l.view = b
	return loans.put(*l), unsafe.SliceData(slots), nil
}

// describe fills in out, with dims and LoD in the memory from rest on, and returns where they end. The fields that it does
// not write are zero.
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

// lendTuple lends a tuple, to be read, through the caller's struct. On an error the tuple is released.
func lendTuple(t *pyfeed.Tuple, out *C.pf_tuple) error {
	return lendFrom(&loan{tuple: t}, source{}, out)
}

// lendFrom lends a tuple that may be written.
func lendFrom(l *loan, from source, out *C.pf_tuple) error {
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

// truncation is an error if C may have written zeros into the tuple that stand for missing bytes of a mapped file. The loan
// was found by the id, or is zero. Another thread may have released it since, and its view may be reused: the tensors may
// be read only while the loan exists.
func (l *loan) truncation(id uint64) error {
	if l.view == nil {
		return nil
	}
	from := *l.source()
	if from.tensors != nil {
		if _, exists := loans.get(id); !exists {
			return nil // endLoan reports it
		}
		return truncation(from.tensors, C.uint32_t(len(l.tuple.Slots)))
	}
	if memory.FaultCount() != from.faults {
		return pyfeed.Errorf(pyfeed.Corrupt, "a mapped file shrank, was written to or could not be read, before or while the slot was written, and some of that may be in it")
	}
	return nil
}

// truncation is an error about the first of C's tensors that lies in a mapped file which lacks bytes: zeros may have been
// copied in their place.
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

// tearAt is the tear of the mapped file that a tensor of C's lies in, or nil if it lies in none that is torn.
func tearAt(in *C.pf_tensor) *memory.Tear {
	low, high := 0, pyfeed.DType(in.dtype).Size() // the range of its bytes, counted from data
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

// findLoan finds a tuple that is on loan to C.
func findLoan(what string, id C.uint64_t) (loan, error) {
	l, ok := loans.get(uint64(id))
	if !ok {
		return l, pyfeed.Errorf(pyfeed.State, "%s: expected a tuple on loan, found one that was released already", what)
	}
	return l, nil
}

// endLoan ends a loan, if there is one of that id, and returns it.
func endLoan(id uint64) (l loan, ok bool) {
	l, ok = loans.remove(id)
	if ok {
		l.view.Release()
	}
	return l, ok
}

// releaseLoan ends a loan, if there is one of that id, and releases the tuple.
func releaseLoan(id uint64) {
	if l, ok := endLoan(id); ok {
		l.drop()
	}
}

//export pfgo_tuple_release
func pfgo_tuple_release(id C.uint64_t) {
	defer guard(nil, nil)
	releaseLoan(uint64(id))
}

// releaseTuple releases the tuple that the caller's struct still holds.
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

// elementAt is the i-th of an array of C structs, whose elements may be larger or smaller than this library's. internal.h
// has the same for C: a call from Go would cost more than the access.
func elementAt[T any](first *T, i int, size C.uint32_t) *T {
	return (*T)(unsafe.Add(unsafe.Pointer(first), i*int(size)))
}

// parseTensors reads C's tensors. LoD and, if withData, Data are views of C's memory.
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
