package readers

import (
	"context"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// An Opening is an operator whose first file has to say what its instances look like, and takes long to do so: a pipe, for
// which it waits, or a file in which it has to search. That is done in a goroutine, so that the caller can give up.
type Opening struct {
	cancel context.CancelFunc

	mu      sync.Mutex
	callers wait.List
	reader  Reader
	err     error
	done    bool // one of the two is there
	stopped bool
}

// Open runs an operator that [CreateNow] or [MakeNow] has found to have to wait.
func Open(scope *pyfeed.Scope, op string, attributes []byte) *Opening {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Opening{cancel: cancel}
	o.callers.Init(&o.mu)
	o.callers.Named("waits for a file to be opened", trace.Wait)
	wait.Go(func() { o.end(operators[op].make(ctx, scope, nil, attributes)) }, func(fault error) {
		o.end(nil, pyfeed.Errorf(pyfeed.Fault, "a thread that opens a file: %v", fault))
	})
	return o
}

func (o *Opening) end(r Reader, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
	if o.stopped {
		if r != nil {
			r.Close()
		}
		return
	}
	o.reader, o.err = r, err
	o.callers.All()
}

// Wait is the reader, once it is there, for one caller.
func (o *Opening) Wait(ctx context.Context) (Reader, error) {
	return wait.Do(ctx, func(ctx context.Context) (Reader, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.done {
			return nil, o.callers.Enter(ctx)
		}
		r := o.reader
		o.reader = nil
		return r, o.err
	})
}

// Stop has it wait no longer. A reader that nobody has waited for is closed.
func (o *Opening) Stop() {
	o.cancel()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	if o.reader != nil {
		o.reader.Close()
		o.reader = nil
	}
}
