package readers

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// targeted is a Reader whose tuples are meant for another place than the CPU's, or may be.
type targeted interface {
	// target is where they are meant for, and whether they are there already. If not, they are in memory that the
	// host can touch.
	target() (place pyfeed.Place, there bool)
}

// aimed is a Reader that writes, or lies above one that does, and can be told for which place.
type aimed interface {
	aim(place pyfeed.Place) error
}

func (h *ReaderHolder) target() (pyfeed.Place, bool) {
	if t, is := h.reader.(targeted); is {
		return t.target()
	}
	return pyfeed.CPUPlace(), true
}

// aim is for the reader above, which is going to copy to the place.
func (h *ReaderHolder) aim(place pyfeed.Place) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if a, is := h.reader.(aimed); is {
		return a.aim(place)
	}
	return nil
}

// checkHost says why a reader cannot be decorated by one that looks at its tuples.
func (h *ReaderHolder) checkHost(op string) error {
	if place, there := h.target(); place.Kind == pyfeed.CUDA && there {
		return pyfeed.Errorf(pyfeed.Unsupported, "%s: expected a reader of tuples in the host's memory, found one whose tuples are at %v: put the double_buffer on top", op, place)
	}
	return nil
}

func (r *PyArrayReader) target() (pyfeed.Place, bool) { return r.queue.Place(), false }

func (r *BatchReader) target() (pyfeed.Place, bool)     { return r.under.target() }
func (r *MapReader) target() (pyfeed.Place, bool)       { return r.under.target() }
func (r *ShuffleReader) target() (pyfeed.Place, bool)   { return r.under.target() }
func (r *ShardReader) target() (pyfeed.Place, bool)     { return r.under.target() }
func (r *MultiPassReader) target() (pyfeed.Place, bool) { return r.under.target() }

func (r *ShuffleReader) aim(place pyfeed.Place) error   { return r.under.aim(place) }
func (r *ShardReader) aim(place pyfeed.Place) error     { return r.under.aim(place) }
func (r *MultiPassReader) aim(place pyfeed.Place) error { return r.under.aim(place) }

// aim has results copied to where the device copies them from.
func (r *MapReader) aim(place pyfeed.Place) error {
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		return err
	}
	r.pool.Swap(pool).Close()
	return nil
}

// aim has batches written where the device copies them from.
func (r *BatchReader) aim(place pyfeed.Place) error {
	pool, err := pyfeed.HostPool(place, memory.Batch)
	if err != nil {
		return err
	}
	r.pool.Close()
	r.pool, r.aimed = pool, place != pyfeed.CPUPlace()
	return nil
}
