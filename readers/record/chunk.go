package record

import (
	_ "math/rand/v2" // else the compiler does not inline it into order.Permute, which takes 10 instructions more an instance
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/internal/order"
)

// ChunkSize is how many instances are moved at a time where many can be.
const ChunkSize = 256

// Chunk is a list of instances on their way from one reader to the next: tuples, or references to instances of a [Block],
// which become tuples only where a reader needs tuples. It holds a reference to the memory of each instance. It is used by
// one caller at a time.
type Chunk struct {
	items      []item
	front      int // index in items of the next instance
	blocks     []blockRef
	tuples     []*pyfeed.Tuple // nil: it was taken or released
	bytes      int             // of data that was added since the Chunk was empty
	generation uint32          // how often it was emptied
	target     *Chunk          // where the last instances were moved to

	offsets Offsets // of tuples that are made
}

// item is an instance, in eight bytes, since these are what a shuffle moves.
type item struct {
	block uint32 // index in blocks, or tupleItem
	index uint32 // in that block, or in tuples
}

const tupleItem = ^uint32(0)

// blockRef is a Block of which the Chunk has some instances.
type blockRef struct {
	*Block
	pass       int64
	unreleased int  // references to its memory that are to be released
	released   bool // all instances were released, and the memory may have been
	// The index in target.blocks of the entry that the last instances were moved to, and the generation of target at that time.
	targetIndex, targetGeneration uint32
}

// Len is the number of instances.
func (c *Chunk) Len() int { return len(c.items) - c.front }

// Bytes is the size of the data that was added since the Chunk was empty.
func (c *Chunk) Bytes() int { return c.bytes }

// PartlyTaken reports whether some of its instances were taken or moved, and not all.
func (c *Chunk) PartlyTaken() bool { return c.front > 0 }

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

// Reserve returns space for n tuples behind those that are there. Commit adds them.
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

// moveTo moves the next instances to every step-th of these places, which are items of to, from the first on.
func (c *Chunk) moveTo(to *Chunk, places []item, step int) {
	if c.target != to {
		c.target = to
		for i := range c.blocks {
			c.blocks[i].targetGeneration = 0
		}
	}
	to.generation = max(to.generation, 1)
	n := 0
	for i := 0; i < len(places); i += step {
		it := c.items[c.front+n]
		n++
		if it.block == tupleItem {
			t := c.tuples[it.index]
			c.tuples[it.index] = nil
			places[i] = item{tupleItem, uint32(len(to.tuples))}
			to.tuples = append(to.tuples, t)
			to.bytes += t.Size()
			continue
		}
		b := &c.blocks[it.block]
		if b.targetGeneration != to.generation {
			b.targetGeneration, b.targetIndex = to.generation, uint32(len(to.blocks))
			to.blocks = append(to.blocks, blockRef{Block: b.Block, pass: b.pass})
		}
		places[i] = item{b.targetIndex, it.index}
		to.bytes += b.bytes(int(it.index))
	}
	c.advance(n)
}

// Take takes the next instances as tuples, as many as there are and fit into out, and returns how many. They are the
// caller's.
func (c *Chunk) Take(out []*pyfeed.Tuple) int {
	n := min(len(out), c.Len())
	for k, it := range c.items[c.front:][:n] {
		if it.block == tupleItem {
			out[k], c.tuples[it.index] = c.tuples[it.index], nil
			continue
		}
		b := &c.blocks[it.block]
		t := pyfeed.NewTuple(0)
		b.Materialize(t, int(it.index), &c.offsets)
		t.Pass, t.From = b.pass, b.origin(int(it.index))
		out[k] = t
	}
	c.advance(n)
	return n
}

// TakeOne takes the next instance, of which there MUST be one.
func (c *Chunk) TakeOne() *pyfeed.Tuple {
	var out [1]*pyfeed.Tuple
	c.Take(out[:])
	return out[0]
}

// advance goes on behind the next n instances, which were taken.
func (c *Chunk) advance(n int) {
	if c.front += n; c.front == len(c.items) {
		c.empty()
	}
}

// empty keeps only the space, once all instances were taken or released.
func (c *Chunk) empty() {
	clear(c.blocks)
	c.items, c.blocks, c.tuples, c.front, c.bytes = c.items[:0], c.blocks[:0], c.tuples[:0], 0, 0
	c.generation++
}

// Release releases all instances. The Chunk is empty then, and can be used again.
func (c *Chunk) Release() {
	for _, it := range c.items[c.front:] {
		if it.block != tupleItem {
			c.blocks[it.block].unreleased++
		}
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

// releaseBlocks releases the references to the memory of Blocks that are to be released.
func (c *Chunk) releaseBlocks() {
	for i := range c.blocks {
		if b := &c.blocks[i]; b.unreleased > 0 {
			b.buffer.ReleaseMany(b.unreleased)
			b.unreleased = 0
		}
	}
}

// Checkpoint is a position in a Chunk: behind the instances that were there when it was made.
type Checkpoint struct{ items, blocks, tuples int }

// Checkpoint returns the position behind the last instance.
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

// Filter releases the instances that were added since a checkpoint and for which keep returns false. It returns how many are
// kept.
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

// Permute puts the instances into the order that a seed, a pass and the number of a block of a shuffle give. It stops
// halfway when done is closed: the caller releases the instances then.
func (c *Chunk) Permute(seed, pass, block uint64, done <-chan struct{}) {
	order.Permute(c.items, seed, pass, block, done)
}

// PeekSpec returns a tuple of the dtypes, dims and LoD levels of the k-th instance, and the instance's pass. The tuple stays
// the Chunk's.
func (c *Chunk) PeekSpec(k int) (*pyfeed.Tuple, int64) {
	it := c.items[c.front+k]
	if it.block == tupleItem {
		t := c.tuples[it.index]
		return t, t.Pass
	}
	b := &c.blocks[it.block]
	return &b.first, b.pass
}

// Origin is the file and record of the k-th instance.
func (c *Chunk) Origin(k int) pyfeed.Origin {
	it := c.items[c.front+k]
	if it.block == tupleItem {
		return c.tuples[it.index].From
	}
	return c.blocks[it.block].origin(int(it.index))
}

// NumBlocks is the number of Blocks of which there are or were instances.
func (c *Chunk) NumBlocks() int { return len(c.blocks) }

// BlockSpec returns a tuple of the dtypes and dims of the instances of the i-th Block. It stays the Chunk's.
func (c *Chunk) BlockSpec(i int) *pyfeed.Tuple { return &c.blocks[i].first }

// Tuples are the instances that are tuples already, not in order. nil: it was taken or released. They stay the Chunk's.
func (c *Chunk) Tuples() []*pyfeed.Tuple { return c.tuples }

// CheckTruncated returns an error if a file has become shorter in which instances of Blocks lie.
func (c *Chunk) CheckTruncated() error {
	for i := range c.blocks {
		if b := &c.blocks[i]; !b.released {
			if err := b.checkTruncated(); err != nil {
				return err
			}
		}
	}
	return nil
}

// AllSpans reports whether all instances are byte strings of Blocks.
func (c *Chunk) AllSpans() bool {
	for i := range c.blocks {
		if c.blocks[i].spans == nil {
			return false
		}
	}
	return len(c.tuples) == 0
}

// AppendSpanEnds appends, for each instance, the number of bytes of it and of all before it. AllSpans MUST hold.
func (c *Chunk) AppendSpanEnds(ends []int64) []int64 {
	total := 0
	for _, it := range c.items[c.front:] {
		total += c.blocks[it.block].bytes(int(it.index))
		ends = append(ends, int64(total))
	}
	return ends
}

// CopySpans copies the instances from the first to before end one behind the other. AllSpans MUST hold.
func (c *Chunk) CopySpans(to []byte, first, end int) {
	for _, it := range c.items[c.front:][first:end] {
		data := c.blocks[it.block].data(0, int(it.index))
		pyfeed.Copy(to, data)
		to = to[len(data):]
	}
}

// CopySlot copies a slot, of size bytes, of the instances from the first to before end one behind the other.
func (c *Chunk) CopySlot(to []byte, slot, size, first, end int) error {
	for items := c.items[c.front:][first:end]; len(items) > 0; {
		n := c.copySmallSlots(to, slot, size, items)
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

// maxSmallSlot is up to how many bytes a slot is copied in one piece.
const maxSmallSlot = 64 << 10

// copySmallSlots copies a slot, of a small size, of the instances at the front that lie at equal distances, and returns how
// many. The cost of small instances is not that of their bytes but of the instructions between them, so there are no
// checks: NewBlock and the caller, who compares all instances with the batch, have checked all sizes.
func (c *Chunk) copySmallSlots(to []byte, slot, size int, items []item) int {
	if size > maxSmallSlot {
		return 0
	}
	blocks, at := c.blocks, unsafe.Pointer(unsafe.SliceData(to[:len(items)*size]))
	for k, it := range items {
		if it.block == tupleItem || blocks[it.block].spans != nil {
			return k
		}
		copy(unsafe.Slice((*byte)(at), size), unsafe.Slice(blocks[it.block].place(slot, int(it.index)), size))
		at = unsafe.Add(at, size)
	}
	return len(items)
}

// Contiguous reports whether the instances have one slot and lie one behind the other, aligned, in memory to which nothing
// else refers. Then a batch of them can take the memory over.
func (c *Chunk) Contiguous() bool {
	items := c.items[c.front:]
	if len(c.tuples) > 0 || len(items) == 0 {
		return false
	}
	first := c.blocks[items[0].block].Block
	if first.spans != nil || len(first.first.Slots) != 1 || !first.buffer.HasOnly(len(items)) {
		return false
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(first.data(0, int(items[0].index)))))
	for k, it := range items {
		b := c.blocks[it.block].Block
		if b.spans != nil || b.buffer != first.buffer || b.size != first.size ||
			uintptr(unsafe.Pointer(unsafe.SliceData(b.data(0, int(it.index))))) != begin+uintptr(k*b.size) {
			return false
		}
	}
	return begin%memory.Alignment == 0
}

// TakeBuffer takes all instances as the bytes of one slot, and the one reference that is left to their memory. Contiguous
// MUST hold.
func (c *Chunk) TakeBuffer() ([]byte, *memory.Buffer) {
	items := c.items[c.front:]
	first, n := c.blocks[items[0].block].Block, len(items)
	data := unsafe.Slice(unsafe.SliceData(first.data(0, int(items[0].index))), n*first.size)
	first.buffer.ReleaseMany(n - 1)
	c.empty()
	return data, first.buffer
}
