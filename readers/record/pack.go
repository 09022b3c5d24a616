package record

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// maxPackedSlot is the largest average size in bytes of the slots of instances that PackRows copies: the size of a cache
// line. The slots of an instance then take fewer cache lines together than apart.
const maxPackedSlot = 64

// packedAtOnce is about how many bytes PackRows copies slot by slot before it goes on, so that they stay in a core's cache.
const packedAtOnce = 32 << 10

// PackRows copies the small instances of the Blocks from the first-th on whose slots lie in columns, so that the slots of
// each instance lie together. It is for readers that take many instances in another order: without it, each slot of each
// instance is a cache miss. If there is no memory for the copies, or a file that the instances lie in has become shorter,
// the instances stay where they are. No instance may have been taken.
func (c *Chunk) PackRows(first int, pool *memory.Pool) {
	for i := first; i < len(c.blocks); i++ {
		if b := c.blocks[i].Block; b.inColumns() {
			if packed := b.pack(pool); packed != nil {
				b.release(b.count)
				c.blocks[i].Block = packed
			}
		}
	}
}

// inColumns reports whether the slots of an instance lie apart, and are so small that they should lie together.
func (b *Block) inColumns() bool {
	slots := len(b.places)
	if b.texts != nil || b.checksum != nil || slots < 2 || b.count < 2 || b.size > slots*maxPackedSlot {
		return false
	}
	for i, p := range b.places {
		if p.stride != len(b.first.Slots[i].Data) {
			return false
		}
	}
	return true
}

// pack returns a Block of copies of all instances, or nil.
func (b *Block) pack(pool *memory.Pool) *Block {
	slots, starts := make([]pyfeed.LoDTensor, len(b.places)), make([]int, len(b.places))
	stride, widest := 0, 1
	for i := range slots {
		from := &b.first.Slots[i]
		width := min(from.DType.Size(), 8)
		widest = max(widest, width)
		starts[i] = align(stride, width)
		stride = starts[i] + len(from.Data)
	}
	stride = align(stride, widest)
	buffer, err := pool.Get(max(b.count*stride, 1))
	if err != nil {
		return nil
	}
	room := buffer.Bytes()[:b.count*stride]
	step := max(packedAtOnce/max(stride, 1), 1)
	for k := 0; k < b.count; k += step {
		n := min(step, b.count-k)
		for i := range slots {
			from := b.first.Slots[i].Data
			size := len(from)
			Spread(room[k*stride+starts[i]:], from[:cap(from)][k*size:(k+n)*size], stride, size)
		}
	}
	if b.checkTruncated() != nil {
		buffer.Release()
		return nil
	}
	for i := range slots {
		from := &b.first.Slots[i]
		slots[i].DType, slots[i].Place = from.DType, from.Place
		_ = slots[i].SetDims(from.Dims()) // cannot fail: it has the same rank
		slots[i].Data = room[starts[i] : starts[i]+len(from.Data)]
	}
	buffer.Retain(b.count - 1)
	packed := NewBlock(slots, stride, b.count, buffer)
	packed.setOrigins(b, 0)
	return packed
}

func align(n, to int) int { return (n + to - 1) / to * to }
