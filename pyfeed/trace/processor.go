package trace

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"syscall"
)

// Processor time tells whether a thread worked between its reads or waited there, for Python's GIL or for a processor.

// threadTimes returns the processor time of each thread of the process in nanoseconds, by the operating system's thread
// id. It is empty on kernels without schedstat.
func threadTimes() map[int]int64 {
	found := make(map[int]int64)
	entries, _ := os.ReadDir("/proc/self/task")
	for _, e := range entries {
		if number, err := strconv.Atoi(e.Name()); err == nil {
			if t, known := threadTime(number); known {
				found[number] = t
			}
		}
	}
	return found
}

// threadTime returns the processor time of a thread; the first field of its schedstat, see proc(5).
func threadTime(number int) (ns int64, known bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/schedstat", number))
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(text, []byte(" "))
	ns, err = strconv.ParseInt(string(first), 10, 64)
	return ns, err == nil
}

// processTime returns the processor time of all threads of the process.
func processTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return u.Utime.Nano() + u.Stime.Nano()
}

// On two cores, a loop of matrix products beside 2 and 8 threads of map in pure Python had a processor for 0.65 and
// 0.67 of its time between reads, because it waited for the GIL. The other two bounds were not measured: they leave out
// loops that the functions of map can hardly hold up.
const (
	workingShare = 0.7 // of a thread's time between reads: with less processor time, it may have waited
	makingShare  = 0.5 // of the loop's time: functions of map that run for less rarely hold the loop up
	busyShare    = 0.9 // of one processor for the process: with less, nothing was contended
)

// contended returns why the time between the reads of a loop, which is the largest part, may be waiting: functions of
// map run in other threads meanwhile, and may hold the GIL or the processors. It returns "" if that is unlikely or not
// known.
func (r *Recording) contended(s *Summary, spans []*event, length int64) string {
	c := s.Consumers[0]
	if c.CPUSeconds == nil || c.LimitedBy != partNames[compute] {
		return ""
	}
	makes := slices.DeleteFunc(slices.Clone(spans), func(e *event) bool { return e.category != Make })
	made := seconds(unionOf(makes).length())
	working, between := *c.CPUSeconds, c.Parts[0].Seconds
	if working >= workingShare*between || made < makingShare*c.Seconds || float64(r.processWorked) < busyShare*float64(length) {
		return ""
	}
	return fmt.Sprintf("the thread that reads had a processor for %s of the %s between its reads, and functions of map ran for %s, "+
		"which may have held the GIL or the processors meanwhile: try worker processes, or files", duration(working), duration(between), duration(made))
}
