package record

import (
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// FileWriter is what the Writers of formats have in common, each of which embeds one: the errors that stay, and the
// ends that a file may come to.
type FileWriter struct {
	Sink *storage.Sink
	// Spec is what the next tuple must look like; nil: anything.
	Spec *pyfeed.Spec
	// Encode writes a tuple that Spec has nothing against. It is not called after an error.
	Encode func(t *pyfeed.Tuple) error
	// Finish writes what comes behind the last tuple, or over what had to wait for it; nil: nothing does. It is not
	// called after an error.
	Finish func() error

	err error // what a Write failed with, because the file lacks a tuple then, or that the writer is closed
}

// Write is Writer's.
func (w *FileWriter) Write(t *pyfeed.Tuple) error {
	if w.err == nil && w.Spec != nil {
		w.err = w.Spec.Check(t)
	}
	if w.err == nil {
		w.err = w.Encode(t)
	}
	if w.err == nil { // what was read in Encode may have been gone
		w.err = t.CheckTruncated()
	}
	return w.err
}

// Close is Writer's. It refuses a file that a Write failed for.
func (w *FileWriter) Close() error {
	if w.err == nil && w.Finish != nil {
		w.err = w.Finish()
	}
	if w.err != nil {
		w.Sink.Abort()
		return w.err
	}
	err := w.Sink.Commit()
	w.err = w.Sink.Err()
	return err
}

// Abort is Writer's.
func (w *FileWriter) Abort() {
	w.Sink.Abort()
	if w.err == nil {
		w.err = w.Sink.Err()
	}
}

// DescribeTuple is what a tuple looks like. Others may have another number of rows where it has a LoD.
func DescribeTuple(t *pyfeed.Tuple) []pyfeed.Slot {
	slots := make([]pyfeed.Slot, len(t.Slots))
	for i := range slots {
		s := &t.Slots[i]
		slots[i] = pyfeed.Slot{DType: s.DType, Dims: slices.Clone(s.Dims()), LoDLevels: len(s.LoD)}
		if len(s.LoD) > 0 && len(slots[i].Dims) > 0 {
			slots[i].Dims[0] = -1
		}
	}
	return slots
}
