package decorators

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// multiPassReader goes on to the next pass by itself, until it has delivered so many.
type multiPassReader struct {
	readers.Lookahead
	source *readers.Upstream
	passes int64        // to be delivered; 0: without end
	first  uint64       // number of the first of them, to the reader below
	pass   atomic.Int64 // that is being read, from 0
	any    bool         // of the pass
}

// CheckPassNum refuses numbers of passes that are not possible.
func CheckPassNum(passes uint64) error {
	if passes > 1<<62 {
		return pyfeed.Errorf(pyfeed.Invalid, "pass_num: expected 1 to 2^62 passes, or 0 for ever, found %d", passes)
	}
	return nil
}

// NewMultiPassReader takes over a reference to source. passes of 0 never end.
func NewMultiPassReader(source *readers.ReaderHolder, passes uint64) (readers.Reader, error) {
	if err := CheckPassNum(passes); err != nil {
		source.Drop()
		return nil, err
	}
	r := &multiPassReader{source: readers.NewUpstream(source), passes: int64(passes)}
	r.Read = r.take
	return r, nil
}

func (r *multiPassReader) take(ctx context.Context, c *record.Chunk, most int) (int, error) {
	for {
		before := c.Checkpoint()
		n, err := r.source.ReadInto(ctx, c, most)
		pass := r.pass.Load()
		c.SetPass(before, pass)
		r.any = r.any || n > 0
		if err != io.EOF {
			return n, err
		}
		if !r.any {
			return 0, pyfeed.Errorf(pyfeed.State, "pass %d had no tuples: expected at least one a pass", pass)
		}
		if pass+1 == r.passes {
			return 0, io.EOF
		}
		if err := r.source.Begin(r.first + uint64(pass) + 1); err != nil {
			return 0, err
		}
		r.any = false
		r.pass.Add(1)
	}
}

// ReInit begins with the first of its passes, which are others than those of any other pass number.
func (r *multiPassReader) ReInit(pass uint64) error {
	r.DropAhead()
	r.first = pass * uint64(r.passes)
	if r.passes == 0 {
		r.first = pass << 32
	}
	if err := r.source.Begin(r.first); err != nil {
		return err
	}
	r.any = false
	r.pass.Store(0)
	return nil
}

// Spec is that of the reader below.
func (r *multiPassReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe names it and the pass it is in.
func (r *multiPassReader) Describe(s *readers.Stats) {
	s.Reader = "multi_pass"
	s.Extra = map[string]any{"pass_num": r.passes, "pass_id": r.pass.Load()}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close lets go of the reader below.
func (r *multiPassReader) Close() {
	r.DropAhead()
	r.source.Drop()
}

// Upstreams is readers.Decorator's.
func (r *multiPassReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace is readers.Placed's.
func (r *multiPassReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget is readers.Targetable's.
func (r *multiPassReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
