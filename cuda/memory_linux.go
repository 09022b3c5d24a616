package cuda

import "golang.org/x/sys/unix"

// hostMemory returns the free and the whole memory of the machine in bytes.
func hostMemory() (free, total int64, err error) {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0, 0, err
	}
	unit := int64(s.Unit)
	return int64(s.Freeram) * unit, int64(s.Totalram) * unit, nil
}
