package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestUniformReader(t *testing.T) {
	dir := t.TempDir()
	head, data := []byte("sixteen bytes..."), noise(1000)
	write := func(name string, parts ...[]byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, bytes.Join(parts, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	other := append([]byte("S"), head[1:]...)
	a := NewUniformReader(head)
	for _, c := range []struct {
		path string
		same bool
	}{
		{write("same", head, data), true},
		{write("longer", head, data, []byte{0}), false},
		{write("shorter", head, data[:999]), false},
		{write("head", head), false},
		{write("less", head[:3]), false},
		{write("empty"), false},
		{write("other", other, data), false},
		{write("again", head, data), true},
		{write("same.gz", head, data), false}, // its suffix stands for a compression
		{dir, false},
		{filepath.Join(dir, "none"), false},
		{filepath.Join(dir, "same", "below"), false},
		{"/dev/zero", false},
	} {
		to := make([]byte, 1000)
		same, pipe := a.Read(c.path, to)
		if same != c.same || pipe != nil || same && !bytes.Equal(to, data) {
			t.Errorf("%s: found %v, %v", c.path, same, pipe)
		}
	}
	if NewUniformReader(head[:minHead-1]) != nil || NewUniformReader(head[:minHead]) == nil {
		t.Error("expected nil for a head too short to detect compression")
	}
}

// A pipe that a UniformReader has opened stays open for reading to its end, so that its writer never gets SIGPIPE.
func TestUniformReaderKeepsPipesOpen(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	same, pipe := NewUniformReader(make([]byte, minHead)).Read(fifo, make([]byte, 5))
	if same || pipe == nil {
		t.Fatalf("found %v, %v", same, pipe)
	}
	w, err := os.OpenFile(fifo, os.O_WRONLY|syscall.O_NONBLOCK, 0) // fails without a reader
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write([]byte("written")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(fifo, Options{Pipe: pipe}, pool(t))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := readAll(f); err != nil || string(got) != "written" {
		t.Errorf("found %q, %v", got, err)
	}
}
