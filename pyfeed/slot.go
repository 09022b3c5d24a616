package pyfeed

import "sync/atomic"

// A Slot is what one tensor of a tuple must look like.
type Slot struct {
	Name      string // of a file's slot; may be ""
	DType     DType  // Any: the first tuple decides
	Dims      Dims   // -1 matches anything; a first one of -1 is the dimension that grows
	LoDLevels int
}

// Grows says whether tuples are joined along the first dimension, rather than stacked.
func (s Slot) Grows() bool { return len(s.Dims) > 0 && s.Dims[0] == -1 }

// Spec is what tuples must look like. Its dtypes may be settled later, by many threads at once.
type Spec struct {
	slots  []Slot // none: any tuple with a slot will do
	dtypes []atomic.Int32
}

// NewSpec copies and checks the slots.
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

// Len is the number of slots.
func (s *Spec) Len() int { return len(s.slots) }

// Slot is the i-th, with the dtype it has by now.
func (s *Spec) Slot(i int) Slot {
	slot := s.slots[i]
	slot.DType = DType(s.dtypes[i].Load())
	return slot
}

// Grows says whether tuples are joined along the first dimension of the i-th slot.
func (s *Spec) Grows(i int) bool { return s.slots[i].Grows() }

// Batched is the Spec of batches of what this one describes. The two settle their dtypes together.
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

// Check compares a tuple's dtypes, dims and LoD, and settles the dtypes that were open.
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
	return s.settle(t)
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
		return SlotErrorf(Shape, i, "rank: expected %d, dims %v, found %d, dims %v", len(slot.Dims), slot.Dims, len(found), found)
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

// check is what there is to check of a tuple that may look like anything.
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

func (s *Spec) settle(t *Tuple) error {
	for i := range t.Slots {
		found := int32(t.Slots[i].DType)
		if s.dtypes[i].Load() == found || s.dtypes[i].CompareAndSwap(int32(Any), found) {
			continue
		}
		return s.checkSlot(i, &t.Slots[i])
	}
	return nil
}
