package wait

import (
	"context"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/internal/limits"
)

// timeSlicesOf sets the length of time slices for a test.
func timeSlicesOf(t *testing.T, length time.Duration) {
	before := limits.TimeSlice
	limits.TimeSlice = length
	t.Cleanup(func() { limits.TimeSlice = before })
}

// steps returns the number of steps after which the TimeSlice of an operation has expired; limit + 1 if it has not.
func steps(ctx context.Context, limit int) int {
	var slice TimeSlice
	for n := 1; n <= limit; n++ {
		if slice.Expired(ctx) {
			return n
		}
	}
	return limit + 1
}

func TestATimeSliceIsOverAfterItsTime(t *testing.T) {
	timeSlicesOf(t, 0)
	if n := steps(NonBlocking, 1000); n != 1 {
		t.Errorf("a time slice of length 0: expected 1 step, found %d", n)
	}
	limits.TimeSlice = time.Hour
	if n := steps(NonBlocking, 1000); n <= 1000 {
		t.Errorf("the time slice has expired after %d steps", n)
	}
}

// An expired TimeSlice tells the caller to try again: it leaves a C thread awake, a goroutine tries again, and a
// TryOnce is Busy.
func TestTheEndOfATimeSliceLeavesItsCallerAwake(t *testing.T) {
	timeSlicesOf(t, 0)
	var word uint32
	p := NewFutexParker(&word)
	if steps(p, 1000); word != awake {
		t.Errorf("expected the word to be awake, found %d", word)
	}
	p.Leave()
	once := &TryOnce{Context: NonBlocking, Track: 7}
	if steps(once, 1000); !once.Busy || TrackOf(once) != 7 {
		t.Errorf("expected a busy TryOnce with its track, found %+v", once)
	}
	tries := 0
	n, err := Do(context.Background(), func(ctx context.Context) (int, error) {
		if tries++; tries < 5 {
			steps(ctx, 1000)
			return 0, ErrWouldBlock
		}
		return tries, nil
	})
	if n != 5 || err != nil {
		t.Errorf("expected 5 tries, found %d, %v", n, err)
	}
}

// A Parker that gives up without having been in a List is reset: its next call has no generation of the previous call,
// and begins asleep.
func TestAGoroutineThatGivesUpABusyCall(t *testing.T) {
	timeSlicesOf(t, 0)
	p := &Parker{Context: context.Background(), signal: make(chan struct{}, 1)}
	owner := new(int)
	GenerationAtStart(p, owner, 1)
	steps(p, 1000)
	p.Leave()
	if len(p.signal) != 0 || GenerationAtStart(p, owner, 2) != 2 {
		t.Error("the Parker still has a generation of the previous call")
	}
}

func TestABusyGoroutineEndsWithItsContext(t *testing.T) {
	timeSlicesOf(t, 0)
	ctx, cancel := context.WithCancel(context.Background())
	tries := 0
	_, err := Do(ctx, func(ctx context.Context) (int, error) {
		if tries++; tries == 3 {
			cancel()
		}
		steps(ctx, 1000)
		return 0, ErrWouldBlock
	})
	if err != context.Canceled {
		t.Errorf("found %v", err)
	}
}
