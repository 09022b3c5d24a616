package readers

import (
	"context"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// DoubleBufferReader has the next tuples ready where they are wanted while one is consumed: a thread of its own reads
// them, and copies those that are meant for devices. With several places each gets a tuple in turn.
type DoubleBufferReader struct {
	ahead
	under  *upstream
	places []pyfeed.Place
	depth  int
	pump   *pump

	pinned  *memory.Pool    // of a place in pinned memory; else nil
	stagers []pyfeed.Stager // to devices, one for each place; or none
	filled  int             // tuples of this pass; the thread's own
	ready   Lot             // room for the next
	staged  *pyfeed.Tuple   // to a device, its copy not yet under way
	failure error           // of a copy: for the rest of the pass
}

func checkDepth(depth uint64) error {
	if depth == 0 || depth > 1<<16 {
		return pyfeed.Errorf(pyfeed.Invalid, "depth: expected 1 to 65536 tuples, found %d", depth)
	}
	return nil
}

func checkPlaces(places []pyfeed.Place) error {
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

// NewDoubleBufferReader takes over a reference to under. depth is how many tuples are ready at most at each place,
// beside the one being read.
func NewDoubleBufferReader(under *ReaderHolder, places []pyfeed.Place, depth uint64) (*DoubleBufferReader, error) {
	r := &DoubleBufferReader{under: above(under), places: places, depth: int(depth)}
	err := checkDepth(depth)
	if err == nil {
		err = checkPlaces(places)
	}
	if err == nil {
		err = r.reach()
	}
	if err != nil {
		r.leave()
		under.Drop()
		return nil, err
	}
	r.pump = newPump("double_buffer", r.depth*len(places), r.fill)
	r.read = r.pump.take
	switch {
	case len(r.stagers) > 0:
		r.read = single(r.take)
	case r.pinned != nil:
	case copiers > 1 && under.gathers():
		r.pump.fill = func(ctx context.Context, c *chunk) (err error) {
			c.work, err = r.under.gather(ctx)
			return err
		}
		r.pump.make = makeBatch
	default:
		r.pump.direct = r.under.readMany
	}
	return r, nil
}

// reach makes the ways to the places, and has the reader below write where devices copy from.
func (r *DoubleBufferReader) reach() (err error) {
	place := r.places[0]
	if place == pyfeed.CPUPlace() {
		return nil
	}
	backend, err := pyfeed.BackendOf(place)
	if err != nil {
		return err
	}
	if err := r.under.aim(place); err != nil {
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

func (r *DoubleBufferReader) leave() {
	for _, s := range r.stagers {
		s.Close()
	}
	if r.pinned != nil {
		r.pinned.Close()
	}
}

// makeBatch is for the pump whose chunks are a batch each, copied by consumers and the thread side by side.
func makeBatch(c *chunk, track trace.Track) error {
	g := c.work
	c.work = nil
	of := g.of
	bytes, _ := g.size()
	batch, err := g.batch(track)
	if err != nil {
		of.unmade.Add(1)
		of.unmadeBytes.Add(int64(bytes))
		return err
	}
	c.Add(batch)
	return nil
}

func (r *DoubleBufferReader) fill(ctx context.Context, c *chunk) error {
	l := &c.Lot
	if _, err := r.under.readMany(ctx, l, 1); err != nil || len(r.stagers) == 0 && r.pinned == nil {
		return err
	}
	t := l.one()
	if err := r.move(ctx, &t); err != nil {
		t.Release()
		return err
	}
	l.Add(t)
	return nil
}

// move brings a tuple on its way. After an error it is as it was.
func (r *DoubleBufferReader) move(ctx context.Context, t **pyfeed.Tuple) error {
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
func (r *DoubleBufferReader) take(ctx context.Context) (*pyfeed.Tuple, error) {
	if r.failure != nil {
		return nil, r.failure
	}
	if r.staged == nil {
		for _, s := range r.stagers {
			if err := s.Err(); err != nil { // rather than wait for a tuple
				return nil, err
			}
		}
		if _, err := r.pump.take(ctx, &r.ready, 1); err != nil {
			return nil, err
		}
		r.staged = r.ready.one()
	}
	err := r.stagers[0].Next(ctx, r.staged)
	if err == wait.ErrWouldBlock {
		r.pump.wake(1) // another waits for it too, should this caller go away
		return nil, err
	}
	t := r.staged
	r.staged = nil
	if err != nil {
		t.Release()
		r.failure = err
		r.pump.wake(math.MaxInt)
		return nil, err
	}
	return t, nil
}

func (r *DoubleBufferReader) forget() {
	r.drop()
	r.pump.stop()
	if r.staged != nil {
		r.staged.Release()
		r.staged = nil
	}
}

// ReInit drops what is ready and starts the reader below over.
func (r *DoubleBufferReader) ReInit(pass uint64) error {
	r.forget()
	r.filled, r.failure = 0, nil
	return r.under.Begin(pass)
}

func (r *DoubleBufferReader) target() (pyfeed.Place, bool) {
	if r.places[0] == pyfeed.CPUPlace() {
		return r.under.target()
	}
	return r.places[0], true
}

func (r *DoubleBufferReader) aim(place pyfeed.Place) error {
	if r.places[0] == pyfeed.CPUPlace() {
		return r.under.aim(place)
	}
	return nil
}

// Spec is that of the reader below.
func (r *DoubleBufferReader) Spec() *pyfeed.Spec { return r.under.Spec() }

// Describe names it.
func (r *DoubleBufferReader) Describe(s *Stats) {
	s.Reader = "double_buffer"
	s.Waited = r.pump.waited().Seconds()
	s.Extra = map[string]any{"place": r.places[0].String(), "depth": r.depth}
	if len(r.places) > 1 {
		var all []string
		for _, p := range r.places {
			all = append(all, p.String())
		}
		s.Extra["place"] = all
	}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below.
func (r *DoubleBufferReader) Close() {
	r.forget()
	r.leave()
	r.under.Drop()
}
