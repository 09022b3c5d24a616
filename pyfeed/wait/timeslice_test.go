package wait

import (
	"context"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/internal/limits"
)

// timeSlicesOf sets how long a TimeSlice lasts, for a test.
func timeSlicesOf(t *testing.T, length time.Duration) {
	before := limits.TimeSlice
	limits.TimeSlice = length
	t.Cleanup(func() { limits.TimeSlice = before })
}

// steps is how many steps, of so many bytes, an operation makes until its TimeSlice has expired; most at most.
func steps(ctx context.Context, bytes, most int) int {
	var slice TimeSlice
	for n := 1; n <= most; n++ {
		if slice.Expired(ctx, bytes) {
			return n
		}
	}
	return most + 1
}

func TestATurnIsOverAfterItsTime(t *testing.T) {
	timeSlicesOf(t, 0)
	for _, c := range []struct{ bytes, steps int }{{0, 8}, {1 << 20, 3}, {4 << 20, 1}} {
		if n := steps(NonBlocking, c.bytes, 1000); n != c.steps {
			t.Errorf("steps of %d bytes: expected a look at the clock after %d, found it after %d", c.bytes, c.steps, n)
		}
	}
	limits.TimeSlice = time.Hour
	if n := steps(NonBlocking, 4<<20, 1000); n <= 1000 {
		t.Errorf("over after %d steps", n)
	}
}

// What tells a caller that an operation could go on: a thread is awake, a goroutine tries again, and one that does not wait
// is told.
func TestTheEndOfATurnLeavesItsCallerAwake(t *testing.T) {
	timeSlicesOf(t, 0)
	var word uint32
	p := NewFutexParker(&word)
	if steps(p, 0, 1000); word != awake {
		t.Errorf("found the word %d", word)
	}
	p.Leave()
	once := &TryOnce{Context: NonBlocking, Track: 7}
	if steps(once, 0, 1000); !once.Busy || TrackOf(once) != 7 {
		t.Errorf("found %+v", once)
	}
	tries := 0
	n, err := Do(context.Background(), func(ctx context.Context) (int, error) {
		if tries++; tries < 5 {
			steps(ctx, 0, 1000)
			return 0, ErrWouldBlock
		}
		return tries, nil
	})
	if n != 5 || err != nil {
		t.Errorf("found %d, %v", n, err)
	}
}

// A Parker that gives up without having been in a List is as new: its next call has no generation of the one before, and
// is not awake yet.
func TestAGoroutineThatGivesUpABusyCall(t *testing.T) {
	timeSlicesOf(t, 0)
	p := &Parker{Context: context.Background(), signal: make(chan struct{}, 1)}
	owner := new(int)
	Began(p, owner, 1)
	steps(p, 0, 1000)
	p.Leave()
	if len(p.signal) != 0 || Began(p, owner, 2) != 2 {
		t.Error("it remembers the call before")
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
		steps(ctx, 0, 1000)
		return 0, ErrWouldBlock
	})
	if err != context.Canceled {
		t.Errorf("found %v", err)
	}
}
