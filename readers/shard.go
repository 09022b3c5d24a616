package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// ShardReader delivers every world-th tuple, from the rank-th on: each to one of world readers.
type ShardReader struct {
	ahead
	under       *upstream
	rank, world uint64
	at          uint64 // number of the next tuple
}

func checkShard(rank, world uint64) error {
	if rank >= world {
		return pyfeed.Errorf(pyfeed.Invalid, "shard: expected a rank below the world's size %d, found %d", world, rank)
	}
	return nil
}

// NewShardReader takes over a reference to under.
func NewShardReader(under *ReaderHolder, rank, world uint64) (*ShardReader, error) {
	if err := checkShard(rank, world); err != nil {
		under.Drop()
		return nil, err
	}
	r := &ShardReader{under: above(under), rank: rank, world: world}
	r.read = r.take
	return r, nil
}

func (r *ShardReader) take(ctx context.Context, l *Lot, most int) (int, error) {
	var turn wait.Turn
	for {
		before, bytes := l.mark(), l.bytes
		if _, err := r.under.readMany(ctx, l, most); err != nil {
			return 0, err
		}
		bytes = l.bytes - bytes
		if kept := l.keep(before, r.mine); kept > 0 {
			return kept, nil
		}
		if turn.Over(ctx, bytes) {
			return 0, wait.ErrWouldBlock
		}
	}
}

// mine says whether the next tuple is one to be delivered.
func (r *ShardReader) mine() bool {
	r.at++
	return (r.at-1)%r.world == r.rank
}

// ReInit starts the reader below over.
func (r *ShardReader) ReInit(pass uint64) error {
	r.drop()
	r.at = 0
	return r.under.Begin(pass)
}

// Spec is that of the reader below.
func (r *ShardReader) Spec() *pyfeed.Spec { return r.under.Spec() }

// Describe names it.
func (r *ShardReader) Describe(s *Stats) {
	s.Reader = "shard"
	s.Extra = map[string]any{"rank": r.rank, "world": r.world}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below.
func (r *ShardReader) Close() {
	r.drop()
	r.under.Drop()
}
