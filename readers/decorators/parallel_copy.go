package decorators

import (
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// One core cannot use all of memory's bandwidth. To have another help takes as long as to copy some tens of KiB.
const (
	maxCopiers = 4
	maxPieces  = 64
	copyPiece  = 256 << 10 // at least, of which a batch that is shared has two
)

var copiers = min(runtime.NumCPU(), maxCopiers)

// parallelCopy has work done for n parts of a batch, which is given the first and the end of those it is to copy: all at once, or
// in pieces by several threads, if they are so many bytes that it pays. Each thread takes the next piece, so that nobody
// waits for one that has no core to run on. The error is that of the first part that has one.
func parallelCopy(n, bytes int, work func(first, end int) error) error {
	pieces := min(n, bytes/copyPiece, maxPieces)
	if copiers < 2 || pieces < 2 {
		return work(0, n)
	}
	failures := make([]error, pieces)
	var taken atomic.Int64
	var left sync.WaitGroup
	left.Add(pieces)
	copier := func() (run func(), failed func(fault error)) {
		take := func() int { return int(taken.Add(1)) - 1 }
		i := 0
		run = func() {
			for i = take(); i < pieces; i = take() {
				failures[i] = work(n*i/pieces, n*(i+1)/pieces)
				left.Done()
			}
		}
		failed = func(fault error) {
			failures[i] = pyfeed.Errorf(pyfeed.Fault, "a thread that copies: %v", fault)
			left.Done()
			for take() < pieces {
				left.Done()
			}
		}
		return run, failed
	}
	for range min(copiers, pieces) - 1 {
		wait.Go(copier())
	}
	wait.Recovered(copier())
	left.Wait()
	return cmp.Or(failures...)
}
