package record

import (
	_ "math/rand/v2" // for inlining into permutation.Permute, which otherwise takes 10 more instructions an instance
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/internal/prefetch"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
)

// Permutation is the order of a block of a shuffle. With n numbers in Blocks, every n-th instance from the i-th on is
// permuted among themselves, as the block Blocks[i] of the shuffle.
type Permutation struct {
	Seed, Pass uint64
	Blocks     []uint64
}

// permute puts all into the order. When done is closed, it stops halfway. scratch is kept for the next call.
func permute[T any](all []T, p Permutation, scratch *[]T, done <-chan struct{}) {
	n := len(p.Blocks)
	if n == 1 {
		permutation.Permute(all, p.Seed, p.Pass, p.Blocks[0], done)
		return
	}
	for first, block := range p.Blocks {
		some := (*scratch)[:0]
		for i := first; i < len(all); i += n {
			some = append(some, all[i])
		}
		permutation.Permute(some, p.Seed, p.Pass, block, done)
		for k, one := range some {
			all[first+k*n] = one
		}
		*scratch = some
	}
}

// Permute puts the instances into an order. When done is closed, it stops halfway; the caller then releases the
// instances.
func (c *Chunk) Permute(p Permutation, done <-chan struct{}) {
	permute(c.items[c.front:], p, &c.permuted, done)
}

// maxGathered is the largest size in bytes of the instances that Gather copies. It bounds the memory that a single batch
// keeps, and that a shuffle takes. Blocks of 6 MiB gained nothing (docs/performance.md, "Blocks copied at once").
const maxGathered = 4 << 20

// FitsGather reports whether n instances of the average size of those of c are small enough for Gather to copy them.
func (c *Chunk) FitsGather(n int) bool {
	return n <= maxGathered/max(c.bytes/max(len(c.items), 1), 1)
}

// Gatherer copies the blocks of a shuffle. One caller at a time uses it.
type Gatherer struct {
	Pool    *memory.Pool // for the copies
	largest int          // bytes of the largest copy: with equal sizes, the pool can use their buffers again
	numbers []uint32     // reused
	items   []item       // reused
	runs    []run        // reused
}

// run is a list of instances that follow one another in a Block, or a single tuple.
type run struct {
	begin uint32 // number of the first among all instances
	first item
}

// minRun is how many instances a run has to have on average; otherwise the instances are sorted by Block, to make longer
// runs (docs/performance.md, "Blocks copied at once").
const minRun = 8

// Gather is c.Permute(p, done). If it pays, it then copies the instances of c to memory of their own, in the new order.
// It reads them in the order before the permutation, in which most of them follow one another in memory. The copies are
// instances of one Block, each slot of which is contiguous. A batch of consecutive ones needs no copy: see
// [Chunk.TakeView].
//
// The instances stay where they are if they are large or differ in layout, if there is no memory for the copies, or if a
// file that they lie in has become shorter: a batch of them then fails as without Gather.
func (g *Gatherer) Gather(c *Chunk, p Permutation, done <-chan struct{}) {
	b := c.gatherable()
	if b == nil {
		c.Permute(p, done)
		return
	}
	g.largest = max(g.largest, b.layOut(g.Pool))
	buffer, err := g.Pool.Get(g.largest)
	if err != nil {
		c.Permute(p, done)
		return
	}
	items := c.items
	order := make([]uint32, len(items)) // after the permutation, the k-th instance is items[order[k]]
	for j := range order {
		order[j] = uint32(j)
	}
	permute(order, p, &g.numbers, done)
	if g.findRuns(items); len(g.runs) > len(items)/minRun && len(g.runs) > len(c.blocks) {
		g.sortByBlock(c, order)
		items = g.items
		g.findRuns(items)
	}
	g.scatter(c, b, order, buffer)
	if c.checkTruncated() != nil {
		buffer.Release()
		c.permuted = append(c.permuted[:0], items...)
		for k, j := range order {
			c.items[k] = c.permuted[j]
		}
		return
	}
	_, pass := c.PeekSpec(0)
	b.origins = g.origins(c, order)
	buffer.Retain(b.count - 1)
	c.Release()
	c.AddBlock(b)
	c.blocks[0].pass = pass
}

// gatherable returns a Block with the layout of all instances and without memory, or nil if they are not to be copied.
func (c *Chunk) gatherable() *Block {
	n := len(c.items)
	if c.front > 0 || n < MinBlock || !c.MostlyBlocks() || c.bytes > maxGathered {
		return nil
	}
	first, pass := c.PeekSpec(0)
	for i := range c.blocks {
		if b := &c.blocks[i]; b.texts != nil || b.released || b.pass != pass || !alike(c.blocks[0].Block, b.Block) {
			return nil
		}
	}
	if !sameLayout(&c.blocks[0].first, first) {
		return nil
	}
	for _, t := range c.tuples {
		if t == nil || t.Pass != pass || !sameLayout(first, t) {
			return nil
		}
	}
	b := &Block{count: n, batchable: true}
	b.first.Slots = make([]pyfeed.LoDTensor, len(first.Slots))
	for i := range first.Slots {
		from, to := &first.Slots[i], &b.first.Slots[i]
		if from.Place != pyfeed.CPUPlace() || len(from.LoD) > 0 {
			return nil
		}
		to.DType = from.DType
		_ = to.SetDims(from.Dims()) // cannot fail: it has the same rank
		to.Data = from.Data         // only for its size, until there is memory
	}
	return b
}

// sameSlot reports whether two slots without LoD (level of detail) have the same dtype, dims and size.
func sameSlot(x, y *pyfeed.LoDTensor) bool {
	return x.DType == y.DType && x.Place == y.Place && len(x.Data) == len(y.Data) && len(y.LoD) == 0 && slices.Equal(x.Dims(), y.Dims())
}

// sameLayout reports whether two instances have the same dtypes, dims and sizes.
func sameLayout(a, b *pyfeed.Tuple) bool {
	same := a == b || len(a.Slots) == len(b.Slots)
	for i := 0; same && a != b && i < len(a.Slots); i++ {
		same = sameSlot(&a.Slots[i], &b.Slots[i])
	}
	return same
}

// layOut returns how many bytes the slots of all instances take, one slot after the other.
func (b *Block) layOut(pool *memory.Pool) (bytes int) {
	for i := range b.first.Slots {
		bytes += pool.Align(b.count * len(b.first.Slots[i].Data))
	}
	return max(bytes, 1)
}

// findRuns sets the runs of all instances.
func (g *Gatherer) findRuns(items []item) {
	g.runs = g.runs[:0]
	for at := 0; at < len(items); {
		g.runs = append(g.runs, run{uint32(at), items[at]})
		at += runLength(items[at:])
	}
}

// sortByBlock sets g.items to those of c, sorted by Block, with the tuples behind; and changes the numbers in order to those in
// g.items. A reader that takes a row of each of some files in turn makes runs of one instance, which this joins.
func (g *Gatherer) sortByBlock(c *Chunk, order []uint32) {
	next := make([]uint32, len(c.blocks)+1) // the next number for each Block, and for the tuples
	group := func(it item) int { return int(min(it.block, uint32(len(c.blocks)))) }
	for _, it := range c.items {
		next[group(it)]++
	}
	sum := uint32(0)
	for i, n := range next {
		next[i] = sum
		sum += n
	}
	g.items = slices.Grow(g.items[:0], len(c.items))[:len(c.items)]
	g.numbers = slices.Grow(g.numbers[:0], len(c.items))[:len(c.items)]
	for j, it := range c.items {
		at := &next[group(it)]
		g.items[*at], g.numbers[j] = it, *at
		*at++
	}
	for k, j := range order {
		order[k] = g.numbers[j]
	}
}

// runLength returns how many of the first instances, of which there is one at least, are consecutive ones of a Block. A
// tuple is a run of its own.
func runLength(items []item) int {
	next := items[0]
	if next.block == tupleItem {
		return 1
	}
	for k, it := range items {
		if it != next {
			return k
		}
		next.index++
	}
	return len(items)
}

// scatter copies all instances to a buffer, where order says which is the k-th, and makes it the memory of b.
func (g *Gatherer) scatter(c *Chunk, b *Block, order []uint32, buffer *memory.Buffer) {
	to := slices.Grow(g.numbers[:0], len(order))[:len(order)] // the new number of each instance
	g.numbers = to
	for k, j := range order {
		to[j] = uint32(k)
	}
	b.parts, b.places = append(b.onePart[:0], part{buffer, len(b.first.Slots)}), b.fewPlaces[:0]
	room := buffer.Bytes()
	for i := range b.first.Slots {
		s := &b.first.Slots[i]
		size := len(s.Data)
		g.scatterSlot(c, room, i, size, to)
		s.Data = room[: size : b.count*size]
		b.addSlot(i, size, buffer)
		room = room[min(g.Pool.Align(b.count*size), len(room)):]
	}
}

// scatterSlot copies one slot, of size bytes, of each instance: to room[to[j]*size:].
func (g *Gatherer) scatterSlot(c *Chunk, room []byte, slot, size int, to []uint32) {
	base := unsafe.Pointer(unsafe.SliceData(room[:len(to)*size]))
	for i, r := range g.runs {
		end := len(to)
		if i+1 < len(g.runs) {
			end = int(g.runs[i+1].begin)
		}
		from, stride := unsafe.Pointer(nil), 0
		if r.first.block == tupleItem {
			from = unsafe.Pointer(unsafe.SliceData(c.tuples[r.first.index].Slots[slot].Data))
		} else {
			b := c.blocks[r.first.block].Block
			from, stride = b.address(slot, int(r.first.index)), b.places[slot].stride
		}
		places := to[r.begin:end]
		switch {
		case prefetch.Least <= size && size <= prefetch.Most:
			scatterAhead(base, from, stride, size, places)
		case size == 4:
			scatterElements[[4]byte](base, from, stride, places)
		case size == 8:
			scatterElements[[8]byte](base, from, stride, places)
		default:
			for k, at := range places {
				copy(unsafe.Slice((*byte)(unsafe.Add(base, int(at)*size)), size), unsafe.Slice((*byte)(unsafe.Add(from, k*stride)), size))
			}
		}
	}
}

// scatterElements copies elements, which are stride bytes apart, to base[places[k]].
func scatterElements[T any](base, from unsafe.Pointer, stride int, places []uint32) {
	var element T
	for _, at := range places {
		*(*T)(unsafe.Add(base, uintptr(at)*unsafe.Sizeof(element))) = *(*T)(from)
		from = unsafe.Add(from, stride)
	}
}

// scatterAhead copies parts of size bytes, which are stride bytes apart, to base[places[k]*size:]. It prefetches the places
// of later parts, since the processor can only tell where the parts come from.
func scatterAhead(base, from unsafe.Pointer, stride, size int, places []uint32) {
	distance, last := prefetch.Distance(size), len(places)-1
	for k, at := range places {
		later := unsafe.Add(base, int(places[min(k+distance, last)])*size)
		prefetch.Copy(unsafe.Add(base, int(at)*size), from, size, later)
		from = unsafe.Add(from, stride)
	}
}

// checkTruncated returns an error if a file that instances lie in has become shorter.
func (c *Chunk) checkTruncated() error {
	for _, t := range c.tuples {
		if err := t.CheckTruncated(); err != nil {
			return err
		}
	}
	return c.CheckTruncated()
}

// origins are those of the instances of a Block that was gathered from others.
type origins struct {
	order  []uint32 // numbers of the instances in the order before
	runs   []run    // in the order before
	blocks []*Block
	tuples []pyfeed.Origin
}

// origins returns the origins of the instances of c in the new order.
func (g *Gatherer) origins(c *Chunk, order []uint32) *origins {
	o := &origins{order: order, runs: slices.Clone(g.runs), blocks: make([]*Block, len(c.blocks))}
	for i := range c.blocks {
		o.blocks[i] = c.blocks[i].Block
	}
	for _, t := range c.tuples {
		o.tuples = append(o.tuples, t.From)
	}
	return o
}

// of returns the origin of the k-th instance.
func (o *origins) of(k int) pyfeed.Origin {
	number := o.order[k]
	first, end := 0, len(o.runs) // the run is among these; sort.Search would call a function for each step
	for end-first > 1 {
		if middle := (first + end) / 2; o.runs[middle].begin <= number {
			first = middle
		} else {
			end = middle
		}
	}
	r := &o.runs[first]
	if r.first.block == tupleItem {
		return o.tuples[r.first.index]
	}
	return o.blocks[r.first.block].origin(int(r.first.index + number - r.begin))
}

// after returns the origins of the instances from the first-th on.
func (o *origins) after(first int) *origins {
	rest := *o
	rest.order = rest.order[first:]
	return &rest
}

// Viewable reports whether the memory of the instances can be that of a batch: they are consecutive instances of a Block
// that Gather has made, and the slots begin at aligned addresses. Batches that are made of different instances share no
// memory, so their readers may write to them.
func (c *Chunk) Viewable() bool {
	items := c.items[c.front:]
	if len(items) == 0 || items[0].block == tupleItem || !c.blocks[items[0].block].batchable {
		return false
	}
	if runLength(items) < len(items) {
		return false
	}
	b := c.blocks[items[0].block]
	for i := range b.places {
		if uintptr(b.address(i, int(items[0].index)))%memory.Alignment != 0 {
			return false
		}
	}
	return true
}

// TakeView takes all instances as the memory of a batch, which has as many slots, without memory. Viewable MUST hold.
// The memory of all instances that were gathered together stays in use until the last batch of them is released.
func (c *Chunk) TakeView(batch *pyfeed.Tuple) {
	items := c.items[c.front:]
	b, n := c.blocks[items[0].block].Block, len(items)
	buffer := b.parts[0].buffer
	buffer.Retain(len(batch.Slots))
	for i := range batch.Slots {
		first := (*byte)(b.address(i, int(items[0].index)))
		batch.Slots[i].Hold(unsafe.Slice(first, n*len(b.first.Slots[i].Data)), buffer)
	}
	buffer.ReleaseMany(n)
	c.empty()
}
