package decorators

import (
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// growingBatch is a large batch with concatenated slots. It grows by pieces, smaller batches of the instances read so
// far, so that those instances can be released. Each slot has memory of its own. To grow, its pages are remapped to a
// larger address range instead of being copied.
type growingBatch struct {
	batch *pyfeed.Tuple // nil before the first piece; its slots have spare room for more rows
	pool  *memory.Pool
	n     int       // instances
	bytes int       // of those instances
	rows  []int     // of each slot
	lod   [][]level // of each slot
	err   error     // why the batch cannot be built
}

// level has the offsets of one LoD level (level of detail).
type level []int64

const (
	minGrowing = maxAllocated // bytes; a smaller batch is gathered whole
	growPiece  = 4 << 20      // bytes of a piece, which is in the processor's cache when it is copied to the batch
)

// enoughForPiece reports whether instances of that many bytes are enough for a piece.
func (b *growingBatch) enoughForPiece(bytes int) bool {
	if b.n == 0 {
		return bytes >= minGrowing
	}
	return bytes >= growPiece
}

// add appends a piece to the batch and releases the piece.
func (b *growingBatch) add(piece *pyfeed.Tuple, pool *memory.Pool) {
	defer piece.Release()
	if b.batch == nil {
		b.begin(piece, pool)
	}
	for i := range piece.Slots {
		if b.err == nil {
			b.err = b.append(i, &piece.Slots[i])
		}
	}
}

// begin makes an empty batch with the dtypes and dims of the first piece.
func (b *growingBatch) begin(piece *pyfeed.Tuple, pool *memory.Pool) {
	b.pool = pool
	b.batch = pyfeed.NewTuple(len(piece.Slots))
	b.batch.Pass, b.batch.From = piece.Pass, piece.From
	b.rows, b.lod = make([]int, len(piece.Slots)), make([][]level, len(piece.Slots))
	for i := range piece.Slots {
		from, to := &piece.Slots[i], &b.batch.Slots[i]
		to.DType, to.Place = from.DType, from.Place
		_ = to.SetDims(from.Dims())
		b.lod[i] = make([]level, len(from.LoD))
		for j := range b.lod[i] {
			b.lod[i][j] = level{0}
		}
	}
}

// fits returns an error if the first tuple of a piece does not match the batch. The other tuples are compared with that
// one.
func (b *growingBatch) fits(t *pyfeed.Tuple, spec *pyfeed.Spec) error {
	if b.batch == nil {
		return nil
	}
	for i := range t.Slots {
		found, want := &t.Slots[i], &b.batch.Slots[i]
		inner, dims := found.Dims(), want.Dims()[1:]
		if spec.Grows(i) {
			inner, dims = inner[min(len(inner), 1):], append(pyfeed.Dims{-1}, dims...)
		}
		if found.DType != want.DType || len(found.Dims()) != len(dims) || len(found.LoD) != len(b.lod[i]) ||
			!slices.Equal(inner, want.Dims()[1:]) {
			return mismatchError(i, b.n, found, want.DType, dims, t.From)
		}
	}
	return nil
}

func (b *growingBatch) append(i int, from *pyfeed.LoDTensor) error {
	to := &b.batch.Slots[i]
	before, more := b.rows[i], int(from.Dims()[0])
	if room := int(to.Dims()[0]); before == 0 || before+more > room {
		if err := to.Extend(max(2*before, before+more, 1), before, b.pool); err != nil {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
	}
	size := len(to.Data) / int(to.Dims()[0])
	_ = parallelCopy(more, len(from.Data), func(first, end int) error {
		pyfeed.Copy(to.Data[(before+first)*size:], from.Data[first*size:end*size])
		return nil
	})
	for j, offsets := range from.LoD {
		all := b.lod[i][j]
		shift := all[len(all)-1]
		for _, offset := range offsets[1:] {
			all = append(all, shift+offset)
		}
		b.lod[i][j] = all
	}
	b.rows[i] += more
	return nil
}

// finish returns the batch, which the caller owns.
func (b *growingBatch) finish() (*pyfeed.Tuple, error) {
	for i := range b.rows {
		if b.err == nil {
			lod := make(pyfeed.LoD, len(b.lod[i]))
			for j := range lod {
				lod[j] = b.lod[i][j]
			}
			b.err = b.batch.Slots[i].Complete(b.rows[i], lod, b.pool)
		}
	}
	if b.err != nil {
		err := b.err
		b.drop()
		return nil, err
	}
	batch := b.batch
	batch.From = batch.From.Batch(b.n)
	*b = growingBatch{}
	return batch, nil
}

func (b *growingBatch) drop() {
	if b.batch != nil {
		b.batch.Release()
	}
	*b = growingBatch{}
}
