package files

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
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// shortFiles makes a reader of files that have counts[i] ids each. before is called with i before file i is opened.
func shortFiles(t *testing.T, before func(m *filesReader, i int), threads, width int, counts ...int) (*readers.ReaderHolder, *filesReader) {
	t.Helper()
	names, _ := readertest.WriteIDs(t, counts...)
	h, m := openMany(counted(t), readertest.OpenIDs(names, fmt.Sprintf(`, "num_threads": %d, "interleave": %d`, threads, width)))
	format := *m.schedule.refs[0].Format
	open := format.Open
	format.Open = func(path string, c *record.Config) (record.Records, error) {
		before(m, slices.Index(names, path))
		return open(path, c)
	}
	for i := range m.schedule.refs {
		m.schedule.refs[i].Format = &format
	}
	return h, m
}

func ones(n int) []int { return slices.Repeat([]int{1}, n) }

func firstIDs(t *testing.T, h *readers.ReaderHolder, room int) (all []int64, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // longer than any wait of the test
	defer cancel()
	out := make([]*pyfeed.Tuple, room)
	n, err := h.ReadMany(ctx, out)
	for _, tuple := range out[:n] {
		some, err := readertest.IDsOf(tuple)
		if err != nil {
			t.Error(err)
		}
		all = append(all, some...)
		tuple.Release()
	}
	return all, err
}

// waitForConsumer is called by a reading thread. It waits for a consumer to wait, and makes arrivals seem to come
// without a pause. Unless reminded is true, no timer wakes the consumer.
func waitForConsumer(m *filesReader, reminded bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.consumers.Len() == 0 {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	m.schedule.lastArrival = math.MaxInt64 / 2
	m.armed = m.armed || !reminded
}

// asleep waits until all threads sleep, and returns how many files they have opened.
func asleep(m *filesReader) (opened int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.schedule.sleeping < m.running {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	return m.schedule.next
}

// waitUntilIdle waits until the threads have nothing to read. It returns how many files they have opened, and how many
// instances the lanes hold.
func waitUntilIdle(m *filesReader) (opened, held int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.schedule.sleeping < m.running || m.schedule.neediest() != nil || m.schedule.mayOpen() {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	for _, l := range m.schedule.lanes {
		held += l.numInstances()
	}
	return m.schedule.next, held
}

// An instance is delivered while the next file is read, even if the next instance was expected to arrive soon.
func TestAnInstanceDoesNotWaitForTheNext(t *testing.T) {
	for _, c := range []struct {
		room     int
		reminded bool
	}{{64, true}, {1, false}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			blocked := make(chan struct{})
			h, _ := shortFiles(t, func(m *filesReader, i int) {
				switch i {
				case 0:
					waitForConsumer(m, c.reminded)
				case 1:
					<-blocked
				}
			}, 1, 1, ones(3)...)
			got, err := firstIDs(t, h, c.room)
			if err != nil || len(got) != 1 || got[0] != 0 {
				t.Errorf("found %v, %v", got, err)
			}
			close(blocked)
			if rest := readertest.Drained(t, h); !slices.Equal(rest, []int64{1, 2}) {
				t.Errorf("rest: found %v", rest)
			}
		})
	}
}

// A consumer that asks for many instances is woken once for several files, or for the end.
func TestAConsumerIsWokenForSeveralShortFiles(t *testing.T) {
	for _, c := range []struct{ files, room, least int }{{100, 64, wakeAfter}, {100, 5, 5}, {7, 64, 7}} {
		h, _ := shortFiles(t, func(m *filesReader, i int) {
			if i == 0 {
				waitForConsumer(m, false)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if n := m.consumers.Len(); n == 0 && i < c.least {
				t.Errorf("%+v: woken after %d files", c, i)
			}
			m.schedule.lastArrival = math.MaxInt64 / 2
		}, 1, 1, ones(c.files)...)
		got, err := firstIDs(t, h, c.room)
		if err != nil || len(got) < c.least {
			t.Errorf("%+v: found %d, %v", c, len(got), err)
		}
		if rest := readertest.Drained(t, h); len(got)+len(rest) != c.files {
			t.Errorf("%+v: found %d and %d", c, len(got), len(rest))
		}
	}
}

// Until a consumer has got its first instances and asks again, threads read a little of each file, and nothing ahead.
func TestTheFirstInstancesAreNotHeldUp(t *testing.T) {
	const size = 4 * record.ChunkSize
	h, m := shortFiles(t, func(*filesReader, int) {}, 2, 3, slices.Repeat([]int{size}, 9)...)
	have := func(opened, chunks int) {
		t.Helper()
		if found, _ := waitUntilIdle(m); found != opened {
			t.Errorf("expected %d files, found %d", opened, found)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		for i, l := range m.schedule.lanes {
			if len(l.chunks) != chunks {
				t.Errorf("file %d: expected %d chunks, found %d", i, chunks, len(l.chunks))
			}
		}
	}
	for want := range minWarmup {
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
	have(4, laneChunks) // without a warmup in a further pass
}

// A consumer that first asks for many instances gets them before anything else is read.
func TestAllThatIsAskedForAtFirstComesFirst(t *testing.T) {
	const size, wanted = 4 * record.ChunkSize, 500
	for _, width := range []int{1, 3} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			h, m := shortFiles(t, func(*filesReader, int) {}, 2, width, slices.Repeat([]int{size}, 9)...)
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
			opened, held := waitUntilIdle(m)
			if limit := width * minWarmup; opened != width || held > limit {
				t.Errorf("expected %d files and %d instances at most, found %d and %d", width, limit, opened, held)
			}
			if _, err := firstIDs(t, h, 1); err != nil {
				t.Fatal(err)
			}
			if opened, _ := waitUntilIdle(m); opened != width+1 {
				t.Errorf("expected the next file to stand by, found %d files", opened)
			}
		})
	}
}

// The last waiting consumer gets its instances even if the others, which have got theirs, make no further request.
func TestAllWaitingConsumersGetFirstInstances(t *testing.T) {
	const consumers = 3 // two of them take as many as one asks for
	allWait := func(m *filesReader, _ int) {
		readertest.Entered(&m.consumers, &m.mu, consumers)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.armed = true // so that no timer wakes them
	}
	h, _ := shortFiles(t, allWait, 1, 1, 4*record.ChunkSize)
	ends := make(chan error)
	for range consumers {
		go func() {
			_, err := firstIDs(t, h, minWarmup)
			ends <- err
		}()
	}
	for range consumers {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
}

// A thread that finds no room wakes a consumer for the few instances that have arrived.
func TestAThreadThatSleepsLeavesNothingUndelivered(t *testing.T) {
	h, _ := shortFiles(t, func(m *filesReader, i int) { waitForConsumer(m, false) }, 1, 1, 1, 1000)
	if got, err := firstIDs(t, h, 64); err != nil || len(got) == 0 {
		t.Errorf("found %v, %v", got, err)
	}
}

// Many short files stand by. Threads that have found no room go on when files have been taken.
func TestShortFilesStandBy(t *testing.T) {
	h, m := shortFiles(t, func(*filesReader, int) {}, 2, 3, ones(1000)...)
	take := func() {
		t.Helper()
		if got, err := firstIDs(t, h, 1); err != nil || len(got) != 1 {
			t.Fatal(got, err)
		}
	}
	for range 20 {
		take()
	}
	full := asleep(m) // the threads may have slept since the limit was lower
	if limit := 20 + 3 + maxStandbyFiles; full > limit || full < 20+maxStandbyFiles/2 {
		t.Fatalf("expected at most %d files and at least half, found %d", limit, full)
	}
	for range maxStandbyFiles / 2 {
		take()
	}
	m.mu.Lock()
	for m.schedule.next < full+maxStandbyFiles/4 {
		m.mu.Unlock()
		runtime.Gosched()
		m.mu.Lock()
	}
	m.mu.Unlock()
	if err := h.ReInit(); err != nil { // while files stand by
		t.Fatal(err)
	}
	if all := readertest.Drained(t, h); !slices.IsSorted(all) || len(all) != 1000 {
		t.Errorf("found %d: %v", len(all), all)
	}
	if m.schedule.standbyBytes != 0 {
		t.Errorf("no file stands by, but %d bytes are counted", m.schedule.standbyBytes)
	}
}

// After a long file, only one file stands by. The limit on bytes holds for any files.
func TestLongFilesDoNotStandBy(t *testing.T) {
	long := slices.Concat(ones(11), slices.Repeat([]int{record.ChunkSize * 5}, 20)) // 11 short files, then 20 long ones
	h, m := shortFiles(t, func(*filesReader, int) {}, 1, 1, long...)
	if _, err := firstIDs(t, h, 1); err != nil {
		t.Fatal(err)
	}
	if opened := asleep(m); opened > 13 {
		t.Errorf("expected the short files and one more to be opened, found %d", opened)
	}
	if all := readertest.Drained(t, h); len(all) != 10+20*5*record.ChunkSize || !slices.IsSorted(all) {
		t.Errorf("found %d", len(all))
	}
	m.mu.Lock()
	m.schedule.maxStandby, m.schedule.standbyBytes = maxStandbyFiles, maxStandbyBytes
	m.schedule.next = 0
	if m.schedule.mayOpen() {
		t.Error("another file may be opened when standby holds the limit of bytes")
	}
	m.schedule.standbyBytes--
	if !m.schedule.mayOpen() {
		t.Error("no file may be opened while there is room")
	}
	m.schedule.standbyBytes, m.schedule.next = 0, len(m.schedule.refs)
	m.mu.Unlock()
}

// The order of files depends on the seed and the pass, not on the number of threads, on earlier reads, or on their
// number.
func TestFilesAreShuffled(t *testing.T) {
	names, ids := readertest.WriteIDs(t, ones(50)...)
	listed := slices.Concat(ids...)
	read := func(threads int, attributes string, passes ...uint64) (all [][]int64) {
		h, _ := openMany(counted(t),
			readertest.OpenIDs(names, fmt.Sprintf(`, "num_threads": %d, "interleave": 3%s`, threads, attributes)))
		for _, pass := range passes {
			if err := h.Begin(pass); err != nil {
				t.Fatal(err)
			}
			if len(passes) == 2 { // this pass is cut short
				_, _ = firstIDs(t, h, 7)
				continue
			}
			all = append(all, readertest.Drained(t, h))
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

// Files of one instance each may be large: fewer of them stand by, within the limit on bytes.
func TestLargeFilesDoNotStandBy(t *testing.T) {
	for _, c := range []struct{ bytes, files, depth int }{
		{0, 20, maxStandbyFiles},
		{maxStandbyBytes / maxStandbyFiles, 20, maxStandbyFiles},
		{maxStandbyBytes / 5, 20, 5},
		{maxStandbyBytes/2 + 1, 20, 1},
		{100 * maxStandbyBytes, 20, 1},
	} {
		s := scheduler{maxStandby: 1}
		for range c.files {
			s.noteFileLength(&lane{end: io.EOF}, c.bytes)
		}
		if s.maxStandby != c.depth {
			t.Errorf("files of %d bytes: expected that %d stand by, found %d", c.bytes, c.depth, s.maxStandby)
		}
	}
}

// The error of a file that stands by is returned at the file's position in the list.
func TestAnErrorOfAFileThatStandsBy(t *testing.T) {
	h, m := shortFiles(t, func(*filesReader, int) {}, 2, 2, ones(200)...)
	bad := m.schedule.refs[100].Path
	if err := os.WriteFile(bad, make([]byte, 3), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		all, err := readertest.Drain(h)
		readertest.Expect(t, err, pyfeed.Corrupt, "expected 8 bytes")
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
	if all, err := readertest.Drain(h); err == io.EOF || len(all) != 100 {
		t.Errorf("%s: %d before %v", filepath.Base(bad), len(all), err)
	}
}

// A reader is closed while threads sleep for room, and while a thread reads.
func TestShortFilesAreGivenBack(t *testing.T) {
	h, m := shortFiles(t, func(*filesReader, int) {}, 2, 2, ones(500)...)
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
		if m.schedule.standbyBytes != 0 || m.schedule.maxStandby != 1 || len(m.schedule.standby) != 0 {
			t.Errorf("found %d bytes, depth %d, %d files", m.schedule.standbyBytes, m.schedule.maxStandby, len(m.schedule.standby))
		}
		m.mu.Unlock()
	}
}

func TestOrderedFilesComeTheSameForAnyNumberOfThreads(t *testing.T) {
	counted(t)
	names, files := readertest.WriteIDs(t, 1000, 3, 0, 700, 1, 1500, 0, 0, 90, 300, 12)
	var want []int64
	for _, tuple := range readertest.Interleaved(files, 8) {
		want = append(want, tuple...)
	}
	for _, threads := range []int{1, 2, 8} {
		h, _ := openMany(t, readertest.OpenIDs(names, fmt.Sprintf(`, "num_threads": %d`, threads)))
		for range 2 {
			if got := readertest.Drained(t, h); !slices.Equal(got, want) {
				t.Fatalf("%d threads: expected %d ids as interleaved, found %d", threads, len(want), len(got))
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestUnorderedFilesAreComplete(t *testing.T) {
	counted(t)
	names, files := readertest.WriteIDs(t, 1000, 3, 0, 700, 1, 1500)
	h, _ := openMany(t, readertest.OpenIDs(names, `, "ordered": false, "num_threads": 3`))
	got := readertest.Drained(t, h)
	for _, in := range files { // each file's ids keep their order
		var of []int64
		for _, id := range got {
			if len(in) > 0 && id >= in[0] && id <= in[len(in)-1] {
				of = append(of, id)
			}
		}
		if !slices.Equal(of, in) {
			t.Errorf("expected %d ids of a file in their order, found %d", len(in), len(of))
		}
	}
	if want := len(slices.Concat(files...)); len(got) != want {
		t.Errorf("expected %d ids, found %d", want, len(got))
	}
}

func TestOnlySoManyFilesAreOpen(t *testing.T) {
	counted(t)
	names, _ := readertest.WriteIDs(t, slices.Repeat([]int{2000}, 40)...)
	for _, ordered := range []bool{true, false} {
		h, _ := openMany(t, readertest.OpenIDs(names, fmt.Sprintf(`, "num_threads": 2, "interleave": 3, "ordered": %v`, ordered)))
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		if opened := h.Stats().Extra["opened"].(int); opened > 4 {
			t.Errorf("ordered %v: expected the files of the lanes and one more, found %d", ordered, opened)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFilesOfSeveralFormatsWithTheSameSlots(t *testing.T) {
	counted(t)
	names, _ := readertest.WriteIDs(t, 3)
	other := filepath.Join(t.TempDir(), "x.cut")
	if err := os.WriteFile(other, []byte("abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	h, _ := openMany(t,
		fmt.Sprintf(`{"filenames": [%q, "cut:%s"], "slots": [{"dtype": "uint8", "dims": [2]}]}`, other, other))
	n := 0
	for {
		tuple, err := h.ReadNext(background)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		n++
	}
	if n != 6 {
		t.Errorf("expected 6 instances, found %d", n)
	}
	readertest.Expect(t, openError(fmt.Sprintf(`{"filenames": [%q, %q], "options": {"raw": {}}}`, names[0], other)),
		pyfeed.Invalid, `expected those of formats ids, cut by tag, found "raw"`)
}

// panickingRecords are Records whose Read panics.
type panickingRecords struct{}

func (panickingRecords) Read([]*pyfeed.Tuple) (int, error) { panic("mine") }
func (panickingRecords) Resync() error                     { return nil }
func (panickingRecords) CheckTruncated() error             { return nil }
func (panickingRecords) CheckUnchanged() error             { return nil }
func (panickingRecords) Close()                            {}

// A panic in a reading thread does not end the process. It becomes the reader's permanent error.
func TestAFaultInAThreadThatReads(t *testing.T) {
	counted(t)
	names, _ := readertest.WriteIDs(t, 1)
	h, m := openMany(t, readertest.OpenIDs(names, ""))
	faulty := *m.schedule.refs[0].Format
	faulty.Open = func(string, *record.Config) (record.Records, error) { return panickingRecords{}, nil }
	m.schedule.refs[0].Format = &faulty
	for range 2 {
		_, err := h.ReadNext(background)
		readertest.Expect(t, err, pyfeed.Fault, "mine")
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}
