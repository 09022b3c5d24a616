// Package async runs work in a goroutine whose caller can give up.
package async

import (
	"context"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Task is work in a goroutine, whose caller can give up.
type Task[T any] struct {
	cancel context.CancelFunc
	drop   func(T) // of a result that was not waited for

	mu      sync.Mutex
	callers wait.List
	result  T
	err     error
	done    bool // one of the two is there
	taken   bool // the result
	stopped bool
}

// Start does the work, as long as ctx goes on. Waits for it are named so in traces. drop releases a result that was not waited
// for.
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
	t.callers.All()
}

// Wait is the result, once.
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

// Stop has the work end.
func (t *Task[T]) Stop() {
	t.cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.done && !t.stopped && t.err == nil && !t.taken {
		t.drop(t.result)
	}
	t.stopped = true
}
