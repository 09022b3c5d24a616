package trace

import "sync/atomic"

// A Thread is a thread of the program that reads tuples itself: a Python or C++ loop without a run. It has a Track, on
// which its reads are; what it does between two of them is its own work. It belongs to one recording, and to one thread.
type Thread struct {
	number   int
	track    Track
	borrowed bool         // the track is a run's
	since    atomic.Int64 // when the read began that the thread is in; 0: it is in none
	pushes   atomic.Bool
	// When the recording ended, and since, if the thread was in a read then.
	ended, left int64
}

// ReadingThread is the Thread of that number, which the system gave it. It makes one if there is none; nil if no
// recording is on.
func ReadingThread(number int) *Thread {
	r := current.Load()
	if r == nil {
		return nil
	}
	if t := r.thread(number); t != nil {
		return t
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t := &Thread{number: number, track: r.makeTrack("consumer", false)}
	if i := r.index(t.track); i != 0 { // else there were too many
		r.tracks[i].thread = t
	}
	r.threads.Store(number, t)
	return t
}

// KnownThread is the Thread of that number if it has read in the recording that is on; else nil.
func KnownThread(number int) *Thread {
	if r := current.Load(); r != nil {
		return r.thread(number)
	}
	return nil
}

func (r *Recording) thread(number int) *Thread {
	t, _ := r.threads.Load(number)
	found, _ := t.(*Thread)
	return found
}

// Track is the Thread's; 0 of nil.
func (t *Thread) Track() Track {
	if t == nil {
		return 0
	}
	return t.track
}

// UseTrack has the thread of that number record on a Track, that of a run whose kernel it calls, until the function that it
// answers is called. What the kernel reads is a part of the run then.
func UseTrack(number int, track Track) (back func()) {
	r := current.Load()
	if r == nil || r.index(track) == 0 {
		return func() {}
	}
	before := r.thread(number)
	r.threads.Store(number, &Thread{number: number, track: track, borrowed: true})
	return func() {
		if before != nil {
			r.threads.Store(number, before)
		} else {
			r.threads.Delete(number)
		}
	}
}

// RecordRun records a run that the thread made since start, which counts by itself.
func (t *Thread) RecordRun(start int64) {
	if r := current.Load(); t != nil && !t.borrowed && r != nil {
		r.add(t.track, Run, "run", start, Now(), 0)
	}
}

// MarkPusher notes that the thread pushes tuples: it is no end of the way, but between two.
func (t *Thread) MarkPusher() {
	if t != nil && !t.pushes.Load() {
		t.pushes.Store(true)
	}
}

// An Outcome is what became of a read.
type Outcome int64

// The outcomes.
const (
	Answered   Outcome = iota // with a tuple, the end or an error
	Unanswered                // its time was over
	Tried                     // it found nothing, and was not to wait
)

// Began notes that the thread is in a read since then.
func (t *Thread) Began(start int64) { t.since.Store(start) }

// Ended records the read that Began, from start on.
func (t *Thread) Ended(name string, start int64, is Outcome) {
	if r := current.Load(); r != nil {
		r.add(t.track, Read, name, start, Now(), int64(is))
	}
	t.since.Store(0)
}
