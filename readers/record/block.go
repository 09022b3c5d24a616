package record

import (
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// MinBlock is for how many instances it pays to make a Block of them.
const MinBlock = 16

// Block is a record block: instances of a file that have the same dtypes and dims and lie in the same memory, at equal
// distances, or, as byte strings, each where a [Span] says. Small records are mostly shuffled and copied into a batch, which
// needs no tuples: see [Chunk].
type Block struct {
	first  pyfeed.Tuple // no slot has a reference to the memory
	count  int
	buffer *memory.Buffer
	stride int    // bytes from one instance to the next
	size   int    // bytes of each instance
	spans  []Span // nil: instances have stride and size
	base   []byte // of the spans

	from  pyfeed.Origin // of the first instance, if all are of one file
	files []FileRef     // of each instance; nil: all are of one file
}

// SetOrigin says of which file and record the first instance is. The others are the records behind it.
func (b *Block) SetOrigin(from pyfeed.Origin) { b.from = from }

// SetFiles says that each instance is the only one of a file.
func (b *Block) SetFiles(files []FileRef) { b.files = files }

// origin is that of the k-th instance.
func (b *Block) origin(k int) pyfeed.Origin {
	if b.files != nil {
		return pyfeed.Origin{File: &b.files[k].Path}
	}
	from := b.from
	from.Record += int64(k)
	return from
}

// Span is where a byte string lies.
type Span struct{ At, Size uint32 }

// NewBlock makes a Block of n instances in buffer. The first one has these slots, with dtype, dims and data, and no LoD. Each
// of the following begins stride bytes behind the one before it; the capacities of the slots' data MUST reach to the last.
// It takes over a reference to buffer for each instance.
func NewBlock(slots []pyfeed.LoDTensor, stride, n int, buffer *memory.Buffer) *Block {
	b := &Block{first: pyfeed.Tuple{Slots: slots}, count: n, buffer: buffer, stride: stride}
	for i := range slots {
		data := slots[i].Data
		if n > 1 && (stride < 0 || stride > (cap(data)-len(data))/(n-1)) {
			panic(fmt.Sprintf("record: NewBlock: slot %d: expected room for %d instances, %d bytes apart, found %d bytes", i, n, stride, cap(data)))
		}
		slots[i].Hold(data, buffer)
		b.size += len(data)
	}
	return b
}

// NewSpanBlock makes a Block of byte strings, as BytesSlot describes them: the spans of base, at least one, which lie in
// buffer. It takes over a reference to buffer for each span.
func NewSpanBlock(base []byte, spans []Span, buffer *memory.Buffer) *Block {
	b := &Block{count: len(spans), buffer: buffer, spans: spans, base: base}
	offsets := Offsets{free: make([]int64, 2)}
	offsets.Record(&b.first, b.data(0, 0), buffer)
	return b
}

// Len is the number of instances.
func (b *Block) Len() int { return b.count }

// HasSpans reports whether the instances are byte strings, each of a size of its own.
func (b *Block) HasSpans() bool { return b.spans != nil }

// Spec returns a tuple of the dtypes and dims of the instances. It stays the Block's.
func (b *Block) Spec() *pyfeed.Tuple { return &b.first }

// data is that of a slot of the k-th instance.
func (b *Block) data(slot, k int) []byte {
	if b.spans != nil {
		s := b.spans[k]
		return b.base[s.At:][:s.Size:s.Size]
	}
	first, at := b.first.Slots[slot].Data, k*b.stride
	return first[at : at+len(first) : at+len(first)] // as far as its capacity goes
}

// place is where a slot of the k-th instance begins, without a check. There MUST be no spans.
func (b *Block) place(slot, k int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.first.Slots[slot].Data)), k*b.stride))
}

// bytes is the size of the k-th instance.
func (b *Block) bytes(k int) int {
	if b.spans != nil {
		return int(b.spans[k].Size)
	}
	return b.size
}

// totalBytes is the size of all instances.
func (b *Block) totalBytes() int {
	n := b.count * b.size
	for _, s := range b.spans {
		n += int(s.Size)
	}
	return n
}

// Materialize makes the k-th instance a tuple, which is empty, with a reference that was taken over.
func (b *Block) Materialize(t *pyfeed.Tuple, k int, offsets *Offsets) {
	if b.spans != nil {
		offsets.Record(t, b.data(0, k), b.buffer)
		return
	}
	t.Resize(len(b.first.Slots))
	b.buffer.Retain(len(t.Slots) - 1)
	for i := range t.Slots {
		s := &t.Slots[i]
		lod := s.LoD // room for another's
		*s = b.first.Slots[i]
		s.LoD = lod
		s.Hold(b.data(i, k), b.buffer)
	}
}

// checkTruncated returns an error if the file has become shorter in which the instances lie.
func (b *Block) checkTruncated() error {
	for i := range b.first.Slots {
		if err := b.first.Slots[i].CheckTruncated(i); err != nil {
			return err
		}
	}
	return nil
}
