package shared

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Of linux/futex.h. The words are shared with other processes: none is private.
const (
	futexWaitOp = 0
	futexWakeOp = 1
)

// futexWait sleeps while word is value, or for less.
func futexWait(word unsafe.Pointer, value uint32) {
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(word), futexWaitOp, uintptr(value), 0, 0, 0)
}

// futexWake wakes n sleepers, in whatever process. It does not block.
func futexWake(word unsafe.Pointer, n int) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(word), futexWakeOp, uintptr(n), 0, 0, 0)
}

// processStat is the state of a process and when it started, in ticks since the machine did. `seen` is false where
// there is no such process to be seen.
func processStat(pid int) (state byte, started uint64, seen bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// The name, in brackets, may hold anything.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return 0, 0, false
	}
	started, err = strconv.ParseUint(fields[19], 10, 64)
	return fields[0][0], started, err == nil
}

func pidNamespace() uint64 {
	var s unix.Stat_t
	if unix.Stat("/proc/self/ns/pid", &s) != nil {
		return 0
	}
	return s.Ino
}

// newMemory makes size bytes that other processes can map, and nobody can cut short.
func newMemory(size int) (fd int, data []byte, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err = unix.MemfdCreate("pyfeed", flags|unix.MFD_NOEXEC_SEAL) // which a hardened system insists on
	if err == unix.EINVAL {                                          // and one before Linux 6.3 does not know
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

// openPidfd is a descriptor that polls as readable once the process has ended. Tests replace it.
var openPidfd = func(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // so that Go's poller takes it
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "pidfd"), nil
}

func hasEnded(fd uintptr) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

const cldExited = 1 // of siginfo_t.si_code

// exitStatus is how a process has ended, or minus its signal. It is known to its parent until that has asked, which
// this does not count as, and where Linux is 6.15 or newer to everybody after that. id is a pid or pidfd, as kind says.
func exitStatus(kind, id int) (status int32, known bool) {
	var info [128]byte // a siginfo_t
	_, _, e := syscall.Syscall6(syscall.SYS_WAITID, uintptr(kind), uintptr(id), uintptr(unsafe.Pointer(&info)),
		unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, 0, 0)
	word := func(at int) int32 { return *(*int32)(unsafe.Pointer(&info[at])) }
	if code, pid, status := word(8), word(16), word(24); e == 0 && pid != 0 {
		if code != cldExited {
			status = -status
		}
		return status, true
	}
	more := unix.PidfdInfo{Mask: unix.PIDFD_INFO_EXIT}
	if kind != unix.P_PIDFD || unix.IoctlPidfdInfo(id, &more) != nil || more.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	w := syscall.WaitStatus(more.Exit_code)
	if w.Signaled() {
		return -int32(w.Signal()), true
	}
	return int32(w.ExitStatus()), true
}
