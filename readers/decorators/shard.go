package decorators

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// shardReader delivers every world-th tuple, from the rank-th on: each to one of world readers.
type shardReader struct {
	readers.Lookahead
	source      *readers.Upstream
	rank, world uint64
	at          uint64 // number of the next tuple
}

// CheckShard refuses a rank that is not below the world's size.
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

func (r *shardReader) take(ctx context.Context, c *record.Chunk, most int) (int, error) {
	var slice wait.TimeSlice
	for {
		before, bytes := c.Checkpoint(), c.Bytes()
		if _, err := r.source.ReadInto(ctx, c, most); err != nil {
			return 0, err
		}
		bytes = c.Bytes() - bytes
		if kept := c.Filter(before, r.mine); kept > 0 {
			return kept, nil
		}
		if slice.Expired(ctx, bytes) {
			return 0, wait.ErrWouldBlock
		}
	}
}

// mine says whether the next tuple is one to be delivered.
func (r *shardReader) mine() bool {
	r.at++
	return (r.at-1)%r.world == r.rank
}

// ReInit starts the reader below over.
func (r *shardReader) ReInit(pass uint64) error {
	r.DropAhead()
	r.at = 0
	return r.source.Begin(pass)
}

// Spec is that of the reader below.
func (r *shardReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe names it.
func (r *shardReader) Describe(s *readers.Stats) {
	s.Reader = "shard"
	s.Extra = map[string]any{"rank": r.rank, "world": r.world}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close lets go of the reader below.
func (r *shardReader) Close() {
	r.DropAhead()
	r.source.Drop()
}

// Upstreams is readers.Decorator's.
func (r *shardReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace is readers.Placed's.
func (r *shardReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget is readers.Targetable's.
func (r *shardReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
