package decorators

import (
	"cmp"
	"context"
	"io"
	"math"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// shardReader delivers every world-th tuple, beginning with number rank. world such readers deliver each tuple once.
//
// With even, all parts have the same number of tuples. The reader then reads groups of world tuples, of which it delivers
// one, and learns at the end of the pass whether the last group is complete.
type shardReader struct {
	readers.PeekBuffer
	source *readers.Upstream
	part   readers.Part // Even is "" if the parts may differ by a tuple
	pass   uint64
	at     uint64 // number of the next tuple to read

	// With even:
	kept  record.Chunk // the part's tuples of whole groups
	group record.Chunk // all tuples of a group that is not complete yet
	ended bool         // the last group was read
	last  atomic.Pointer[passEnd]
}

// passEnd is the end of a pass within a group.
type passEnd struct {
	pass   uint64
	tuples int64
}

// CheckShard returns an error if rank is not less than world, or if even has another value than "" or those of
// [readers.Even].
func CheckShard(rank, world uint64, even readers.Even) error {
	if even == "" {
		even = readers.EvenDrop
	}
	return CheckPart("shard", rank, world, even)
}

// NewShardReader takes over a reference to source. If even is not "", all parts get the same number of tuples.
func NewShardReader(source *readers.ReaderHolder, rank, world uint64, even readers.Even) (readers.Reader, error) {
	if err := cmp.Or(CheckShard(rank, world, even), source.CheckUndivided("shard")); err != nil {
		source.Drop()
		return nil, err
	}
	r := &shardReader{source: readers.NewUpstream(source), part: readers.Part{Rank: int(rank), World: int(world), Even: even}}
	r.Read = r.take
	if even != "" {
		r.Read = r.takeEven
	}
	return r, nil
}

func (r *shardReader) take(ctx context.Context, c *record.Chunk, limit int) (int, error) {
	var slice wait.TimeSlice
	for {
		before := c.Checkpoint()
		if _, err := r.source.ReadInto(ctx, c, limit); err != nil {
			return 0, err
		}
		if kept := c.Filter(before, r.takeNext); kept > 0 {
			return kept, nil
		}
		if slice.Expired(ctx) {
			return 0, wait.ErrWouldBlock
		}
	}
}

// takeNext counts the next tuple, and reports whether it belongs to this shard.
func (r *shardReader) takeNext() bool {
	r.at++
	return (r.at-1)%uint64(r.part.World) == uint64(r.part.Rank)
}

func (r *shardReader) takeEven(ctx context.Context, c *record.Chunk, limit int) (int, error) {
	var slice wait.TimeSlice
	world := uint64(r.part.World)
	for r.kept.Len() == 0 {
		if r.ended {
			return 0, io.EOF
		}
		ask := world - r.at%world // completes the group
		if groups := uint64(min(limit, record.ChunkSize)) / world; ask == world && groups > 1 {
			ask = groups * world
		}
		n, err := r.source.ReadInto(ctx, &r.group, int(min(ask, record.ChunkSize)))
		r.at += uint64(n)
		r.keepWholeGroups()
		switch {
		case err == io.EOF:
			if err := r.endGroup(); err != nil {
				return 0, err
			}
		case err != nil:
			return 0, err
		case r.kept.Len() == 0 && slice.Expired(ctx):
			return 0, wait.ErrWouldBlock
		}
	}
	return r.kept.MoveTo(c, limit), nil
}

// keepWholeGroups moves this part of the whole groups that were read from group to kept, which is empty.
func (r *shardReader) keepWholeGroups() {
	whole := r.group.Len() - int(r.at%uint64(r.part.World))
	if whole <= 0 {
		return
	}
	r.group.MoveTo(&r.kept, whole)
	n := 0
	r.kept.Filter(record.Checkpoint{}, func() bool {
		n++
		return (n-1)%r.part.World == r.part.Rank
	})
}

// endGroup ends the pass, perhaps within a group.
func (r *shardReader) endGroup() error {
	if r.group.Len() > 0 {
		r.last.Store(&passEnd{r.pass, int64(r.at)})
		if err := keepPart(&r.group, r.part, r.source.Spec()); err != nil {
			return err
		}
		r.group.MoveTo(&r.kept, r.group.Len())
	}
	r.ended = true
	return nil
}

// ReInit resets the reader below.
func (r *shardReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.kept.Release()
	r.group.Release()
	r.pass, r.at, r.ended = pass, 0, false
	if end := r.last.Load(); end != nil && end.pass >= pass {
		r.last.Store(nil) // the pass may end elsewhere now
	}
	return r.source.Begin(pass)
}

// Identity implements readers.Resumable.
func (r *shardReader) Identity() (string, []state.Option) {
	options := []state.Option{{Name: "rank", Value: r.part.Rank}, {Name: "world", Value: r.part.World}}
	if r.part.Even != "" {
		options = slices.Insert(options, 0, state.Option{Name: "even", Value: string(r.part.Even)})
	}
	return "shard", options
}

// shardState is the part of a shardReader in a state behind the last tuple of a pass that ends within a group.
type shardState struct {
	Tuples int64 `json:"tuples"` // of the pass of the reader below
}

// Save implements readers.Resumable.
func (r *shardReader) Save(p readers.Position, s *readers.Saver) error {
	below := r.below(p)
	if end := r.last.Load(); r.part.Even != "" && end != nil && end.pass == p.Pass && end.tuples < below.N {
		below.N = end.tuples
		s.SetAt(append(strconv.AppendInt([]byte(`{"tuples":`), end.tuples, 10), '}'))
	}
	return s.SaveBelow(r.source, below)
}

// Restore implements readers.Resumable.
func (r *shardReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	below := r.below(p)
	var is shardState
	ended, err := s.At(&is)
	if err != nil {
		return 0, err
	}
	if ended {
		if is.Tuples <= 0 || is.Tuples >= below.N || is.Tuples <= below.N-int64(r.part.World) {
			return 0, pyfeed.Errorf(pyfeed.Invalid, "state: shard: expected the end of a pass within the %d tuples before tuple %d, found it at tuple %d",
				r.part.World, below.N, is.Tuples)
		}
		below.N = is.Tuples
	}
	if err := s.RestoreBelow(r.source, below); err != nil {
		return 0, err
	}
	if r.at, r.ended = uint64(below.N), ended; ended {
		r.last.Store(&passEnd{p.Pass, is.Tuples})
	}
	return 0, nil
}

// below is the position of the reader below: with even, behind the group of the last tuple that was delivered; else behind
// that tuple, so that there is such a position at the end of the pass too.
func (r *shardReader) below(p readers.Position) readers.Position {
	rank, world := uint64(r.part.Rank), uint64(r.part.World)
	if r.part.Even != "" {
		rank = world - 1
	}
	if p.N > 0 {
		last := uint64(p.N - 1)
		if last > (math.MaxInt64-rank-1)/world {
			last = (math.MaxInt64 - rank - 1) / world
		}
		p.N = int64(last*world + rank + 1)
	}
	return p
}

// Spec returns that of the reader below.
func (r *shardReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe implements readers.Reader.
func (r *shardReader) Describe(s *readers.Stats) {
	s.Reader = "shard"
	s.Extra = map[string]any{"rank": r.part.Rank, "world": r.part.World}
	if r.part.Even != "" {
		s.Extra["even"] = string(r.part.Even)
	}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close releases the reader below.
func (r *shardReader) Close() {
	r.DropPeeked()
	r.kept.Release()
	r.group.Release()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *shardReader) Length() int64 {
	n := r.source.Length()
	if n == readers.Unknown || n == readers.Endless {
		return n
	}
	world := int64(r.part.World)
	left := int(n % world)
	if r.part.Even != "" {
		return n/world + int64(r.part.Len(left))
	}
	if r.part.Rank < left {
		return n/world + 1
	}
	return n / world
}

// Upstreams implements readers.Decorator.
func (r *shardReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *shardReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget implements readers.Targetable.
func (r *shardReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
