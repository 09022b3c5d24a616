package decorators

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
)

// batchReader joins tuples to batches: slots whose first dimension is -1 are concatenated along it,
// their LoD merged, others are stacked under a new first dimension.
type batchReader struct {
	readers.Lookahead
	source   *readers.Upstream
	spec     *pyfeed.Spec
	size     int
	dropLast bool
	ragged   bool
	pool     *memory.Pool
	stacks   bool // no slot is concatenated
	even     bool // the slots of an instance MUST add the same number of rows to a batch
	toDevice bool // batches are meant for a device, in memory that it copies from

	building *batchBuilder // the batch to which more instances are to come
	end      error         // what came after the last instance

	mu    sync.Mutex
	spare []*batchBuilder

	failed, failedBytes atomic.Int64 // batches that were delivered as pending, and counted, and could not be finished
}

// CheckBatchSize refuses sizes of batches that are not possible.
func CheckBatchSize(size uint64) error {
	if size == 0 || size > 1<<31 {
		return pyfeed.Errorf(pyfeed.Invalid, "batch_size: expected 1 to 2^31 tuples, found %d", size)
	}
	return nil
}

// NewBatchReader takes over a reference to source. The last, smaller batch of a pass is delivered unless
// dropLast; so is one before an error. Instances whose slots would add different numbers of rows to a batch are refused
// unless ragged.
func NewBatchReader(source *readers.ReaderHolder, size uint64, dropLast, ragged bool) (readers.Reader, error) {
	spec, err := source.Spec().Batched()
	err = cmp.Or(CheckBatchSize(size), err)
	if err != nil {
		source.Drop()
		return nil, err
	}
	place, _ := source.OutputPlace()
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		source.Drop()
		return nil, err
	}
	r := &batchReader{source: readers.NewUpstream(source), spec: spec, size: int(size), dropLast: dropLast, ragged: ragged, pool: pool, stacks: true, toDevice: place != pyfeed.CPUPlace()}
	for i := range spec.Len() {
		r.stacks = r.stacks && !source.Spec().Slot(i).Grows()
	}
	r.even = !ragged && !r.stacks && spec.Len() > 1
	r.Read = readers.FromFunc(func(ctx context.Context) (*pyfeed.Tuple, error) {
		b, err := r.gather(ctx)
		if err != nil {
			return nil, err
		}
		return b.build(wait.TrackOf(ctx))
	})
	return r, nil
}

// copyEvery is how many instances are gathered before they are copied, while they are in the cache.
const copyEvery = 64

// gather reads the instances of the next batch. Those of large batches are copied as they come.
func (r *batchReader) gather(ctx context.Context) (*batchBuilder, error) {
	b := r.building
	if b == nil {
		b = r.newBuilder()
		r.building = b
	}
	var slice wait.TimeSlice
	for r.end == nil && b.len() < r.size {
		most := r.size - b.len()
		if r.stacks {
			most = min(most, copyEvery)
		}
		before := b.chunk.Bytes()
		_, err := r.source.ReadInto(ctx, &b.chunk, most)
		bytes := b.chunk.Bytes() - before
		if b.chunk.Len() >= copyEvery {
			b.flush(wait.TrackOf(ctx))
		}
		if !r.stacks && !r.pool.Pinned() && b.growing.wants(b.chunk.Bytes()) {
			b.grow(wait.TrackOf(ctx))
		}
		switch {
		case err != nil && !pyfeed.IsFinal(ctx, err):
			return nil, err
		case err != nil:
			r.end = err
		case b.len() < r.size && slice.Expired(ctx, bytes):
			return nil, wait.ErrWouldBlock
		}
	}
	if n := b.len(); n == 0 || n < r.size && r.dropLast {
		r.dropBuilding()
		err := r.end
		r.end = nil
		return nil, err
	}
	r.building = nil
	return b, nil
}

// ReadPending is readers.Deferred's.
func (r *batchReader) ReadPending(ctx context.Context) (readers.Pending, error) {
	if batch := r.TakeAhead(); batch != nil {
		b := r.newBuilder()
		b.finished = batch
		return b, nil
	}
	b, err := r.gather(ctx)
	if err != nil {
		return nil, err
	}
	return b, nil
}

func (r *batchReader) newBuilder() *batchBuilder {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.spare); n > 0 {
		b := r.spare[n-1]
		r.spare = r.spare[:n-1]
		return b
	}
	return &batchBuilder{reader: r}
}

func (r *batchReader) dropBuilding() {
	if r.building != nil {
		r.building.drop()
		r.building = nil
	}
}

// ReInit drops what is gathered and starts the reader below over.
func (r *batchReader) ReInit(pass uint64) error {
	if err := r.source.Begin(pass); err != nil {
		return err
	}
	r.DropAhead()
	r.dropBuilding()
	r.end = nil
	return nil
}

// Spec is that of the batches.
func (r *batchReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it.
func (r *batchReader) Describe(s *readers.Stats) {
	s.Reader = "batch"
	s.Tuples -= r.failed.Load()
	s.Bytes -= r.failedBytes.Load()
	s.Extra = map[string]any{"batch_size": r.size, "drop_last": r.dropLast}
	if r.ragged {
		s.Extra["ragged"] = true
	}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close lets go of the reader below and of the memory kept for batches.
func (r *batchReader) Close() {
	r.DropAhead()
	r.dropBuilding()
	r.pool.Close()
	r.source.Drop()
}

// Upstreams is readers.Decorator's.
func (r *batchReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace is readers.Placed's.
func (r *batchReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget has batches written where the device copies them from.
func (r *batchReader) SetTarget(place pyfeed.Place) error {
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		return err
	}
	r.pool.Close()
	r.pool, r.toDevice = pool, place != pyfeed.CPUPlace()
	return nil
}
