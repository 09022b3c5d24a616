package memory

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
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
	m, err := Map(int(f.Fd()), int64(len(data)))
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
	if m.Bytes()[20*page] != 7 || m.Shrunk() {
		t.Fatal("damaged from the start")
	}
	w := m.Window(0, 1)
	defer w.Release()
	if err := os.Truncate(name, int64(3*page)); err != nil {
		t.Fatal(err)
	}
	if m.Bytes()[3*page-1] != 7 || m.Shrunk() {
		t.Error("what is left was not left alone")
	}
	sum := 0
	for _, b := range m.Bytes() {
		sum += int(b)
	}
	if sum != 7*3*page {
		t.Errorf("expected a sum of %d, found %d", 7*3*page, sum)
	}
	if !m.Shrunk() || !w.Shrunk() {
		t.Error("nobody noted it")
	}
}

func TestMapRefusesNothing(t *testing.T) {
	for _, size := range []int64{0, -1, 1 << 50} {
		if _, err := Map(0, size); err == nil {
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
