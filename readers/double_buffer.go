package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// DoubleBufferReader has the next tuples ready while one is consumed: a thread of its own reads them.
type DoubleBufferReader struct {
	ahead
	under *ReaderHolder
	place pyfeed.Place
	depth int
	pump  *pump
}

func checkDepth(depth uint64) error {
	if depth == 0 || depth > 1<<16 {
		return pyfeed.Errorf(pyfeed.Invalid, "depth: expected 1 to 65536 tuples, found %d", depth)
	}
	return nil
}

// NewDoubleBufferReader takes over a reference to under. depth is how many tuples are ready at most, beside
// the one being read.
func NewDoubleBufferReader(under *ReaderHolder, place pyfeed.Place, depth uint64) (*DoubleBufferReader, error) {
	err := checkDepth(depth)
	if err == nil && place.Kind != pyfeed.CPU {
		err = pyfeed.Errorf(pyfeed.Unsupported, "place: expected CPUPlace, found %v, for which this release has no double buffer", place)
	}
	if err != nil {
		under.Drop()
		return nil, err
	}
	r := &DoubleBufferReader{under: under, place: place, depth: int(depth)}
	r.pump = newPump("double_buffer", r.depth, r.fill)
	r.read = r.pump.take
	return r, nil
}

func (r *DoubleBufferReader) fill(ctx context.Context, room []*pyfeed.Tuple) ([]*pyfeed.Tuple, error) {
	if cap(room) == 0 {
		room = make([]*pyfeed.Tuple, 1)
	}
	n, err := r.under.readMany(ctx, room[:1])
	return room[:n], err
}

// ReInit drops what is ready and starts the reader below over.
func (r *DoubleBufferReader) ReInit(pass uint64) error {
	r.drop()
	r.pump.stop()
	return r.under.Begin(pass)
}

// Spec is that of the reader below.
func (r *DoubleBufferReader) Spec() *pyfeed.Spec { return r.under.Spec() }

// Describe names it.
func (r *DoubleBufferReader) Describe(s *Stats) {
	s.Reader = "double_buffer"
	s.Waited = r.pump.waited().Seconds()
	s.Extra = map[string]any{"place": r.place.String(), "depth": r.depth}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below.
func (r *DoubleBufferReader) Close() {
	r.drop()
	r.pump.stop()
	r.under.Drop()
}
