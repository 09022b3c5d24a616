package readers

import "github.com/pyfeed/pyfeed/pyfeed"

// Placed is a Reader whose tuples are meant for another place than the CPU's, or may be.
type Placed interface {
	// OutputPlace is where they are meant for, and whether they are there already. If not, they are in memory that the
	// host can touch.
	OutputPlace() (place pyfeed.Place, there bool)
}

// Targetable is a Reader that writes, or lies above one that does, and can be told for which place.
type Targetable interface {
	SetTarget(place pyfeed.Place) error
}

// OutputPlace is the Reader's: the CPU's, if it has none.
func (h *ReaderHolder) OutputPlace() (place pyfeed.Place, there bool) {
	if p, is := h.reader.(Placed); is {
		return p.OutputPlace()
	}
	return pyfeed.CPUPlace(), true
}

// SetTarget is for the reader above, which is going to copy to the place.
func (h *ReaderHolder) SetTarget(place pyfeed.Place) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, is := h.reader.(Targetable); is {
		return t.SetTarget(place)
	}
	return nil
}

// CheckHost says why a reader cannot be decorated by one that looks at its tuples.
func (h *ReaderHolder) CheckHost(op string) error {
	if place, there := h.OutputPlace(); place.Kind == pyfeed.CUDA && there {
		return pyfeed.Errorf(pyfeed.Unsupported, "%s: expected a reader of tuples in the host's memory, found one whose tuples are at %v: put the double_buffer on top", op, place)
	}
	return nil
}
