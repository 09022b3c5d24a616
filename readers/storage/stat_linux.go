package storage

import "golang.org/x/sys/unix"

// stat returns the stamp of a file and its kind, such as unix.S_IFREG.
func stat(fd int) (now fileStamp, kind uint32, err error) {
	var s unix.Stat_t
	err = unix.Fstat(fd, &s)
	return fileStamp{s.Size, s.Mtim}, s.Mode & unix.S_IFMT, err
}
