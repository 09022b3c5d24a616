// Package wait puts callers to sleep until something they wait for may have happened.
//
// Go's own primitives cannot do it alone here: a C thread that blocks inside a Go call is woken
// through two other threads and keeps a runtime thread occupied. So nothing blocks while it holds a
// lock or is deep inside a reader. An operation that cannot go on enters its caller's [Parker] into
// a [List] and answers [ErrWouldBlock]; the outermost caller then sleeps, a goroutine on a channel
// ([Do]), a C thread on a futex outside Go, and tries again when woken.
package wait

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// ErrWouldBlock says that an operation could not go on and changed nothing, or that its TimeSlice has expired. If it was given a
// Parker, that Parker now waits in a List, or is awake.
var ErrWouldBlock = errors.New("would block")

// NonBlocking is the context of a caller that does not wait.
var NonBlocking context.Context = nonBlocking{context.Background()}

type nonBlocking struct{ context.Context }

// Traced is the context of a caller that has a Track in the picture of what happens. Whatever is called with it, and
// wants to record what it does itself, finds it there.
type Traced struct {
	context.Context
	Track trace.Track // it may change between calls
}

// NonBlocking is that of the caller.
func (t *Traced) NonBlocking() context.Context { return (*tracedNonBlocking)(t) }

// tracedNonBlocking is a Traced whose caller does not wait. A pointer to the same, so that it costs nothing.
type tracedNonBlocking Traced

func (*tracedNonBlocking) Deadline() (deadline time.Time, ok bool) { return }
func (*tracedNonBlocking) Done() <-chan struct{}                   { return nil }
func (*tracedNonBlocking) Err() error                              { return nil }
func (*tracedNonBlocking) Value(any) any                           { return nil }

// TrackOf is the Track of the caller behind ctx, or 0.
func TrackOf(ctx context.Context) trace.Track {
	switch c := ctx.(type) {
	case *Parker:
		return c.Track
	case *Traced:
		return c.Track
	case *tracedNonBlocking:
		return c.Track
	case *TryOnce:
		return c.Track
	}
	return 0
}

// A Parker is one caller of blocking operations. It is handed down as the context of a call, so that
// whatever is at the bottom can enter it into a List. It waits in at most one List at a time.
//
// A Parker belongs to one caller: only its List, under that List's lock, touches it from elsewhere.
type Parker struct {
	context.Context // of the call; never consulted for a Parker that sleeps outside Go
	Track           trace.Track

	word   *uint32       // a C thread sleeps on this futex, in memory that is not Go's;
	signal chan struct{} // a goroutine on this channel. One of the two is nil.

	home        *List // the List entered last
	prev, next  *Parker
	queued      bool // in home; guarded by home's lock
	since       int64
	generations []ownerGeneration
}

type ownerGeneration struct {
	owner      any
	generation uint64
}

// Futex values: what a waker finds tells it whether it must ask the kernel.
const (
	awake    = 1
	sleeping = 2
)

// NewFutexParker makes a Parker for one call of a C thread that sleeps on word, which MUST be memory
// outside Go's heap that stays in place until [Parker.Finish] or [Parker.Leave] has ended the call.
func NewFutexParker(word *uint32) *Parker {
	return &Parker{Context: context.Background(), word: word}
}

var goParkers = sync.Pool{New: func() any { return &Parker{signal: make(chan struct{}, 1)} }}

// Began is the generation of owner at which the call behind ctx first met it: now, unless ctx is a
// Parker that has been here before. A call that finds another generation than its own is stale.
func Began(ctx context.Context, owner any, now uint64) uint64 {
	p, _ := ctx.(*Parker)
	if p == nil {
		return now
	}
	for _, m := range p.generations {
		if m.owner == owner {
			return m.generation
		}
	}
	p.generations = append(p.generations, ownerGeneration{owner, now})
	return now
}

// Leave ends the wait of a caller that gives up. Whoever waits behind it gets to look, since what it
// was woken for, or stood in the way of, may suit the next.
func (p *Parker) Leave() {
	if l := p.home; l != nil {
		l.mu.Lock()
		if p.queued {
			l.remove(p)
		}
		wake := l.One()
		l.mu.Unlock()
		wake.Send()
	}
	p.Finish()
}

// Finish makes the Parker as new after a call that got what it waited for.
func (p *Parker) Finish() {
	if l := p.home; l != nil {
		l.mu.Lock()
		if p.queued {
			l.remove(p)
		}
		l.mu.Unlock()
		p.home = nil
	}
	clear(p.generations)
	p.generations = p.generations[:0]
	if p.signal != nil {
		select {
		case <-p.signal:
		default:
		}
	}
}

// A List holds the Parkers that wait for one thing, in the order in which they came. All its methods
// need the lock that it was made with.
type List struct {
	mu          *sync.Mutex
	front, back *Parker
	n           int
	total       int64 // nanoseconds of those that have left

	name     string // under which waits are recorded; "": they are not
	category trace.Category
	lane     trace.Lane
	server   trace.Track
}

// Init sets the lock that guards the List.
func (l *List) Init(mu *sync.Mutex) { l.mu = mu }

// Named has waits recorded, while there is a recording. The category says whose fault they are.
func (l *List) Named(name string, category trace.Category) { l.name, l.category = name, category }

// ServedBy says on which Track that is made what callers wait for, in the recording that is on.
func (l *List) ServedBy(track trace.Track) { l.server = track }

// Server is the Track that ServedBy said; 0: none.
func (l *List) Server() trace.Track { return l.server }

// Len is the number of callers that wait.
func (l *List) Len() int { return l.n }

// Waited is the time that callers have spent in the List so far, summed.
func (l *List) Waited() time.Duration {
	total := l.total
	now := trace.Now()
	for p := l.front; p != nil; p = p.next {
		total += now - p.since
	}
	return time.Duration(total)
}

// Enter puts the caller behind ctx to wait and answers ErrWouldBlock, for the caller to return.
// A ctx that is no Parker is not entered: it is Never, or a first try.
func (l *List) Enter(ctx context.Context) error {
	p, _ := ctx.(*Parker)
	if p == nil || p.home == l && p.queued {
		return ErrWouldBlock
	}
	again := p.home == l
	p.home, p.queued, p.since = l, true, trace.Now()
	if p.word != nil {
		atomic.StoreUint32(p.word, 0)
	}
	if again { // woken in vain: keeps its place
		p.prev, p.next = nil, l.front
	} else {
		p.prev, p.next = l.back, nil
	}
	if p.prev != nil {
		p.prev.next = p
	} else {
		l.front = p
	}
	if p.next != nil {
		p.next.prev = p
	} else {
		l.back = p
	}
	l.n++
	return ErrWouldBlock
}

// HasEarlier reports whether callers wait that came before the one behind ctx, which it must not overtake.
func (l *List) HasEarlier(ctx context.Context) bool {
	p, _ := ctx.(*Parker)
	return l.front != nil && l.front != p && (p == nil || p.home != l || p.queued)
}

func (l *List) remove(p *Parker) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		l.front = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		l.back = p.prev
	}
	p.prev, p.next, p.queued = nil, nil, false
	l.n--
	now := trace.Now()
	l.total += now - p.since
	if l.name != "" && trace.On() {
		trace.SleepSpan(l.lane.Shared(l.name), l.category, l.name, p.since, now, trace.Sleep{Who: p.Track, For: l.server})
	}
}

// A Wake is a wake-up that has been decided under the lock. Its Send belongs after the unlock: it may
// be a system call. The zero Wake wakes nobody.
type Wake struct{ word *uint32 }

// One takes the longest waiter out of the List.
func (l *List) One() Wake {
	p := l.front
	if p == nil {
		return Wake{}
	}
	l.remove(p)
	return p.unpark()
}

// All wakes every waiter. It is for ends (close, fail, cancel) and makes its system calls at once.
func (l *List) All() {
	for l.front != nil {
		l.One().Send()
	}
}

func (p *Parker) unpark() Wake {
	if p.word == nil {
		p.signal <- struct{}{} // buffered, and empty: only a queued Parker is roused
		return Wake{}
	}
	return wakeWord(p.word)
}

// wake has a Parker that is in no List try again.
func (p *Parker) wake() {
	if p.word != nil {
		wakeWord(p.word).Send()
		return
	}
	select {
	case p.signal <- struct{}{}:
	default:
	}
}

// wakeWord lets a thread go on. From then on its word may be gone; a futex wake needs only the address.
func wakeWord(word *uint32) Wake {
	if atomic.SwapUint32(word, awake) == sleeping {
		return Wake{word}
	}
	return Wake{}
}

// WakeThread wakes the C thread that sleeps on word from outside the List it waits in, where it stays
// until its Parker leaves.
func WakeThread(word *uint32) { wakeWord(word).Send() }

// Send makes the system call, if the woken thread sleeps in the kernel.
func (w Wake) Send() {
	if w.word != nil {
		futexWake(w.word)
	}
}

// Do runs try until it answers something else than ErrWouldBlock, and sleeps in between. If ctx is a
// Parker its owner does the sleeping, if it is Never nobody does: the answer is passed on. The error
// is ctx's cause when ctx ends first.
func Do[T any](ctx context.Context, try func(context.Context) (T, error)) (T, error) {
	first := NonBlocking
	switch c := ctx.(type) {
	case *Parker, nonBlocking, *tracedNonBlocking, *TryOnce:
		return try(ctx)
	case *Traced:
		first = c.NonBlocking()
	}
	v, err := try(first)
	if err != ErrWouldBlock {
		return v, err
	}
	p := goParkers.Get().(*Parker)
	p.Context, p.Track = ctx, TrackOf(ctx)
	defer func() {
		p.Context, p.Track = nil, 0
		goParkers.Put(p)
	}()
	for {
		v, err = try(p)
		if err != ErrWouldBlock {
			p.Finish()
			return v, err
		}
		select {
		case <-p.signal:
		case <-ctx.Done():
			p.Leave()
			return v, context.Cause(ctx)
		}
	}
}
