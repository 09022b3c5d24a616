// Package async runs work in a goroutine whose caller can give up.
package async

import (
	"context"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Task is work in a goroutine. Its caller can stop waiting for it.
type Task[T any] struct {
	cancel context.CancelFunc
	drop   func(T) // releases a result that no caller has taken

	mu      sync.Mutex
	callers wait.List
	result  T
	err     error
	done    bool // result or err is set
	taken   bool // a caller has taken the result
	stopped bool
}

// Start runs work in a goroutine; Stop cancels its ctx. what names the waits for it in traces. drop releases a result
// that no caller has taken.
func (t *Task[T]) Start(what string, work func(ctx context.Context) (T, error), drop func(T)) {
	ctx, cancel := context.WithCancel(context.Background())
	t.cancel, t.drop = cancel, drop
	t.callers.Init(&t.mu)
	t.callers.Named(what, trace.Wait)
	wait.Go(func() { t.end(work(ctx)) }, func(fault error) {
		var none T
		t.end(none, pyfeed.Errorf(pyfeed.Fault, "a thread that %s: %v", what, fault))
	})
}

func (t *Task[T]) end(result T, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done = true
	if t.stopped {
		if err == nil {
			t.drop(result)
		}
		return
	}
	t.result, t.err = result, err
	t.callers.WakeAll()
}

// Wait waits for the end of the work and returns its result, which one caller may take.
func (t *Task[T]) Wait(ctx context.Context) (T, error) {
	return wait.Do(ctx, func(ctx context.Context) (none T, _ error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		if !t.done {
			return none, t.callers.Enter(ctx)
		}
		if t.err != nil {
			return none, t.err
		}
		t.taken = true
		return t.result, nil
	})
}

// Stop cancels the work and drops its result.
func (t *Task[T]) Stop() {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done && !t.stopped && t.err == nil && !t.taken {
		t.drop(t.result)
	}
	t.stopped = true
}
