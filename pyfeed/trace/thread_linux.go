package trace

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ThreadID returns the operating system's id of the calling thread.
func ThreadID() int { return syscall.Gettid() }

// threadClocks returns the clocks of the process's threads by the operating system's thread id. It is empty on kernels
// without schedstat.
func threadClocks() map[int]threadClock {
	found := make(map[int]threadClock)
	entries, _ := os.ReadDir("/proc/self/task")
	for _, e := range entries {
		if number, err := strconv.Atoi(e.Name()); err == nil {
			if c, known := clockOf(number); known {
				found[number] = c
			}
		}
	}
	return found
}

// clockOf returns the clock of a thread: the first two fields of its schedstat, see proc(5).
func clockOf(number int) (c threadClock, known bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", number))
	if err != nil {
		return threadClock{}, false
	}
	worked, rest, _ := strings.Cut(string(text), " ")
	waited, _, _ := strings.Cut(rest, " ")
	if c.worked, err = strconv.ParseInt(worked, 10, 64); err == nil {
		c.waited, err = strconv.ParseInt(waited, 10, 64)
	}
	return c, err == nil
}
