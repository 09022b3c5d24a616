package trace

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// A loop reads for 10 ms of 1 s. What it does between its reads is its own work only if it had a processor, or if no
// producers worked meanwhile.
func TestComputeThatMayBeWaiting(t *testing.T) {
	for name, test := range map[string]struct {
		worked, demand, made, pushed int64 // ms
		known                        bool
		limit, who                   string
	}{
		"the GIL is held":                  {300, 1100, 900, 0, true, "", "functions of map"},
		"a thread that pushes holds it":    {300, 1100, 300, 900, true, "", "a thread that pushes"},
		"it works":                         {800, 1100, 900, 900, true, "compute", ""},
		"the producers work rarely":        {300, 1100, 300, 300, true, "compute", ""},
		"nothing waits for the processors": {300, 500, 900, 900, true, "compute", ""},
		"no processor time is known":       {0, 1100, 900, 900, false, "compute", ""},
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
			r.end, r.processDemand = s.ms(1000), test.demand*1e6
			p := new(Pusher)
			p.made.Store(test.pushed * 1e6)
			r.pushers.Store(1000, p)
			r.threads.Range(func(_, v any) bool {
				v.(*Thread).worked, v.(*Thread).workKnown = test.worked*1e6, test.known
				return true
			})
			found := r.Summary()
			if found.LimitedBy != test.limit || found.Consumers[0].LimitedBy != test.limit {
				t.Errorf("expected %q, found %q and %q", test.limit, found.LimitedBy, found.Consumers[0].LimitedBy)
			}
			reason := "cannot tell what limits the loop: the thread that reads had a processor for only 300 ms of the 990 ms between its reads. " +
				"If it did not wait there itself, " + test.who + ", busy for 900 ms, held the GIL or the processors"
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
		if _, known := clockOf(syscall.Gettid()); known {
			t.Error("expected no processor time without schedstat")
		}
		return
	}
	before, process := threadClocks()[syscall.Gettid()], processTime()
	for processTime()-process < 2e7 { // this thread works, until the kernel has counted it
		if _, known := clockOf(syscall.Gettid()); !known {
			t.Fatal("expected the processor time of this thread")
		}
	}
	if after, _ := clockOf(syscall.Gettid()); after.worked <= before.worked || after.waited < before.waited {
		t.Errorf("expected more than %v, found %v", before, after)
	}
	if _, known := clockOf(1 << 30); known {
		t.Error("a thread that does not exist has processor time")
	}
}

// A thread makes tuples between its pushes: not before the first of them, and not within one.
func TestTimeBetweenPushes(t *testing.T) {
	if BeginPush(7) != nil {
		t.Fatal("expected no thread without a recording")
	}
	r := start(t, 0)
	p := BeginPush(7)
	if r.longestPusher() != 0 {
		t.Fatalf("expected no time before the first push, found %d ns", r.longestPusher())
	}
	for p.EndPush(); Now() < p.end.Load()+1000; {
	}
	if BeginPush(7) != p || r.longestPusher() < 1000 || r.longestPusher() > Now()-r.start {
		t.Fatalf("expected at least 1 us between the pushes, found %d ns", r.longestPusher())
	}
	made := r.longestPusher()
	BeginPush(8).EndPush() // another thread
	if r.longestPusher() != made {
		t.Errorf("expected %d ns, found %d", made, r.longestPusher())
	}
}
