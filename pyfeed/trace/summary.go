package trace

import (
	"cmp"
	"math"
	"slices"
)

// Summary says what limits the loop that was recorded, and where the time went.
//
// Each moment of a run is somebody's. On the run's own Track, the innermost span that is open decides:
//
//   - in a Wait, it is the producer's while any Producer or Make span of the process is open, since data comes from
//     there in the end; else copying while any Copy span is; else transferring while any Transfer is; else computing
//     while any Backlog is, since a device is busy with what it was given; else reading;
//   - in a Stall, it is transferring;
//   - in a Compute operator, it is computing;
//   - in a Read operator, it is copying within its Copy spans, else reading; a Copy span outside all operators is
//     copying as well;
//   - what is left is the executor's own.
//
// A Wait in which the run itself slept for want of room, as one that fills a staging buffer does, is no part of its
// time: it holds nobody up.
//
// Shares are of the time of all runs together, and sum up to 1. A Track with a Compute span that is in no Run belongs
// to a run that had not ended when the recording did, or was full: that one counts from its first span to its last.
type Summary struct {
	// Sentence says it in words.
	Sentence string `json:"sentence"`
	// LimitedBy is the part with the largest share; "" if no run was recorded.
	LimitedBy string `json:"limited_by"`
	// Runs is how many there were, RunSeconds their time, summed.
	Runs       int     `json:"runs"`
	RunSeconds float64 `json:"run_seconds"`
	// RoomSeconds is how long runs slept for want of room, which is not in RunSeconds.
	RoomSeconds float64 `json:"room_seconds"`
	// Parts are "compute", "producer", "reader", "copy", "transfer" and "executor", the largest first.
	Parts []Part `json:"parts"`

	// Seconds is how long the recording took.
	Seconds float64 `json:"seconds"`
	// Spans is how many were recorded, Dropped how many had no room. If there are any, all else here is about the time
	// before there was none left.
	Spans   int    `json:"spans"`
	Dropped uint64 `json:"dropped_spans"`

	// ProducerSeconds is how long consumers slept because producers were slower, FullSeconds how long producers and
	// reading threads did because consumers were: each summed over all that slept, in a run or not.
	ProducerSeconds float64 `json:"producer_seconds"`
	FullSeconds     float64 `json:"full_seconds"`
	// BacklogSeconds is how long anybody slept until a device had got through what was submitted to it.
	BacklogSeconds float64 `json:"backlog_seconds"`
	// Copies are all Copy spans together that say how many bytes.
	Copies Bandwidth `json:"copies"`
	// Devices are those that something was copied to, or that somebody waited for, in the order of their numbers.
	Devices []Device `json:"devices"`

	// Operators are the spans by track, category and name, those with the most time first. A span's time includes what
	// lies within it.
	Operators []Operator `json:"operators"`
}

// Part is whose the time of runs is.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of RunSeconds
	// Speedup is how many times as fast the loop would be if this part took no time, at most: 1/(1-Share). nil if
	// there is nothing else.
	Speedup *float64 `json:"speedup"`
}

// Bandwidth is how fast bytes were copied.
type Bandwidth struct {
	Count          int     `json:"count"`
	Bytes          int64   `json:"bytes"`
	Seconds        float64 `json:"seconds"` // summed over threads
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Operator is what the spans of one name have in common.
type Operator struct {
	Track    string  `json:"track"`
	Category string  `json:"category"`
	Name     string  `json:"name"`
	Count    int     `json:"count"`
	Seconds  float64 `json:"seconds"`
	Mean     float64 `json:"mean_seconds"`
	Max      float64 `json:"max_seconds"`
	// Share is of RunSeconds, or of the recording's where there was no run. Above 1 if several threads did it.
	Share          float64 `json:"share"`
	Bytes          int64   `json:"bytes,omitempty"`
	BytesPerSecond float64 `json:"bytes_per_second,omitempty"`
}

// The parts.
const (
	compute = iota
	producer
	reader
	copying
	transfer
	executor

	numParts
)

var partNames = [numParts]string{"compute", "producer", "reader", "copy", "transfer", "executor"}

// Summary says what limits the loop.
func (r *Recording) Summary() Summary {
	spans, tracks := r.spans()
	length, lost := r.extent(len(spans))
	s := Summary{Seconds: seconds(length), Spans: len(spans), Dropped: lost}

	a := account(spans, tracks)
	s.Runs, s.RoomSeconds = a.runs, seconds(a.room)
	var all int64
	for _, t := range a.time {
		all += t
	}
	s.RunSeconds = seconds(all)
	s.Parts = []Part{}
	for i, t := range a.time {
		p := Part{Name: partNames[i], Seconds: seconds(t)}
		if all > 0 {
			p.Share = float64(t) / float64(all)
		}
		if t < all {
			p.Speedup = new(float64(all) / float64(all-t))
		}
		s.Parts = append(s.Parts, p)
	}
	slices.SortStableFunc(s.Parts, func(a, b Part) int { return cmp.Compare(b.Share, a.Share) })
	if all > 0 {
		s.LimitedBy = s.Parts[0].Name
	}
	of := all
	if of == 0 {
		of = length
	}
	s.tabulate(spans, tracks, of)
	s.Devices = devices(spans, tracks, length)
	s.Sentence = s.sentence()
	return s
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// tabulate adds up the spans of a kind. Their shares are of a time in nanoseconds.
func (s *Summary) tabulate(spans []*event, tracks []track, of int64) {
	type key struct {
		track, name string
		category    Category
	}
	type sums struct {
		count          int
		total, longest int64
		bytes          int64
	}
	rows := make(map[key]*sums)
	var full, missing, backlog int64
	var copies sums
	for _, e := range spans {
		k := key{tracks[e.track].name, e.name, e.category}
		row := rows[k]
		if row == nil {
			row = new(sums)
			rows[k] = row
		}
		took := e.end - e.start
		row.count++
		row.total += took
		row.longest = max(row.longest, took)
		row.bytes += e.bytes()
		switch e.category {
		case Producer:
			missing += took
		case Full:
			full += took
		case Backlog:
			backlog += took
		case Copy:
			if e.bytes() > 0 {
				copies.count++
				copies.total += took
				copies.bytes += e.bytes()
			}
		}
	}
	s.ProducerSeconds, s.FullSeconds, s.BacklogSeconds = seconds(missing), seconds(full), seconds(backlog)
	s.Copies = Bandwidth{copies.count, copies.bytes, seconds(copies.total), rate(copies.bytes, copies.total)}

	s.Operators = make([]Operator, 0, len(rows))
	for k, row := range rows {
		o := Operator{
			Track: k.track, Category: k.category.String(), Name: k.name, Count: row.count,
			Seconds: seconds(row.total), Mean: seconds(row.total) / float64(row.count), Max: seconds(row.longest),
			Bytes: row.bytes, BytesPerSecond: rate(row.bytes, row.total),
		}
		if of > 0 {
			o.Share = float64(row.total) / float64(of)
		}
		s.Operators = append(s.Operators, o)
	}
	slices.SortFunc(s.Operators, func(a, b Operator) int {
		return cmp.Or(cmp.Compare(b.Seconds, a.Seconds), cmp.Compare(a.Track, b.Track), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Category, b.Category))
	})
}

// rate is in bytes a second; 0 of what took no time that a clock could see.
func rate(bytes, ns int64) float64 {
	if ns == 0 {
		return 0
	}
	return float64(bytes) / seconds(ns)
}

// account shares the time of runs out.
func account(spans []*event, tracks []track) *accountant {
	// Those of a kind, and of those that come before it.
	var producers, copies, transfers, backlog []*event
	onTrack := make([][]*event, len(tracks))
	asleep := make([][]*event, len(tracks)) // by who sleeps
	isRun := make([]bool, len(tracks))
	for _, e := range spans {
		switch e.category {
		case Producer, Make:
			producers, copies = append(producers, e), append(copies, e)
			transfers, backlog = append(transfers, e), append(backlog, e)
		case Copy:
			copies, transfers, backlog = append(copies, e), append(transfers, e), append(backlog, e)
		case Transfer:
			transfers, backlog = append(transfers, e), append(backlog, e)
		case Backlog:
			backlog = append(backlog, e)
		case Full:
			asleep[e.detail] = append(asleep[e.detail], e)
		case Run, Compute:
			isRun[e.track] = !tracks[e.track].shared
		}
	}
	for _, e := range spans {
		if isRun[e.track] {
			onTrack[e.track] = append(onTrack[e.track], e)
		}
	}
	a := &accountant{waitedFor: [...]union{unionOf(producers), unionOf(copies), unionOf(transfers), unionOf(backlog)}}
	for i, on := range onTrack {
		if len(on) > 0 {
			a.track(withRuns(on), unionOf(asleep[i]))
		}
	}
	return a
}

// withRuns adds a Run round those that are in none, if there is one with a Compute among them.
func withRuns(spans []*event) []*event {
	all := make([]*event, 0, len(spans)+1)
	var loose []*event
	settle := func() {
		computes := func(e *event) bool { return e.category == Compute }
		if slices.ContainsFunc(loose, computes) {
			run := &event{category: Run, start: loose[0].start}
			for _, e := range loose {
				run.end = max(run.end, e.end)
			}
			all = append(all, run)
		}
		all = append(all, loose...)
		loose = loose[:0]
	}
	covered := int64(-1)
	for _, e := range spans {
		switch {
		case e.category == Run:
			settle()
			covered = max(covered, e.end)
			all = append(all, e)
		case e.start < covered || e.end <= covered:
			all = append(all, e)
		default:
			loose = append(loose, e)
		}
	}
	settle()
	return all
}

type accountant struct {
	waitedFor [4]union // by whose a Wait is: each includes those before it
	time      [numParts]int64
	room      int64
	runs      int
}

// waits are the parts that a Wait may be, in the order of accountant.waitedFor.
var waits = [...]int{producer, copying, transfer, compute}

// track goes through the spans of a track in their order. Its run slept for room while crowded.
func (a *accountant) track(spans []*event, crowded union) {
	type frame struct {
		category Category
		end      int64
		forRoom  bool
	}
	var open []frame
	var now int64
	inRuns := 0
	lastRun := int64(-1)
	pass := func(until int64) { // gives the time from now on to whose it is
		from := now
		now = until
		if inRuns == 0 || from == until {
			return
		}
		part := executor
		copied := false
		for i := len(open) - 1; part == executor && open[i].category != Run; i-- {
			switch open[i].category {
			case Wait, Backlog:
				if open[i].forRoom {
					a.room += until - from
					return
				}
				given := int64(0)
				for j, part := range waits {
					within := a.waitedFor[j].within(from, until)
					a.time[part] += within - given
					given = within
				}
				a.time[reader] += until - from - given
				return
			case Stall:
				part = transfer
			case Compute:
				part = compute
			case Read:
				part = reader
			case Copy:
				copied = true
			}
		}
		if copied && part != compute {
			part = copying
		}
		a.time[part] += until - from
	}
	closeUntil := func(t int64) {
		for n := len(open); n > 0 && open[n-1].end <= t; n-- {
			pass(open[n-1].end)
			if open[n-1].category == Run {
				inRuns--
			}
			open = open[:n-1]
		}
		pass(t)
	}
	for _, e := range spans {
		closeUntil(e.start)
		end := e.end
		if n := len(open); n > 0 {
			end = min(end, open[n-1].end) // spans of one track nest
		}
		if e.category == Run {
			inRuns++
			if e.start != lastRun { // or the rest of one that is recorded in parts
				a.runs++
			}
			lastRun = e.end
		}
		open = append(open, frame{e.category, end, e.category == Wait && crowded.within(e.start, end) > 0})
	}
	closeUntil(math.MaxInt64)
}

// union is the time during which at least one of some spans is open, as stretches that are disjoint and in order.
type union []stretch

type stretch struct {
	start, end int64
	before     int64 // the length of those before it
}

// unionOf is that of spans in their order.
func unionOf(spans []*event) union {
	var u union
	for _, e := range spans {
		u = u.with(e.start, e.end)
	}
	return u
}

// with is the union and a stretch that begins no earlier than all in it.
func (u union) with(start, end int64) union {
	if n := len(u); n > 0 && start <= u[n-1].end {
		u[n-1].end = max(u[n-1].end, end)
		return u
	}
	return append(u, stretch{start, end, u.length()})
}

func (u union) length() int64 {
	n := len(u)
	if n == 0 {
		return 0
	}
	return u[n-1].before + u[n-1].end - u[n-1].start
}

// minus is what of u is not in v.
func (u union) minus(v union) union {
	var rest union
	for _, s := range u {
		for len(v) > 0 && v[0].end <= s.start {
			v = v[1:]
		}
		for _, t := range v {
			if t.start >= s.end {
				break
			}
			if t.start > s.start {
				rest = rest.with(s.start, t.start)
			}
			s.start = max(s.start, t.end)
		}
		if s.start < s.end {
			rest = rest.with(s.start, s.end)
		}
	}
	return rest
}

// common is how much of the time is in both.
func (u union) common(v union) int64 {
	var all int64
	for _, s := range u {
		all += v.within(s.start, s.end)
	}
	return all
}

// within is how much of the time between two moments the union covers.
func (u union) within(from, to int64) int64 { return u.until(to) - u.until(from) }

func (u union) until(t int64) int64 {
	i, _ := slices.BinarySearchFunc(u, t, func(s stretch, t int64) int { return cmp.Compare(s.start, t) })
	if i == 0 {
		return 0
	}
	s := u[i-1]
	return s.before + min(t, s.end) - s.start
}
