// Package wait lets callers sleep until an event that they wait for may have happened.
//
// Go's own primitives are not enough here. A C thread that blocks inside a Go call is woken through two other threads,
// and occupies a runtime thread meanwhile. Therefore no operation blocks while it holds a lock or inside a reader. An
// operation that cannot proceed enters its caller's [Parker] into a [List] and returns [ErrWouldBlock]. Only the
// outermost caller sleeps: a goroutine on a channel ([Do]), a C thread on a futex outside Go. It tries again when it is
// woken.
package wait

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// ErrWouldBlock reports that an operation could not proceed and changed nothing, or that its TimeSlice has expired. A
// Parker that was passed to the operation is now in a List, or stays awake to try again.
var ErrWouldBlock = errors.New("would block")

// NonBlocking is the context of a caller that does not wait: an operation that cannot proceed returns ErrWouldBlock.
var NonBlocking context.Context = nonBlocking{context.Background()}

type nonBlocking struct{ context.Context }

// Traced is the context of a caller that has a Track in the recording. Functions that are called with it record their
// spans on that Track.
type Traced struct {
	context.Context
	Track trace.Track // it may change between calls
}

// NonBlocking returns the context for calls that do not wait, with the same Track.
func (t *Traced) NonBlocking() context.Context { return (*tracedNonBlocking)(t) }

// tracedNonBlocking is a Traced whose caller does not wait. It has the same memory, so that NonBlocking allocates
// nothing.
type tracedNonBlocking Traced

func (*tracedNonBlocking) Deadline() (deadline time.Time, ok bool) { return }
func (*tracedNonBlocking) Done() <-chan struct{}                   { return nil }
func (*tracedNonBlocking) Err() error                              { return nil }
func (*tracedNonBlocking) Value(any) any                           { return nil }

// TrackOf returns the Track of the caller behind ctx, or 0.
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

// A Parker represents one caller of blocking operations. It is passed down as the context of a call, so that any
// function can enter it into a List. It waits in at most one List at a time.
//
// A Parker belongs to its caller. Other goroutines access it only through its List, with that List's lock held.
type Parker struct {
	context.Context // of the call; not used if the caller sleeps outside Go
	Track           trace.Track

	word   *uint32       // futex in C memory on which a C thread sleeps; nil for a goroutine
	signal chan struct{} // channel on which a goroutine sleeps; nil for a C thread

	home        *List // the last List entered
	prev, next  *Parker
	queued      bool // the Parker is in home; guarded by home's lock
	since       int64
	generations []ownerGeneration
}

type ownerGeneration struct {
	owner      any
	generation uint64
}

// Values of the futex word. A waker makes the system call only if it finds sleeping.
const (
	awake    = 1
	sleeping = 2
)

// NewFutexParker makes a Parker for one call of a C thread that sleeps on word. word MUST be memory outside Go's heap,
// and MUST stay valid until [Parker.Finish] or [Parker.Leave] has ended the call.
func NewFutexParker(word *uint32) *Parker {
	return &Parker{Context: context.Background(), word: word}
}

var goParkers = sync.Pool{New: func() any { return &Parker{signal: make(chan struct{}, 1)} }}

// GenerationAtStart returns the generation of owner at which the call behind ctx first met that owner. At the first
// meeting it stores now and returns it. If a later result differs from the present generation, the call is stale. If
// ctx is not a Parker, the result is always now.
func GenerationAtStart(ctx context.Context, owner any, now uint64) uint64 {
	if p, _ := ctx.(*Parker); p != nil {
		return p.generationAtStart(owner, now)
	}
	return now
}

func (p *Parker) generationAtStart(owner any, now uint64) uint64 {
	for _, m := range p.generations {
		if m.owner == owner {
			return m.generation
		}
	}
	p.generations = append(p.generations, ownerGeneration{owner, now})
	if c, is := owner.(CallCounter); is {
		c.CallWaits()
	}
	return now
}

// A CallCounter is an owner of generations that counts the calls which may sleep in it. Its methods do not block.
type CallCounter interface {
	// CallWaits is called when a call that may sleep first meets the owner.
	CallWaits()
	// CallEnded is called when that call ends, or gives up.
	CallEnded()
}

// ForgetGeneration forgets the generation of owner, so that the call behind ctx continues in the next one. It is for a
// call that begins a new generation itself.
func ForgetGeneration(ctx context.Context, owner any) {
	if p, _ := ctx.(*Parker); p != nil {
		p.generations = slices.DeleteFunc(p.generations, func(m ownerGeneration) bool {
			if m.owner == owner {
				m.callEnded()
			}
			return m.owner == owner
		})
	}
}

func (m ownerGeneration) callEnded() {
	if c, is := m.owner.(CallCounter); is {
		c.CallEnded()
	}
}

// Leave ends the wait of a caller that gives up. It wakes the next waiter, which may be able to use the wake-up that
// this caller got, or its place in the list.
func (p *Parker) Leave() {
	if l := p.home; l != nil {
		l.mu.Lock()
		if p.queued {
			l.remove(p)
		}
		wake := l.WakeOne()
		l.mu.Unlock()
		wake.Send()
	}
	p.Finish()
}

// Finish resets the Parker after a call that got what it waited for.
func (p *Parker) Finish() {
	if l := p.home; l != nil {
		l.mu.Lock()
		if p.queued {
			l.remove(p)
		}
		l.mu.Unlock()
		p.home = nil
	}
	for _, m := range p.generations {
		m.callEnded()
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

// A List holds the Parkers that wait for the same event, in order of arrival. The caller of any method must hold the
// lock that was given to Init.
type List struct {
	mu          *sync.Mutex
	front, back *Parker
	n           int
	total       int64 // total nanoseconds waited by Parkers that have left the List

	name     string // name under which waits are recorded; "": not recorded
	category trace.Category
	lane     trace.Lane
	server   trace.Track
}

// Init sets the lock that guards the List.
func (l *List) Init(mu *sync.Mutex) { l.mu = mu }

// Named makes the List record its waits under the given name and category while a recording is on.
func (l *List) Named(name string, category trace.Category) { l.name, l.category = name, category }

// ServedBy sets the Track, in the current recording, of the thread that produces what callers wait for.
func (l *List) ServedBy(track trace.Track) { l.server = track }

// Server returns the Track set by ServedBy; 0: none.
func (l *List) Server() trace.Track { return l.server }

// Len returns the number of waiting callers.
func (l *List) Len() int { return l.n }

// Waited returns the total time that callers have waited in the List so far.
func (l *List) Waited() time.Duration {
	total := l.total
	now := trace.Now()
	for p := l.front; p != nil; p = p.next {
		total += now - p.since
	}
	return time.Duration(total)
}

// Enter enters the caller behind ctx into the List, and returns ErrWouldBlock for the caller to return. It does not
// enter a ctx that is not a Parker, which is NonBlocking or the context of a first try.
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
	if again { // woken, but could not proceed: keeps its place
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

// HasEarlier reports whether callers are waiting that came before the caller behind ctx. It must not overtake them.
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

// A Wake is a wake-up that was decided with the lock held. Call Send after releasing the lock, because it may make a
// system call. The zero Wake wakes no thread.
type Wake struct{ word *uint32 }

// WakeOne removes the longest waiter from the List and wakes it. The caller must Send the Wake.
func (l *List) WakeOne() Wake {
	p := l.front
	if p == nil {
		return Wake{}
	}
	l.remove(p)
	return p.unpark()
}

// WakeAll wakes all waiters. It is for rare events (close, fail, cancel), and makes its system calls at once.
func (l *List) WakeAll() {
	for l.front != nil {
		l.WakeOne().Send()
	}
}

func (p *Parker) unpark() Wake {
	if p.word == nil {
		p.signal <- struct{}{} // never blocks: only a queued Parker is woken, and then the channel is empty
		return Wake{}
	}
	return wakeWord(p.word)
}

// wake makes a Parker that is in no List try again.
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

// wakeWord sets a thread's word to awake. From then on the thread may free the word. That is safe, because the futex
// call only uses its address.
func wakeWord(word *uint32) Wake {
	if atomic.SwapUint32(word, awake) == sleeping {
		return Wake{word}
	}
	return Wake{}
}

// WakeThread wakes the C thread that sleeps on word without removing its Parker from its List. The Parker stays there
// until it leaves.
func WakeThread(word *uint32) { wakeWord(word).Send() }

// Send makes the system call if the woken thread sleeps in the kernel.
func (w Wake) Send() {
	if w.word != nil {
		futexWake(w.word)
	}
}

// Do calls try until it returns anything except ErrWouldBlock, and sleeps between the calls. If ctx is a Parker or a
// context that does not wait, Do calls try once and never sleeps: the Parker's owner sleeps, if any. If ctx ends first,
// Do returns ctx's cause.
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
