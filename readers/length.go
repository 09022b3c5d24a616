package readers

import "math"

// A Sized is a Reader that may know how many tuples a pass has.
type Sized interface {
	Reader
	// Length returns the number of tuples of a pass, [Endless], or [Unknown]. It does not read, open a file, or wait.
	// Any goroutine may call it.
	Length() int64
}

// Lengths that are not a number of tuples.
const (
	Unknown int64 = -1
	Endless int64 = math.MaxInt64
)

// Length returns that of the Reader if it is Sized, else Unknown. Any goroutine may call it.
func (h *ReaderHolder) Length() int64 {
	if s, is := h.reader.(Sized); is {
		return s.Length()
	}
	return Unknown
}
