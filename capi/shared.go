package main

// #include "internal.h"
import "C"

import (
	"math"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/shared"
)

//export pfgo_shared_queue_init_once
func pfgo_shared_queue_init_once(h C.pf_handle, o *C.pf_shared_queue_options, fd *C.int, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	v, e := lookup[variable](h)
	if e != nil {
		return setError(e, err)
	}
	q, ring, e := shared.New(shared.Options{
		Slots:     parseSlots(o.slots, o.num_slots),
		RingCells: uint64(o.ring_cells),
		CellBytes: uint64(o.cell_bytes),
		Place:     goPlace(o.place),
		Tasks:     shared.TaskOptions{Count: int(o.num_tasks), Slots: int(o.task_slots), Bytes: uint64(o.task_bytes)},
	}, v.InitQueue)
	if e != nil {
		return setError(e, err)
	}
	*fd = C.int(ring.FD())
	*out = newHandle(q)
	return C.PF_OK
}

// lookupFeed returns the Feed of a queue that worker processes fill. It fails for other queues.
func lookupFeed(h C.pf_handle) (pyfeed.Feed, error) {
	q, e := lookupQueue(h)
	if e != nil {
		return nil, e
	}
	feed := q.Feed()
	if feed == nil {
		return nil, pyfeed.Errorf(pyfeed.State, "queue: expected one that worker processes fill, found one that this process fills")
	}
	return feed, nil
}

//export pfgo_shared_queue_expect
func pfgo_shared_queue_expect(h C.pf_handle, workers C.uint32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	feed, e := lookupFeed(h)
	if e == nil {
		feed.Expect(uint32(workers))
	}
	return setError(e, err)
}

//export pfgo_shared_queue_report_exit
func pfgo_shared_queue_report_exit(h C.pf_handle, pid C.int64_t, status C.int32_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	feed, e := lookupFeed(h)
	if e == nil && (pid <= 0 || pid > math.MaxInt32) {
		e = pyfeed.Errorf(pyfeed.Invalid, "pid: expected a process id, found %d", int64(pid))
	}
	if e == nil {
		feed.Exited(int(pid), int32(status))
	}
	return setError(e, err)
}

//export pfgo_shared_queue_at_work
func pfgo_shared_queue_at_work(h C.pf_handle, coming *C.int64_t, n C.uint32_t, out *C.uint8_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	feed, e := lookupFeed(h)
	if e != nil {
		return setError(e, err)
	}
	pids := make([]int, n)
	for i, pid := range unsafe.Slice(coming, n) {
		pids[i] = int(pid)
	}
	if feed.AtWork(pids) {
		*out = 1
	}
	return C.PF_OK
}
