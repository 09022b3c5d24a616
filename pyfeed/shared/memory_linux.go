package shared

import "golang.org/x/sys/unix"

// newMemory creates a memory file of size bytes that other processes can map and no process can truncate.
func newMemory(size int) (fd int, data []byte, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate("pyfeed", flags|unix.MFD_NOEXEC_SEAL) // a hardened system requires MFD_NOEXEC_SEAL
	if err == unix.EINVAL {                                          // Linux before 6.3 does not know it
		fd, err = unix.MemfdCreate("pyfeed", flags)
	}
	if err != nil {
		return -1, nil, err
	}
	defer func() {
		if err != nil {
			_ = unix.Close(fd)
		}
	}()
	if err = unix.Ftruncate(fd, int64(size)); err != nil {
		return -1, nil, err
	}
	if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return -1, nil, err
	}
	data, err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return fd, data, err
}
