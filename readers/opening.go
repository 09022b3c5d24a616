package readers

import (
	"context"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// An Opening is an operator whose first file is a pipe that has to say what its instances look like. It waits in a
// goroutine for what somebody will write, so that the one who called for the reader can give up.
type Opening struct {
	scope  *pyfeed.Scope
	out    string
	cancel context.CancelFunc

	mu      sync.Mutex
	callers wait.List
	reader  Reader
	err     error
	done    bool // one of the two is there
	stopped bool
}

// Open runs an operator that [CreateNow] has found to have to wait.
func Open(scope *pyfeed.Scope, op, out string, attributes []byte) *Opening {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Opening{scope: scope, out: out, cancel: cancel}
	o.callers.Init(&o.mu)
	o.callers.Named("waits for a pipe", trace.Wait)
	wait.Go(func() { o.end(operators[op].make(ctx, scope, nil, attributes)) }, func(fault error) {
		o.end(nil, pyfeed.Errorf(pyfeed.Fault, "a thread that opens a pipe: %v", fault))
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

// Wait puts the reader into its variable, once it is there.
func (o *Opening) Wait(ctx context.Context) error {
	_, err := wait.Do(ctx, func(ctx context.Context) (struct{}, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if !o.done {
			return struct{}{}, o.callers.Enter(ctx)
		}
		r := o.reader
		o.reader = nil
		if o.err != nil {
			return struct{}{}, o.err
		}
		return struct{}{}, put(o.scope, o.out, r)
	})
	return err
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
