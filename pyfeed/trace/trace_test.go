package trace

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// newTrack makes a Track.
func newTrack(name string) Track  { return new(Lane).Track(name) }
func newShared(name string) Track { return new(Lane).Shared(name) }

func start(t testing.TB, limit int) *Recording {
	t.Helper()
	r, err := Start(limit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// at is a span with times in milliseconds since the start of the recording.
type at struct {
	track    string
	category Category
	name     string
	from, to int64
	bytes    int64
}

// recorded makes a recording of the given spans, in which outer spans are listed before inner ones. It adds each span
// when it would end: inner ones first.
func recorded(t testing.TB, spans ...at) *Recording {
	t.Helper()
	r := start(t, 0)
	tracks := map[string]Track{"": 0}
	slices.Reverse(spans)
	slices.SortStableFunc(spans, func(a, b at) int { return cmp.Compare(a.to, b.to) })
	for _, s := range spans {
		if _, there := tracks[s.track]; !there {
			tracks[s.track] = newTrack(s.track)
		}
		r.add(tracks[s.track], s.category, s.name, r.start+s.from*1e6, r.start+s.to*1e6, s.bytes)
	}
	r.Stop()
	return r
}

func near(a, b float64) bool { return math.Abs(a-b) < 1e-12 }

func TestLimitOfTheLoop(t *testing.T) {
	for name, test := range map[string]struct {
		spans    []at
		runs     int
		seconds  [numParts]float64 // compute, producer, reader, copy, transfer, executor
		sentence string
	}{
		"compute": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Compute, "add", 0, 70, 0},
				{"run", Read, "read", 70, 95, 0},
				{"run", Wait, "read", 70, 90, 0},
				{"", Producer, "waits for a push", 60, 85, 0},
			}, 1, [numParts]float64{0.070, 0.015, 0.010, 0, 0, 0.005},
			"the loop's own computation limits it: 70 % of the time; if data were always there, the loop would be at most 1.3 times as fast",
		},
		"producer": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Read, "read", 0, 80, 0},
				{"run", Wait, "read", 5, 75, 0},
				{"", Producer, "waits for a push", 0, 30, 0},
				{"pump", Producer, "waits for a push", 20, 55, 0}, // overlaps the wait above
				{"pump", Copy, "batch", 50, 65, 100},              // counts only from 55 on
				{"run", Compute, "add", 80, 100, 0},
			}, 1, [numParts]float64{0.020, 0.050, 0.020, 0.010, 0, 0},
			"the producer limits the loop: 50 % of the time; if its data were always there, the loop would be at most 2.0 times as fast",
		},
		"a worker of map": {
			[]at{
				{"run", Run, "run", 0, 10, 0},
				{"run", Read, "read", 0, 10, 0},
				{"run", Wait, "read", 0, 10, 0},
				{"", Make, "map", 0, 3, 0},
				{"", Make, "map", 2, 6, 0},
			}, 1, [numParts]float64{0, 0.006, 0.004, 0, 0, 0},
			"the producer limits the loop: 60 % of the time; if its data were always there, the loop would be at most 2.5 times as fast",
		},
		"reader": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Read, "read", 0, 60, 0},
				{"run", Wait, "read", 10, 40, 0},
				{"pump", Read, "shuffle", 0, 40, 0},
				{"pump", Full, "no room", 40, 100, 0},
				{"run", Compute, "add", 60, 90, 0},
			}, 1, [numParts]float64{0.030, 0, 0.060, 0, 0, 0.010},
			"the reader limits the loop: 60 % of the time; if its data were always there, the loop would be at most 2.5 times as fast",
		},
		"copy": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Read, "read", 0, 80, 0},
				{"run", Copy, "batch", 10, 40, 1000}, // the run's own copy
				{"run", Wait, "read", 40, 80, 0},
				{"pump", Copy, "batch", 30, 70, 1000}, // a copy by another track, which the run waits for
				{"run", Copy, "assign", 90, 95, 0},    // outside all operators
				{"run", Compute, "add", 95, 100, 0},
				{"run", Copy, "scale", 96, 99, 0}, // counts as computing
			}, 1, [numParts]float64{0.005, 0, 0.020, 0.065, 0, 0.010},
			"copying limits the loop: 65 % of the time; if it took no time, the loop would be at most 2.9 times as fast",
		},
		"transfer": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Read, "read", 0, 70, 0},
				{"run", Wait, "read", 0, 60, 0},
				{"", Producer, "waits for a push", 0, 5, 0},
				{"pump", Copy, "batch", 0, 10, 1000},
				{"copies", Transfer, "CUDAPlace(0)", 0, 50, 1000}, // counts only from 10 on
				{"copies", Transfer, "CUDAPlace(0)", 65, 90, 1000},
				{"run", Compute, "add", 70, 100, 0},       // not delayed by the transfer,
				{"run", Stall, "CUDAPlace(0)", 80, 90, 0}, // except here
			}, 1, [numParts]float64{0.020, 0.005, 0.020, 0.005, 0.050, 0},
			"copying to devices limits the loop: 50 % of the time; if it took no time, the loop would be at most 2.0 times as fast",
		},
		"a device that computes": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Wait, "read", 0, 90, 0},
				{"", Backlog, "waits for memory of CUDAPlace(0)", 10, 95, 0},
				{"", Make, "map", 20, 25, 0},
				{"pump", Copy, "batch", 20, 30, 1000},
				{"copies", Transfer, "CUDAPlace(0)", 0, 40, 1000},
				{"run", Backlog, "waits for its kernels", 95, 100, 0}, // on the run's own track: a wait
			}, 1, [numParts]float64{0.055, 0.005, 0, 0.005, 0.030, 0.005},
			"the loop's own computation limits it: 55 % of the time; if data were always there, the loop would be at most 1.7 times as fast",
		},
		"executor": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Compute, "add", 0, 10, 0},
			}, 1, [numParts]float64{0.010, 0, 0, 0, 0, 0.090},
			"the executor itself limits the loop: 90 % of the time; if it took no time, the loop would be at most 10 times as fast",
		},
		"nothing but compute": {
			[]at{
				{"run", Run, "run", 0, 10, 0},
				{"run", Compute, "add", 0, 10, 0},
			}, 1, [numParts]float64{0.010, 0, 0, 0, 0, 0},
			"the loop's own computation limits it: 100 % of the time; data is there in time",
		},
		"nothing but waits": {
			[]at{
				{"run", Run, "run", 0, 10, 0},
				{"run", Wait, "read", 0, 10, 0},
				{"", Producer, "waits for a push", 0, 10, 0},
			}, 1, [numParts]float64{0, 0.010, 0, 0, 0, 0},
			"the producer limits the loop: 100 % of the time; no other part took time",
		},
		"operators within operators": {
			[]at{
				{"run", Run, "run", 0, 100, 0},
				{"run", Compute, "while", 10, 90, 0},
				{"run", Read, "read", 20, 50, 0},
				{"run", Wait, "read", 20, 30, 0},
			}, 1, [numParts]float64{0.050, 0, 0.030, 0, 0, 0.020},
			"the loop's own computation limits it: 50 % of the time; if data were always there, the loop would be at most 1.4 times as fast",
		},
		"several runs, at a time and after each other": {
			[]at{
				{"a", Run, "run", 0, 10, 0},
				{"a", Compute, "add", 0, 9, 0},
				{"a", Run, "run", 20, 30, 0},
				{"a", Compute, "add", 20, 30, 0},
				{"b", Run, "run", 5, 25, 0},
				{"b", Read, "read", 5, 16, 0},
				{"b", Wait, "read", 5, 15, 0},
				{"", Producer, "waits for a push", 0, 40, 0},
			}, 3, [numParts]float64{0.019, 0.010, 0.001, 0, 0, 0.010},
			"the loop's own computation limits it: 48 % of the time of 3 runs; if data were always there, the loop would be at most 1.4 times as fast",
		},
		"a run that had not ended": {
			[]at{
				{"run", Compute, "add", 10, 30, 0},
				{"run", Read, "read", 30, 40, 0},
				{"run", Wait, "read", 31, 40, 0},
				{"pump", Read, "shuffle", 0, 90, 0}, // not a run
			}, 1, [numParts]float64{0.020, 0, 0.010, 0, 0, 0},
			"the loop's own computation limits it: 67 % of the time; if data were always there, the loop would be at most 1.5 times as fast",
		},
		"a run that had not ended, after one that had": {
			[]at{
				{"run", Run, "run", 0, 10, 0},
				{"run", Compute, "add", 0, 10, 0},
				{"run", Compute, "add", 20, 30, 0},
				{"run", Compute, "add", 40, 50, 0},
			}, 2, [numParts]float64{0.030, 0, 0, 0, 0, 0.010},
			"the loop's own computation limits it: 75 % of the time of 2 runs; data is there in time",
		},
		"a run of which nothing is known": {
			[]at{
				{"run", Run, "run", 0, 10, 0},
				{"run", Compute, "add", 0, 10, 0},
				{"run", Read, "read", 20, 30, 0}, // the next run has no Compute yet
			}, 1, [numParts]float64{0.010, 0, 0, 0, 0, 0},
			"the loop's own computation limits it: 100 % of the time; data is there in time",
		},
		"no run": {
			[]at{
				{"", Producer, "waits for a push", 0, 1500, 0},
				{"pump", Full, "no room", 0, 12, 0},
			}, 0, [numParts]float64{},
			"cannot tell what limits the loop: no run and no thread that reads was recorded; consumers waited 1.50 s for producers, and producers and prefetching threads waited 12.0 ms for free space",
		},
		"no time": {
			[]at{{"run", Run, "run", 5, 5, 0}}, 1, [numParts]float64{},
			"cannot tell what limits the loop: the runs that were recorded took no time; consumers waited 0 s for producers, and producers and prefetching threads waited 0 s for free space",
		},
		"nothing": {nil, 0, [numParts]float64{}, "nothing was recorded"},
	} {
		t.Run(name, func(t *testing.T) {
			r := recorded(t, test.spans...)
			s := r.Summary()
			var all float64
			for i, want := range test.seconds {
				all += want
				if p := s.part(i); !near(p.Seconds, want) {
					t.Errorf("%s: expected %v s, found %v", partNames[i], want, p.Seconds)
				}
			}
			if s.Runs != test.runs || !near(s.RunSeconds, all) {
				t.Errorf("expected %d runs of %v s, found %d of %v", test.runs, all, s.Runs, s.RunSeconds)
			}
			if s.Sentence != test.sentence {
				t.Errorf("expected the sentence %q, found %q", test.sentence, s.Sentence)
			}
			limit := ""
			if all > 0 {
				limit = s.Parts[0].Name
			}
			if s.LimitedBy != limit {
				t.Errorf("limited by: expected %q, found %q", limit, s.LimitedBy)
			}
			for _, p := range s.Parts {
				if all > 0 && !near(p.Share, p.Seconds/all) {
					t.Errorf("%s: share %v of %v", p.Name, p.Share, p.Seconds/all)
				}
				if p.Seconds < all && (p.Speedup == nil || !near(*p.Speedup, 1/(1-p.Share))) {
					t.Errorf("%s: share %v, speedup %v", p.Name, p.Share, p.Speedup)
				}
			}
			if _, err := json.Marshal(s); err != nil {
				t.Error(err)
			}
			if first, _, _ := strings.Cut(r.Table(), "\n"); first != test.sentence {
				t.Errorf("the table begins with %q", first)
			}
			checkChrome(t, r)
		})
	}
}

// A run that fills a staging buffer waits for room. It does not delay the run that computes.
func TestARunThatSleepsForRoom(t *testing.T) {
	r := start(t, 0)
	loader, trainer, waits := newTrack("run"), newTrack("run"), newShared("waits for room")
	ms := func(n int64) int64 { return r.start + n*1e6 }
	Span(loader, Read, "read", ms(0), ms(10))
	SleepSpan(waits, Full, "waits for room", ms(11), ms(78), Sleep{Who: loader})
	Span(loader, Wait, "stage", ms(12), ms(80)) // begins and ends a little later than the sleep
	Span(loader, Copy, "stage", ms(10), ms(85))
	SleepSpan(waits, Full, "waits for room", ms(86), ms(90), Sleep{Who: 0}) // of another caller
	Span(loader, Wait, "read", ms(86), ms(90))
	Span(loader, Read, "read", ms(85), ms(90))
	Span(loader, Run, "run", ms(0), ms(90))
	Span(trainer, Compute, "add", ms(0), ms(80))
	Span(trainer, Run, "run", ms(0), ms(80))
	r.Stop()
	s := r.Summary()
	if s.Runs != 2 || s.RoomSeconds != 0.068 || !near(s.RunSeconds, 0.022+0.080) {
		t.Errorf("wrong totals: %d runs, %v s in runs, %v s waiting for room", s.Runs, s.RunSeconds, s.RoomSeconds)
	}
	for i, want := range [numParts]float64{0.080, 0, 0.015, 0.007, 0, 0} {
		if p := s.part(i); !near(p.Seconds, want) {
			t.Errorf("%s: expected %v s, found %v", partNames[i], want, p.Seconds)
		}
	}
	if s.Copies.Count != 0 {
		t.Errorf("expected copies without a number of bytes to be left out, found %+v", s.Copies)
	}

	r = start(t, 0)
	loader = newTrack("run")
	SleepSpan(0, Full, "waits for room", ms(0), ms(10), Sleep{Who: loader})
	Span(loader, Wait, "stage", ms(0), ms(10))
	Span(loader, Run, "run", ms(0), ms(10))
	r.Stop()
	if s := r.Summary(); !strings.Contains(s.Sentence, "only waited for free space") || s.RoomSeconds != 0.010 {
		t.Errorf("wrong sentence or time waiting for room: %q, %v s", s.Sentence, s.RoomSeconds)
	}
}

// The time of random spans is compared with a count moment by moment, by the rules in the comment of Summary.
func TestEveryMomentIsAccountedFor(t *testing.T) {
	const moments = 60
	type span struct {
		track    int
		category Category
		from, to int64
		depth    int
	}
	seeds := uint64(300)
	if testing.Short() {
		seeds = 100
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 0))
		var spans []span
		var fill func(track, depth int, from, to int64, categories []Category)
		fill = func(track, depth int, from, to int64, categories []Category) {
			for at := from + random.Int64N(3); at < to; at += random.Int64N(3) {
				end := at + random.Int64N(to-at+1)
				c := categories[random.IntN(len(categories))]
				spans = append(spans, span{track, c, at, end, depth})
				switch c {
				case Run:
					fill(track, depth+1, at, end, []Category{Compute, Read, Copy, Wait, Stall, Backlog})
				case Compute, Read:
					if depth < 4 {
						fill(track, depth+1, at, end, []Category{Compute, Read, Copy, Wait, Stall, Backlog})
					}
				}
				at = end + 1 // spans that touch are covered by other tests
			}
		}
		runs := 1 + random.IntN(3)
		for track := range runs {
			fill(track, 0, 0, moments, []Category{Run})
		}
		for range 6 {
			fill(runs, 0, random.Int64N(moments), moments, []Category{Producer, Copy, Full, Make, Transfer, Backlog, Stall})
		}

		var want [numParts]float64
		for m := range int64(moments) {
			covers := func(s span) bool { return s.from <= m && m < s.to }
			var missing, busy, moving, backlog bool
			for _, s := range spans {
				missing = missing || covers(s) && (s.category == Producer || s.category == Make)
				busy = busy || covers(s) && s.category == Copy
				moving = moving || covers(s) && s.category == Transfer
				backlog = backlog || covers(s) && s.category == Backlog
			}
			for track := range runs {
				var open []span
				for _, s := range spans {
					if s.track == track && covers(s) {
						open = append(open, s)
					}
				}
				if len(open) == 0 {
					continue
				}
				slices.SortFunc(open, func(a, b span) int { return b.depth - a.depth })
				is := func(c ...Category) func(span) bool {
					return func(s span) bool { return slices.Contains(c, s.category) }
				}
				operator := slices.IndexFunc(open, is(Compute, Read))
				copied := slices.IndexFunc(open, is(Copy))
				sleeps := open[0].category == Wait || open[0].category == Backlog
				switch {
				case sleeps && missing:
					want[producer]++
				case sleeps && busy:
					want[copying]++
				case sleeps && moving:
					want[transfer]++
				case sleeps && backlog:
					want[compute]++
				case sleeps:
					want[reader]++
				case open[0].category == Stall:
					want[transfer]++
				case operator >= 0 && open[operator].category == Compute:
					want[compute]++
				case copied >= 0 && (operator < 0 || copied < operator):
					want[copying]++
				case operator >= 0:
					want[reader]++
				default:
					want[executor]++
				}
			}
		}

		r := start(t, 0)
		tracks := make([]Track, runs+1)
		for i := range tracks {
			tracks[i] = newTrack("track")
		}
		random.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		slices.SortStableFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.to, b.to), b.depth-a.depth) })
		for _, s := range spans {
			Span(tracks[s.track], s.category, "span", r.start+s.from, r.start+s.to)
		}
		r.Stop()
		s := r.Summary()
		for i, w := range want {
			if p := s.part(i); !near(p.Seconds, w*1e-9) {
				t.Fatalf("seed %d: %s: expected %v ns, found %v", seed, partNames[i], w, p.Seconds*1e9)
			}
		}
		checkChrome(t, r)
	}
}

func TestRunsAndTheirParts(t *testing.T) {
	r := start(t, 0)
	run := newTrack("run")
	for i := range int64(3) { // one run, recorded in parts
		Span(run, Run, "run", r.start+10*i, r.start+10*i+10)
	}
	Span(run, Run, "run", r.start+31, r.start+40)
	// By a run that began in an earlier recording, on a track of that recording.
	Span(0, Run, "run", r.start, r.start+100)
	Span(0, Compute, "add", r.start, r.start+100)
	r.Stop()
	if s := r.Summary(); s.Runs != 2 || !near(s.RunSeconds, 39e-9) {
		t.Errorf("wrong number or time of runs: %d, %v s", s.Runs, s.RunSeconds)
	}
}

func TestOperatorsAndCopies(t *testing.T) {
	s := recorded(t,
		at{"run", Run, "run", 0, 100, 0},
		at{"run", Compute, "add", 0, 10, 0},
		at{"run", Compute, "add", 20, 50, 0},
		at{"pump", Copy, "batch", 0, 40, 6000},
		at{"pump", Copy, "batch", 40, 80, 2000},
		at{"", Copy, "push", 0, 20, 2000},
		at{"", Full, "waits for room in a queue", 0, 70, 0},
		at{"", Full, "waits for room in a queue", 10, 70, 0},
		at{"", Producer, "waits for a push", 70, 80, 0},
	).Summary()
	if s.FullSeconds != 0.130 || s.ProducerSeconds != 0.010 {
		t.Errorf("full %v s, producer %v s", s.FullSeconds, s.ProducerSeconds)
	}
	if want := (Bandwidth{3, 10000, 0.100, 1e5}); s.Copies != want {
		t.Errorf("expected %v, found %v", want, s.Copies)
	}
	want := []Operator{
		{"callers", "full", "waits for room in a queue", 2, 0.130, 0.065, 0.070, 1.3, 0, 0},
		{"run", "run", "run", 1, 0.100, 0.100, 0.100, 1, 0, 0},
		{"pump", "copy", "batch", 2, 0.080, 0.040, 0.040, 0.8, 8000, 1e5},
		{"run", "compute", "add", 2, 0.040, 0.020, 0.030, 0.4, 0, 0},
		{"callers", "copy", "push", 1, 0.020, 0.020, 0.020, 0.2, 2000, 1e5},
		{"callers", "producer", "waits for a push", 1, 0.010, 0.010, 0.010, 0.1, 0, 0},
	}
	if !slices.Equal(s.Operators, want) {
		t.Errorf("expected %v, found %v", want, s.Operators)
	}
}

func TestTable(t *testing.T) {
	r := recorded(t,
		at{"run", Run, "run", 0, 100, 0},
		at{"run", Compute, "a long name, µ", 0, 50, 0},
		at{"files", Copy, "two\nlines", 0, 40, 6_000_000},
	)
	table := r.Table()
	_, rest, _ := strings.Cut(table, "\n\n")
	parts, rest, _ := strings.Cut(rest, "\n\n")
	if want := `part of the loop     time   share    at most
compute           50.0 ms  50.0 %  2.0 times
executor          50.0 ms  50.0 %  2.0 times
producer              0 s   0.0 %  1.0 times
reader                0 s   0.0 %  1.0 times
copy                  0 s   0.0 %  1.0 times
transfer              0 s   0.0 %  1.0 times`; parts != want {
		t.Errorf("expected\n%s\nfound\n%s", want, parts)
	}
	_, operators, _ := strings.Cut(rest, "\n\n")
	if want := `track  category  name            count    total     mean      max    share              bytes
run    run       run                 1   100 ms   100 ms   100 ms  100.0 %
run    compute   a long name, µ      1  50.0 ms  50.0 ms  50.0 ms   50.0 %
files  copy      "two\nlines"        1  40.0 ms  40.0 ms  40.0 ms   40.0 %  6.00 MB, 150 MB/s
`; operators != want {
		t.Errorf("expected\n%s\nfound\n%s", want, operators)
	}
}

func TestTableIsBounded(t *testing.T) {
	var spans []at
	for i := range maxRows + 7 {
		spans = append(spans, at{"files", Read, fmt.Sprint(i), int64(i), int64(i + 1), 0})
	}
	table := recorded(t, spans...).Table()
	if !strings.HasSuffix(table, "and 7 more, which the summary has\n") {
		t.Error(table)
	}
}

func TestNumbersForPeople(t *testing.T) {
	for _, test := range []struct{ found, want string }{
		{duration(0), "0 s"},
		{duration(5e-9), "5.00 ns"},
		{duration(0.9996e-6), "1.00 µs"},
		{duration(0.0123456), "12.3 ms"},
		{duration(0.99949), "999 ms"},
		{duration(0.9996), "1.00 s"},
		{duration(1234.4), "1234 s"},
		{size(7), "7.00 B"},
		{size(999.4), "999 B"},
		{size(999.6), "1.00 kB"},
		{size(12.34e9), "12.3 GB"},
		{times(9.96), "10.0 times"},
		{times(1e6), "over 1000 times"},
	} {
		if test.found != test.want {
			t.Errorf("expected %q, found %q", test.want, test.found)
		}
	}
}

// chromeTrace has the parts of the Trace Event Format that the tests check.
type chromeTrace struct {
	TraceEvents []struct {
		Ph   string
		Pid  *int
		Tid  *int
		Name string
		Cat  string
		Ts   *json.Number
		Dur  *json.Number
		Args map[string]any
	}
	OtherData map[string]any
}

// nanoseconds converts a time in microseconds exactly.
func nanoseconds(t *testing.T, n *json.Number) int64 {
	t.Helper()
	whole, part, _ := strings.Cut(n.String(), ".")
	if len(part) != 3 {
		t.Fatalf("%v: expected three digits after the point", n)
	}
	v, err := strconv.ParseInt(whole+part, 10, 64)
	if err != nil || v < 0 {
		t.Fatalf("%v: expected a time that is not negative", n)
	}
	return v
}

// checkChrome parses the output of Chrome and checks that the spans of each thread nest or follow each other.
func checkChrome(t *testing.T, r *Recording) chromeTrace {
	t.Helper()
	var b bytes.Buffer
	if err := r.Chrome(&b); err != nil {
		t.Fatal(err)
	}
	var c chromeTrace
	decoder := json.NewDecoder(&b)
	if err := decoder.Decode(&c); err != nil {
		t.Fatalf("%v in %s", err, b.String())
	}
	threads := map[int]bool{}
	open := map[int][]int64{}
	last := int64(-1)
	for _, e := range c.TraceEvents {
		if e.Pid == nil || e.Tid == nil {
			t.Fatalf("event without pid or tid: %+v", e)
		}
		switch e.Ph {
		case "M":
			if e.Name == "thread_name" {
				threads[*e.Tid] = true
			}
		case "X":
			if !threads[*e.Tid] {
				t.Errorf("thread %d has no name", *e.Tid)
			}
			from := nanoseconds(t, e.Ts)
			to := from + nanoseconds(t, e.Dur)
			if from < last {
				t.Errorf("%s begins at %d ns, but follows a span that begins at %d", e.Name, from, last)
			}
			last = from
			ends := open[*e.Tid]
			for len(ends) > 0 && ends[len(ends)-1] <= from {
				ends = ends[:len(ends)-1]
			}
			if len(ends) > 0 && to > ends[len(ends)-1] {
				t.Errorf("%s from %d to %d ns does not nest: the span around it ends at %d", e.Name, from, to, ends[len(ends)-1])
			}
			open[*e.Tid] = append(ends, to)
		default:
			t.Errorf("unexpected event of phase %q", e.Ph)
		}
	}
	return c
}

func TestChrome(t *testing.T) {
	odd := "a \"quoted\" \\ name\n\x00 </script> \xff µ"
	r := start(t, 0)
	run := newTrack(odd)
	waits := newShared("waits")
	ms := func(n int64) int64 { return r.start + n*1e6 }
	Span(run, Compute, odd, ms(1), ms(2))
	copySpan(run, "copy", ms(2), ms(2)+1234567, 42)
	Span(run, Run, "run", ms(0), ms(10))
	Span(run, Read, "late", ms(9), ms(11)) // crosses the end of the run
	Span(waits, Full, "first", ms(0), ms(9))
	Span(waits, Full, "second", ms(1), ms(2)) // overlaps the wait above
	Span(waits, Full, "third", ms(9), ms(10))
	Span(run, Read, "early", r.start-5, ms(0)+1)
	r.Stop()
	c := checkChrome(t, r)

	names := map[int]string{}
	type found struct {
		thread, cat, ts, dur string
		tid                  int
	}
	spans := map[string]found{}
	for _, e := range c.TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			names[*e.Tid] = e.Args["name"].(string)
		case e.Ph == "X":
			spans[e.Name] = found{names[*e.Tid], e.Cat, e.Ts.String(), e.Dur.String(), *e.Tid}
			if e.Name == "copy" && e.Args["bytes"] != 42.0 {
				t.Errorf("args of the copy: %v", e.Args)
			}
		}
	}
	name := strings.ToValidUTF8(odd, "\ufffd")
	for span, want := range map[string]found{
		name:     {name, "compute", "1000.000", "1000.000", 1},
		"copy":   {name, "copy", "2000.000", "1234.567", 1},
		"run":    {name, "run", "0.000", "10000.000", 1},
		"early":  {name, "read", "0.000", "0.001", 1},
		"late":   {name, "read", "9000.000", "2000.000", 2},
		"first":  {"waits", "full", "0.000", "9000.000", 3},
		"second": {"waits", "full", "1000.000", "1000.000", 4},
		"third":  {"waits", "full", "9000.000", "1000.000", 3},
	} {
		if spans[span] != want {
			t.Errorf("%q: expected %v, found %v", span, want, spans[span])
		}
	}
	if c.OtherData["spans"] != 8.0 || c.OtherData["dropped_spans"] != 0.0 {
		t.Errorf("otherData: %v", c.OtherData)
	}
}

type brokenWriter struct{ err error }

func (b brokenWriter) Write([]byte) (int, error) { return 0, b.err }

func TestChromeSaysThatItCouldNotWrite(t *testing.T) {
	full := errors.New("disk full")
	if err := recorded(t, at{"run", Run, "run", 0, 1, 0}).Chrome(brokenWriter{full}); err != full {
		t.Errorf("expected %v, found %v", full, err)
	}
}

func TestDroppedSpansAreCounted(t *testing.T) {
	const limit = blockEvents + 10
	r := start(t, limit)
	run := newTrack("run")
	for i := range int64(limit + 5) {
		Span(run, Compute, "add", r.start+i*10, r.start+i*10+10)
	}
	Span(run, Run, "run", r.start, r.start+10*(limit+5))
	r.Stop()
	s := r.Summary()
	if s.Spans != limit || s.Dropped != 6 {
		t.Errorf("expected %d spans and 6 dropped, found %d and %d", limit, s.Spans, s.Dropped)
	}
	// The run had not ended when the recording was full.
	if s.Runs != 1 || !near(s.RunSeconds, limit*10e-9) {
		t.Errorf("found %d runs of %v s", s.Runs, s.RunSeconds)
	}
	if _, rest, _ := strings.Cut(r.Table(), "\n"); !strings.HasPrefix(rest, "the recording was full: 6 spans had no room, ") {
		t.Error(rest)
	}
	if c := checkChrome(t, r); c.OtherData["dropped_spans"] != 6.0 {
		t.Errorf("otherData: %v", c.OtherData)
	}
}

func TestStart(t *testing.T) {
	if On() || newTrack("a") != 0 || Begin() != 0 || newShared("a") != 0 {
		t.Fatal("expected no recording to be on")
	}
	Span(0, Read, "before", Now(), Now())
	for _, limit := range []int{-1, eventLimit + 1} {
		if _, err := Start(limit); err == nil || errors.Is(err, ErrOn) {
			t.Errorf("%d events: %v", limit, err)
		}
	}
	r := start(t, 0)
	if _, err := Start(0); !errors.Is(err, ErrOn) {
		t.Errorf("second Start: expected ErrOn, found %v", err)
	}
	begun := Begin()
	if !On() || begun == 0 || begun > Now() || r.Stopped() {
		t.Error("expected a recording to be on")
	}
	r.Stop()
	r.Stop()
	Since(0, Read, "after", begun)
	CopySince(0, "after", begun, 1)
	if n := r.Summary().Spans; On() || n != 0 || !r.Stopped() {
		t.Errorf("after Stop: on %v, %d spans", On(), n)
	}
	second := start(t, 5)
	r.Stop() // does not affect the second recording
	if !On() {
		t.Error("a second Stop of the first recording ended the second recording")
	}
	second.Stop()
}

func TestTracksOfOtherRecordings(t *testing.T) {
	var lane, shared Lane
	if lane.Track("lane") != 0 {
		t.Error("expected no track without a recording")
	}
	first := start(t, 0)
	old := newTrack("old")
	was := lane.Track("lane")
	if was == 0 || lane.Track("lane") != was || was == old || shared.Shared("shared") != newShared("shared") {
		t.Error("expected a lane to keep its track")
	}
	first.Stop()

	second := start(t, 0)
	newTrack("takes the number of the old one")
	Span(old, Read, "stale", second.start, second.start+1)
	Span(0, Read, "none", second.start, second.start+1)
	now := lane.Track("lane")
	if now == was {
		t.Error("a lane kept the track of an old recording")
	}
	Span(now, Read, "lane", second.start, second.start+1)
	old.Done()
	second.Stop()
	found := map[string]string{}
	for _, o := range second.Summary().Operators {
		found[o.Name] = o.Track
	}
	if found["stale"] != "callers" || found["none"] != "callers" || found["lane"] != "lane" {
		t.Errorf("wrong operators: %v", found)
	}
}

func TestTracksAreUsedAgain(t *testing.T) {
	r := start(t, 0)
	var lane Lane
	first, other := newTrack("run"), newTrack("run")
	if first == other {
		t.Fatal("two runs share one track at the same time")
	}
	first.Done()
	first.Done() // the second call has no effect
	if newTrack("walk") == first {
		t.Error("a track was reused under another name")
	}
	if got := lane.Track("run"); got != first {
		t.Errorf("expected track %d again, found %d", first, got)
	}
	if got := newTrack("run"); got == first || got == other {
		t.Error("a track was reused while in use")
	}
	lane.Done()
	lane.Done()
	if got := newTrack("run"); got != first {
		t.Errorf("expected track %d again, found %d", first, got)
	}
	s := newShared("waits")
	s.Done()
	if newShared("waits") != s || newTrack("waits") == s {
		t.Error("expected the same shared track as before")
	}
	r.Stop()
}

func TestRecordingWhileItStartsAndStops(t *testing.T) {
	const writers = 8
	recordings := 60
	if testing.Short() {
		recordings = 24
	}
	var wait sync.WaitGroup
	var stop atomic.Bool
	for w := range writers {
		wait.Go(func() {
			var lane Lane
			for !stop.Load() {
				start := Begin()
				track := newTrack("run")
				Since(lane.Track("writer"), Read, "work", start)
				CopySince(track, "copy", start, w)
				TransferSpan(lane.Track("writer"), "transfer", start, start+1, w)
				StallSpan(track, "stall", start, start)
				track.Done()
				runtime.Gosched()
			}
		})
	}
	for i := range recordings {
		r := start(t, 2*blockEvents)
		for r.next.Load() < uint64(100*i) {
			runtime.Gosched()
		}
		if i%2 == 0 {
			r.Summary() // while the recording is on
		}
		var stops sync.WaitGroup
		for range 2 {
			stops.Go(r.Stop)
		}
		stops.Wait()
		s := r.Summary()
		if s.Spans > 2*blockEvents || uint64(s.Spans)+s.Dropped < uint64(100*i) {
			t.Fatalf("%d spans and %d dropped of at least %d", s.Spans, s.Dropped, 100*i)
		}
		var count int
		for _, o := range s.Operators {
			if !slices.Contains([]string{"work", "copy", "transfer", "stall"}, o.Name) {
				t.Fatalf("found a span that was never written: %v", o)
			}
			count += o.Count
		}
		again := r.Summary()
		if count != s.Spans || again.Spans != s.Spans || again.Dropped != s.Dropped || !slices.Equal(again.Operators, s.Operators) {
			t.Fatal("the recording changed after Stop")
		}
	}
	stop.Store(true)
	wait.Wait()
}

func TestNoAllocations(t *testing.T) {
	site := func() {
		start := Begin()
		Since(0, Read, "work", start)
		CopySince(0, "copy", start, 7)
		TransferSpan(0, "CUDAPlace(0)", start, start, 7)
		StallSpan(0, "CUDAPlace(0)", start, start)
		Span(newTrack("nothing"), Wait, "work", start, start)
	}
	if n := testing.AllocsPerRun(1000, site); n != 0 {
		t.Errorf("with no recording: expected 0 allocations, found %v", n)
	}
	r := start(t, 100_000)
	var lane Lane
	on := func() {
		start := Begin()
		Since(lane.Track("lane"), Read, "work", start)
		CopySince(lane.Track("lane"), "copy", start, 7)
		TransferSpan(lane.Track("lane"), "CUDAPlace(0)", start, Now(), 7)
		StallSpan(lane.Track("lane"), "CUDAPlace(0)", start, Now())
	}
	if n := testing.AllocsPerRun(10_000, on); n != 0 {
		t.Errorf("with a recording: expected 0 allocations, found %v", n)
	}
	r.Stop()
}

func BenchmarkSpan(b *testing.B) {
	site := func(t Track) {
		start := Begin()
		Since(t, Read, "work", start)
	}
	b.Run("off", func(b *testing.B) {
		for b.Loop() {
			site(0)
		}
	})
	on := func(b *testing.B, run func(Track)) {
		r := start(b, 100_000_000)
		b.ReportAllocs()
		b.ResetTimer()
		run(newTrack("bench"))
		b.StopTimer()
		r.Stop()
	}
	b.Run("on", func(b *testing.B) {
		on(b, func(t Track) {
			for range b.N {
				site(t)
			}
		})
	})
	b.Run("on, parallel", func(b *testing.B) {
		on(b, func(t Track) {
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					site(t)
				}
			})
		})
	})
}

func BenchmarkSummary(b *testing.B) {
	r := start(b, 1_000_000)
	run := newTrack("run")
	waits := newShared("waits")
	for i := range int64(250_000) {
		at := r.start + 1000*i
		Span(run, Compute, "add", at, at+500)
		Span(run, Wait, "read", at+600, at+900)
		Span(run, Read, "read", at+550, at+950)
		Span(waits, Producer, "waits for a push", at+500, at+800)
	}
	r.Stop()
	b.Run("summary", func(b *testing.B) {
		for b.Loop() {
			r.Summary()
		}
	})
	b.Run("chrome", func(b *testing.B) {
		for b.Loop() {
			if err := r.Chrome(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func TestALaneThatSleptThroughManyRecordings(t *testing.T) {
	var lane Lane
	for i := range 3000 { // once, a generation had too few bits for so many recordings
		r, err := Start(100)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			for range 50 {
				newTrack("another")
			}
			lane.Track("sleeper")
		}
		Span(lane.track, Read, "late", Now(), Now())
		r.Stop()
		if i > 0 {
			if got := r.Summary().Operators[0].Track; got != "callers" {
				t.Fatalf("recording %d: expected the span on the track of the callers, found it on %q", i, got)
			}
		}
	}
}
