package record

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// MinBlock is the number of instances from which making a Block costs less than making tuples. Blocks of a single
// instance would be slower: 3,857 instructions instead of 3,120 (docs/performance.md, "Small records").
const MinBlock = 16

// Block is a record block: instances that have the same dtypes and dims. Each slot of them lies at equal distances in
// one memory, or is a byte string, for each instance at the position that a [Span] gives. Small records are mostly
// shuffled and copied into a batch; a [Chunk] does both without making tuples.
type Block struct {
	first  pyfeed.Tuple // no slot has a reference to the memory
	count  int
	places []place // of each slot that is not a byte string
	parts  []part
	size   int    // bytes of those slots of each instance
	texts  []Text // of each slot; without spans for a slot with a place; nil if all slots have one

	oneText [1]Text // the memory of texts, if there is one slot

	checksum *Checksum // of the instances that are verified late; nil: all were verified
	offset   int64     // of base in the file

	batchable bool          // consecutive instances can be a batch: see Gather
	from      pyfeed.Origin // of the first instance, if all are from one file
	files     []FileRef     // of each instance; nil: all are from one file
	origins   *origins      // of each instance; nil: they are given by from and files

	like atomic.Pointer[Block] // a Block that was found to have the same layout, and stands for it; nil: none

	onePart   [1]part // the memory of parts and places, if there are few
	fewPlaces [2]place
}

// place is where a slot of the first instance lies, and how many bytes later that of the next instance.
type place struct {
	at     unsafe.Pointer
	stride int
}

// part is the memory of some adjacent slots. Each instance has one reference to the memory of each part.
type part struct {
	buffer *memory.Buffer
	slots  int
}

// SetOrigin sets the file and record of the first instance. The other instances are the records that follow.
func (b *Block) SetOrigin(from pyfeed.Origin) { b.from = from }

// SetFiles says that each instance is the only instance of its file, and sets these files.
func (b *Block) SetFiles(files []FileRef) { b.files = files }

// origin returns the file and record of the k-th instance.
func (b *Block) origin(k int) pyfeed.Origin {
	switch {
	case b.files != nil:
		return pyfeed.Origin{File: &b.files[k].Path}
	case b.origins != nil:
		return b.origins.of(k)
	}
	from := b.from
	from.Record += int64(k)
	return from
}

// Span is the position and size of a byte string.
type Span struct{ At, Size uint32 }

// NewBlock makes a Block of n instances in buffer. slots are those of the first instance, with dtype, dims and data,
// and no LoD (level of detail). Each next instance begins stride bytes after the one before it; the capacities of the
// slots' data MUST reach to the last instance. NewBlock takes over a reference to buffer for each instance.
func NewBlock(slots []pyfeed.LoDTensor, stride, n int, buffer *memory.Buffer) *Block {
	return newBlock(slots, n, buffer, func(int) int { return stride })
}

// NewColumnBlock is NewBlock for instances each slot of which is contiguous: that of the next instance follows.
func NewColumnBlock(slots []pyfeed.LoDTensor, n int, buffer *memory.Buffer) *Block {
	return newBlock(slots, n, buffer, func(slot int) int { return len(slots[slot].Data) })
}

func newBlock(slots []pyfeed.LoDTensor, n int, buffer *memory.Buffer, stride func(slot int) int) *Block {
	b := &Block{first: pyfeed.Tuple{Slots: slots}, count: n}
	b.parts = append(b.onePart[:0], part{buffer, len(slots)})
	b.places = b.fewPlaces[:0]
	if len(slots) > len(b.fewPlaces) {
		b.places = make([]place, 0, len(slots))
	}
	for i := range slots {
		b.addSlot(i, stride(i), buffer)
	}
	return b
}

// addSlot sets the place of a slot of first, which has its data, and counts its bytes.
func (b *Block) addSlot(slot, stride int, buffer *memory.Buffer) {
	s := &b.first.Slots[slot]
	if n := b.count; n > 1 && (stride < 0 || stride > (cap(s.Data)-len(s.Data))/(n-1)) {
		panic(fmt.Sprintf("record: NewBlock: slot %d: expected room for %d instances, %d bytes apart, found %d bytes", slot, n, stride, cap(s.Data)))
	}
	b.places = append(b.places, place{unsafe.Pointer(unsafe.SliceData(s.Data)), stride})
	b.size += len(s.Data)
	s.Hold(s.Data, buffer)
}

// Text is a slot of byte strings, as [BytesSlot] describes them: a span of Base for each instance. Base lies in Buffer.
type Text struct {
	Spans  []Span // nil: another slot
	Base   []byte
	Buffer *memory.Buffer
}

// NewTextBlock makes a Block of n instances of which some slots are byte strings: those that have spans in texts. The others
// are contiguous in buffer, as for [NewColumnBlock], if stride is 0, or else stride bytes apart, as for [NewBlock]. The
// Block takes a reference to each buffer for each instance.
func NewTextBlock(slots []pyfeed.LoDTensor, texts []Text, stride, n int, buffer *memory.Buffer) *Block {
	b := &Block{first: pyfeed.Tuple{Slots: slots}, count: n, texts: texts}
	b.parts, b.places = b.onePart[:0], b.fewPlaces[:0]
	var offsets Offsets
	for i := range slots {
		t := &texts[i]
		if t.Spans == nil {
			b.addToParts(buffer)
			b.addSlot(i, cmp.Or(stride, len(slots[i].Data)), buffer)
			continue
		}
		if len(t.Spans) != n {
			panic(fmt.Sprintf("record: NewTextBlock: slot %d: expected %d spans, found %d", i, n, len(t.Spans)))
		}
		b.addToParts(t.Buffer)
		b.places = append(b.places, place{})
		offsets.free = make([]int64, 2)
		offsets.Sequence(&slots[i], int(t.Spans[0].Size))
		slots[i].Hold(b.data(i, 0), t.Buffer)
	}
	for _, p := range b.parts {
		p.buffer.Retain(n)
	}
	return b
}

// addToParts notes the memory of the next slot.
func (b *Block) addToParts(buffer *memory.Buffer) {
	if last := len(b.parts) - 1; last >= 0 && b.parts[last].buffer == buffer {
		b.parts[last].slots++
		return
	}
	b.parts = append(b.parts, part{buffer, 1})
}

// Join makes a Block of n instances that have the slots of several Blocks. The first instance is made of the instance
// firsts[i] of each blocks[i], which MUST NOT have spans. It takes over the references of these n instances of each
// Block. The origins are those of the first Block that has any.
func Join(blocks []*Block, firsts []int, n int) *Block {
	j := &Block{count: n}
	j.parts, j.places = j.onePart[:0], j.fewPlaces[:0]
	slots := 0
	for _, b := range blocks {
		slots += len(b.first.Slots)
	}
	j.first.Slots = make([]pyfeed.LoDTensor, 0, slots)
	for i, b := range blocks {
		slot := 0
		for _, p := range b.parts {
			j.parts = append(j.parts, p)
			for range p.slots {
				s, stride := b.first.Slots[slot], b.places[slot].stride
				s.Data = s.Data[:cap(s.Data)][firsts[i]*stride:][:len(s.Data)] // may lie beyond the length, within the capacity
				j.first.Slots = append(j.first.Slots, s)
				j.addSlot(len(j.first.Slots)-1, stride, p.buffer)
				slot++
			}
		}
		if o := b.origin(firsts[i]); j.from.File == nil && o.File != nil {
			j.setOrigins(b, firsts[i])
		}
	}
	return j
}

// Shorten releases all instances but the first n.
func (b *Block) Shorten(n int) {
	b.release(b.count - n)
	b.count = n
}

// setOrigins gives the instances the origins of those of another Block, from its first-th on.
func (b *Block) setOrigins(of *Block, first int) {
	b.from = of.origin(first)
	switch {
	case of.files != nil:
		b.files = of.files[first:]
	case of.origins != nil:
		b.origins = of.origins.after(first)
	}
}

// NewSpanBlock makes a Block of byte strings as BytesSlot describes them: the given spans of base, at least one. base
// lies in buffer. NewSpanBlock takes over a reference to buffer for each span.
func NewSpanBlock(base []byte, spans []Span, buffer *memory.Buffer) *Block {
	b := &Block{count: len(spans)}
	b.texts = append(b.oneText[:0], Text{spans, base, buffer})
	b.parts = append(b.onePart[:0], part{buffer, 1})
	offsets := Offsets{free: make([]int64, 2)}
	offsets.Record(&b.first, b.data(0, 0), buffer)
	return b
}

// Len is the number of instances.
func (b *Block) Len() int { return b.count }

// HasSpans reports whether a slot is a byte string, whose size differs among the instances.
func (b *Block) HasSpans(slot int) bool { return b.texts != nil && b.texts[slot].Spans != nil }

// Spec returns a tuple with the dtypes and dims of the instances. The Block owns it.
func (b *Block) Spec() *pyfeed.Tuple { return &b.first }

// isString reports whether NewSpanBlock made the Block: it has nothing but a byte string.
func (b *Block) isString() bool { return b.texts != nil && len(b.places) == 0 }

// representative returns the Block that stands for b in comparisons.
func (b *Block) representative() *Block {
	if r := b.like.Load(); r != nil {
		return r
	}
	return b
}

// alike reports whether the instances of two Blocks have the same dtypes, dims and sizes, apart from the sizes of byte
// strings. The answer is remembered: in a shuffle over many Blocks, each batch has instances of most of them.
func alike(a, b *Block) bool {
	x, y := a.representative(), b.representative()
	same := x == y || sameSlots(x, y)
	if same && x != y {
		b.like.Store(x)
	}
	return same
}

// sameSlots reports whether two Blocks have byte strings in the same slots, and the same layout of the others.
func sameSlots(a, b *Block) bool {
	if len(a.first.Slots) != len(b.first.Slots) {
		return false
	}
	for i := range a.first.Slots {
		if text := a.HasSpans(i); text != b.HasSpans(i) || !text && !sameSlot(&a.first.Slots[i], &b.first.Slots[i]) {
			return false
		}
	}
	return true
}

// data returns the data of a slot of the k-th instance.
func (b *Block) data(slot, k int) []byte {
	if b.HasSpans(slot) {
		t := &b.texts[slot]
		s := t.Spans[k]
		return t.Base[s.At:][:s.Size:s.Size]
	}
	first, at := b.first.Slots[slot].Data, k*b.places[slot].stride
	return first[at : at+len(first) : at+len(first)] // may lie beyond the length of first, within its capacity
}

// address returns the address of a slot of the k-th instance, without a check of k. The slot MUST NOT have spans.
func (b *Block) address(slot, k int) unsafe.Pointer {
	p := &b.places[slot]
	return unsafe.Add(p.at, k*p.stride)
}

// release releases n references to the memory of each part.
func (b *Block) release(n int) {
	for _, p := range b.parts {
		p.buffer.ReleaseMany(n)
	}
}

// bytes returns the size of the k-th instance.
func (b *Block) bytes(k int) int {
	n := b.size
	for i := range b.texts {
		if spans := b.texts[i].Spans; spans != nil {
			n += int(spans[k].Size)
		}
	}
	return n
}

// bytesOf returns the size of some instances.
func (b *Block) bytesOf(items []item) int {
	n := len(items) * b.size
	for i := range b.texts {
		if spans := b.texts[i].Spans; spans != nil {
			for _, it := range items {
				n += int(spans[it.index].Size)
			}
		}
	}
	return n
}

// totalBytes returns the size of all instances.
func (b *Block) totalBytes() int {
	n := b.count * b.size
	for i := range b.texts {
		for _, s := range b.texts[i].Spans {
			n += int(s.Size)
		}
	}
	return n
}

// Materialize makes t, an empty tuple, the k-th instance. The tuple takes over the instance's references to the memory.
// An error says that the instance is damaged; then the references stay.
func (b *Block) Materialize(t *pyfeed.Tuple, k int, offsets *Offsets) error {
	if b.texts == nil && len(b.parts) == 1 {
		b.materializePlaces(t, k)
		return nil
	}
	if b.isString() {
		if err := b.verify(k); err != nil {
			return err
		}
		offsets.Record(t, b.data(0, k), b.parts[0].buffer)
		return nil
	}
	t.Resize(len(b.first.Slots))
	i := 0
	for j := range b.parts {
		p := &b.parts[j]
		if p.slots > 1 {
			p.buffer.Retain(p.slots - 1)
		}
		for end := i + p.slots; i < end; i++ {
			data := b.data(i, k)
			s := b.fill(t, i, data, p.buffer)
			if b.HasSpans(i) {
				offsets.Sequence(s, len(data))
			}
		}
	}
	return nil
}

// materializePlaces is Materialize for a Block with a single part and without byte strings.
func (b *Block) materializePlaces(t *pyfeed.Tuple, k int) {
	buffer := b.parts[0].buffer
	t.Resize(len(b.first.Slots))
	if len(t.Slots) > 1 {
		buffer.Retain(len(t.Slots) - 1)
	}
	for i := range t.Slots {
		b.fill(t, i, unsafe.Slice((*byte)(b.address(i, k)), len(b.first.Slots[i].Data)), buffer)
	}
}

// fill makes a slot of t like that of the first instance, with other data, and returns it. It is inlined.
func (b *Block) fill(t *pyfeed.Tuple, slot int, data []byte, buffer *memory.Buffer) *pyfeed.LoDTensor {
	s := &t.Slots[slot]
	lod := s.LoD // keep the allocated LoD slices of t
	*s = b.first.Slots[slot]
	s.LoD = lod
	s.Hold(data, buffer)
	return s
}

// checkTruncated returns an error if the file that the instances lie in has become shorter.
func (b *Block) checkTruncated() error {
	slot := 0
	for _, p := range b.parts { // all slots of a part are in the same mapping
		if err := b.first.Slots[slot].CheckTruncated(slot); err != nil {
			return err
		}
		slot += p.slots
	}
	return nil
}
