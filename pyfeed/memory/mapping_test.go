package memory

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unsafe"
)

func mapped(t *testing.T, data []byte) (*Mapping, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := newMapping(int(f.Fd()), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return m, name
}

func TestMappingIsCountedUntilItsLastWindowGoes(t *testing.T) {
	before := Count()
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*WindowSize/16)
	m, name := mapped(t, data)
	if !bytes.Equal(m.Bytes(), data) {
		t.Fatal("the mapping is not the file")
	}
	first, third := m.Window(10, 2), m.Window(2*WindowSize, 1)
	again := m.Window(5, 1) // behind: a window of its own
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if s := Count(); s.Live[Mapped]-before.Live[Mapped] != int64(len(data)) || s.Buffers-before.Buffers != 3 {
		t.Errorf("found %+v", s)
	}
	for _, b := range []*Buffer{first, third, first} {
		b.Release()
	}
	if !bytes.Equal(m.Bytes()[:100], data[:100]) { // pages that were given back come again
		t.Error("the mapping is not the file")
	}
	again.Release()
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// What is missing of a file that has become shorter reads as zeros, and is noted.
func TestAShrunkMappingReadsAsZeros(t *testing.T) {
	page := int(pageSize)
	m, name := mapped(t, bytes.Repeat([]byte{7}, 20*page+100))
	defer m.Close()
	if m.Bytes()[20*page] != 7 || m.Torn() != nil {
		t.Fatal("damaged from the start")
	}
	w := m.Window(0, 1)
	defer w.Release()
	if err := os.Truncate(name, int64(3*page)); err != nil {
		t.Fatal(err)
	}
	if m.Bytes()[3*page-1] != 7 || m.Torn() != nil {
		t.Error("what is left was not left alone")
	}
	sum := 0
	for _, b := range m.Bytes() {
		sum += int(b)
	}
	if sum != 7*3*page {
		t.Errorf("expected a sum of %d, found %d", 7*3*page, sum)
	}
	if m.Torn() == nil || w.TornAt(w.Pointer(), 1) == nil {
		t.Error("nobody noted it")
	}
}

// Memory of whatever kind that lies in a torn mapping is known by its address, as long as the mapping is there.
func TestTornAt(t *testing.T) {
	page := int(pageSize)
	whole, _ := mapped(t, bytes.Repeat([]byte{7}, 4*page))
	defer whole.Close()
	m, name := mapped(t, bytes.Repeat([]byte{7}, 4*page))
	m.name = name
	at := func(m *Mapping, offset, size int) *Tear { return TornAt(unsafe.Pointer(&m.Bytes()[offset]), size) }
	if tear := at(m, 0, page); tear != nil || AnyTorn() {
		t.Fatalf("torn from the start: %v", tear)
	}
	if err := os.Truncate(name, int64(page)); err != nil {
		t.Fatal(err)
	}
	faults := FaultCount()
	if m.Bytes()[3*page] != 0 || FaultCount() != faults+1 {
		t.Errorf("expected a fault, found %d", FaultCount()-faults)
	}
	for _, offset := range []int{0, 3 * page, 4*page - 1} {
		if tear := at(m, offset, 1); tear == nil || tear.File != name || tear.String() != "the file shrank before this was read" {
			t.Errorf("byte %d: found %v", offset, tear)
		}
	}
	if tear := at(m, 0, 0); tear != nil {
		t.Errorf("nothing is torn, found %v", tear)
	}
	if tear := at(whole, 0, page); tear != nil {
		t.Errorf("another file is torn, found %v", tear)
	}
	local := make([]byte, 10)
	if tear := TornAt(unsafe.Pointer(&local[0]), 10); tear != nil {
		t.Errorf("other memory is torn, found %v", tear)
	}
	m.Close()
	if AnyTorn() {
		t.Error("torn still, though it is gone")
	}
}

// What was found missing once is found missing again after Faults.
func TestFaultsAreFoundAgain(t *testing.T) {
	page := int(pageSize)
	m, name := mapped(t, bytes.Repeat([]byte{7}, 8*page))
	defer m.Close()
	if err := os.Truncate(name, int64(2*page)); err != nil {
		t.Fatal(err)
	}
	sum := func() (n int) {
		for at := 0; at < 8*page; at += page {
			n += int(m.Bytes()[at])
		}
		return n
	}
	for _, first := range []int{6, 4, 2} { // in which order the pages are met makes no difference
		if m.Bytes()[first*page] != 0 {
			t.Fatalf("page %d is there", first)
		}
	}
	for range 3 {
		before := RearmFaults()
		if FaultCount() != before {
			t.Error("a fault without an access")
		}
		if n := sum(); n != 2*7 {
			t.Errorf("expected a sum of %d, found %d", 2*7, n)
		}
		if FaultCount() == before {
			t.Error("zeros were read without a fault")
		}
		if after := FaultCount(); sum() != 2*7 || FaultCount() != after {
			t.Error("a second fault without Faults")
		}
	}
}

// A file that was written to makes all that is held of it torn.
func TestTearOfAFileWrittenTo(t *testing.T) {
	m, _ := mapped(t, bytes.Repeat([]byte{7}, 100))
	defer m.Close()
	before := FaultCount()
	m.Tear()
	m.Tear()
	if tear := TornAt(unsafe.Pointer(&m.Bytes()[0]), 1); tear == nil || tear.String() != "the file was written to before this was read" {
		t.Errorf("found %v", tear)
	}
	if FaultCount() == before || m.Bytes()[0] != 7 {
		t.Error("expected it to be counted, and the bytes to be left alone")
	}
}

// mapAgain maps the file of that name as it is now.
func mapAgain(t *testing.T, p *Pool, name string) *Mapping {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Map(name, int(f.Fd()), info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestAFileStaysMappedForWhoMapsItAgain(t *testing.T) {
	before := Count()
	p := NewPool(File)
	name := filepath.Join(t.TempDir(), "file")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(name+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*WindowSize/16)
	write(data)

	first := mapAgain(t, p, name)
	second := mapAgain(t, p, name) // while the first is used
	if first == second {
		t.Fatal("two who read a file at a time have one mapping")
	}
	window := first.Window(WindowSize, 1)
	first.Close()
	if m := mapAgain(t, p, name); m == first || m == second {
		t.Fatal("a mapping is kept while it is used")
	} else {
		m.Close()
	}
	window.Release()
	second.Close() // one is kept already
	again := mapAgain(t, p, name)
	if again == second {
		t.Error("expected the one that was given up first")
	}
	if !bytes.Equal(again.Bytes(), data) || again.Torn() != nil {
		t.Error("the mapping is not the file")
	}
	again.Close()
	if err := os.Chtimes(name, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if m := mapAgain(t, p, name); m == again {
		t.Error("a file that was written to since was not mapped anew")
	} else {
		again = m
	}
	again.Close()

	changed := bytes.ToUpper(data)
	write(changed)
	m := mapAgain(t, p, name)
	if m == again || !bytes.Equal(m.Bytes(), changed) {
		t.Error("another file of that name: expected what is in it")
	}
	m.Close()
	if err := os.Truncate(name, 2*WindowSize); err != nil {
		t.Fatal(err)
	}
	shorter := mapAgain(t, p, name)
	if !bytes.Equal(shorter.Bytes(), changed[:2*WindowSize]) || shorter.Torn() != nil {
		t.Error("a shorter file: expected what is in it")
	}
	if err := os.Truncate(name, 1); err != nil {
		t.Fatal(err)
	}
	if shorter.Bytes()[WindowSize] != 0 || shorter.Torn() == nil {
		t.Error("a file that shrinks: expected zeros, and a note")
	}
	shorter.Close()
	if err := os.Truncate(name, 2*WindowSize); err != nil {
		t.Fatal(err)
	}
	if m = mapAgain(t, p, name); m == shorter || m.Torn() != nil {
		t.Error("what has shrunk was kept")
	}
	p.Close()
	m.Close() // after its pool
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

func TestMappingsAreKeptUpToABound(t *testing.T) {
	before, none := Count(), kept.bytes
	p := NewPool(File)
	folder := t.TempDir()
	names := []string{filepath.Join(folder, "large"), filepath.Join(folder, "small")}
	sizes := []int64{mostKept + WindowSize/2, 2 * WindowSize}
	var all []*Mapping
	for i, name := range names {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, sizes[i]); err != nil { // it takes no place on the disk
			t.Fatal(err)
		}
		all = append(all, mapAgain(t, p, name))
	}
	if all[0].kept != mostKept-none || all[1].kept != 0 || kept.bytes != mostKept {
		t.Errorf("expected %d bytes of the first to be kept, found %d and %d", mostKept-none, all[0].kept, all[1].kept)
	}
	inside, behind := all[0].Window(0, 1), all[0].Window(mostKept, 1)
	if w := inside.owner.(*window); !w.kept {
		t.Error("the first window is not kept")
	}
	if w := behind.owner.(*window); w.kept {
		t.Error("the last window is kept")
	}
	inside.Release()
	behind.Release()
	for _, m := range all {
		m.Close()
	}
	if n := Count().Live[Mapped] - before.Live[Mapped]; n != sizes[0] {
		t.Errorf("expected %d bytes to be mapped, found %d", sizes[0], n)
	}
	if m := mapAgain(t, p, names[0]); m != all[0] {
		t.Error("the first was not kept")
	} else {
		m.Close()
	}
	p.Trim()
	if after := Count(); after != before || kept.bytes != none {
		t.Errorf("%+v and %d kept before, %+v and %d after", before, none, after, kept.bytes)
	}
	p.Close()
	files := kept.files
	kept.files = mostKeptFiles
	last := mapAgain(t, p, names[1])
	if last.kept != 0 {
		t.Error("a file more than there may be is kept")
	}
	last.Close()
	kept.files = files

	c := NewUnpooled(File) // which keeps nothing
	defer c.Close()
	m := mapAgain(t, c, names[1])
	if m.Close(); Count() != before {
		t.Error("a pool that keeps nothing kept a mapping")
	}
}

func TestMapRefusesNothing(t *testing.T) {
	for _, size := range []int64{0, -1, 1 << 50} {
		if _, err := newMapping(0, size); err == nil {
			t.Errorf("a mapping of %d bytes was made", size)
		}
	}
}

func TestArenaPiecesOutliveIt(t *testing.T) {
	before := Count()
	p := NewPool(File)
	a := NewArena(p)
	var pieces [][]byte
	var held []*Buffer
	for i := range 5000 {
		n := i % 300
		if i == 77 {
			n = arenaBlock // a buffer of its own
		}
		piece, b, err := a.Get(n)
		if err != nil || len(piece) != n {
			t.Fatalf("asked for %d, found %d, %v", n, len(piece), err)
		}
		for j := range piece {
			piece[j] = byte(i)
		}
		pieces, held = append(pieces, piece), append(held, b)
	}
	a.Close()
	p.Close()
	for i, piece := range pieces {
		for _, b := range piece {
			if b != byte(i) {
				t.Fatalf("piece %d was written over", i)
			}
		}
		held[i].Release()
	}
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}
