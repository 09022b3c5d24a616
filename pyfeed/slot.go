package pyfeed

import (
	"fmt"
	"sync/atomic"
)

// A Slot describes one component of a tuple: the dtype, dims and ragged offsets that its tensor must have.
type Slot struct {
	Name      string // name of the slot in a file; may be ""
	DType     DType  // Any: taken from the first tuple
	Dims      Dims   // -1 matches any size; a first dimension of -1 is the one along which tuples are joined
	LoDLevels int
}

// Grows reports whether batching joins tuples along the first dimension, instead of stacking them.
func (s Slot) Grows() bool { return len(s.Dims) > 0 && s.Dims[0] == -1 }

// String formats all but the name, such as "float32[-1 3] lod 1".
func (s Slot) String() string {
	text := fmt.Sprintf("%v%v", s.DType, s.Dims)
	if s.LoDLevels > 0 {
		text += fmt.Sprintf(" lod %d", s.LoDLevels)
	}
	return text
}

// Spec describes the slots of a tuple. A dtype given as Any is set by the first tuple checked, from any thread.
type Spec struct {
	slots  []Slot // empty: any tuple with at least one slot is accepted
	dtypes []atomic.Int32
}

// NewSpec checks the slots and returns a Spec with a copy of them.
func NewSpec(slots []Slot) (*Spec, error) {
	if len(slots) == 0 {
		return nil, Errorf(Slots, "slots: expected at least 1, found 0")
	}
	s := &Spec{slots: make([]Slot, len(slots)), dtypes: make([]atomic.Int32, len(slots))}
	for i, slot := range slots {
		if slot.DType != Any && !slot.DType.Valid() {
			return nil, SlotErrorf(Type, i, "expected a dtype, found number %d", int32(slot.DType))
		}
		if len(slot.Dims) > MaxRank {
			return nil, SlotErrorf(Shape, i, "rank: expected at most %d dimensions, found %d", MaxRank, len(slot.Dims))
		}
		for j, d := range slot.Dims {
			if d < -1 {
				return nil, SlotErrorf(Shape, i, "dimension %d: expected a size or -1, found %d", j, d)
			}
		}
		if slot.LoDLevels < 0 || slot.LoDLevels > MaxLoDLevels {
			return nil, SlotErrorf(Shape, i, "LoD: expected 0 to %d levels, found %d", MaxLoDLevels, slot.LoDLevels)
		}
		if slot.LoDLevels > 0 && !slot.Grows() {
			return nil, SlotErrorf(Shape, i, "LoD: expected a first dimension of -1 with %d levels, found dims %v", slot.LoDLevels, slot.Dims)
		}
		slot.Dims = append(Dims(nil), slot.Dims...)
		s.slots[i] = slot
		s.dtypes[i].Store(int32(slot.DType))
	}
	return s, nil
}

// Len returns the number of slots.
func (s *Spec) Len() int { return len(s.slots) }

// Slot returns the i-th slot with its current dtype.
func (s *Spec) Slot(i int) Slot {
	slot := s.slots[i]
	slot.DType = DType(s.dtypes[i].Load())
	return slot
}

// Grows reports whether batching joins tuples along the first dimension of the i-th slot.
func (s *Spec) Grows(i int) bool { return s.slots[i].Grows() }

// RowsAdded returns how many rows slot i of an instance adds to a batch; for a slot with LoD, how many sequences.
func (s *Spec) RowsAdded(t *Tuple, i int) int64 {
	if s.Grows(i) {
		return t.Slots[i].Rows()
	}
	return 1
}

// Batched returns the Spec of batches of the tuples that s describes. Both Specs share their dtypes: a dtype set in one
// is set in the other.
func (s *Spec) Batched() (*Spec, error) {
	b := &Spec{append([]Slot(nil), s.slots...), s.dtypes}
	for i := range b.slots {
		slot := &b.slots[i]
		if slot.Grows() {
			continue
		}
		if len(slot.Dims) == MaxRank {
			return nil, SlotErrorf(Shape, i, "batching adds a dimension to %v, but %d are the most", slot.Dims, MaxRank)
		}
		slot.Dims = append(Dims{-1}, slot.Dims...)
	}
	return b, nil
}

// Check compares the dtypes, dims and LoD of a tuple with the slots, and sets the dtypes that are still Any.
func (s *Spec) Check(t *Tuple) error {
	if len(s.slots) == 0 {
		return t.check()
	}
	if len(t.Slots) != len(s.slots) {
		return Errorf(Slots, "slots: expected %d, found %d", len(s.slots), len(t.Slots))
	}
	rows, first := int64(-1), 0
	for i := range t.Slots {
		if err := s.checkSlot(i, &t.Slots[i]); err != nil {
			return err
		}
		if !s.slots[i].Grows() {
			continue
		}
		switch n := t.Slots[i].Rows(); {
		case rows < 0:
			rows, first = n, i
		case n != rows:
			return SlotErrorf(Shape, i, "batch dimension: expected %d, as in slot %d, found %d", rows, first, n)
		}
	}
	return s.resolveDTypes(t)
}

func (s *Spec) checkSlot(i int, t *LoDTensor) error {
	slot := &s.slots[i]
	if !t.DType.Valid() {
		return SlotErrorf(Type, i, "expected a dtype, found number %d", int32(t.DType))
	}
	if want := DType(s.dtypes[i].Load()); want != Any && t.DType != want {
		return SlotErrorf(Type, i, "dtype: expected %v, found %v", want, t.DType)
	}
	found := t.Dims()
	if len(found) != len(slot.Dims) {
		return SlotErrorf(Shape, i, "shape: expected %v, found %v", slot.Dims, found)
	}
	for j, want := range slot.Dims {
		if want != -1 && found[j] != want {
			return SlotErrorf(Shape, i, "dimension %d: expected %d, found %d: dims %v for %v", j, want, found[j], found, slot.Dims)
		}
	}
	if _, err := t.Measure(); err != nil {
		return SlotErrorf(Shape, i, "%v", err)
	}
	if len(t.LoD) != slot.LoDLevels {
		return SlotErrorf(Shape, i, "LoD: expected %d levels, found %d", slot.LoDLevels, len(t.LoD))
	}
	if err := t.CheckLoD(); err != nil {
		return SlotErrorf(Shape, i, "%v", err)
	}
	return nil
}

// check does the checks that hold for every tuple, when no slots are given.
func (t *Tuple) check() error {
	if len(t.Slots) == 0 {
		return Errorf(Slots, "slots: expected at least 1, found 0")
	}
	for i := range t.Slots {
		s := &t.Slots[i]
		if !s.DType.Valid() {
			return SlotErrorf(Type, i, "expected a dtype, found number %d", int32(s.DType))
		}
		_, err := s.Measure()
		if err == nil {
			err = s.CheckLoD()
		}
		if err != nil {
			return SlotErrorf(Shape, i, "%v", err)
		}
	}
	return nil
}

func (s *Spec) resolveDTypes(t *Tuple) error {
	for i := range t.Slots {
		found := int32(t.Slots[i].DType)
		if s.dtypes[i].Load() == found || s.dtypes[i].CompareAndSwap(int32(Any), found) {
			continue
		}
		return s.checkSlot(i, &t.Slots[i])
	}
	return nil
}
