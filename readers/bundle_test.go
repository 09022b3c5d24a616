package readers

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/klauspost/compress/gzip"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// The format "numbers" of these tests, whose files are called cards here: a head of 16 bytes, the last of which may be any,
// and int64 numbers, each an instance.
type card struct {
	f    *storage.File
	head []byte
	n    int64
}

const cardHead = "numbers follow:"

func init() {
	MustRegister(Format{Tag: "numbers", Suffixes: []string{".numbers"}, Open: func(path string, c *Config) (Records, error) {
		return OpenRecords(path, "", c, func(f *storage.File, _ *Config) (Records, error) {
			b, err := f.Peek(16)
			if err != nil {
				return nil, err
			}
			if len(b) < 16 || string(b[:15]) != cardHead {
				return nil, f.Corrupt(0, -1, "expected a card, found %d bytes", len(b))
			}
			f.Skip(16)
			return &card{f: f, head: slices.Clone(b[:16])}, nil
		})
	}})
}

func (r *card) Read(out []*pyfeed.Tuple) (int, error) {
	b, err := r.f.Peek(8)
	if err != nil || len(b) == 0 {
		return 0, cmp.Or(err, io.EOF)
	}
	if len(b) < 8 {
		return 0, r.f.Corrupt(r.f.Offset(), r.n, "expected 8 bytes, found %d", len(b))
	}
	n := min(len(out), 7, len(b)/8)
	for i, t := range out[:n] {
		t.Slots[0].DType, t.Slots[0].ReadOnly = pyfeed.Int64, true
		t.Slots[0].Hold(b[8*i:8*i+8:8*i+8], r.f.Hold(1))
	}
	r.f.Skip(8 * n)
	r.n += int64(n)
	return n, nil
}

func (r *card) Resync() error {
	r.f.Skip(len(r.rest()))
	return io.EOF
}

func (r *card) rest() []byte {
	b, _ := r.f.Peek(1)
	return b
}

func (r *card) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *card) Unchanged() error { return r.f.Unchanged() }
func (r *card) Close()           { r.f.Close() }
func (r *card) Ended() bool      { return r.f.Complete() && len(r.rest()) == 0 }

func (r *card) Alike() ([]byte, pyfeed.Slot) {
	if !r.f.Whole() || r.n != 1 || !r.Ended() {
		return nil, pyfeed.Slot{}
	}
	return r.head, pyfeed.Slot{DType: pyfeed.Int64}
}

func cardOf(kind byte, numbers ...int64) []byte {
	b := append([]byte(cardHead), kind)
	for _, n := range numbers {
		b = binary.NativeEndian.AppendUint64(b, uint64(n))
	}
	return b
}

// writeCards writes each as a file.
func writeCards(t *testing.T, cards [][]byte) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for i, data := range cards {
		paths = append(paths, filepath.Join(dir, fmt.Sprintf("%04d.numbers", i)))
		if err := os.WriteFile(paths[i], data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return paths
}

// openDeck makes a reader of files, some of which are not there when they are read.
func openDeck(t *testing.T, scope *pyfeed.Scope, op, name string, paths []string, cards [][]byte, more string) *ReaderHolder {
	t.Helper()
	for i, data := range cards {
		if data == nil {
			if err := os.WriteFile(paths[i], nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := create(t, scope, op, name, nil, openCards(paths, more))
	for i, data := range cards {
		if data == nil {
			if err := os.Remove(paths[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	return h
}

func openCards(paths []string, more string) string {
	quoted, _ := json.Marshal(paths)
	return fmt.Sprintf(`{"filenames": %s, "slots": [{"dtype": "int64", "dims": []}]%s}`, quoted, more)
}

// numbersOf reads until an error, so many tuples at a time. Neighbours that are rows of the same memory are counted.
func numbersOf(t *testing.T, h *ReaderHolder, room int) (all []int64, together int, err error) {
	t.Helper()
	var last *Rows
	u := above(h)
	var l Lot
	for {
		n, err := u.readMany(context.Background(), &l, room)
		if err != nil {
			return all, together, err
		}
		for _, it := range l.items {
			var rows *Rows
			if it.of != alone {
				rows = l.rows[it.of].Rows
			}
			if rows != nil && rows == last {
				together++
			}
			last = rows
		}
		out := make([]*pyfeed.Tuple, n)
		l.Take(out)
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

// deck is a random mixture of files, most of them alike. nil: there is none.
func deck(random *rand.Rand, errors bool) (cards [][]byte) {
	next := int64(0)
	number := func() int64 { next++; return next - 1 }
	unlike := random.IntN(20)
	for range 20 + random.IntN(200) {
		card := cardOf('a', number())
		if random.IntN(100) < unlike {
			switch random.IntN(8) {
			case 0:
				card = cardOf('b', number())
			case 1:
				card = cardOf('a', number(), number())
			case 2:
				for range 300 {
					card = binary.NativeEndian.AppendUint64(card, uint64(number()))
				}
			case 3:
				card = cardOf('a')
			case 4:
				var b bytes.Buffer
				w := gzip.NewWriter(&b)
				_, _ = w.Write(card)
				_ = w.Close()
				card = b.Bytes()
			case 5:
				if card = []byte{}; !errors {
					card = cardOf('c', number())
				}
			case 6:
				if errors {
					card = append(card, 1, 2, 3)
				}
			case 7:
				if card = nil; !errors {
					card = cardOf('c')
				}
			}
		}
		cards = append(cards, card)
	}
	return cards
}

// byItself is what comes of a file that is read alone.
type byItself struct {
	numbers []int64
	err     error
	skipped []damaged
}

func readAlone(t *testing.T, scope *pyfeed.Scope, path string, data []byte, more string) (a byItself) {
	t.Helper()
	h := openDeck(t, scope, "create_file_reader", path, []string{path}, [][]byte{data}, more)
	a.numbers, _, a.err = numbersOf(t, h, 1)
	a.skipped, _ = h.Stats().Extra["ledger"].([]damaged)
	if err := scope.Erase(path); err != nil {
		t.Fatal(err)
	}
	return a
}

// inTurn is what MultipleReader promises when ordered: the numbers until the end, or the first error.
func inTurn(files []byItself, width int) (numbers []int64, end error) {
	var lanes []byItself
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

func sortedPlaces(all []damaged) []damaged {
	return slices.SortedFunc(slices.Values(all), func(a, b damaged) int { return cmp.Compare(a.File, b.File) })
}

// Files of which several are read by one thread come as files one by one: in their order, with their errors.
func TestBundlesAreAsFilesOneByOne(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	together := 0
	for i := range 40 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			scope := counted(t)
			corrupt := []string{"raise", "skip"}[i%2]
			cards := deck(random, i%3 > 0)
			paths := writeCards(t, cards)
			more := fmt.Sprintf(`, "on_corrupt": %q`, corrupt)
			var files []byItself
			var skipped []damaged
			for i, path := range paths {
				a := readAlone(t, scope, path, cards[i], more)
				files, skipped = append(files, a), append(skipped, a.skipped...)
			}
			for threads := 1; threads <= 3; threads++ {
				width := []int{1, 2, 8}[random.IntN(3)]
				want, end := inTurn(files, width)
				room := 1 + random.IntN(64)
				name := fmt.Sprintf("threads=%d interleave=%d room=%d %s", threads, width, room, corrupt)
				h := openDeck(t, scope, "open_files", name, paths, cards, more+fmt.Sprintf(`, "thread_num": %d, "interleave": %d`, threads, width))
				for pass := range 2 {
					got, rows, err := numbersOf(t, h, room)
					together += rows
					if !slices.Equal(got, want) || !sameError(err, end) {
						t.Fatalf("%s, pass %d: expected %d numbers and %v, found %d and %v", name, pass, len(want), end, len(got), err)
					}
					if found := sortedPlaces(h.Stats().Extra["ledger"].([]damaged)); pass == 0 && end == io.EOF && !slices.Equal(found, sortedPlaces(skipped)) {
						t.Errorf("%s: expected %v, found %v", name, skipped, found)
					}
					if err := h.ReInit(); err != nil {
						t.Fatal(err)
					}
				}

				name += " unordered"
				h = openDeck(t, scope, "open_files", name, paths, cards, more+fmt.Sprintf(`, "thread_num": %d, "ordered": false`, threads))
				got, rows, err := numbersOf(t, h, room)
				together += rows
				slices.Sort(got)
				all, _ := inTurn(files, 1)
				if end == io.EOF && (!slices.Equal(got, all) || err != io.EOF) {
					t.Errorf("%s: expected %d numbers, found %d and %v", name, len(all), len(got), err)
				}
				its := func(a byItself) bool { return a.err != io.EOF && sameError(a.err, err) }
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

func alikeCards(n int) (cards [][]byte) {
	for i := range n {
		cards = append(cards, cardOf('a', int64(i)))
	}
	return cards
}

// A reset ends what is being read, wherever that is.
func TestAResetInABundle(t *testing.T) {
	scope := counted(t)
	cards := alikeCards(300)
	for i := 50; i < 300; i += 50 {
		cards[i] = cardOf('a', int64(i), int64(i))
	}
	paths := writeCards(t, cards)
	for _, ordered := range []bool{true, false} {
		h := create(t, scope, "open_files", fmt.Sprint(ordered), nil, openCards(paths, fmt.Sprintf(`, "thread_num": 2, "ordered": %v`, ordered)))
		m := h.reader.(*MultipleReader)
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
			if m.held != 0 || m.waiting != 0 || m.back != 0 || m.alike != 0 || m.cut.Load() {
				t.Fatalf("found %d bytes, %d files, %d handed back, %d alike", m.held, m.waiting, m.back, m.alike)
			}
			m.mu.Unlock()
		}
		if got, _, err := numbersOf(t, h, 32); len(got) != 305 || err != io.EOF {
			t.Errorf("found %d, %v", len(got), err)
		}
	}
}

// A thread that comes to a pipe among files that are alike opens it once, so that whoever writes into it is not cut off;
// others go on with the files behind it; and a reset does not wait for it.
func TestAPipeInABundle(t *testing.T) {
	const count = 100
	for i := range 20 {
		ordered, at := i%2 == 0, 20+i
		scope := counted(t)
		cards := alikeCards(count)
		cards[at] = nil
		paths := writeCards(t, cards)
		if err := errors.Join(os.Remove(paths[at]), syscall.Mkfifo(paths[at], 0o600)); err != nil {
			t.Fatal(err)
		}
		h := create(t, scope, "open_files", "files", nil, openCards(paths, fmt.Sprintf(`, "thread_num": 2, "ordered": %v`, ordered)))
		before := at
		if !ordered {
			before = count - 1
		}
		for range 3 { // it is not written into
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
		go func() { written <- os.WriteFile(paths[at], cardOf('a', int64(at)), 0) }()
		got, _, err := numbersOf(t, h, 32)
		if err != io.EOF || len(got) != count || ordered && !slices.IsSorted(got) {
			t.Errorf("found %v, %v", got, err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}

// A bundle ends where it has taken long, or is cut off by a reset, and another goes on from there.
func TestABundleEndsEarly(t *testing.T) {
	paths := writeCards(t, alikeCards(300))
	for _, threads := range []int{1, 2} {
		h := create(t, counted(t), "open_files", "files", nil, openCards(paths, fmt.Sprintf(`, "thread_num": %d`, threads)))
		m := h.reader.(*MultipleReader)
		m.slow = 0
		got, together, err := numbersOf(t, h, 32)
		if err != io.EOF || len(got) != 300 || !slices.IsSorted(got) || together != 0 {
			t.Errorf("found %d, %d of them together, %v", len(got), together, err)
		}
		like := m.like
		if like == nil {
			t.Fatal("no file is like another")
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		m.mu.Lock()
		m.like, m.alike = like, leastAlike
		l := m.lane(m.sources[:10], like)
		m.stand(l, 0)
		m.cut.Store(true)
		if n := m.gather(l, 0); n != 0 || len(l.bundle) != 10 || l.end != nil || !l.back || m.back != 1 {
			t.Errorf("found %d, %d files, end %v, %d handed back", n, len(l.bundle), l.end, m.back)
		}
		m.mu.Unlock()
	}
}

// A file of another format, and one that was begun before, are not read in a bundle, nor are those behind one that is unlike
// the others, until more are known to be alike.
func TestWhatIsNotReadInABundle(t *testing.T) {
	for name, change := range map[string]func(m *MultipleReader, paths []string){
		"format": func(m *MultipleReader, _ []string) {
			other := *m.sources[3].format
			m.sources[3].format = &other
		},
		"begun": func(m *MultipleReader, paths []string) { m.files.opened.path = paths[3] },
		"bytes": func(_ *MultipleReader, paths []string) {
			if err := os.WriteFile(paths[3], cardOf('b', 3), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		paths := writeCards(t, alikeCards(10))
		h := create(t, counted(t), "open_files", name, nil, openCards(paths, ""))
		m := h.reader.(*MultipleReader)
		first := pyfeed.LoDTensor{DType: pyfeed.Int64}
		m.like, m.alike = &likeness{format: m.sources[0].format, head: cardOf('a'), first: first, size: 8}, leastAlike
		m.slow = time.Hour // the limit in time is not what ends the bundle
		change(m, paths)
		m.mu.Lock()
		l := m.lane(m.sources, m.like)
		m.stand(l, 0)
		if n := m.gather(l, 0); n != 3 || m.alike != 0 || len(m.standby) != 3 || m.standby[1].file.path != paths[3] {
			t.Errorf("%s: found %d, %d alike, %d lanes", name, n, m.alike, len(m.standby))
		}
		if m.begin(m.standby[2]); m.standby[2].bundle != nil || len(m.standby) != 4 || len(m.standby[3].bundle) != 5 {
			t.Errorf("%s: found a bundle of %d, %d lanes", name, len(m.standby[2].bundle), len(m.standby))
		}
		m.standby[2].busy = false
		m.mu.Unlock()
	}
}

// Short files are known to be alike when a few in a row were.
func TestFilesAreCompared(t *testing.T) {
	m := &MultipleReader{}
	a, b := &likeness{head: []byte("a"), size: 8}, &likeness{head: []byte("b"), size: 8}
	wide := &likeness{head: []byte("a"), size: 16}
	_ = wide.first.SetDims(pyfeed.Dims{2})
	for i, c := range []struct {
		like  *likeness
		alike int
	}{{a, 1}, {a, 2}, {nil, 0}, {a, 1}, {a, 2}, {b, 1}, {b, 2}, {a, 1}, {wide, 1}, {wide, 2}} {
		if m.compare(&lane{like: c.like}); m.alike != c.alike {
			t.Errorf("%d: expected %d, found %d", i, c.alike, m.alike)
		}
	}
}

// How many files a thread claims.
func TestSeveral(t *testing.T) {
	for _, c := range []struct{ alike, most, threads, size, left, want int }{
		{leastAlike - 1, 32, 1, 8, 100, 1},
		{leastAlike, 32, 1, 8, 100, 32},
		{leastAlike, 1000, 1, 8, 100, worthWaking},
		{leastAlike, 32, 2, 8, 100, 16},
		{leastAlike, 32, 3, 8, 100, 11},
		{leastAlike, 1, 2, 8, 100, 1},
		{leastAlike, 32, 2, 64 << 10, 100, 8},
		{leastAlike, 32, 2, 10 * mostBundle, 100, 1},
		{leastAlike, 32, 2, 8, 5, 5},
	} {
		m := &MultipleReader{threads: c.threads, sources: make([]source, c.left)}
		m.like, m.alike, m.most = &likeness{size: c.size}, c.alike, c.most
		if got := m.several(); got != c.want {
			t.Errorf("%+v: found %d", c, got)
		}
	}
}

// A bundle that ends before its last file leaves everything behind that at its place.
func TestABundleIsParted(t *testing.T) {
	sources := make([]source, 10)
	for i := range sources {
		sources[i].path = fmt.Sprint(i)
	}
	for _, c := range []struct {
		n      int
		unlike bool
		ahead  bool
		want   string
	}{
		{0, true, true, "[2] [3 4 5]"},
		{0, false, true, "[2 3 4 5]"},
		{2, true, true, "[2 3] [4] [5]"},
		{2, false, true, "[2 3] [4 5]"},
		{3, true, true, "[2 3 4] [5]"},
		{3, false, true, "[2 3 4] [5]"},
		{2, true, false, "[4] [5]"}, // the rest is in place of a file that has ended
		{0, true, false, "[3 4 5]"},
	} {
		m := &MultipleReader{sources: sources}
		m.like, m.alike = &likeness{size: 100}, leastAlike
		l := m.lane(sources[2:6], m.like)
		if c.ahead {
			m.stand(m.lane(sources[:2], m.like), 0)
			m.stand(l, 1)
		}
		m.stand(m.lane(sources[6:], m.like), len(m.standby))
		var pipe *os.File
		if c.unlike {
			read, write, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			write.Close()
			pipe = read
		}
		m.part(l, c.n, c.unlike, pipe)
		var found []string
		files, held, back := 0, 0, 0
		for _, l := range m.standby {
			of := l.bundle
			if of == nil {
				of = []source{l.file.source}
			} else {
				held += 100 * len(of)
			}
			var names []string
			for _, s := range of {
				names = append(names, s.path)
			}
			files += len(of)
			if l.back {
				back++
			}
			found = append(found, fmt.Sprint(names))
		}
		want := c.want + " [6 7 8 9]"
		if c.ahead {
			want = "[0 1] " + want
		} else if c.n == 0 {
			back++ // in its place
		}
		if got := fmt.Sprint(found); got != "["+want+"]" {
			t.Errorf("%+v: found %s", c, got)
		}
		if m.waiting != files || m.held != held || m.back != back {
			t.Errorf("%+v: expected %d files, %d bytes, %d handed back, found %d, %d, %d", c, files, held, back, m.waiting, m.held, m.back)
		}
		m.standby[0].busy = true // and so others come next
		for _, next := range append(m.standby, l) {
			if next.back && next != m.neediest() && next != l {
				t.Errorf("%+v: the next is not that of %s", c, next.file.path)
			}
			if next.back {
				next.back = false
				m.back--
			}
			if next.file.pipe != nil && next.file.path != fmt.Sprint(2+c.n) {
				t.Errorf("%+v: file %s is the pipe", c, next.file.path)
			}
			next.file.close()
		}
		if c.unlike && pipe.Close() == nil {
			t.Errorf("%+v: the pipe is open", c)
		}
	}
}

// The instances of a batch lie one behind the other, where each file has one and all are alike, whichever threads read them.
func TestABatchOfFilesLiesTogether(t *testing.T) {
	paths := writeCards(t, alikeCards(300))
	for _, c := range []struct{ threads, size int }{{1, 32}, {2, 32}, {3, 10}, {2, 33}} {
		h := create(t, counted(t), "open_files", "files", nil, openCards(paths, fmt.Sprintf(`, "thread_num": %d, "interleave": 2`, c.threads)))
		h.reader.(*MultipleReader).slow = time.Hour
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
		if most := 2; apart > most { // before it is known that files are alike
			t.Errorf("%+v: the instances of %d batches lie apart", c, apart)
		}
	}
}
