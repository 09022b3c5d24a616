package shared

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// From linux/futex.h. The private variants cannot be used, because the words are shared with other processes.
const (
	futexWaitOp = 0
	futexWakeOp = 1
)

// futexWait sleeps while word has the given value. It may return early.
func futexWait(word unsafe.Pointer, value uint32) {
	_, _, _ = syscall.Syscall6(syscall.SYS_FUTEX, uintptr(word), futexWaitOp, uintptr(value), 0, 0, 0)
}

// futexWake wakes up to n sleepers in any process. It does not block.
func futexWake(word unsafe.Pointer, n int) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_FUTEX, uintptr(word), futexWakeOp, uintptr(n), 0, 0, 0)
}

// processStat returns the state of a process and its start time in clock ticks since the machine's boot. seen is false
// if the process does not exist or cannot be read.
func processStat(pid int) (state byte, started uint64, seen bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, 0, false
	}
	// Fields are counted from the last bracket, because the process name in brackets may hold any text.
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

// openPidfd returns a descriptor that becomes readable when the process ends. Tests replace it.
var openPidfd = func(pid int) (*os.File, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil { // required by Go's poller
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

const cldExited = 1 // si_code in siginfo_t

// exitStatus returns the exit status of a process, or minus the signal number that ended it. id is a pid or a pidfd, as
// kind says. waitid gives the status to the parent only, and only until the parent reaps the process; with WNOWAIT it
// does not reap it. From Linux 6.15 on, a pidfd gives the status to any process, even later.
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
