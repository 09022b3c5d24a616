package readers

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// BatchReader joins tuples to batches: slots whose first dimension is -1 are concatenated along it,
// their LoD merged, others are stacked under a new first dimension.
type BatchReader struct {
	ahead
	under    *upstream
	spec     *pyfeed.Spec
	size     int
	dropLast bool
	ragged   bool
	pool     *memory.Pool
	stacks   bool // no slot is concatenated
	even     bool // the slots of an instance add the same number of rows to a batch: what does not is refused
	aimed    bool // batches are meant for a device, in memory that it copies from

	now *gathered // of which more are to come
	end error     // what came after the last instance

	mu    sync.Mutex
	spare []*gathered

	unmade, unmadeBytes atomic.Int64 // batches that were gathered, and counted, and could not be made
}

// gathered is what a batch is made of. Once it is complete it belongs to whoever makes the batch: any thread, while
// the reader gathers the next.
type gathered struct {
	of      *BatchReader
	lot     Lot
	stack   stack         // what was gathered before the lot, where none is concatenated
	grown   grown         // the same of a large batch, where some are
	made    *pyfeed.Tuple // in place of all that; else nil
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
// dropLast; so is one before an error. Instances whose slots would add different numbers of rows to a batch are refused
// unless ragged.
func NewBatchReader(under *ReaderHolder, size uint64, dropLast, ragged bool) (*BatchReader, error) {
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
	r := &BatchReader{under: above(under), spec: spec, size: int(size), dropLast: dropLast, ragged: ragged, pool: pool, stacks: true, aimed: place != pyfeed.CPUPlace()}
	for i := range spec.Len() {
		r.stacks = r.stacks && !under.Spec().Slot(i).Grows()
	}
	r.even = !ragged && !r.stacks && spec.Len() > 1
	r.read = single(func(ctx context.Context) (*pyfeed.Tuple, error) {
		g, err := r.gather(ctx)
		if err != nil {
			return nil, err
		}
		return g.batch(wait.TrackOf(ctx))
	})
	return r, nil
}

// atATime is how many instances are gathered before they are copied, while they are in the cache.
const atATime = 64

// gather is the next batch, before anything is copied into it: but of a large one, which is as far as it can.
func (r *BatchReader) gather(ctx context.Context) (*gathered, error) {
	g := r.now
	if g == nil {
		g = r.room()
		r.now = g
	}
	var turn wait.Turn
	for r.end == nil && g.len() < r.size {
		most := r.size - g.len()
		if r.stacks {
			most = min(most, atATime)
		}
		before := g.lot.bytes
		_, err := r.under.readMany(ctx, &g.lot, most)
		bytes := g.lot.bytes - before
		if g.lot.Len() >= atATime {
			g.pile(wait.TrackOf(ctx))
		}
		if !r.stacks && !r.pool.Pinned() && g.grown.wants(g.lot.bytes) {
			g.grow(wait.TrackOf(ctx))
		}
		switch {
		case err != nil && !pyfeed.Ends(ctx, err):
			return nil, err
		case err != nil:
			r.end = err
		case g.len() < r.size && turn.Over(ctx, bytes):
			return nil, wait.ErrWouldBlock
		}
	}
	if n := g.len(); n == 0 || n < r.size && r.dropLast {
		r.clear()
		err := r.end
		r.end = nil
		return nil, err
	}
	r.now = nil
	return g, nil
}

// gatherNext is gather, for who reads the batches by it alone.
func (r *BatchReader) gatherNext(ctx context.Context) (*gathered, error) {
	if r.next.Len() == 0 {
		return r.gather(ctx)
	}
	g := r.room()
	g.made = r.next.one() // that HasNext has read
	return g, nil
}

func (r *BatchReader) room() *gathered {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.spare); n > 0 {
		g := r.spare[n-1]
		r.spare = r.spare[:n-1]
		return g
	}
	return &gathered{of: r}
}

func (r *BatchReader) clear() {
	if r.now != nil {
		r.now.drop()
		r.now = nil
	}
}

// len is how many instances there are.
func (g *gathered) len() int { return g.stack.n + g.grown.n + g.lot.Len() }

// size is that of the batch's data, in bytes, and its pass.
func (g *gathered) size() (bytes int, pass int64) {
	switch {
	case g.made != nil:
		return g.made.Size(), g.made.Pass
	case g.stack.batch != nil:
		return g.stack.bytes + g.lot.bytes, g.stack.batch.Pass
	case g.grown.batch != nil:
		return g.grown.bytes + g.lot.bytes, g.grown.batch.Pass
	}
	if g.lot.Len() == 0 { // of a batch that cannot be made
		return 0, 0
	}
	_, pass = g.lot.like(0)
	return g.lot.bytes, pass
}

// pile puts what is in the lot into the stack, if it can. false: it is there still.
func (g *gathered) pile(track trace.Track) bool {
	if !g.of.stacks || !g.stack.takes(&g.lot, g.of.size, g.of.pool) {
		return false
	}
	g.stack.add(&g.lot, track)
	g.lot.drop()
	return true
}

// grow puts what is in the lot into the batch that grows.
func (g *gathered) grow(track trace.Track) {
	n, bytes := g.lot.Len(), g.lot.bytes
	if g.grown.bad == nil {
		piece, err := g.joined(track)
		if g.grown.bad = err; err == nil {
			g.grown.add(piece, g.of.pool)
		}
	}
	g.lot.drop()
	g.grown.n, g.grown.bytes = g.grown.n+n, g.grown.bytes+bytes
}

// drop lets go of all that is gathered, and of itself.
func (g *gathered) drop() {
	g.lot.drop()
	g.stack.drop()
	g.grown.drop()
	clear(g.parts)
	g.made = nil
	g.of.mu.Lock()
	defer g.of.mu.Unlock()
	g.of.spare = append(g.of.spare, g)
}

// batch makes the batch, by a caller on the track.
func (g *gathered) batch(track trace.Track) (*pyfeed.Tuple, error) {
	defer g.drop()
	switch {
	case g.made != nil:
		return g.made, nil
	case g.grown.n > 0:
		if g.lot.Len() > 0 {
			g.grow(track)
		}
		return g.grown.finish()
	case g.adoptable():
		return g.adopt()
	case g.lot.Len() == 0 || g.pile(track):
		return g.stack.finish()
	}
	return g.joined(track)
}

// joined is a batch of what is in the lot, whose slots are not all stacked.
func (g *gathered) joined(track trace.Track) (*pyfeed.Tuple, error) {
	if g.lot.sequences() {
		return g.joinSequences(track)
	}
	if err := g.uneven(); err != nil {
		return nil, err
	}
	g.parts = slices.Grow(g.parts[:0], g.lot.Len())[:g.lot.Len()]
	g.lot.Take(g.parts)
	defer pyfeed.ReleaseAll(g.parts)
	return g.join(g.parts, track)
}

// leastAdopted is the size in bytes of a batch that is rather taken over than copied: below, the copy costs no more.
const leastAdopted = 32 << 10

// adoptable says whether the instances lie where they would be copied to, one behind the other, in memory that nobody else
// has, for no device.
func (g *gathered) adoptable() bool {
	l := &g.lot
	if !g.of.stacks || g.of.aimed || g.stack.n > 0 || len(l.tuples) > 0 || l.bytes < leastAdopted {
		return false
	}
	first := l.rows[l.items[0].of].Rows
	if first.spans != nil || len(first.first.Slots) != 1 || !first.buffer.Only(len(l.items)) {
		return false
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(first.data(0, int(l.items[0].number)))))
	for k, it := range l.items {
		r := l.rows[it.of].Rows
		if r.spans != nil || r.buffer != first.buffer || r.size != first.size ||
			uintptr(unsafe.Pointer(unsafe.SliceData(r.data(0, int(it.number))))) != begin+uintptr(k*r.size) {
			return false
		}
	}
	return begin%memory.Alignment == 0
}

// adopt makes the batch of the memory that the instances lie in.
func (g *gathered) adopt() (*pyfeed.Tuple, error) {
	l := &g.lot
	first, n := l.rows[l.items[0].of].Rows, len(l.items)
	err := g.stack.begin(l, n)
	if err == nil {
		err = g.stack.fits(l)
	}
	if err != nil {
		return nil, err
	}
	batch := g.stack.batch
	batch.From = batch.From.Batch(n)
	g.stack.batch = nil
	data := first.data(0, int(l.items[0].number))
	batch.Slots[0].Hold(unsafe.Slice(unsafe.SliceData(data), n*first.size), first.buffer)
	first.buffer.ReleaseMany(n - 1)
	l.empty()
	return batch, nil
}

// uneven is an error about the first instance whose slots would add different numbers of rows to the batch: which row
// belongs to which could not be told from it. Of Rows, which are alike, one is checked.
func (g *gathered) uneven() error {
	if !g.of.even {
		return nil
	}
	l, spec := &g.lot, g.of.under.Spec()
	even := true
	for i := range l.rows {
		even = even && unevenSlot(spec, &l.rows[i].first) < 0
	}
	for _, t := range l.tuples {
		even = even && (t == nil || unevenSlot(spec, t) < 0)
	}
	for k := 0; !even && k < l.Len(); k++ {
		t, _ := l.like(k)
		if i := unevenSlot(spec, t); i >= 0 {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "tuple %d of a batch: expected %d rows, as slot 0 adds, found %d: a slot of "+
				"dims [-1, ...] adds its first dimension, or its sequences if it has LoD, and any other slot 1. Declare LoD for "+
				"slots of variable length, or permit this with ragged", g.grown.n+k, added(spec, t, 0), added(spec, t, i))
		}
	}
	return nil
}

// unevenSlot is the first slot that adds another number of rows to a batch than the first one does, or -1.
func unevenSlot(spec *pyfeed.Spec, t *pyfeed.Tuple) int {
	for i := 1; i < len(t.Slots); i++ {
		if added(spec, t, i) != added(spec, t, 0) {
			return i
		}
	}
	return -1
}

// added is how many rows a slot of an instance adds to a batch; of a slot with LoD, how many sequences.
func added(spec *pyfeed.Spec, t *pyfeed.Tuple, i int) int64 {
	if spec.Grows(i) {
		return t.Slots[i].Rows()
	}
	return 1
}

// joinSequences joins sequences of bytes, whose sizes are the LoD of the batch.
func (g *gathered) joinSequences(track trace.Track) (*pyfeed.Tuple, error) {
	l := &g.lot
	g.offsets = append(g.offsets[:0], 0)
	total := 0
	for _, it := range l.items {
		total += l.rows[it.of].bytes(int(it.number))
		g.offsets = append(g.offsets, int64(total))
	}
	first, pass := l.like(0)
	batch := pyfeed.NewTuple(1)
	batch.Pass, batch.From = pass, l.origin(0).Batch(len(l.items))
	s := &batch.Slots[0]
	s.DType, s.Place, s.LoD = first.Slots[0].DType, first.Slots[0].Place, append(s.LoD, g.offsets)
	_ = s.SetDims(pyfeed.Dims{int64(total)}) // one is not too many
	_, err := s.Measure()
	if err == nil {
		err = batch.Allocate(g.of.pool)
	}
	if err != nil {
		batch.Release()
		return nil, err
	}
	start := trace.Begin()
	err = share(len(l.items), total, func(first, end int) error {
		to := s.Data[g.offsets[first]:]
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

func (g *gathered) join(parts []*pyfeed.Tuple, track trace.Track) (*pyfeed.Tuple, error) {
	spec, first := g.of.under.Spec(), parts[0]
	if err := g.grown.fits(first, spec); err != nil {
		return nil, err
	}
	batch := pyfeed.NewTuple(len(first.Slots))
	batch.Pass, batch.From = first.Pass, first.From.Batch(len(parts))
	for i := range batch.Slots {
		if err := shape(&batch.Slots[i], parts, g.grown.n, i, spec.Slot(i).Grows()); err != nil {
			batch.Release()
			return nil, err
		}
	}
	if err := batch.Allocate(g.of.pool); err != nil {
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

// shape works out the dtype, dims and LoD of the batch's i-th slot, whose parts come behind so many tuples.
func shape(out *pyfeed.LoDTensor, parts []*pyfeed.Tuple, before, i int, grows bool) error {
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
			return mismatch(i, before+k, s, first, t.From)
		}
		if grows {
			dims[0] += found[0]
			found = found[1:]
		}
		if !slices.Equal(found, inner) {
			return mismatch(i, before+k, s, first, t.From)
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

func mismatch(slot, k int, found, expected *pyfeed.LoDTensor, from pyfeed.Origin) error {
	return mismatched(slot, k, found, expected.DType, expected.Dims(), from)
}

func mismatched(slot, k int, found *pyfeed.LoDTensor, dtype pyfeed.DType, dims pyfeed.Dims, from pyfeed.Origin) error {
	err := pyfeed.SlotErrorf(pyfeed.Shape, slot, "tuple %d of a batch: expected %v %v as in tuple 0, found %v %v",
		k, dtype, dims, found.DType, found.Dims())
	err.At = from.Location()
	return err
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
	s.Tuples -= r.unmade.Load()
	s.Bytes -= r.unmadeBytes.Load()
	s.Extra = map[string]any{"batch_size": r.size, "drop_last": r.dropLast}
	if r.ragged {
		s.Extra["ragged"] = true
	}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below and of the memory kept for batches.
func (r *BatchReader) Close() {
	r.drop()
	r.clear()
	r.pool.Close()
	r.under.Drop()
}
