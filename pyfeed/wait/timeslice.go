package wait

import (
	"context"

	"github.com/pyfeed/pyfeed/internal/limits"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// A TimeSlice bounds how long an operation that finds all it needs goes on in one try. When it has expired, the operation keeps what
// it has and answers ErrWouldBlock. Its caller lets go of all locks, looks at its time limit and at signals, and tries again.
// The zero TimeSlice is for one try.
type TimeSlice struct {
	since int64 // of the first look at the clock; 0: there was none
	work  int   // since the last look
}

const (
	workPerLook = 4 << 20         // bytes between two looks at the clock
	workPerStep = workPerLook / 8 // what a step counts for beside its bytes
)

// Expired is called after each step of the operation, with the bytes that it went through. If it is true, the operation MUST
// answer ErrWouldBlock; the caller behind ctx will not sleep then.
func (t *TimeSlice) Expired(ctx context.Context, bytes int) bool {
	t.work += workPerStep + bytes
	return t.work >= workPerLook && t.look(ctx)
}

func (t *TimeSlice) look(ctx context.Context) bool {
	now := trace.Now()
	t.work = 0
	if t.since == 0 {
		t.since = now
	}
	if now-t.since < int64(limits.TimeSlice) {
		return false
	}
	stayAwake(ctx)
	return true
}

// stayAwake has the caller behind ctx try again instead of sleeping. The caller is in no List.
func stayAwake(ctx context.Context) {
	switch c := ctx.(type) {
	case *Parker:
		c.wake()
	case *TryOnce:
		c.Busy = true
	}
}

// TryOnce is the context of a caller that does not wait, and that tells a wait from the end of a TimeSlice.
type TryOnce struct {
	context.Context
	Track trace.Track
	Busy  bool // the operation could go on
}
