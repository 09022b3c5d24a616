package storage

import "golang.org/x/sys/unix"

// adviseRandom tells the system that a file is read at random places, so that it does not read ahead. An error is
// ignored: it is only advice.
func adviseRandom(fd int) { _ = unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) }
