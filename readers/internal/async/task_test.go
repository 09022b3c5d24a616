package async

import (
	"context"
	"errors"
	"runtime"
	"testing"
)

// A task whose context was cancelled ends with that error, which every caller of Wait gets.
func TestACancelledTaskEnds(t *testing.T) {
	var task Task[int]
	task.Start("waits", func(ctx context.Context) (int, error) {
		<-ctx.Done()
		return 0, ctx.Err()
	}, func(int) { t.Error("drop was called without a result") })
	task.cancel()
	for range 2 {
		if _, err := task.Wait(context.Background()); !errors.Is(err, context.Canceled) {
			t.Errorf("found %v", err)
		}
	}
	task.Stop()
}

// A result that no caller has taken is dropped, whether the work ends before or after Stop.
func TestAStoppedTaskDropsItsResult(t *testing.T) {
	for _, before := range []bool{true, false} {
		var task Task[int]
		proceed, dropped := make(chan struct{}), make(chan int, 1)
		task.Start("works", func(context.Context) (int, error) {
			<-proceed
			return 7, nil
		}, func(result int) { dropped <- result })
		if before {
			close(proceed)
			for ended := false; !ended; runtime.Gosched() {
				task.mu.Lock()
				ended = task.done
				task.mu.Unlock()
			}
			task.Stop()
		} else {
			task.Stop()
			close(proceed)
		}
		if result := <-dropped; result != 7 {
			t.Errorf("before %v: found %d", before, result)
		}
	}
}
