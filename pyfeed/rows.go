package pyfeed

import "github.com/pyfeed/pyfeed/pyfeed/memory"

// Rows are instances that all look alike and lie at equal distances in memory: records of one size of a file.
//
// A tuple that is one of them holds its number and a reference to the memory, and no slots before [Tuple.Whole]: to be
// shuffled and copied into a batch, which is what mostly happens to small records, it needs none.
type Rows struct {
	first  Tuple // of which nobody has a reference to the memory
	stride int
	size   int // bytes of data of each
	buffer *memory.Buffer
}

// NewRows makes Rows in b, whose first instance has these slots, with dtype, dims and data, and no LoD. Each of the
// following begins stride bytes behind the one before it; the capacities of the slots' data MUST reach to the last.
func NewRows(slots []LoDTensor, stride int, b *memory.Buffer) *Rows {
	r := &Rows{first: Tuple{Slots: slots}, stride: stride, buffer: b}
	for i := range slots {
		slots[i].buffer = b
		r.size += len(slots[i].Data)
	}
	return r
}

// First is what the first instance looks like, and so all others. It MUST NOT be released, nor used without one of them.
func (r *Rows) First() *Tuple { return &r.first }

// Fill makes tuples, which are empty, the instances from the first on. It takes over a reference to the memory for each.
func (r *Rows) Fill(out []*Tuple) {
	for i, t := range out {
		t.rows, t.row = r, i
	}
}

// Rows are those the tuple is one of, as long as it has no slots of its own; else nil.
func (t *Tuple) Rows() *Rows { return t.rows }

// Data is that of slot i, whether the tuple is one of Rows or not.
func (t *Tuple) Data(i int) []byte {
	if t.rows == nil {
		return t.Slots[i].Data
	}
	return t.rows.data(i, t.row)
}

func (r *Rows) data(i, row int) []byte {
	first, at := r.first.Slots[i].Data, row*r.stride
	return first[at : at+len(first) : at+len(first)] // as far as its capacity goes
}

// Size is the bytes of data of all slots, whether the tuple is one of Rows or not.
func (t *Tuple) Size() int {
	if t.rows != nil {
		return t.rows.size
	}
	n := 0
	for i := range t.Slots {
		n += len(t.Slots[i].Data)
	}
	return n
}

// Whole gives the tuple its slots, if it is one of Rows.
func (t *Tuple) Whole() {
	r := t.rows
	if r == nil {
		return
	}
	t.Resize(len(r.first.Slots))
	r.buffer.Retain(len(t.Slots) - 1)
	for i := range t.Slots {
		s := &t.Slots[i]
		lod := s.LoD // room for another's
		*s = r.first.Slots[i]
		s.LoD, s.Data = lod, r.data(i, t.row)
	}
	t.rows = nil
}

// WholeAll gives all of them their slots.
func WholeAll(all []*Tuple) {
	for _, t := range all {
		t.Whole()
	}
}
