package main

// #include "internal.h"
import "C"

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

//export pfgo_executor_create
func pfgo_executor_create(place C.pf_place, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	x, e := program.NewExecutor(goPlace(place))
	if e != nil {
		return setError(e, err)
	}
	*out = newHandle(x)
	return C.PF_OK
}

// A programRun is a run of a program on a C thread. Kernels and waits run outside Go: pfgo_run_step executes operators
// until it needs one of the two, and returns PFI_KERNEL or PFI_WOULD_BLOCK.
type programRun struct {
	id            C.uint64_t
	run           *program.Run
	token         *cancelToken
	feeds         []string
	yieldTimer    *time.Timer // makes the run yield, so that its thread can poll; or nil
	yieldInterval time.Duration
	callViews     []*callView
	traceBegin    int64  // for the trace: when the run began
	endKernelSpan func() // for the trace: moves the thread's reads back from the run's track; or nil
	failure       *pyfeed.ProducerError
}

var runs table[*programRun]

// recentRuns lets most steps find their run without the lock of the table, as recentHandles does for handles. A run
// that has ended is never in it.
var recentRuns [64]atomic.Pointer[programRun]

func findRun(id C.uint64_t) (*programRun, bool) {
	if r := recentRuns[id%64].Load(); r != nil && r.id == id {
		return r, true
	}
	return runs.get(uint64(id))
}

//export pfgo_run_begin
func pfgo_run_begin(executor, prog, scope C.pf_handle, feedNames **C.char, feeds *C.pf_tensor, numFeeds C.uint32_t,
	fetchNames **C.char, numFetches C.uint32_t, call *C.pfi_call, out *C.pfi_run, fetched *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if fetched != nil {
		releaseTuple(fetched)
	}
	r := &programRun{}
	x, e := lookup[*program.Executor](executor)
	if e != nil {
		return setError(e, err)
	}
	p, e := lookup[*program.Program](prog)
	if e != nil {
		return setError(e, err)
	}
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return setError(e, err)
	}
	if call.cancel != 0 {
		if r.token, e = lookup[*cancelToken](call.cancel); e != nil {
			return setError(e, err)
		}
	}
	if r.run, e = x.Begin(p, s, goStrings(fetchNames, numFetches)); e != nil {
		return setError(e, err)
	}
	st = C.PF_OK
	if numFeeds > 0 {
		if st = r.lendFeeds(x, goStrings(feedNames, numFeeds), feeds, numFeeds, call, err); st != C.PFI_COPY {
			r.run.End()
			return st
		}
	}
	r.traceBegin = trace.Begin()
	r.id = C.uint64_t(runs.put(r))
	out.id = r.id
	recentRuns[r.id%64].Store(r)
	r.token.watchRun(r.run)
	if out.yield_ms != 0 {
		r.yieldInterval = time.Duration(out.yield_ms) * time.Millisecond
		r.yieldTimer = time.AfterFunc(r.yieldInterval, r.run.Yield)
	}
	return st
}

// lendFeeds allocates tensors for the feeds and lends them to C, which copies the feeds into them.
func (r *programRun) lendFeeds(x *program.Executor, names []string, feeds *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	t, e := parseTensors(feeds, n, false)
	if e != nil {
		return setError(e, err)
	}
	r.feeds = names
	for i := 0; e == nil && i < len(names); i++ {
		s := &t.Slots[i]
		if e = r.run.CheckFeed(i, names[i], s); e != nil {
			break
		}
		if _, invalid := s.Measure(); invalid != nil {
			e = pyfeed.SlotErrorf(pyfeed.Shape, i, "feed %q: %v", names[i], invalid)
		} else if invalid := s.CheckLoD(); invalid != nil {
			e = pyfeed.SlotErrorf(pyfeed.Shape, i, "feed %q: %v", names[i], invalid)
		}
	}
	if e == nil {
		e = t.Allocate(x.Pool())
	}
	if e != nil {
		t.Release()
		return setError(e, err)
	}
	return lendForCopy(&writeLoan{loan: loan{tuple: t}, tensors: feeds}, call, err)
}

//export pfgo_run_feed
func pfgo_run_feed(of *C.pfi_run, loan C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, _ := findRun(of.id)
	l, _ := endWriteLoan(uint64(loan))
	e := l.truncation()
	if e == nil {
		e = r.run.Feed(r.feeds, l.tuple)
	} else {
		l.tuple.Release()
	}
	if e != nil {
		r.end(of)
	}
	return setError(e, err)
}

//export pfgo_run_step
func pfgo_run_step(of *C.pfi_run, call *C.pfi_call, fetched *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	r, _ := findRun(of.id)
	if of.kernel != nil {
		of.kernel = nil
		if r.endKernelSpan != nil {
			r.endKernelSpan()
			r.endKernelSpan = nil
		}
		c := r.run.Call()
		c.Answer(r.kernelError(c, of.kernel_result))
	}
	_, e := blockingWithToken(call, r.token, 0, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.run.Resume(ctx) })
	switch e {
	case wait.ErrWouldBlock:
		return C.PFI_WOULD_BLOCK
	case program.ErrKernel:
		if e = r.prepareCall(of); e == nil {
			if trace.On() {
				r.endKernelSpan = trace.UseTrack(trace.ThreadID(), r.run.Track())
			}
			return C.PFI_KERNEL
		}
	case program.ErrYield:
		if !r.token.cancelled() {
			if r.yieldTimer != nil {
				r.yieldTimer.Reset(r.yieldInterval)
			}
			return C.PFI_YIELD
		}
		e = r.run.Stopped(errCancelled)
	case errTimeout, errCancelled:
		e = r.run.Stopped(e)
	case nil:
		var t *pyfeed.Tuple
		if fetched != nil {
			if t, e = r.run.Fetch(); e == nil {
				e = lendTuple(t, fetched)
			}
		}
	}
	r.end(of)
	return setError(e, err)
}

// prepareCall sets the kernel, its context and its arguments, for C to call.
func (r *programRun) prepareCall(of *C.pfi_run) error {
	c := r.run.Call()
	v, made := c.Shared.(*callView)
	if !made {
		var err error
		if v, err = newCallView(c, uint64(of.id)); err != nil {
			return err
		}
		c.Shared = v
		r.callViews = append(r.callViews, v)
	}
	v.describe(c)
	k := c.Kernel.Foreign.(*cKernel)
	of.kernel, of.context, of.kernel_call = k.function, k.context, v.call
	return nil
}

func (r *programRun) end(of *C.pfi_run) {
	runs.remove(uint64(of.id))
	recentRuns[of.id%64].CompareAndSwap(r, nil)
	of.id = 0
	if r.traceBegin != 0 {
		callerThread().RecordRun(r.traceBegin)
	}
	if r.yieldTimer != nil {
		r.yieldTimer.Stop()
	}
	r.token.unwatchRun(r.run)
	r.run.End()
	for _, v := range r.callViews {
		v.memory.Release()
	}
}
