package memory

import "syscall"

// identity identifies a version of a file.
type identity struct {
	device, number uint64
	size           int64
	written        syscall.Timespec
	changed        syscall.Timespec
}

func identityOf(s *syscall.Stat_t) identity { return identity{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim} }
