// Package trace records what runs, readers and queues do and when, for a picture of it and for the
// answer to what limits a loop.
//
// One recording is on at a time, for the whole process. While none is, a site costs one atomic load.
// A site looks like this:
//
//	start := trace.Begin()
//	work()
//	trace.Since(track, trace.Read, "work", start)
//
// A Span is kept when it ends, so that what has not ended when the recording does is not in it.
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

// A Category says whose time a span is. The Summary goes by it.
type Category uint8

// The categories.
const (
	// Run is a whole run of a program, on a Track that nothing else runs on at that time.
	Run Category = iota
	// Compute is an operator of a run that computes.
	Compute
	// Read is an operator of a run that reads, or a thread that reads, with all that it waits and copies meanwhile.
	Read
	// Wait is a sleep. On the Track of a run it lies within the operator that sleeps.
	Wait
	// Producer is a sleep for want of data, of which there is none because nobody has pushed any: who makes it is slower.
	Producer
	// Full is a sleep for want of room of somebody who makes or reads data: who consumes it is slower.
	Full
	// Copy is the time in which bytes were copied.
	Copy
	// Make is a worker of a map reader at work: like a Producer's time, it is that of somebody who makes data.
	Make
	// Transfer is the time in which a device's copy engine moved bytes to it. Its name is the place.
	Transfer
	// Stall is a wait for such a copy: of the stream that is to compute on it, or of the host that asks for it to be
	// over. One that need not wait counts as well, with no time. Its name is the place.
	Stall
	// Backlog is a sleep until a device has got through what was submitted to it: for memory of it, or for its turn.
	Backlog

	numCategories
)

var categoryNames = [numCategories]string{
	"run", "compute", "read", "wait", "producer", "full", "copy", "make", "transfer", "stall", "backlog",
}

func (c Category) String() string { return categoryNames[c] }

// epoch is what Now counts from. A moment before the start, so that 0 is no time.
var epoch = time.Now().Add(-time.Second)

// Now is the time of spans, in nanoseconds. It never goes back.
func Now() int64 { return int64(time.Since(epoch)) }

// Begin is Now while a recording is on, else 0, of which Span makes nothing.
func Begin() int64 {
	if On() {
		return Now()
	}
	return 0
}

var current atomic.Pointer[Recording]

// On says whether a recording is on.
func On() bool { return current.Load() != nil }

// A Track is a lane in the picture, such as a run or a thread of a reader. Spans on one Track nest or follow each
// other. It belongs to one recording: in others, spans on it go to Track 0, which is that of callers who have none,
// and where spans may overlap.
type Track uint64

// The upper half of a Track tells recordings apart, the lower is its index in one.
const trackBits = 32

// maxTracks bounds those of one recording.
const maxTracks = 1 << 22

// Shared is the Track of that name, on which spans may overlap: the picture has a lane for as many as do.
func Shared(name string) Track {
	if r := current.Load(); r != nil {
		return r.newTrack(name, true)
	}
	return 0
}

// Done says that nothing more comes on the Track: the next one of the same name may go on with it. So what comes
// one after the other, such as a thousand runs of a program, has one lane.
func (t Track) Done() {
	if r := current.Load(); r != nil {
		r.done(t)
	}
}

// A Lane is the Track of what may live longer than a recording: it makes one in each that it meets. The zero Lane
// is ready. It is for one goroutine at a time.
type Lane struct{ track Track }

// Track is the Lane's in the recording that is on; 0 when none is.
func (l *Lane) Track(name string) Track { return l.in(name, false) }

// Shared is Track for a Shared one.
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

// Done says that nothing more comes, for now.
func (l *Lane) Done() {
	if l.track != 0 {
		l.track.Done()
		l.track = 0
	}
}

// Span records what took from start to end. It does nothing if start is 0 or no recording is on, and costs some 50 ns
// besides the clock otherwise. What began before the recording counts from the recording's start. The name is kept.
func Span(t Track, c Category, name string, start, end int64) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, c, name, start, end, 0)
	}
}

// copySpan is the Span of a Copy.
func copySpan(t Track, name string, start, end int64, bytes int) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, Copy, name, start, end, int64(bytes))
	}
}

// TransferSpan is the Span of a Transfer to a place, on the Track of its stream. Since it may be told of long after, one
// that began before the recording is no part of it: all of its bytes in a part of its time would look too fast.
func TransferSpan(t Track, place string, start, end int64, bytes int) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil && start >= r.start {
		r.add(t, Transfer, place, start, end, int64(bytes))
	}
}

// StallSpan is the Span of a Stall for a copy to a place. The Track is a run's own, whose time it is then, or another.
func StallSpan(t Track, place string, start, end int64) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil && start >= r.start {
		r.add(t, Stall, place, start, end, 0)
	}
}

// A Sleep says which Track slept and which one it slept for; 0: not known.
type Sleep struct {
	Who Track
	// For is the Track of the thread that makes what was waited for, such as one that reads ahead. What that thread waits
	// for in turn is the cause of this sleep.
	For Track
}

// SleepSpan is the Span of a sleep, on a Track that may be neither of the two in s. A run that slept for want of room is
// told from one that waited for data by it.
func SleepSpan(t Track, c Category, name string, start, end int64, s Sleep) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, c, name, start, end, int64(r.index(s.For))<<trackBits|int64(r.index(s.Who)))
	}
}

// MakeSpan is the Span of a Make by a worker. The Track by is that of the thread that reads for the workers.
func MakeSpan(t Track, name string, start int64, by Track) {
	if start == 0 {
		return
	}
	if r := current.Load(); r != nil {
		r.add(t, Make, name, start, Now(), int64(r.index(by)))
	}
}

// Since is a Span that ends now. Where start is 0 it costs nothing.
func Since(t Track, c Category, name string, start int64) {
	if start != 0 {
		Span(t, c, name, start, Now())
	}
}

// CopySince is the Span of a Copy that ends now.
func CopySince(t Track, name string, start int64, bytes int) {
	if start != 0 {
		copySpan(t, name, start, Now(), bytes)
	}
}

// event is a span, an entry of the recording.
type event struct {
	start, end int64
	name       string
	detail     int64  // of a Copy or a Transfer, the bytes; of a sleep or a Make, see who and server; of a thread's Read, its Outcome
	track      uint32 // index
	category   Category
	state      atomic.Uint32
}

// States of an entry. It goes from unused to one of the others, once.
const (
	unused = iota
	written
	missed // the recording ended while it was written
)

const blockEvents = 4096

type block [blockEvents]event

// A Recording is what happened between Start and Stop. Its methods are for any goroutine.
type Recording struct {
	generation uint64 // in the upper half
	start      int64
	most       uint64

	next   atomic.Uint64 // entries claimed; far beyond most once stopped
	blocks []atomic.Pointer[block]

	mu      sync.Mutex // guards what follows and the making of chunks
	stopped bool
	end     int64
	claimed uint64 // when it was stopped
	tracks  []track
	shared  map[string]uint32
	idle    map[string][]uint32

	threads sync.Map // *Thread by the system's number of the thread
}

type track struct {
	name         string
	shared, idle bool
	thread       *Thread // whose it is
}

const (
	defaultEvents = 1_000_000
	eventLimit    = 1 << 28
)

// ErrOn is why Start refuses a second recording.
var ErrOn = errors.New("expected no recording to be on, found one: stop it first")

var generations atomic.Uint64

// Start begins a recording of maxEvents spans at most; 0: a million. Further ones are counted. They take 56 bytes
// each, as they come.
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
		most:       uint64(maxEvents),
		blocks:     make([]atomic.Pointer[block], (maxEvents+blockEvents-1)/blockEvents),
		tracks:     []track{{name: "callers", shared: true}},
		shared:     make(map[string]uint32),
		idle:       make(map[string][]uint32),
	}
	if !current.CompareAndSwap(nil, r) {
		return nil, ErrOn
	}
	return r, nil
}

// Stop ends the recording. Twice is fine.
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
		return true
	})
	// Those who are still writing come too late from here on, so that what was recorded stays the same.
	for i := range min(r.claimed, r.most) {
		if c := r.blocks[i/blockEvents].Load(); c != nil {
			c[i%blockEvents].state.CompareAndSwap(unused, missed)
		}
	}
}

// Stopped says whether the recording has ended.
func (r *Recording) Stopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}

func (r *Recording) add(t Track, c Category, name string, start, end int64, detail int64) {
	i := r.next.Add(1) - 1
	if i >= r.most {
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

// index is the number of a Track in this recording, 0 of one that is another's.
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

// makeTrack is newTrack for the lock's holder.
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

// who is the index of the Track that slept, or that a Make belongs to; 0: not known.
func (e *event) who() uint32 {
	switch e.category {
	case Producer, Wait, Full, Backlog, Make:
		return uint32(e.detail)
	}
	return 0
}

// server is the index of the Track that a sleep was for; 0: not known.
func (e *event) server() uint32 {
	switch e.category {
	case Producer, Wait, Full, Backlog:
		return uint32(e.detail >> trackBits)
	}
	return 0
}

// spans are those that were written so far, in the order of their beginnings, outer ones before inner ones, with
// the tracks they are on.
func (r *Recording) spans() ([]*event, []track) {
	r.mu.Lock()
	n := min(r.count(), r.most)
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
	// Of those that take the same time, the one that came last is the outermost.
	for i, j := 0, 0; i < len(spans); i = j {
		for j = i + 1; j < len(spans) && inOrder(spans[i], spans[j]) == 0; j++ {
		}
		slices.Reverse(spans[i:j])
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return spans, slices.Clone(r.tracks)
}

// count is how many spans came. The lock is held.
func (r *Recording) count() uint64 {
	if r.stopped {
		return r.claimed
	}
	return r.next.Load()
}

// extent is how long the recording took so far, and how many spans came that are not in it.
func (r *Recording) extent(kept int) (length int64, lost uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	length = r.end - r.start
	if !r.stopped {
		length = Now() - r.start
	}
	return length, max(r.count(), uint64(kept)) - uint64(kept)
}
