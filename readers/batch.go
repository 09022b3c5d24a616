package readers

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
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

	parts []*pyfeed.Tuple // of the batch that is being gathered
	end   error           // what came after the last tuple
}

// NewBatchReader takes over a reference to under. The last, smaller batch of a pass is delivered unless
// dropLast; so is one before an error.
func NewBatchReader(under *ReaderHolder, size uint64, dropLast bool) (*BatchReader, error) {
	spec, err := under.Spec().Batched()
	if size == 0 || size > 1<<31 {
		err = pyfeed.Errorf(pyfeed.Invalid, "batch_size: expected 1 to 2^31 tuples, found %d", size)
	}
	if err != nil {
		under.Drop()
		return nil, err
	}
	r := &BatchReader{under: under, spec: spec, size: int(size), dropLast: dropLast, pool: memory.NewPool(memory.Batch)}
	r.read = r.gather
	return r, nil
}

func (r *BatchReader) gather(ctx context.Context) (*pyfeed.Tuple, error) {
	for r.end == nil && len(r.parts) < r.size {
		t, err := r.under.ReadNext(ctx)
		if err == nil {
			r.parts = append(r.parts, t)
			continue
		}
		if !ends(err) {
			return nil, err
		}
		r.end = err
	}
	if len(r.parts) == 0 || len(r.parts) < r.size && r.dropLast {
		r.dropParts()
		err := r.end
		r.end = nil
		return nil, err
	}
	defer r.dropParts()
	return r.join()
}

// ends tells the end of a pass from a wait that goes on later.
func ends(err error) bool {
	if err == io.EOF {
		return true
	}
	_, failed := err.(*pyfeed.ProducerError)
	return failed
}

func (r *BatchReader) dropParts() {
	for i, t := range r.parts {
		t.Release()
		r.parts[i] = nil
	}
	r.parts = r.parts[:0]
}

func (r *BatchReader) join() (*pyfeed.Tuple, error) {
	spec, first := r.under.Spec(), r.parts[0]
	batch := pyfeed.NewTuple(len(first.Slots))
	for i := range batch.Slots {
		if err := r.shape(&batch.Slots[i], i, spec.Slot(i).Grows()); err != nil {
			batch.Release()
			return nil, err
		}
	}
	if err := batch.Allocate(r.pool); err != nil {
		batch.Release()
		return nil, err
	}
	for i := range batch.Slots {
		to := batch.Slots[i].Data
		for _, t := range r.parts {
			from := t.Slots[i].Data
			pyfeed.Copy(to, from)
			to = to[len(from):]
		}
	}
	return batch, nil
}

// shape works out the dtype, dims and LoD of the batch's i-th slot.
func (r *BatchReader) shape(out *pyfeed.LoDTensor, i int, grows bool) error {
	first := &r.parts[0].Slots[i]
	out.DType, out.Place = first.DType, first.Place
	dims := make(pyfeed.Dims, 0, pyfeed.MaxRank)
	if grows {
		dims = append(dims, 0)
		dims = append(dims, first.Dims()[1:]...)
	} else {
		dims = append(dims, int64(len(r.parts)))
		dims = append(dims, first.Dims()...)
	}
	for k, t := range r.parts {
		s := &t.Slots[i]
		if s.DType != first.DType || len(s.Dims()) != len(first.Dims()) || len(s.LoD) != len(first.LoD) {
			return mismatch(i, k, s, first)
		}
		for j, d := range s.Dims() {
			if (!grows || j > 0) && d != first.Dims()[j] {
				return mismatch(i, k, s, first)
			}
		}
		if grows {
			dims[0] += s.Dims()[0]
		}
	}
	for l := range first.LoD {
		out.LoD = append(out.LoD, r.merge(i, l))
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
	return pyfeed.SlotErrorf(pyfeed.Shape, slot, "tuple %d of a batch: expected %v %v as in tuple 0, found %v %v",
		k, expected.DType, expected.Dims(), found.DType, found.Dims())
}

// merge appends the offsets of one level of all parts, each shifted by what comes before it.
func (r *BatchReader) merge(slot, level int) []int64 {
	merged := []int64{0}
	for _, t := range r.parts {
		shift := merged[len(merged)-1]
		for _, offset := range t.Slots[slot].LoD[level][1:] {
			merged = append(merged, shift+offset)
		}
	}
	return merged
}

// ReInit drops what is gathered and starts the reader below over.
func (r *BatchReader) ReInit() error {
	if err := r.under.ReInit(); err != nil {
		return err
	}
	r.drop()
	r.dropParts()
	r.end = nil
	return nil
}

// Spec is that of the batches.
func (r *BatchReader) Spec() *pyfeed.Spec { return r.spec }

// Close lets go of the reader below and of the memory kept for batches.
func (r *BatchReader) Close() {
	r.drop()
	r.dropParts()
	r.pool.Close()
	r.under.Drop()
}
