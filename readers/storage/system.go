package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openNonblocking opens a file of any kind without blocking. It is cheaper than os.Open.
func openNonblocking(path string) (fd int, err error) {
	return retryInterrupted(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) })
}

// fileStamp changes when a file is written to.
type fileStamp struct {
	size     int64
	modified unix.Timespec
}

func (s fileStamp) String() string {
	return fmt.Sprintf("%d bytes, written at %s", s.size, time.Unix(s.modified.Unix()).Format("2006-01-02 15:04:05.000000000"))
}

// System calls, which tests replace.
var (
	pread  = unix.Pread
	preadv = unix.Preadv
)

// readSmall reads from the beginning of a file until b is full or the file ends. It reads until the system returns no bytes,
// since some file systems return fewer bytes than requested.
func readSmall(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		got, err := retryInterrupted(func() (int, error) { return pread(fd, b[n:], int64(n)) })
		if err != nil || got == 0 {
			return n, err
		}
		n += got
	}
	return n, nil
}

// readParts is readSmall into several buffers in turn. It modifies the list.
func readParts(fd int, parts [][]byte) (n int, err error) {
	for len(parts) > 0 {
		got, err := retryInterrupted(func() (int, error) { return preadv(fd, parts, int64(n)) })
		if err != nil || got == 0 {
			return n, err
		}
		n += got
		for len(parts) > 0 && got >= len(parts[0]) {
			got -= len(parts[0])
			parts = parts[1:]
		}
		if got > 0 {
			parts[0] = parts[0][got:]
		}
	}
	return n, nil
}

func closeFD(fd int) { _ = unix.Close(fd) }

// List calls each for every entry of a directory, unsorted, with the entry's type, until each returns an error. os.ReadDir
// would allocate an object for every entry and sort them.
func List(dir string, each func(path, name string, kind os.FileMode) error) error {
	fd, err := retryInterrupted(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	path := []byte(strings.TrimSuffix(filepath.Join(dir, "_"), "_"))
	within := len(path)
	entries := make([]byte, 8<<10)
	for {
		n, err := retryInterrupted(func() (int, error) { return unix.ReadDirent(fd, entries) })
		if err != nil {
			return &os.PathError{Op: "readdirent", Path: dir, Err: err}
		}
		if n <= 0 {
			return nil
		}
		for rest := entries[:n]; len(rest) > 0; {
			var e unix.Dirent
			size := binary.NativeEndian.Uint16(rest[unsafe.Offsetof(e.Reclen):])
			name, _, _ := bytes.Cut(rest[unsafe.Offsetof(e.Name):size], []byte{0})
			kind, known := entryTypes[rest[unsafe.Offsetof(e.Type)]]
			rest = rest[size:]
			if string(name) == "." || string(name) == ".." {
				continue
			}
			path := string(append(path[:within], name...))
			if !known { // some file systems do not store the type
				info, err := os.Lstat(path)
				if os.IsNotExist(err) {
					continue // the entry was removed meanwhile
				}
				if err != nil {
					return err
				}
				kind = info.Mode().Type()
			}
			if err := each(path, path[within:], kind); err != nil {
				return err
			}
		}
	}
}

// retryInterrupted repeats a system call as long as a signal interrupts it.
func retryInterrupted(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

// entryTypes maps the types of directory entries.
var entryTypes = map[byte]os.FileMode{
	unix.DT_REG: 0, unix.DT_DIR: os.ModeDir, unix.DT_LNK: os.ModeSymlink, unix.DT_FIFO: os.ModeNamedPipe,
	unix.DT_SOCK: os.ModeSocket, unix.DT_BLK: os.ModeDevice, unix.DT_CHR: os.ModeDevice | os.ModeCharDevice,
}
