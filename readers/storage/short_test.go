package storage

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// shortReads makes the system calls return at most n bytes at a time, as FUSE and network file systems may.
func shortReads(t *testing.T, n int) {
	t.Helper()
	one, several := pread, preadv
	t.Cleanup(func() { pread, preadv = one, several })
	pread = func(fd int, b []byte, at int64) (int, error) { return unix.Pread(fd, b[:min(n, len(b))], at) }
	preadv = func(fd int, parts [][]byte, at int64) (int, error) {
		var some [][]byte
		left := n
		for _, part := range parts {
			some = append(some, part[:min(left, len(part))])
			left -= len(some[len(some)-1])
		}
		return unix.Preadv(fd, some, at)
	}
}

// A read of fewer bytes than requested is not the end of the file.
func TestAShortReadIsNotTheEndOfAFile(t *testing.T) {
	dir, p := t.TempDir(), pool(t)
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	const usual = 1000
	data := noise(2 * usual)
	for _, n := range []int{1, 7, usual - 1, usual, usual + 1} {
		shortReads(t, n)
		for _, size := range []int{1, usual - 1, usual, usual + 1, 2 * usual} {
			f, err := Open(write("file", data[:size]), Options{Compression: "none"}, p)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(f)
			f.Close()
			if err != nil || !bytes.Equal(got, data[:size]) {
				t.Errorf("%d bytes a read: expected %d, found %d, %v", n, size, len(got), err)
			}
		}
	}
}

func TestAShortReadIsNotTheEndOfOneOfSeveralFiles(t *testing.T) {
	dir, head := t.TempDir(), []byte("sixteen bytes...")
	data := noise(1000)
	a := NewUniformReader(head)
	for _, n := range []int{1, 16, 17, 999, 1015, 1016, 1017} {
		shortReads(t, n)
		for _, more := range []int{-1, 0, 1, 500} {
			name := filepath.Join(dir, "file")
			content := append(bytes.Clone(head), append(bytes.Clone(data), make([]byte, 500)...)[:1000+more]...)
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
			to := make([]byte, 1000)
			same, pipe := a.Read(name, to)
			if same != (more == 0) || pipe != nil || same && !bytes.Equal(to, data) {
				t.Errorf("%d bytes a read, %d more than the others: found %v", n, more, same)
			}
		}
	}
}
