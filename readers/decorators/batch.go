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
	"github.com/pyfeed/pyfeed/readers/state"
)

// batchReader joins tuples to batches. Slots whose first dimension is -1 are concatenated along it, and their LoDs
// (level of detail: ragged offsets) are merged. Other slots are stacked along a new first dimension.
type batchReader struct {
	readers.PeekBuffer
	source           *readers.Upstream
	spec             *pyfeed.Spec
	size             int
	dropLast         bool
	ragged           bool
	pool             *memory.Pool
	stacksAll        bool // no slot is concatenated
	requireEqualRows bool // every slot of an instance has to add the same number of rows to a batch
	toDevice         bool // batches are written to memory that a device copies from

	grid     batchGrid
	building *batchBuilder // the batch that instances are being gathered for
	inBlocks bool          // the last instances were in Blocks
	end      error         // the error or end after the last instance

	mu      sync.Mutex
	spare   []*batchBuilder
	failure error // of a damaged record, behind the last batch of the pass

	failed, failedBytes atomic.Int64 // batches that were counted as delivered while pending, and could not be finished
}

// CheckBatchSize returns an error if a batch cannot have that size.
func CheckBatchSize(size uint64) error {
	if size == 0 || size > 1<<31 {
		return pyfeed.Errorf(pyfeed.Invalid, "batch_size: expected 1 to 2^31 tuples, found %d", size)
	}
	return nil
}

// NewBatchReader takes over a reference to source. The last batch before the end of a pass or an error may be smaller;
// it is delivered unless dropLast is set. If the slots of an instance would add different numbers of rows to a batch,
// that is an error unless ragged is set.
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
	r := &batchReader{source: readers.NewUpstream(source), spec: spec, size: int(size), grid: batchGrid{size: int64(size)}, dropLast: dropLast, ragged: ragged, pool: pool, stacksAll: stacksAll(source.Spec()), toDevice: place != pyfeed.CPUPlace()}
	r.requireEqualRows = !ragged && !r.stacksAll && spec.Len() > 1
	r.Read = readers.FromFunc(func(ctx context.Context) (*pyfeed.Tuple, error) { return r.read(ctx, nil) })
	return r, nil
}

// stacksAll reports whether a batch of such instances stacks all slots and concatenates none.
func stacksAll(spec *pyfeed.Spec) bool {
	for i := range spec.Len() {
		if spec.Slot(i).Grows() {
			return false
		}
	}
	return true
}

// read returns the next batch, or a part of it.
func (r *batchReader) read(ctx context.Context, part *readers.Part) (*pyfeed.Tuple, error) {
	b, err := r.gather(ctx, part)
	if err != nil {
		return nil, err
	}
	t, err := b.build(wait.TrackOf(ctx))
	switch {
	case t != nil:
		return t, nil // the next read returns an error that came with it
	case r.damage() == nil:
		r.grid.failed()
	}
	return nil, err
}

// damage returns the error of a damaged record, behind which nothing is delivered in this pass.
func (r *batchReader) damage() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

// setDamage ends the pass because of a damaged record. Batches before that record may still be built.
func (r *batchReader) setDamage(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failure = err
}

// Instances are gathered and then copied, so that a large batch does not keep the memory of all of them. Tuples are
// copied while they are in the processor's cache. Instances of Blocks are mostly not there, and many are gathered, so
// that several threads can copy them.
const (
	copyEvery  = 64      // tuples; the number was not measured separately
	blocksEach = 4096    // instances of Blocks
	blockBytes = 1 << 20 // of instances of Blocks, from which they are copied even if they are fewer
)

// gather reads the instances of the next batch. They are copied as they arrive, unless a part of them is wanted: which of
// them belong to it is only known when the batch is complete. part is nil if the whole batch is wanted.
func (r *batchReader) gather(ctx context.Context, part *readers.Part) (*batchBuilder, error) {
	if err := r.damage(); err != nil {
		return nil, err
	}
	b := r.building
	if b == nil {
		b = r.newBuilder()
		r.building, b.size = b, r.size
	}
	copyNow := part == nil
	growsInPieces := copyNow && !r.stacksAll && !r.pool.Pinned() // pinned pages cannot move
	var slice wait.TimeSlice
	for r.end == nil && b.len() < r.size {
		limit := r.size - b.len()
		switch {
		case !copyNow || !r.stacksAll:
		case r.inBlocks:
			limit = min(limit, blocksEach)
		default:
			limit = min(limit, copyEvery)
		}
		before := b.chunk.Checkpoint()
		_, err := r.source.ReadInto(ctx, &b.chunk, limit)
		if b.chunk.Len() > 0 {
			r.grid.passLeftOut()
		}
		if part != nil {
			b.damage = b.chunk.Verify(before, nil) // all ranks of a job find the same damage
		}
		if b.chunk.Len() > 0 {
			r.inBlocks = b.chunk.MostlyBlocks()
		}
		if copyNow && b.enoughToCopy() && !b.isView() {
			b.flush(wait.TrackOf(ctx))
		}
		if growsInPieces && b.growing.enoughForPiece(b.chunk.Bytes()) {
			b.grow(wait.TrackOf(ctx))
		}
		switch {
		case b.damage != nil: // like an error from below, at this place
			r.end, b.damage = b.damage, nil
			r.setDamage(r.end)
		case err != nil && !pyfeed.IsFinal(ctx, err):
			return nil, err
		case err != nil:
			r.end = err
		case b.len() < r.size && slice.Expired(ctx):
			return nil, wait.ErrWouldBlock
		}
	}
	n := b.len()
	if n == 0 || n < r.size && r.dropLast || part != nil && part.Len(n) == 0 {
		r.grid.leaveOut(n)
		r.dropBuilding()
		err := r.end
		r.end = nil
		return nil, err
	}
	b.begin = r.grid.took(n)
	if n < r.size {
		r.grid.align()
	}
	r.building = nil
	if part != nil {
		b.keepPart(*part)
	}
	return b, nil
}

// BatchSize implements readers.Divisible.
func (r *batchReader) BatchSize() int { return r.size }

// ReadPart implements readers.Divisible.
func (r *batchReader) ReadPart(ctx context.Context, p readers.Part) (*pyfeed.Tuple, error) {
	if err := r.checkDivisible(); err != nil {
		return nil, err
	}
	return r.read(ctx, &p)
}

// ReadPendingPart implements readers.Divisible.
func (r *batchReader) ReadPendingPart(ctx context.Context, p readers.Part) (readers.Pending, error) {
	if err := r.checkDivisible(); err != nil {
		return nil, err
	}
	b, err := r.gather(ctx, &p)
	if err != nil {
		return nil, err
	}
	return b, nil
}

// checkDivisible returns an error if the next batch was copied, at least partly, for another consumer.
func (r *batchReader) checkDivisible() error {
	if r.HasPeeked() || r.building != nil && r.building.len() > r.building.chunk.Len() {
		return pyfeed.Errorf(pyfeed.State, "expected the batches below split_batches to be read by it only, found one that another "+
			"consumer has begun to read: read only from split_batches, or from readers above it")
	}
	return nil
}

// ReadPending implements readers.Deferred.
func (r *batchReader) ReadPending(ctx context.Context) (readers.Pending, error) {
	if batch, err := r.TakePeeked(); batch != nil || err != nil {
		return finished{batch}, err
	}
	b, err := r.gather(ctx, nil)
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

// ReInit drops the gathered instances and resets the reader below.
func (r *batchReader) ReInit(pass uint64) error {
	if err := r.source.Begin(pass); err != nil {
		return err
	}
	r.DropPeeked()
	r.dropBuilding()
	r.end = nil
	r.setDamage(nil)
	r.grid.begin(pass)
	return nil
}

// Identity implements readers.Resumable.
func (r *batchReader) Identity() (string, []state.Option) {
	shards := r.source.VirtualShards()
	return "batch", []state.Option{
		{Name: shards.OptionOfJob("batch_size"), Value: int64(r.size) * shards.Share()},
		{Name: "drop_last", Value: r.dropLast, Optional: true},
		{Name: "ragged", Value: r.ragged, Optional: true},
	}
}

// Save implements readers.Resumable.
func (r *batchReader) Save(p readers.Position, s *readers.Saver) error {
	below, from, err := r.grid.locate(p)
	if err != nil {
		return err
	}
	if from.batch > 0 || from.instance > 0 {
		from.instance *= r.source.VirtualShards().Share()
		s.SetAt(from.appendState(nil))
	}
	return s.SaveBelow(r.source, below)
}

// Restore implements readers.Resumable.
func (r *batchReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	var is batchState
	if _, err := s.At(&is); err != nil {
		return 0, err
	}
	var err error
	if is.Instance, err = r.source.VirtualShards().OfProcess(is.Instance); err != nil {
		return 0, err
	}
	below, err := r.grid.restore(p, is)
	if err != nil {
		return 0, err
	}
	return 0, s.RestoreBelow(r.source, below)
}

// Spec returns that of the batches.
func (r *batchReader) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
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

// Close releases the reader below and the memory for batches.
func (r *batchReader) Close() {
	r.DropPeeked()
	r.dropBuilding()
	r.pool.Close()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *batchReader) Length() int64 {
	return r.PartLength(readers.Part{World: 1, Even: readers.EvenDrop})
}

// PartLength implements readers.Divisible.
func (r *batchReader) PartLength(p readers.Part) int64 {
	n := r.source.Length()
	if n == readers.Unknown || n == readers.Endless {
		return n
	}
	batches := n / int64(r.size)
	if !r.dropLast && p.Len(int(n%int64(r.size))) > 0 {
		batches++
	}
	return batches
}

// Upstreams implements readers.Decorator.
func (r *batchReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *batchReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget makes later batches be written to memory that the device copies from.
func (r *batchReader) SetTarget(place pyfeed.Place) error {
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		return err
	}
	r.pool.Close()
	r.pool, r.toDevice = pool, place != pyfeed.CPUPlace()
	return nil
}
