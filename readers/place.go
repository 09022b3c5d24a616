package readers

import "github.com/pyfeed/pyfeed/pyfeed"

// Placed is a Reader whose tuples may be meant for another place than the CPU.
type Placed interface {
	// OutputPlace returns the place that the tuples are meant for, and whether they are there already. If not, they are
	// in memory that the host can access.
	OutputPlace() (place pyfeed.Place, there bool)
}

// Targetable is a Reader that writes tuples, or is above a reader that writes them, and whose target place can be set.
type Targetable interface {
	SetTarget(place pyfeed.Place) error
}

// OutputPlace returns that of the Reader, or the CPU if the Reader is not Placed.
func (h *ReaderHolder) OutputPlace() (place pyfeed.Place, there bool) {
	if p, is := h.reader.(Placed); is {
		return p.OutputPlace()
	}
	return pyfeed.CPUPlace(), true
}

// SetTarget is called by the reader above, which will copy the tuples to place.
func (h *ReaderHolder) SetTarget(place pyfeed.Place) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t, is := h.reader.(Targetable); is {
		return t.SetTarget(place)
	}
	return nil
}

// CheckHost returns an error if the tuples are in device memory. Then the operator op, which accesses tuples on the
// host, cannot read them.
func (h *ReaderHolder) CheckHost(op string) error {
	if place, there := h.OutputPlace(); place.Kind == pyfeed.CUDA && there {
		return pyfeed.Errorf(pyfeed.Unsupported, "%s: expected a reader of tuples in the host's memory, found one whose tuples are at %v: put the double_buffer on top", op, place)
	}
	return nil
}
