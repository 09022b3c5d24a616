package decorators

import (
	"cmp"
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/state"
)

// splitBatchesReader delivers one part of each batch: the tuples from rank*size/world on, size/world of them. All processes
// of a job are at the same position after the same number of batches. Therefore a state contains neither rank nor world.
type splitBatchesReader struct {
	readers.PeekBuffer
	source  *readers.Upstream
	batches readers.Divisible
	part    readers.Part
}

// NewSplitBatchesReader takes over a reference to source, which MUST be a reader of batches. even says what happens to a
// batch that is smaller than the others: see [readers.Even].
func NewSplitBatchesReader(source *readers.ReaderHolder, rank, world uint64, even readers.Even) (readers.Reader, error) {
	batches, is := readers.Capability[readers.Divisible](source)
	err := cmp.Or(CheckPart("split_batches", rank, world, even), source.CheckUndivided("split_batches"))
	if err == nil && !is {
		err = pyfeed.Errorf(pyfeed.Invalid, "split_batches: expected a reader that batch has made, found one of kind %q: call "+
			"split_batches directly after batch, or divide the source by its rank", source.Stats().Reader)
	}
	if err == nil && uint64(batches.BatchSize())%world != 0 {
		err = pyfeed.Errorf(pyfeed.Invalid, "split_batches: expected a world that divides the batch_size %d, found %d", batches.BatchSize(), world)
	}
	if err != nil {
		source.Drop()
		return nil, err
	}
	r := &splitBatchesReader{source: readers.NewUpstream(source), batches: batches, part: readers.Part{Rank: int(rank), World: int(world), Even: even}}
	r.Read = readers.FromFunc(func(ctx context.Context) (*pyfeed.Tuple, error) { return r.source.ReadPart(ctx, r.part) })
	return r, nil
}

// ReadPending implements readers.Deferred.
func (r *splitBatchesReader) ReadPending(ctx context.Context) (readers.Pending, error) {
	if t, err := r.TakePeeked(); t != nil || err != nil {
		return finished{t}, err
	}
	return r.source.ReadPendingPart(ctx, r.part)
}

// ReInit resets the reader below.
func (r *splitBatchesReader) ReInit(pass uint64) error {
	r.DropPeeked()
	return r.source.Begin(pass)
}

// Identity implements readers.Resumable.
func (r *splitBatchesReader) Identity() (string, []state.Option) {
	return "split_batches", []state.Option{{Name: "even", Value: string(r.part.Even), Optional: true}}
}

// Save implements readers.Resumable.
func (r *splitBatchesReader) Save(p readers.Position, s *readers.Saver) error {
	return s.SaveBelow(r.source, p)
}

// Restore implements readers.Resumable.
func (r *splitBatchesReader) Restore(p readers.Position, s *readers.Restorer) (int64, error) {
	return 0, s.RestoreBelow(r.source, p)
}

// Spec returns that of the batches.
func (r *splitBatchesReader) Spec() *pyfeed.Spec { return r.source.Spec() }

// Describe implements readers.Reader.
func (r *splitBatchesReader) Describe(s *readers.Stats) {
	s.Reader = "split_batches"
	s.Extra = map[string]any{"rank": r.part.Rank, "world": r.part.World, "even": string(r.part.Even)}
	s.Below = []readers.Stats{r.source.Stats()}
}

// Close releases the reader below.
func (r *splitBatchesReader) Close() {
	r.DropPeeked()
	r.source.Drop()
}

// Length implements readers.Sized.
func (r *splitBatchesReader) Length() int64 { return r.batches.PartLength(r.part) }

// Upstreams implements readers.Decorator.
func (r *splitBatchesReader) Upstreams() []*readers.Upstream { return []*readers.Upstream{r.source} }

// OutputPlace implements readers.Placed.
func (r *splitBatchesReader) OutputPlace() (pyfeed.Place, bool) { return r.source.OutputPlace() }

// SetTarget implements readers.Targetable.
func (r *splitBatchesReader) SetTarget(place pyfeed.Place) error { return r.source.SetTarget(place) }
