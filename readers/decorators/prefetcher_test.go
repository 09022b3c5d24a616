package decorators

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// counter is a prefetcher's source of numbered tuples. It fails the test if two threads read at once.
type counter struct {
	t      *testing.T
	inside atomic.Bool
	next   int64
	count  int64
	end    error
	random *rand.Rand
	direct int // read by consumers
}

func (c *counter) read(l *record.Chunk, limit int, waits bool) (int, error) {
	if !c.inside.CompareAndSwap(false, true) {
		c.t.Error("two threads read at the same time")
	}
	defer c.inside.Store(false)
	if waits && c.random.IntN(4) == 0 {
		return 0, wait.ErrWouldBlock
	}
	if c.next == c.count {
		return 0, c.end
	}
	n := min(limit, 1+c.random.IntN(3), int(c.count-c.next))
	for range n {
		tuple := pyfeed.NewTuple(1)
		tuple.Pass = c.next
		l.Add(tuple)
		c.next++
	}
	if waits {
		c.direct += n
	}
	return n, nil
}

// counting is a reader of a counter through a prefetcher.
type counting struct {
	faultReader
	c *counter
}

func (r *counting) ReInit(uint64) error {
	r.DropPeeked()
	r.prefetcher.stop()
	r.c.next = 0
	return nil
}

func newCounting(t *testing.T, seed uint64, limit int, count int64, end error) (*readers.ReaderHolder, *prefetcher, *counter) {
	c := &counter{t: t, count: count, end: end, random: rand.New(rand.NewPCG(seed, 0))}
	p := newPrefetcher("counter", limit, func(_ context.Context, is *prefetched) error {
		_, err := c.read(&is.Chunk, 2, false)
		return err
	})
	p.direct = func(ctx context.Context, l *record.Chunk, maxCount int) (int, error) {
		if _, is := ctx.(*wait.Parker); is {
			t.Error("a consumer's read may wait")
		}
		return c.read(l, maxCount, true)
	}
	return readers.NewHolder(&counting{faultReader{readers.PeekBuffer{Read: p.take}, p}, c}), p, c
}

// newFinishing makes a prefetcher whose chunks take a while to finish. Finishing tuple number bad fails.
func newFinishing(t *testing.T, seed uint64, limit int, count int64, end error, bad int64) (*readers.ReaderHolder, *prefetcher, *counter) {
	h, p, c := newCounting(t, seed, limit, count, end)
	p.direct = nil
	p.fill = func(ctx context.Context, is *prefetched) error {
		_, err := c.read(&is.Chunk, 1, ctx == wait.NonBlocking)
		return err
	}
	var finished atomic.Uint64
	p.finish = func(is *prefetched, _ trace.Track) error {
		number, _ := is.PeekSpec(0)
		for range finished.Add(0x9e3779b97f4a7c15) >> 59 {
			runtime.Gosched()
		}
		if number.Pass == bad {
			is.Release()
			return errFinish
		}
		return nil
	}
	return h, p, c
}

var errFinish = errors.New("cannot be made")

// setPays sets the measured times so that reading ahead pays, or does not.
func (p *prefetcher) setPays(pays bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pauseTime, p.readTime = 0, 0
	if pays {
		p.pauseTime = 2 * longPause
	}
}

// Whether consumers or the goroutine read, the order is the same, an error keeps its position, and a reset is possible
// at any time.
func TestConsumersAndGoroutineInterleave(t *testing.T) {
	oops := errors.New("mine")
	direct := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		count, end := int64(random.IntN(60)), io.EOF
		if seed%3 == 0 {
			end = oops
		}
		h, p, c := newCounting(t, seed, 1+random.IntN(4), count, end)
		if seed%2 == 0 {
			h.Drop()
			bad := random.Int64N(2 * (count + 1))
			if h, p, c = newFinishing(t, seed, 1+random.IntN(4), count, end, bad); bad < count {
				count, end = bad, errFinish
			}
		}
		for range 4 {
			until := random.Int64N(2 * (count + 1)) // some passes are not read to their end
			for i := int64(0); i < until; i++ {
				p.setPays(random.IntN(3) == 0)
				if random.IntN(4) == 0 {
					if has, err := h.HasNext(background); has != (i < count) || has && err != nil {
						t.Fatalf("seed %d: has next before tuple %d of %d: %v, %v", seed, i, count, has, err)
					}
				}
				tuple, err := h.ReadNext(background)
				if i >= count {
					if err != end {
						t.Fatalf("seed %d: expected %v after %d tuples, found %v", seed, end, count, err)
					}
					break
				}
				if err != nil || tuple.Pass != i {
					t.Fatalf("seed %d: expected tuple %d, found %v, %v", seed, i, tuple, err)
				}
				tuple.Release()
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
		direct += c.direct
		h.Drop()
	}
	if direct == 0 {
		t.Error("no consumer has read by itself")
	}
}

// Two consumers sleep while the goroutine reads. The goroutine stops after a chunk, which wakes one consumer, and
// reading ahead does not pay. The other consumer still gets a tuple: from the same chunk, or from one more.
func TestNoConsumerIsForgotten(t *testing.T) {
	for _, size := range []int{1, 2} {
		chunks := make(chan int)
		p := newPrefetcher("chunks", 1, func(_ context.Context, c *prefetched) error {
			n, more := <-chunks
			if !more {
				return io.EOF
			}
			for range n {
				c.Add(pyfeed.NewTuple(1))
			}
			return nil
		})
		p.direct = func(context.Context, *record.Chunk, int) (int, error) { return 0, wait.ErrWouldBlock }
		p.setPays(false)
		h := readers.NewHolder(&faultReader{readers.PeekBuffer{Read: p.take}, p})
		served := make(chan error)
		for range 2 {
			go func() {
				tuple, err := h.ReadNext(background)
				if err == nil {
					tuple.Release()
				}
				served <- err
			}()
		}
		readertest.Until(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.pauseTime, p.readTime = 0, 0
			return p.consumers.Len() == 2 && p.reading
		})
		for n := 0; n < 2; n += size {
			chunks <- size
			for range size {
				if err := <-served; err != nil {
					t.Error(err)
				}
			}
		}
		close(chunks)
		h.Drop()
	}
}

// With many consumers, each tuple is delivered once.
func TestManyConsumersTakeTurns(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 40
	}
	for seed := range seeds {
		const count = 500
		h, p, _ := newCounting(t, seed, 1+int(seed%3), count, io.EOF)
		if seed%2 == 0 {
			h.Drop()
			h, p, _ = newFinishing(t, seed, 1+int(seed%3), count, io.EOF, -1)
		}
		var mu sync.Mutex
		var all []int64
		var group sync.WaitGroup
		for k := range uint64(6) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, k))
				for {
					p.setPays(random.IntN(8) == 0)
					tuple, err := h.ReadNext(background)
					if err != nil {
						if err != io.EOF {
							t.Error(err)
						}
						return
					}
					mu.Lock()
					all = append(all, tuple.Pass)
					mu.Unlock()
					tuple.Release()
				}
			})
		}
		group.Wait()
		slices.Sort(all)
		for i, n := range all {
			if int64(i) != n {
				t.Fatalf("seed %d: expected tuple %d, found %d", seed, i, n)
			}
		}
		if len(all) != count {
			t.Fatalf("seed %d: expected %d tuples, found %d", seed, count, len(all))
		}
		h.Drop()
	}
}

// The goroutine finishes a chunk while a consumer reads and finds that it would have to wait. The consumer is not woken
// for chunks that are finished before it sleeps, so it has to look again.
func TestAChunkThatIsFinishedWhileAConsumerReads(t *testing.T) {
	making, reading := make(chan bool), make(chan bool)
	p := newPrefetcher("chunks", 1, func(ctx context.Context, c *prefetched) error {
		if ctx == wait.NonBlocking {
			reading <- true
			<-reading
			return wait.ErrWouldBlock
		}
		c.Add(pyfeed.NewTuple(1))
		return nil
	})
	p.finish = func(*prefetched, trace.Track) error {
		making <- true
		<-making
		return nil
	}
	p.resume()
	<-making
	p.setPays(false)
	h := readers.NewHolder(&faultReader{readers.PeekBuffer{Read: p.take}, p})
	served := make(chan error)
	go func() {
		tuple, err := h.ReadNext(background)
		if err == nil {
			tuple.Release()
		}
		served <- err
	}()
	<-reading // the first try, in which the caller cannot sleep
	reading <- true
	<-reading // the second try, in which it can; now the chunk is finished
	making <- true
	readertest.Until(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.queue) == 1 && !p.queue[0].finishing
	})
	reading <- true
	if err := <-served; err != nil {
		t.Error(err)
	}
	go func() {
		for range making { // of the next chunk, if there is one
			making <- true
		}
	}()
	h.Drop()
	close(making)
}

// A panic while a chunk is finished is delivered in place of that chunk and of all chunks after it, whichever thread
// panicked.
func TestAFaultWhileAChunkIsFinished(t *testing.T) {
	for _, pays := range []bool{true, false} {
		h, p, _ := newFinishing(t, 0, 2, 10, io.EOF, -1)
		finish := p.finish
		p.finish = func(is *prefetched, track trace.Track) error {
			if number, _ := is.PeekSpec(0); number.Pass == 3 {
				panic("mine")
			}
			return finish(is, track)
		}
		next := func() (tuple *pyfeed.Tuple, err error) {
			defer func() {
				if v := recover(); v != nil {
					err = pyfeed.Errorf(pyfeed.Fault, "%v", v)
				}
			}()
			p.setPays(pays)
			return h.ReadNext(background)
		}
		faults, number := 0, int64(0)
		for faults < 3 { // the consumer itself meets one of them
			tuple, err := next()
			if pyfeed.IsKind(err, pyfeed.Fault) {
				faults++
				continue
			}
			if err != nil || tuple.Pass != number || number == 3 {
				t.Fatalf("expected tuple %d or a fault, found %v, %v", number, tuple, err)
			}
			tuple.Release()
			number++
		}
		h.Drop()
	}
}

// If a consumer's own read panics, the prefetcher can still be stopped.
func TestAFaultInAConsumerThatReadsItself(t *testing.T) {
	h, p, _ := newCounting(t, 0, 2, 1, io.EOF)
	p.direct = func(context.Context, *record.Chunk, int) (int, error) { panic("mine") }
	p.readTime = 0 // so that consumers read
	func() {
		defer func() {
			if v := recover(); v != "mine" {
				t.Errorf("expected the panic, found %v", v)
			}
		}()
		_, _ = h.ReadNext(background)
	}()
	if !pyfeed.IsKind(p.end, pyfeed.Fault) { // otherwise other consumers would sleep forever
		t.Errorf("expected the prefetcher's end to be the fault, found %v", p.end)
	}
	h.Drop()
}

// Only the goroutine, which can be stopped, reads from a source that is slow or whose speed is not known yet.
func TestConsumersReadOnlyCheapSources(t *testing.T) {
	const count = 50
	h, p, c := newCounting(t, 0, 2, count, io.EOF)
	for i := range int64(count) {
		p.mu.Lock()
		p.readTime = 1 << 40 // pretend that reads are slow
		p.mu.Unlock()
		tuple, err := h.ReadNext(background)
		if err != nil || tuple.Pass != i {
			t.Fatalf("expected tuple %d, found %v, %v", i, tuple, err)
		}
		tuple.Release()
	}
	if _, err := h.ReadNext(background); err != io.EOF {
		t.Fatalf("expected the end, found %v", err)
	}
	if c.direct != 0 {
		t.Errorf("consumers have read %d tuples", c.direct)
	}
	h.Drop()
}

func TestAFaultInAThreadThatReadsAhead(t *testing.T) {
	p := newPrefetcher("mine", 1, func(context.Context, *prefetched) error { panic("mine") })
	reader := readers.PeekBuffer{Read: p.take}
	for range 2 {
		_, err := readers.NewHolder(&faultReader{reader, p}).ReadNext(background)
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.Fault {
			t.Errorf("expected a fault, found %v", err)
		}
		p.stop()
	}
}

type faultReader struct {
	readers.PeekBuffer
	prefetcher *prefetcher
}

func (*faultReader) ReInit(uint64) error     { return nil }
func (*faultReader) Spec() *pyfeed.Spec      { return nil }
func (*faultReader) Describe(*readers.Stats) {}
func (r *faultReader) Close()                { r.prefetcher.stop() }
