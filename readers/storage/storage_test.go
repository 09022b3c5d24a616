package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

var kinds = []string{"none", "gzip", "zlib", "zstd", "snappy"}

// pool returns a pool. The test fails if it does not release all memory of the pool.
func pool(t testing.TB) *memory.Pool {
	t.Helper()
	before := memory.Count()
	p := memory.NewPool(memory.File)
	t.Cleanup(func() {
		p.Close()
		if after := memory.Count(); after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
	return p
}

// noise returns data that compresses to about two fifths of its size, and does not begin like compressed data.
func noise(n int) []byte {
	data := make([]byte, 0, n+64)
	random := rand.NewPCG(1, uint64(n))
	for len(data) < n {
		for range 4 {
			data = binary.LittleEndian.AppendUint64(data, random.Uint64()&0x7777777777777777)
		}
		data = append(data, make([]byte, 32)...)
	}
	return data[:n:n]
}

func write(t testing.TB, name, compression string, data []byte) {
	t.Helper()
	s, err := Create(name, compression)
	if err != nil {
		t.Fatal(err)
	}
	for part := data; len(part) > 0; {
		n := min(len(part), 100_000)
		if _, err := s.Write(part[:n]); err != nil {
			t.Fatal(err)
		}
		part = part[n:]
	}
	if s.Offset() != int64(len(data)) {
		t.Errorf("offset: expected %d, found %d", len(data), s.Offset())
	}
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
}

// readAll reads in pieces of many sizes.
func readAll(f *File) ([]byte, error) {
	var all []byte
	for n := 1; ; n = n*3%200_001 + 1 {
		if f.Offset() != int64(len(all)) {
			return all, errors.New("the offset is not the number of bytes read")
		}
		b, err := f.Peek(n)
		if err != nil || len(b) == 0 {
			return all, err
		}
		b = b[:min(n, len(b))]
		all = append(all, b...)
		f.Skip(len(b))
	}
}

func TestWriteThenRead(t *testing.T) {
	p := pool(t)
	dir := t.TempDir()
	for _, size := range []int{0, 1, 100, blockSize, blockSize + 3} {
		data := noise(size)
		for _, kind := range kinds {
			if testing.Short() && size == blockSize && kind != "none" {
				continue
			}
			name := filepath.Join(dir, kind)
			write(t, name, kind, data)
			for _, o := range []Options{{Compression: kind}, {Compression: kind, IO: "read"}, {}} {
				if o.Compression == "" && kind == "zlib" { // zlib cannot be detected
					continue
				}
				if o.IO == "read" && kind != "none" { // the same as without IO
					continue
				}
				f, err := Open(name, o, p)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					got, err := readAll(f)
					if err != nil || !bytes.Equal(got, data) {
						t.Errorf("%d bytes, %s, %+v: found %d, %v", size, kind, o, len(got), err)
					}
					if err := f.Rewind(); err != nil {
						t.Error(err)
					}
				}
				if want := kind == "none" && o.IO != "read" && size > smallFile; f.IsMapped() != want {
					t.Errorf("%d bytes, %s, %+v: mapped: %v", size, kind, o, f.IsMapped())
				}
				if f.IsCompressed() != (kind != "none") {
					t.Errorf("%s: compressed: %v", kind, f.IsCompressed())
				}
				f.Close()
			}
			whole, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			f, err := New("memory", whole, Options{Compression: kind}, p)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readAll(f); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %s, from memory: found %d, %v", size, kind, len(got), err)
			}
			f.Close()
		}
	}
}

func TestHeldViewsStayValid(t *testing.T) {
	p := pool(t)
	data := noise(4 * blockSize)
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, "none", data)
	for _, io := range []string{"map", "read"} {
		f, err := Open(name, Options{IO: io}, p)
		if err != nil {
			t.Fatal(err)
		}
		var views [][]byte
		var held []*memory.Buffer
		const n = 300_001
		for at := 0; at+n <= len(data); at += n {
			b, err := f.Peek(n)
			if err != nil {
				t.Fatal(err)
			}
			views, held = append(views, b[:n]), append(held, f.Hold(1))
			f.Skip(n)
		}
		f.Close()
		for i, v := range views {
			if !bytes.Equal(v, data[i*n:(i+1)*n]) {
				t.Errorf("%s: piece %d has changed", io, i)
			}
			held[i].Release()
		}
	}
}

// A length in a file allocates no memory for data that does not exist.
func TestPeekBeyondTheEnd(t *testing.T) {
	p := pool(t)
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, "gzip", noise(1000))
	f, err := Open(name, Options{}, p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := f.Peek(1 << 60)
	if err != nil || len(b) != 1000 {
		t.Errorf("expected the 1000 bytes of the file, found %d, %v", len(b), err)
	}
	if live := memory.Count().Live[memory.File]; live > 4*blockSize {
		t.Errorf("found %d bytes in use", live)
	}
}

func TestTruncatedCompressedFileIsAnError(t *testing.T) {
	p := pool(t)
	dir := t.TempDir()
	data := noise(300_000)
	for _, kind := range kinds[1:] {
		name := filepath.Join(dir, kind)
		write(t, name, kind, data)
		whole, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := New("cut", whole[:len(whole)*2/3], Options{Compression: kind}, p)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readAll(f)
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.At == nil || e.At.Offset < int64(len(got)) {
			t.Errorf("%s: expected Corrupt after %d bytes, found %v", kind, len(got), err)
		}
		if !bytes.HasPrefix(data, got) {
			t.Errorf("%s: found other bytes", kind)
		}
		f.Close()
	}
}

func TestShrunkFile(t *testing.T) {
	p := pool(t)
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, "none", noise(100_000))
	f, err := Open(name, Options{}, p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(name, 4096); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(f); err != nil {
		t.Fatal(err)
	}
	if err := f.CheckTruncated(); err == nil || !strings.Contains(err.Error(), "expected 100000 bytes, found 4096") {
		t.Errorf("found %v", err)
	}
}

func TestSystemErrorsNameTheFile(t *testing.T) {
	p := pool(t)
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing")
	_, err := Open(missing, Options{}, p)
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != pyfeed.IO || e.At.File != missing || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("found %v", err)
	}
	if _, err = Open(dir, Options{}, p); err == nil || !strings.Contains(err.Error(), "found a directory") {
		t.Errorf("found %v", err)
	}
	if _, err = Create(filepath.Join(missing, "x"), ""); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("found %v", err)
	}
	if _, err = Create(filepath.Join(dir, "x"), "lzma"); err == nil || !strings.Contains(err.Error(), `found "lzma"`) {
		t.Errorf("found %v", err)
	}
	for _, o := range []Options{{Compression: "lzma"}, {IO: "telepathy"}} {
		if o.Check() == nil {
			t.Errorf("%+v passed", o)
		}
		_, err := Open(missing, o, p)
		_, again := New("memory", nil, o, p)
		for _, err := range []error{err, again} {
			if !errors.As(err, &e) || e.Kind != pyfeed.Invalid {
				t.Errorf("%+v: found %v", o, err)
			}
		}
	}
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func TestUncommittedFileDoesNotExist(t *testing.T) {
	for _, kind := range kinds {
		dir := t.TempDir()
		name := filepath.Join(dir, "file")
		if err := os.WriteFile(name, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Create(name, kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Write(noise(1 << 20)); err != nil {
			t.Fatal(err)
		}
		if all := names(t, dir); len(all) != 2 || !strings.HasSuffix(all[0], ".partial") {
			t.Errorf("found %v", all)
		}
		s.Abort()
		s.Abort()
		if all := names(t, dir); len(all) != 1 {
			t.Errorf("found %v", all)
		}
		if old, _ := os.ReadFile(name); string(old) != "old" {
			t.Errorf("found %q", old)
		}
		if _, err := s.Write([]byte("x")); err == nil {
			t.Error("wrote to a closed file")
		}
		if err := s.Commit(); err == nil {
			t.Error("completed a file that was aborted")
		}
	}
}

func TestOnlyFilesAreReplaced(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	for path, found := range map[string]string{pipe: "found a pipe", dir: "found a directory", loop: "found too many links", "": "found an empty string"} {
		if _, err := Create(path, "none"); err == nil || !strings.Contains(err.Error(), found) {
			t.Errorf("%q: expected %q, found %v", path, found, err)
		}
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Errorf("expected the pipe still there, found %v, %v", info, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("expected the pipe and the link, found %v", left)
	}
}

func TestLinkTargetIsReplaced(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	// link -> folder/../new, where folder is a link to a/b: so the target is a/new, which does not exist at first.
	for name, to := range map[string]string{"folder": "a/b", "link": "folder/../new"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	for _, text := range []string{"one", "two"} {
		s, err := Create(link, "none")
		if err == nil {
			if _, err = s.Write([]byte(text)); err == nil {
				err = s.Commit()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(filepath.Join(dir, "a", "new")); err != nil || string(got) != text {
			t.Errorf("expected %q, found %q, %v", text, got, err)
		}
		if info, err := os.Stat(link); text == "two" && (err != nil || info.Mode().Perm() != 0o640) {
			t.Errorf("expected the mode of the old file, found %v, %v", info, err)
		}
		if err := os.Chmod(link, 0o640); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
			t.Errorf("expected the link still there, found %v, %v", info, err)
		}
	}
}

// The limit on the size of files has the effect of a full disk, except for the error number.
func TestAFullDiskLeavesNothing(t *testing.T) {
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int{100_000, 10_000_000} { // found in Commit, and before Commit
		dir := t.TempDir()
		name := filepath.Join(dir, "file")
		s, err := Create(name, "none")
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 50_000, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		_, err = s.Write(noise(size))
		if err == nil {
			err = s.Commit()
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.IO || e.At.File != name || !errors.Is(err, syscall.EFBIG) {
			t.Errorf("found %v", err)
		}
		s.Abort()
		if all := names(t, dir); len(all) != 0 {
			t.Errorf("found %v", all)
		}
	}
}

// The suffix gives the compression. With any compression, bytes at the beginning can be written last.
func TestPatch(t *testing.T) {
	p := pool(t)
	for end, magic := range map[string]string{"": "count", ".gz": "\x1f\x8b", ".TGZ": "\x1f\x8b", ".zst": "\x28\xb5\x2f\xfd", ".sz": "\xff\x06", ".zlib": "\x78"} {
		dir := t.TempDir()
		name := filepath.Join(dir, "file"+end)
		s, err := CreatePatched(name, "")
		if err != nil {
			t.Fatal(err)
		}
		const text = "count: 0000, and more"
		if _, err = io.WriteString(s, text); err != nil {
			t.Fatal(err)
		}
		if err = s.Patch(7, []byte("1234")); err != nil {
			t.Fatal(err)
		}
		if _, err = io.WriteString(s, "."); err != nil || s.Offset() != int64(len(text)+1) || s.Err() != nil {
			t.Fatal(s.Offset(), s.Err(), err)
		}
		if all := names(t, dir); len(all) != 1 {
			t.Errorf("%s: found %v", end, all)
		}
		if err = s.Commit(); err != nil {
			t.Fatal(err)
		}
		var e *pyfeed.Error
		if _, err = s.Write([]byte("x")); !errors.As(err, &e) || e.Kind != pyfeed.State || s.Err() != err || s.Commit() != err || s.Patch(0, nil) != err {
			t.Errorf("%s: a write after Commit returned %v", end, err)
		}
		s.Abort()
		if found, _ := os.ReadFile(name); !strings.HasPrefix(string(found), magic) {
			t.Errorf("%s: found %q", end, found)
		}
		var o Options
		if end == ".zlib" {
			o.Compression = "zlib"
		}
		f, err := Open(name, o, p)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(f); string(got) != "count: 1234, and more." || err != nil {
			t.Errorf("%s: found %q, %v", end, got, err)
		}
		f.Close()
		info, err := os.Stat(name)
		if want := 0o666 &^ umask(); err != nil || info.Mode() != want {
			t.Errorf("expected mode %v, found %v, %v", want, info.Mode(), err)
		}
	}
}

// Data in a Spool is written in full, leaves no file behind, and is dropped with the Sink.
func TestSpool(t *testing.T) {
	for _, compression := range []string{"none", "zstd"} {
		for _, aborted := range []bool{false, true} {
			dir := t.TempDir()
			name := filepath.Join(dir, "file")
			s, err := Create(name, compression)
			if err != nil {
				t.Fatal(err)
			}
			var spools [2]*Spool
			for i := range spools {
				if spools[i], err = s.Spool(); err != nil {
					t.Fatal(err)
				}
				if _, err = spools[i].Write(noise(300_000 + i)); err != nil {
					t.Fatal(err)
				}
			}
			if all := names(t, dir); len(all) != 1 {
				t.Errorf("found %v", all)
			}
			for i, p := range spools {
				if n, err := p.WriteTo(s); n != int64(300_000+i) || err != nil {
					t.Fatal(n, err)
				}
			}
			if aborted {
				s.Abort()
			} else if err = s.Commit(); err != nil {
				t.Fatal(err)
			}
			if all := names(t, dir); len(all) != 1 && !aborted || len(all) != 0 && aborted {
				t.Errorf("aborted: %v, found %v", aborted, all)
			}
			if err = spools[0].file.Close(); !errors.Is(err, os.ErrClosed) {
				t.Errorf("aborted: %v, but the file is open: %v", aborted, err)
			}
			if aborted {
				continue
			}
			f, err := Open(name, Options{}, pool(t))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := readAll(f); !bytes.Equal(got, append(noise(300_000), noise(300_001)...)) || err != nil {
				t.Errorf("found %d bytes, %v", len(got), err)
			}
			f.Close()
		}
	}
}

// If the size is known, all requested data is read in one block.
func TestAKnownSizeIsReadAtOnce(t *testing.T) {
	p := pool(t)
	const size = 5*blockSize + 7
	name := filepath.Join(t.TempDir(), "file")
	write(t, name, "none", noise(size))
	for _, skip := range []int{0, 10, blockSize} {
		f, err := Open(name, Options{IO: "read"}, p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Peek(1); err != nil {
			t.Fatal(err)
		}
		f.Skip(skip)
		b, err := f.Peek(1 << 60)
		if err != nil || len(b) != size-skip {
			t.Errorf("expected %d bytes, found %d, %v", size-skip, len(b), err)
		}
		if live := memory.Count().Live[memory.File]; live != int64(size-skip+1) {
			t.Errorf("expected a block of %d bytes and one byte more, found %d", size-skip, live)
		}
		f.Close()
	}
	// A file that has grown since is read completely too.
	f, err := Open(name, Options{IO: "read"}, p)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err = os.WriteFile(name, noise(2*size), 0o666); err != nil {
		t.Fatal(err)
	}
	if b, err := f.Peek(1 << 60); !bytes.Equal(b, noise(2*size)) || err != nil {
		t.Errorf("expected %d bytes, found %d, %v", 2*size, len(b), err)
	}
}

// Files of any size are read one after the other, small and large ones, between a directory and a FIFO.
func TestFilesOfSeveralSizes(t *testing.T) {
	p := pool(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, usual := range []int{1, 1000, smallFile} {
		for _, other := range []int{0, 1, 999, 1000, 1001, smallFile, smallFile + 1, 3 * smallFile} {
			for i, size := range []int{usual, usual, usual, other, usual, usual, -1, usual, -2, usual} {
				name := filepath.Join(dir, "file")
				data := noise(max(size, 0))
				switch size {
				case -1:
					name = dir
				case -2:
					name, data = fifo, noise(usual)
					go func() { _ = os.WriteFile(fifo, data, 0) }()
				default:
					if err := os.WriteFile(name, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				f, err := Open(name, Options{}, p)
				if size == -1 {
					if err == nil || !strings.Contains(err.Error(), "a directory") {
						t.Errorf("found %v", err)
					}
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				got, err := readAll(f)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d files of %d, then %d: found %d bytes, %v", i, usual, size, len(got), err)
				}
				if small := size >= 0 && size <= smallFile; small != f.whole || size >= 0 && f.Size() != int64(size) {
					t.Errorf("%d bytes: whole %v, %d", size, f.whole, f.Size())
				}
				f.Close()
			}
		}
	}
}

func TestListReturnsAllEntries(t *testing.T) {
	dir := t.TempDir()
	for i := range 700 { // more than one system call returns
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat("x", i%200+1)+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o700), os.Symlink("nowhere", filepath.Join(dir, "link")),
		syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600), os.WriteFile(filepath.Join(dir, "\xff\n"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", filepath.Join(dir, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Chdir(dir)
	for _, given := range []string{dir, dir + "//", ".", "sub/..", "sub", "/dev"} {
		entries, err := os.ReadDir(given)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []string
		for _, e := range entries {
			want = append(want, fmt.Sprint(filepath.Join(given, e.Name()), e.Name(), e.Type()))
		}
		err = List(given, func(path, name string, kind os.FileMode) error {
			got = append(got, fmt.Sprint(path, name, kind))
			return nil
		})
		slices.Sort(want)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: expected %d, %q, found %d, %q, %v", given, len(want), want, len(got), got, err)
		}
	}
	stop, calls := errors.New("no more"), 0
	if err := List(dir, func(string, string, os.FileMode) error { calls++; return stop }); err != stop || calls != 1 {
		t.Errorf("expected to be stopped at once, found %d calls, %v", calls, err)
	}
	for _, given := range []string{"none", "link", "pipe"} {
		var system *os.PathError
		if err := List(given, nil); !errors.As(err, &system) || system.Path != given {
			t.Errorf("%s: found %v", given, err)
		}
	}
}
