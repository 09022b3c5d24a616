package storage

import (
	"os"
	"strconv"
	"strings"
)

// umask reads the process's umask from /proc. The system call would have to change it for a moment, for all threads.
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
