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
		return setError(e, err)
	}
	q, e := v.InitQueue(pyfeed.QueueOptions{
		Capacity:    uint64(o.capacity),
		BytesLimit:  uint64(o.bytes_limit),
		Slots:       parseSlots(o.slots, o.num_slots),
		Place:       goPlace(o.place),
		Restartable: o.restartable != 0,
	})
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(q)
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

// lookupConsumer is lookupQueue for what a producer's handle must not be used for.
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

//export pfgo_producer_create
func pfgo_producer_create(h C.pf_handle, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(q.Producer())
	return C.PF_OK
}

// maxCopiedInGo is how many bytes are copied here; more are copied in C, which takes a second call.
const maxCopiedInGo = 64 << 10

//export pfgo_queue_push
func pfgo_queue_push(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	return push(q, tensors, n, call, err)
}

// push copies C's tensors into a queue, or has C copy them. It waits until the queue has room before a byte is copied.
func push(q *pyfeed.PyArrayFeedQueue, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	l, e := reserveInQueue(q, tensors, n, call)
	if e != nil {
		return setError(e, err)
	}
	if st := copyTensors(&l, tensors, n, call, err); st != C.PF_OK {
		return st
	}
	return setError(l.reservation.Commit(l.tuple), err)
}

// copyTensors copies C's tensors to a tuple with a reservation. With PFI_COPY the tuple is lent to C, which copies; after an
// error it is dropped.
func copyTensors(l *loan, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	if call.strided != 0 || l.reservation.Bytes() > maxCopiedInGo {
		return lendLoanForCopy(l, tensors, call, err)
	}
	start := trace.Begin()
	for i := range l.tuple.Slots {
		in, data := elementAt(tensors, i, tensors.size), l.tuple.Slots[i].Data
		copy(data, unsafe.Slice((*byte)(in.data), len(data)))
	}
	if start != 0 {
		trace.CopySince(callerThread().Track(), "push", start, int(l.reservation.Bytes()))
	}
	if e := truncation(tensors, n); e != nil {
		l.drop()
		return setError(e, err)
	}
	return C.PF_OK
}

// reserveInQueue waits until a queue has room for a tuple like C's tensors. It resolves the pass the first time.
func reserveInQueue(q *pyfeed.PyArrayFeedQueue, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call) (loan, error) {
	return reserve(tensors, n, call, func(ctx context.Context, t *pyfeed.Tuple) (pyfeed.Reservation, error) {
		resolvePass(q, call)
		return q.Input().Reserve(ctx, pyfeed.Pass(call.pass), t)
	})
}

// reserve waits until try has room for a tuple like C's tensors.
func reserve(tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call,
	try func(context.Context, *pyfeed.Tuple) (pyfeed.Reservation, error)) (loan, error) {
	t, e := parseTensors(tensors, n, false)
	if e != nil {
		return loan{}, e
	}
	markPusher()
	r, e := blocking(call, func(ctx context.Context) (pyfeed.Reservation, error) { return try(ctx, t) })
	if e != nil {
		t.Release()
		return loan{}, e
	}
	return loan{tuple: t, reservation: r}, nil
}

// markPusher tells the trace that the thread pushes.
func markPusher() {
	if trace.On() {
		callerThread().MarkPusher()
	}
}

// The numbers that stand for something else are the same on both sides.
var (
	_ = [1]struct{}{}[C.PF_PASS_CURRENT-uint64(pyfeed.PassCurrent)]
	_ = [1]struct{}{}[C.PF_PASS_NONE-uint64(pyfeed.PassNone)]
)

// resolvePass makes the pass that is current when a call begins that of the whole call.
func resolvePass(q *pyfeed.PyArrayFeedQueue, call *C.pfi_call) {
	if call.pass == C.PF_PASS_CURRENT {
		call.pass = C.uint64_t(q.Pass())
	}
}

// lendForCopy lends a tuple to C, which copies its tensors into it and calls again.
func lendForCopy(t *pyfeed.Tuple, from *C.pf_tensor, call *C.pfi_call, err *C.pf_error) C.pf_status {
	return lendLoanForCopy(&loan{tuple: t}, from, call, err)
}

// lendLoanForCopy is lendForCopy for a tuple that may have a reservation.
func lendLoanForCopy(l *loan, from *C.pf_tensor, call *C.pfi_call, err *C.pf_error) C.pf_status {
	id, dest, e := lend(l, source{tensors: from})
	if e != nil {
		return setError(e, err)
	}
	call.loan, call.dest = C.uint64_t(id), dest
	markCopyBegin(id)
	return C.PFI_COPY
}

// A cOwner has C reclaim lent memory.
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
		return setError(e, err)
	}
	markPusher()
	resolvePass(q, call)
	_, e = blocking(call, func(ctx context.Context) (struct{}, error) {
		t, e := parseTensors(tensors, n, true)
		if e != nil {
			return struct{}{}, e
		}
		if e = truncation(tensors, n); e != nil {
			t.Release()
			return struct{}{}, e
		}
		return struct{}{}, q.Input().Lend(ctx, pyfeed.Pass(call.pass), t, &cOwner{(*[0]byte)(release), context_})
	})
	return setError(e, err)
}

//export pfgo_queue_reserve
func pfgo_queue_reserve(h C.pf_handle, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, out *C.pf_tuple,
	err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	l, e := reserveInQueue(q, tensors, n, call)
	if e == nil {
		e = lendFrom(&l, source{faults: memory.RearmFaults()}, out)
	}
	return setError(e, err)
}

//export pfgo_queue_commit
func pfgo_queue_commit(id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := takeReservation(uint64(id))
	if e == nil {
		e = l.reservation.Commit(l.tuple)
	}
	return setError(e, err)
}

// takeReservation ends the loan of a tuple that C has written, and gives the reservation to the caller.
func takeReservation(id uint64) (loan, error) {
	l, ok := loans.get(id)
	if !ok {
		return l, pyfeed.Errorf(pyfeed.State, "commit: expected a reservation, found one that was committed or released already")
	}
	traceCopy(l, "push")
	if !l.reservation.Held() {
		return l, pyfeed.Errorf(pyfeed.State, "commit: expected a reservation, found a tuple that was popped")
	}
	truncated := l.truncation(id)
	if truncated != nil && l.source().tensors == nil { // the caller releases it
		return l, truncated
	}
	if l, ok = endLoan(id); !ok {
		return l, pyfeed.Errorf(pyfeed.State, "commit: the reservation was released by another thread")
	}
	if truncated != nil {
		l.drop()
	}
	return l, truncated
}

//export pfgo_queue_pop
func pfgo_queue_pop(h C.pf_handle, call *C.pfi_call, out *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	releaseTuple(out)
	q, e := lookupConsumer(h)
	if e != nil {
		return setError(e, err)
	}
	return readTuple(call, "pop", q.Deliver, out, err)
}

// readTuple lends C the tuple that read returns.
func readTuple(call *C.pfi_call, name string, read func(context.Context) (*pyfeed.Tuple, error), out *C.pf_tuple, err *C.pf_error) C.pf_status {
	t, e := tracedBlocking(call, name, read)
	if e == nil {
		e = lendTuple(t, out)
	}
	return setError(e, err)
}

//export pfgo_queue_close
func pfgo_queue_close(h C.pf_handle, pass C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e == nil {
		q.Input().Close(pyfeed.Pass(pass))
	}
	return setError(e, err)
}

//export pfgo_queue_fail
func pfgo_queue_fail(h C.pf_handle, pass C.uint64_t, failure *C.pf_failure, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e == nil {
		e = q.Input().Fail(pyfeed.Pass(pass), producerError(failure))
	}
	return setError(e, err)
}

//export pfgo_queue_reopen
func pfgo_queue_reopen(h C.pf_handle, pass, dropped *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	p, d, e := q.Reopen()
	*pass, *dropped = C.uint64_t(p), C.uint64_t(d)
	return setError(e, err)
}

//export pfgo_queue_wait_pass
func pfgo_queue_wait_pass(h C.pf_handle, after C.uint64_t, call *C.pfi_call, pass *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	p, e := blocking(call, func(ctx context.Context) (pyfeed.Pass, error) { return q.WaitPass(ctx, pyfeed.Pass(after)) })
	*pass = C.uint64_t(p)
	return setError(e, err)
}

//export pfgo_queue_shutdown
func pfgo_queue_shutdown(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e == nil {
		q.Shutdown()
	}
	return setError(e, err)
}

//export pfgo_queue_stats
func pfgo_queue_stats(h C.pf_handle, out *C.pf_queue_info, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	i := q.Info()
	out.num_slots = C.uint32_t(q.Spec().Len())
	out.num_tuples = C.uint64_t(i.Size)
	out.capacity = C.uint64_t(i.Capacity)
	out.reserved_tuples = C.uint64_t(i.Reserved)
	out.bytes = C.uint64_t(i.Bytes)
	out.bytes_limit = C.uint64_t(i.BytesLimit)
	out.pass = C.uint64_t(i.Pass)
	out.closed = cbool(i.Closed)
	out.failed = cbool(i.Failed)
	out.shut_down = cbool(i.ShutDown)
	out.restartable = cbool(i.Restartable)
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

//export pfgo_queue_slot
func pfgo_queue_slot(h C.pf_handle, i C.uint32_t, out *C.pf_slot_spec, dims *C.int64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	if n := q.Spec().Len(); int(i) >= n {
		return setError(pyfeed.Errorf(pyfeed.Slots, "slot: expected 0 to %d, found %d", n-1, i), err)
	}
	slot := q.Spec().Slot(int(i))
	out.dtype = C.pf_dtype(slot.DType)
	out.rank = C.int32_t(len(slot.Dims))
	out.lod_levels = C.uint32_t(slot.LoDLevels)
	out.dims = dims
	copy(unsafe.Slice((*int64)(dims), len(slot.Dims)), slot.Dims)
	return C.PF_OK
}
