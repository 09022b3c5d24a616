package main

// #include "internal.h"
import "C"

import (
	"context"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
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

// lookupQueue returns the queue of a consumer's handle or a producer's handle.
func lookupQueue(h C.pf_handle) (*pyfeed.PyArrayFeedQueue, error) {
	switch o := find(h).(type) {
	case *pyfeed.Consumer:
		return o.Queue(), nil
	case *pyfeed.Producer:
		return o.Queue(), nil
	default:
		return nil, staleError[*pyfeed.Consumer](h, o)
	}
}

// lookupConsumer is lookupQueue for operations that a producer's handle does not allow.
func lookupConsumer(h C.pf_handle) (*pyfeed.Consumer, error) {
	switch o := find(h).(type) {
	case *pyfeed.Consumer:
		return o, nil
	case *pyfeed.Producer:
		return nil, pyfeed.Errorf(pyfeed.State, "pop: expected a consumer's handle of the queue, found a producer's, which only pushes")
	default:
		return nil, staleError[*pyfeed.Consumer](h, o)
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

// maxCopiedInGo is the size in bytes up to which Go copies a tuple. C copies larger and strided tuples, and then makes
// a second call: Go's scheduler cannot interrupt a large copy, but a second call costs more than copying a small tuple.
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

// push copies C's tensors into a queue, or lends C the tuple to copy them (PFI_COPY). It copies nothing before the
// queue has room.
func push(q *pyfeed.PyArrayFeedQueue, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	t, r, e := reserveInQueue(q, tensors, n, call)
	if e != nil {
		return setError(e, err)
	}
	if st := copyTensors(t, &r, tensors, n, call, err); st != C.PF_OK {
		return st
	}
	return setError(r.Commit(t), err)
}

// copyTensors copies C's tensors to a tuple with a reservation. If it returns PFI_COPY, the tuple is lent to C, which
// copies. After an error the tuple is released.
func copyTensors(t *pyfeed.Tuple, r *pyfeed.Reservation, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	if copiedInC := call.strided != 0 || r.Bytes() > maxCopiedInGo; copiedInC {
		return lendForCopy(&writeLoan{loan: loan{tuple: t}, tensors: tensors, reservation: *r}, call, err)
	}
	start := trace.Begin()
	for i := range t.Slots {
		in, data := elementAt(tensors, i, tensors.size), t.Slots[i].Data
		copy(data, unsafe.Slice((*byte)(in.data), len(data)))
	}
	if start != 0 {
		trace.CopySince(callerThread().Track(), "push", start, int(r.Bytes()))
	}
	if e := truncation(tensors, n); e != nil {
		r.Cancel(t)
		return setError(e, err)
	}
	return C.PF_OK
}

// reserveInQueue waits until a queue has room for a tuple like C's tensors. The first attempt resolves the pass. The
// caller owns the tuple.
func reserveInQueue(q *pyfeed.PyArrayFeedQueue, tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call) (*pyfeed.Tuple, pyfeed.Reservation, error) {
	return reserve(tensors, n, call, func(ctx context.Context, t *pyfeed.Tuple) (pyfeed.Reservation, error) {
		resolvePass(q, call)
		return q.Input().Reserve(ctx, pyfeed.Pass(call.pass), t)
	})
}

// reserve calls try with a tuple like C's tensors, and waits until try has room for it. The caller owns the tuple.
func reserve(tensors *C.pf_tensor, n C.uint32_t, call *C.pfi_call,
	try func(context.Context, *pyfeed.Tuple) (pyfeed.Reservation, error)) (*pyfeed.Tuple, pyfeed.Reservation, error) {
	t, e := parseTensors(tensors, n, false)
	if e != nil {
		return nil, pyfeed.Reservation{}, e
	}
	pusher := beginPush()
	r, e := blocking(call, func(ctx context.Context) (pyfeed.Reservation, error) { return try(ctx, t) })
	pusher.EndPush()
	if e != nil {
		t.Release()
	}
	return t, r, e
}

// beginPush notes for the trace that the calling thread pushes. It returns nil if no recording is on.
func beginPush() *trace.Pusher {
	if !trace.On() {
		return nil
	}
	return trace.BeginPush(trace.ThreadID())
}

// These arrays compile only if the special pass numbers of C and Go are the same.
var (
	_ = [1]struct{}{}[C.PF_PASS_CURRENT-uint64(pyfeed.PassCurrent)]
	_ = [1]struct{}{}[C.PF_PASS_NONE-uint64(pyfeed.PassNone)]
)

// resolvePass replaces PF_PASS_CURRENT by the number of the current pass, for this attempt and all later ones of the
// call.
func resolvePass(q *pyfeed.PyArrayFeedQueue, call *C.pfi_call) {
	if call.pass == C.PF_PASS_CURRENT {
		call.pass = C.uint64_t(q.Pass())
	}
}

// lendForCopy lends a tuple to C, which copies tensors into it and then calls Go again. It returns PFI_COPY.
func lendForCopy(l *writeLoan, call *C.pfi_call, err *C.pf_error) C.pf_status {
	l.copyBegan = trace.Begin()
	id, dest, e := lendToWrite(l)
	if e != nil {
		return setError(e, err)
	}
	call.loan, call.dest = C.uint64_t(id), dest
	return C.PFI_COPY
}

// A cOwner owns memory that C has lent. Reclaim calls the release function of C.
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
	pusher := beginPush()
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
	pusher.EndPush()
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
	t, r, e := reserveInQueue(q, tensors, n, call)
	if e != nil {
		return setError(e, err)
	}
	return setError(lendInPlace(t, r, out), err)
}

//export pfgo_queue_commit
func pfgo_queue_commit(id C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	l, e := takeReservation(uint64(id), true)
	if e == nil {
		e = l.reservation.Commit(l.tuple)
	}
	return setError(e, err)
}

// takeReservation ends the loan of a tuple that C has written, and returns it: one with a reservation of a queue, or one
// for the result of a map. If the tuple was written in place and may lack bytes of a mapped file, it stays on loan: the
// caller of the library releases it.
func takeReservation(id uint64, ofQueue bool) (l writeLoan, err error) {
	if id&writeBit == 0 {
		if _, exists := loans.get(id); exists {
			return l, pyfeed.Errorf(pyfeed.State, "commit: expected a reservation, found a tuple that was popped")
		}
		return l, reservationEnded()
	}
	writeLoans.mu.Lock()
	row := writeLoans.find(id &^ writeBit)
	if row == nil {
		writeLoans.mu.Unlock()
		return l, reservationEnded()
	}
	if row.value.reservation.Held() != ofQueue {
		writeLoans.mu.Unlock()
		expected, found := "the result of a map", "one of a queue"
		if ofQueue {
			expected, found = found, expected
		}
		return l, pyfeed.Errorf(pyfeed.State, "commit: expected a reservation for %s, found one for %s", expected, found)
	}
	err = row.value.truncation() // before the loan ends: until then C's tensors exist
	if err != nil && row.value.tensors == nil {
		writeLoans.mu.Unlock()
		return l, err
	}
	l = row.value
	writeLoans.empty(row, id&^writeBit)
	writeLoans.mu.Unlock()
	l.view.Release()
	traceCopy(&l, "push")
	if err != nil {
		l.drop()
	}
	return l, err
}

func reservationEnded() error {
	return pyfeed.Errorf(pyfeed.State, "commit: expected a reservation, found one that was committed or released already")
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

// readTuple calls read, waits until it returns a tuple, and lends the tuple to C.
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

//export pfgo_queue_get_start
func pfgo_queue_get_start(h C.pf_handle, pass C.uint64_t, start *C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	n, e := q.Start(pyfeed.Pass(pass))
	if e == nil {
		*start = C.uint64_t(n)
	}
	return setError(e, err)
}

//export pfgo_queue_set_start
func pfgo_queue_set_start(h C.pf_handle, pass, start C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	q, e := lookupQueue(h)
	if e != nil {
		return setError(e, err)
	}
	return setError(q.SetStart(pyfeed.Pass(pass), int64(min(start, 1<<63-1))), err)
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
	out.name = lastingString(slot.Name)
	return C.PF_OK
}
