package trace

import (
	"cmp"
	"math"
	"slices"
)

// Summary says what limits the loop that was recorded, and where the time went.
//
// Consumers are the runs, and the threads that read without one: Python and C++ loops. The time of such a thread is that
// from the beginning of its first read to the end of its last one.
//
// Each moment of a consumer belongs to one part. On the consumer's own Track, the innermost span that is open decides:
//
//   - in a Wait, it is the producer's while a Producer or Make span is open, since data comes from there in the end; else
//     copying while a Copy span is; else transferring while any Transfer is; else computing while any Backlog is, since a
//     device is busy with what it was given; else reading. Of the threads that read ahead, only those count
//     that the consumer slept for, and those that these slept for in turn;
//   - in a Stall, it is transferring;
//   - in a Compute operator, it is computing;
//   - in a Read operator, it is copying within its Copy spans, else reading; a Copy span outside all operators is
//     copying as well;
//   - what is left is the executor's own; between two reads of a thread it is computing.
//
// Three things are no part of a consumer's time: sleeps for want of room, as of a run that fills a staging buffer, since
// they delay no other thread; what a thread did after a read that got nothing, since it may or may not have waited for
// data; and the runs that a thread made, which count by themselves.
//
// Shares are of the time of all consumers together, and sum up to 1. A thread that pushes as well as it reads is between
// two others, and counts only if no other consumer was recorded. A Track with a Compute span that is in no Run belongs
// to a run that had not ended when the recording did, or was full: that one counts from its first span to its last.
type Summary struct {
	// Sentence says it in words.
	Sentence string `json:"sentence"`
	// LimitedBy is the part with the largest share; "" if it cannot be told: the Sentence says why.
	LimitedBy string `json:"limited_by"`
	// Runs is how many there were, RunSeconds their time, summed.
	Runs       int     `json:"runs"`
	RunSeconds float64 `json:"run_seconds"`
	// Reads is how many reads of threads without a run were answered.
	Reads int `json:"reads"`
	// ConsumerSeconds is the time that the Parts share: of runs and of threads that read.
	ConsumerSeconds float64 `json:"consumer_seconds"`
	// RoomSeconds is how long consumers slept for want of room, which is not in ConsumerSeconds.
	RoomSeconds float64 `json:"room_seconds"`
	// UnansweredSeconds is how long threads did something else after a read that got nothing in its time;
	// PendingSeconds, how long they were in reads that had not ended when the recording did. Neither is in ConsumerSeconds.
	UnansweredSeconds float64 `json:"unanswered_seconds"`
	PendingSeconds    float64 `json:"pending_seconds"`
	// Consumers are the threads that read, and all runs as one, those with the most time first.
	Consumers []Consumer `json:"consumers"`
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

// Consumer is a thread that reads, or all runs together.
type Consumer struct {
	Thread int `json:"thread"` // the system's number of it; 0 of runs
	Reads  int `json:"reads"`  // that were answered; 0 of runs
	// Pushes says whether the thread pushes tuples as well. It is left out of the Parts of the Summary where others are not.
	Pushes    bool    `json:"pushes"`
	Seconds   float64 `json:"seconds"`
	LimitedBy string  `json:"limited_by"` // "" of one whose time is not known, such as that of a single read
	Parts     []Part  `json:"parts"`
}

// Part is whose the time of consumers is.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the consumers' time
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
	// Share is of ConsumerSeconds, or of the recording's where there are none. Above 1 if several threads did it.
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

	all := s.share(account(spans, tracks))
	of := all
	if of == 0 {
		of = length
	}
	s.tabulate(spans, tracks, of)
	s.Devices = devices(spans, tracks, length)
	s.Sentence = s.sentence()
	return s
}

// share fills in what is known of consumers, and answers their time.
func (s *Summary) share(runs *loop, threads []*loop) int64 {
	s.Runs, s.RunSeconds = runs.runs, seconds(runs.total())
	s.Consumers = []Consumer{}
	between := runs.runs == 0 && !slices.ContainsFunc(threads, func(l *loop) bool { return !l.thread.pushes.Load() && l.total() > 0 })
	sum := *runs
	if runs.runs > 0 {
		s.Consumers = append(s.Consumers, runs.consumer())
	}
	for _, l := range threads {
		s.Reads += l.reads
		s.Consumers = append(s.Consumers, l.consumer())
		if l.thread.pushes.Load() && !between {
			continue
		}
		for i, t := range l.time {
			sum.time[i] += t
		}
		sum.room += l.room
		sum.unanswered += l.unanswered
		sum.pending += l.pending
	}
	slices.SortStableFunc(s.Consumers, func(a, b Consumer) int { return cmp.Compare(b.Seconds, a.Seconds) })
	all := sum.total()
	s.Parts, s.ConsumerSeconds = sum.parts(), seconds(all)
	s.RoomSeconds, s.UnansweredSeconds, s.PendingSeconds = seconds(sum.room), seconds(sum.unanswered), seconds(sum.pending)
	if all > 0 && sum.unanswered+sum.pending < all {
		s.LimitedBy = s.Parts[0].Name
	}
	return all
}

func (l *loop) consumer() Consumer {
	c := Consumer{Reads: l.reads, Seconds: seconds(l.total()), Parts: l.parts()}
	if l.thread != nil {
		c.Thread, c.Pushes = l.thread.number, l.thread.pushes.Load()
	}
	if all := l.total(); all > 0 && l.unanswered+l.pending < all {
		c.LimitedBy = c.Parts[0].Name
	}
	return c
}

// parts are those of the loop's time, the largest first.
func (l *loop) parts() []Part {
	all := l.total()
	parts := make([]Part, 0, numParts)
	for i, t := range l.time {
		p := Part{Name: partNames[i], Seconds: seconds(t)}
		if all > 0 {
			p.Share = float64(t) / float64(all)
		}
		if t < all {
			p.Speedup = new(float64(all) / float64(all-t))
		}
		parts = append(parts, p)
	}
	slices.SortStableFunc(parts, func(a, b Part) int { return cmp.Compare(b.Share, a.Share) })
	return parts
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

// account shares out the time of runs, and of each thread that reads.
func account(spans []*event, tracks []track) (runs *loop, threads []*loop) {
	c := causesOf(spans, tracks)
	onTrack := make([][]*event, len(tracks))
	isRun := make([]bool, len(tracks))
	for _, e := range spans {
		if e.category == Run || e.category == Compute {
			isRun[e.track] = !tracks[e.track].shared && tracks[e.track].thread == nil
		}
	}
	for _, e := range spans {
		if isRun[e.track] || tracks[e.track].thread != nil {
			onTrack[e.track] = append(onTrack[e.track], e)
		}
	}
	runs = &loop{rest: executor}
	for i, on := range onTrack {
		thread := tracks[i].thread
		switch {
		case thread != nil:
			l := &loop{rest: compute, thread: thread}
			l.pend(on)
			l.track(l.between(on), c.of(uint32(i)))
			threads = append(threads, l)
		case len(on) > 0:
			runs.track(withRuns(on), c.of(uint32(i)))
		}
	}
	return runs, threads
}

// causes is what sleeps are looked up in.
type causes struct {
	spans, tracks int
	all           [4][]*event   // what counts for everybody, by waits: each includes those before it
	by            [][4][]*event // by the track that it counts for
	slept         [][]uint32    // by who slept: what for
	crowded       [][]*event    // by who slept: for want of room
	held          [][]*event    // by who slept: of any kind but for data
	everybody     [4]union
}

// waits are the parts that a Wait may be, in the order in which they are tried.
var waits = [...]int{producer, copying, transfer, compute}

func causesOf(spans []*event, tracks []track) *causes {
	n := len(tracks)
	c := &causes{by: make([][4][]*event, n), slept: make([][]uint32, n), crowded: make([][]*event, n), held: make([][]*event, n)}
	serves := make([]bool, n) // others slept for it
	for _, e := range spans {
		if server := e.server(); server != 0 {
			serves[server] = true
			if who := e.who(); !slices.Contains(c.slept[who], server) {
				c.slept[who] = append(c.slept[who], server)
			}
		}
	}
	for _, e := range spans {
		first, of := len(waits), uint32(0) // of whom it is; 0: everybody
		switch e.category {
		case Producer, Make:
			first, of = 0, e.who()
			if thread := tracks[of].thread; !serves[of] && (thread == nil || thread.pushes.Load()) {
				of = 0 // that of a run, which may fill a staging buffer, or of a thread that pushes
			}
		case Copy:
			if first = 1; serves[e.track] {
				of = e.track
			}
		case Transfer:
			first = 2
		case Backlog:
			first = 3
		case Full:
			c.crowded[e.who()] = append(c.crowded[e.who()], e)
			fallthrough
		case Wait:
			c.held[e.who()] = append(c.held[e.who()], e)
		}
		for i := first; i < len(waits); i++ {
			if of == 0 {
				c.all[i] = append(c.all[i], e)
			} else {
				c.by[of][i] = append(c.by[of][i], e)
			}
		}
	}
	for i, events := range c.all {
		c.everybody[i] = unionOf(events)
	}
	return c
}

// of are those of a consumer's sleeps.
func (c *causes) of(consumer uint32) *sleeps {
	s := &sleeps{everybody: &c.everybody}
	if consumer != 0 {
		s.crowded, s.held = unionOf(c.crowded[consumer]), unionOf(c.held[consumer])
	}
	reached := []uint32{consumer}
	for i := 0; i < len(reached); i++ {
		for _, next := range c.slept[reached[i]] {
			if !slices.Contains(reached, next) {
				reached = append(reached, next)
			}
		}
	}
	for i := range waits {
		var own []*event
		for _, track := range reached {
			own = append(own, c.by[track][i]...)
		}
		slices.SortStableFunc(own, func(a, b *event) int { return cmp.Compare(a.start, b.start) })
		s.own[i] = unionOf(own)
	}
	return s
}

// sleeps is why a consumer may have slept.
type sleeps struct {
	everybody     *[4]union // by waits
	own           [4]union
	crowded, held union
}

// within is how much of the time between two moments counts for the i-th of waits, or one before it.
func (s *sleeps) within(i int, from, to int64) int64 {
	all := s.everybody[i].within(from, to)
	own := s.own[i]
	at, _ := slices.BinarySearchFunc(own, from, func(s stretch, t int64) int { return cmp.Compare(s.end, t) })
	for _, o := range own[at:] {
		if o.start >= to {
			break
		}
		begin, end := max(o.start, from), min(o.end, to)
		all += end - begin - s.everybody[i].within(begin, end)
	}
	return all
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

// loop is the time of a thread that reads, or of runs.
type loop struct {
	rest       int     // the part that what is in no span is
	thread     *Thread // nil of runs
	time       [numParts]int64
	room       int64
	unanswered int64
	pending    int64
	runs       int
	reads      int
}

func (l *loop) total() int64 {
	var all int64
	for _, t := range l.time {
		all += t
	}
	return all
}

// between is the spans of a thread within its loop, which is from its first read to its last: nothing, if it read once.
func (l *loop) between(spans []*event) []*event {
	first := slices.IndexFunc(spans, func(e *event) bool { return e.category == Read })
	if first < 0 {
		return nil
	}
	whole := &event{category: Run, start: spans[first].start}
	n, covered := 0, int64(-1)
	for _, e := range spans[first:] {
		if e.category == Read && e.start >= covered { // none within another, such as a file's
			covered, whole.end = e.end, e.end
			switch Outcome(e.detail) {
			case Answered:
				l.reads++
				n++
			case Unanswered:
				n++
			}
		}
	}
	if n < 2 {
		return nil
	}
	all := []*event{whole}
	for _, e := range spans[first:] {
		if e.start < whole.end {
			all = append(all, e)
		}
	}
	return all
}

// pend counts the read that the thread was in when the recording ended.
func (l *loop) pend(spans []*event) {
	since := l.thread.left
	if since == 0 {
		return
	}
	for _, e := range spans {
		if e.category == Read && e.end > since {
			return // it has just ended
		}
	}
	l.pending = l.thread.ended - since
}

// track goes through the spans of a track in their order.
func (l *loop) track(spans []*event, s *sleeps) {
	type frame struct {
		category Category
		end      int64
		forRoom  bool
	}
	var open []frame
	var now int64
	inRuns := 0
	lastRun := int64(-1)
	asked := false              // the last read of a thread got nothing
	pass := func(until int64) { // gives the time from now on to whose it is
		from := now
		now = until
		if inRuns == 0 || from == until {
			return
		}
		part := l.rest
		inside, copied := false, false
		for i := len(open) - 1; !inside && open[i].category != Run; i-- {
			inside = true
			switch open[i].category {
			case Wait, Backlog:
				if open[i].forRoom {
					l.room += until - from
					return
				}
				given := int64(0)
				for j, part := range waits {
					within := s.within(j, from, until)
					l.time[part] += within - given
					given = within
				}
				l.time[reader] += until - from - given
				return
			case Stall:
				part = transfer
			case Compute:
				part = compute
			case Read:
				part = reader
			case Copy:
				copied, inside = true, false
			default:
				inside = false
			}
		}
		switch {
		case copied && part != compute || copied && !inside:
			part = copying
		case l.thread == nil || inside:
		case inRuns > 1: // a run of its own, which counts by itself
			return
		default:
			held := s.held.within(from, until)
			l.room += held
			if asked {
				l.unanswered += until - from - held
				return
			}
			l.time[part] -= held
		}
		l.time[part] += until - from
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
		switch e.category {
		case Run:
			inRuns++
			if e.start != lastRun { // or the rest of one that is recorded in parts
				l.runs++
			}
			lastRun = e.end
		case Read:
			if !slices.ContainsFunc(open, func(f frame) bool { return f.category == Read }) {
				asked = l.thread != nil && Outcome(e.detail) != Answered
			}
		}
		open = append(open, frame{e.category, end, e.category == Wait && s.crowded.within(e.start, end) > 0})
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
