package wait

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A gate lets callers through while it is open, one for each time.
type gate struct {
	mu     sync.Mutex
	list   List
	tokens int
}

func newGate() *gate {
	g := new(gate)
	g.list.Init(&g.mu)
	return g
}

func (g *gate) try(ctx context.Context) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.tokens == 0 {
		return 0, g.list.Enter(ctx)
	}
	g.tokens--
	return 1, nil
}

func (g *gate) open(n int) {
	for range n {
		g.mu.Lock()
		g.tokens++
		wake := g.list.One()
		g.mu.Unlock()
		wake.Send()
	}
}

func (g *gate) waiting(n int) {
	for {
		g.mu.Lock()
		there := g.list.Len()
		g.mu.Unlock()
		if there == n {
			return
		}
		runtime.Gosched()
	}
}

func TestDoWaitsAndGoesOn(t *testing.T) {
	g := newGate()
	done := make(chan error)
	go func() {
		_, err := Do(context.Background(), g.try)
		done <- err
	}()
	g.waiting(1)
	g.open(1)
	if err := <-done; err != nil {
		t.Error(err)
	}
	g.waiting(0)
}

func TestNeverDoesNotWait(t *testing.T) {
	g := newGate()
	if _, err := Do(NonBlocking, g.try); err != ErrWouldBlock {
		t.Errorf("expected ErrWouldBlock, found %v", err)
	}
	g.waiting(0)
}

func TestDoEndsWithItsContext(t *testing.T) {
	g := newGate()
	cause := errors.New("cause")
	ctx, cancel := context.WithCancelCause(context.Background())
	done := make(chan error)
	go func() {
		_, err := Do(ctx, g.try)
		done <- err
	}()
	g.waiting(1)
	cancel(cause)
	if err := <-done; err != cause {
		t.Errorf("expected the cause, found %v", err)
	}
	g.waiting(0)
}

// A waiter that gives up passes on what it was woken for.
func TestAWakeUpIsNotLostWithItsWaiter(t *testing.T) {
	g := newGate()
	var a, b uint32
	first, second := NewFutexParker(&a), NewFutexParker(&b)
	for _, p := range []*Parker{first, second} {
		if _, err := g.try(p); err != ErrWouldBlock {
			t.Fatal(err)
		}
	}
	g.open(1)
	if a != awake || b == awake {
		t.Fatalf("expected the first to be woken, found words %d and %d", a, b)
	}
	first.Leave()
	if b != awake {
		t.Fatal("the second was not woken when the first gave up")
	}
	if n, err := g.try(second); n != 1 || err != nil {
		t.Errorf("the second: %d, %v", n, err)
	}
	second.Finish()
}

func TestOrderIsThatOfArrival(t *testing.T) {
	g := newGate()
	words := make([]uint32, 5)
	parkers := make([]*Parker, 5)
	for i := range words {
		parkers[i] = NewFutexParker(&words[i])
		_, _ = g.try(parkers[i])
	}
	for i := range words {
		g.open(1)
		if words[i] != awake {
			t.Fatalf("wake-up %d did not go to the caller that came as number %d", i, i)
		}
		_, _ = g.try(parkers[i])
		parkers[i].Finish()
	}
}

// One that was woken in vain goes to the front again, not behind those who came later.
func TestAWakeUpInVainKeepsThePlace(t *testing.T) {
	g := newGate()
	var a, b uint32
	first, second := NewFutexParker(&a), NewFutexParker(&b)
	_, _ = g.try(first)
	_, _ = g.try(second)
	g.open(1)
	if _, err := g.try(NonBlocking); err != nil { // somebody was quicker
		t.Fatal(err)
	}
	if _, err := g.try(first); err != ErrWouldBlock || a == awake {
		t.Fatal("expected the first to wait again")
	}
	g.open(1)
	if a != awake || b == awake {
		t.Errorf("expected the first to be woken, found words %d and %d", a, b)
	}
	first.Leave()
	second.Leave()
}

func TestBehindTellsNewcomersFromThoseInTurn(t *testing.T) {
	g := newGate()
	var a uint32
	p := NewFutexParker(&a)
	behind := func(ctx context.Context) bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.list.HasEarlier(ctx)
	}
	if behind(NonBlocking) {
		t.Error("nobody waits")
	}
	_, _ = g.try(p)
	if !behind(NonBlocking) || behind(p) {
		t.Error("expected a newcomer to be behind, the first not")
	}
	p.Leave()
}

func TestBeganRemembersTheFirstGeneration(t *testing.T) {
	var a uint32
	p := NewFutexParker(&a)
	owner, other := new(int), new(int)
	if Began(p, owner, 1) != 1 || Began(p, owner, 2) != 1 || Began(p, other, 7) != 7 {
		t.Error("a Parker forgot when its call began")
	}
	if Began(NonBlocking, owner, 2) != 2 {
		t.Error("a first try is of now")
	}
	p.Finish()
	if Began(p, owner, 3) != 3 {
		t.Error("a finished call is remembered")
	}
}

func TestRouseFromOutsideLeavesTheListToTheParker(t *testing.T) {
	g := newGate()
	var a uint32
	p := NewFutexParker(&a)
	_, _ = g.try(p)
	WakeThread(&a)
	if a != awake {
		t.Error("not woken")
	}
	g.waiting(1)
	p.Leave()
	g.waiting(0)
}

func TestWaitsInProgressAreCounted(t *testing.T) {
	g := newGate()
	waited := func() time.Duration {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.list.Waited()
	}
	var a uint32
	p := NewFutexParker(&a)
	_, _ = g.try(p)
	first := waited()
	for waited() <= first { // the clock ticks
		runtime.Gosched()
	}
	p.Leave()
	if last := waited(); last <= first || waited() != last {
		t.Errorf("expected the time of one finished wait, found %v, %v and %v", first, last, waited())
	}
}

func TestManyWaitersGetOneTokenEach(t *testing.T) {
	g := newGate()
	const n = 2000
	var got atomic.Int64
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range n {
				v, err := Do(context.Background(), g.try)
				if err != nil {
					t.Error(err)
				}
				got.Add(int64(v))
			}
		})
	}
	for range 4 {
		all.Go(func() {
			for range 16 * n / 4 {
				g.open(1)
			}
		})
	}
	all.Wait()
	if got.Load() != 16*n || g.tokens != 0 {
		t.Errorf("expected %d tokens to be taken, found %d, and %d left", 16*n, got.Load(), g.tokens)
	}
}

func TestWaitingAllocatesNothing(t *testing.T) {
	g := newGate()
	turn := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		for {
			select {
			case <-turn:
				g.waiting(1)
				g.open(1)
			case <-stop:
				return
			}
		}
	}()
	defer close(stop)
	try := g.try
	wait := func() {
		turn <- struct{}{}
		_, _ = Do(context.Background(), try)
	}
	wait()
	if n := testing.AllocsPerRun(200, wait); n > 0 {
		t.Errorf("a wait: %v allocations", n)
	}
}
