package main

// #include "internal.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

//export pfgo_queue_init_once
func pfgo_queue_init_once(h C.pf_handle, o *C.pf_queue_options, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return answer(e, err)
	}
	q, e := v.InitQueue(pyfeed.QueueOptions{
		Capacity:    uint64(o.capacity),
		BytesLimit:  uint64(o.bytes_limit),
		Slots:       slotsOf(o.slots, o.num_slots),
		Place:       pyfeed.Place{Kind: pyfeed.PlaceKind(o.place.kind), Device: int32(o.place.device)},
		Restartable: o.restartable != 0,
	})
	if e != nil {
		return answer(e, err)
	}
	*out = give(q)
	return C.PF_OK
}

func slotsOf(specs *C.pf_slot_spec, n C.uint32_t) []pyfeed.Slot {
	slots := make([]pyfeed.Slot, n)
	for i := range slots {
		in := at(specs, i, specs.size)
		slots[i] = pyfeed.Slot{
			DType:     pyfeed.DType(in.dtype),
			Dims:      unsafe.Slice((*int64)(in.dims), in.rank),
			LoDLevels: int(in.lod_levels),
		}
	}
	return slots
}

//export pfgo_queue_of
func pfgo_queue_of(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return answer(e, err)
	}
	q, e := v.Feeder()
	if e != nil {
		return answer(e, err)
	}
	*out = give(q)
	return C.PF_OK
}

// lookupQueue finds the queue behind a consumer's handle or a producer's.
func lookupQueue(h C.pf_handle) (*pyfeed.PyArrayFeedQueue, error) {
	switch o := find(h).(type) {
	case *pyfeed.Consumer:
		return o.Queue(), nil
	case *pyfeed.Producer:
		return o.Queue(), nil
	default:
		return nil, stale[*pyfeed.Consumer](h, o)
	}
}

// lookupConsumer is lookupQueue for what a producer may not do.
func lookupConsumer(h C.pf_handle) (*pyfeed.Consumer, error) {
	switch o := find(h).(type) {
	case *pyfeed.Consumer:
		return o, nil
	case *pyfeed.Producer:
		return nil, pyfeed.Errorf(pyfeed.State, "pop: expected a consumer's handle of the queue, found a producer's, which only pushes")
	default:
		return nil, stale[*pyfeed.Consumer](h, o)
	}
}

//export pfgo_queue_producer
func pfgo_queue_producer(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	*out = give(q.Producer())
	return C.PF_OK
}

// copiedInGo is how many bytes are copied here rather than in C, at the price of a second call.
const copiedInGo = 64 << 10

//export pfgo_queue_push
func pfgo_queue_push(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	return push(q, tensors, n, call, err)
}

// push copies C's tensors into a queue, or has C do it. There is room before a byte is copied.
func push(q *pyfeed.PyArrayFeedQueue, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	l, e := reserveInQueue(q, tensors, n, call)
	if e != nil {
		return answer(e, err)
	}
	if st := fill(&l, tensors, n, call, err); st != C.PF_OK {
		return st
	}
	return answer(l.reservation.Commit(l.tuple), err)
}

// fill copies C's tensors to a tuple with a reservation. If C is to do it, the tuple is lent; after an error it is gone.
func fill(l *loan, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	if call.strided != 0 || l.reservation.Bytes() > copiedInGo {
		return lendToFill(l, tensors, call, err)
	}
	start := trace.Begin()
	for i := range l.tuple.Slots {
		in, data := at(tensors, i, tensors.size), l.tuple.Slots[i].Data
		copy(data, unsafe.Slice((*byte)(in.data), len(data)))
	}
	if start != 0 {
		trace.CopySince(knownThread().Track(), "push", start, int(l.reservation.Bytes()))
	}
	if e := whole(tensors, n); e != nil {
		l.drop()
		return answer(e, err)
	}
	return C.PF_OK
}

// reserveInQueue waits for room for what C's tensors describe, and gives it memory. It settles the pass the first time.
func reserveInQueue(q *pyfeed.PyArrayFeedQueue, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call) (loan, error) {
	return reserve(tensors, n, call, func(ctx context.Context, t *pyfeed.Tuple) (pyfeed.Reservation, error) {
		settlePass(q, call)
		return q.Input().Reserve(ctx, pyfeed.Pass(call.pass), t)
	})
}

// reserve waits until try has room for what C's tensors describe.
func reserve(tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call,
	try func(context.Context, *pyfeed.Tuple) (pyfeed.Reservation, error)) (loan, error) {
	t, e := parse(tensors, n, false)
	if e != nil {
		return loan{}, e
	}
	notePush()
	r, e := blocking(call, func(ctx context.Context) (pyfeed.Reservation, error) { return try(ctx, t) })
	if e != nil {
		t.Release()
		return loan{}, e
	}
	return loan{tuple: t, reservation: r}, nil
}

// notePush tells the trace that the thread pushes.
func notePush() {
	if trace.On() {
		knownThread().MarkPusher()
	}
}

// The numbers that stand for something else are the same on both sides.
var (
	_ = [1]struct{}{}[C.PF_PASS_CURRENT-uint64(pyfeed.PassCurrent)]
	_ = [1]struct{}{}[C.PF_PASS_NONE-uint64(pyfeed.PassNone)]
)

// settlePass makes the pass that is current when a call begins that of the whole call.
func settlePass(q *pyfeed.PyArrayFeedQueue, call *C.pfi_call) {
	if call.pass == C.PF_PASS_CURRENT {
		call.pass = C.uint64_t(q.Pass())
	}
}

// lendRoom has C fill a tuple with what it has described, and come back with it.
func lendRoom(t *pyfeed.Tuple, from *C.pf_tensor, call *C.pfi_call, err *C.pf_error) C.pf_status {
	return lendToFill(&loan{tuple: t}, from, call, err)
}

// lendToFill is lendRoom for a tuple that may have a reservation.
func lendToFill(l *loan, from *C.pf_tensor, call *C.pfi_call, err *C.pf_error) C.pf_status {
	id, room, e := lend(l, source{tensors: from})
	if e != nil {
		return answer(e, err)
	}
	call.loan, call.room = C.uint64_t(id), room
	noteFilling(id)
	return C.PFI_COPY
}

// cOwner has C reclaim lent memory.
type cOwner struct {
	release *[0]byte
	context unsafe.Pointer
}

func (o *cOwner) Reclaim() { C.pfi_call_release(o.release, o.context) }

//export pfgo_queue_push_lent
func pfgo_queue_push_lent(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, release, context_ unsafe.Pointer,
	call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	notePush()
	settlePass(q, call)
	_, e = blocking(call, func(ctx context.Context) (struct{}, error) {
		t, e := parse(tensors, n, true)
		if e != nil {
			return struct{}{}, e
		}
		if e = whole(tensors, n); e != nil {
			t.Release()
			return struct{}{}, e
		}
		return struct{}{}, q.Input().Lend(ctx, pyfeed.Pass(call.pass), t, &cOwner{(*[0]byte)(release), context_})
	})
	return answer(e, err)
}

//export pfgo_queue_reserve
func pfgo_queue_reserve(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, out *C.pf_tuple,
	err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	l, e := reserveInQueue(q, tensors, n, call)
	if e == nil {
		e = lendOutFrom(&l, source{faults: memory.RearmFaults()}, out)
	}
	return answer(e, err)
}

//export pfgo_queue_commit
func pfgo_queue_commit(id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := filled(uint64(id))
	if e == nil {
		e = l.reservation.Commit(l.tuple)
	}
	return answer(e, err)
}

// filled ends the loan of a tuple that has a reservation, which C has written. The reservation is the caller's then.
func filled(id uint64) (loan, error) {
	l, ok := loans.get(id)
	if !ok {
		return l, pyfeed.Errorf(pyfeed.State, "commit: expected a reservation, found one that was committed or released already")
	}
	noteFilled(l, "push")
	if !l.reservation.Held() {
		return l, pyfeed.Errorf(pyfeed.State, "commit: expected a reservation, found a tuple that was popped")
	}
	torn := l.whole(id)
	if torn != nil && l.source().tensors == nil { // the caller releases it
		return l, torn
	}
	if l, ok = takeBack(id); !ok {
		return l, pyfeed.Errorf(pyfeed.State, "commit: the slot was released by another thread")
	}
	if torn != nil {
		l.drop()
	}
	return l, torn
}

//export pfgo_queue_pop
func pfgo_queue_pop(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	giveBack(out)
	q, e := lookupConsumer(h)
	if e != nil {
		return answer(e, err)
	}
	return next(call, "pop", q.Deliver, out, err)
}

// next lends C the tuple that read answers.
func next(call *C.pfi_call, name string, read func(context.Context) (*pyfeed.Tuple, error), out *C.pf_tuple, err *C.pf_error) C.pf_status {
	t, e := reading(call, name, read)
	if e == nil {
		e = lendOut(t, out)
	}
	return answer(e, err)
}

//export pfgo_queue_close
func pfgo_queue_close(h C.pf_handle, pass C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e == nil {
		q.Input().Close(pyfeed.Pass(pass))
	}
	return answer(e, err)
}

//export pfgo_queue_fail
func pfgo_queue_fail(h C.pf_handle, pass C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e == nil {
		e = q.Input().Fail(pyfeed.Pass(pass), failureOf(failure))
	}
	return answer(e, err)
}

//export pfgo_queue_reopen
func pfgo_queue_reopen(h C.pf_handle, pass, dropped *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	p, d, e := q.Reopen()
	*pass, *dropped = C.uint64_t(p), C.uint64_t(d)
	return answer(e, err)
}

//export pfgo_queue_wait_pass
func pfgo_queue_wait_pass(h C.pf_handle, after C.uint64_t, call *C.pfi_call, pass *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	p, e := blocking(call, func(ctx context.Context) (pyfeed.Pass, error) { return q.WaitPass(ctx, pyfeed.Pass(after)) })
	*pass = C.uint64_t(p)
	return answer(e, err)
}

//export pfgo_queue_shutdown
func pfgo_queue_shutdown(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e == nil {
		q.Shutdown()
	}
	return answer(e, err)
}

//export pfgo_queue_stats
func pfgo_queue_stats(h C.pf_handle, out *C.pf_queue_info, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	i := q.Info()
	out.num_slots = C.uint32_t(q.Spec().Len())
	out.num_tuples = C.uint64_t(i.Size)
	out.capacity = C.uint64_t(i.Capacity)
	out.reserved_tuples = C.uint64_t(i.Reserved)
	out.bytes = C.uint64_t(i.Bytes)
	out.bytes_limit = C.uint64_t(i.BytesLimit)
	out.pass = C.uint64_t(i.Pass)
	out.closed = yes(i.Closed)
	out.failed = yes(i.Failed)
	out.shut_down = yes(i.ShutDown)
	out.restartable = yes(i.Restartable)
	out.waiting_producers = C.uint32_t(i.WaitingProducers)
	out.waiting_consumers = C.uint32_t(i.WaitingConsumers)
	out.pushed = C.uint64_t(i.Pushed)
	out.popped = C.uint64_t(i.Popped)
	out.dropped = C.uint64_t(i.Dropped)
	out.pushed_bytes = C.uint64_t(i.PushedBytes)
	out.producers_waited_ns = C.uint64_t(i.ProducersWaited)
	out.consumers_waited_ns = C.uint64_t(i.ConsumersWaited)
	return C.PF_OK
}

func yes(b bool) C.uint8_t {
	if b {
		return 1
	}
	return 0
}

//export pfgo_queue_slot
func pfgo_queue_slot(h C.pf_handle, i C.uint32_t, out *C.pf_slot_spec, dims *C.int64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return answer(e, err)
	}
	if n := q.Spec().Len(); int(i) >= n {
		return answer(pyfeed.Errorf(pyfeed.Slots, "slot: expected 0 to %d, found %d", n-1, i), err)
	}
	slot := q.Spec().Slot(int(i))
	out.dtype = C.pf_dtype(slot.DType)
	out.rank = C.int32_t(len(slot.Dims))
	out.lod_levels = C.uint32_t(slot.LoDLevels)
	out.dims = dims
	copy(unsafe.Slice((*int64)(dims), len(slot.Dims)), slot.Dims)
	return C.PF_OK
}
