package readers

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
)

// counter is what a pump reads: tuples numbered by their passes' numbers, for as long as nobody meets another in it.
type counter struct {
	t      *testing.T
	inside atomic.Bool
	next   int64
	count  int64
	end    error
	random *rand.Rand
	direct int // read by consumers
}

func (c *counter) read(l *Lot, most int, waits bool) (int, error) {
	if !c.inside.CompareAndSwap(false, true) {
		c.t.Error("two at a time")
	}
	defer c.inside.Store(false)
	if waits && c.random.IntN(4) == 0 {
		return 0, wait.ErrWouldBlock
	}
	if c.next == c.count {
		return 0, c.end
	}
	n := min(most, 1+c.random.IntN(3), int(c.count-c.next))
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

// pumped is a reader of a counter through a pump.
type pumped struct {
	faultReader
	c *counter
}

func (r *pumped) ReInit(uint64) error {
	r.drop()
	r.pump.stop()
	r.c.next = 0
	return nil
}

func newPumped(t *testing.T, seed uint64, limit int, count int64, end error) (*ReaderHolder, *pump, *counter) {
	c := &counter{t: t, count: count, end: end, random: rand.New(rand.NewPCG(seed, 0))}
	p := newPump("counter", limit, func(_ context.Context, is *chunk) error {
		_, err := c.read(&is.Lot, 2, false)
		return err
	})
	p.direct = func(ctx context.Context, l *Lot, most int) (int, error) {
		if _, is := ctx.(*wait.Parker); is {
			t.Error("a consumer would wait below")
		}
		return c.read(l, most, true)
	}
	return NewHolder(&pumped{faultReader{ahead{read: p.take}, p}, c}), p, c
}

// newMaking is a pump each of whose tuples takes a while to be made: that of number bad cannot be.
func newMaking(t *testing.T, seed uint64, limit int, count int64, end error, bad int64) (*ReaderHolder, *pump, *counter) {
	h, p, c := newPumped(t, seed, limit, count, end)
	p.direct = nil
	p.fill = func(ctx context.Context, is *chunk) error {
		_, err := c.read(&is.Lot, 1, ctx == wait.Never)
		return err
	}
	var made atomic.Uint64
	p.make = func(is *chunk, _ trace.Track) error {
		number, _ := is.like(0)
		for range made.Add(0x9e3779b97f4a7c15) >> 59 {
			runtime.Gosched()
		}
		if number.Pass == bad {
			is.drop()
			return errMade
		}
		return nil
	}
	return h, p, c
}

var errMade = errors.New("cannot be made")

// set has the pump believe that reading ahead pays, or not.
func (p *pump) set(pays bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away, p.cost = 0, 0
	if pays {
		p.away = 2 * longAway
	}
}

// Whoever reads, consumers or the goroutine, the order is the same, an error comes where it belongs, and a reset at any
// time starts over.
func TestConsumersAndThreadTakeTurns(t *testing.T) {
	oops := errors.New("mine")
	direct := 0
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 1))
		count, end := int64(random.IntN(60)), io.EOF
		if seed%3 == 0 {
			end = oops
		}
		h, p, c := newPumped(t, seed, 1+random.IntN(4), count, end)
		if seed%2 == 0 {
			h.Drop()
			bad := random.Int64N(2 * (count + 1))
			if h, p, c = newMaking(t, seed, 1+random.IntN(4), count, end, bad); bad < count {
				count, end = bad, errMade
			}
		}
		for range 4 {
			until := random.Int64N(2 * (count + 1)) // of some passes not all is read
			for i := int64(0); i < until; i++ {
				p.set(random.IntN(3) == 0)
				if random.IntN(4) == 0 {
					if has, err := h.HasNext(background); has != (i < count) || has && err != nil {
						t.Fatalf("seed %d: has next before tuple %d of %d: %v, %v", seed, i, count, has, err)
					}
				}
				tuple, err := h.ReadNext(background)
				if i >= count {
					if err != end {
						t.Fatalf("seed %d: expected %v behind %d tuples, found %v", seed, end, count, err)
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
		t.Error("no consumer has read")
	}
}

// Two consumers sleep while the goroutine reads. It comes to rest behind a chunk, which wakes one of them, and reading
// ahead does not pay: the other is served all the same, of the same chunk or of one more.
func TestNoConsumerIsForgotten(t *testing.T) {
	for _, size := range []int{1, 2} {
		chunks := make(chan int)
		p := newPump("chunks", 1, func(_ context.Context, c *chunk) error {
			n, more := <-chunks
			if !more {
				return io.EOF
			}
			for range n {
				c.Add(pyfeed.NewTuple(1))
			}
			return nil
		})
		p.direct = func(context.Context, *Lot, int) (int, error) { return 0, wait.ErrWouldBlock }
		p.set(false)
		h := NewHolder(&faultReader{ahead{read: p.take}, p})
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
		until(func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.away, p.cost = 0, 0
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

// Many consumers get each tuple once.
func TestManyConsumersTakeTurns(t *testing.T) {
	for seed := range uint64(100) {
		const count = 500
		h, p, _ := newPumped(t, seed, 1+int(seed%3), count, io.EOF)
		if seed%2 == 0 {
			h.Drop()
			h, p, _ = newMaking(t, seed, 1+int(seed%3), count, io.EOF, -1)
		}
		var mu sync.Mutex
		var all []int64
		var group sync.WaitGroup
		for k := range uint64(6) {
			group.Go(func() {
				random := rand.New(rand.NewPCG(seed, k))
				for {
					p.set(random.IntN(8) == 0)
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

// The goroutine makes a chunk while a consumer looks for the next and finds that it would have to wait: nobody wakes him for
// what was made before he sleeps.
func TestAChunkThatIsMadeWhileAConsumerReads(t *testing.T) {
	making, reading := make(chan bool), make(chan bool)
	p := newPump("chunks", 1, func(ctx context.Context, c *chunk) error {
		if ctx == wait.Never {
			reading <- true
			<-reading
			return wait.ErrWouldBlock
		}
		c.Add(pyfeed.NewTuple(1))
		return nil
	})
	p.make = func(*chunk, trace.Track) error {
		making <- true
		<-making
		return nil
	}
	p.goOn()
	<-making
	p.set(false)
	h := NewHolder(&faultReader{ahead{read: p.take}, p})
	served := make(chan error)
	go func() {
		tuple, err := h.ReadNext(background)
		if err == nil {
			tuple.Release()
		}
		served <- err
	}()
	<-reading // without a place to wait in
	reading <- true
	<-reading // and with one; now the chunk is made
	making <- true
	until(func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.chunks) == 1 && !p.chunks[0].busy
	})
	reading <- true
	if err := <-served; err != nil {
		t.Error(err)
	}
	go func() {
		for range making { // of the next, if there is one
			making <- true
		}
	}()
	h.Drop()
	close(making)
}

// A panic of who makes a chunk comes in place of that and of all behind it, in whose hands ever.
func TestAFaultOfWhoMakes(t *testing.T) {
	for _, pays := range []bool{true, false} {
		h, p, _ := newMaking(t, 0, 2, 10, io.EOF, -1)
		made := p.make
		p.make = func(is *chunk, track trace.Track) error {
			if number, _ := is.like(0); number.Pass == 3 {
				panic("mine")
			}
			return made(is, track)
		}
		next := func() (tuple *pyfeed.Tuple, err error) {
			defer func() {
				if v := recover(); v != nil {
					err = pyfeed.Errorf(pyfeed.Fault, "%v", v)
				}
			}()
			p.set(pays)
			return h.ReadNext(background)
		}
		faults, number := 0, int64(0)
		for faults < 3 { // one of them strikes the consumer itself
			tuple, err := next()
			if isFault(err) {
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

// A consumer in whose hands the reading below panics leaves the pump fit to be stopped.
func TestAFaultInAConsumerThatReadsItself(t *testing.T) {
	h, p, _ := newPumped(t, 0, 2, 1, io.EOF)
	p.direct = func(context.Context, *Lot, int) (int, error) { panic("mine") }
	p.cost = 0 // known to be cheap
	func() {
		defer func() {
			if v := recover(); v != "mine" {
				t.Errorf("expected the panic, found %v", v)
			}
		}()
		_, _ = h.ReadNext(background)
	}()
	if !isFault(p.end) { // or others would sleep on
		t.Errorf("expected the pump's end to be the fault, found %v", p.end)
	}
	h.Drop()
}

// What takes long is the goroutine's to read, and so is what nobody knows yet: it can be told to end.
func TestConsumersReadOnlyWhatIsKnownToBeCheap(t *testing.T) {
	const count = 50
	h, p, c := newPumped(t, 0, 2, count, io.EOF)
	for i := range int64(count) {
		p.mu.Lock()
		p.cost = 1 << 40 // however quick they were
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
