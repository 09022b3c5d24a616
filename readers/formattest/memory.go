package formattest

import (
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// CheckLeaks notes how much memory is in use. The function that it returns fails the test if more or less is in use
// then. It is for tests, and runs of fuzzers, that share a pool.
func CheckLeaks(t testing.TB) func() {
	before := memory.Count()
	return func() {
		t.Helper()
		after := memory.Count()
		if before.Idle = after.Idle; after != before {
			t.Errorf("memory: expected %+v, found %+v", before, after)
		}
	}
}

// pooled returns a new pool. end closes the pool and fails the test if memory is not released.
func pooled(t testing.TB) (pool *memory.Pool, end func()) {
	before := memory.Count()
	pool = memory.NewPool(memory.File)
	return pool, func() {
		t.Helper()
		pool.Close()
		if after := memory.Count(); after != before {
			t.Errorf("memory: expected %+v, found %+v", before, after)
		}
	}
}

// WithPool calls f with a new pool, and fails the test if f does not release all memory of the pool.
func WithPool(t testing.TB, f func(pool *memory.Pool)) {
	t.Helper()
	pool, end := pooled(t)
	f(pool)
	end()
}

var pools struct {
	mu  sync.Mutex
	all map[testing.TB]*memory.Pool
}

// Pool returns the pool of the test. The test fails if it does not release all memory of the pool.
func Pool(t testing.TB) *memory.Pool {
	t.Helper()
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if pool := pools.all[t]; pool != nil {
		return pool
	}
	pool, end := pooled(t)
	if pools.all == nil {
		pools.all = make(map[testing.TB]*memory.Pool)
	}
	pools.all[t] = pool
	t.Cleanup(func() {
		pools.mu.Lock()
		delete(pools.all, t)
		pools.mu.Unlock()
		end()
	})
	return pool
}
