package main

// #include "internal.h"
import "C"

import (
	"context"
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/program"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// A waiter is a C thread that waits. Its token can end the wait, and may be nil.
type waiter struct {
	parker *wait.Parker
	token  *cancelToken
	once   *wait.TryOnce // of a call with a timeout of 0; else nil
}

var waiters table[waiter]

// blocking runs try for a C thread. If try would block, it leaves the thread's Parker in the wait list and returns
// wait.ErrWouldBlock. The thread then sleeps in C and calls again, with the reason in call.phase. Any other result ends
// the call. If C does not call again, it ends the call with pfgo_call_end.
func blocking[T any](call *C.pfi_call, try func(context.Context) (T, error)) (v T, err error) {
	var track trace.Track
	if trace.On() {
		track = callerThread().Track()
	}
	var token *cancelToken
	if call.phase == C.PFI_FIRST && call.cancel != 0 {
		if token, err = lookup[*cancelToken](call.cancel); err != nil {
			return v, err
		}
	}
	if v, err = blockingWithToken(call, token, track, try); err != wait.ErrWouldBlock && call.waiter != 0 {
		endCall(call)
	}
	return v, err
}

// blockingWithToken is blocking with a token that the caller has looked up. It is for a call that may wait again after
// any result, so C ends the call. The token is only used in the first phase.
func blockingWithToken[T any](call *C.pfi_call, token *cancelToken, track trace.Track, try func(context.Context) (T, error)) (v T, err error) {
	w := waiter{token: token}
	if call.phase == C.PFI_FIRST {
		nonBlocking := wait.NonBlocking
		switch {
		case call.may_wait == 0:
			w.once = &wait.TryOnce{Context: nonBlocking, Track: track}
			nonBlocking = w.once
		case track != 0:
			nonBlocking = (&wait.Traced{Context: nonBlocking, Track: track}).NonBlocking()
		}
		if v, err = try(nonBlocking); err != wait.ErrWouldBlock {
			return v, err
		}
		if w.once != nil && !w.once.Busy {
			return v, errTimeout
		}
		w.parker = wait.NewFutexParker((*uint32)(&call.word))
		call.waiter = C.uint64_t(waiters.put(w))
	} else {
		w, _ = waiters.get(uint64(call.waiter))
	}
	switch {
	case call.phase == C.PFI_TIMED_OUT:
		return v, errTimeout
	case call.phase == C.PFI_CANCELLED, w.token.cancelled():
		return v, errCancelled
	}
	if w.once != nil {
		w.once.Busy = false
		if v, err = try(w.once); err == wait.ErrWouldBlock {
			if !w.once.Busy {
				return v, errTimeout
			}
			wait.WakeThread((*uint32)(&call.word)) // so that C polls and calls again
		}
		return v, err
	}
	if track != 0 {
		w.parker.Track = track
	}
	v, err = try(w.parker)
	if err == nil {
		w.parker.Finish() // the call has used its wake-up
	} else if err == wait.ErrWouldBlock && !w.token.watch(&call.word) {
		err = errCancelled
	}
	return v, err
}

// endCall removes a call that has waited from every list that could still wake it, because the futex word lies on the
// stack of its thread. A wake-up that the call did not use goes to the next waiter.
func endCall(call *C.pfi_call) {
	if w, ok := waiters.remove(uint64(call.waiter)); ok {
		w.token.unwatch(&call.word)
		w.parker.Leave()
	}
	call.waiter = 0
}

//export pfgo_call_end
func pfgo_call_end(call *C.pfi_call) {
	defer guard(nil, nil)
	endCall(call)
}

// A cancelToken ends waits. A nil token never does.
type cancelToken struct {
	mu    sync.Mutex
	done  bool
	words map[*C.uint32_t]struct{}
	runs  map[*program.Run]struct{}
}

func (t *cancelToken) Drop() {}

func (t *cancelToken) cancelled() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done
}

// watch makes cancel wake the thread that sleeps on word. It returns false if the token is cancelled already.
func (t *cancelToken) watch(word *C.uint32_t) bool {
	if t == nil {
		return true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.done {
		if t.words == nil {
			t.words = make(map[*C.uint32_t]struct{})
		}
		t.words[word] = struct{}{}
	}
	return !t.done
}

func (t *cancelToken) unwatch(word *C.uint32_t) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.words, word)
}

// watchRun makes cancel interrupt a run that computes.
func (t *cancelToken) watchRun(r *program.Run) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = make(map[*program.Run]struct{})
	}
	t.runs[r] = struct{}{}
	if t.done {
		r.Yield()
	}
}

func (t *cancelToken) unwatchRun(r *program.Run) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.runs, r)
}

func (t *cancelToken) cancel() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	for r := range t.runs {
		r.Yield()
	}
	for word := range t.words {
		wait.WakeThread((*uint32)(unsafe.Pointer(word)))
	}
}

//export pfgo_cancel_token_create
func pfgo_cancel_token_create(out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	*out = newHandle(new(cancelToken))
	return C.PF_OK
}

//export pfgo_cancel_token_cancel
func pfgo_cancel_token_cancel(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	t, e := lookup[*cancelToken](h)
	if e == nil {
		t.cancel()
	}
	return setError(e, err)
}
