package shared

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processStat returns the state of a process and its start time in clock ticks since the machine's boot. seen is false
// if the process does not exist or cannot be read. Both are those of the main thread: see process_started in
// python/pyfeed_worker/native/process_linux.h.
func processStat(pid int) (state byte, started uint64, seen bool) {
	number := strconv.Itoa(pid)
	text, err := os.ReadFile("/proc/" + number + "/task/" + number + "/stat")
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

// The kinds of the numbers that exitStatus takes.
const (
	byPid   = unix.P_PID
	byPidfd = unix.P_PIDFD
)

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
	if kind != byPidfd || unix.IoctlPidfdInfo(id, &more) != nil || more.Mask&unix.PIDFD_INFO_EXIT == 0 {
		return 0, false
	}
	w := syscall.WaitStatus(more.Exit_code)
	if w.Signaled() {
		return -int32(w.Signal()), true
	}
	return int32(w.ExitStatus()), true
}
