package decorators

import (
	"context"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// shardReader delivers every world-th tuple, beginning with number rank. world such readers deliver each tuple once.
type shardReader struct {
	readers.PeekBuffer
	source      *readers.Upstream
	rank, world uint64
	at          uint64 // number of the next tuple
}

// CheckShard returns an error if rank is not less than world.
func CheckShard(rank, world uint64) error {
	if rank >= world {
		return pyfeed.Errorf(pyfeed.Invalid, "shard: expected a rank below the world's size %d, found %d", world, rank)
	}
	return nil
}

// NewShardReader takes over a reference to source.
func NewShardReader(source *readers.ReaderHolder, rank, world uint64) (readers.Reader, error) {
	if err := CheckShard(rank, world); err != nil {
		source.Drop()
		return nil, err
	}
	r := &shardReader{source: readers.NewUpstream(source), rank: rank, world: world}
	r.Read = r.take
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
	return (r.at-1)%r.world == r.rank
}

// ReInit resets the reader below.
func (r *shardReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.at = 0
	return r.source.Begin(pass)
}

// Identity implements readers.Resumable.
func (r *shardReader) Identity() (string, []state.Option) {
	return "shard", []state.Option{{Name: "rank", Value: r.rank}, {Name: "world", Value: r.world}}
}

// Save implements readers.Resumable.
func (r *shardReader) Save(p readers.Position, s *readers.Saver) error {
	return s.SaveBelow(r.source, r.below(p))
}

// Restore implements readers.Resumable.
func (r *shardReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	below := r.below(p)
	r.at = uint64(below.N)
	return 0, s.RestoreBelow(r.source, below)
}

// below is the position of the reader below: behind the last tuple that was delivered, so that there is such a position
// at the end of the pass too.
func (r *shardReader) below(p readers.Position) readers.Position {
	if p.N > 0 {
		last := uint64(p.N - 1)
		if last > (math.MaxInt64-r.rank-1)/r.world {
			last = (math.MaxInt64 - r.rank - 1) / r.world
		}
		p.N = int64(last*r.world + r.rank + 1)
	}
	return p
}

// Spec returns that of the reader below.
func (r *shardReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe implements readers.Reader.
func (r *shardReader) Describe(s *readers.Stats) {
	s.Reader = "shard"
	s.Extra = map[string]any{"rank": r.rank, "world": r.world}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close releases the reader below.
func (r *shardReader) Close() {
	r.DropPeeked()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *shardReader) Length() int64 {
	n := r.source.Length()
	if n == readers.Unknown || n == readers.Endless {
		return n
	}
	part := uint64(n) / r.world
	if r.rank < uint64(n)%r.world {
		part++
	}
	return int64(part)
}

// Upstreams implements readers.Decorator.
func (r *shardReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *shardReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget implements readers.Targetable.
func (r *shardReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
