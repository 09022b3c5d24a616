package formattest

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Interrupted reads a file of data over and over, and interrupts it once: at its first look, at its second, and so on, until
// there are no more. Each time the same instances and errors come. An interruption by Now MUST end it at once. It answers
// how many looks there were.
func (f Format) Interrupted(t *testing.T, data []byte, c record.Config) (looks int) {
	t.Helper()
	every := storage.LookEvery
	storage.LookEvery = 32 << 10
	defer func() { storage.LookEvery = every }()
	paths := map[string]string{"map": File(t, "a"+f.Suffix, data), "gzip": File(t, "a"+f.Suffix+".gz", Gzip(data))}
	for way, path := range paths {
		_, want := f.told(t, path, c, 0)
		for at := 1; ; at++ {
			n, got := f.told(t, path, c, at)
			if n < at {
				looks += n
				break
			}
			if len(got) != len(want) {
				t.Fatalf("%s, interrupted at look %d: expected %d instances and errors, found %d:\n%.1000q\n%.1000q", way, at, len(want), len(got), want, got)
			}
			for i := range got {
				if got[i] != want[i] {
					t.Fatalf("%s, interrupted at look %d: instance or error %d: expected %.300q, found %.300q", way, at, i, want[i], got[i])
				}
			}
		}
	}
	return looks
}

// brief is what there is to tell of a tuple.
func brief(t *pyfeed.Tuple) (all string) {
	for i := range t.Slots {
		s := &t.Slots[i]
		all += fmt.Sprintf("%v %v %x ", s.DType, s.Dims(), crc32.ChecksumIEEE(s.Data))
	}
	return all
}

// told is what is read of a file that is interrupted at a look, and how many looks there were.
func (f Format) told(t *testing.T, path string, c record.Config, at int) (looks int, all []string) {
	t.Helper()
	Pooled(t, func(pool *memory.Pool) {
		c.Pool = pool
		stop := new(storage.Interrupt)
		stop.Limit(func() bool {
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
				all = append(all, brief(tuple))
			}
			pyfeed.ReleaseAll(out)
			if err == nil || err == storage.ErrInterrupted {
				continue
			}
			if err == io.EOF {
				return
			}
			all = append(all, err.Error())
			var e *pyfeed.Error
			if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt {
				return
			}
			for err = storage.ErrInterrupted; err == storage.ErrInterrupted; {
				err = r.Resync()
			}
			if err != nil {
				all = append(all, "behind: "+err.Error())
				return
			}
		}
	})
	return looks, all
}
