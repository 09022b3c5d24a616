package readers

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// shortFiles is a reader of files of so many ids each. What is done before a file is opened is told its number.
func shortFiles(t *testing.T, before func(m *MultipleReader, i int), threads, width int, counts ...int) (*ReaderHolder, *MultipleReader) {
	t.Helper()
	names, _ := writeIDs(t, counts...)
	h := create(t, counted(t), "open_files", "files", nil, openIDs(names, fmt.Sprintf(`, "thread_num": %d, "interleave": %d`, threads, width)))
	m := h.reader.(*MultipleReader)
	format := *m.sources[0].format
	open := format.Open
	format.Open = func(path string, c *Config) (Records, error) {
		before(m, slices.Index(names, path))
		return open(path, c)
	}
	for i := range m.sources {
		m.sources[i].format = &format
	}
	return h, m
}

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

func firstIDs(t *testing.T, h *ReaderHolder, room int) (all []int64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // forever, to those who wait
	defer cancel()
	out := make([]*pyfeed.Tuple, room)
	n, err := h.ReadMany(ctx, out)
	for _, tuple := range out[:n] {
		some, err := found(tuple)
		if err != nil {
			t.Error(err)
		}
		all = append(all, some...)
		tuple.Release()
	}
	return all, err
}

// onceWaiting is called by a thread that reads: it goes on when a consumer waits, to whom what comes next comes soon.
func onceWaiting(m *MultipleReader, reminded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.consumers.Len() == 0 {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	m.since = math.MaxInt64 / 2
	m.armed = m.armed || !reminded
}

// asleep waits until all threads do.
func asleep(m *MultipleReader) (opened int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.sleeping < m.running {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	return m.next
}

// settled waits until there is nothing for threads to read, and answers how many files they have opened, and how many instances
// there are of those in lanes.
func settled(m *MultipleReader) (opened, held int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.sleeping < m.running || m.neediest() != nil || m.mayOpen() {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	for _, l := range m.lanes {
		held += l.holds()
	}
	return m.next, held
}

// An instance is not kept back while the next file is read, however soon that seemed to come.
func TestAnInstanceDoesNotWaitForTheNext(t *testing.T) {
	for _, c := range []struct {
		room     int
		reminded bool
	}{{64, true}, {1, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			blocked := make(chan struct{})
			h, _ := shortFiles(t, func(m *MultipleReader, i int) {
				switch i {
				case 0:
					onceWaiting(m, c.reminded)
				case 1:
					<-blocked
				}
			}, 1, 1, ones(3)...)
			got, err := firstIDs(t, h, c.room)
			if err != nil || len(got) != 1 || got[0] != 0 {
				t.Errorf("found %v, %v", got, err)
			}
			close(blocked)
			if rest := drained(t, h); !slices.Equal(rest, []int64{1, 2}) {
				t.Errorf("the rest: %v", rest)
			}
		})
	}
}

// A consumer that asks for many is woken once for several of them, or for all that there are.
func TestAConsumerIsWokenForManyShortFiles(t *testing.T) {
	for _, c := range []struct{ files, room, least int }{{100, 64, worthWaking}, {100, 5, 5}, {7, 64, 7}} {
		h, _ := shortFiles(t, func(m *MultipleReader, i int) {
			if i == 0 {
				onceWaiting(m, false)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if n := m.consumers.Len(); n == 0 && i < c.least {
				t.Errorf("%+v: woken for %d", c, i)
			}
			m.since = math.MaxInt64 / 2
		}, 1, 1, ones(c.files)...)
		got, err := firstIDs(t, h, c.room)
		if err != nil || len(got) < c.least {
			t.Errorf("%+v: found %d, %v", c, len(got), err)
		}
		if rest := drained(t, h); len(got)+len(rest) != c.files {
			t.Errorf("%+v: found %d and %d", c, len(got), len(rest))
		}
	}
}

// Before a consumer has got its first instances and comes again, threads read a little of each file, and nothing ahead.
func TestTheFirstInstancesAreNotHeldUp(t *testing.T) {
	const size = 4 * chunkSize
	h, m := shortFiles(t, func(*MultipleReader, int) {}, 2, 3, slices.Repeat([]int{size}, 9)...)
	have := func(opened, chunks int) {
		t.Helper()
		if found, _ := settled(m); found != opened {
			t.Errorf("expected %d files, found %d", opened, found)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, l := range m.lanes {
			if len(l.chunks) != chunks {
				t.Errorf("file %d: expected %d chunks, found %d", i, chunks, len(l.chunks))
			}
		}
	}
	for want := range firstChunk {
		got, err := firstIDs(t, h, 1)
		if err != nil || !slices.Equal(got, []int64{int64(want%3*size + want/3)}) {
			t.Fatalf("%d: found %v, %v", want, got, err)
		}
		have(3, 1)
	}
	if _, err := firstIDs(t, h, 1); err != nil {
		t.Fatal(err)
	}
	have(4, laneChunks)
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	if _, err := firstIDs(t, h, 1); err != nil {
		t.Fatal(err)
	}
	have(4, laneChunks) // in a further pass at once
}

// A consumer that asks for many at first gets them before anything else is read.
func TestAllThatIsAskedForAtFirstComesFirst(t *testing.T) {
	const size, wanted = 4 * chunkSize, 500
	for _, width := range []int{1, 3} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			h, m := shortFiles(t, func(*MultipleReader, int) {}, 2, width, slices.Repeat([]int{size}, 9)...)
			var all []int64
			for len(all) < wanted {
				got, err := firstIDs(t, h, wanted-len(all))
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, got...)
			}
			for i, id := range all {
				if int(id) != i%width*size+i/width {
					t.Fatalf("number %d: found %d", i, id)
				}
			}
			opened, held := settled(m)
			if most := width * firstChunk; opened != width || held > most {
				t.Errorf("expected %d files and %d instances at most, found %d and %d", width, most, opened, held)
			}
			if _, err := firstIDs(t, h, 1); err != nil {
				t.Fatal(err)
			}
			if opened, _ := settled(m); opened != width+1 {
				t.Errorf("expected the next file to stand by, found %d files", opened)
			}
		})
	}
}

// The last of those who wait needs nobody to come again, when the others have had as many as were asked for.
func TestAllWhoWaitForTheFirstInstancesGetSome(t *testing.T) {
	const consumers = 3 // two of whom are enough to take as many as one asks for
	allWait := func(m *MultipleReader, _ int) {
		entered(&m.consumers, &m.mu, consumers)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.armed = true // and no timer is going to help
	}
	h, _ := shortFiles(t, allWait, 1, 1, 4*chunkSize)
	ends := make(chan error)
	for range consumers {
		go func() {
			_, err := firstIDs(t, h, firstChunk)
			ends <- err
		}()
	}
	for range consumers {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// A thread that finds no room wakes a consumer for the little that there is.
func TestAThreadThatSleepsLeavesNothingUntold(t *testing.T) {
	h, _ := shortFiles(t, func(m *MultipleReader, i int) { onceWaiting(m, false) }, 1, 1, 1, 1000)
	if got, err := firstIDs(t, h, 64); err != nil || len(got) == 0 {
		t.Errorf("found %v, %v", got, err)
	}
}

// So many short files stand by, and threads that have found no room go on when there is half of it.
func TestShortFilesStandBy(t *testing.T) {
	h, m := shortFiles(t, func(*MultipleReader, int) {}, 2, 3, ones(1000)...)
	take := func() (standBy int) {
		t.Helper()
		if got, err := firstIDs(t, h, 1); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.standby)
	}
	for range 20 {
		take()
	}
	full := asleep(m) // perhaps since it was half full, when that was less
	if most := 20 + 3 + mostAhead; full > most || full < 20+mostAhead/2 {
		t.Fatalf("expected at most %d files and at least half, found %d", most, full)
	}
	for take() > mostAhead/2+1 {
		m.mu.Lock()
		may, now := m.mayOpen(), m.next
		m.mu.Unlock()
		if may || now != full {
			t.Fatalf("expected threads that sleep, found %d files more", now-full)
		}
	}
	for take() > mostAhead/2 {
	}
	m.mu.Lock()
	for m.next < full+mostAhead/4 {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	m.mu.Unlock()
	if err := h.ReInit(); err != nil { // with all that stands by
		t.Fatal(err)
	}
	if all := drained(t, h); !slices.IsSorted(all) || len(all) != 1000 {
		t.Errorf("found %d: %v", len(all), all)
	}
	if m.held != 0 {
		t.Errorf("%d bytes stand by, of no file", m.held)
	}
}

// A long file puts an end to that, and bytes do.
func TestLongFilesDoNotStandBy(t *testing.T) {
	long := slices.Concat(ones(11), slices.Repeat([]int{chunkSize * 5}, 20)) // the first of the long ones is the tenth that is begun
	h, m := shortFiles(t, func(*MultipleReader, int) {}, 1, 1, long...)
	if _, err := firstIDs(t, h, 1); err != nil {
		t.Fatal(err)
	}
	if opened := asleep(m); opened > 13 {
		t.Errorf("expected the short ones and one more, found %d", opened)
	}
	if all := drained(t, h); len(all) != 10+20*5*chunkSize || !slices.IsSorted(all) {
		t.Errorf("found %d", len(all))
	}
	m.mu.Lock()
	m.depth, m.held = mostAhead, heldAhead
	m.next, m.resting = 0, false
	if m.mayOpen() {
		t.Error("more are opened than may be held")
	}
	m.held--
	if !m.mayOpen() {
		t.Error("none are opened while there is room")
	}
	m.held, m.next = 0, len(m.sources)
	m.mu.Unlock()
}

// The error of a file that stands by comes where the file is in the list.
// The order of files depends on the seed and the pass, not on threads, on what was read before, or on how often.
func TestFilesAreShuffled(t *testing.T) {
	names, ids := writeIDs(t, ones(50)...)
	listed := slices.Concat(ids...)
	read := func(threads int, attributes string, passes ...uint64) (all [][]int64) {
		h := create(t, counted(t), "open_files", "files", nil,
			openIDs(names, fmt.Sprintf(`, "thread_num": %d, "interleave": 3%s`, threads, attributes)))
		for _, pass := range passes {
			if err := h.Begin(pass); err != nil {
				t.Fatal(err)
			}
			if len(passes) == 2 { // which is cut short
				_, _ = firstIDs(t, h, 7)
				continue
			}
			all = append(all, drained(t, h))
		}
		return all
	}
	three := read(1, `, "shuffle_files": 7`, 0, 1, 2)
	for pass, ids := range three {
		if sorted := slices.Sorted(slices.Values(ids)); !slices.Equal(sorted, listed) || slices.Equal(ids, listed) {
			t.Errorf("pass %d: expected all in another order, found %v", pass, ids)
		}
	}
	if slices.Equal(three[0], three[1]) || slices.Equal(three[1], three[2]) {
		t.Errorf("expected another order in each pass, found %v", three)
	}
	if again := read(4, `, "shuffle_files": 7`, 2, 0, 1); !slices.Equal(again[0], three[2]) || !slices.Equal(again[1], three[0]) || !slices.Equal(again[2], three[1]) {
		t.Errorf("expected the same orders, found %v", again)
	}
	if other := read(1, `, "shuffle_files": 8`, 0); slices.Equal(other[0], three[0]) {
		t.Errorf("expected another order for another seed, found %v", other[0])
	}
	if plain := read(1, `, "shuffle_files": null`, 0, 1, 1); !slices.Equal(plain[0], listed) || !slices.Equal(plain[2], listed) {
		t.Errorf("expected the order of the list, found %v", plain)
	}
	if zero := read(2, `, "shuffle_files": 0`, 0); slices.Equal(zero[0], listed) {
		t.Errorf("expected that 0 is a seed, found %v", zero[0])
	}
}

// Files of one instance each may be large: as many stand by as are not too much together.
func TestLargeFilesDoNotStandBy(t *testing.T) {
	for _, c := range []struct{ bytes, files, depth int }{
		{0, 20, mostAhead},
		{heldAhead / mostAhead, 20, mostAhead},
		{heldAhead / 5, 20, 5},
		{heldAhead/2 + 1, 20, 1},
		{100 * heldAhead, 20, 1},
	} {
		m := &MultipleReader{depth: 1}
		for range c.files {
			m.learn(&lane{end: io.EOF}, c.bytes)
		}
		if m.depth != c.depth {
			t.Errorf("files of %d bytes: expected that %d stand by, found %d", c.bytes, c.depth, m.depth)
		}
	}
}

func TestAnErrorOfAFileThatStandsBy(t *testing.T) {
	h, m := shortFiles(t, func(*MultipleReader, int) {}, 2, 2, ones(200)...)
	bad := m.sources[100].path
	if err := os.WriteFile(bad, make([]byte, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		all, err := drain(h)
		expect(t, err, pyfeed.Corrupt, "expected 8 bytes")
		if e := err.(*pyfeed.Error); len(all) != 100 || !slices.IsSorted(all) || e.At == nil || e.At.File != bad {
			t.Errorf("%d before %v", len(all), err)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(bad); err != nil {
		t.Fatal(err)
	}
	if all, err := drain(h); err == io.EOF || len(all) != 100 {
		t.Errorf("%s: %d before %v", filepath.Base(bad), len(all), err)
	}
}

// A reader is closed while threads sleep for room, and while one reads.
func TestShortFilesAreGivenBack(t *testing.T) {
	h, m := shortFiles(t, func(*MultipleReader, int) {}, 2, 2, ones(500)...)
	for i := range 20 {
		if _, err := firstIDs(t, h, 1+i); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			asleep(m)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		if m.held != 0 || m.depth != 1 || m.resting || len(m.standby) != 0 {
			t.Errorf("found %d bytes, depth %d, resting %v, %d files", m.held, m.depth, m.resting, len(m.standby))
		}
		m.mu.Unlock()
	}
}
