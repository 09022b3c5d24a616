package readers

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// MapReader delivers what workers make of its instances, one of each. The workers are somebody else's
// threads, Python's or a C program's: each takes a tuple and gives its result back, again and again.
type MapReader struct {
	ahead
	under    *upstream
	spec     *pyfeed.Spec
	ordered  bool
	capacity uint64
	pump     *pump
	input    Lot                         // of the pump, for the worker that takes it
	pool     atomic.Pointer[memory.Pool] // of results that were copied

	mu        sync.Mutex
	consumers wait.List
	workers   wait.List         // with nothing to do
	crowded   wait.List         // workers that wait for room
	taken     uint64            // ticket of the next tuple to be taken; none is used twice
	served    uint64            // ordered: ticket of the next result; else number of results since the beginning
	out       map[uint64]work   // by ticket: those that wait for a result
	results   map[uint64]result // by ticket
	ready     []uint64          // tickets of results in the order of their coming
	started   bool
	closed    bool
	end       error // of the reader below
	err       error // why reading ended, once it has
	pass      uint64
	passID    int64  // the pass of the tuple taken last, where a reader below goes on to further passes by itself
	first     uint64 // ticket of the first tuple of the pass
	lane      trace.Lane
}

// work is a tuple that a worker has.
type work struct {
	pass   int64
	number uint64 // in the pass, from 0
	from   pyfeed.Origin
	// For the trace: when, and the track that the tuple was read on. 0: there is none.
	begun int64
	by    trace.Track
}

// result is a tuple or why there is none.
type result struct {
	tuple *pyfeed.Tuple
	err   error
}

func checkMapCapacity(capacity uint64) error {
	if capacity == 0 || capacity > 1<<24 {
		return pyfeed.Errorf(pyfeed.Invalid, "capacity: expected 1 to 2^24 tuples, found %d", capacity)
	}
	return nil
}

// NewMapReader takes over a reference to under. Its tuples look as spec says; nil: as those of under. Of those
// taken, capacity at most are not yet delivered.
func NewMapReader(under *ReaderHolder, spec *pyfeed.Spec, capacity uint64, ordered bool) (*MapReader, error) {
	err := checkMapCapacity(capacity)
	var pool *memory.Pool
	if err == nil {
		place, _ := under.target()
		pool, err = pyfeed.HostPool(place, memory.Batch)
	}
	if err != nil {
		under.Drop()
		return nil, err
	}
	if spec == nil {
		spec = under.Spec()
	}
	r := &MapReader{under: above(under), spec: spec, ordered: ordered, capacity: capacity, out: make(map[uint64]work),
		results: make(map[uint64]result)}
	r.pool.Store(pool)
	for _, l := range []*wait.List{&r.consumers, &r.workers, &r.crowded} {
		l.Init(&r.mu)
	}
	r.consumers.Named("waits for map", trace.Wait)
	r.workers.Named("a worker of map has nothing to do", trace.Wait)
	r.crowded.Named("a worker of map waits for room", trace.Full)
	r.pump = newPump("what map reads", 2, r.fill)
	r.read = several(r.deliver)
	return r, nil
}

func (r *MapReader) fill(ctx context.Context, c *chunk) error {
	_, err := r.under.readMany(ctx, &c.Lot, int(min(r.capacity, 64)))
	return err
}

// Take is the next tuple for a worker, and the ticket to give its result for. It waits until the reader is
// read from and there is room; pyfeed.Closed when the reader is gone. The tuple is fit to leave the library.
func (r *MapReader) Take(ctx context.Context) (*pyfeed.Tuple, uint64, error) {
	for {
		t, err := r.take(ctx)
		if err != nil {
			return nil, 0, err
		}
		if err = settle(ctx, t.tuple); err == nil {
			return t.tuple, t.ticket, nil
		}
		t.tuple.Release()
		r.Fail(t.ticket, err) // the consumer's to see, like any error below
	}
}

// taken is a tuple and its ticket.
type taken struct {
	tuple  *pyfeed.Tuple
	ticket uint64
}

func (r *MapReader) take(ctx context.Context) (taken, error) {
	return wait.Do(ctx, func(ctx context.Context) (taken, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return taken{}, pyfeed.Errorf(pyfeed.Closed, "the reader whose tuples are mapped is gone")
		}
		if !r.started || r.end != nil || r.err != nil {
			return taken{}, r.workers.Enter(ctx)
		}
		if r.taken-r.served >= r.capacity {
			return taken{}, r.crowded.Enter(ctx)
		}
		_, err := r.pump.take(ctx, &r.input, 1)
		if err == wait.ErrWouldBlock {
			r.crowded.One().Send() // there is room for another, should this one go away
			return taken{}, err
		}
		if err != nil {
			r.end = err
			r.consumers.All()
			return taken{}, r.workers.Enter(ctx)
		}
		t := r.input.one()
		if t.Pass != r.passID {
			r.passID, r.first = t.Pass, r.taken
		}
		w := work{pass: t.Pass, number: r.taken - r.first, from: t.From, begun: trace.Begin()}
		if w.begun != 0 {
			w.by = r.pump.track()
			r.consumers.ServedBy(w.by)
		}
		r.out[r.taken] = w
		r.taken++
		return taken{t, r.taken - 1}, nil
	})
}

// Give is the result for a ticket, which the reader owns from now on, unless it is refused: the ticket is
// still open then. A ticket of a pass that was reset is forgotten.
func (r *MapReader) Give(ticket uint64, t *pyfeed.Tuple) error {
	if err := r.spec.Check(t); err != nil {
		return err
	}
	r.settle(ticket, result{tuple: t})
	return nil
}

// Fail says that there will be no result for a ticket: the consumer gets the error in its place.
func (r *MapReader) Fail(ticket uint64, err error) { r.settle(ticket, result{err: err}) }

func (r *MapReader) settle(ticket uint64, is result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, waits := r.out[ticket]
	if !waits {
		if is.tuple != nil {
			is.tuple.Release()
		}
		return
	}
	delete(r.out, ticket)
	if was.begun != 0 {
		trace.MakeSpan(r.lane.Shared("map"), "map", was.begun, was.by)
	}
	if is.tuple != nil {
		is.tuple.Pass, is.tuple.From = was.pass, was.from
	} else {
		is.err = r.locate(is.err, was)
	}
	r.results[ticket] = is
	if !r.ordered {
		r.ready = append(r.ready, ticket)
	}
	if !r.ordered || ticket == r.served {
		r.consumers.One().Send()
	}
}

// locate says which tuple of the pass, by its number from 0, the error is about: the file and the record that it is, as
// far as they are known.
func (r *MapReader) locate(err error, of work) error {
	switch e := err.(type) {
	case *pyfeed.ProducerError:
		failed := *e
		pass := r.pass
		if of.pass > 0 { // a reader below goes on to further passes by itself
			pass = uint64(of.pass)
		}
		failed.Who = cmp.Or(failed.Who, "the function")
		failed.At, failed.Place = of.from.Location(), fmt.Sprintf("map: tuple %d of pass %d", of.number, pass)
		if from := of.from.String(); from != "" {
			failed.Place += " (" + from + ")"
		}
		return &failed
	case *pyfeed.Error:
		if e.At == nil {
			located := *e
			located.At = of.from.Location()
			return &located
		}
	}
	return err
}

// deliver fills the front of out.
func (r *MapReader) deliver(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		r.started = true
		r.workers.All()
	}
	n := 0
	for n < len(out) && r.err == nil {
		ticket := r.served
		if !r.ordered {
			if len(r.ready) == 0 {
				break
			}
			ticket = r.ready[0]
		}
		is, there := r.results[ticket]
		if !there {
			break
		}
		if is.err != nil && n > 0 {
			break // after what came before it
		}
		delete(r.results, ticket)
		if !r.ordered {
			r.ready = r.ready[1:]
		}
		r.served++
		if r.err = is.err; is.err == nil {
			out[n] = is.tuple
			n++
		}
		r.crowded.One().Send()
	}
	switch {
	case n > 0:
		if len(r.results) > 0 || r.end != nil {
			r.consumers.One().Send()
		}
		return n, nil
	case r.err != nil:
		r.consumers.All()
		return 0, r.err
	case r.end != nil && r.served == r.taken:
		r.consumers.All()
		return 0, r.end
	}
	return 0, r.consumers.Enter(ctx)
}

// ReInit forgets the tickets that are out and starts the reader below over.
func (r *MapReader) ReInit(pass uint64) error {
	r.drop()
	r.mu.Lock()
	r.started = false // no worker starts the pump again
	r.mu.Unlock()
	r.pump.stop()
	if err := r.under.Begin(pass); err != nil {
		return err
	}
	r.forget()
	r.mu.Lock()
	r.pass, r.passID, r.first = pass, 0, r.taken
	r.mu.Unlock()
	return nil
}

func (r *MapReader) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ticket, is := range r.results {
		if is.tuple != nil {
			is.tuple.Release()
		}
		delete(r.results, ticket)
	}
	clear(r.out)
	r.ready = nil
	r.served = r.taken
	r.started, r.end, r.err = false, nil, nil
	r.consumers.All()
	r.workers.All()
	r.crowded.All()
}

// Spec is that of the results.
func (r *MapReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it.
func (r *MapReader) Describe(s *Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "map"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"ordered": r.ordered, "capacity": r.capacity,
		"workers_waited_seconds": (r.workers.Waited() + r.crowded.Waited() + r.pump.waited()).Seconds()}
	s.Below = []Stats{r.under.Stats()}
}

// Close has the workers end.
func (r *MapReader) Close() {
	r.drop()
	r.mu.Lock()
	r.closed = true
	r.workers.All()
	r.crowded.All()
	r.mu.Unlock()
	r.pump.stop()
	r.forget()
	r.pool.Load().Close()
	r.under.Drop()
}

// Workers is the MapReader in a holder, for its workers: they do not keep it. nil if it is none.
func (h *ReaderHolder) Workers() *MapWorkers {
	r, is := h.reader.(*MapReader)
	if !is {
		return nil
	}
	return &MapWorkers{r}
}

// MapWorkers is what the workers of a MapReader know of it.
type MapWorkers struct{ *MapReader }

// Drop does nothing: the reader is not theirs.
func (MapWorkers) Drop() {}

// Room checks what a result looks like and makes room for it.
func (r *MapReader) Room(t *pyfeed.Tuple) error {
	if err := r.spec.Check(t); err != nil {
		return err
	}
	return t.Allocate(r.pool.Load())
}
