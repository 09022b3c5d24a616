package decorators

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// shuffleReader permutes its instances block by block: the next block is read while this one is served. One
// seed gives one order, on every machine; each pass has another. It moves references, never bytes.
type shuffleReader struct {
	readers.Lookahead
	source     *readers.Upstream
	size       int
	seed       uint64
	pass       uint64
	block      uint64 // the next to be read of the pass
	prefetcher *prefetcher
}

// CheckBufferSize refuses sizes of a shuffle's block that are not possible.
func CheckBufferSize(size uint64) error {
	if size == 0 || size > 1<<31 {
		return pyfeed.Errorf(pyfeed.Invalid, "buffer_size: expected 1 to 2^31 tuples, found %d", size)
	}
	return nil
}

// NewShuffleReader takes over a reference to source.
func NewShuffleReader(source *readers.ReaderHolder, size, seed uint64) (readers.Reader, error) {
	if err := CheckBufferSize(size); err != nil {
		source.Drop()
		return nil, err
	}
	r := &shuffleReader{source: readers.NewUpstream(source), size: int(size), seed: seed}
	r.prefetcher = newPrefetcher("shuffle", 1, func(ctx context.Context, p *prefetched) error { return r.fill(ctx, &p.Chunk) })
	r.Read, r.Many, r.WakeOthers = r.prefetcher.take, record.MinBlock, r.prefetcher.wakeConsumers
	return r, nil
}

// fill reads a block and permutes it.
func (r *shuffleReader) fill(ctx context.Context, c *record.Chunk) (end error) {
	for c.Len() < r.size && end == nil && ctx.Err() == nil {
		_, end = r.source.ReadInto(ctx, c, r.size-c.Len())
	}
	c.Permute(r.seed, r.pass, r.block, ctx.Done())
	r.block++
	return end
}

// ReInit begins a pass, in an order of its own.
func (r *shuffleReader) ReInit(pass uint64) error {
	r.DropAhead()
	r.prefetcher.stop()
	if err := r.source.Begin(pass); err != nil {
		return err
	}
	r.pass, r.block = pass, 0
	return nil
}

// Spec is that of the reader below.
func (r *shuffleReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe names it.
func (r *shuffleReader) Describe(s *readers.Stats) {
	s.Reader = "shuffle"
	s.Waited = r.prefetcher.waited().Seconds()
	s.Extra = map[string]any{"buffer_size": r.size, "seed": r.seed}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close lets go of the reader below.
func (r *shuffleReader) Close() {
	r.DropAhead()
	r.prefetcher.stop()
	r.source.Drop()
}

// Upstreams is readers.Decorator's.
func (r *shuffleReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace is readers.Placed's.
func (r *shuffleReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget is readers.Targetable's.
func (r *shuffleReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
