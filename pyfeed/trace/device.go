package trace

import (
	"cmp"
	"slices"
)

// Device summarizes the copies to one place.
type Device struct {
	Place     string `json:"place"`
	Transfers int    `json:"transfers"`
	Bytes     int64  `json:"bytes"`
	// BusySeconds is the time with at least one copy in progress, IdleSeconds the rest of the recording.
	BusySeconds    float64 `json:"busy_seconds"`
	IdleSeconds    float64 `json:"idle_seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"` // while busy
	// Overlap is the share of BusySeconds in which some thread computed, read, copied on the host or made data without
	// sleeping, and no thread was in a Stall for this place. nil if there were no copies.
	Overlap *float64 `json:"overlap"`
	Stalls  Stalls   `json:"stalls"`
}

// Stalls summarizes the waits for copies.
type Stalls struct {
	Count   int     `json:"count"` // includes stalls of length 0
	Seconds float64 `json:"seconds"`
	Median  float64 `json:"median_seconds"`
	P99     float64 `json:"p99_seconds"` // 99th percentile by nearest rank
	Max     float64 `json:"max_seconds"`
}

// devices summarizes the copies to each device. length is the length of the recording.
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
	work := workTime(spans, tracks)
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

// workTime returns the time in which at least one thread computed, read, copied on the host or made data, without the
// sleeps of that thread.
func workTime(spans []*event, tracks []track) union {
	work := make([][]*event, len(tracks))
	asleep := make([][]*event, len(tracks))
	for _, e := range spans {
		switch e.category {
		case Compute, Read, Copy, Make:
			work[e.track] = append(work[e.track], e)
		case Wait, Producer, Full, Backlog, Stall:
			who := int64(e.track)
			if tracks[who].shared {
				who = int64(e.ownTrack())
			}
			// Track 0 mixes several callers. A Full on it is the sleep of a caller that pushes, not of one that reads.
			// A Stall on it may be that of a caller that does no work. So neither shows that a working caller sleeps.
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
	slices.SortFunc(all, func(a, b interval) int { return cmp.Compare(a.start, b.start) })
	var u union
	for _, s := range all {
		u = u.with(s.start, s.end)
	}
	return u
}
