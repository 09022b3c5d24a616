package trace

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A loop reads for 10 ms of 1 s. What it does between its reads is its own work only if it had a processor, or if no
// functions of map ran meanwhile.
func TestComputeThatMayBeWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		worked, process, made int64 // ms
		known                 bool
		limit                 string
	}{
		"the GIL is held":                 {300, 1100, 900, true, ""},
		"it works":                        {800, 1100, 900, true, "compute"},
		"the functions of map run rarely": {300, 1100, 300, true, "compute"},
		"the processors are idle":         {300, 500, 900, true, "compute"},
		"no processor time is known":      {0, 1100, 900, false, "compute"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			s := &script{r, map[string]Track{"": 0}}
			s.read("loop", 0, 0, 0, 5, Answered)
			s.read("loop", 995, 0, 0, 1000, Answered)
			for i := range int64(2) { // two threads run at the same time, and count once
				s.r.add(s.track("map"), Make, "map", s.ms(5+i), s.ms(5+test.made), 0)
			}
			r.Stop()
			r.end, r.processWorked = s.ms(1000), test.process*1e6
			r.threads.Range(func(_, v any) bool {
				v.(*Thread).worked, v.(*Thread).workKnown = test.worked*1e6, test.known
				return true
			})
			found := r.Summary()
			if found.LimitedBy != test.limit || found.Consumers[0].LimitedBy != test.limit {
				t.Errorf("expected %q, found %q and %q", test.limit, found.LimitedBy, found.Consumers[0].LimitedBy)
			}
			const reason = "cannot tell what limits the loop: the thread that reads had a processor for 300 ms of the 990 ms between its reads, " +
				"and functions of map ran for 900 ms"
			if doubted := strings.HasPrefix(found.Sentence, reason); doubted != (test.limit == "") {
				t.Errorf("found %q", found.Sentence)
			}
			if cpu := found.Consumers[0].CPUSeconds; (cpu != nil) != test.known || test.known && *cpu != seconds(test.worked*1e6) {
				t.Errorf("found %v s of processor time", cpu)
			}
		})
	}
}

func TestProcessorTimeOfAThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		if _, known := threadTime(syscall.Gettid()); known {
			t.Error("expected no processor time without schedstat")
		}
		return
	}
	before, process := threadTimes()[syscall.Gettid()], processTime()
	for processTime()-process < 2e7 { // this thread works, until the kernel has counted it
		if _, known := threadTime(syscall.Gettid()); !known {
			t.Fatal("expected the processor time of this thread")
		}
	}
	if after, _ := threadTime(syscall.Gettid()); after <= before {
		t.Errorf("expected more than %d ns, found %d", before, after)
	}
	if _, known := threadTime(1 << 30); known {
		t.Error("a thread that does not exist has processor time")
	}
}
