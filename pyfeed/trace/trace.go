// Package trace records what runs, readers and queues do and when. A recording can be drawn as a timeline (Chrome) and
// summed up (Summary), to show what limits a loop.
//
// Only one recording can be on at a time in a process. While none is on, a call site costs one atomic load. A call site
// looks like this:
//
//	start := trace.Begin()
//	work()
//	trace.Since(track, trace.Read, "work", start)
//
// A Span is stored when it ends. Therefore a Span that is still open when the recording ends is not in it.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// A Category is the kind of a span. The Summary assigns time by it.
type Category uint8

// The categories.
const (
	// Run is a whole run of a program. No other run uses its Track at the same time.
	Run Category = iota
	// Compute is an operator of a run that computes.
	Compute
	// Read is an operator of a run that reads, or a read by a thread. It includes the waits and copies during the read.
	Read
	// Wait is a sleep. On the Track of a run it lies within the operator that sleeps.
	Wait
	// Producer is a wait for data that no producer has pushed yet: the producers are slower.
	Producer
	// Full is a wait of a producer or a reading thread for room: the consumers are slower.
	Full
	// Copy is a copy of bytes by the CPU.
	Copy
	// Make is the work of a worker of a map reader. It counts as the producer's time.
	Make
	// Transfer is a copy to a device by its copy engine. The span is named for the place.
	Transfer
	// Stall is a wait of a host thread for a Transfer to end. If the Transfer has already ended, the Stall has a length
	// of 0. The waits of streams are not recorded. The span is named for the place.
	Stall
	// Backlog is a wait for a device that is busy with earlier work: for device memory, or for a turn to submit.
	Backlog

	numCategories
)

var categoryNames = [numCategories]string{
	"run", "compute", "read", "wait", "producer", "full", "copy", "make", "transfer", "stall", "backlog",
}

func (c Category) String() string { return categoryNames[c] }

// epoch is the zero of Now. It is a second before the start of the process, so that Now never returns 0.
var epoch = time.Now().Add(-time.Second)

// Now returns the time of spans in nanoseconds. It never decreases.
func Now() int64 { return int64(time.Since(epoch)) }

// Begin returns Now while a recording is on, else 0. Span ignores a start of 0.
func Begin() int64 {
	if On() {
		return Now()
	}
	return 0
}

var current atomic.Pointer[Recording]

// On reports whether a recording is on.
func On() bool { return current.Load() != nil }

// A Track is a lane of the timeline, such as a run or a thread of a reader. Spans on one Track nest or follow each
// other. A Track belongs to one recording. In any other recording its spans go to Track 0, which is shared by all
// callers without a Track, and on which spans may overlap.
type Track uint64

// The upper half of a Track is the generation of its recording, the lower half its index there.
const trackBits = 32

// maxTracks limits the tracks of one recording.
const maxTracks = 1 << 22

// Done reports that the Track has no more spans. The next Track of the same name reuses its lane, so that a thousand
// runs, one after the other, share one lane.
func (t Track) Done() {
	if r := current.Load(); r != nil {
		r.done(t)
	}
}

// A Lane owns a Track in each recording. It is for objects that may live longer than a recording, and makes a new Track
// when it is first used in one. The zero Lane is ready to use. Only one goroutine may use a Lane at a time.
type Lane struct{ track Track }

// Track returns the Lane's Track in the current recording; 0 if none is on.
func (l *Lane) Track(name string) Track { return l.in(name, false) }

// Shared returns the Track of the given name on which spans may overlap. The timeline draws as many lanes as needed.
func (l *Lane) Shared(name string) Track { return l.in(name, true) }

func (l *Lane) in(name string, shared bool) Track {
	r := current.Load()
	switch {
	case r == nil:
		l.track = 0
	case r.index(l.track) == 0:
		l.track = r.newTrack(name, shared)
	}
	return l.track
}

// Done reports that the Lane has no more spans for now.
func (l *Lane) Done() {
	if l.track != 0 {
		l.track.Done()
		l.track = 0
	}
}

// Span records a span from start to end. It does nothing if start is 0 or no recording is on. Otherwise it costs some
// 50 ns, without the reading of the clock. A span that began before the recording counts from the recording's start.
// The recording keeps a reference to name.
func Span(t Track, c Category, name string, start, end int64) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, c, name, start, end, 0)
	}
}

// copySpan is Span for a Copy.
func copySpan(t Track, name string, start, end int64, bytes int) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, Copy, name, start, end, int64(bytes))
	}
}

// TransferSpan is Span for a Transfer to a place, on the Track of its stream. It may be called long after the end of
// the transfer. A transfer that began before the recording is left out: all its bytes in part of its time would look
// too fast.
func TransferSpan(t Track, place string, start, end int64, bytes int) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil && start >= r.start {
		r.add(t, Transfer, place, start, end, int64(bytes))
	}
}

// StallSpan is Span for a Stall by a copy to a place. On the Track of a run, the stall counts as time of that run.
func StallSpan(t Track, place string, start, end int64) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil && start >= r.start {
		r.add(t, Stall, place, start, end, 0)
	}
}

// A Sleep names the Track that slept and the Track that it waited for; 0: not known.
type Sleep struct {
	Who Track
	// For is the Track of the thread that produces the data waited for, such as a thread that reads ahead. If that
	// thread waits too, its wait is the cause of this sleep.
	For Track
}

// SleepSpan is Span for a sleep. Its Track t may be neither of the tracks in s. The Summary uses s to tell a run that
// waited for room from a run that waited for data.
func SleepSpan(t Track, c Category, name string, start, end int64, s Sleep) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, c, name, start, end, int64(r.index(s.For))<<trackBits|int64(r.index(s.Who)))
	}
}

// MakeSpan is Span for a Make by a worker. by is the Track of the thread that reads for the workers.
func MakeSpan(t Track, name string, start int64, by Track) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, Make, name, start, Now(), int64(r.index(by)))
	}
}

// Since is Span with an end of now. It costs nothing if start is 0.
func Since(t Track, c Category, name string, start int64) {
	if start != 0 {
		Span(t, c, name, start, Now())
	}
}

// CopySince is Span for a Copy that ends now.
func CopySince(t Track, name string, start int64, bytes int) {
	if start != 0 {
		copySpan(t, name, start, Now(), bytes)
	}
}

// event is a span in a recording.
type event struct {
	start, end int64
	name       string
	detail     int64  // the bytes of a Copy or Transfer; the Outcome of a Read; else see ownTrack and server
	track      uint32 // index
	category   Category
	state      atomic.Uint32
}

// States of an event. It changes from unused to one of the others once.
const (
	unused = iota
	written
	tooLate // the recording ended while the event was being written
)

const blockEvents = 4096

type block [blockEvents]event

// A Recording holds the spans recorded between Start and Stop. Its methods are safe for concurrent use.
type Recording struct {
	generation uint64 // in the upper half
	start      int64
	maxSpans   uint64

	next   atomic.Uint64 // number of events claimed; 1<<62 after Stop, far beyond maxSpans
	blocks []atomic.Pointer[block]

	mu      sync.Mutex // guards the fields below, and the allocation of blocks
	stopped bool
	end     int64
	claimed uint64 // value of next when the recording was stopped
	tracks  []track
	shared  map[string]uint32
	idle    map[string][]uint32

	threads sync.Map // *Thread by the operating system's thread id
	pushers sync.Map // *Pusher by the operating system's thread id

	// Processor time before the start: of each thread, and of the process in nanoseconds.
	clocksBefore  map[int]threadClock
	processBefore int64
	// How long the threads of the process had a processor or waited for one during the recording, in nanoseconds. Stop
	// sets it. The waits of threads that have ended are not in it.
	processDemand int64
}

type track struct {
	name         string
	shared, idle bool
	thread       *Thread // the thread that owns the track; nil: none
}

const (
	defaultEvents = 1_000_000
	eventLimit    = 1 << 28
)

// ErrOn is the error of Start if a recording is already on.
var ErrOn = errors.New("expected no recording to be on, found one: stop it first")

var generations atomic.Uint64

// Start begins a recording of up to maxEvents spans; 0 means a million. Later spans are only counted. Each span takes
// 56 bytes, allocated in blocks as needed.
func Start(maxEvents int) (*Recording, error) {
	if maxEvents < 0 || maxEvents > eventLimit {
		return nil, fmt.Errorf("max_events: expected 0 to %d, found %d", eventLimit, maxEvents)
	}
	if maxEvents == 0 {
		maxEvents = defaultEvents
	}
	if On() {
		return nil, ErrOn
	}
	r := &Recording{
		generation: generations.Add(1) << trackBits,
		start:      Now(),
		maxSpans:   uint64(maxEvents),
		blocks:     make([]atomic.Pointer[block], (maxEvents+blockEvents-1)/blockEvents),
		tracks:     []track{{name: "callers", shared: true}},
		shared:     make(map[string]uint32),
		idle:       make(map[string][]uint32),

		clocksBefore: threadClocks(), processBefore: processTime(),
	}
	if !current.CompareAndSwap(nil, r) {
		return nil, ErrOn
	}
	return r, nil
}

// Stop ends the recording. A second Stop has no effect.
func (r *Recording) Stop() {
	current.CompareAndSwap(r, nil)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return
	}
	r.stopped = true
	r.end = Now()
	r.claimed = r.next.Swap(1 << 62)
	r.threads.Range(func(_, v any) bool {
		t := v.(*Thread)
		if t.left = t.since.Load(); t.left != 0 {
			t.left, t.ended = max(t.left, r.start), r.end
		}
		if now, known := clockOf(t.number); known {
			t.worked, t.workKnown = now.since(r.clocksBefore[t.number]).worked, true
		}
		return true
	})
	r.processDemand = processTime() - r.processBefore
	for number, now := range threadClocks() {
		r.processDemand += max(0, now.since(r.clocksBefore[number]).waited) // a new thread may have an old number
	}
	// From here on, events that are still being written are left out, so that the recording no longer changes.
	for i := range min(r.claimed, r.maxSpans) {
		if c := r.blocks[i/blockEvents].Load(); c != nil {
			c[i%blockEvents].state.CompareAndSwap(unused, tooLate)
		}
	}
}

// Stopped reports whether the recording has ended.
func (r *Recording) Stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

func (r *Recording) add(t Track, c Category, name string, start, end int64, detail int64) {
	i := r.next.Add(1) - 1
	if i >= r.maxSpans {
		return
	}
	block := r.blocks[i/blockEvents].Load()
	if block == nil {
		if block = r.grow(i / blockEvents); block == nil {
			return
		}
	}
	e := &block[i%blockEvents]
	e.start = max(start, r.start)
	e.end = max(end, e.start)
	e.name, e.detail, e.track, e.category = name, detail, r.index(t), c
	e.state.CompareAndSwap(unused, written)
}

func (r *Recording) grow(i uint64) *block {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stopped {
		return nil
	}
	if r.blocks[i].Load() == nil {
		r.blocks[i].Store(new(block))
	}
	return r.blocks[i].Load()
}

// index returns the index of a Track in this recording, or 0 if the Track belongs to another recording.
func (r *Recording) index(t Track) uint32 {
	if uint64(t)>>trackBits<<trackBits != r.generation {
		return 0
	}
	return uint32(t)
}

func (r *Recording) newTrack(name string, shared bool) Track {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.makeTrack(name, shared)
}

// makeTrack is newTrack with the lock held.
func (r *Recording) makeTrack(name string, shared bool) Track {
	i := uint32(0)
	if shared {
		i = r.shared[name]
	} else if idle := r.idle[name]; len(idle) > 0 {
		i = idle[len(idle)-1]
		r.idle[name] = idle[:len(idle)-1]
		r.tracks[i].idle = false
	}
	if i == 0 {
		if len(r.tracks) == maxTracks {
			return 0
		}
		i = uint32(len(r.tracks))
		r.tracks = append(r.tracks, track{name: name, shared: shared})
		if shared {
			r.shared[name] = i
		}
	}
	return Track(r.generation | uint64(i))
}

func (r *Recording) done(t Track) {
	i := r.index(t)
	if i == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if of := &r.tracks[i]; !of.shared && !of.idle {
		of.idle = true
		r.idle[of.name] = append(r.idle[of.name], i)
	}
}

func (e *event) bytes() int64 {
	if e.category != Copy && e.category != Transfer {
		return 0
	}
	return e.detail
}

// ownTrack returns the index of the Track that slept, or that a Make counts for; 0: not known.
func (e *event) ownTrack() uint32 {
	switch e.category {
	case Producer, Wait, Full, Backlog, Make:
		return uint32(e.detail)
	}
	return 0
}

// server returns the index of the Track that the sleep waited for; 0: not known.
func (e *event) server() uint32 {
	switch e.category {
	case Producer, Wait, Full, Backlog:
		return uint32(e.detail >> trackBits)
	}
	return 0
}

// spans returns the spans written so far and the tracks. The spans are sorted by start; an outer span comes before the
// spans within it.
func (r *Recording) spans() ([]*event, []track) {
	r.mu.Lock()
	n := min(r.count(), r.maxSpans)
	r.mu.Unlock()
	spans := make([]*event, 0, n)
	for i := range n {
		c := r.blocks[i/blockEvents].Load()
		if c == nil {
			continue
		}
		if e := &c[i%blockEvents]; e.state.Load() == written {
			spans = append(spans, e)
		}
	}
	inOrder := func(a, b *event) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end)) }
	slices.SortStableFunc(spans, inOrder)
	// Spans are written when they end. So of several with the same start and end, the last one written is the
	// outermost.
	for i, j := 0, 0; i < len(spans); i = j {
		for j = i + 1; j < len(spans) && inOrder(spans[i], spans[j]) == 0; j++ {
		}
		slices.Reverse(spans[i:j])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return spans, slices.Clone(r.tracks)
}

// count returns the number of spans claimed so far. The lock is held.
func (r *Recording) count() uint64 {
	if r.stopped {
		return r.claimed
	}
	return r.next.Load()
}

// extent returns the length of the recording so far, and the number of spans that did not fit. kept is the number of
// spans that did.
func (r *Recording) extent(kept int) (length int64, lost uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	length = r.end - r.start
	if !r.stopped {
		length = Now() - r.start
	}
	return length, max(r.count(), uint64(kept)) - uint64(kept)
}
