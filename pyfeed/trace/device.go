package trace

import (
	"cmp"
	"slices"
)

// Device is what is known of the copies to one place.
type Device struct {
	Place     string `json:"place"`
	Transfers int    `json:"transfers"`
	Bytes     int64  `json:"bytes"`
	// BusySeconds is the time in which at least one copy was under way, IdleSeconds the rest of the recording.
	BusySeconds    float64 `json:"busy_seconds"`
	IdleSeconds    float64 `json:"idle_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"` // while busy
	// Overlap is the share of BusySeconds that cost nobody anything: in which something was computed, read, copied on the
	// host or made by somebody who did not sleep, and nobody was in a Stall for this place. nil if there were no copies.
	Overlap *float64 `json:"overlap"`
	Stalls  Stalls   `json:"stalls"`
}

// Stalls are waits for copies.
type Stalls struct {
	Count   int     `json:"count"` // those that took no time as well
	Seconds float64 `json:"seconds"`
	Median  float64 `json:"median_seconds"`
	P99     float64 `json:"p99_seconds"` // of a hundred, one took longer
	Max     float64 `json:"max_seconds"`
}

// devices sums up the copies to each device. The recording has a length.
func devices(spans []*event, tracks []track, length int64) []Device {
	type sums struct {
		transfers, stalls []*event
		bytes             int64
	}
	of := make(map[string]*sums)
	found := func(place string) *sums {
		if of[place] == nil {
			of[place] = new(sums)
		}
		return of[place]
	}
	for _, e := range spans {
		switch e.category {
		case Transfer:
			d := found(e.name)
			d.transfers = append(d.transfers, e)
			d.bytes += e.bytes()
		case Stall:
			d := found(e.name)
			d.stalls = append(d.stalls, e)
		}
	}
	all := make([]Device, 0, len(of))
	if len(of) == 0 {
		return all
	}
	work := atWork(spans, tracks)
	for place, d := range of {
		busy := unionOf(d.transfers)
		took := busy.length()
		found := Device{
			Place: place, Transfers: len(d.transfers), Bytes: d.bytes, Stalls: stalls(d.stalls),
			BusySeconds: seconds(took), IdleSeconds: seconds(max(length-took, 0)), BytesPerSecond: rate(d.bytes, took),
		}
		if took > 0 {
			hidden := work.minus(unionOf(d.stalls))
			found.Overlap = new(float64(busy.common(hidden)) / float64(took))
		}
		all = append(all, found)
	}
	slices.SortFunc(all, func(a, b Device) int { // CUDAPlace(2) comes before CUDAPlace(10)
		return cmp.Or(cmp.Compare(len(a.Place), len(b.Place)), cmp.Compare(a.Place, b.Place))
	})
	return all
}

func stalls(spans []*event) Stalls {
	s := Stalls{Count: len(spans)}
	if len(spans) == 0 {
		return s
	}
	took := make([]int64, len(spans))
	var all int64
	for i, e := range spans {
		took[i] = e.end - e.start
		all += took[i]
	}
	slices.Sort(took)
	n := len(took)
	s.Seconds, s.Max = seconds(all), seconds(took[n-1])
	s.Median = (seconds(took[(n-1)/2]) + seconds(took[n/2])) / 2
	s.P99 = seconds(took[(99*n+99)/100-1])
	return s
}

// atWork is when somebody computed, read, copied on the host or made data, and did not sleep within that.
func atWork(spans []*event, tracks []track) union {
	work := make([][]*event, len(tracks))
	asleep := make([][]*event, len(tracks))
	for _, e := range spans {
		switch e.category {
		case Compute, Read, Copy, Make:
			work[e.track] = append(work[e.track], e)
		case Wait, Producer, Full, Backlog, Stall:
			who := int64(e.track)
			if tracks[who].shared {
				who = int64(e.who())
			}
			// Of callers, those who push are others than those who read; and a stream may stall as well.
			if who != 0 || e.category != Full && e.category != Stall {
				asleep[who] = append(asleep[who], e)
			}
		}
	}
	var all union
	for i := range tracks {
		if len(work[i]) > 0 {
			all = append(all, unionOf(work[i]).minus(unionOf(asleep[i]))...)
		}
	}
	slices.SortFunc(all, func(a, b stretch) int { return cmp.Compare(a.start, b.start) })
	var u union
	for _, s := range all {
		u = u.with(s.start, s.end)
	}
	return u
}
