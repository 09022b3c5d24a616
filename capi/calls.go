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

// waiter is a C thread that waits, with the token that can end its wait, if any.
type waiter struct {
	parker *wait.Parker
	token  *cancelToken
	once   *wait.TryOnce // of a call that does not wait; else nil
}

var waiters table[waiter]

// blocking runs try for a C thread. Where it would block, the thread's Parker is left waiting and
// the answer is wait.ErrWouldBlock: the thread sleeps in C and comes again, with call.phase saying why.
// With any other answer the call is over. One that has waited and does not get here again is ended by C.
func blocking[T any](call *C.pfi_call, try func(context.Context) (T, error)) (v T, err error) {
	var track trace.Track
	if trace.On() {
		track = knownThread().Track()
	}
	var token *cancelToken
	if call.phase == C.PFI_FIRST && call.cancel != 0 {
		if token, err = lookup[*cancelToken](call.cancel); err != nil {
			return v, err
		}
	}
	if v, err = blockingWith(call, token, track, try); err != wait.ErrWouldBlock && call.waiter != 0 {
		end(call)
	}
	return v, err
}

// blockingWith is blocking with a token that was looked up before, which counts the first time only, in a call that may
// wait again after any answer: C ends it.
func blockingWith[T any](call *C.pfi_call, token *cancelToken, track trace.Track, try func(context.Context) (T, error)) (v T, err error) {
	w := waiter{token: token}
	if call.phase == C.PFI_FIRST {
		nonBlocking := wait.NonBlocking
		switch {
		case call.waits == 0:
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
	case call.phase == C.PFI_STOPPED, w.token.cancelled():
		return v, errStopped
	}
	if w.once != nil {
		w.once.Busy = false
		if v, err = try(w.once); err == wait.ErrWouldBlock {
			if !w.once.Busy {
				return v, errTimeout
			}
			wait.WakeThread((*uint32)(&call.word)) // C looks at signals, and comes again
		}
		return v, err
	}
	if track != 0 {
		w.parker.Track = track
	}
	v, err = try(w.parker)
	if err == nil {
		w.parker.Finish() // it got what it was woken for
	} else if err == wait.ErrWouldBlock && !w.token.watch(&call.word) {
		err = errStopped
	}
	return v, err
}

// end takes a call that has waited out of everything that could still wake it: its thread's
// stack is about to go. A wake-up it had no use for goes to the next.
func end(call *C.pfi_call) {
	if w, ok := waiters.remove(uint64(call.waiter)); ok {
		w.token.forget(&call.word)
		w.parker.Leave()
	}
	call.waiter = 0
}

//export pfgo_call_end
func pfgo_call_end(call *C.pfi_call) {
	defer guard(nil, nil)
	end(call)
}

// A cancelToken ends waits. A nil one never does.
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

// watch has cancel wake the thread that sleeps on word; false if it is cancelled already.
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

func (t *cancelToken) forget(word *C.uint32_t) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.words, word)
}

// watchRun has cancel interrupt a run that works.
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

func (t *cancelToken) forgetRun(r *program.Run) {
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

//export pfgo_cancel_new
func pfgo_cancel_new(out *C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	*out = give(new(cancelToken))
	return C.PF_OK
}

//export pfgo_cancel
func pfgo_cancel(h C.pf_handle, err *C.pf_error) (st C.pf_status) {
	defer guard(&st, err)
	t, e := lookup[*cancelToken](h)
	if e == nil {
		t.cancel()
	}
	return answer(e, err)
}

// table maps ids to what they stand for. An id is never used twice: a stale one finds nothing. It
// does for what has one owner, and often, what gopy's table does for what is counted.
type table[T any] struct {
	mu    sync.Mutex
	rows  []row[T]
	spare []uint32
	n     int
}

type row[T any] struct {
	value      T
	generation uint32 // odd while in use
}

func (t *table[T]) put(v T) uint64 {
	t.mu.Lock()
	if len(t.spare) == 0 {
		t.rows = append(t.rows, row[T]{})
		t.spare = append(t.spare, uint32(len(t.rows)-1))
	}
	at := t.spare[len(t.spare)-1]
	t.spare = t.spare[:len(t.spare)-1]
	r := &t.rows[at]
	r.value = v
	r.generation++
	t.n++
	id := uint64(r.generation)<<32 | uint64(at)
	t.mu.Unlock()
	return id
}

func (t *table[T]) find(id uint64) *row[T] {
	at := id & (1<<32 - 1)
	if at >= uint64(len(t.rows)) || t.rows[at].generation != uint32(id>>32) || t.rows[at].generation%2 == 0 {
		return nil
	}
	return &t.rows[at]
}

func (t *table[T]) get(id uint64) (v T, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.find(id); r != nil {
		return r.value, true
	}
	return v, false
}

// remove takes the row out and answers what was in it.
func (t *table[T]) remove(id uint64) (v T, ok bool) {
	t.mu.Lock()
	r := t.find(id)
	if ok = r != nil; ok {
		var none T
		v, r.value = r.value, none
		r.generation++
		t.spare = append(t.spare, uint32(id))
		t.n--
	}
	t.mu.Unlock()
	return v, ok
}

func (t *table[T]) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}
