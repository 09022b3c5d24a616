package decorators

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// shuffleReader permutes instances block by block. The next block is read while the current one is delivered. The order
// depends on the seed and the pass, and is the same on every machine. References move, not data; but small blocks of
// instances of one layout are also copied, by [record.Gatherer], so that batches of them need no copy.
type shuffleReader struct {
	readers.PeekBuffer
	source     *readers.Upstream
	size       int
	seed       uint64
	pass       uint64
	block      uint64                // of this pass, the next to be read
	shards     readers.VirtualShards // Total is 0 if any tuples of a block may change places
	prefetcher *prefetcher
	cut        atomic.Pointer[cutBlock] // the last one; nil: none
	gathers    atomic.Bool              // blocks may be copied
	gatherer   record.Gatherer
	numbers    []uint64 // reused by permutation
}

// cutBlock is a block that an error below has cut short. Without the error, it would have another order.
type cutBlock struct {
	pass, block uint64
	err         error
}

// CheckBufferSize returns an error if a shuffle's block cannot have that size.
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
	shards := source.VirtualShards()
	if shards.Batched {
		shards = readers.VirtualShards{}
	}
	if shards.Total > 0 && size%uint64(shards.Own()) != 0 {
		own := uint64(shards.Own())
		source.Drop()
		return nil, pyfeed.Errorf(pyfeed.Invalid, "shuffle: buffer_size: expected a multiple of %d, the virtual shards of this process, such as %d, found %d",
			own, max(size/own, 1)*own, size)
	}
	r := &shuffleReader{source: readers.NewUpstream(source), size: int(size), seed: seed, shards: shards, gatherer: record.Gatherer{Pool: memory.NewPool(memory.Batch)}}
	r.gathers.Store(stacksAll(source.Spec()))
	r.prefetcher = newPrefetcher("shuffle", 1, func(ctx context.Context, p *prefetched) error { return r.fill(ctx, &p.Chunk) })
	r.Read, r.Many, r.WakeOthers = r.prefetcher.take, record.MinBlock, r.prefetcher.wakeConsumers
	return r, nil
}

// fill reads a block and permutes it.
func (r *shuffleReader) fill(ctx context.Context, c *record.Chunk) (end error) {
	for c.Len() < r.size && end == nil && ctx.Err() == nil {
		blocks := c.NumBlocks()
		_, end = r.source.ReadInto(ctx, c, r.size-c.Len())
		if !r.gathers.Load() || !c.FitsGather(r.size) {
			c.PackRows(blocks, r.gatherer.Pool)
		}
	}
	if end != nil && end != io.EOF && ctx.Err() == nil {
		r.cut.Store(&cutBlock{r.pass, r.block, end})
	}
	if r.gathers.Load() {
		r.gatherer.Gather(c, r.permutation(), ctx.Done())
	} else {
		c.Permute(r.permutation(), ctx.Done())
	}
	r.block++
	return end
}

// permutation returns the order of the block. A block is permuted within each virtual shard, so that the order of its
// tuples does not depend on the number of processes.
func (r *shuffleReader) permutation() record.Permutation {
	p := record.Permutation{Seed: r.seed, Pass: r.pass, Blocks: append(r.numbers[:0], r.block)}
	if r.shards.Total > 0 {
		p.Blocks = p.Blocks[:0]
		for i := range r.shards.Own() {
			p.Blocks = append(p.Blocks, r.block*uint64(r.shards.Total)+uint64(r.shards.Shard(i)))
		}
	}
	r.numbers = p.Blocks
	return p
}

// ReInit begins a pass, which has its own order.
func (r *shuffleReader) ReInit(pass uint64) error {
	r.DropPeeked()
	r.prefetcher.stop()
	if err := r.source.Begin(pass); err != nil {
		return err
	}
	r.pass, r.block = pass, 0
	return nil
}

// Identity implements readers.Resumable.
func (r *shuffleReader) Identity() (string, []state.Option) {
	return "shuffle", []state.Option{
		{Name: r.shards.OptionOfJob("buffer_size"), Value: int64(r.size) * r.shards.Share(), Optional: true},
		{Name: "seed", Value: r.seed, Optional: true},
	}
}

// Save implements readers.Resumable: the block of the next instance is read and permuted again.
func (r *shuffleReader) Save(p readers.Position, s *readers.Saver) error {
	if cut := r.cut.Load(); cut != nil && cut.pass == p.Pass && cut.block == uint64(p.N/int64(r.size)) {
		return pyfeed.Errorf(pyfeed.State, "shuffle: expected a whole block, found one that an error has cut short, whose order may be "+
			"another one after a restart: go on from the last state that was saved. The error: %v", cut.err)
	}
	return s.SaveBelow(r.source, readers.Position{Pass: p.Pass, N: p.N - p.N%int64(r.size)})
}

// Restore implements readers.Resumable.
func (r *shuffleReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	taken := p.N % int64(r.size)
	r.block = uint64(p.N / int64(r.size))
	return taken, s.RestoreBelow(r.source, readers.Position{Pass: p.Pass, N: p.N - taken})
}

// Spec returns that of the reader below.
func (r *shuffleReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe implements readers.Reader.
func (r *shuffleReader) Describe(s *readers.Stats) {
	s.Reader = "shuffle"
	s.Waited = r.prefetcher.waited().Seconds()
	s.Extra = map[string]any{"buffer_size": r.size, "seed": r.seed}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close releases the reader below.
func (r *shuffleReader) Close() {
	r.DropPeeked()
	r.prefetcher.stop()
	r.gatherer.Pool.Close()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *shuffleReader) Length() int64 { return r.source.Length() }

// Upstreams implements readers.Decorator.
func (r *shuffleReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *shuffleReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget implements readers.Targetable. A batch for a device is copied to memory that the device copies from, so that
// a copy of the block would be one too many.
func (r *shuffleReader) SetTarget(place pyfeed.Place) error {
	if place != pyfeed.CPUPlace() {
		r.gathers.Store(false)
	}
	return r.source.SetTarget(place)
}
