package trace

import (
	"cmp"
	"math"
	"slices"
)

// Summary says what limits the recorded loop, and where its time went.
//
// Consumers are the runs, and the threads that read without a run: Python and C++ loops. The time of such a thread
// lasts from the beginning of its first read to the end of its last one.
//
// Each moment of a consumer belongs to one part. The innermost open span on the consumer's own Track decides which:
//
//   - In a Wait, the moment is the producer's while a Producer or Make span is open, because the data comes from
//     there. Otherwise it is copying while a Copy span is open, transferring while a Transfer is open, or computing
//     while a Backlog is open, because a device is busy with earlier work. Otherwise it is reading. Spans of threads
//     that read ahead count only for the consumers that wait for them, directly or through other threads.
//   - In a Stall, it is transferring.
//   - In a Compute operator, it is computing.
//   - In a Read operator, it is copying within its Copy spans, else reading. A Copy span outside all operators is
//     copying too.
//   - The rest of a run is the executor's own; the time between two reads of a thread is computing.
//
// Three things do not count as a consumer's time. Sleeps for room, as in a run that fills a staging buffer, delay no
// other thread. After a read that timed out, it is not known whether the thread waited for data. Runs that a thread
// makes are counted separately.
//
// Shares are of the time of all consumers together, and add up to 1. A thread that pushes tuples as well as reading
// them is a stage between two others. It counts only if no other consumer was recorded. A Compute span on a Track
// without a Run belongs to a run that had not ended when the recording ended or was full. Such a run counts from its
// first span to its last.
type Summary struct {
	// Sentence is the result in words.
	Sentence string `json:"sentence"`
	// LimitedBy is the part with the largest share; "" if that is not known: the Sentence gives the reason.
	LimitedBy string `json:"limited_by"`
	// Runs is the number of runs, RunSeconds the sum of their times.
	Runs       int     `json:"runs"`
	RunSeconds float64 `json:"run_seconds"`
	// Reads is the number of answered reads by threads without a run.
	Reads int `json:"reads"`
	// ConsumerSeconds is the time that the Parts divide: of runs and of threads that read.
	ConsumerSeconds float64 `json:"consumer_seconds"`
	// RoomSeconds is how long consumers waited for room. It is not part of ConsumerSeconds.
	RoomSeconds float64 `json:"room_seconds"`
	// UnansweredSeconds is how long threads did something else after a read that timed out. PendingSeconds is how long
	// threads were in reads that had not ended when the recording did. Neither is part of ConsumerSeconds.
	UnansweredSeconds float64 `json:"unanswered_seconds"`
	PendingSeconds    float64 `json:"pending_seconds"`
	// Consumers are the threads that read, and all runs as one consumer; the one with the most time comes first.
	Consumers []Consumer `json:"consumers"`
	// Parts are "compute", "producer", "reader", "copy", "transfer" and "executor", the largest first.
	Parts []Part `json:"parts"`

	// Seconds is the length of the recording.
	Seconds float64 `json:"seconds"`
	// Spans is the number of recorded spans, Dropped the number that did not fit. If Dropped is not 0, everything else
	// here covers only the time before the recording was full.
	Spans   int    `json:"spans"`
	Dropped uint64 `json:"dropped_spans"`

	// ProducerSeconds is how long consumers waited because producers were slower. FullSeconds is how long producers and
	// reading threads waited because consumers were slower. Both are sums over all threads, in a run or not.
	ProducerSeconds float64 `json:"producer_seconds"`
	FullSeconds     float64 `json:"full_seconds"`
	// BacklogSeconds is how long threads waited for a device that was busy with earlier work.
	BacklogSeconds float64 `json:"backlog_seconds"`
	// Copies summarizes all Copy spans with a number of bytes.
	Copies Bandwidth `json:"copies"`
	// Devices are the devices with transfers or stalls, by number.
	Devices []Device `json:"devices"`

	// Operators are the spans grouped by track, category and name; the group with the most time comes first. The time
	// of a span includes the spans within it.
	Operators []Operator `json:"operators"`

	contention string // why LimitedBy is "" although compute is the largest part
}

// Consumer is a thread that reads, or all runs together.
type Consumer struct {
	Thread int `json:"thread"` // the operating system's thread id; 0 for runs
	Reads  int `json:"reads"`  // answered reads; 0 for runs
	// Pushes reports that the thread also pushes tuples. The Parts of the Summary leave it out if there are other
	// consumers.
	Pushes    bool    `json:"pushes"`
	Seconds   float64 `json:"seconds"`
	LimitedBy string  `json:"limited_by"` // "" if its time is not known, such as for a single read
	Parts     []Part  `json:"parts"`
	// CPUSeconds is the processor time of the thread during the recording; nil if it is not known.
	CPUSeconds *float64 `json:"cpu_seconds"`
}

// Part is a part of the consumers' time.
type Part struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Share   float64 `json:"share"` // of the consumers' time
	// Speedup is how many times as fast the loop would be, at most, if this part took no time: 1/(1-Share). It is nil
	// if there is no other part.
	Speedup *float64 `json:"speedup"`
}

// Bandwidth is the speed at which bytes were copied.
type Bandwidth struct {
	Count          int     `json:"count"`
	Bytes          int64   `json:"bytes"`
	Seconds        float64 `json:"seconds"` // summed over threads
	BytesPerSecond float64 `json:"bytes_per_second"`
}

// Operator summarizes the spans of one track, category and name.
type Operator struct {
	Track    string  `json:"track"`
	Category string  `json:"category"`
	Name     string  `json:"name"`
	Count    int     `json:"count"`
	Seconds  float64 `json:"seconds"`
	Mean     float64 `json:"mean_seconds"`
	Max      float64 `json:"max_seconds"`
	// Share is of ConsumerSeconds, or of the recording's length if that is 0. It exceeds 1 if several threads ran the
	// operator.
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

// Summary computes the Summary of the spans recorded so far.
func (r *Recording) Summary() Summary {
	spans, tracks := r.spans()
	length, lost := r.extent(len(spans))
	s := Summary{Seconds: seconds(length), Spans: len(spans), Dropped: lost}

	all := s.share(shareTime(spans, tracks))
	of := all
	if of == 0 {
		of = length
	}
	if s.LimitedBy == partNames[compute] {
		if s.contention = r.contended(&s, spans, length); s.contention != "" {
			s.LimitedBy, s.Consumers[0].LimitedBy = "", ""
		}
	}
	s.tabulate(spans, tracks, of)
	s.Devices = devices(spans, tracks, length)
	s.Sentence = s.sentence()
	return s
}

// share fills in the fields about consumers and returns their time in nanoseconds.
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
		if l.thread.workKnown {
			c.CPUSeconds = new(seconds(l.thread.worked))
		}
	}
	if all := l.total(); all > 0 && l.unanswered+l.pending < all {
		c.LimitedBy = c.Parts[0].Name
	}
	return c
}

// parts returns the parts of the loop's time, the largest first.
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

// tabulate sums up the spans by track, category and name. Their shares are of the time `of`, in nanoseconds.
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

// rate returns bytes per second; 0 if the time is below the resolution of the clock.
func rate(bytes, ns int64) float64 {
	if ns == 0 {
		return 0
	}
	return float64(bytes) / seconds(ns)
}

// shareTime divides the time of the runs, and of each thread that reads, into parts.
func shareTime(spans []*event, tracks []track) (runs *loop, threads []*loop) {
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

// causes indexes the spans that explain why consumers waited.
type causes struct {
	spans, tracks int
	all           [4][]*event   // spans that count for all consumers; by index in waits, each with the lists before it
	by            [][4][]*event // the same for spans that count only for consumers that wait for a track, by that track
	byReason      [][]uint32    // by the track that slept: the tracks that it waited for
	forRoom       [][]*event    // by the track that slept: its waits for room
	notForData    [][]*event    // by the track that slept: its waits for anything except data
	shared        [4]union
}

// waits are the parts that a Wait can be assigned to, in order of precedence.
var waits = [...]int{producer, copying, transfer, compute}

func causesOf(spans []*event, tracks []track) *causes {
	n := len(tracks)
	c := &causes{by: make([][4][]*event, n), byReason: make([][]uint32, n), forRoom: make([][]*event, n), notForData: make([][]*event, n)}
	serves := make([]bool, n) // other tracks waited for it
	for _, e := range spans {
		if server := e.server(); server != 0 {
			serves[server] = true
			if who := e.ownTrack(); !slices.Contains(c.byReason[who], server) {
				c.byReason[who] = append(c.byReason[who], server)
			}
		}
	}
	for _, e := range spans {
		first, of := len(waits), uint32(0) // the track that the span counts for; 0: all
		switch e.category {
		case Producer, Make:
			first, of = 0, e.ownTrack()
			if thread := tracks[of].thread; !serves[of] && (thread == nil || thread.pushes.Load()) {
				of = 0 // of a run, which may fill a staging buffer, or of a thread that pushes
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
			c.forRoom[e.ownTrack()] = append(c.forRoom[e.ownTrack()], e)
			fallthrough
		case Wait:
			c.notForData[e.ownTrack()] = append(c.notForData[e.ownTrack()], e)
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
		c.shared[i] = unionOf(events)
	}
	return c
}

// of returns the causes of a consumer's sleeps.
func (c *causes) of(consumer uint32) *sleeps {
	s := &sleeps{shared: &c.shared}
	if consumer != 0 {
		s.forRoom, s.notForData = unionOf(c.forRoom[consumer]), unionOf(c.notForData[consumer])
	}
	reached := []uint32{consumer}
	for i := 0; i < len(reached); i++ {
		for _, next := range c.byReason[reached[i]] {
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

// sleeps has the reasons for which a consumer may have slept.
type sleeps struct {
	shared              *[4]union // by index in waits
	own                 [4]union
	forRoom, notForData union
}

// within returns how much of the time between from and to is explained by the i-th of waits or one before it.
func (s *sleeps) within(i int, from, to int64) int64 {
	all := s.shared[i].within(from, to)
	own := s.own[i]
	at, _ := slices.BinarySearchFunc(own, from, func(s interval, t int64) int { return cmp.Compare(s.end, t) })
	for _, o := range own[at:] {
		if o.start >= to {
			break
		}
		begin, end := max(o.start, from), min(o.end, to)
		all += end - begin - s.shared[i].within(begin, end)
	}
	return all
}

// withRuns adds a Run around each sequence of spans that is in no Run and contains a Compute.
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

// loop is the time of a thread that reads, or of all runs.
type loop struct {
	rest       int     // the part that gets the time outside all spans
	thread     *Thread // nil for runs
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

// between returns the spans within a thread's loop, from its first read to its last. It returns none if the thread read
// only once.
func (l *loop) between(spans []*event) []*event {
	first := slices.IndexFunc(spans, func(e *event) bool { return e.category == Read })
	if first < 0 {
		return nil
	}
	whole := &event{category: Run, start: spans[first].start}
	n, covered := 0, int64(-1)
	for _, e := range spans[first:] {
		if e.category == Read && e.start >= covered { // skip reads within another read, such as a file's
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
			return // the read has just ended
		}
	}
	l.pending = l.thread.ended - since
}

// track goes through the spans of a track, in order, and assigns each moment to a part.
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
	asked := false              // the last read of the thread got nothing
	pass := func(until int64) { // assigns the time from now to until
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
		case inRuns > 1: // a run of the thread, which counts separately
			return
		default:
			held := s.notForData.within(from, until)
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
			if e.start != lastRun { // otherwise it continues a run that is recorded in parts
				l.runs++
			}
			lastRun = e.end
		case Read:
			if !slices.ContainsFunc(open, func(f frame) bool { return f.category == Read }) {
				asked = l.thread != nil && Outcome(e.detail) != Answered
			}
		}
		open = append(open, frame{e.category, end, e.category == Wait && s.forRoom.within(e.start, end) > 0})
	}
	closeUntil(math.MaxInt64)
}

// union is the time in which at least one of several spans is open: disjoint intervals in order.
type union []interval

type interval struct {
	start, end int64
	before     int64 // the total length of the intervals before it
}

// unionOf returns the union of spans, which are sorted by start.
func unionOf(spans []*event) union {
	var u union
	for _, e := range spans {
		u = u.with(e.start, e.end)
	}
	return u
}

// with adds an interval that begins no earlier than the intervals in u.
func (u union) with(start, end int64) union {
	if n := len(u); n > 0 && start <= u[n-1].end {
		u[n-1].end = max(u[n-1].end, end)
		return u
	}
	return append(u, interval{start, end, u.length()})
}

func (u union) length() int64 {
	n := len(u)
	if n == 0 {
		return 0
	}
	return u[n-1].before + u[n-1].end - u[n-1].start
}

// minus returns the part of u that is not in v.
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

// common returns how much time is in both unions.
func (u union) common(v union) int64 {
	var all int64
	for _, s := range u {
		all += v.within(s.start, s.end)
	}
	return all
}

// within returns how much of the time between from and to the union covers.
func (u union) within(from, to int64) int64 { return u.until(to) - u.until(from) }

func (u union) until(t int64) int64 {
	i, _ := slices.BinarySearchFunc(u, t, func(s interval, t int64) int { return cmp.Compare(s.start, t) })
	if i == 0 {
		return 0
	}
	s := u[i-1]
	return s.before + min(t, s.end) - s.start
}
