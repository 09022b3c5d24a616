package npz

import (
	"archive/zip"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Reading the directory, and inflating, checking or converting a member, can be interrupted at any poll. The next call
// continues.
func TestInterrupted(t *testing.T) {
	for _, method := range []uint16{zip.Store, zip.Deflate} {
		data := archive(t, method, matrix("a", 5, 5_000, false, false), matrix("b", 5, 5_000, true, false), matrix("c", 5, 5_000, false, true))
		if n := tested.Interrupted(t, data, record.Config{}); n < 15 {
			t.Errorf("found %d polls", n)
		}
	}
}

// A compressed file of a few MB can hold gigabytes, which would all be in memory.
func TestTooMuchWithinCompression(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		looks := 0
		stop := new(storage.Interrupt)
		stop.SetLimit(func() bool {
			looks++
			return looks == 100
		})
		r, err := Open(formattest.File(t, "a.npz.gz", formattest.Gzip(append([]byte("PK\x03\x04"), make([]byte, 16<<20)...))),
			&record.Config{Pool: pool, Storage: storage.Options{Interrupt: stop}})
		if r != nil || err != storage.ErrInterrupted {
			t.Errorf("found %v", err)
		}
		limit := maxInflated
		defer func() { maxInflated = limit }()
		whole := archive(t, zip.Store, matrix("a", 5, 120_000, false, false))
		for _, maxInflated = range []int{len(whole) - 1, len(whole)} {
			r, err := Open(formattest.File(t, "a.npz.gz", formattest.Gzip(whole)), &record.Config{Pool: pool})
			if large := maxInflated < len(whole); large != (formattest.Kind(err) == pyfeed.Unsupported) || large != (r == nil) {
				t.Errorf("%d of %d bytes: found %v", maxInflated, len(whole), err)
			}
			if r != nil {
				r.Close()
			}
		}
		if r, err = Open("/dev/zero", &record.Config{Pool: pool}); r != nil || formattest.Kind(err) != pyfeed.Corrupt {
			t.Errorf("found %v", err)
		}
	})
}
