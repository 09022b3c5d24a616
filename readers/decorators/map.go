package decorators

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/anchor"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// mapReader delivers the results of workers, one for each instance. The workers are threads outside the library, of
// Python or of a C program. Each repeatedly takes a tuple and gives its result back.
type mapReader struct {
	readers.PeekBuffer
	source     *readers.Upstream
	spec       *pyfeed.Spec
	ordered    bool
	seed       *uint64 // of the random numbers of the workers' functions; nil: none
	capacity   uint64
	prefetcher *prefetcher
	input      record.Chunk                // reused by take for the tuple it hands out
	pool       atomic.Pointer[memory.Pool] // of results that were copied

	mu          sync.Mutex
	consumers   wait.List
	idleWorkers wait.List         // workers that have no tuple to take
	fullWorkers wait.List         // workers that wait for room
	taken       uint64            // ticket of the next tuple to be taken; tickets are never reused
	delivered   uint64            // ordered: ticket of the next result; unordered: number of results delivered
	out         map[uint64]work   // by ticket: tuples that have no result yet
	results     map[uint64]result // by ticket
	ready       []uint64          // tickets of results in the order of their arrival
	started     bool
	closed      bool
	end         error // end or error of the reader below
	err         error // why reading ended, once it has
	pass        uint64
	firstPass   uint64 // number of the pass with index 0, below a multi_pass reader if there is one
	start       uint64 // ticket of the first tuple taken since ReInit
	startInput  int64  // tuples of the pass before that one: not 0 after Restore
	takenPass   passPart
	given       mapProgress // up to the next result
	progress    anchor.Log[mapProgress]
	skips       skipLedger
	traceLane   trace.Lane
	onReset     func(closed bool) // see MapWorkers.OnReset; nil: not set
}

// passPart is a pass of a multi_pass reader below: its index, and how many tuples of this reader's pass came before it.
// Without a multi_pass reader, index is 0.
type passPart struct{ index, before int64 }

// mapProgress is how far a map reader is in a pass.
type mapProgress struct {
	input, output int64 // tuples, of which some were skipped
	part          passPart
}

// work describes a tuple that a worker has.
type work struct {
	part  passPart
	input int64 // number in this reader's pass, from 0
	from  pyfeed.Origin
	// For the trace: when the worker took the tuple (0: not recorded), and the track that it was read on.
	begun int64
	by    trace.Track
}

// result is the result of a tuple, or its error, or why the tuple is skipped.
type result struct {
	tuple   *pyfeed.Tuple
	err     error
	skipped *skip
	part    passPart
}

// CheckMapCapacity returns an error if capacity is out of range.
func CheckMapCapacity(capacity uint64) error {
	if capacity == 0 || capacity > 1<<24 {
		return pyfeed.Errorf(pyfeed.Invalid, "capacity: expected 1 to 2^24 tuples, found %d", capacity)
	}
	return nil
}

// NewMapReader takes over a reference to source. Its results match spec, or that of source if spec is nil. At most
// capacity tuples are taken and not yet delivered.
func NewMapReader(source *readers.ReaderHolder, spec *pyfeed.Spec, capacity uint64, ordered bool, seed *uint64) (readers.Reader, error) {
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
	r := &mapReader{source: readers.NewUpstream(source), spec: spec, ordered: ordered, seed: seed, capacity: capacity, out: make(map[uint64]work),
		results: make(map[uint64]result)}
	r.pool.Store(pool)
	r.progress.Dense = 64
	if m := multiPassBelow(source); m != nil {
		r.firstPass = m.first
	}
	r.begin(mapProgress{})
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
	if _, err := r.source.ReadInto(ctx, &p.Chunk, int(min(r.capacity, 64))); err != nil {
		return err
	}
	return p.Verify(record.Checkpoint{}, ctx.Done())
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
			r.fullWorkers.WakeOne().Send() // wakes another worker in case this one gives up
			return taken{}, err
		}
		if err != nil {
			r.end = err
			r.consumers.WakeAll()
			return taken{}, r.idleWorkers.Enter(ctx)
		}
		t, err := r.input.TakeOne()
		if err != nil { // cannot happen: fill has verified it
			return taken{}, err
		}
		input := r.startInput + int64(r.taken-r.start)
		if t.Pass != r.takenPass.index {
			r.takenPass = passPart{t.Pass, input}
		}
		w := work{part: r.takenPass, input: input, from: t.From, begun: trace.Begin()}
		if w.begun != 0 {
			w.by = r.prefetcher.track()
			r.consumers.ServedBy(w.by)
		}
		r.out[r.taken] = w
		r.taken++
		return taken{t, r.taken - 1}, nil
	})
}

// resolve stores the result or the error for a ticket.
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
		trace.MakeSpan(r.traceLane.Shared("map"), "map", was.begun, was.by)
	}
	is.part = was.part
	switch {
	case is.tuple != nil:
		is.tuple.Pass, is.tuple.From = was.part.index, was.from
	case is.err != nil:
		is.err = r.locate(is.err, was)
	}
	r.results[ticket] = is
	if !r.ordered {
		r.ready = append(r.ready, ticket)
	}
	if !r.ordered || ticket == r.delivered {
		r.consumers.WakeOne().Send()
	}
}

// locate adds to an error which tuple it is about: its number in the pass, from 0, and its file and record if they are
// known.
func (r *mapReader) locate(err error, of work) error {
	switch e := err.(type) {
	case *pyfeed.ProducerError:
		failed := *e
		pass := r.pass
		if of.part.index > 0 { // a multi_pass reader is below
			pass = uint64(of.part.index)
		}
		failed.Who = cmp.Or(failed.Who, "the function")
		failed.At, failed.Place = of.from.Location(), fmt.Sprintf("map: tuple %d of pass %d", r.source.VirtualShards().OfJob(of.input-of.part.before), pass)
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

// position returns the number of a tuple in its pass, from 0. Below a multi_pass reader, passes are numbered over all
// its resets.
func (r *mapReader) position(of work) readers.Position {
	return readers.Position{Pass: r.firstPass + uint64(of.part.index), N: of.input - of.part.before}
}

// positionOf returns the position of the tuple of a ticket; false: the ticket is completed, or is of another pass.
func (r *mapReader) positionOf(ticket uint64) (readers.Position, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, waits := r.out[ticket]
	return r.position(of), waits
}

// skipTuple drops the tuple of a ticket because of an error of the function.
func (r *mapReader) skipTuple(ticket uint64, err error) {
	r.mu.Lock()
	of := r.out[ticket]
	skipped := result{skipped: &skip{r.position(of), r.locate(err, of)}}
	r.mu.Unlock()
	r.resolve(ticket, skipped)
}

// deliver fills the front of out with results.
func (r *mapReader) deliver(ctx context.Context, out []*pyfeed.Tuple) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started {
		r.started = true
		r.idleWorkers.WakeAll()
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
			break // the results before the error are delivered first
		}
		delete(r.results, ticket)
		if !r.ordered {
			r.ready = r.ready[1:]
		}
		r.delivered++
		if r.err = is.err; is.err == nil {
			if is.tuple != nil {
				out[n] = is.tuple
				n++
			}
			r.advance(is)
		}
		r.fullWorkers.WakeOne().Send()
	}
	switch {
	case n > 0:
		if len(r.results) > 0 || r.end != nil {
			r.consumers.WakeOne().Send()
		}
		return n, nil
	case r.err != nil:
		r.consumers.WakeAll()
		return 0, r.err
	case r.end != nil && r.delivered == r.taken:
		r.consumers.WakeAll()
		return 0, r.end
	}
	return 0, r.consumers.Enter(ctx)
}

// advance notes that a result was delivered or skipped.
func (r *mapReader) advance(is result) {
	before := r.given
	r.given.input++
	r.given.part = is.part
	if is.skipped == nil {
		r.given.output++
	} else {
		r.skips.add(is.skipped)
	}
	if is.skipped != nil || is.part != before.part {
		r.progress.Add(r.pass, r.given.output, r.given)
	}
}

// ReInit invalidates all tickets and resets the reader below.
func (r *mapReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.mu.Lock()
	r.started = false // so that no worker starts the prefetcher again
	r.mu.Unlock()
	r.prefetcher.stop()
	if err := r.source.Begin(pass); err != nil {
		return err
	}
	r.discardResults()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.onReset != nil {
		r.onReset(false)
	}
	r.pass, r.firstPass = pass, pass
	if m := multiPassBelow(r.source.ReaderHolder); m != nil {
		r.firstPass = m.first
	}
	r.begin(mapProgress{})
	return nil
}

// begin sets where the next tuple is that a worker takes.
func (r *mapReader) begin(at mapProgress) {
	r.start, r.startInput, r.takenPass, r.given = r.taken, at.input, at.part, at
	r.progress.Add(r.pass, at.output, at)
}

// multiPassBelow returns the multi_pass reader that numbers the passes of a reader's tuples; nil: there is none.
func multiPassBelow(h *readers.ReaderHolder) *multiPassReader {
	if m, is := readers.Capability[*multiPassReader](h); is {
		return m
	}
	if d, is := readers.Capability[readers.Decorator](h); is {
		return multiPassBelow(d.Upstreams()[0].ReaderHolder)
	}
	return nil
}

// Identity implements readers.Resumable.
func (r *mapReader) Identity() (string, []state.Option) {
	seed := state.Option{Name: "seed", Optional: true}
	if r.seed != nil {
		seed.Value = strconv.FormatUint(*r.seed, 10) // text: zero is another seed than none
	}
	return "map", []state.Option{{Name: "ordered", Value: r.ordered}, seed}
}

// mapState is the part of a mapReader in a state. Its numbers of tuples are those of all processes together.
type mapState struct {
	Before int64 `json:"before"` // tuples before the pass with Index
	Index  int64 `json:"index"`  // of the pass of a multi_pass reader below
	Input  int64 `json:"input"`  // tuples taken
	Output int64 `json:"output"` // tuples delivered of them
}

// Save implements readers.Resumable. A result depends on its tuple only, so results that are not delivered are computed
// again.
func (r *mapReader) Save(p readers.Position, s *readers.Saver) error {
	if !r.ordered {
		return pyfeed.Errorf(pyfeed.State, "map: expected ordered=True for a position that can be saved, found ordered=False: "+
			"the order of the results is not known before they are delivered")
	}
	at := r.find(p)
	if at != (mapProgress{p.N, p.N, passPart{}}) {
		share := r.source.VirtualShards().Share()
		b := strconv.AppendInt([]byte(`{"before":`), at.part.before*share, 10)
		b = strconv.AppendInt(append(b, `,"index":`...), at.part.index, 10)
		b = strconv.AppendInt(append(b, `,"input":`...), at.input*share, 10)
		b = strconv.AppendInt(append(b, `,"output":`...), at.output*share, 10)
		s.SetAt(append(b, '}'))
	}
	return s.SaveBelow(r.source, readers.Position{Pass: p.Pass, N: at.input})
}

// find returns how far the reader was at a position, or at the last place before it that is known.
func (r *mapReader) find(p readers.Position) mapProgress {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, _, next := r.progress.Find(p.Pass, p.N)
	if next { // all results between were delivered, and are of the same pass
		at.Value.input += p.N - at.Value.output
		at.Value.output = p.N
	}
	return at.Value
}

// Restore implements readers.Resumable.
func (r *mapReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	shards := r.source.VirtualShards()
	is := mapState{Input: p.N * shards.Share(), Output: p.N * shards.Share()}
	if _, err := s.At(&is); err != nil {
		return 0, err
	}
	for _, n := range []*int64{&is.Before, &is.Input, &is.Output} {
		var err error
		if *n, err = shards.OfProcess(*n); err != nil {
			return 0, err
		}
	}
	if is.Output < 0 || is.Output > p.N || is.Input < is.Output || is.Before < 0 || is.Before > is.Input || is.Index < 0 {
		return 0, pyfeed.Errorf(pyfeed.Invalid, "state: map: expected at most %d results of at least as many tuples, found %d of %d", p.N, is.Output, is.Input)
	}
	r.mu.Lock()
	r.begin(mapProgress{is.Input, is.Output, passPart{is.Index, is.Before}})
	r.mu.Unlock()
	return p.N - is.Output, s.RestoreBelow(r.source, readers.Position{Pass: p.Pass, N: is.Input})
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
	r.consumers.WakeAll()
	r.idleWorkers.WakeAll()
	r.fullWorkers.WakeAll()
}

// Spec returns that of the results.
func (r *mapReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
func (r *mapReader) Describe(s *readers.Stats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Reader = "map"
	s.Waited = r.consumers.Waited().Seconds()
	s.Extra = map[string]any{"ordered": r.ordered, "capacity": r.capacity,
		"workers_waited_seconds": (r.idleWorkers.Waited() + r.fullWorkers.Waited() + r.prefetcher.waited()).Seconds()}
	r.skips.describe(s)
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close ends the workers and releases the reader below.
func (r *mapReader) Close() {
	r.DropPeeked()
	r.mu.Lock()
	r.closed = true
	if r.onReset != nil {
		r.onReset(true)
	}
	r.idleWorkers.WakeAll()
	r.fullWorkers.WakeAll()
	r.mu.Unlock()
	r.prefetcher.stop()
	r.discardResults()
	r.pool.Load().Close()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *mapReader) Length() int64 { return r.source.Length() }

// Upstreams implements readers.Decorator.
func (r *mapReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *mapReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget makes later results be copied to memory that the device copies from.
func (r *mapReader) SetTarget(place pyfeed.Place) error {
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		return err
	}
	r.pool.Swap(pool).Close()
	return nil
}
