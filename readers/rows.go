package readers

import (
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Rows are instances of a file that look alike and lie in the same memory: at equal distances, or, as sequences of bytes,
// each where a Span says. To be shuffled and copied into a batch, which is what mostly happens to small records, they
// need no tuples: see Lot.
type Rows struct {
	first  pyfeed.Tuple // of which no slot has a reference to the memory
	count  int
	buffer *memory.Buffer
	stride int    // from one to the next
	size   int    // of each, in bytes
	spans  []Span // nil: they have stride and size
	base   []byte // of the spans

	from  pyfeed.Origin // of the first, where they are of one file
	files []source      // those that have one each; nil: they are of one file
}

// origin is that of the k-th.
func (r *Rows) origin(k int) pyfeed.Origin {
	if r.files != nil {
		return pyfeed.Origin{File: &r.files[k].path}
	}
	from := r.from
	from.Record += int64(k)
	return from
}

// Span is where a sequence of bytes lies.
type Span struct{ At, Size uint32 }

// NewRows makes n Rows in b, whose first has these slots, with dtype, dims and data, and no LoD. Each of the
// following begins stride bytes behind the one before it; the capacities of the slots' data MUST reach to the last.
// It takes over a reference to b for each.
func NewRows(slots []pyfeed.LoDTensor, stride, n int, b *memory.Buffer) *Rows {
	r := &Rows{first: pyfeed.Tuple{Slots: slots}, count: n, buffer: b, stride: stride}
	for i := range slots {
		data := slots[i].Data
		if n > 1 && (stride < 0 || stride > (cap(data)-len(data))/(n-1)) {
			panic(fmt.Sprintf("readers: NewRows: slot %d: expected room for %d rows, %d bytes apart, found %d bytes", i, n, stride, cap(data)))
		}
		slots[i].Hold(data, b)
		r.size += len(data)
	}
	return r
}

// NewSequences makes Rows, as BytesSlot describes them, of the spans of base, which lies in b: one at least. It takes
// over a reference to b for each.
func NewSequences(base []byte, spans []Span, b *memory.Buffer) *Rows {
	r := &Rows{count: len(spans), buffer: b, spans: spans, base: base}
	offsets := Offsets{free: make([]int64, 2)}
	offsets.Record(&r.first, r.data(0, 0), b)
	return r
}

// Len is how many there are.
func (r *Rows) Len() int { return r.count }

// data is that of a slot of the k-th.
func (r *Rows) data(slot, k int) []byte {
	if r.spans != nil {
		s := r.spans[k]
		return r.base[s.At:][:s.Size:s.Size]
	}
	first, at := r.first.Slots[slot].Data, k*r.stride
	return first[at : at+len(first) : at+len(first)] // as far as its capacity goes
}

// place is where a slot of the k-th begins, without a check. They MUST have no spans.
func (r *Rows) place(slot, k int) *byte {
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(r.first.Slots[slot].Data)), k*r.stride))
}

// bytes is the size of the k-th.
func (r *Rows) bytes(k int) int {
	if r.spans != nil {
		return int(r.spans[k].Size)
	}
	return r.size
}

// total is the size of all of them, in bytes.
func (r *Rows) total() int {
	n := r.count * r.size
	for _, s := range r.spans {
		n += int(s.Size)
	}
	return n
}

// fill makes a tuple, which is empty, the k-th, with a reference that was taken over.
func (r *Rows) fill(t *pyfeed.Tuple, k int, offsets *Offsets) {
	if r.spans != nil {
		offsets.Record(t, r.data(0, k), r.buffer)
		return
	}
	t.Resize(len(r.first.Slots))
	r.buffer.Retain(len(t.Slots) - 1)
	for i := range t.Slots {
		s := &t.Slots[i]
		lod := s.LoD // room for another's
		*s = r.first.Slots[i]
		s.LoD = lod
		s.Hold(r.data(i, k), r.buffer)
	}
}

// intact is an error if the file has shrunk that they lie in.
func (r *Rows) intact() error {
	for i := range r.first.Slots {
		if err := r.first.Slots[i].Intact(i); err != nil {
			return err
		}
	}
	return nil
}
