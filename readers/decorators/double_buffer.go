package decorators

import (
	"context"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// doubleBufferReader has the next tuples ready where they are wanted while one is consumed: a thread of its own reads
// them, and copies those that are meant for devices. With several places each gets a tuple in turn.
type doubleBufferReader struct {
	readers.Lookahead
	source     *readers.Upstream
	places     []pyfeed.Place
	depth      int
	prefetcher *prefetcher

	pinned  *memory.Pool    // of a place in pinned memory; else nil
	stagers []pyfeed.Stager // to devices, one for each place; or none
	filled  int             // tuples of this pass; the thread's own
	ready   record.Chunk    // space for the next
	staged  *pyfeed.Tuple   // to a device, its copy not yet source way
	failure error           // of a copy: for the rest of the pass
}

// CheckDepth refuses numbers of tuples that are not possible.
func CheckDepth(depth uint64) error {
	if depth == 0 || depth > 1<<16 {
		return pyfeed.Errorf(pyfeed.Invalid, "depth: expected 1 to 65536 tuples, found %d", depth)
	}
	return nil
}

// CheckPlaces refuses places that are none, and several that are not all devices.
func CheckPlaces(places []pyfeed.Place) error {
	if len(places) == 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "place: expected at least 1, found 0")
	}
	for _, p := range places {
		switch {
		case p.Kind < pyfeed.CPU || p.Kind > pyfeed.CUDAPinned || p.Device < 0 || p.Kind != pyfeed.CUDA && p.Device != 0:
			return pyfeed.Errorf(pyfeed.Invalid, "place: expected CPUPlace(), CUDAPinnedPlace() or CUDAPlace(i), found kind %d, device %d", p.Kind, p.Device)
		case len(places) > 1 && p.Kind != pyfeed.CUDA:
			return pyfeed.Errorf(pyfeed.Invalid, "place: expected devices where there are several, found %v", p)
		}
	}
	return nil
}

// NewDoubleBufferReader takes over a reference to source. depth is how many tuples are ready at most at each place,
// beside the one being read.
func NewDoubleBufferReader(source *readers.ReaderHolder, places []pyfeed.Place, depth uint64) (readers.Reader, error) {
	r := &doubleBufferReader{source: readers.NewUpstream(source), places: places, depth: int(depth)}
	err := CheckDepth(depth)
	if err == nil {
		err = CheckPlaces(places)
	}
	if err == nil {
		err = r.connect()
	}
	if err != nil {
		r.disconnect()
		source.Drop()
		return nil, err
	}
	r.prefetcher = newPrefetcher("double_buffer", r.depth*len(places), r.fill)
	r.Read = r.prefetcher.take
	switch {
	case len(r.stagers) > 0:
		r.Read = readers.FromFunc(r.take)
	case r.pinned != nil:
	case copiers > 1 && isDeferred(source):
		r.prefetcher.fill = func(ctx context.Context, p *prefetched) (err error) {
			p.pending, err = r.source.ReadPending(ctx)
			return err
		}
		r.prefetcher.finish = finishPending
	default:
		r.prefetcher.direct = r.source.ReadInto
	}
	return r, nil
}

// connect makes the ways to the places, and has the reader below write where devices copy from.
func (r *doubleBufferReader) connect() (err error) {
	place := r.places[0]
	if place == pyfeed.CPUPlace() {
		return nil
	}
	backend, err := pyfeed.BackendOf(place)
	if err != nil {
		return err
	}
	if err := r.source.SetTarget(place); err != nil {
		return err
	}
	if place.Kind == pyfeed.CUDAPinned {
		r.pinned, err = backend.Pool(place, memory.Batch)
		return err
	}
	for _, p := range r.places {
		if err := p.Check(); err != nil {
			return err
		}
		s, err := backend.NewStager(p, r.depth)
		if err != nil {
			return err
		}
		r.stagers = append(r.stagers, s)
	}
	return nil
}

func (r *doubleBufferReader) disconnect() {
	for _, s := range r.stagers {
		s.Close()
	}
	if r.pinned != nil {
		r.pinned.Close()
	}
}

func isDeferred(h *readers.ReaderHolder) bool {
	_, is := readers.Capability[readers.Deferred](h)
	return is
}

// finishPending is for a prefetcher whose chunks are a batch each, copied by consumers and the thread side by side.
func finishPending(p *prefetched, track trace.Track) error {
	pending := p.pending
	p.pending = nil
	batch, err := pending.Finish(track)
	if err != nil {
		return err
	}
	p.Add(batch)
	return nil
}

func (r *doubleBufferReader) fill(ctx context.Context, p *prefetched) error {
	c := &p.Chunk
	if _, err := r.source.ReadInto(ctx, c, 1); err != nil || len(r.stagers) == 0 && r.pinned == nil {
		return err
	}
	t := c.TakeOne()
	if err := r.move(ctx, &t); err != nil {
		t.Release()
		return err
	}
	c.Add(t)
	return nil
}

// move brings a tuple on its way. After an error it is as it was.
func (r *doubleBufferReader) move(ctx context.Context, t **pyfeed.Tuple) error {
	switch {
	case len(r.stagers) > 0:
		out, err := r.stagers[r.filled%len(r.stagers)].Put(ctx, *t)
		if err != nil {
			return err
		}
		*t = out
		r.filled++
	case r.pinned != nil:
		if _, is := (*t).Pinned(); !is {
			if err := (*t).Move(r.pinned); err != nil {
				return err
			}
		}
		for i := range (*t).Slots {
			(*t).Slots[i].Place = r.places[0]
		}
	}
	return nil
}

// take is the next tuple, once streams can wait for its copy.
func (r *doubleBufferReader) take(ctx context.Context) (*pyfeed.Tuple, error) {
	if r.failure != nil {
		return nil, r.failure
	}
	if r.staged == nil {
		for _, s := range r.stagers {
			if err := s.Err(); err != nil { // rather than wait for a tuple
				return nil, err
			}
		}
		if _, err := r.prefetcher.take(ctx, &r.ready, 1); err != nil {
			return nil, err
		}
		r.staged = r.ready.TakeOne()
	}
	err := r.stagers[0].Next(ctx, r.staged)
	if err == wait.ErrWouldBlock {
		r.prefetcher.wakeConsumers(1) // another waits for it too, should this caller go away
		return nil, err
	}
	t := r.staged
	r.staged = nil
	if err != nil {
		t.Release()
		r.failure = err
		r.prefetcher.wakeConsumers(math.MaxInt)
		return nil, err
	}
	return t, nil
}

func (r *doubleBufferReader) clear() {
	r.DropAhead()
	r.prefetcher.stop()
	if r.staged != nil {
		r.staged.Release()
		r.staged = nil
	}
}

// ReInit drops what is ready and starts the reader below over.
func (r *doubleBufferReader) ReInit(pass uint64) error {
	r.clear()
	r.filled, r.failure = 0, nil
	return r.source.Begin(pass)
}

// OutputPlace is readers.Placed's.
func (r *doubleBufferReader) OutputPlace() (pyfeed.Place, bool) {
	if r.places[0] == pyfeed.CPUPlace() {
		return r.source.OutputPlace()
	}
	return r.places[0], true
}

// SetTarget is readers.Targetable's.
func (r *doubleBufferReader) SetTarget(place pyfeed.Place) error {
	if r.places[0] == pyfeed.CPUPlace() {
		return r.source.SetTarget(place)
	}
	return nil
}

// Spec is that of the reader below.
func (r *doubleBufferReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe names it.
func (r *doubleBufferReader) Describe(s *readers.Stats) {
	s.Reader = "double_buffer"
	s.Waited = r.prefetcher.waited().Seconds()
	s.Extra = map[string]any{"place": r.places[0].String(), "depth": r.depth}
	if len(r.places) > 1 {
		var all []string
		for _, p := range r.places {
			all = append(all, p.String())
		}
		s.Extra["place"] = all
	}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close lets go of the reader below.
func (r *doubleBufferReader) Close() {
	r.clear()
	r.disconnect()
	r.source.Drop()
}

// Upstreams is readers.Decorator's.
func (r *doubleBufferReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }
