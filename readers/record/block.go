package record

import (
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// MinBlock is the number of instances from which making a Block costs less than making tuples. Blocks of a single
// instance would be slower: 3,857 instructions instead of 3,120 (docs/performance.md, "Small records").
const MinBlock = 16

// Block is a record block: instances of a file that have the same dtypes and dims and lie in the same memory. They lie
// at equal distances, or are byte strings, each at the position that a [Span] gives. Small records are mostly shuffled
// and copied into a batch; a [Chunk] does both without making tuples.
type Block struct {
	first  pyfeed.Tuple // no slot has a reference to the memory
	count  int
	buffer *memory.Buffer
	stride int    // bytes from one instance to the next
	size   int    // bytes of each instance
	spans  []Span // nil: instances have stride and size
	base   []byte // the memory that the spans refer to

	checksum *Checksum // of the instances that are verified late; nil: all were verified
	offset   int64     // of base in the file

	from  pyfeed.Origin // of the first instance, if all are from one file
	files []FileRef     // of each instance; nil: all are from one file
}

// SetOrigin sets the file and record of the first instance. The other instances are the records that follow.
func (b *Block) SetOrigin(from pyfeed.Origin) { b.from = from }

// SetFiles says that each instance is the only instance of its file, and sets these files.
func (b *Block) SetFiles(files []FileRef) { b.files = files }

// origin returns the file and record of the k-th instance.
func (b *Block) origin(k int) pyfeed.Origin {
	if b.files != nil {
		return pyfeed.Origin{File: &b.files[k].Path}
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

// NewSpanBlock makes a Block of byte strings as BytesSlot describes them: the given spans of base, at least one. base
// lies in buffer. NewSpanBlock takes over a reference to buffer for each span.
func NewSpanBlock(base []byte, spans []Span, buffer *memory.Buffer) *Block {
	b := &Block{count: len(spans), buffer: buffer, spans: spans, base: base}
	offsets := Offsets{free: make([]int64, 2)}
	offsets.Record(&b.first, b.data(0, 0), buffer)
	return b
}

// Len is the number of instances.
func (b *Block) Len() int { return b.count }

// HasSpans reports whether the instances are byte strings, each with its own size.
func (b *Block) HasSpans() bool { return b.spans != nil }

// Spec returns a tuple with the dtypes and dims of the instances. The Block owns it.
func (b *Block) Spec() *pyfeed.Tuple { return &b.first }

// data returns the data of a slot of the k-th instance.
func (b *Block) data(slot, k int) []byte {
	if b.spans != nil {
		s := b.spans[k]
		return b.base[s.At:][:s.Size:s.Size]
	}
	first, at := b.first.Slots[slot].Data, k*b.stride
	return first[at : at+len(first) : at+len(first)] // may lie beyond the length of first, within its capacity
}

// place returns the address of a slot of the k-th instance, without a bounds check. The Block MUST NOT have spans.
func (b *Block) place(slot, k int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b.first.Slots[slot].Data)), k*b.stride))
}

// bytes returns the size of the k-th instance.
func (b *Block) bytes(k int) int {
	if b.spans != nil {
		return int(b.spans[k].Size)
	}
	return b.size
}

// totalBytes returns the size of all instances.
func (b *Block) totalBytes() int {
	n := b.count * b.size
	for _, s := range b.spans {
		n += int(s.Size)
	}
	return n
}

// Materialize makes t, an empty tuple, the k-th instance. The tuple takes over one of the references to the memory. An
// error says that the instance is damaged; then the reference stays.
func (b *Block) Materialize(t *pyfeed.Tuple, k int, offsets *Offsets) error {
	if b.spans != nil {
		if err := b.verify(k); err != nil {
			return err
		}
		offsets.Record(t, b.data(0, k), b.buffer)
		return nil
	}
	t.Resize(len(b.first.Slots))
	b.buffer.Retain(len(t.Slots) - 1)
	for i := range t.Slots {
		s := &t.Slots[i]
		lod := s.LoD // keep the allocated LoD slices of t
		*s = b.first.Slots[i]
		s.LoD = lod
		s.Hold(b.data(i, k), b.buffer)
	}
	return nil
}

// checkTruncated returns an error if the file that the instances lie in has become shorter.
func (b *Block) checkTruncated() error {
	for i := range b.first.Slots {
		if err := b.first.Slots[i].CheckTruncated(i); err != nil {
			return err
		}
	}
	return nil
}
