package formattest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// place is a position that Records gave, and how many instances and errors they had returned before.
type place struct {
	record.Position
	before int
	number int64
	exact  bool
}

// Seeks reads a file of data, and notes every position. Other Records of the file MUST go on from each with the same
// instances and errors, whether or not they describe the file before, and if each Seek is interrupted at every poll. The
// file is mapped, read in blocks, or compressed, for some positions each. The same Records, if they are not of a compressed
// file, MUST also go to each position from any other. Positions that no file has are also tried: they
// MUST be an error, or lead to an end. Seeks returns the number of positions.
func (f Format) Seeks(t *testing.T, data []byte, c record.Config) int {
	t.Helper()
	every := storage.PollEvery
	storage.PollEvery = 32 << 10
	defer func() { storage.PollEvery = every }()
	ways := []struct{ path, io string }{
		{File(t, "a"+f.Suffix, data), "map"}, {File(t, "b"+f.Suffix, data), "read"}, {File(t, "c"+f.Suffix+".gz", Gzip(data)), ""},
	}
	if f.NotCompressed {
		ways = ways[:2]
	}
	var places []place
	WithPool(t, func(pool *memory.Pool) {
		c.Pool = pool
		var expected [3][]string
		for w, way := range ways {
			c.Storage.IO = way.io
			all, noted := f.places(t, way.path, c)
			if expected[w] = all; w == 0 {
				places = noted
			}
		}
		for i, p := range places {
			for w, way := range ways {
				c.Storage.IO = way.io
				for _, describes := range []bool{false, true} {
					found := f.rest(t, way.path, c, p, describes)
					if fmt.Sprint(found) != fmt.Sprint(expected[w][p.before:]) {
						t.Fatalf("%s: position %d, %+v: expected\n%.1000q\nfound\n%.1000q", way.path, i, p, expected[w][p.before:], found)
					}
				}
			}
		}
		for w, way := range ways[:2] { // not the compressed one
			c.Storage.IO = way.io
			f.jumps(t, way.path, c, places, expected[w])
		}
		for _, offset := range []int64{-1, 0, 1, 511, 512, int64(len(data)) - 1, int64(len(data)), int64(len(data)) + 1, 1 << 40, math.MaxInt64, math.MinInt64} {
			for _, inner := range []int64{-1, 0, 1, 7, 1 << 33, math.MaxInt64} {
				for _, way := range ways {
					c.Storage.IO = way.io
					f.rest(t, way.path, c, place{Position: record.Position{Offset: offset, Inner: inner}, exact: true}, false)
				}
			}
		}
	})
	return len(places)
}

// jumps goes to each position in turn with the same Records, in a scattered order, and reads what is there.
func (f Format) jumps(t *testing.T, path string, c record.Config, places []place, expected []string) {
	t.Helper()
	r, err := f.Open(path, &c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := make([]*pyfeed.Tuple, 1)
	for i := range 2 * len(places) {
		p := places[(i*i+i/2)%len(places)]
		if err := r.(record.Seeker).Seek(p.Position, p.number, p.exact); err != nil {
			t.Fatalf("%s: jump %d to %+v: %v", path, i, p, err)
		}
		pyfeed.NewTuples(out, 1)
		found := "the end"
		switch n, err := r.Read(out); {
		case n > 0:
			found = summarize(out[0])
		case err != io.EOF:
			found = err.Error()
		}
		pyfeed.ReleaseAll(out)
		want := "the end"
		if p.before < len(expected) {
			want = expected[p.before]
		}
		if found != want {
			t.Fatalf("%s: jump %d to %+v: expected\n%.1000q\nfound\n%.1000q", path, i, p, want, found)
		}
	}
}

// places reads a file with Read and ReadBlock in turn, and returns what is read, and all positions.
func (f Format) places(t *testing.T, path string, c record.Config) (all []string, places []place) {
	r, err := f.Open(path, &c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, can := r.(record.Seeker)
	if !can {
		t.Fatalf("expected Records with positions, found %T", r)
	}
	at := place{exact: true}
	see := func() {
		if p, known := s.Position(); known {
			at.Position, at.before = p, len(all)
			places = append(places, at)
		}
	}
	out := make([]*pyfeed.Tuple, 3)
	for calls := 0; ; calls++ {
		see()
		read := Read
		if calls%3 == 1 {
			read = ReadBlock
		}
		pyfeed.NewTuples(out, 1)
		n, err := read(r, out)
		for _, tuple := range out[:n] {
			all = append(all, summarize(tuple))
		}
		pyfeed.ReleaseAll(out)
		at.number += int64(n)
		if err == nil {
			continue
		}
		var end bool
		if all, end = behind(r, err, all); end {
			return all, places
		}
		at.number++
		at.exact = false
		if numberer, can := r.(record.Numberer); can {
			at.number, at.exact = numberer.Number()
		}
	}
}

// behind adds an error of Read to what was read, and skips the damage. It returns true if nothing can follow.
func behind(r record.Records, err error, all []string) ([]string, bool) {
	if err == io.EOF {
		return all, true
	}
	all = append(all, err.Error())
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt {
		return all, true
	}
	for err = storage.ErrInterrupted; err == storage.ErrInterrupted; {
		err = r.Resync()
	}
	if err != nil && err != io.EOF {
		all = append(all, "behind: "+err.Error())
	}
	return all, err != nil
}

// rest returns what is read from a position on. Seek is interrupted at its first poll, then at its second, and so on.
func (f Format) rest(t *testing.T, path string, c record.Config, p place, describes bool) (all []string) {
	t.Helper()
	stop, polls, at := new(storage.Interrupt), 0, 0
	stop.SetLimit(func() bool { polls++; return polls == at })
	c.Storage.Interrupt = stop
	r, err := f.Open(path, &c)
	if err != nil {
		return []string{err.Error()}
	}
	defer r.Close()
	if d, can := r.(record.Describer); can && describes {
		_, _, _ = d.Describe() // an error is also that of Read
	}
	for tries := 0; ; tries++ {
		at, polls = tries+1, 0
		err := r.(record.Seeker).Seek(p.Position, p.number, p.exact)
		if err == nil {
			break
		}
		if err != storage.ErrInterrupted {
			return []string{err.Error()}
		}
		if tries > 10_000 {
			t.Fatalf("%s: seek to %+v: no end", path, p)
		}
	}
	at = 0
	out := make([]*pyfeed.Tuple, 4)
	for {
		pyfeed.NewTuples(out, 1)
		n, err := r.Read(out)
		for _, tuple := range out[:n] {
			all = append(all, summarize(tuple))
		}
		pyfeed.ReleaseAll(out)
		if err == nil {
			continue
		}
		var end bool
		if all, end = behind(r, err, all); end {
			return all
		}
	}
}
