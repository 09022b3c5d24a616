package main

// #include "internal.h"
import "C"

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

//export pfgo_executor_new
func pfgo_executor_new(place C.pf_place, out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	x, e := program.NewExecutor(pyfeed.Place{Kind: pyfeed.PlaceKind(place.kind), Device: int32(place.device)})
	if e != nil {
		return answer(e, err)
	}
	*out = give(x)
	return C.PF_OK
}

// A running is a run of a program by a C thread, which calls the kernels itself and sleeps outside Go: pfgo_run_step
// goes as far as it can without either.
type running struct {
	id      C.uint64_t
	run     *program.Run
	token   *cancelToken
	feeds   []string
	looks   *time.Timer // has the thread look around now and then; or nil
	every   time.Duration
	shown   []*shown
	began   int64  // for the trace: when
	back    func() // ends what a kernel does on the run's track
	failure *pyfeed.ProducerError
}

var runs table[*running]

// steps spares each step the table's lock, as recent does for handles: a run that is over is never found here.
var steps [64]atomic.Pointer[running]

func runOf(id C.uint64_t) (*running, bool) {
	if w := steps[id%64].Load(); w != nil && w.id == id {
		return w, true
	}
	return runs.get(uint64(id))
}

func namesOf(names **C.char, n C.uint32_t) []string {
	all := make([]string, n)
	for i, s := range unsafe.Slice(names, n) {
		all[i] = C.GoString(s)
	}
	return all
}

//export pfgo_run_begin
func pfgo_run_begin(executor, prog, scope C.pf_handle, feedNames **C.char, feeds *C.pf_tensor, numFeeds C.uint32_t,
	fetchNames **C.char, numFetches C.uint32_t, call *C.pfi_call, out *C.pfi_run, fetched *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	if fetched != nil {
		giveBack(fetched)
	}
	w := &running{}
	x, e := lookup[*program.Executor](executor)
	if e != nil {
		return answer(e, err)
	}
	p, e := lookup[*program.Program](prog)
	if e != nil {
		return answer(e, err)
	}
	s, e := lookup[*pyfeed.Scope](scope)
	if e != nil {
		return answer(e, err)
	}
	if call.cancel != 0 {
		if w.token, e = lookup[*cancelToken](call.cancel); e != nil {
			return answer(e, err)
		}
	}
	if w.run, e = x.Begin(p, s, namesOf(fetchNames, numFetches)); e != nil {
		return answer(e, err)
	}
	st = C.PF_OK
	if numFeeds > 0 {
		if st = w.room(x, namesOf(feedNames, numFeeds), feeds, numFeeds, call, err); st != C.PFI_COPY {
			w.run.End()
			return st
		}
	}
	w.began = trace.Begin()
	w.id = C.uint64_t(runs.put(w))
	out.id = w.id
	steps[w.id%64].Store(w)
	w.token.watchRun(w.run)
	if out.look_ms != 0 {
		w.every = time.Duration(out.look_ms) * time.Millisecond
		w.looks = time.AfterFunc(w.every, w.run.Yield)
	}
	return st
}

// room has C copy what is fed.
func (w *running) room(x *program.Executor, names []string, feeds *C.pf_tensor, n C.uint32_t, call *C.pfi_call, err *C.pf_error) C.pf_status {
	t, e := parse(feeds, n, false)
	if e != nil {
		return answer(e, err)
	}
	w.feeds = names
	for i := 0; e == nil && i < len(names); i++ {
		s := &t.Slots[i]
		if e = w.run.CheckFeed(i, names[i], s); e != nil {
			break
		}
		if _, bad := s.Measure(); bad != nil {
			e = pyfeed.SlotErrorf(pyfeed.Shape, i, "feed %q: %v", names[i], bad)
		} else if bad := s.CheckLoD(); bad != nil {
			e = pyfeed.SlotErrorf(pyfeed.Shape, i, "feed %q: %v", names[i], bad)
		}
	}
	if e == nil {
		e = t.Allocate(x.Pool())
	}
	if e != nil {
		t.Release()
		return answer(e, err)
	}
	return lendRoom(t, feeds, call, err)
}

//export pfgo_run_feed
func pfgo_run_feed(of *C.pfi_run, loan C.uint64_t, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, _ := runOf(of.id)
	l, _ := loans.get(uint64(loan))
	e := l.whole(uint64(loan))
	_, _ = takeBack(uint64(loan))
	if e == nil {
		e = w.run.Feed(w.feeds, l.tuple)
	} else {
		l.tuple.Release()
	}
	if e != nil {
		w.end(of)
	}
	return answer(e, err)
}

//export pfgo_run_step
func pfgo_run_step(of *C.pfi_run, call *C.pfi_call, fetched *C.pf_tuple, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	w, _ := runOf(of.id)
	if of.kernel != nil {
		of.kernel = nil
		if w.back != nil {
			w.back()
			w.back = nil
		}
		c := w.run.Call()
		c.Answer(w.kernelError(c, of.answer))
	}
	_, e := blockingWith(call, w.token, 0, func(ctx context.Context) (struct{}, error) { return struct{}{}, w.run.Resume(ctx) })
	switch e {
	case wait.ErrWouldBlock:
		return C.PFI_WOULD_BLOCK
	case program.ErrKernel:
		if e = w.show(of); e == nil {
			if trace.On() {
				w.back = trace.UseTrack(syscall.Gettid(), w.run.Track())
			}
			return C.PFI_KERNEL
		}
	case program.ErrYield:
		if !w.token.cancelled() {
			if w.looks != nil {
				w.looks.Reset(w.every)
			}
			return C.PFI_YIELD
		}
		e = w.run.Stopped(errStopped)
	case errTimeout, errStopped:
		e = w.run.Stopped(e)
	case nil:
		var t *pyfeed.Tuple
		if fetched != nil {
			if t, e = w.run.Fetch(); e == nil {
				e = lendOut(t, fetched)
			}
		}
	}
	w.end(of)
	return answer(e, err)
}

// show prepares the call of a foreign kernel.
func (w *running) show(of *C.pfi_run) error {
	c := w.run.Call()
	s, made := c.Shared.(*shown)
	if !made {
		var err error
		if s, err = newShown(c, uint64(of.id)); err != nil {
			return err
		}
		c.Shared = s
		w.shown = append(w.shown, s)
	}
	s.show(c)
	f := c.Kernel.Foreign.(*foreign)
	of.kernel, of.context, of.of = f.function, f.context, s.call
	return nil
}

func (w *running) end(of *C.pfi_run) {
	runs.remove(uint64(of.id))
	steps[of.id%64].CompareAndSwap(w, nil)
	of.id = 0
	if w.began != 0 {
		knownThread().RecordRun(w.began)
	}
	if w.looks != nil {
		w.looks.Stop()
	}
	w.token.forgetRun(w.run)
	w.run.End()
	for _, s := range w.shown {
		s.memory.Release()
	}
}
