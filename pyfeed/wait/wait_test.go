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

// A gate has a number of tokens. Callers wait for a token and take it.
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
		wake := g.list.WakeOne()
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

// A waiter that was woken and gives up passes the wake-up on to the next waiter.
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
		t.Errorf("the second caller: expected a token, found %d, %v", n, err)
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

// A waiter that was woken but could not proceed returns to the front of the list, before waiters that came later.
func TestAWakeUpInVainKeepsThePlace(t *testing.T) {
	g := newGate()
	var a, b uint32
	first, second := NewFutexParker(&a), NewFutexParker(&b)
	_, _ = g.try(first)
	_, _ = g.try(second)
	g.open(1)
	if _, err := g.try(NonBlocking); err != nil { // another thread takes the token first
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
		t.Error("expected no earlier callers in an empty list")
	}
	_, _ = g.try(p)
	if !behind(NonBlocking) || behind(p) {
		t.Error("expected an earlier caller for a newcomer, and none for the first")
	}
	p.Leave()
}

func TestBeganRemembersTheFirstGeneration(t *testing.T) {
	var a uint32
	p := NewFutexParker(&a)
	owner, other := new(int), new(int)
	if GenerationAtStart(p, owner, 1) != 1 || GenerationAtStart(p, owner, 2) != 1 || GenerationAtStart(p, other, 7) != 7 {
		t.Error("a Parker forgot the generation in which its call began")
	}
	if GenerationAtStart(NonBlocking, owner, 2) != 2 {
		t.Error("expected a first try to get the present generation")
	}
	ForgetGeneration(p, owner)
	ForgetGeneration(NonBlocking, other)
	if GenerationAtStart(p, owner, 2) != 2 || GenerationAtStart(p, owner, 3) != 2 || GenerationAtStart(p, other, 8) != 7 {
		t.Error("expected the new generation after ForgetGeneration, and the old one for another owner")
	}
	p.Finish()
	if GenerationAtStart(p, owner, 3) != 3 {
		t.Error("a finished call's generation is still known")
	}
}

func TestRouseFromOutsideLeavesTheListToTheParker(t *testing.T) {
	g := newGate()
	var a uint32
	p := NewFutexParker(&a)
	_, _ = g.try(p)
	WakeThread(&a)
	if a != awake {
		t.Error("the thread was not woken")
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
	for waited() <= first { // wait for the clock to advance
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
		t.Errorf("a wait: expected 0 allocations, found %v", n)
	}
}

// counter counts the calls that may sleep in it, as the holder of a reader does.
type counter struct{ calls atomic.Int32 }

func (c *counter) CallWaits() { c.calls.Add(1) }
func (c *counter) CallEnded() { c.calls.Add(-1) }

func (c *counter) expect(t *testing.T, calls int32) {
	t.Helper()
	if n := c.calls.Load(); n != calls {
		t.Errorf("expected %d calls, found %d", calls, n)
	}
}

// A call counts once, however often it meets the owner, and until it ends or gives up.
func TestCallsThatMaySleepAreCounted(t *testing.T) {
	var c, other counter
	for _, ctx := range []context.Context{NonBlocking, context.Background(), &TryOnce{Context: NonBlocking}, &Traced{Context: context.Background()}} {
		GenerationAtStart(ctx, &c, 1)
		c.expect(t, 0)
	}
	for _, end := range []func(*Parker){(*Parker).Finish, (*Parker).Leave} {
		p := NewFutexParker(new(uint32))
		q := NewFutexParker(new(uint32))
		for range 3 {
			GenerationAtStart(p, &c, 1)
			GenerationAtStart(p, &other, 1)
		}
		c.expect(t, 1)
		GenerationAtStart(q, &c, 2)
		c.expect(t, 2)
		other.expect(t, 1)
		end(p)
		c.expect(t, 1)
		other.expect(t, 0)
		end(p) // has no call any more
		end(q)
		c.expect(t, 0)
	}
}

// A call that goes on in the next generation still counts once.
func TestACallThatForgetsItsGenerationIsNotCountedTwice(t *testing.T) {
	var c, other counter
	p := NewFutexParker(new(uint32))
	GenerationAtStart(p, &other, 5)
	for generation := range uint64(3) {
		if found := GenerationAtStart(p, &c, generation); found != generation {
			t.Errorf("expected generation %d, found %d", generation, found)
		}
		c.expect(t, 1)
		ForgetGeneration(p, &c)
		c.expect(t, 0)
		ForgetGeneration(p, &c)
		ForgetGeneration(NonBlocking, &other)
		c.expect(t, 0)
		other.expect(t, 1)
	}
	p.Finish()
	c.expect(t, 0)
	other.expect(t, 0)
}

// Do counts its call while it sleeps, and no longer once it has a result, an error, or a context that ended.
func TestDoCountsItsCall(t *testing.T) {
	var c counter
	g := newGate()
	failure := errors.New("failure")
	for _, want := range []struct {
		end      func(cancel func())
		expected error
	}{
		{func(func()) { g.open(1) }, nil},
		{func(cancel func()) { cancel() }, context.Canceled},
		{func(func()) { g.open(1) }, failure},
	} {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error)
		go func() {
			_, err := Do(ctx, func(ctx context.Context) (int, error) {
				GenerationAtStart(ctx, &c, 1)
				n, err := g.try(ctx)
				if err == nil && want.expected == failure {
					return n, failure
				}
				return n, err
			})
			done <- err
		}()
		g.waiting(1)
		c.expect(t, 1)
		want.end(cancel)
		if err := <-done; err != want.expected {
			t.Errorf("expected %v, found %v", want.expected, err)
		}
		c.expect(t, 0)
		cancel()
	}
}

// Many calls at the same time, of which some give up, leave no count.
func TestCountsOfManyCalls(t *testing.T) {
	var c counter
	g := newGate()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for i := range 16 {
		all.Add(1)
		go func() {
			defer all.Done()
			for range 200 {
				waits := context.Background()
				if i%4 == 0 {
					waits = ctx
				}
				if _, err := Do(waits, func(ctx context.Context) (int, error) {
					GenerationAtStart(ctx, &c, 1)
					return g.try(ctx)
				}); err != nil {
					return
				}
			}
		}()
	}
	g.open(800)
	cancel()
	g.open(16 * 200)
	all.Wait()
	c.expect(t, 0)
}
