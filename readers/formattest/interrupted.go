package formattest

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Interrupted reads a file of data repeatedly. Each read is interrupted once: at its first poll, at its second, and so
// on until the file has no more polls. Every read MUST return the same instances and errors. Interrupted returns the
// number of polls.
func (f Format) Interrupted(t *testing.T, data []byte, c record.Config) (looks int) {
	t.Helper()
	every := storage.PollEvery
	storage.PollEvery = 32 << 10
	defer func() { storage.PollEvery = every }()
	paths := map[string]string{"map": File(t, "a"+f.Suffix, data), "gzip": File(t, "a"+f.Suffix+".gz", Gzip(data))}
	if f.NotCompressed {
		delete(paths, "gzip")
	}
	for way, path := range paths {
		_, want := f.readInterrupted(t, path, c, 0)
		for at := 1; ; at++ {
			n, got := f.readInterrupted(t, path, c, at)
			if n < at {
				looks += n
				break
			}
			if len(got) != len(want) {
				t.Fatalf("%s, interrupted at poll %d: expected %d instances and errors, found %d:\n%.1000q\n%.1000q", way, at, len(want), len(got), want, got)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s, interrupted at poll %d: instance or error %d: expected %.300q, found %.300q", way, at, i, want[i], got[i])
				}
			}
		}
	}
	return looks
}

// summarize formats the dtypes, dims and checksums of the slots of a tuple.
func summarize(t *pyfeed.Tuple) (all string) {
	for i := range t.Slots {
		s := &t.Slots[i]
		all += fmt.Sprintf("%v %v %x ", s.DType, s.Dims(), crc32.ChecksumIEEE(s.Data))
	}
	return all
}

// readInterrupted returns what is read from a file whose read is interrupted at poll number at, and the number of
// polls.
func (f Format) readInterrupted(t *testing.T, path string, c record.Config, at int) (looks int, all []string) {
	t.Helper()
	WithPool(t, func(pool *memory.Pool) {
		c.Pool = pool
		stop := new(storage.Interrupt)
		stop.SetLimit(func() bool {
			looks++
			return looks == at
		})
		c.Storage.Interrupt = stop
		r, err := f.Open(path, &c)
		if err == storage.ErrInterrupted {
			r, err = f.Open(path, &c)
		}
		if err != nil {
			all = append(all, err.Error())
			return
		}
		defer r.Close()
		out := make([]*pyfeed.Tuple, 4)
		for {
			pyfeed.NewTuples(out, 1)
			n, err := r.Read(out)
			for _, tuple := range out[:n] {
				all = append(all, summarize(tuple))
			}
			pyfeed.ReleaseAll(out)
			if err == nil || err == storage.ErrInterrupted {
				continue
			}
			var end bool
			if all, end = behind(r, err, all); end {
				return
			}
		}
	})
	return looks, all
}
