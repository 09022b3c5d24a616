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
	"github.com/pyfeed/pyfeed/readers/state"
)

// doubleBufferReader keeps the next tuples ready at their place while one is consumed. A goroutine reads them ahead,
// and copies them if they are for devices. With several places, each gets a tuple in turn.
type doubleBufferReader struct {
	readers.PeekBuffer
	source     *readers.Upstream
	places     []pyfeed.Place
	depth      int
	prefetcher *prefetcher

	pinned  *memory.Pool    // of a pinned place; else nil
	stagers []pyfeed.Stager // copy to devices, one for each place; or none
	filled  int             // tuples of this pass that were staged; only the goroutine uses it
	ready   record.Chunk    // reused for the next tuple
	staged  *pyfeed.Tuple   // its copy to a device is not submitted yet
	failure error           // of a copy; it stays for the rest of the pass
}

// CheckDepth returns an error if depth is out of range.
func CheckDepth(depth uint64) error {
	if depth == 0 || depth > 1<<16 {
		return pyfeed.Errorf(pyfeed.Invalid, "depth: expected 1 to 65536 tuples, found %d", depth)
	}
	return nil
}

// CheckPlaces returns an error for a place that does not exist, and for several places that are not all devices.
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

// NewDoubleBufferReader takes over a reference to source. depth is how many tuples are ready at most at each place, in
// addition to the one being read.
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

// connect prepares the copies to the places, and makes the reader below write to memory that devices copy from.
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

// finishPending finishes a prefetched batch: consumers and the goroutine copy one batch each, in parallel.
func finishPending(p *prefetched, track trace.Track) error {
	pending := p.pending
	p.pending = nil
	batch, err := pending.Finish(track)
	if batch != nil {
		p.Add(batch)
	}
	return err
}

func (r *doubleBufferReader) fill(ctx context.Context, p *prefetched) error {
	c := &p.Chunk
	if _, err := r.source.ReadInto(ctx, c, 1); err != nil {
		return err
	}
	if len(r.stagers) == 0 && r.pinned == nil {
		return c.Verify(record.Checkpoint{}, ctx.Done())
	}
	t, err := c.TakeOne()
	if err != nil {
		c.Release()
		return err
	}
	if err = r.move(ctx, &t); err != nil {
		t.Release()
		return err
	}
	c.Add(t)
	return nil
}

// move copies or stages a tuple for its place. After an error the tuple is unchanged.
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

// take returns the next tuple once streams can wait for its copy.
func (r *doubleBufferReader) take(ctx context.Context) (*pyfeed.Tuple, error) {
	if r.failure != nil {
		return nil, r.failure
	}
	if r.staged == nil {
		for _, s := range r.stagers {
			if err := s.Err(); err != nil { // return the error rather than wait for a tuple
				return nil, err
			}
		}
		if _, err := r.prefetcher.take(ctx, &r.ready, 1); err != nil {
			return nil, err
		}
		t, err := r.ready.TakeOne()
		if err != nil { // cannot happen: fill has verified it
			return nil, err
		}
		r.staged = t
	}
	err := r.stagers[0].Next(ctx, r.staged)
	if err == wait.ErrWouldBlock {
		r.prefetcher.wakeConsumers(1) // another consumer waits for it, in case this caller gives up
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
	r.DropPeeked()
	r.prefetcher.stop()
	if r.staged != nil {
		r.staged.Release()
		r.staged = nil
	}
}

// ReInit drops the tuples that are ready and resets the reader below.
func (r *doubleBufferReader) ReInit(pass uint64) error {
	r.clear()
	r.filled, r.failure = 0, nil
	return r.source.Begin(pass)
}

// Identity implements readers.Resumable.
func (r *doubleBufferReader) Identity() (string, []state.Option) { return "double_buffer", nil }

// Save implements readers.Resumable.
func (r *doubleBufferReader) Save(p readers.Position, s *readers.Saver) error {
	return s.SaveBelow(r.source, p)
}

// Restore implements readers.Resumable. The next tuple goes to the device whose turn it was.
func (r *doubleBufferReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	r.filled = int(p.N % int64(len(r.places)))
	return 0, s.RestoreBelow(r.source, p)
}

// OutputPlace implements readers.Placed.
func (r *doubleBufferReader) OutputPlace() (pyfeed.Place, bool) {
	if r.places[0] == pyfeed.CPUPlace() {
		return r.source.OutputPlace()
	}
	return r.places[0], true
}

// SetTarget implements readers.Targetable.
func (r *doubleBufferReader) SetTarget(place pyfeed.Place) error {
	if r.places[0] == pyfeed.CPUPlace() {
		return r.source.SetTarget(place)
	}
	return nil
}

// Spec returns that of the reader below.
func (r *doubleBufferReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe implements readers.Reader.
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

// Close releases the reader below.
func (r *doubleBufferReader) Close() {
	r.clear()
	r.disconnect()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *doubleBufferReader) Length() int64 { return r.source.Length() }

// Upstreams implements readers.Decorator.
func (r *doubleBufferReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }
