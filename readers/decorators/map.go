package decorators

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
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// mapReader delivers what workers make of its instances, one of each. The workers are somebody else's
// threads, Python's or a C program's: each takes a tuple and gives its result back, again and again.
type mapReader struct {
	readers.Lookahead
	source     *readers.Upstream
	spec       *pyfeed.Spec
	ordered    bool
	capacity   uint64
	prefetcher *prefetcher
	input      record.Chunk                // of the prefetcher, for the worker that takes it
	pool       atomic.Pointer[memory.Pool] // of results that were copied

	mu          sync.Mutex
	consumers   wait.List
	idleWorkers wait.List         // with nothing to do
	fullWorkers wait.List         // workers that wait for room
	taken       uint64            // ticket of the next tuple to be taken; none is used twice
	delivered   uint64            // ordered: ticket of the next result; else number of results since the beginning
	out         map[uint64]work   // by ticket: those that wait for a result
	results     map[uint64]result // by ticket
	ready       []uint64          // tickets of results in the order of their coming
	started     bool
	closed      bool
	end         error // of the reader below
	err         error // why reading ended, once it has
	pass        uint64
	passID      int64  // the pass of the tuple taken last, where a reader below goes on to further passes by itself
	first       uint64 // ticket of the first tuple of the pass
	lane        trace.Lane
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

// CheckMapCapacity refuses numbers of tuples that are not possible.
func CheckMapCapacity(capacity uint64) error {
	if capacity == 0 || capacity > 1<<24 {
		return pyfeed.Errorf(pyfeed.Invalid, "capacity: expected 1 to 2^24 tuples, found %d", capacity)
	}
	return nil
}

// NewMapReader takes over a reference to source. Its tuples look as spec says; nil: as those of source. Of those
// taken, capacity at most are not yet delivered.
func NewMapReader(source *readers.ReaderHolder, spec *pyfeed.Spec, capacity uint64, ordered bool) (readers.Reader, error) {
	err := CheckMapCapacity(capacity)
	var pool *memory.Pool
	if err == nil {
		place, _ := source.OutputPlace()
		pool, err = pyfeed.HostPool(place, memory.Batch)
	}
	if err != nil {
		source.Drop()
		return nil, err
	}
	if spec == nil {
		spec = source.Spec()
	}
	r := &mapReader{source: readers.NewUpstream(source), spec: spec, ordered: ordered, capacity: capacity, out: make(map[uint64]work),
		results: make(map[uint64]result)}
	r.pool.Store(pool)
	for _, l := range []*wait.List{&r.consumers, &r.idleWorkers, &r.fullWorkers} {
		l.Init(&r.mu)
	}
	r.consumers.Named("waits for map", trace.Wait)
	r.idleWorkers.Named("a worker of map has nothing to do", trace.Wait)
	r.fullWorkers.Named("a worker of map waits for room", trace.Full)
	r.prefetcher = newPrefetcher("what map reads", 2, r.fill)
	r.Read = readers.FromBatchFunc(r.deliver)
	return r, nil
}

func (r *mapReader) fill(ctx context.Context, p *prefetched) error {
	_, err := r.source.ReadInto(ctx, &p.Chunk, int(min(r.capacity, 64)))
	return err
}

// taken is a tuple and its ticket.
type taken struct {
	tuple  *pyfeed.Tuple
	ticket uint64
}

func (r *mapReader) take(ctx context.Context) (taken, error) {
	return wait.Do(ctx, func(ctx context.Context) (taken, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.closed {
			return taken{}, pyfeed.Errorf(pyfeed.Closed, "the reader whose tuples are mapped is gone")
		}
		if !r.started || r.end != nil || r.err != nil {
			return taken{}, r.idleWorkers.Enter(ctx)
		}
		if r.taken-r.delivered >= r.capacity {
			return taken{}, r.fullWorkers.Enter(ctx)
		}
		_, err := r.prefetcher.take(ctx, &r.input, 1)
		if err == wait.ErrWouldBlock {
			r.fullWorkers.One().Send() // there is room for another, should this one go away
			return taken{}, err
		}
		if err != nil {
			r.end = err
			r.consumers.All()
			return taken{}, r.idleWorkers.Enter(ctx)
		}
		t := r.input.TakeOne()
		if t.Pass != r.passID {
			r.passID, r.first = t.Pass, r.taken
		}
		w := work{pass: t.Pass, number: r.taken - r.first, from: t.From, begun: trace.Begin()}
		if w.begun != 0 {
			w.by = r.prefetcher.track()
			r.consumers.ServedBy(w.by)
		}
		r.out[r.taken] = w
		r.taken++
		return taken{t, r.taken - 1}, nil
	})
}

// resolve notes the result for a ticket, or that there is none.
func (r *mapReader) resolve(ticket uint64, is result) {
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
	if !r.ordered || ticket == r.delivered {
		r.consumers.One().Send()
	}
}

// locate says which tuple of the pass, by its number from 0, the error is about: the file and the record that it is, as
// far as they are known.
func (r *mapReader) locate(err error, of work) error {
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
func (r *mapReader) deliver(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		r.started = true
		r.idleWorkers.All()
	}
	n := 0
	for n < len(out) && r.err == nil {
		ticket := r.delivered
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
		r.delivered++
		if r.err = is.err; is.err == nil {
			out[n] = is.tuple
			n++
		}
		r.fullWorkers.One().Send()
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
	case r.end != nil && r.delivered == r.taken:
		r.consumers.All()
		return 0, r.end
	}
	return 0, r.consumers.Enter(ctx)
}

// ReInit forgets the tickets that are out and starts the reader below over.
func (r *mapReader) ReInit(pass uint64) error {
	r.DropAhead()
	r.mu.Lock()
	r.started = false // no worker starts the prefetcher again
	r.mu.Unlock()
	r.prefetcher.stop()
	if err := r.source.Begin(pass); err != nil {
		return err
	}
	r.discardResults()
	r.mu.Lock()
	r.pass, r.passID, r.first = pass, 0, r.taken
	r.mu.Unlock()
	return nil
}

func (r *mapReader) discardResults() {
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
	r.delivered = r.taken
	r.started, r.end, r.err = false, nil, nil
	r.consumers.All()
	r.idleWorkers.All()
	r.fullWorkers.All()
}

// Spec is that of the results.
func (r *mapReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it.
func (r *mapReader) Describe(s *readers.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "map"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"ordered": r.ordered, "capacity": r.capacity,
		"workers_waited_seconds": (r.idleWorkers.Waited() + r.fullWorkers.Waited() + r.prefetcher.waited()).Seconds()}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close has the workers end.
func (r *mapReader) Close() {
	r.DropAhead()
	r.mu.Lock()
	r.closed = true
	r.idleWorkers.All()
	r.fullWorkers.All()
	r.mu.Unlock()
	r.prefetcher.stop()
	r.discardResults()
	r.pool.Load().Close()
	r.source.Drop()
}

// Upstreams is readers.Decorator's.
func (r *mapReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace is readers.Placed's.
func (r *mapReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget has results copied to where the device copies them from.
func (r *mapReader) SetTarget(place pyfeed.Place) error {
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		return err
	}
	r.pool.Swap(pool).Close()
	return nil
}
