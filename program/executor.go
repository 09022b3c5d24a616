package program

import (
	"context"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// An Executor runs programs at a place. It may be used by several threads, for any number of programs, at the same
// time.
type Executor struct {
	place      pyfeed.Place
	pool       *memory.Pool
	stream     pyfeed.Stream // stream of the executor's kernels if the place is a device; else nil
	references atomic.Int32  // of the owner and of runs
}

// NewExecutor makes an Executor with one reference. The caller must Drop it.
func NewExecutor(place pyfeed.Place) (*Executor, error) {
	e := &Executor{place: place}
	if place.Kind == pyfeed.CUDA {
		b, err := pyfeed.BackendOf(place)
		if err != nil {
			return nil, err
		}
		if e.stream, err = b.NewStream(place); err != nil {
			return nil, err
		}
	} else if err := place.Check(); err != nil {
		return nil, err
	}
	e.pool = memory.NewPool(memory.Batch)
	e.references.Store(1)
	return e, nil
}

// Drop frees the memory that the Executor keeps for reuse. Runs in progress continue.
func (e *Executor) Drop() {
	e.pool.Close()
	e.release()
}

// release releases a reference. The last one closes the stream.
func (e *Executor) release() {
	if e.references.Add(-1) == 0 && e.stream != nil {
		e.stream.Close()
	}
}

// Stream returns the number of the stream on which kernels compute; 0 on the host.
func (e *Executor) Stream() uint64 {
	if e.stream == nil {
		return 0
	}
	return e.stream.Number()
}

// Pool returns the memory pool of the tensors that operators make.
func (e *Executor) Pool() *memory.Pool { return e.pool }

// Begin prepares a run of a program in a scope. The caller MUST call End of the Run.
func (e *Executor) Begin(p *Program, scope *pyfeed.Scope, fetches []string) (*Run, error) {
	made, err := p.planned()
	if err != nil {
		return nil, err
	}
	r := made.take()
	r.pool, r.place, r.executor = e.pool, e.place, e
	e.references.Add(1)
	if err := r.bind(scope, fetches); err != nil {
		r.End()
		return nil, err
	}
	return r, nil
}

// Run runs a program to its end. All its kernels MUST be Go kernels. Run takes ownership of feeds, which may be nil,
// and moves its slots to the variables listed in names. The caller owns the returned tuple of fetched tensors. If ctx
// ends first, Run returns ctx's cause.
func (e *Executor) Run(ctx context.Context, p *Program, scope *pyfeed.Scope, names []string, feeds *pyfeed.Tuple, fetches []string) (*pyfeed.Tuple, error) {
	r, err := e.Begin(p, scope, fetches)
	if err != nil {
		if feeds != nil {
			feeds.Release()
		}
		return nil, err
	}
	defer r.End()
	if feeds == nil {
		feeds = pyfeed.NewTuple(0)
	}
	if err := r.Feed(names, feeds); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, r.Yield)()
	for {
		_, err := wait.Do(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, r.Resume(ctx) })
		switch {
		case err == nil:
			return r.Fetch()
		case ctx.Err() != nil && (err == ErrYield || err == context.Cause(ctx)):
			return nil, r.Stopped(context.Cause(ctx))
		case err == ErrKernel:
			return nil, r.Stopped(pyfeed.Errorf(pyfeed.Unsupported, "kernel %q is not a Go kernel: run the program through the C library", r.Call().Kernel.Name))
		case err != ErrYield:
			return nil, err
		}
	}
}
