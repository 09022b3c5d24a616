package record

import (
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// FileWriter is the part that all formats' Writers share and embed: it keeps errors, and completes or aborts the file.
type FileWriter struct {
	Sink *storage.Sink
	// Spec is what all tuples must look like; nil: tuples are not checked.
	Spec *pyfeed.Spec
	// Names are those of the slots, or empty. They do not change after the first call of Encode.
	Names []string
	// Encode writes a tuple that has passed the check against Spec. It is not called after an error.
	Encode func(t *pyfeed.Tuple) error
	// Finish writes the data after the last tuple, and overwrites headers that depend on all tuples; nil: there is
	// nothing to write. It is not called after an error.
	Finish func() error

	written bool  // Encode was called
	failure error // of a Write, after which the file lacks a tuple, or of a writer that is closed
}

// Write implements [Writer].
func (w *FileWriter) Write(t *pyfeed.Tuple) error {
	if w.failure == nil && w.Spec != nil {
		w.failure = w.Spec.Check(t)
	}
	if w.failure == nil {
		w.written = true
		w.failure = w.Encode(t)
	}
	if w.failure == nil { // the tuple's file may have become shorter while Encode read from it
		w.failure = t.CheckTruncated()
	}
	return w.failure
}

// SetNames implements [Writer].
func (w *FileWriter) SetNames(names []string) error {
	switch {
	case w.failure != nil:
		return w.failure
	case w.written || w.Spec != nil || len(w.Names) > 0:
		return pyfeed.Errorf(pyfeed.State, "names: expected a writer without slots, names and tuples, found one that has some")
	}
	w.Names = names
	return nil
}

// SlotName returns the name of slot i; without one, slot0 for the first slot, and so on.
func (w *FileWriter) SlotName(i int) string {
	if i < len(w.Names) && w.Names[i] != "" {
		return w.Names[i]
	}
	return "slot" + strconv.Itoa(i)
}

// CheckName returns an error if the name of a slot is not UTF-8. Formats that store names as text call it: JSON would
// replace other bytes, and other programs refuse them.
func CheckName(slot int, tag, name string) error {
	if !utf8.ValidString(name) {
		return pyfeed.SlotErrorf(pyfeed.Invalid, slot, "%s: names: expected UTF-8, found %q", tag, name)
	}
	return nil
}

// Close implements [Writer]. It aborts the file if a Write failed.
func (w *FileWriter) Close() error {
	if w.failure == nil && w.Finish != nil {
		w.failure = w.Finish()
	}
	if w.failure != nil {
		w.Sink.Abort()
		return w.failure
	}
	err := w.Sink.Commit()
	w.failure = w.Sink.Err()
	return err
}

// Abort implements [Writer].
func (w *FileWriter) Abort() {
	w.Sink.Abort()
	if w.failure == nil {
		w.failure = w.Sink.Err()
	}
}

// DescribeTuple returns the slots of a tuple. For a slot with a LoD (level of detail), the number of rows is -1, since
// other tuples may have another number.
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
