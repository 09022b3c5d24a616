package decorators

import (
	"context"
	"io"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/anchor"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// multiPassReader begins the next pass of the reader below by itself, until it has delivered a given number of passes.
type multiPassReader struct {
	readers.PeekBuffer
	source *readers.Upstream
	passes int64        // to deliver; 0: without end
	first  uint64       // number of the first of them, for the reader below
	pass   atomic.Int64 // the one being read, from 0
	any    bool         // the pass had tuples

	number uint64 // of the pass that ReInit began
	count  int64  // tuples that were read in it

	mu     sync.Mutex
	starts anchor.Log[int64] // where passes of the reader below begin, with their indexes
}

// CheckPassNum returns an error if the number of passes is out of range.
func CheckPassNum(passes uint64) error {
	if passes > 1<<62 {
		return pyfeed.Errorf(pyfeed.Invalid, "pass_num: expected 1 to 2^62 passes, or 0 for ever, found %d", passes)
	}
	return nil
}

// NewMultiPassReader takes over a reference to source. If passes is 0, it never ends.
func NewMultiPassReader(source *readers.ReaderHolder, passes uint64) (readers.Reader, error) {
	if err := CheckPassNum(passes); err != nil {
		source.Drop()
		return nil, err
	}
	r := &multiPassReader{source: readers.NewUpstream(source), passes: int64(passes)}
	r.starts.Dense = 64
	r.noteStart(0)
	r.Read = r.take
	return r, nil
}

func (r *multiPassReader) take(ctx context.Context, c *record.Chunk, limit int) (int, error) {
	for {
		pass := r.pass.Load()
		r.join(ctx, pass)
		before := c.Checkpoint()
		n, err := r.source.ReadInto(ctx, c, limit)
		r.count += int64(n)
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
		if err := r.source.BeginNext(r.first + uint64(pass) + 1); err != nil {
			return 0, err
		}
		r.any = false
		r.pass.Add(1)
		r.noteStart(pass + 1)
	}
}

// join lets the call behind ctx go on in the given pass if the call waited in an earlier one. Several consumers may wait
// for the end of a pass, and the first to see it begins the next pass for all of them.
func (r *multiPassReader) join(ctx context.Context, pass int64) {
	if wait.GenerationAtStart(ctx, r, uint64(pass)) != uint64(pass) {
		wait.ForgetGeneration(ctx, r)
		wait.GenerationAtStart(ctx, r, uint64(pass))
		r.source.JoinPass(ctx)
	}
}

// ReInit resets the reader below to the first of its passes that belong to the given pass. No two passes share passes
// of the reader below.
func (r *multiPassReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.number, r.count = pass, 0
	r.first = r.firstOf(pass)
	if err := r.source.Begin(r.first); err != nil {
		return err
	}
	r.any = false
	r.pass.Store(0)
	r.noteStart(0)
	return nil
}

// firstOf returns the number, for the reader below, of the first of its passes that belong to the given pass.
func (r *multiPassReader) firstOf(pass uint64) uint64 {
	if r.passes == 0 {
		return pass << 32
	}
	return pass * uint64(r.passes)
}

// noteStart notes that a pass of the reader below begins here.
func (r *multiPassReader) noteStart(index int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.starts.Add(r.number, r.count, index)
}

// Identity implements readers.Resumable.
func (r *multiPassReader) Identity() (string, []state.Option) {
	return "multi_pass", []state.Option{{Name: "pass_num", Value: r.passes, Optional: true}}
}

// multiPassState is the part of a multiPassReader in a state: in which pass of the reader below it is.
type multiPassState struct {
	Index int64 `json:"index"` // of the pass, from 0
	Start int64 `json:"start"` // tuples before that pass
	// Through says that the position may be in a later pass, which is reached by reading through those between.
	Through bool `json:"through"`
}

// Save implements readers.Resumable.
func (r *multiPassReader) Save(p readers.Position, s *readers.Saver) error {
	is := r.find(p)
	if is != (multiPassState{}) {
		at := strconv.AppendInt([]byte(`{"index":`), is.Index, 10)
		at = strconv.AppendInt(append(at, `,"start":`...), is.Start*r.source.VirtualShards().Share(), 10)
		at = strconv.AppendBool(append(at, `,"through":`...), is.Through)
		s.SetAt(append(at, '}'))
	}
	return s.SaveBelow(r.source, r.below(p, is))
}

// find returns the pass of the reader below that a position is in.
func (r *multiPassReader) find(p readers.Position) multiPassState {
	r.mu.Lock()
	defer r.mu.Unlock()
	start, _, next := r.starts.Find(p.Pass, p.N)
	return multiPassState{Index: start.Value, Start: start.At, Through: !next}
}

// below is the position of the reader below.
func (r *multiPassReader) below(p readers.Position, is multiPassState) readers.Position {
	below := readers.Position{Pass: r.firstOf(p.Pass) + uint64(is.Index)}
	if !is.Through {
		below.N = p.N - is.Start
	}
	return below
}

// Restore implements readers.Resumable.
func (r *multiPassReader) Restore(p readers.Position, s *readers.Restorer) (ahead int64, err error) {
	var is multiPassState
	if _, err := s.At(&is); err != nil {
		return 0, err
	}
	if is.Start, err = r.source.VirtualShards().OfProcess(is.Start); err != nil {
		return 0, err
	}
	if is.Index < 0 || r.passes > 0 && is.Index >= r.passes || is.Start < 0 || is.Start > p.N {
		return 0, pyfeed.Errorf(pyfeed.Invalid, "state: multi_pass: expected a pass of %d that begins at tuple %d or before, found pass %d, which begins at tuple %d",
			r.passes, p.N, is.Index, is.Start)
	}
	if r.count = p.N; is.Through {
		r.count, ahead = is.Start, p.N-is.Start
	}
	below := r.below(p, is)
	r.any = below.N > 0
	r.pass.Store(is.Index)
	r.mu.Lock()
	r.starts.Add(p.Pass, is.Start, is.Index)
	r.mu.Unlock()
	return ahead, s.RestoreBelow(r.source, below)
}

// Spec returns that of the reader below.
func (r *multiPassReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe implements readers.Reader. It includes the current pass.
func (r *multiPassReader) Describe(s *readers.Stats) {
	s.Reader = "multi_pass"
	s.Extra = map[string]any{"pass_num": r.passes, "pass_id": r.pass.Load()}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close releases the reader below.
func (r *multiPassReader) Close() {
	r.DropPeeked()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *multiPassReader) Length() int64 {
	n := r.source.Length()
	switch {
	case n == readers.Unknown || n == readers.Endless || n == 0: // a pass without tuples is an error
		return n
	case r.passes == 0 || n > (readers.Endless-1)/r.passes:
		return readers.Endless
	}
	return n * r.passes
}

// Upstreams implements readers.Decorator.
func (r *multiPassReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *multiPassReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget implements readers.Targetable.
func (r *multiPassReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
