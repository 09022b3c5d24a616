package decorators

import (
	"cmp"
	"errors"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// batchBuilder builds one batch. Once all instances are gathered it belongs to the thread that finishes the batch,
// while the reader gathers the next one with another builder.
type batchBuilder struct {
	reader  *batchReader
	chunk   record.Chunk // instances that are not copied yet
	stacked stackedBatch // earlier instances, if no slot is concatenated
	growing growingBatch // earlier instances of a large batch, if some slots are concatenated
	size    int          // instances of the whole batch, or of the part that is wanted
	isPart  bool         // the instances are a part of those of the batch
	partErr error        // why the part cannot be built
	begin   batchBreak   // where the batch begins
	damage  error        // of a record: the batch ends before it, and no other batch follows
	intact  int          // instances before that record
	tuples  []*pyfeed.Tuple
	offsets []int64
}

// len returns the number of instances.
func (b *batchBuilder) len() int { return b.stacked.n + b.growing.n + b.chunk.Len() }

// finished is a readers.Pending whose tuple has its bytes already.
type finished struct{ tuple *pyfeed.Tuple }

// Size implements readers.Pending.
func (f finished) Size() (bytes int, pass int64) { return f.tuple.Size(), f.tuple.Pass }

// Finish implements readers.Pending.
func (f finished) Finish(trace.Track) (*pyfeed.Tuple, error) { return f.tuple, nil }

// Size implements readers.Pending.
func (b *batchBuilder) Size() (bytes int, pass int64) {
	switch {
	case b.stacked.batch != nil:
		return b.stacked.bytes + b.chunk.Bytes(), b.stacked.batch.Pass
	case b.growing.batch != nil:
		return b.growing.bytes + b.chunk.Bytes(), b.growing.batch.Pass
	}
	if b.chunk.Len() == 0 { // the batch could not be built
		return 0, 0
	}
	_, pass = b.chunk.PeekSpec(0)
	return b.chunk.Bytes(), pass
}

// Finish implements readers.Pending.
func (b *batchBuilder) Finish(track trace.Track) (*pyfeed.Tuple, error) {
	r := b.reader
	bytes, _ := b.Size()
	batch, err := b.build(track)
	switch {
	case batch == nil:
		r.failed.Add(1)
		r.failedBytes.Add(int64(bytes))
	case err != nil:
		r.failedBytes.Add(int64(bytes - batch.Size()))
	}
	return batch, err
}

// build makes the batch and returns the builder to the reader. If a record is damaged, build returns a batch of the
// instances before it, if there are any and no batch may be smaller, and the error.
func (b *batchBuilder) build(track trace.Track) (*pyfeed.Tuple, error) {
	defer b.drop()
	batch, err := b.assemble(track)
	if b.damage == nil {
		return batch, err
	}
	if batch != nil && b.reader.dropLast {
		batch.Release()
		batch = nil
	}
	b.reader.setDamage(b.damage)
	end := b.begin
	if batch != nil {
		end.batch++
		end.instance += int64(b.intact)
	}
	b.reader.grid.cut(end)
	return batch, b.damage
}

// assemble makes the batch.
func (b *batchBuilder) assemble(track trace.Track) (*pyfeed.Tuple, error) {
	switch {
	case b.partErr != nil:
		return nil, b.partErr
	case b.growing.n > 0:
		if b.chunk.Len() > 0 {
			b.grow(track)
		}
		return b.growing.finish()
	case b.isView():
		return b.takeMemory(b.chunk.TakeView)
	case b.ownsMemory():
		return b.takeMemory(func(batch *pyfeed.Tuple) { batch.Slots[0].Hold(b.chunk.TakeBuffer()) })
	case b.chunk.Len() == 0 || b.flush(track):
		return b.stacked.finish()
	}
	return b.joinChunk(track)
}

// enoughToCopy reports whether the instances of the chunk are to be copied before more are gathered.
func (b *batchBuilder) enoughToCopy() bool {
	n := b.chunk.Len()
	many := n >= blocksEach || b.chunk.Bytes() >= blockBytes
	return n >= copyEvery && (many || !b.chunk.MostlyBlocks())
}

// flush copies the instances of the chunk into the stacked batch. It returns false, and leaves them in the chunk, if it
// cannot.
func (b *batchBuilder) flush(track trace.Track) bool {
	if !b.reader.stacksAll || !b.stacked.takes(&b.chunk, b.size, b.reader.pool) {
		return false
	}
	b.stacked.add(&b.chunk, track)
	b.chunk.Release()
	return true
}

// grow copies the instances of the chunk into the growing batch, up to a damaged one.
func (b *batchBuilder) grow(track trace.Track) {
	n, bytes := b.chunk.Len(), b.chunk.Bytes()
	if b.growing.err == nil {
		piece, err := b.joinChunk(track)
		size := 0
		if err == nil {
			size = piece.Size()
			b.growing.add(piece, b.reader.pool)
		}
		switch {
		case b.damage != nil:
			n, bytes = b.intact-b.growing.n, size
		case err != nil:
			b.growing.err = err
		}
	}
	b.chunk.Release()
	b.growing.n, b.growing.bytes = b.growing.n+n, b.growing.bytes+bytes
}

// drop releases all instances and returns the builder to the reader.
func (b *batchBuilder) drop() {
	b.chunk.Release()
	b.stacked.drop()
	b.growing.drop()
	clear(b.tuples)
	b.isPart, b.partErr, b.damage = false, nil, nil
	b.reader.mu.Lock()
	defer b.reader.mu.Unlock()
	b.reader.spare = append(b.reader.spare, b)
}

// minTakeBuffer is the smallest size in bytes of a batch that takes over the memory of its instances. For smaller
// batches a copy costs no more (docs/performance.md, "npy files, one array each": taking over saves little at 4 KiB a
// file, a third at 64 KiB).
const minTakeBuffer = 32 << 10

// ownsMemory reports whether the instances are contiguous, as in a batch, in memory that nothing else refers to. The
// batch can then take it over. A batch for a device has to be copied to pinned memory instead. A part of a batch would
// keep the memory of all of it.
func (b *batchBuilder) ownsMemory() bool {
	nothingCopied := b.stacked.n == 0
	worthIt := b.chunk.Bytes() >= minTakeBuffer
	return b.reader.stacksAll && !b.reader.toDevice && !b.isPart && nothingCopied && worthIt && b.chunk.Contiguous()
}

// isView reports whether the instances are consecutive ones of a block that a shuffle has copied: the batch can then be a
// view of that copy. It need not be large, since other batches use the rest of the memory.
func (b *batchBuilder) isView() bool {
	nothingCopied := b.stacked.n == 0
	return b.reader.stacksAll && !b.reader.toDevice && nothingCopied && b.chunk.Viewable()
}

// takeMemory makes a batch that takes over the memory of the instances by a call of take.
func (b *batchBuilder) takeMemory(take func(batch *pyfeed.Tuple)) (*pyfeed.Tuple, error) {
	n := b.chunk.Len()
	err := b.stacked.begin(&b.chunk, n)
	if err == nil {
		err = b.stacked.fits(&b.chunk)
	}
	if err != nil {
		return nil, err
	}
	batch := b.stacked.batch
	batch.From = batch.From.Batch(n)
	b.stacked.batch = nil
	take(batch)
	return batch, nil
}

// joinChunk makes a batch of the instances of the chunk, with some slots concatenated. If one of them is damaged, it sets
// damage and intact, and makes a batch of those before it; if there are none, it returns the error.
func (b *batchBuilder) joinChunk(track trace.Track) (*pyfeed.Tuple, error) {
	if b.chunk.AllSpans(b.reader.source.Spec().Grows) {
		batch, err := b.joinSpans(track)
		var found *record.Damage
		if !errors.As(err, &found) {
			return batch, err
		}
		b.chunk.Keep(0, found.Index)
		return b.joinIntact(found.Err, track)
	}
	if err := b.chunk.Verify(record.Checkpoint{}, nil); err != nil {
		return b.joinIntact(err, track)
	}
	if err := b.checkEven(); err != nil {
		return nil, err
	}
	b.tuples = slices.Grow(b.tuples[:0], b.chunk.Len())[:b.chunk.Len()]
	b.chunk.Take(b.tuples)
	defer pyfeed.ReleaseAll(b.tuples)
	return b.join(b.tuples, track)
}

// joinIntact does the same once the damaged instance, and those behind it, were removed from the chunk.
func (b *batchBuilder) joinIntact(damage error, track trace.Track) (*pyfeed.Tuple, error) {
	b.damage, b.intact = damage, b.growing.n+b.chunk.Len()
	if b.chunk.Len() == 0 {
		return nil, damage
	}
	return b.joinChunk(track)
}

// keepPart releases the instances that do not belong to a part of the batch. It checks all instances before: the ranks of
// a job refuse the same batches.
func (b *batchBuilder) keepPart(p readers.Part) {
	b.isPart = true
	if b.partErr = b.checkSpecs(); b.partErr == nil {
		b.partErr = keepPart(&b.chunk, p, b.reader.source.Spec())
	}
	b.size = b.chunk.Len()
}

// checkSpecs returns an error for the first instance of the chunk that does not fit into the same batch as the first.
func (b *batchBuilder) checkSpecs() error {
	c := &b.chunk
	if b.reader.stacksAll {
		err := b.stacked.begin(c, c.Len())
		if err == nil {
			err = b.stacked.fits(c)
		}
		b.stacked.drop()
		return err
	}
	if err := b.checkEven(); err != nil {
		return err
	}
	spec := b.reader.source.Spec()
	first, _ := c.PeekSpec(0)
	k, i := findMismatch(c, func(t *pyfeed.Tuple) int {
		for i := range t.Slots {
			if !joins(&first.Slots[i], &t.Slots[i], spec.Grows(i)) {
				return i
			}
		}
		return -1
	})
	if k < 0 {
		return nil
	}
	t, _ := c.PeekSpec(k)
	return mismatchError(i, k, &t.Slots[i], first.Slots[i].DType, first.Slots[i].Dims(), c.Origin(k))
}

// findMismatch returns the first instance of which mismatch returns a slot, and the slot; or -1. All instances of a Block
// have the same spec, so one of them is tried before the search.
func findMismatch(c *record.Chunk, mismatch func(*pyfeed.Tuple) int) (k, slot int) {
	fit := true
	for i := range c.NumBlocks() {
		fit = fit && (i > 0 && c.BlocksAlike(0, i) || mismatch(c.BlockSpec(i)) < 0)
	}
	for _, t := range c.Tuples() {
		fit = fit && (t == nil || mismatch(t) < 0)
	}
	for k := 0; !fit && k < c.Len(); k++ {
		t, _ := c.PeekSpec(k)
		if slot := mismatch(t); slot >= 0 {
			return k, slot
		}
	}
	return -1, -1
}

// joins reports whether a slot of a tuple can be in one batch with that of another. Its first dimension may differ if the
// slots are concatenated.
func joins(first, other *pyfeed.LoDTensor, grows bool) bool {
	a, b := first.Dims(), other.Dims()
	if first.DType != other.DType || len(a) != len(b) || len(first.LoD) != len(other.LoD) {
		return false
	}
	if grows {
		a, b = a[1:], b[1:]
	}
	return slices.Equal(a, b)
}

// checkEven returns an error for the first instance whose slots would add different numbers of rows to the batch: the
// batch could not tell which rows belong together. All instances of a Block add the same number, so one of them is
// checked.
func (b *batchBuilder) checkEven() error {
	if !b.reader.requireEqualRows {
		return nil
	}
	c, spec := &b.chunk, b.reader.source.Spec()
	k, i := findMismatch(c, func(t *pyfeed.Tuple) int { return firstUneven(spec, t) })
	if k < 0 {
		return nil
	}
	t, _ := c.PeekSpec(k)
	return pyfeed.SlotErrorf(pyfeed.Shape, i, "tuple %d of a batch: expected %d rows, as slot 0 adds, found %d: a slot of "+
		"dims [-1, ...] adds its first dimension, or its sequences if it has LoD, and any other slot 1. Declare LoD for "+
		"slots of variable length, or permit this with ragged", b.growing.n+k, spec.RowsAdded(t, 0), spec.RowsAdded(t, i))
}

// firstUneven returns the first slot that adds another number of rows to a batch than slot 0, or -1.
func firstUneven(spec *pyfeed.Spec, t *pyfeed.Tuple) int {
	for i := 1; i < len(t.Slots); i++ {
		if spec.RowsAdded(t, i) != spec.RowsAdded(t, 0) {
			return i
		}
	}
	return -1
}

// joinSpans makes a batch of instances of Blocks with byte strings. It concatenates these, whose sizes give the LoD of the
// batch, and stacks the other slots.
func (b *batchBuilder) joinSpans(track trace.Track) (*pyfeed.Tuple, error) {
	c := &b.chunk
	n := c.Len()
	first, pass := c.PeekSpec(0)
	batch := pyfeed.NewTuple(len(first.Slots))
	batch.Pass, batch.From = pass, c.Origin(0).Batch(n)
	b.offsets = slices.Grow(b.offsets[:0], (n+1)*len(first.Slots)) // the LoDs must not move
	err := error(nil)
	for i := 0; i < len(batch.Slots) && err == nil; i++ {
		err = b.setSpansSpec(&batch.Slots[i], &first.Slots[i], i)
	}
	if err == nil {
		err = batch.Allocate(b.reader.pool)
	}
	if err != nil {
		batch.Release()
		return nil, err
	}
	start, bytes := trace.Begin(), 0
	for i := 0; i < len(batch.Slots) && err == nil; i++ {
		bytes += len(batch.Slots[i].Data)
		err = b.copySlot(&batch.Slots[i], i)
	}
	trace.CopySince(track, "batch", start, bytes)
	if err = cmp.Or(err, c.CheckTruncated()); err != nil {
		batch.Release()
		return nil, err
	}
	return batch, nil
}

// setSpansSpec sets the dtype, dims and LoD of the i-th slot of a batch of joinSpans. first is that of an instance.
func (b *batchBuilder) setSpansSpec(out, first *pyfeed.LoDTensor, i int) error {
	n := b.chunk.Len()
	out.DType, out.Place = first.DType, first.Place
	var room [pyfeed.MaxRank]int64
	dims := append(room[:0], int64(n))
	if b.reader.source.Spec().Grows(i) {
		begin := len(b.offsets)
		b.offsets = b.chunk.AppendSpanEnds(append(b.offsets, 0), i)
		out.LoD = append(out.LoD, b.offsets[begin:])
		dims[0] = b.offsets[begin+n]
	} else {
		dims = append(dims, first.Dims()...)
	}
	return setDims(out, i, dims)
}

// setDims sets the dims of the i-th slot of a batch, whose data do not exist yet.
func setDims(slot *pyfeed.LoDTensor, i int, dims pyfeed.Dims) error {
	err := slot.SetDims(dims)
	if err == nil {
		_, err = slot.Measure()
	}
	if err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
	}
	return nil
}

// copySlot copies the i-th slot of the instances to that of a batch of joinSpans.
func (b *batchBuilder) copySlot(to *pyfeed.LoDTensor, i int) error {
	c := &b.chunk
	n, bytes := c.Len(), len(to.Data)
	if len(to.LoD) > 0 {
		return parallelCopy(n, bytes, func(first, end int) error { return c.CopySpans(to.Data[to.LoD[0][first]:], i, first, end) })
	}
	size := bytes / n
	return parallelCopy(n, bytes, func(first, end int) error { return c.CopySlot(to.Data[first*size:], i, size, first, end) })
}

// join makes a batch of tuples, slot by slot.
func (b *batchBuilder) join(tuples []*pyfeed.Tuple, track trace.Track) (*pyfeed.Tuple, error) {
	spec, first := b.reader.source.Spec(), tuples[0]
	if err := b.growing.fits(first, spec); err != nil {
		return nil, err
	}
	batch := pyfeed.NewTuple(len(first.Slots))
	batch.Pass, batch.From = first.Pass, first.From.Batch(len(tuples))
	for i := range batch.Slots {
		if err := setJoinedSpec(&batch.Slots[i], tuples, b.growing.n, i, spec.Slot(i).Grows()); err != nil {
			batch.Release()
			return nil, err
		}
	}
	if err := batch.Allocate(b.reader.pool); err != nil {
		batch.Release()
		return nil, err
	}
	start, bytes := trace.Begin(), 0
	for i := range batch.Slots {
		to := batch.Slots[i].Data
		bytes += len(to)
		err := parallelCopy(len(tuples), len(to), func(first, end int) error {
			at := 0
			for _, t := range tuples[:first] {
				at += len(t.Slots[i].Data)
			}
			for _, t := range tuples[first:end] {
				from := &t.Slots[i]
				pyfeed.Copy(to[at:], from.Data)
				at += len(from.Data)
				if err := from.CheckTruncated(i); err != nil {
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

// setJoinedSpec sets the dtype, dims and LoD of the i-th slot of a batch of these tuples. before is how many tuples
// precede them in the batch.
func setJoinedSpec(out *pyfeed.LoDTensor, tuples []*pyfeed.Tuple, before, i int, grows bool) error {
	first := &tuples[0].Slots[i]
	out.DType, out.Place = first.DType, first.Place
	var room [pyfeed.MaxRank]int64
	dims := pyfeed.Dims(room[:0])
	inner := first.Dims()
	if grows {
		inner = inner[1:]
		dims = append(dims, 0)
	} else {
		dims = append(dims, int64(len(tuples)))
	}
	dims = append(dims, inner...)
	for k, t := range tuples {
		s := &t.Slots[i]
		if !joins(first, s, grows) {
			return mismatchError(i, before+k, s, first.DType, first.Dims(), t.From)
		}
		if grows {
			dims[0] += s.Dims()[0]
		}
	}
	for l := range first.LoD {
		out.LoD = append(out.LoD, mergeLoD(tuples, i, l))
	}
	return setDims(out, i, dims)
}

// mismatchError is the error that a slot of the k-th tuple of a batch has another dtype or dims than expected.
func mismatchError(slot, k int, found *pyfeed.LoDTensor, dtype pyfeed.DType, dims pyfeed.Dims, from pyfeed.Origin) error {
	err := pyfeed.SlotErrorf(pyfeed.Shape, slot, "tuple %d of a batch: expected %v %v as in tuple 0, found %v %v",
		k, dtype, dims, found.DType, found.Dims())
	err.At = from.Location()
	return err
}

// mergeLoD returns the offsets of one level of all tuples, each shifted by the last offset of the tuples before it.
func mergeLoD(tuples []*pyfeed.Tuple, slot, level int) []int64 {
	n := 1
	for _, t := range tuples {
		n += len(t.Slots[slot].LoD[level]) - 1
	}
	merged := make([]int64, 1, n)
	for _, t := range tuples {
		shift := merged[len(merged)-1]
		for _, offset := range t.Slots[slot].LoD[level][1:] {
			merged = append(merged, shift+offset)
		}
	}
	return merged
}
