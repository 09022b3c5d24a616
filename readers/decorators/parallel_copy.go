package decorators

import (
	"cmp"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// One core cannot use the whole memory bandwidth, but waking another takes as long as copying some tens of KiB. The
// constants were measured with two cores (docs/performance.md, "Large batches"); more than two copiers were not
// measured.
const (
	maxCopiers = 4
	maxPieces  = 64
	copyPiece  = 256 << 10 // smallest size of a piece in bytes; one thread copies a batch of less than two pieces
)

var copiers = min(runtime.NumCPU(), maxCopiers)

// parallelCopy copies the n parts of a batch with calls of work(first, end), which copies the parts first to end-1. It
// makes one call for all parts, or, for large batches, calls on several threads. Each thread takes the next piece when
// it is done with one, so no piece waits for a thread that has no core. The error is that of the first part that
// failed.
func parallelCopy(n, bytes int, work func(first, end int) error) error {
	pieces := min(n, bytes/copyPiece, maxPieces)
	if worthSharing := copiers > 1 && pieces > 1; !worthSharing {
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
