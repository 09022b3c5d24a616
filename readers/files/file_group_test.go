package files

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/klauspost/compress/gzip"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// openDeck makes a reader of files. Files whose card is nil are removed before they are read.
func openDeck(t *testing.T, op string, paths []string, cards [][]byte, more string) *readers.ReaderHolder {
	t.Helper()
	for i, data := range cards {
		if data == nil {
			if err := os.WriteFile(paths[i], nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	open := Open
	if op == "create_file_reader" {
		open = OpenFile
	}
	r, err := withAttributes(readertest.OpenCards(paths, more), open)
	if err != nil {
		t.Fatal(err)
	}
	h := readers.NewHolder(r)
	for i, data := range cards {
		if data == nil {
			if err := os.Remove(paths[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

// numbersOf reads until an error, room tuples at a time. together counts neighbours that are rows of the same memory.
func numbersOf(t *testing.T, h *readers.ReaderHolder, room int) (all []int64, together int, err error) {
	t.Helper()
	u := readers.NewUpstream(h)
	var c record.Chunk
	for {
		n, err := u.ReadInto(context.Background(), &c, room)
		if err != nil {
			return all, together, err
		}
		together += n - c.NumBlocks() - len(c.Tuples())
		out := make([]*pyfeed.Tuple, n)
		if _, err := c.Take(out); err != nil {
			return all, together, err
		}
		for _, tuple := range out {
			s := &tuple.Slots[0]
			if len(tuple.Slots) != 1 || s.DType != pyfeed.Int64 || len(s.Dims()) != 0 || len(s.Data) != 8 || !s.ReadOnly {
				t.Fatalf("found %d slots, %v %v, %d bytes", len(tuple.Slots), s.DType, s.Dims(), len(s.Data))
			}
			all = append(all, int64(binary.NativeEndian.Uint64(s.Data)))
			tuple.Release()
		}
	}
}

// randomFiles returns a random mixture of files, most of them with the same signature. A nil entry is a missing file.
func randomFiles(random *rand.Rand, errors bool) (cards [][]byte) {
	next := int64(0)
	number := func() int64 { next++; return next - 1 }
	unlike := random.IntN(20)
	for range 20 + random.IntN(200) {
		card := readertest.Card('a', number())
		if random.IntN(100) < unlike {
			switch random.IntN(8) {
			case 0:
				card = readertest.Card('b', number())
			case 1:
				card = readertest.Card('a', number(), number())
			case 2:
				for range 300 {
					card = binary.NativeEndian.AppendUint64(card, uint64(number()))
				}
			case 3:
				card = readertest.Card('a')
			case 4:
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				_, _ = w.Write(card)
				_ = w.Close()
				card = b.Bytes()
			case 5:
				if card = []byte{}; !errors {
					card = readertest.Card('c', number())
				}
			case 6:
				if errors {
					card = append(card, 1, 2, 3)
				}
			case 7:
				if card = nil; !errors {
					card = readertest.Card('c')
				}
			}
		}
		cards = append(cards, card)
	}
	return cards
}

// singleRead is the result of reading a file alone.
type singleRead struct {
	numbers []int64
	err     error
	skipped []damageEntry
}

func readSingle(t *testing.T, path string, data []byte, more string) (a singleRead) {
	t.Helper()
	h := openDeck(t, "create_file_reader", []string{path}, [][]byte{data}, more)
	a.numbers, _, a.err = numbersOf(t, h, 1)
	a.skipped, _ = h.Stats().Extra["ledger"].([]damageEntry)
	h.Drop()
	return a
}

// interleaved returns what an ordered filesReader delivers: the numbers, and the end or the first error.
func interleaved(files []singleRead, width int) (numbers []int64, end error) {
	var lanes []singleRead
	for len(lanes) < width && len(files) > 0 {
		lanes, files = append(lanes, files[0]), files[1:]
	}
	for turn := 0; len(lanes) > 0; {
		turn %= len(lanes)
		l := &lanes[turn]
		switch {
		case len(l.numbers) > 0:
			numbers = append(numbers, l.numbers[0])
			l.numbers = l.numbers[1:]
			turn++
		case l.err != io.EOF:
			return numbers, l.err
		case len(files) > 0:
			lanes[turn], files = files[0], files[1:]
		default:
			lanes = slices.Delete(lanes, turn, turn+1)
		}
	}
	return numbers, io.EOF
}

func sameError(a, b error) bool {
	var x, y *pyfeed.Error
	if !errors.As(a, &x) || !errors.As(b, &y) {
		return a == b
	}
	return x.Kind == y.Kind && x.Error() == y.Error() && *x.At == *y.At
}

func sortedPlaces(all []damageEntry) []damageEntry {
	return slices.SortedFunc(slices.Values(all), func(a, b damageEntry) int { return cmp.Compare(a.File, b.File) })
}

// Files that one thread reads as a group are delivered as if they were read one by one: in their order, with their
// errors.
func TestGroupedFilesComeAsIfReadOneByOne(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	together, cases := 0, 40
	if testing.Short() {
		cases = 8
	}
	for i := range cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			counted(t)
			corrupt := []string{"raise", "skip"}[i%2]
			cards := randomFiles(random, i%3 > 0)
			paths := readertest.WriteCards(t, cards)
			more := fmt.Sprintf(`, "on_corrupt": %q`, corrupt)
			var files []singleRead
			var skipped []damageEntry
			for i, path := range paths {
				a := readSingle(t, path, cards[i], more)
				files, skipped = append(files, a), append(skipped, a.skipped...)
			}
			for threads := 1; threads <= 3; threads++ {
				width := []int{1, 2, 8}[random.IntN(3)]
				want, end := interleaved(files, width)
				room := 1 + random.IntN(64)
				name := fmt.Sprintf("threads=%d interleave=%d room=%d %s", threads, width, room, corrupt)
				h := openDeck(t, "open_files", paths, cards, more+fmt.Sprintf(`, "num_threads": %d, "interleave": %d`, threads, width))
				t.Cleanup(h.Drop)
				for pass := range 2 {
					got, rows, err := numbersOf(t, h, room)
					together += rows
					if !slices.Equal(got, want) || !sameError(err, end) {
						t.Fatalf("%s, pass %d: expected %d numbers and %v, found %d and %v", name, pass, len(want), end, len(got), err)
					}
					if found := sortedPlaces(h.Stats().Extra["ledger"].([]damageEntry)); pass == 0 && end == io.EOF && !slices.Equal(found, sortedPlaces(skipped)) {
						t.Errorf("%s: expected %v, found %v", name, skipped, found)
					}
					if err := h.ReInit(); err != nil {
						t.Fatal(err)
					}
				}

				name += " unordered"
				h = openDeck(t, "open_files", paths, cards, more+fmt.Sprintf(`, "num_threads": %d, "ordered": false`, threads))
				t.Cleanup(h.Drop)
				got, rows, err := numbersOf(t, h, room)
				together += rows
				slices.Sort(got)
				all, _ := interleaved(files, 1)
				if end == io.EOF && (!slices.Equal(got, all) || err != io.EOF) {
					t.Errorf("%s: expected %d numbers, found %d and %v", name, len(all), len(got), err)
				}
				its := func(a singleRead) bool { return a.err != io.EOF && sameError(a.err, err) }
				if end != io.EOF && (len(slices.Compact(got)) != len(got) || !slices.ContainsFunc(files, its)) {
					t.Errorf("%s: found %d numbers and %v", name, len(got), err)
				}
			}
		})
	}
	if together == 0 {
		t.Error("no two files were read together")
	}
}

// A reset ends the read of a group at any position.
func TestAResetInAFileGroup(t *testing.T) {
	counted(t)
	cards := readertest.SameCards(300)
	for i := 50; i < 300; i += 50 {
		cards[i] = readertest.Card('a', int64(i), int64(i))
	}
	paths := readertest.WriteCards(t, cards)
	for _, ordered := range []bool{true, false} {
		h, m := openMany(t, readertest.OpenCards(paths, fmt.Sprintf(`, "num_threads": 2, "ordered": %v`, ordered)))
		for i := range 60 {
			out := make([]*pyfeed.Tuple, 32)
			for range i % 9 {
				n, err := h.ReadMany(context.Background(), out)
				if err != nil {
					t.Fatal(err)
				}
				pyfeed.ReleaseAll(out[:n])
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
			m.mu.Lock()
			if m.schedule.standbyBytes != 0 || m.schedule.numStandby != 0 || m.schedule.requeued != 0 || m.schedule.groups.numSame != 0 || m.cutGroups.Load() {
				t.Fatalf("after a reset: found %d bytes, %d files, %d requeued, %d with the same signature", m.schedule.standbyBytes, m.schedule.numStandby, m.schedule.requeued, m.schedule.groups.numSame)
			}
			m.mu.Unlock()
		}
		if got, _, err := numbersOf(t, h, 32); len(got) != 305 || err != io.EOF {
			t.Errorf("found %d, %v", len(got), err)
		}
	}
}

// A thread that finds a pipe among the files of a group opens it once, so that its writer does not get SIGPIPE; other threads
// continue with the files after it; a reset does not wait for it.
func TestAPipeInAFileGroup(t *testing.T) {
	const count = 100
	positions := 20
	if testing.Short() {
		positions = 8
	}
	for i := range positions {
		ordered, at := i%2 == 0, 20+i
		counted(t)
		cards := readertest.SameCards(count)
		cards[at] = nil
		paths := readertest.WriteCards(t, cards)
		if err := errors.Join(os.Remove(paths[at]), syscall.Mkfifo(paths[at], 0o600)); err != nil {
			t.Fatal(err)
		}
		h, _ := openMany(t, readertest.OpenCards(paths, fmt.Sprintf(`, "num_threads": 2, "ordered": %v`, ordered)))
		before := at
		if !ordered {
			before = count - 1
		}
		for range 3 { // nothing is written into the pipe
			out := make([]*pyfeed.Tuple, before)
			for n := 0; n < before; {
				got, err := h.ReadMany(context.Background(), out[n:])
				if err != nil {
					t.Fatal(err)
				}
				n += got
			}
			pyfeed.ReleaseAll(out)
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
		written := make(chan error)
		go func() { written <- os.WriteFile(paths[at], readertest.Card('a', int64(at)), 0) }()
		got, _, err := numbersOf(t, h, 32)
		if err != io.EOF || len(got) != count || ordered && !slices.IsSorted(got) {
			t.Errorf("found %v, %v", got, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}

// A group ends when it takes long, or when a reset cuts it. The next group goes on from there.
func TestAFileGroupEndsEarly(t *testing.T) {
	paths := readertest.WriteCards(t, readertest.SameCards(300))
	for _, threads := range []int{1, 2} {
		h, m := openMany(counted(t), readertest.OpenCards(paths, fmt.Sprintf(`, "num_threads": %d`, threads)))
		m.slowGroup = 0
		got, together, err := numbersOf(t, h, 32)
		if err != io.EOF || len(got) != 300 || !slices.IsSorted(got) || together != 0 {
			t.Errorf("found %d, %d of them together, %v", len(got), together, err)
		}
		signature := m.schedule.groups.last
		if signature == nil {
			t.Fatal("no two files have the same signature")
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.schedule.groups.last, m.schedule.groups.numSame = signature, minSameSignature
		l := m.schedule.newLane(m.schedule.refs[:10], signature)
		m.schedule.enterStandby(l, 0)
		m.cutGroups.Store(true)
		if n := m.readChunk(l, 0); n != 0 || len(l.group) != 10 || l.end != nil || !l.requeued || m.schedule.requeued != 1 {
			t.Errorf("found %d, %d files, end %v, %d requeued", n, len(l.group), l.end, m.schedule.requeued)
		}
		m.mu.Unlock()
	}
}

// A file of another format and a file that was opened before are not read in a group. After a file with another
// signature, no groups are read until enough files in a row have the same signature again.
func TestFilesThatAreNotReadInAGroup(t *testing.T) {
	for name, change := range map[string]func(m *filesReader, paths []string){
		"format": func(m *filesReader, _ []string) {
			other := *m.schedule.refs[3].Format
			m.schedule.refs[3].Format = &other
		},
		"begun": func(m *filesReader, paths []string) { m.fileSet.opened.path = paths[3] },
		"bytes": func(_ *filesReader, paths []string) {
			if err := os.WriteFile(paths[3], readertest.Card('b', 3), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		paths := readertest.WriteCards(t, readertest.SameCards(10))
		_, m := openMany(counted(t), readertest.OpenCards(paths, ""))
		first := pyfeed.LoDTensor{DType: pyfeed.Int64}
		m.schedule.groups.last, m.schedule.groups.numSame = &fileSignature{format: m.schedule.refs[0].Format, head: readertest.Card('a'), first: first, size: 8}, minSameSignature
		m.slowGroup = int64(time.Hour) // so that the time limit does not end the group
		change(m, paths)
		m.mu.Lock()
		l := m.schedule.newLane(m.schedule.refs, m.schedule.groups.last)
		m.schedule.enterStandby(l, 0)
		if n := m.readChunk(l, 0); n != 3 || m.schedule.groups.numSame != 0 || len(m.schedule.standby) != 3 || m.schedule.standby[1].file.Path != paths[3] {
			t.Errorf("%s: found %d, %d with the same signature, %d lanes", name, n, m.schedule.groups.numSame, len(m.schedule.standby))
		}
		if m.schedule.begin(m.schedule.standby[2]); m.schedule.standby[2].group != nil || len(m.schedule.standby) != 4 || len(m.schedule.standby[3].group) != 5 {
			t.Errorf("%s: found a group of %d, %d lanes", name, len(m.schedule.standby[2].group), len(m.schedule.standby))
		}
		m.schedule.standby[2].busy = false
		m.mu.Unlock()
	}
}

// Short files are grouped after a few in a row had the same signature.
func TestSignaturesAreCompared(t *testing.T) {
	var g grouper
	a, b := &fileSignature{head: []byte("a"), size: 8}, &fileSignature{head: []byte("b"), size: 8}
	wide := &fileSignature{head: []byte("a"), size: 16}
	_ = wide.first.SetDims(pyfeed.Dims{2})
	for i, c := range []struct {
		signature *fileSignature
		same      int
	}{{a, 1}, {a, 2}, {nil, 0}, {a, 1}, {a, 2}, {b, 1}, {b, 2}, {a, 1}, {wide, 1}, {wide, 2}} {
		if g.observe(c.signature); g.numSame != c.same {
			t.Errorf("%d: expected %d, found %d", i, c.same, g.numSame)
		}
	}
}

// The number of files that a thread claims.
func TestGroupSize(t *testing.T) {
	for _, c := range []struct{ same, most, threads, size, left, want int }{
		{minSameSignature - 1, 32, 1, 8, 100, 1},
		{minSameSignature, 32, 1, 8, 100, 32},
		{minSameSignature, 1000, 1, 8, 100, wakeAfter},
		{minSameSignature, 32, 2, 8, 100, 16},
		{minSameSignature, 32, 3, 8, 100, 11},
		{minSameSignature, 1, 2, 8, 100, 1},
		{minSameSignature, 32, 2, 64 << 10, 100, 8},
		{minSameSignature, 32, 2, 10 * maxGroupBytes, 100, 1},
		{minSameSignature, 32, 2, 8, 5, 5},
	} {
		g := grouper{last: &fileSignature{size: c.size}, numSame: c.same}
		if got := g.size(c.most, c.threads, c.left); got != c.want {
			t.Errorf("%+v: found %d", c, got)
		}
	}
}

// When a group ends before its last file, the files after its end keep their place in the order.
func TestAFileGroupIsSplit(t *testing.T) {
	refs := make([]record.FileRef, 10)
	for i := range refs {
		refs[i].Path = fmt.Sprint(i)
	}
	for _, c := range []struct {
		n        int
		mismatch bool
		standsBy bool
		want     string
	}{
		{0, true, true, "[2] [3 4 5]"},
		{0, false, true, "[2 3 4 5]"},
		{2, true, true, "[2 3] [4] [5]"},
		{2, false, true, "[2 3] [4 5]"},
		{3, true, true, "[2 3 4] [5]"},
		{3, false, true, "[2 3 4] [5]"},
		{2, true, false, "[4] [5]"}, // the group is in the place of a file that has ended
		{0, true, false, "[3 4 5]"},
	} {
		s := scheduler{refs: refs}
		s.groups.last, s.groups.numSame = &fileSignature{size: 100}, minSameSignature
		l := s.newLane(refs[2:6], s.groups.last)
		if c.standsBy {
			s.enterStandby(s.newLane(refs[:2], s.groups.last), 0)
			s.enterStandby(l, 1)
		}
		s.enterStandby(s.newLane(refs[6:], s.groups.last), len(s.standby))
		var pipe *os.File
		if c.mismatch {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			write.Close()
			pipe = read
		}
		s.splitGroup(l, groupResult{n: c.n, mismatch: c.mismatch, pipe: pipe})
		var found []string
		files, held, requeued := 0, 0, 0
		for _, l := range s.standby {
			of := l.group
			if of == nil {
				of = []record.FileRef{l.file.FileRef}
			} else {
				held += 100 * len(of)
			}
			var names []string
			for _, ref := range of {
				names = append(names, ref.Path)
			}
			files += len(of)
			if l.requeued {
				requeued++
			}
			found = append(found, fmt.Sprint(names))
		}
		want := c.want + " [6 7 8 9]"
		if c.standsBy {
			want = "[0 1] " + want
		} else if c.n == 0 {
			requeued++ // the first part is requeued in the lane of the group
		}
		if got := fmt.Sprint(found); got != "["+want+"]" {
			t.Errorf("%+v: found %s", c, got)
		}
		if s.numStandby != files || s.standbyBytes != held || s.requeued != requeued {
			t.Errorf("%+v: expected %d files, %d bytes, %d requeued, found %d, %d, %d", c, files, held, requeued, s.numStandby, s.standbyBytes, s.requeued)
		}
		s.standby[0].busy = true // so that the other lanes are next
		for _, next := range append(s.standby, l) {
			if next.requeued && next != s.neediest() && next != l {
				t.Errorf("%+v: expected %s to be read next", c, next.file.Path)
			}
			if next.requeued {
				next.requeued = false
				s.requeued--
			}
			if next.file.pipe != nil && next.file.Path != fmt.Sprint(2+c.n) {
				t.Errorf("%+v: file %s is the pipe", c, next.file.Path)
			}
			next.file.close()
		}
		if c.mismatch && pipe.Close() == nil {
			t.Errorf("%+v: the pipe is open", c)
		}
	}
}

// If each file has one instance and all have the same signature, the instances of a batch are contiguous in memory,
// whichever threads read them.
func TestABatchOfFilesLiesTogether(t *testing.T) {
	paths := readertest.WriteCards(t, readertest.SameCards(300))
	for _, c := range []struct{ threads, size int }{{1, 32}, {2, 32}, {3, 10}, {2, 33}} {
		h, m := openMany(counted(t), readertest.OpenCards(paths, fmt.Sprintf(`, "num_threads": %d, "interleave": 2`, c.threads)))
		m.slowGroup = int64(time.Hour)
		apart := 0
		for begin := 0; begin < 300; begin += c.size {
			batch := make([]*pyfeed.Tuple, min(c.size, 300-begin))
			for n := 0; n < len(batch); {
				got, err := h.ReadMany(context.Background(), batch[n:])
				if err != nil {
					t.Fatal(err)
				}
				n += got
			}
			first := unsafe.Pointer(&batch[0].Slots[0].Data[0])
			for i, tuple := range batch {
				if found := unsafe.Pointer(&tuple.Slots[0].Data[0]); found != unsafe.Add(first, 8*i) {
					apart++
					break
				}
			}
			pyfeed.ReleaseAll(batch)
		}
		if limit := 2; apart > limit { // read before enough files had the same signature
			t.Errorf("%+v: the instances of %d batches are not contiguous in memory", c, apart)
		}
	}
}
