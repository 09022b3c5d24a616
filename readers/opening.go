package readers

import (
	"context"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// aside is work in a goroutine, whose caller can give up.
type aside[T any] struct {
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

// begin does the work, as long as ctx goes on. What is how waits for it are named.
func (a *aside[T]) begin(what string, work func(ctx context.Context) (T, error), drop func(T)) {
	ctx, cancel := context.WithCancel(context.Background())
	a.cancel, a.drop = cancel, drop
	a.callers.Init(&a.mu)
	a.callers.Named(what, trace.Wait)
	wait.Go(func() { a.end(work(ctx)) }, func(fault error) {
		var none T
		a.end(none, pyfeed.Errorf(pyfeed.Fault, "a thread that %s: %v", what, fault))
	})
}

func (a *aside[T]) end(result T, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = true
	if a.stopped {
		if err == nil {
			a.drop(result)
		}
		return
	}
	a.result, a.err = result, err
	a.callers.All()
}

// wait is the result, once.
func (a *aside[T]) wait(ctx context.Context) (T, error) {
	return wait.Do(ctx, func(ctx context.Context) (none T, _ error) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if !a.done {
			return none, a.callers.Enter(ctx)
		}
		if a.err != nil {
			return none, a.err
		}
		a.taken = true
		return a.result, nil
	})
}

// Stop has it wait no longer.
func (a *aside[T]) Stop() {
	a.cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.done && !a.stopped && a.err == nil && !a.taken {
		a.drop(a.result)
	}
	a.stopped = true
}

// An Opening is an operator that takes long to make its reader: it looks through directories, or its first file has to say
// what its instances look like and is a pipe, for which it waits, or one in which it has to search.
type Opening struct{ aside[Reader] }

// Open runs an operator that [CreateNow] or [MakeNow] has found to have to wait.
func Open(scope *pyfeed.Scope, op string, attributes []byte) *Opening {
	o := new(Opening)
	o.begin("waits for a file to be opened", func(ctx context.Context) (Reader, error) {
		return operators[op].make(ctx, scope, nil, attributes)
	}, Reader.Close)
	return o
}

// Wait is the reader, once it is there, for one caller.
func (o *Opening) Wait(ctx context.Context) (Reader, error) { return o.wait(ctx) }

// A Listing is a search for files.
type Listing struct{ aside[[]string] }

// List is ListFiles in a goroutine.
func List(names []string, format string) *Listing {
	l := new(Listing)
	l.begin("looks for files", func(ctx context.Context) ([]string, error) { return ListFiles(ctx, names, format) }, func([]string) {})
	return l
}

// Wait is the files, once they are found.
func (l *Listing) Wait(ctx context.Context) ([]string, error) { return l.wait(ctx) }
