package record

import (
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/internal/prefetch"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// ChunkSize is the usual number of instances that are moved in one call.
const ChunkSize = 256

// Chunk is a list of instances that one reader passes to the next. An instance is a tuple, or a reference to an
// instance of a [Block], which becomes a tuple only when a reader needs one. The Chunk holds a reference to the memory
// of each instance. One caller at a time uses it.
type Chunk struct {
	items      []item
	front      int // index in items of the next instance
	blocks     []blockRef
	tuples     []*pyfeed.Tuple // nil: the tuple was taken or released
	bytes      int             // of the data that was added since the Chunk was last empty
	generation uint32          // how often the Chunk was emptied
	target     *Chunk          // the Chunk that the last instances were moved to

	permuted []item // reused by Permute and Gather

	offsets Offsets // for tuples made of instances of Blocks
}

// item is an instance. It has eight bytes, so that a shuffle moves little memory.
type item struct {
	block uint32 // index in blocks, or tupleItem
	index uint32 // in that block, or in tuples
}

const tupleItem = ^uint32(0)

// blockRef refers to a Block that some instances of the Chunk belong to.
type blockRef struct {
	*Block
	pass       int64
	unreleased int  // references to its memory that releaseBlocks will release
	released   bool // all instances were released, and perhaps the memory too
	// The index in target.blocks of the Block of the last instances moved, and the generation of target at that time.
	targetIndex, targetGeneration uint32
}

// Len is the number of instances.
func (c *Chunk) Len() int { return len(c.items) - c.front }

// Bytes is the size of the data that was added since the Chunk was last empty.
func (c *Chunk) Bytes() int { return c.bytes }

// PartlyTaken reports whether some, but not all, of the instances were taken or moved.
func (c *Chunk) PartlyTaken() bool { return c.front > 0 }

// NumTaken returns how many instances were taken or moved since the Chunk was last empty.
func (c *Chunk) NumTaken() int { return c.front }

// Add adds a tuple, which the Chunk owns from then on.
func (c *Chunk) Add(t *pyfeed.Tuple) {
	c.items = append(c.items, item{tupleItem, uint32(len(c.tuples))})
	c.tuples = append(c.tuples, t)
	c.bytes += t.Size()
}

// AddBlock adds all instances of a Block, and takes over their references.
func (c *Chunk) AddBlock(b *Block) {
	block, begin := uint32(len(c.blocks)), len(c.items)
	c.blocks = append(c.blocks, blockRef{Block: b})
	c.items = slices.Grow(c.items, b.count)[:begin+b.count]
	for k := range c.items[begin:] {
		c.items[begin+k] = item{block, uint32(k)}
	}
	c.bytes += b.totalBytes()
}

// Reserve returns space for n tuples after those already in the Chunk. Commit adds them.
func (c *Chunk) Reserve(n int) []*pyfeed.Tuple {
	c.tuples = slices.Grow(c.tuples, n)
	return c.tuples[len(c.tuples):][:n]
}

// Commit adds the first n tuples of the space that Reserve returned.
func (c *Chunk) Commit(n int) {
	begin := len(c.tuples)
	c.tuples = c.tuples[:begin+n]
	for k, t := range c.tuples[begin:] {
		c.items = append(c.items, item{tupleItem, uint32(begin + k)})
		c.bytes += t.Size()
	}
}

// MoveTo moves the next n instances, or all if there are fewer, to the end of another Chunk, and returns how many.
func (c *Chunk) MoveTo(to *Chunk, n int) int {
	n = min(n, c.Len())
	begin := len(to.items)
	to.items = slices.Grow(to.items, n)[:begin+n]
	c.moveTo(to, to.items[begin:], 1)
	return n
}

// Interleave moves the next n instances of each Chunk to the end of another: the first of each before the second of any.
func Interleave(from []*Chunk, to *Chunk, n int) {
	begin := len(to.items)
	to.items = slices.Grow(to.items, n*len(from))[:begin+n*len(from)]
	for i, c := range from {
		c.moveTo(to, to.items[begin+i:], len(from))
	}
}

// minJoined is the number of instances from which joining Blocks costs less than joining tuples, by the number of
// allocations: it was not measured.
const minJoined = 4

// Zip moves the next instances of several Chunks to the end of another Chunk. Each has the slots of one instance of each
// Chunk. Zip moves as many as follow one another in a Block in each Chunk, but at most n, and returns how many. It moves
// none, and returns 0, if there are fewer than minJoined, or if accept returns false for an instance with their dtypes
// and dims.
func Zip(from []*Chunk, to *Chunk, n int, accept func(*pyfeed.Tuple) bool) int {
	blocks, firsts, pass := make([]*Block, len(from)), make([]int, len(from)), int64(0)
	for i, c := range from {
		n = min(n, c.Len())
		if n < minJoined {
			return 0
		}
		items := c.items[c.front:]
		n = runLength(items[:n])
		if n < minJoined || c.blocks[items[0].block].texts != nil {
			return 0
		}
		b := &c.blocks[items[0].block]
		blocks[i], firsts[i], pass = b.Block, int(items[0].index), max(pass, b.pass)
	}
	b := Join(blocks, firsts, n)
	if !accept(b.Spec()) {
		return 0
	}
	to.AddBlock(b)
	to.blocks[len(to.blocks)-1].pass = pass
	for _, c := range from {
		c.advance(n)
	}
	return n
}

// moveTo moves the next instances to places[0], places[step], places[2*step] and so on, which are items of to.
func (c *Chunk) moveTo(to *Chunk, places []item, step int) {
	if c.target != to {
		c.target = to
		for i := range c.blocks {
			c.blocks[i].targetGeneration = 0
		}
	}
	to.generation = max(to.generation, 1)
	n, items := 0, c.items[c.front:]
	for i := 0; i < len(places); {
		it := items[n]
		if it.block == tupleItem {
			t := c.tuples[it.index]
			c.tuples[it.index] = nil
			places[i] = item{tupleItem, uint32(len(to.tuples))}
			to.tuples = append(to.tuples, t)
			to.bytes += t.Size()
			n, i = n+1, i+step
			continue
		}
		b := &c.blocks[it.block]
		if b.targetGeneration != to.generation {
			b.targetGeneration, b.targetIndex = to.generation, uint32(len(to.blocks))
			to.blocks = append(to.blocks, blockRef{Block: b.Block, pass: b.pass})
		}
		first, target := n, b.targetIndex
		for ; i < len(places) && items[n].block == it.block; i += step {
			places[i] = item{target, items[n].index}
			n++
		}
		to.bytes += b.bytesOf(items[first:n])
	}
	c.advance(n)
}

// Take takes the next instances as tuples: as many as there are and as fit into out. It returns how many. The caller
// owns them. If an instance is damaged, Take returns those before it, and the error; the damaged one is the next then.
func (c *Chunk) Take(out []*pyfeed.Tuple) (n int, err error) {
	for _, it := range c.items[c.front:][:min(len(out), c.Len())] {
		if out[n], err = c.tupleOf(it); err != nil {
			break
		}
		n++
	}
	c.advance(n)
	return n, err
}

// tupleOf takes an instance as a tuple, unless it is damaged. The item stays.
func (c *Chunk) tupleOf(it item) (*pyfeed.Tuple, error) {
	if it.block == tupleItem {
		t := c.tuples[it.index]
		c.tuples[it.index] = nil
		return t, nil
	}
	b := &c.blocks[it.block]
	t := pyfeed.NewTuple(0)
	if err := b.Materialize(t, int(it.index), &c.offsets); err != nil {
		t.Release()
		return nil, err
	}
	t.Pass, t.From = b.pass, b.origin(int(it.index))
	return t, nil
}

// TakeOne takes the next instance, of which there MUST be one. If it is damaged, it stays the next.
func (c *Chunk) TakeOne() (*pyfeed.Tuple, error) {
	t, err := c.tupleOf(c.items[c.front])
	if err == nil {
		c.advance(1)
	}
	return t, err
}

// advance removes the next n instances, which were taken.
func (c *Chunk) advance(n int) {
	if c.front += n; c.front == len(c.items) {
		c.empty()
	}
}

// empty resets the Chunk and keeps its allocated space. All instances MUST have been taken or released.
func (c *Chunk) empty() {
	clear(c.blocks)
	c.items, c.blocks, c.tuples, c.front, c.bytes = c.items[:0], c.blocks[:0], c.tuples[:0], 0, 0
	c.generation++
}

// Release releases all instances. The empty Chunk can be used again.
func (c *Chunk) Release() {
	for items := c.items[c.front:]; len(items) > 0; {
		block, n := items[0].block, 1
		for n < len(items) && items[n].block == block {
			n++
		}
		if block != tupleItem {
			c.blocks[block].unreleased += n
		}
		items = items[n:]
	}
	c.releaseBlocks()
	if len(c.tuples) > 0 {
		left := c.tuples[:0]
		for _, t := range c.tuples {
			if t != nil {
				left = append(left, t)
			}
		}
		pyfeed.ReleaseAll(left)
		clear(c.tuples)
	}
	c.empty()
}

// releaseBlocks releases the references that blockRef.unreleased counts.
func (c *Chunk) releaseBlocks() {
	for i := range c.blocks {
		if b := &c.blocks[i]; b.unreleased > 0 {
			b.release(b.unreleased)
			b.unreleased = 0
		}
	}
}

// Checkpoint is a position in a Chunk: after the last instance at the time it was made.
type Checkpoint struct{ items, blocks, tuples int }

// Checkpoint returns the position after the last instance.
func (c *Chunk) Checkpoint() Checkpoint {
	return Checkpoint{len(c.items), len(c.blocks), len(c.tuples)}
}

// SetPass sets the pass of all instances that were added since a checkpoint.
func (c *Chunk) SetPass(since Checkpoint, pass int64) {
	for i := range c.blocks[since.blocks:] {
		c.blocks[since.blocks+i].pass = pass
	}
	for _, t := range c.tuples[since.tuples:] {
		if t != nil {
			t.Pass = pass
		}
	}
}

// Filter calls keep for each instance that was added since a checkpoint, and releases those for which keep returns
// false. It returns how many are kept.
func (c *Chunk) Filter(since Checkpoint, keep func() bool) int {
	for i := range c.blocks[since.blocks:] {
		c.blocks[since.blocks+i].released = true
	}
	kept := c.items[:since.items]
	for _, it := range c.items[since.items:] {
		switch {
		case keep():
			kept = append(kept, it)
			if it.block != tupleItem {
				c.blocks[it.block].released = false
			}
		case it.block == tupleItem:
			t := c.tuples[it.index]
			c.tuples[it.index] = nil
			c.bytes -= t.Size()
			t.Release()
		default:
			b := &c.blocks[it.block]
			c.bytes -= b.bytes(int(it.index))
			b.unreleased++
		}
	}
	c.items = kept
	c.releaseBlocks()
	return len(kept) - since.items
}

// Keep releases all instances except count of them, from the first-th on. After the last instance, it continues with the
// first. first MUST be less than Len, unless count is 0, and count at most Len.
func (c *Chunk) Keep(first, count int) {
	if first+count > c.Len() { // rotate the instances, so that those to keep are in order
		items := c.items[c.front:]
		c.items = slices.Concat(c.items[:c.front], items[first:], items[:first])
		first = 0
	}
	k := 0
	c.Filter(Checkpoint{items: c.front}, func() bool {
		k++
		return first < k && k <= first+count
	})
	if c.Len() == 0 {
		c.empty()
	}
}

// PeekSpec returns a tuple with the dtypes, dims and LoD (level of detail) levels of the k-th instance, and the
// instance's pass. The Chunk owns the tuple.
func (c *Chunk) PeekSpec(k int) (*pyfeed.Tuple, int64) {
	it := c.items[c.front+k]
	if it.block == tupleItem {
		t := c.tuples[it.index]
		return t, t.Pass
	}
	b := &c.blocks[it.block]
	return &b.first, b.pass
}

// Origin returns the file and record of the k-th instance.
func (c *Chunk) Origin(k int) pyfeed.Origin {
	it := c.items[c.front+k]
	if it.block == tupleItem {
		return c.tuples[it.index].From
	}
	return c.blocks[it.block].origin(int(it.index))
}

// NumBlocks is the number of Blocks that the Chunk's instances, including those taken, belong to.
func (c *Chunk) NumBlocks() int { return len(c.blocks) }

// BlocksAlike reports whether the instances of the i-th and the j-th Block are known to have the same dtypes and dims.
func (c *Chunk) BlocksAlike(i, j int) bool { return alike(c.blocks[i].Block, c.blocks[j].Block) }

// BlockSpec returns a tuple with the dtypes and dims of the instances of the i-th Block. The Chunk owns it.
func (c *Chunk) BlockSpec(i int) *pyfeed.Tuple { return &c.blocks[i].first }

// MostlyBlocks reports whether few of the instances, including those taken, are tuples. Between two Blocks, there are
// often some.
func (c *Chunk) MostlyBlocks() bool { return len(c.tuples) <= len(c.items)/8 }

// Tuples returns the instances that are tuples already, in no particular order. An entry is nil if its tuple was taken
// or released. The Chunk owns them.
func (c *Chunk) Tuples() []*pyfeed.Tuple { return c.tuples }

// CheckTruncated returns an error if a file that instances of Blocks lie in has become shorter.
func (c *Chunk) CheckTruncated() error {
	if !memory.AnyTorn() {
		return nil
	}
	for i := range c.blocks {
		if b := &c.blocks[i]; !b.released {
			if err := b.checkTruncated(); err != nil {
				return err
			}
		}
	}
	return nil
}

// CopySlot copies one slot, of size bytes, of the instances first to end-1 into consecutive memory.
func (c *Chunk) CopySlot(to []byte, slot, size, first, end int) error {
	for items := c.items[c.front:][first:end]; len(items) > 0; {
		n := c.copyRun(to, slot, size, items)
		if n == 0 {
			n = c.copySmallSlots(to, slot, size, items)
		}
		if n == 0 {
			n = 1
			if it := items[0]; it.block != tupleItem {
				pyfeed.Copy(to, c.blocks[it.block].data(slot, int(it.index)))
			} else {
				from := &c.tuples[it.index].Slots[slot]
				pyfeed.Copy(to, from.Data)
				if err := from.CheckTruncated(slot); err != nil {
					return err
				}
			}
		}
		to, items = to[n*size:], items[n:]
	}
	return nil
}

// copyRun copies one slot, of size bytes, of the instances at the front that follow one another in a Block, if that slot
// of them is contiguous. It returns how many; 0: none or only one.
func (c *Chunk) copyRun(to []byte, slot, size int, items []item) int {
	first := items[0]
	if len(items) < 2 || items[1] != (item{first.block, first.index + 1}) || first.block == tupleItem {
		return 0
	}
	b := c.blocks[first.block].Block
	if b.HasSpans(slot) || b.places[slot].stride != size {
		return 0
	}
	n := runLength(items)
	pyfeed.Copy(to[:n*size], unsafe.Slice((*byte)(b.address(slot, int(first.index))), n*size))
	return n
}

// maxSmallSlot is the largest slot, in bytes, that copySmallSlots copies.
const maxSmallSlot = 64 << 10

// copySmallSlots copies one slot, of at most maxSmallSlot bytes, of the instances at the front that belong to Blocks in
// which the slot has no spans. It returns how many. For small instances the instructions between the copies cost more than the
// copies, so there are no checks: NewBlock and the caller, which compares all instances with the batch, have checked
// all sizes.
func (c *Chunk) copySmallSlots(to []byte, slot, size int, items []item) int {
	if size > maxSmallSlot {
		return 0
	}
	blocks, base := c.blocks, unsafe.Pointer(unsafe.SliceData(to[:len(items)*size]))
	if prefetch.Least <= size && size <= prefetch.Most {
		return c.copyAhead(base, slot, size, items)
	}
	for k, it := range items {
		if it.block == tupleItem || blocks[it.block].HasSpans(slot) {
			return k
		}
		at := unsafe.Add(base, k*size)
		switch from := blocks[it.block].address(slot, int(it.index)); size {
		case 4:
			*(*[4]byte)(at) = *(*[4]byte)(from)
		case 8:
			*(*[8]byte)(at) = *(*[8]byte)(from)
		default:
			copy(unsafe.Slice((*byte)(at), size), unsafe.Slice((*byte)(from), size))
		}
	}
	return len(items)
}

// copyAhead is copySmallSlots for sizes that [prefetch.Copy] copies. Shuffled instances are mostly not in the processor's
// cache, and the processor cannot tell where the next one is.
func (c *Chunk) copyAhead(base unsafe.Pointer, slot, size int, items []item) int {
	distance, block, first := prefetch.Distance(size), uint32(tupleItem), place{} // the place of the slot in that block
	for k, it := range items {
		if it.block == tupleItem {
			return k
		}
		if it.block != block {
			if c.blocks[it.block].HasSpans(slot) {
				return k
			}
			block, first = it.block, c.blocks[it.block].places[slot]
		}
		from := unsafe.Add(first.at, int(it.index)*first.stride)
		next := from
		if k+distance < len(items) {
			switch later := items[k+distance]; {
			case later.block == block:
				next = unsafe.Add(first.at, int(later.index)*first.stride)
			case later.block != tupleItem && !c.blocks[later.block].HasSpans(slot):
				next = c.blocks[later.block].address(slot, int(later.index))
			}
		}
		prefetch.Copy(unsafe.Add(base, k*size), from, size, next)
	}
	return len(items)
}

// Contiguous reports whether a batch of the instances can take over their memory: the instances have one slot, lie in
// consecutive, aligned memory, and nothing else refers to that memory.
func (c *Chunk) Contiguous() bool {
	items := c.items[c.front:]
	if len(c.tuples) > 0 || len(items) == 0 {
		return false
	}
	first := c.blocks[items[0].block].Block
	if first.texts != nil || len(first.first.Slots) != 1 || !first.parts[0].buffer.HasOnly(len(items)) {
		return false
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(first.data(0, int(items[0].index)))))
	for k, it := range items {
		b := c.blocks[it.block].Block
		if b.texts != nil || len(b.parts) != 1 || b.parts[0].buffer != first.parts[0].buffer || b.size != first.size ||
			uintptr(unsafe.Pointer(unsafe.SliceData(b.data(0, int(it.index))))) != begin+uintptr(k*b.size) {
			return false
		}
	}
	return begin%memory.Alignment == 0
}

// TakeBuffer takes all instances as the bytes of one slot, and the one remaining reference to their memory. Contiguous
// MUST hold.
func (c *Chunk) TakeBuffer() ([]byte, *memory.Buffer) {
	items := c.items[c.front:]
	first, n := c.blocks[items[0].block].Block, len(items)
	data, buffer := unsafe.Slice(unsafe.SliceData(first.data(0, int(items[0].index))), n*first.size), first.parts[0].buffer
	buffer.ReleaseMany(n - 1)
	c.empty()
	return data, buffer
}
