package readers

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// MultiPassReader goes on to the next pass by itself, until it has delivered so many.
type MultiPassReader struct {
	ahead
	under  *upstream
	passes int64        // to be delivered; 0: without end
	first  uint64       // number of the first of them, to the reader below
	pass   atomic.Int64 // that is being read, from 0
	any    bool         // of the pass
}

func checkPassNum(passes uint64) error {
	if passes > 1<<62 {
		return pyfeed.Errorf(pyfeed.Invalid, "pass_num: expected 1 to 2^62 passes, or 0 for ever, found %d", passes)
	}
	return nil
}

// NewMultiPassReader takes over a reference to under. passes of 0 never end.
func NewMultiPassReader(under *ReaderHolder, passes uint64) (*MultiPassReader, error) {
	if err := checkPassNum(passes); err != nil {
		under.Drop()
		return nil, err
	}
	r := &MultiPassReader{under: above(under), passes: int64(passes)}
	r.read = r.take
	return r, nil
}

func (r *MultiPassReader) take(ctx context.Context, l *Lot, most int) (int, error) {
	for {
		before := l.mark()
		n, err := r.under.readMany(ctx, l, most)
		pass := r.pass.Load()
		l.since(before, pass)
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
		if err := r.under.Begin(r.first + uint64(pass) + 1); err != nil {
			return 0, err
		}
		r.any = false
		r.pass.Add(1)
	}
}

// ReInit begins with the first of its passes, which are others than those of any other pass number.
func (r *MultiPassReader) ReInit(pass uint64) error {
	r.drop()
	r.first = pass * uint64(r.passes)
	if r.passes == 0 {
		r.first = pass << 32
	}
	if err := r.under.Begin(r.first); err != nil {
		return err
	}
	r.any = false
	r.pass.Store(0)
	return nil
}

// Spec is that of the reader below.
func (r *MultiPassReader) Spec() *pyfeed.Spec { return r.under.Spec() }

// Describe names it and the pass it is in.
func (r *MultiPassReader) Describe(s *Stats) {
	s.Reader = "multi_pass"
	s.Extra = map[string]any{"pass_num": r.passes, "pass_id": r.pass.Load()}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below.
func (r *MultiPassReader) Close() {
	r.drop()
	r.under.Drop()
}
