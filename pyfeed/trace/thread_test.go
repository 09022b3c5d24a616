package trace

import (
	"strings"
	"testing"
)

// script records spans of threads, at times in milliseconds since the start of the recording.
type script struct {
	r      *Recording
	tracks map[string]Track
}

// track returns the Track of the given name: of a reading thread if the name begins with "loop", of the callers if it
// is "", else one of the library's own.
func (s *script) track(name string) Track {
	t, there := s.tracks[name]
	switch {
	case there:
	case strings.HasPrefix(name, "loop"):
		t = ReadingThread(1 + len(s.tracks)).Track()
	default:
		t = newTrack(name)
	}
	s.tracks[name] = t
	return t
}

func (s *script) ms(at int64) int64 { return s.r.start + at*1e6 }

func (s *script) span(track string, c Category, from, to int64) {
	s.r.add(s.track(track), c, "span", s.ms(from), s.ms(to), 0)
}

// read records a read by a loop that slept from slept to woken; if both are equal it did not sleep.
func (s *script) read(track string, from, slept, woken, to int64, is Outcome) {
	if slept < woken {
		s.span(track, Wait, slept, woken)
	}
	s.r.add(s.track(track), Read, "next", s.ms(from), s.ms(to), int64(is))
}

// sleep records a sleep in a list. server is the track that the sleep waited for, or "".
func (s *script) sleep(c Category, who, server string, from, to int64) {
	SleepSpan(newShared("list"), c, "sleep", s.ms(from), s.ms(to), Sleep{Who: s.track(who), For: s.track(server)})
}

func play(t *testing.T, record func(*script)) Summary {
	t.Helper()
	r := start(t, 0)
	record(&script{r, map[string]Track{"": 0}})
	r.Stop()
	checkChrome(t, r)
	return r.Summary()
}

// Tests what limits loops without a run: over queues and files, with and without a thread that reads ahead.
func TestLimitOfAReadingThread(t *testing.T) {
	for name, test := range map[string]struct {
		record   func(*script)
		seconds  [numParts]float64 // compute, producer, reader, copy, transfer, executor
		reads    int
		room     float64
		limit    string
		sentence string // beginning of the sentence
	}{
		"compute": {func(s *script) {
			for i := range int64(4) {
				s.read("loop", 25*i, 0, 0, 25*i+5, Answered)
			}
			s.span("", Producer, 5, 25) // sleeps of other callers do not count
		}, [numParts]float64{0.060, 0, 0.020, 0, 0, 0}, 4, 0, "compute",
			"the loop's own computation limits it: 75 % of the time of 4 reads; if data were always there, the loop would be at most 1.3 times as fast"},
		"compute, the producer asleep for room": {func(s *script) {
			s.read("loop", 0, 0, 0, 1, Answered)
			s.read("loop", 100, 0, 0, 101, Answered)
			s.sleep(Full, "", "", 2, 99)
			s.span("pump", Full, 2, 99)
		}, [numParts]float64{0.099, 0, 0.002, 0, 0, 0}, 2, 0, "compute",
			"the loop's own computation limits it: 98 % of the time of 2 reads"},
		"producer of a queue": {func(s *script) {
			s.read("loop", 0, 1, 40, 41, Answered)
			s.sleep(Producer, "loop", "", 1, 40)
			s.read("loop", 50, 51, 90, 91, Answered)
			s.sleep(Producer, "loop", "", 51, 90)
		}, [numParts]float64{0.009, 0.078, 0.004, 0, 0, 0}, 2, 0, "producer",
			"the producer limits the loop: 86 % of the time of 2 reads; if its data were always there, the loop would be at most 7.0 times as fast"},
		"producer, behind a thread that reads ahead": {func(s *script) {
			s.span("pump", Read, 0, 80)
			s.sleep(Producer, "pump", "", 1, 79)
			s.sleep(Wait, "loop", "pump", 1, 80)
			s.read("loop", 0, 1, 81, 82, Answered)
			s.read("loop", 90, 0, 0, 91, Answered)
		}, [numParts]float64{0.008, 0.078, 0.005, 0, 0, 0}, 2, 0, "producer", "the producer limits the loop: 86 %"},
		"producer, a function of map": {func(s *script) {
			s.sleep(Wait, "loop", "what map reads", 1, 80)
			s.r.add(s.track(""), Make, "map", s.ms(0), s.ms(78), int64(s.r.index(s.track("what map reads"))))
			s.read("loop", 0, 1, 80, 80, Answered)
			s.read("loop", 90, 0, 0, 91, Answered)
		}, [numParts]float64{0.010, 0.077, 0.004, 0, 0, 0}, 2, 0, "producer", "the producer limits the loop: 85 %"},
		"reader in the loop's own thread": {func(s *script) {
			for i := range int64(3) {
				s.span("loop", Read, 30*i+1, 30*i+24) // of a file
				s.read("loop", 30*i, 0, 0, 30*i+25, Answered)
			}
		}, [numParts]float64{0.010, 0, 0.075, 0, 0, 0}, 3, 0, "reader",
			"the reader limits the loop: 88 % of the time of 3 reads; if its data were always there, the loop would be at most 8.5 times as fast"},
		"reader ahead, that waits for no push": {func(s *script) {
			s.span("pump", Read, 0, 78)
			s.sleep(Wait, "loop", "pump", 1, 80)
			s.sleep(Wait, "pump", "", 1, 70) // for a file
			s.read("loop", 0, 1, 80, 80, Answered)
			s.read("loop", 90, 0, 0, 91, Answered)
		}, [numParts]float64{0.010, 0, 0.081, 0, 0, 0}, 2, 0, "reader", "the reader limits the loop: 89 %"},
		"copies in the loop's own thread": {func(s *script) {
			for i := range int64(2) {
				s.span("loop", Copy, 50*i+1, 50*i+41)
				s.read("loop", 50*i, 0, 0, 50*i+45, Answered)
			}
		}, [numParts]float64{0.005, 0, 0.010, 0.080, 0, 0}, 2, 0, "copy",
			"copying limits the loop: 84 % of the time of 2 reads; if it took no time"},
		"copies of a thread that reads ahead": {func(s *script) {
			s.span("pump", Copy, 10, 70)
			s.sleep(Wait, "loop", "pump", 1, 80)
			s.read("loop", 0, 1, 80, 80, Answered)
			s.read("loop", 90, 0, 0, 90, Answered)
		}, [numParts]float64{0.010, 0, 0.020, 0.060, 0, 0}, 2, 0, "copy", "copying limits the loop: 67 %"},
		"copies by another consumer, for which this one waits": {func(s *script) {
			s.span("loop 2", Copy, 0, 80)
			s.read("loop 2", 0, 0, 0, 80, Answered)
			s.read("loop 2", 80, 0, 0, 80, Answered)
			s.read("loop", 0, 0, 80, 80, Answered)
			s.read("loop", 80, 0, 0, 81, Answered)
		}, [numParts]float64{0, 0, 0.001, 0.160, 0, 0}, 4, 0, "copy",
			"copying limits the loop: 99 % of the time of 4 reads by 2 threads, summed"},
		"a wait for a copy to a device": {func(s *script) {
			s.read("loop", 0, 0, 0, 5, Answered)
			s.span("loop", Stall, 10, 80)
			s.read("loop", 90, 0, 0, 91, Answered)
		}, [numParts]float64{0.015, 0, 0.006, 0, 0.070, 0}, 2, 0, "transfer", "copying to devices limits the loop: 77 %"},

		// Time of another consumer does not count.
		"a queue that the loop does not read": {func(s *script) {
			s.sleep(Producer, "loop of metrics", "", 0, 80)
			s.read("loop of metrics", 0, 0, 80, 80, Answered)
			s.sleep(Producer, "another pump", "", 0, 80)
			s.sleep(Wait, "loop of metrics", "another pump", 80, 81)
			s.span("another pump", Copy, 0, 80)
			s.sleep(Wait, "loop", "pump", 0, 80)
			s.read("loop", 0, 0, 80, 80, Answered)
			s.read("loop", 100, 0, 0, 101, Answered)
		}, [numParts]float64{0.020, 0, 0.081, 0, 0, 0}, 3, 0, "reader", "the reader limits the loop: 80 % of the time of 2 reads"},
		"consumers that differ": {func(s *script) {
			s.sleep(Producer, "loop 1", "", 0, 90)
			s.read("loop 1", 0, 0, 90, 90, Answered)
			s.read("loop 1", 90, 0, 0, 91, Answered)
			s.read("loop 2", 0, 0, 0, 1, Answered)
			s.read("loop 2", 60, 0, 0, 61, Answered)
		}, [numParts]float64{0.059, 0.090, 0.003, 0, 0, 0}, 4, 0, "producer",
			"the producer limits the loop: 59 % of the time of 4 reads by 2 threads, summed; if its data were always there, the loop would be at most 2.5 times as fast; considered alone, 1 of 2 consumers would be limited by compute"},
		"a thread between two queues": {func(s *script) {
			s.read("loop between", 0, 0, 0, 1, Answered) // computes for 79 ms, and pushes
			s.read("loop between", 80, 0, 0, 81, Answered)
			s.r.thread(2).MarkPusher() // thread 2 is the second that read, after loop
			s.sleep(Producer, "loop", "", 0, 80)
			s.read("loop", 0, 0, 80, 80, Answered)
			s.read("loop", 81, 0, 0, 81, Answered)
		}, [numParts]float64{0.001, 0.080, 0, 0, 0, 0}, 4, 0, "producer", "the producer limits the loop: 99 % of the time of 2 reads"},
		"nothing but a thread that pushes what it reads": {func(s *script) {
			s.read("loop", 0, 0, 0, 10, Answered)
			s.r.thread(2).MarkPusher()
			s.sleep(Full, "loop", "", 15, 75) // delayed by the consumers behind it
			s.read("loop", 80, 0, 0, 90, Answered)
		}, [numParts]float64{0.010, 0, 0.020, 0, 0, 0}, 2, 0.060, "reader", "the reader limits the loop: 67 % of the time of 2 reads"},
		"runs of the thread that reads": {func(s *script) {
			s.read("loop", 0, 0, 0, 10, Answered)
			s.span("run", Compute, 20, 70)
			s.span("run", Read, 70, 80)
			s.span("run", Run, 20, 80)
			s.span("loop", Run, 20, 80)
			s.read("loop", 90, 0, 0, 91, Answered)
		}, [numParts]float64{0.070, 0, 0.021, 0, 0, 0}, 2, 0, "compute", "the loop's own computation limits it: 77 % of the time of 1 run and 2 reads"},

		// Cases in which the limit is not known.
		"a single read": {func(s *script) {
			s.read("loop", 0, 0, 80, 80, Answered)
			s.sleep(Producer, "loop", "", 0, 80)
		}, [numParts]float64{}, 1, 0, "", "cannot tell what limits the loop: no thread read twice, so the time between two reads of a loop is not known; consumers waited 80.0 ms for producers"},
		"a first try and a single read": {func(s *script) {
			s.read("loop", 0, 0, 0, 1, Tried)
			s.read("loop", 1, 1, 80, 80, Answered)
		}, [numParts]float64{}, 1, 0, "", "cannot tell what limits the loop: no thread read twice"},
		"a first try before each read": {func(s *script) {
			for i := range int64(2) {
				s.read("loop", 50*i, 0, 0, 50*i+1, Tried)
				s.read("loop", 50*i+1, 50*i+2, 50*i+40, 50*i+40, Answered)
				s.sleep(Producer, "loop", "", 50*i+2, 50*i+40)
			}
		}, [numParts]float64{0.010, 0.076, 0.004, 0, 0, 0}, 2, 0, "producer", "the producer limits the loop: 84 % of the time of 2 reads"},
		"a loop that polls": {func(s *script) {
			for i := range int64(8) {
				s.read("loop", 10*i, 0, 0, 10*i+1, Tried)
			}
			s.read("loop", 80, 0, 0, 81, Answered)
			s.read("loop", 90, 0, 0, 91, Answered)
		}, [numParts]float64{0.009, 0, 0.010, 0, 0, 0}, 2, 0, "",
			"cannot tell what limits the loop: after reads that timed out, consumers did something else for 72.0 ms"},
		"reads that time out, one after the other": {func(s *script) {
			for i := range int64(8) {
				s.read("loop", 10*i, 10*i, 10*i+10, 10*i+10, Unanswered)
				s.sleep(Producer, "loop", "", 10*i, 10*i+10)
			}
		}, [numParts]float64{0, 0.080, 0, 0, 0, 0}, 0, 0, "producer", "the producer limits the loop: 100 % of the time of 0 reads; no other part took time"},
		"nothing that reads": {func(s *script) {
			s.span("", Full, 0, 10)
		}, [numParts]float64{}, 0, 0, "", "cannot tell what limits the loop: no run and no thread that reads was recorded"},
		"no time": {func(s *script) {
			s.read("loop", 5, 0, 0, 5, Answered)
			s.read("loop", 5, 0, 0, 5, Answered)
		}, [numParts]float64{}, 2, 0, "", "cannot tell what limits the loop: "},
	} {
		t.Run(name, func(t *testing.T) {
			s := play(t, func(s *script) {
				if strings.Contains(name, "thread between") {
					s.tracks["loop between"] = ReadingThread(2).Track()
				}
				test.record(s)
			})
			var all float64
			for i, want := range test.seconds {
				all += want
				if p := s.part(i); !near(p.Seconds, want) {
					t.Errorf("%s: expected %v s, found %v", partNames[i], want, p.Seconds)
				}
			}
			if !near(s.ConsumerSeconds, all) || s.Reads != test.reads || !near(s.RoomSeconds, test.room) {
				t.Errorf("expected %v s and %v s for room in %d reads, found %v, %v, %d", all, test.room, test.reads,
					s.ConsumerSeconds, s.RoomSeconds, s.Reads)
			}
			if s.LimitedBy != test.limit || !strings.HasPrefix(s.Sentence, test.sentence) {
				t.Errorf("expected %q, %q, found %q, %q", test.limit, test.sentence, s.LimitedBy, s.Sentence)
			}
		})
	}
}

// A read that had not ended does not count in the shares, but may be most of the recorded time.
func TestAReadThatHadNotEnded(t *testing.T) {
	for _, more := range []bool{false, true} {
		r := start(t, 0)
		thread := ReadingThread(7)
		if more {
			thread.Began(Now())
			thread.Ended("next", Now(), Answered)
			begun := Now()
			thread.Began(begun)
			thread.Ended("next", begun, Answered)
		}
		thread.Began(Now())
		from := Now()
		for long := max(5_000_000, 2*(from-r.start)); Now() < from+long; { // longer than all reads before
		}
		r.Stop()
		s := r.Summary()
		if s.LimitedBy != "" || !strings.Contains(s.Sentence, "that had not ended when the recording did") || s.PendingSeconds < 0.005 {
			t.Errorf("more %v: wrong sentence or pending time: %q, %v s", more, s.Sentence, s.PendingSeconds)
		}
	}
	// A read that ended just before the recording did is counted once.
	r := start(t, 0)
	thread := ReadingThread(7)
	begun := Now()
	thread.Began(begun)
	r.add(thread.Track(), Read, "next", begun, Now(), 0)
	r.Stop()
	if s := r.Summary(); s.PendingSeconds != 0 || s.Reads != 1 {
		t.Errorf("expected 0 s pending and 1 read, found %v s and %d reads", s.PendingSeconds, s.Reads)
	}
}

func TestThreads(t *testing.T) {
	if CurrentThread(3) != nil || ReadingThread(3) != nil || CurrentThread(3).Track() != 0 {
		t.Error("expected no thread without a recording")
	}
	CurrentThread(3).MarkPusher()
	CurrentThread(3).RecordRun(1)
	r := start(t, 0)
	first := ReadingThread(3)
	if CurrentThread(4) != nil || CurrentThread(3) != first || ReadingThread(3) != first || ReadingThread(4) == first {
		t.Error("expected one thread for each number")
	}
	run := newTrack("run")
	for _, number := range []int{3, 5} { // a known thread, and a new one
		back := UseTrack(number, run)
		if ReadingThread(number).Track() != run {
			t.Error("expected reads within a run on its track")
		}
		ReadingThread(number).RecordRun(Now()) // a run within a run is counted once, by the outer run
		back()
	}
	if CurrentThread(3) != first || CurrentThread(5) != nil {
		t.Error("expected the thread's own track after the kernel")
	}
	UseTrack(3, 0)()
	first.RecordRun(Now())
	r.Stop()
	if s := r.Summary(); s.Spans != 1 || s.Operators[0].Track != "consumer" || s.Operators[0].Category != "run" || s.Runs != 0 {
		t.Errorf("wrong number of spans or runs: %d spans, %d runs: %+v", s.Spans, s.Runs, s.Operators)
	}
	again := start(t, 0)
	if CurrentThread(3) != nil {
		t.Error("expected no thread of an earlier recording")
	}
	first.Began(Now())
	first.Ended("next", Now(), Answered)
	again.Stop()
	if s := again.Summary(); len(s.Consumers) != 0 {
		t.Errorf("wrong consumers: %+v", s.Consumers)
	}
}

// within of two unions together is compared with a count of moments.
func TestSleepsCountOnce(t *testing.T) {
	everybody := [4]union{{{0, 10, 0}, {20, 30, 10}}}
	s := &sleeps{shared: &everybody, own: [4]union{{{5, 22, 0}, {25, 40, 17}}}}
	for from := range int64(45) {
		for to := from; to < 45; to++ {
			var want int64
			for m := from; m < to; m++ {
				if m < 40 {
					want++ // the two unions together have no gap before 40
				}
			}
			if found := s.within(0, from, to); found != want {
				t.Fatalf("%d to %d: expected %d, found %d", from, to, want, found)
			}
		}
	}
}
