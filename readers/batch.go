package readers

import (
	"cmp"
	"context"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// BatchReader joins tuples to batches: slots whose first dimension is -1 are concatenated along it,
// their LoD merged, others are stacked under a new first dimension.
type BatchReader struct {
	ahead
	under    *ReaderHolder
	spec     *pyfeed.Spec
	size     int
	dropLast bool
	pool     *memory.Pool

	lot     Lot   // what is gathered
	stack   stack // what was gathered before it, where none is concatenated
	end     error // what came after the last instance
	parts   []*pyfeed.Tuple
	offsets []int64
}

func checkBatchSize(size uint64) error {
	if size == 0 || size > 1<<31 {
		return pyfeed.Errorf(pyfeed.Invalid, "batch_size: expected 1 to 2^31 tuples, found %d", size)
	}
	return nil
}

// NewBatchReader takes over a reference to under. The last, smaller batch of a pass is delivered unless
// dropLast; so is one before an error.
func NewBatchReader(under *ReaderHolder, size uint64, dropLast bool) (*BatchReader, error) {
	spec, err := under.Spec().Batched()
	err = cmp.Or(checkBatchSize(size), err)
	if err != nil {
		under.Drop()
		return nil, err
	}
	place, _ := under.target()
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		under.Drop()
		return nil, err
	}
	r := &BatchReader{under: under, spec: spec, size: int(size), dropLast: dropLast, pool: pool}
	r.stack.possible = true
	for i := range spec.Len() {
		r.stack.possible = r.stack.possible && !under.Spec().Slot(i).Grows()
	}
	r.read = single(r.gather)
	return r, nil
}

func (r *BatchReader) gather(ctx context.Context) (*pyfeed.Tuple, error) {
	for r.end == nil && r.stack.n+r.lot.Len() < r.size {
		most := r.size - r.stack.n - r.lot.Len()
		if r.stack.possible { // while they are in the cache
			most = min(most, 64)
		}
		got, err := r.under.readMany(ctx, &r.lot, most)
		if got > 0 && r.stack.takes(&r.lot, r.size, r.pool) {
			r.stack.add(&r.lot, wait.TrackOf(ctx))
			r.lot.drop()
		}
		if err == nil {
			continue
		}
		if !pyfeed.Ends(ctx, err) {
			return nil, err
		}
		r.end = err
	}
	n := r.stack.n + r.lot.Len()
	if n == 0 || n < r.size && r.dropLast {
		r.clear()
		err := r.end
		r.end = nil
		return nil, err
	}
	if r.stack.n > 0 {
		return r.stack.finish()
	}
	if r.lot.sequences() {
		defer r.lot.drop()
		return r.joinSequences(wait.TrackOf(ctx))
	}
	r.parts = slices.Grow(r.parts[:0], n)[:n]
	r.lot.take(r.parts)
	defer pyfeed.ReleaseAll(r.parts)
	return r.join(r.parts, wait.TrackOf(ctx))
}

func (r *BatchReader) clear() {
	r.lot.drop()
	r.stack.drop()
}

// joinSequences joins sequences of bytes, whose sizes are the LoD of the batch.
func (r *BatchReader) joinSequences(track trace.Track) (*pyfeed.Tuple, error) {
	l := &r.lot
	r.offsets = append(r.offsets[:0], 0)
	total := 0
	for _, it := range l.items {
		total += l.rows[it.of].bytes(int(it.number))
		r.offsets = append(r.offsets, int64(total))
	}
	first, pass := l.like(0)
	batch := pyfeed.NewTuple(1)
	batch.Pass = pass
	s := &batch.Slots[0]
	s.DType, s.Place, s.LoD = first.Slots[0].DType, first.Slots[0].Place, append(s.LoD, r.offsets)
	_ = s.SetDims(pyfeed.Dims{int64(total)}) // one is not too many
	_, err := s.Measure()
	if err == nil {
		err = batch.Allocate(r.pool)
	}
	if err != nil {
		batch.Release()
		return nil, err
	}
	start := trace.Begin()
	err = share(len(l.items), total, func(first, end int) error {
		to := s.Data[r.offsets[first]:]
		for _, it := range l.items[first:end] {
			data := l.rows[it.of].data(0, int(it.number))
			pyfeed.Copy(to, data)
			to = to[len(data):]
		}
		return nil
	})
	trace.CopySince(track, "batch", start, total)
	if err = cmp.Or(err, l.intact()); err != nil {
		batch.Release()
		return nil, err
	}
	return batch, nil
}

func (r *BatchReader) join(parts []*pyfeed.Tuple, track trace.Track) (*pyfeed.Tuple, error) {
	spec, first := r.under.Spec(), parts[0]
	batch := pyfeed.NewTuple(len(first.Slots))
	batch.Pass = first.Pass
	for i := range batch.Slots {
		if err := shape(&batch.Slots[i], parts, i, spec.Slot(i).Grows()); err != nil {
			batch.Release()
			return nil, err
		}
	}
	if err := batch.Allocate(r.pool); err != nil {
		batch.Release()
		return nil, err
	}
	start, bytes := trace.Begin(), 0
	for i := range batch.Slots {
		to := batch.Slots[i].Data
		bytes += len(to)
		err := share(len(parts), len(to), func(first, end int) error {
			at := 0
			for _, t := range parts[:first] {
				at += len(t.Slots[i].Data)
			}
			for _, t := range parts[first:end] {
				from := &t.Slots[i]
				pyfeed.Copy(to[at:], from.Data)
				at += len(from.Data)
				if err := from.Intact(i); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			batch.Release()
			return nil, err
		}
	}
	trace.CopySince(track, "batch", start, bytes)
	return batch, nil
}

// shape works out the dtype, dims and LoD of the batch's i-th slot.
func shape(out *pyfeed.LoDTensor, parts []*pyfeed.Tuple, i int, grows bool) error {
	first := &parts[0].Slots[i]
	out.DType, out.Place = first.DType, first.Place
	var room [pyfeed.MaxRank]int64
	dims := pyfeed.Dims(room[:0])
	inner := first.Dims() // what all parts have in common
	if grows {
		inner = inner[1:]
		dims = append(dims, 0)
	} else {
		dims = append(dims, int64(len(parts)))
	}
	dims = append(dims, inner...)
	for k, t := range parts {
		s := &t.Slots[i]
		found := s.Dims()
		if s.DType != first.DType || len(found) != len(first.Dims()) || len(s.LoD) != len(first.LoD) {
			return mismatch(i, k, s, first)
		}
		if grows {
			dims[0] += found[0]
			found = found[1:]
		}
		if !slices.Equal(found, inner) {
			return mismatch(i, k, s, first)
		}
	}
	for l := range first.LoD {
		out.LoD = append(out.LoD, merge(parts, i, l))
	}
	if err := out.SetDims(dims); err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
	}
	if _, err := out.Measure(); err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
	}
	return nil
}

func mismatch(slot, k int, found, expected *pyfeed.LoDTensor) error {
	return mismatched(slot, k, found, expected.DType, expected.Dims())
}

func mismatched(slot, k int, found *pyfeed.LoDTensor, dtype pyfeed.DType, dims pyfeed.Dims) error {
	return pyfeed.SlotErrorf(pyfeed.Shape, slot, "tuple %d of a batch: expected %v %v as in tuple 0, found %v %v",
		k, dtype, dims, found.DType, found.Dims())
}

// merge appends the offsets of one level of all parts, each shifted by what comes before it.
func merge(parts []*pyfeed.Tuple, slot, level int) []int64 {
	n := 1
	for _, t := range parts {
		n += len(t.Slots[slot].LoD[level]) - 1
	}
	merged := make([]int64, 1, n)
	for _, t := range parts {
		shift := merged[len(merged)-1]
		for _, offset := range t.Slots[slot].LoD[level][1:] {
			merged = append(merged, shift+offset)
		}
	}
	return merged
}

// ReInit drops what is gathered and starts the reader below over.
func (r *BatchReader) ReInit(pass uint64) error {
	if err := r.under.Begin(pass); err != nil {
		return err
	}
	r.drop()
	r.clear()
	r.end = nil
	return nil
}

// Spec is that of the batches.
func (r *BatchReader) Spec() *pyfeed.Spec { return r.spec }

// Describe names it.
func (r *BatchReader) Describe(s *Stats) {
	s.Reader = "batch"
	s.Extra = map[string]any{"batch_size": r.size, "drop_last": r.dropLast}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below and of the memory kept for batches.
func (r *BatchReader) Close() {
	r.drop()
	r.clear()
	r.pool.Close()
	r.under.Drop()
}
