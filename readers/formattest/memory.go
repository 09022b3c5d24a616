package formattest

import (
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Balance notes what memory is in use. What it answers fails a test in which that is not the same any more: for tests,
// and runs of fuzzers, that share a pool.
func Balance(t testing.TB) func() {
	before := memory.Count()
	return func() {
		t.Helper()
		after := memory.Count()
		if before.Idle = after.Idle; after != before {
			t.Errorf("memory: expected %+v, found %+v", before, after)
		}
	}
}

// pooled is what Balance and a pool of its own come to.
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

// Pooled gives f a pool, which MUST have all of its memory back when f is done.
func Pooled(t testing.TB, f func(pool *memory.Pool)) {
	t.Helper()
	pool, end := pooled(t)
	f(pool)
	end()
}

var pools struct {
	mu  sync.Mutex
	all map[testing.TB]*memory.Pool
}

// Pool is the test's, which MUST have all of its memory back at its end.
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
