package storage

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// networks are the file systems on which a page fault is a message to a server, one at a time.
var networks = map[int64]bool{
	unix.NFS_SUPER_MAGIC: true, unix.SMB_SUPER_MAGIC: true, unix.CIFS_SUPER_MAGIC: true, unix.SMB2_SUPER_MAGIC: true,
	unix.CEPH_SUPER_MAGIC: true, unix.V9FS_MAGIC: true, unix.FUSE_SUPER_MAGIC: true, unix.CODA_SUPER_MAGIC: true,
	0x0BD00BD0: true, // Lustre
	0x47504653: true, // GPFS
}

func onNetwork(f *os.File) bool {
	var s unix.Statfs_t
	return unix.Fstatfs(int(f.Fd()), &s) == nil && networks[int64(s.Type)]
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
	for {
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != unix.EINTR {
			return fd, err
		}
	}
}

// sizeSmall is the size of a regular file of at most so many bytes, -1 of any other, and whether it is a pipe.
func sizeSmall(fd int, most int64) (size int64, pipe bool, err error) {
	var s unix.Stat_t
	if err = unix.Fstat(fd, &s); err != nil {
		return -1, false, err
	}
	kind := s.Mode & unix.S_IFMT
	if kind != unix.S_IFREG || s.Size > most {
		return -1, kind == unix.S_IFIFO, nil
	}
	return s.Size, false, nil
}

// readSome reads into b from the beginning, as much as there is at once.
func readSome(fd int, b []byte) (n int, err error) {
	for {
		if n, err = unix.Pread(fd, b, 0); err != unix.EINTR {
			return n, err
		}
	}
}

// readSmall reads into b as much as there is.
func readSmall(fd int, b []byte) (n int, err error) {
	for n < len(b) {
		got, err := unix.Pread(fd, b[n:], int64(n))
		if err == unix.EINTR {
			continue
		}
		if err != nil || got == 0 {
			return n, err
		}
		n += got
	}
	return n, nil
}

func closeSmall(fd int) { _ = unix.Close(fd) }
