package wait

import (
	"context"

	"github.com/pyfeed/pyfeed/internal/limits"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// A TimeSlice limits how long one try of an operation runs when it never has to wait. After the limit the operation
// keeps its progress and returns ErrWouldBlock. The outermost caller releases all locks, checks its timeout and
// signals, and tries again. The zero TimeSlice is ready for one try.
type TimeSlice struct {
	since int64 // end of the first step; 0: no step yet
}

// Expired reports whether the TimeSlice is used up. The operation calls it after each step. If it returns true, the
// operation MUST return ErrWouldBlock; the caller behind ctx then tries again without sleeping.
func (t *TimeSlice) Expired(ctx context.Context) bool {
	now := trace.Now()
	if t.since == 0 {
		t.since = now
	}
	if now-t.since < int64(limits.TimeSlice) {
		return false
	}
	stayAwake(ctx)
	return true
}

// stayAwake makes the caller behind ctx try again instead of sleeping. The caller is in no List.
func stayAwake(ctx context.Context) {
	switch c := ctx.(type) {
	case *Parker:
		c.wake()
	case *TryOnce:
		c.Busy = true
	}
}

// TryOnce is the context of a caller that does not wait. Busy tells it whether ErrWouldBlock came from an expired
// TimeSlice.
type TryOnce struct {
	context.Context
	Track trace.Track
	Busy  bool // a TimeSlice has expired: the operation could have continued
}
