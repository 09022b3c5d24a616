package trace

import (
	"fmt"
	"slices"
	"syscall"
)

// Processor time tells whether a thread worked between its reads or waited there, for Python's GIL or for a processor.

// threadClock has two times of a thread in nanoseconds: it had a processor, and it waited for one.
type threadClock struct{ worked, waited int64 }

func (c threadClock) since(before threadClock) threadClock {
	return threadClock{c.worked - before.worked, c.waited - before.waited}
}

// processTime returns the processor time of all threads of the process.
func processTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail
	return u.Utime.Nano() + u.Stime.Nano()
}

// On two cores, a loop of matrix products beside 2 and 8 threads of map in pure Python had a processor for 0.65 and
// 0.67 of its time between reads, because it waited for the GIL. The other two bounds were not measured: they leave out
// loops that the producers can hardly hold up.
const (
	workingShare = 0.7 // of a thread's time between reads: with less processor time, it may have waited
	makingShare  = 0.5 // of the loop's time: producers that work for less rarely hold the loop up
	busyShare    = 0.9 // of one processor, used or waited for by the process: with less, nothing was contended
)

// contended returns why the time between the reads of a loop, which is the largest part, may be waiting: functions of
// map, or threads that push, were busy meanwhile, and may have held the GIL or the processors. It returns "" if that is
// unlikely or not known.
func (r *Recording) contended(s *Summary, spans []*event, length int64) string {
	c := s.Consumers[0]
	if c.CPUSeconds == nil || c.LimitedBy != partNames[compute] {
		return ""
	}
	makes := slices.DeleteFunc(slices.Clone(spans), func(e *event) bool { return e.category != Make })
	made, who := seconds(unionOf(makes).length()), "functions of map"
	if longest := seconds(r.longestPusher()); longest > made {
		made, who = longest, "a thread that pushes"
	}
	working, between := *c.CPUSeconds, c.Parts[0].Seconds
	if working >= workingShare*between || made < makingShare*c.Seconds || float64(r.processDemand) < busyShare*float64(length) {
		return ""
	}
	return fmt.Sprintf("the thread that reads had a processor for only %s of the %s between its reads. If it did not wait there itself, "+
		"%s, busy for %s, held the GIL or the processors: worker processes, files or fewer threads would help",
		duration(working), duration(between), who, duration(made))
}
