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

// openSmall opens a regular file of at most so many bytes, or a pipe; -1 for any other. It does without what os.Open adds.
func openSmall(path string, most int64) (fd int, size int64, pipe bool, err error) {
	for {
		if fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return -1, 0, false, err
	}
	var s unix.Stat_t
	if err = unix.Fstat(fd, &s); err == nil && s.Mode&unix.S_IFMT == unix.S_IFIFO {
		return fd, 0, true, nil
	}
	if err != nil || s.Mode&unix.S_IFMT != unix.S_IFREG || s.Size > most {
		closeSmall(fd)
		return -1, 0, false, err
	}
	return fd, s.Size, false, nil
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
