package trace

import (
	"cmp"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestDevices(t *testing.T) {
	const zero, two, ten = "CUDAPlace(0)", "CUDAPlace(2)", "CUDAPlace(10)"
	r := recorded(t,
		at{"run", Run, "run", 0, 100, 0},
		at{"run", Read, "read", 0, 30, 0},
		at{"run", Wait, "read", 0, 30, 0}, // a reader that only waits does no work
		at{"run", Compute, "add", 30, 50, 0},
		at{"pump", Read, "double_buffer", 40, 70, 0},
		at{"pump", Wait, "waits for memory", 60, 70, 0},
		at{"pump", Copy, "batch", 80, 85, 100}, // outside of a read
		at{"copies to 0", Transfer, zero, 10, 40, 6_000_000},
		at{"copies to 0", Transfer, zero, 60, 90, 6_000_000},
		at{"copies to 0, too", Transfer, zero, 80, 100, 2_000_000}, // overlaps the transfer above
		at{"copies to 2", Transfer, two, 40, 60, 2_000_000},
		at{"stalls", Stall, two, 0, 0, 0},
		at{"stalls", Stall, two, 45, 50, 0},
		at{"stalls", Stall, two, 50, 52, 0},
		at{"stalls", Stall, ten, 55, 58, 0}, // does not stall consumers of another device
	)
	r.end = r.start + 100e6
	found := r.Summary().Devices
	want := []Device{
		{Place: zero, Transfers: 3, Bytes: 14_000_000, BusySeconds: 0.070, IdleSeconds: 0.030, BytesPerSecond: 2e8,
			Overlap: new(15.0 / 70)}, // computed from 30 to 40, copied from 80 to 85
		{Place: two, Transfers: 1, Bytes: 2_000_000, BusySeconds: 0.020, IdleSeconds: 0.080, BytesPerSecond: 1e8,
			Overlap: new(13.0 / 20), // computed or read all the time
			Stalls:  Stalls{Count: 3, Seconds: 0.007, Median: 0.002, P99: 0.005, Max: 0.005}},
		{Place: ten, IdleSeconds: 0.100, Stalls: Stalls{Count: 1, Seconds: 0.003, Median: 0.003, P99: 0.003, Max: 0.003}},
	}
	if len(found) != len(want) {
		t.Fatalf("expected %d devices, found %v", len(want), found)
	}
	for i, w := range want {
		f := found[i]
		switch {
		case (f.Overlap == nil) != (w.Overlap == nil):
			t.Errorf("%s: expected an overlap: %v", f.Place, w.Overlap != nil)
		case w.Overlap != nil && !near(*f.Overlap, *w.Overlap):
			t.Errorf("%s: expected an overlap of %v, found %v", f.Place, *w.Overlap, *f.Overlap)
		}
		f.Overlap, w.Overlap = nil, nil
		f.BytesPerSecond = math.Round(f.BytesPerSecond)
		if f != w {
			t.Errorf("expected %+v, found %+v", w, f)
		}
	}
	if s := r.Summary(); s.Copies.Count != 1 || s.Copies.Bytes != 100 {
		t.Errorf("expected no copies on the host, found %+v", s.Copies)
	}
}

func TestIdleIsTheRestOfTheRecording(t *testing.T) {
	r := start(t, 0)
	TransferSpan(0, "CUDAPlace(0)", r.start, r.start+1e6, 1)
	r.Stop()
	r.end = r.start + 5e6
	if d := r.Summary().Devices[0]; !near(d.BusySeconds, 0.001) || !near(d.IdleSeconds, 0.004) {
		t.Errorf("found %+v", d)
	}
	r.end = r.start + 1e5 // as if the device's clock ran ahead
	if d := r.Summary().Devices[0]; d.IdleSeconds != 0 {
		t.Errorf("found %+v", d)
	}
}

func TestWithoutDevices(t *testing.T) {
	r := recorded(t, at{"", Full, "waits for room", 0, 10, 0})
	s := r.Summary()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"devices":[]`) {
		t.Errorf("expected an empty list of devices in %s", text)
	}
	if table := r.Table(); strings.Contains(table, "copies to") || strings.Contains(table, "got through") {
		t.Error(table)
	}
}

// A transfer is recorded after its end, and may have begun before the recording. It is left out then.
func TestTransfersBeforeTheRecording(t *testing.T) {
	begun := Now()
	r := start(t, 0)
	TransferSpan(0, "CUDAPlace(0)", begun, Now(), 1000)
	TransferSpan(0, "CUDAPlace(0)", 0, Now(), 1000)
	StallSpan(0, "CUDAPlace(0)", begun, Now())
	StallSpan(0, "CUDAPlace(0)", 0, Now())
	TransferSpan(0, "CUDAPlace(0)", r.start, Now(), 7)
	r.Stop()
	if s := r.Summary(); s.Spans != 1 || s.Devices[0].Bytes != 7 {
		t.Errorf("found %d spans, %+v", s.Spans, s.Devices)
	}
}

func TestStalls(t *testing.T) {
	for _, test := range []struct {
		ms   []int64
		want Stalls
	}{
		{nil, Stalls{}},
		{[]int64{4}, Stalls{1, 0.004, 0.004, 0.004, 0.004}},
		{[]int64{4, 2}, Stalls{2, 0.006, 0.003, 0.004, 0.004}},
		{[]int64{9, 0, 0}, Stalls{3, 0.009, 0, 0.009, 0.009}},
		{append(slices.Repeat([]int64{1}, 99), 500), Stalls{100, 0.599, 0.001, 0.001, 0.500}},
		{append(slices.Repeat([]int64{1}, 98), 500, 300), Stalls{100, 0.898, 0.001, 0.300, 0.500}},
	} {
		var spans []*event
		for _, ms := range test.ms {
			spans = append(spans, &event{start: 5, end: 5 + ms*1e6})
		}
		if found := stalls(spans); found != test.want {
			t.Errorf("%v: expected %v, found %v", test.ms, test.want, found)
		}
	}
}

// A sleep belongs to the track that it is on, or to the track that slept. The sleeps of unknown callers are ambiguous.
func TestWorkTime(t *testing.T) {
	for name, test := range map[string]struct {
		record func(run, pump, list Track, ms func(int64) int64)
		want   float64
	}{
		"a sleep in a list": {func(_, pump, list Track, ms func(int64) int64) {
			Span(pump, Read, "shuffle", ms(0), ms(10))
			SleepSpan(list, Wait, "waits", ms(2), ms(6), Sleep{Who: pump})
		}, 0.6},
		"another's": {func(run, pump, list Track, ms func(int64) int64) {
			Span(pump, Read, "shuffle", ms(0), ms(10))
			SleepSpan(list, Wait, "waits", ms(2), ms(6), Sleep{Who: run})
		}, 1},
		"callers that read": {func(_, _, list Track, ms func(int64) int64) {
			Span(0, Read, "next", ms(0), ms(10))
			SleepSpan(list, Wait, "waits", ms(2), ms(6), Sleep{Who: 0})
			SleepSpan(list, Full, "waits for room", ms(0), ms(10), Sleep{Who: 0}) // of pushers, not of the reader
		}, 0.6},
		"a caller that waits for a copy to another device": {func(_, _, list Track, ms func(int64) int64) {
			Span(0, Read, "next", ms(0), ms(10))
			StallSpan(list, "CUDAPlace(7)", ms(2), ms(6))
		}, 1},
		"a loader that stages": {func(run, _, list Track, ms func(int64) int64) {
			Span(run, Run, "run", ms(0), ms(10))
			Span(run, Copy, "stage", ms(0), ms(8))
			SleepSpan(list, Full, "waits for room", ms(1), ms(7), Sleep{Who: run})
			Span(run, Wait, "stage", ms(2), ms(8))
		}, 0.1},
		"the executor": {func(run, _, _ Track, ms func(int64) int64) { Span(run, Run, "run", ms(0), ms(10)) }, 0},
		"a kernel that asks for another copy": {func(run, _, _ Track, ms func(int64) int64) {
			Span(run, Compute, "matmul", ms(0), ms(10))
			StallSpan(run, "CUDAPlace(7)", ms(0), ms(3))
		}, 0.7},
		"what a device computes": {func(_, _, list Track, ms func(int64) int64) {
			Span(list, Compute, "CUDAPlace(0)", ms(1), ms(5))
			Span(list, Compute, "CUDAPlace(0)", ms(4), ms(8))
		}, 0.7},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, 0)
			ms := func(n int64) int64 { return r.start + n*1e6 }
			test.record(newTrack("run"), newTrack("pump"), newShared("list"), ms)
			TransferSpan(newTrack("copies"), "CUDAPlace(0)", ms(0), ms(10), 1)
			r.Stop()
			if d := r.Summary().Devices[0]; d.Overlap == nil || !near(*d.Overlap, test.want) {
				t.Errorf("expected an overlap of %v, found %+v", test.want, d)
			}
		})
	}
}

// The overlap of random spans is compared with a count moment by moment.
func TestOverlapMomentByMoment(t *testing.T) {
	const moments, tracks, devices = 40, 3, 2
	places := []string{"CUDAPlace(0)", "CUDAPlace(1)"}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		r := start(t, 0)
		var on [tracks]Track
		for i := range on {
			on[i] = newTrack("track")
		}
		stream := newShared("stream")
		var works, sleeps [tracks][moments]bool
		var busy, stalled [devices][moments]bool
		for range random.IntN(30) {
			from := random.Int64N(moments)
			to := from + random.Int64N(moments-from+1)
			mark := func(of *[moments]bool) {
				for m := from; m < to; m++ {
					of[m] = true
				}
			}
			track, device := random.IntN(tracks), random.IntN(devices)
			switch random.IntN(4) {
			case 0:
				c := []Category{Compute, Read, Copy, Make}[random.IntN(4)]
				Span(on[track], c, "work", r.start+from, r.start+to)
				mark(&works[track])
			case 1:
				c := []Category{Wait, Producer, Full, Backlog}[random.IntN(4)]
				SleepSpan(stream, c, "sleep", r.start+from, r.start+to, Sleep{Who: on[track]})
				mark(&sleeps[track])
			case 2:
				TransferSpan(stream, places[device], r.start+from, r.start+to, 1)
				mark(&busy[device])
			case 3:
				StallSpan(stream, places[device], r.start+from, r.start+to)
				mark(&stalled[device])
			}
		}
		r.Stop()
		for i, place := range places {
			all, hidden := 0, 0
			for m := range moments {
				worked := false
				for track := range tracks {
					worked = worked || works[track][m] && !sleeps[track][m]
				}
				if busy[i][m] {
					all++
					if worked && !stalled[i][m] {
						hidden++
					}
				}
			}
			found := r.Summary().Devices
			at := slices.IndexFunc(found, func(d Device) bool { return d.Place == place })
			switch {
			case all == 0 && at >= 0 && found[at].Overlap != nil:
				t.Fatalf("seed %d: %s: an overlap without a copy: %+v", seed, place, found[at])
			case all > 0 && (!near(found[at].BusySeconds, float64(all)*1e-9) || !near(*found[at].Overlap, float64(hidden)/float64(all))):
				t.Fatalf("seed %d: %s: expected %d of %d ns, found %v of %v s", seed, place, hidden, all, *found[at].Overlap, found[at].BusySeconds)
			}
		}
	}
}

func TestTableOfDevices(t *testing.T) {
	r := recorded(t,
		at{"copies", Transfer, "CUDAPlace(0)", 0, 40, 6_000_000},
		at{"pump", Read, "double_buffer", 10, 40, 0},
		at{"stalls", Stall, "CUDAPlace(0)", 0, 10, 0},
		at{"stalls", Stall, "CUDAPlace(0)", 40, 40, 0},
		at{"other copies", Transfer, "CUDAPlace(1)", 0, 5, 1_000_000},
		at{"stalls of another", Stall, "CUDAPlace(2)", 0, 1, 0},
		at{"pump", Backlog, "waits for memory of CUDAPlace(0)", 45, 50, 0},
	)
	r.end = r.start + 100e6
	table := strings.Split(r.Table(), "\n\n")
	if len(table) != 4 {
		t.Fatalf("expected a sentence and three tables, found %q", table)
	}
	if want := "; copies to devices took 45.0 ms, and consumers stalled 11.0 ms for them"; !strings.HasSuffix(table[0], want) {
		t.Errorf("expected %q at the end of %q", want, table[0])
	}
	if want := "waits for busy devices                                     5.00 ms"; !strings.HasSuffix(table[1], want) {
		t.Errorf("expected %q at the end of %q", want, table[1])
	}
	if want := `copies to     count     busy     idle  overlap              bytes  stalls  stalled   median      p99
CUDAPlace(0)      1  40.0 ms  60.0 ms   75.0 %  6.00 MB, 150 MB/s       2  10.0 ms  5.00 ms  10.0 ms
CUDAPlace(1)      1  5.00 ms  95.0 ms    0.0 %  1.00 MB, 200 MB/s       0
CUDAPlace(2)      0      0 s   100 ms                                   1  1.00 ms  1.00 ms  1.00 ms`; table[2] != want {
		t.Errorf("expected\n%s\nfound\n%s", want, table[2])
	}
}

func TestChromeOfTransfers(t *testing.T) {
	r := start(t, 0)
	ms := func(n int64) int64 { return r.start + n*1e6 }
	pump, copies, run := newTrack("pump"), newTrack("copies to CUDAPlace(0)"), newTrack("run")
	Span(pump, Read, "double_buffer", ms(0), ms(1))
	TransferSpan(copies, "CUDAPlace(0)", ms(0), ms(2), 100_246_000)
	TransferSpan(copies, "CUDAPlace(0)", ms(2), ms(3), 15) // begins where the transfer above ends
	TransferSpan(copies, "CUDAPlace(0)", ms(4), ms(4), 15) // too short for the clock
	StallSpan(newShared("stalls"), "CUDAPlace(0)", ms(1), ms(2))
	Span(run, Compute, "add", ms(0), ms(1))
	r.Stop()

	type found struct {
		row   int
		cat   string
		bytes any
		rate  any
	}
	var rows []string
	var spans []found
	for _, e := range checkChrome(t, r).TraceEvents {
		switch {
		case e.Ph == "M" && e.Name == "thread_name":
			rows = append(rows, e.Args["name"].(string))
		case e.Ph == "X" && e.Name == "CUDAPlace(0)":
			spans = append(spans, found{*e.Tid, e.Cat, e.Args["bytes"], e.Args["GB/s"]})
		}
	}
	if want := []string{"run", "copies to CUDAPlace(0)", "pump", "stalls"}; !slices.Equal(rows, want) {
		t.Errorf("expected rows %q, found %q", want, rows)
	}
	want := []found{
		{2, "transfer", 100_246_000.0, 50.12},
		{2, "transfer", 15.0, 1.5e-5},
		{2, "transfer", 15.0, nil},
		{4, "stall", nil, nil},
	}
	slices.SortStableFunc(spans, func(a, b found) int { return cmp.Compare(a.row, b.row) })
	if !slices.Equal(spans, want) {
		t.Errorf("expected %v, found %v", want, spans)
	}
}
