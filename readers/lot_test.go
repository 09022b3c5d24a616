package readers

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// What a shard lets go of may be unmapped before the batch is made of what it keeps.
func TestALotDoesNotAskForFilesThatItHasLetGoOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shrinks")
	size := 2 * os.Getpagesize()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	m, err := pool.Map(path, int(f.Fd()), int64(size))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	spans := []Span{{0, 1}, {uint32(size) - 1, 1}}
	var l Lot
	defer l.drop()
	add := func(keep bool) {
		before := l.mark()
		l.AddRows(NewSequences(m.Bytes(), spans, m.Window(0, len(spans))))
		if kept := l.keep(before, func() bool { return keep }); kept != 0 != keep {
			t.Fatalf("expected all or none to be kept, found %d", kept)
		}
	}
	add(false)
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	if last := m.Bytes()[size-1]; last != 0 || !m.Shrunk() {
		t.Fatalf("expected a zero in place of what is gone, found %d", last)
	}
	if err := l.intact(); err != nil {
		t.Errorf("all let go of: expected no error, found %v", err)
	}
	add(true)
	e, is := l.intact().(*pyfeed.Error)
	if !is || e.Kind != pyfeed.Corrupt {
		t.Errorf("some kept: expected an error of the file, found %v", e)
	}
}
