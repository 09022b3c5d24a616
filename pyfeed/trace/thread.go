package trace

import "sync/atomic"

// A Thread is a thread of the program that reads tuples itself: a Python or C++ loop without a run. Its reads are
// recorded on its Track. The time between two reads counts as its own work. A Thread belongs to one recording and one
// thread.
type Thread struct {
	number   int
	track    Track
	borrowed bool         // track belongs to a run
	since    atomic.Int64 // start of the read that the thread is in; 0: none
	pushes   atomic.Bool
	// When the recording ended, and when the read began that the thread was in at that time; 0: none.
	ended, left int64
	worked      int64 // processor time during the recording, if that is known
	workKnown   bool
}

// ReadingThread returns the Thread with the given operating system thread id, and makes it if needed. It returns nil if
// no recording is on.
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
	if i := r.index(t.track); i != 0 { // 0: the limit on tracks is reached
		r.tracks[i].thread = t
	}
	r.threads.Store(number, t)
	return t
}

// CurrentThread returns the Thread with the given operating system thread id if it has read in the current recording,
// else nil.
func CurrentThread(number int) *Thread {
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

// Track returns the Thread's Track; 0 if t is nil.
func (t *Thread) Track() Track {
	if t == nil {
		return 0
	}
	return t.track
}

// UseTrack makes the thread with the given operating system thread id record on track until back is called. A thread
// that calls a kernel of a run uses the run's Track, so that the kernel's reads count as a part of the run.
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

// RecordRun records a run that the thread made since start. Runs count separately from the thread.
func (t *Thread) RecordRun(start int64) {
	if r := current.Load(); t != nil && !t.borrowed && r != nil {
		r.add(t.track, Run, "run", start, Now(), 0)
	}
}

// MarkPusher notes that the thread also pushes tuples. It is then a stage between two others, and not the end of a
// pipeline.
func (t *Thread) MarkPusher() {
	if t != nil && !t.pushes.Load() {
		t.pushes.Store(true)
	}
}

// An Outcome is the result of a read.
type Outcome int64

// The outcomes.
const (
	Answered   Outcome = iota // returned a tuple, the end or an error
	Unanswered                // timed out
	Tried                     // did not wait, and found nothing
)

// Began notes that the thread is in a read that began at start.
func (t *Thread) Began(start int64) { t.since.Store(start) }

// Ended records the read that began at start.
func (t *Thread) Ended(name string, start int64, is Outcome) {
	if r := current.Load(); r != nil {
		r.add(t.track, Read, name, start, Now(), int64(is))
	}
	t.since.Store(0)
}

// A Pusher is a thread that pushes tuples during a recording. Between its pushes it makes the next tuple.
type Pusher struct {
	end  atomic.Int64 // of its last push; 0: none
	made atomic.Int64 // the time between its pushes, in nanoseconds
}

// BeginPush notes that the thread with the given operating system thread id calls a push. Call EndPush of the result
// when the push returns. It returns nil if no recording is on.
func BeginPush(number int) *Pusher {
	r := current.Load()
	if r == nil {
		return nil
	}
	r.thread(number).MarkPusher()
	v, found := r.pushers.Load(number)
	if !found {
		v, _ = r.pushers.LoadOrStore(number, new(Pusher))
	}
	p := v.(*Pusher)
	if end := p.end.Load(); end != 0 {
		p.made.Add(Now() - end)
	}
	return p
}

// EndPush notes that a push has returned.
func (p *Pusher) EndPush() {
	if p != nil {
		p.end.Store(Now())
	}
}

// longestPusher returns the longest time in which a thread made tuples, in nanoseconds.
func (r *Recording) longestPusher() (longest int64) {
	r.pushers.Range(func(_, v any) bool {
		longest = max(longest, v.(*Pusher).made.Load())
		return true
	})
	return longest
}
