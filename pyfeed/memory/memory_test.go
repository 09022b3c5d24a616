package memory

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"
)

func get(t *testing.T, p *Pool, n int) *Buffer {
	t.Helper()
	b, err := p.Get(n)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// restore fails the test if more memory is in use at its end than before.
func restore(t *testing.T) {
	before := Count()
	t.Cleanup(func() {
		if after := Count(); after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
}

func TestClassesWasteAtMostAQuarter(t *testing.T) {
	for n := 1; n < 1<<22; n += 1 + n/7 {
		c := classOf(n)
		if c < n || c%Alignment != 0 || n > 4*Alignment && c > n+n/4 {
			t.Fatalf("classOf(%d) = %d", n, c)
		}
		if classOf(c) != c {
			t.Fatalf("classOf(%d) = %d, of which the class is %d", n, c, classOf(c))
		}
	}
}

func TestBuffersAreAligned(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	for _, n := range []int{0, 1, 63, 64, 65, 4096, 1<<21 - 1, 1 << 21, 1<<21 + 1, 5 << 20} {
		b := get(t, p, n)
		if uintptr(b.Pointer())%Alignment != 0 {
			t.Errorf("a buffer of %d bytes is not aligned: it is at %p", n, b.Pointer())
		}
		if len(b.Bytes()) != n || b.Size() != n {
			t.Errorf("asked for %d bytes, found %d", n, len(b.Bytes()))
		}
		for i := range b.Bytes() {
			b.Bytes()[i] = byte(i)
		}
		b.Release()
	}
}

func TestPoolReusesMemory(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	a := get(t, p, 1000)
	at := a.Pointer()
	a.Release()
	b := get(t, p, 900) // has the same class
	if b.Pointer() != at {
		t.Error("a released buffer of the same class was not reused")
	}
	b.Release()
}

func TestTheBufferThatCameBackLastIsTakenFirst(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	first, second := get(t, p, 1000), get(t, p, 1000)
	first.Release()
	second.Release()
	for _, want := range []*Buffer{second, first} {
		if got := get(t, p, 1000); got != want || got.next != nil {
			t.Errorf("expected %p, found %p, %+v", want, got, got)
		}
	}
	first.Release()
	second.Release()
}

func TestCountsAreByPurpose(t *testing.T) {
	before := Count()
	p := NewPool(Batch)
	a, b := get(t, p, 100), get(t, p, 1000)
	now := Count()
	if got := now.Live[Batch] - before.Live[Batch]; got != 1100 {
		t.Errorf("live batch bytes: expected 1100, found %d", got)
	}
	if now.Live[Queue] != before.Live[Queue] {
		t.Error("memory was counted for another purpose")
	}
	if got := now.Buffers - before.Buffers; got != 2 {
		t.Errorf("buffers: expected 2, found %d", got)
	}
	a.Release()
	if got := Count().Idle - before.Idle; got != int64(classOf(100)) {
		t.Errorf("idle: expected %d, found %d", classOf(100), got)
	}
	p.Close()
	if got := Count().Live[Batch] - before.Live[Batch]; got != 1000 {
		t.Errorf("a buffer that outlives its pool: expected 1000 bytes, found %d", got)
	}
	b.Release()
	if after := Count(); after != before {
		t.Errorf("counts: %+v before, %+v after", before, after)
	}
}

func TestACounterKeepsNothing(t *testing.T) {
	restore(t)
	p := NewUnpooled(Batch)
	before := Count().Idle
	get(t, p, 1000).Release()
	if idle := Count().Idle; idle != before {
		t.Errorf("expected nothing to be idle, found %d bytes", idle-before)
	}
	p.Close()
}

// The memory held by a pool must not exceed the largest amount in use at one time, whatever the sizes.
func TestFootprintIsBoundedByThePeak(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	const live = 4
	var held [live]*Buffer
	peak, limit := 0, 0
	for i := range 2000 {
		k := i % live
		if held[k] != nil {
			held[k].Release()
		}
		held[k] = get(t, p, 1<<(6+i*7%12)+i%50)
		p.mu.Lock()
		peak = max(peak, p.live)
		limit = max(limit, p.live+p.idle)
		p.mu.Unlock()
	}
	if limit > peak {
		t.Errorf("held %d bytes, but only %d were ever in use", limit, peak)
	}
	for _, b := range held {
		b.Release()
	}
}

func TestRefusesImpossibleSizes(t *testing.T) {
	p := NewPool(Queue)
	defer p.Close()
	for _, n := range []int{-1, 1 << 62} {
		if _, err := p.Get(n); !errors.Is(err, ErrNoMemory) {
			t.Errorf("Get(%d): expected ErrNoMemory, found %v", n, err)
		}
	}
}

func TestSystemWithoutMemoryIsAnError(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	if _, err := p.Get(1 << 46); !errors.Is(err, ErrNoMemory) {
		t.Errorf("expected ErrNoMemory, found %v", err)
	}
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

func TestReferencesAreGuarded(t *testing.T) {
	b := Borrow(1, nil)
	b.Retain(2)
	b.Release()
	b.Release()
	b.Release()
	if !panics(b.Release) {
		t.Error("expected a panic for one Release too many")
	}
	c := Borrow(1, nil)
	c.Release()
	if !panics(func() { c.Retain(1) }) {
		t.Error("expected a panic for the Retain of a released buffer")
	}
}

type owner struct{ times int }

func (g *owner) Reclaim() { g.times++ }

func TestBorrowedMemoryGoesBackOnce(t *testing.T) {
	restore(t)
	g := new(owner)
	b := Borrow(10, g)
	b.Retain(1)
	b.Release()
	if g.times != 0 {
		t.Error("the owner got its memory back while it was in use")
	}
	if Count().Live[Lent] < 10 {
		t.Error("lent memory is not counted")
	}
	b.Release()
	if g.times != 1 {
		t.Errorf("expected the owner to get its memory back once, found %d times", g.times)
	}
	d := Borrow(10, g)
	d.ForgetOwner()
	d.Release()
	if g.times != 1 {
		t.Error("ForgetOwner: the owner got its memory back")
	}
}

func TestPoolFromManyThreads(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			var kept []*Buffer
			for i := range 2000 {
				b, err := p.Get(64 << (i % 5))
				if err != nil {
					t.Error(err)
					return
				}
				b.Bytes()[0] = byte(w)
				kept = append(kept, b)
				if len(kept) == 10 {
					for _, k := range kept {
						if k.Bytes()[0] != byte(w) {
							t.Error("two threads were given the same buffer")
						}
						k.Release()
					}
					kept = kept[:0]
				}
			}
		})
	}
	all.Wait()
	p.Close()
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	p := NewPool(Queue)
	defer p.Close()
	get(t, p, 5000).Release()
	if n := testing.AllocsPerRun(100, func() { get(t, p, 5000).Release() }); n != 0 {
		t.Errorf("a Get and a Release: expected 0 allocations, found %v", n)
	}
}

func BenchmarkGetRelease(b *testing.B) {
	p := NewPool(Queue)
	defer p.Close()
	for b.Loop() {
		buf, _ := p.Get(4096)
		buf.Release()
	}
}

// Get and Release mostly run in two threads, so that each moves the cache lines that it changes to its own core. The
// fields must be in one line.
func TestWhatPoolGetChangesIsTogether(t *testing.T) {
	const line = 64
	var p Pool
	if begin, end := unsafe.Offsetof(p.mu), unsafe.Offsetof(p.peak); begin%line != 0 || end-begin > line {
		t.Errorf("expected the fields to be in the first %d bytes, found bytes %d to %d", line, begin, end)
	}
	from := uintptr(unsafe.Pointer(&lent.bytes))
	to := uintptr(unsafe.Pointer(&returned.bytes))
	if apart := max(from, to) - min(from, to); apart < 2*line {
		t.Errorf("lent and returned: expected at least %d bytes between the counts, found %d", 2*line, apart)
	}
}

// Memory is lent and returned while another thread reads the counts. They must never be negative.
func TestLentCountIsNeverNegative(t *testing.T) {
	before := Count()
	var stop atomic.Bool
	var busy sync.WaitGroup
	for range 4 {
		busy.Go(func() {
			for !stop.Load() {
				Borrow(1<<10, nil).Release()
			}
		})
	}
	for range 20_000 {
		if s := Count(); s.Live[Lent] < before.Live[Lent] || s.Buffers < before.Buffers {
			t.Errorf("expected at least %d bytes and %d buffers, found %d and %d", before.Live[Lent], before.Buffers, s.Live[Lent], s.Buffers)
			break
		}
	}
	stop.Store(true)
	busy.Wait()
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

func TestResizeKeepsContents(t *testing.T) {
	before := Count()
	p := NewPool(Batch)
	b, err := p.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	kept := 100
	for i := range b.Bytes() {
		b.Bytes()[i] = byte(i)
	}
	for _, n := range []int{120, 5 << 10, 3 << 20, 3<<20 + 5, 50 << 20, 4 << 20, 3 << 20, 200} {
		if b, err = p.Resize(b, n, kept); err != nil {
			t.Fatal(err)
		}
		if live := Count().Live[Batch] - before.Live[Batch]; b.Size() != n || live != int64(n) || len(b.Bytes()) != n {
			t.Errorf("expected %d bytes, found %d, and %d in use", n, b.Size(), live)
		}
		for i := range kept {
			if b.Bytes()[i] != byte(i) {
				t.Fatalf("resized to %d bytes: byte %d has the wrong value %d", n, i, b.Bytes()[i])
			}
		}
		b.Bytes()[n-1] = 1
	}
	if _, err := p.Resize(b, 1<<50, 0); !errors.Is(err, ErrNoMemory) {
		t.Errorf("found %v", err)
	}
	b.Release()
	p.Close()
	if after := Count(); after != before {
		t.Errorf("counts: %+v before, %+v after", before, after)
	}
}
