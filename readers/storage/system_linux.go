package storage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// networks are the file systems on which a page fault is a message to a server, one at a time.
var networks = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true,
	unix.CEPH_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.FUSE_SUPER_MAGIC: true, unix.CODA_SUPER_MAGIC: true,
	0x0BD00BD0: true, // Lustre
	0x47504653: true, // GPFS
}

func onNetwork(fd int) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(fd, &s) == nil && networks[int64(s.Type)]
}

// umask is what the process takes away from the rights of new files. To ask the system call for it is to
// change it for a moment, for all threads.
func umask() os.FileMode {
	status, _ := os.ReadFile("/proc/self/status")
	_, after, _ := strings.Cut(string(status), "\nUmask:")
	line, _, _ := strings.Cut(after, "\n")
	m, err := strconv.ParseUint(strings.TrimSpace(line), 8, 32)
	if err != nil {
		return 0o022
	}
	return os.FileMode(m)
}

// openNow opens a file, whatever it is, without waiting. It does without what os.Open adds.
func openNow(path string) (fd int, err error) {
	return retried(func() (int, error) { return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0) })
}

// stamp is what differs after a file was written to.
type stamp struct {
	size    int64
	written unix.Timespec
}

func (s stamp) String() string {
	return fmt.Sprintf("%d bytes, written at %s", s.size, time.Unix(s.written.Unix()).Format("2006-01-02 15:04:05.000000000"))
}

// stat is the stamp of a file, and what kind of one it is, as unix.S_IFREG.
func stat(fd int) (now stamp, kind uint32, err error) {
	var s unix.Stat_t
	err = unix.Fstat(fd, &s)
	return stamp{s.Size, s.Mtim}, s.Mode & unix.S_IFMT, err
}

// The system's. Only tests change them.
var (
	pread  = unix.Pread
	preadv = unix.Preadv
)

// readSmall reads into b from the beginning, as much as there is. A file system may answer less in one call: the file ends
// where it answers nothing.
func readSmall(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		got, err := retried(func() (int, error) { return pread(fd, b[n:], int64(n)) })
		if err != nil || got == 0 {
			return n, err
		}
		n += got
	}
	return n, nil
}

// readParts is readSmall into several parts, one behind the other. It changes their list.
func readParts(fd int, parts [][]byte) (n int, err error) {
	for len(parts) > 0 {
		got, err := retried(func() (int, error) { return preadv(fd, parts, int64(n)) })
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

func closeNow(fd int) { _ = unix.Close(fd) }

// List calls each for what is in a directory, in no order, with the type that the directory says it has, until that
// answers an error. os.ReadDir does the same, makes an object for each, and sorts them.
func List(dir string, each func(path, name string, kind os.FileMode) error) error {
	fd, err := retried(func() (int, error) { return unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_DIRECTORY, 0) })
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	path := []byte(strings.TrimSuffix(filepath.Join(dir, "_"), "_"))
	within := len(path)
	entries := make([]byte, 8<<10)
	for {
		n, err := retried(func() (int, error) { return unix.ReadDirent(fd, entries) })
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
			if !known { // some file systems do not say
				info, err := os.Lstat(path)
				if os.IsNotExist(err) {
					continue // by now
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

// retried is a call that is made again where a signal has interrupted it.
func retried(call func() (int, error)) (n int, err error) {
	for {
		if n, err = call(); err != unix.EINTR {
			return n, err
		}
	}
}

// entryTypes are the types of files that a directory can tell.
var entryTypes = map[byte]os.FileMode{
	unix.DT_REG: 0, unix.DT_DIR: os.ModeDir, unix.DT_LNK: os.ModeSymlink, unix.DT_FIFO: os.ModeNamedPipe,
	unix.DT_SOCK: os.ModeSocket, unix.DT_BLK: os.ModeDevice, unix.DT_CHR: os.ModeDevice | os.ModeCharDevice,
}
