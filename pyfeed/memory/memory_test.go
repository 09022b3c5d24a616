package memory

import (
	"errors"
	"runtime"
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

// restore fails the test if it leaves more in use than there was.
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
			t.Errorf("%d bytes lie at %p", n, b.Pointer())
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
	b := get(t, p, 900) // of the same class
	if b.Pointer() != at {
		t.Error("a buffer of the same class was not reused")
	}
	b.Release()
}

// idle makes a class of so many idle buffers, one for each processor that is named, the latest first.
func idle(processors ...int32) (c class, all []*Buffer) {
	for _, processor := range processors {
		all = append(all, &Buffer{processor: processor})
	}
	for i, b := range all[:len(all)-1] {
		b.next = all[i+1]
	}
	c.free = all[0]
	return c, all
}

func TestABufferIsUsedAgainWhereItWasWritten(t *testing.T) {
	c, all := idle(1, 2, 1, 2)
	for i, want := range []int{1, 3, 2, 0} { // of the third, which has none left, the oldest; then what there is
		processor := []int32{2, 2, 2, 3}[i]
		if got := c.take(processor); got != all[want] || got.next != nil {
			t.Errorf("take %d: expected the buffer of processor %d, found that of %d", i, all[want].processor, got.processor)
		}
	}
	if b := c.take(1); b != nil {
		t.Errorf("expected none to be left, found %+v", b)
	}

	c, all = idle(1, 2, 1, 2)
	if got := c.take(0); got != all[0] {
		t.Errorf("no processor: expected the latest buffer, found %+v", got)
	}

	others := make([]int32, affinityDepth, affinityDepth+1)
	c, all = idle(append(others, 1)...)
	if got := c.take(1); got != all[affinityDepth-1] {
		t.Errorf("expected to look at %d buffers, found one of processor %d taken", affinityDepth, got.processor)
	}
}

// get asks for the processor only where it is worth it.
func TestLargeBuffersKnowTheirProcessor(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	small, large := get(t, p, 1000), get(t, p, affinityBytes)
	if small.processor != 0 || large.processor < 1 || int(large.processor) > 1<<16 {
		t.Errorf("expected none and one, found %d and %d", small.processor, large.processor)
	}
	large.processor = -1
	large.Release()
	if again := get(t, p, affinityBytes); again != large || again.processor < 1 {
		t.Errorf("expected the same buffer, of this processor, found %+v", again)
	}
	large.Release()
	small.Release()
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
		t.Error("another purpose was counted")
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

// What a pool holds must not exceed the most that was in use at once, whatever the sizes.
func TestFootprintIsBoundedByThePeak(t *testing.T) {
	restore(t)
	p := NewPool(Queue)
	defer p.Close()
	const live = 4
	var held [live]*Buffer
	peak, most := 0, 0
	for i := range 2000 {
		k := i % live
		if held[k] != nil {
			held[k].Release()
		}
		held[k] = get(t, p, 1<<(6+i*7%12)+i%50)
		p.mu.Lock()
		peak = max(peak, p.live)
		most = max(most, p.live+p.idle)
		p.mu.Unlock()
	}
	if most > peak {
		t.Errorf("held %d bytes, but only %d were ever in use", most, peak)
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
		t.Error("a release too many went unnoticed")
	}
	c := Borrow(1, nil)
	c.Release()
	if !panics(func() { c.Retain(1) }) {
		t.Error("the retain of a released buffer went unnoticed")
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
		t.Error("given back while still in use")
	}
	if Count().Live[Lent] < 10 {
		t.Error("lent memory is not counted")
	}
	b.Release()
	if g.times != 1 {
		t.Errorf("given back %d times", g.times)
	}
	d := Borrow(10, g)
	d.ForgetOwner()
	d.Release()
	if g.times != 1 {
		t.Error("disowned memory was given back")
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
		t.Errorf("a Get and a Release: %v allocations", n)
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

// Of a Get and a Release, mostly in two threads, each has the other's core give up what it changes.
func TestWhatAGetChangesLiesInOneCacheLine(t *testing.T) {
	const line = 64
	var p Pool
	if begin, end := unsafe.Offsetof(p.mu), unsafe.Offsetof(p.peak); begin%line != 0 || end-begin > line {
		t.Errorf("expected one line of %d bytes, found bytes %d to %d", line, begin, end)
	}
	all := make([]*Pool, 100)
	for i := range all {
		all[i] = new(Pool)
		if over := uintptr(unsafe.Pointer(all[i])) % line; over != 0 {
			t.Fatalf("pool %d: expected it at the beginning of a line, found it %d bytes behind", i, over)
		}
	}
	runtime.KeepAlive(all)
	from := uintptr(unsafe.Pointer(&lent.bytes))
	to := uintptr(unsafe.Pointer(&returned.bytes))
	if apart := max(from, to) - min(from, to); apart < 2*line {
		t.Errorf("what is lent and what is given back: expected %d bytes between the counts at least, found %d", 2*line, apart)
	}
}

// Tuples are lent and come back while somebody looks: there are never less than none.
func TestWhatIsLentIsNeverLessThanNone(t *testing.T) {
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
			t.Errorf("expected %d bytes and %d buffers at least, found %d and %d", before.Live[Lent], before.Buffers, s.Live[Lent], s.Buffers)
			break
		}
	}
	stop.Store(true)
	busy.Wait()
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

func TestResizeKeepsWhatIsThere(t *testing.T) {
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
				t.Fatalf("%d bytes: byte %d is %d", n, i, b.Bytes()[i])
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
