package ops_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/internal/limits"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// timeSlicesEnd makes every TimeSlice expire at its first check. It is called before the scope of a test is made.
func timeSlicesEnd(t *testing.T) {
	t.Helper()
	length := limits.TimeSlice
	limits.TimeSlice = 0
	t.Cleanup(func() { limits.TimeSlice = length })
}

// busyChains are chains above readers that always have a tuple ready.
var busyChains = map[string][]struct{ op, out, in, attributes string }{
	"batch": {
		{"create_batch_reader", "top", "source", `{"batch_size": 100000000}`},
	},
	"batch of sequences": {
		{"create_batch_reader", "top", "ragged", `{"batch_size": 100000000}`},
	},
	"shard": {
		{"create_shard_reader", "top", "source", `{"rank": 999999999, "world": 1000000000}`},
	},
	"batch of passes": {
		{"create_multi_pass_reader", "passes", "short", `{"pass_num": 0}`},
		{"create_batch_reader", "top", "passes", `{"batch_size": 100000000}`},
	},
	"batch of pairs": {
		{"create_zip_reader", "pairs", "source other", ``},
		{"create_batch_reader", "top", "pairs", `{"batch_size": 100000000}`},
	},
	"batch of shuffled": {
		{"create_shuffle_reader", "shuffled", "source", `{"buffer_size": 100}`},
		{"create_batch_reader", "top", "shuffled", `{"batch_size": 100000000}`},
	},
	"shuffle": {
		{"create_shuffle_reader", "top", "source", `{"buffer_size": 100000000}`},
	},
	"double_buffer": {
		{"create_batch_reader", "batches", "source", `{"batch_size": 100000000}`},
		{"create_double_buffer_reader", "top", "batches", ``},
	},
	"double_buffer of sharded": {
		{"create_shard_reader", "part", "source", `{"rank": 999999999, "world": 1000000000}`},
		{"create_double_buffer_reader", "top", "part", ``},
	},
}

// busy makes a chain whose next tuple never becomes ready, although no reader below ever blocks.
func busy(t *testing.T, name string) (top, source *readers.ReaderHolder) {
	t.Helper()
	timeSlicesEnd(t)
	scope := readertest.Scope(t)
	const slot = `"slots": [{"dtype": "uint8", "dims": []}]`
	create(t, scope, "create_random_data_generator", "source", nil, `{`+slot+`}`)
	create(t, scope, "create_random_data_generator", "other", nil, `{`+slot+`}`)
	create(t, scope, "create_random_data_generator", "short", nil, `{"count": 100, `+slot+`}`)
	create(t, scope, "create_random_data_generator", "ragged", nil, `{"slots": [{"dtype": "uint8", "dims": [1]}]}`)
	for _, step := range busyChains[name] {
		var in []string
		for _, one := range bytes.Fields([]byte(step.in)) {
			in = append(in, string(one))
		}
		top = create(t, scope, step.op, step.out, in, step.attributes)
	}
	return top, reader(t, scope, "source")
}

// A call that never blocks releases its locks after a time slice, and its caller repeats it without sleeping.
func TestABusyCallLetsItsCallerLookAround(t *testing.T) {
	for _, name := range []string{"batch", "shard", "batch of passes", "batch of pairs"} {
		t.Run(name, func(t *testing.T) {
			h, _ := busy(t, name)
			var word uint32
			p := wait.NewFutexParker(&word)
			defer p.Leave()
			once := &wait.TryOnce{Context: wait.NonBlocking}
			for _, ctx := range []context.Context{wait.NonBlocking, p, once, p} {
				word = 0
				if _, err := h.ReadNext(ctx); err != wait.ErrWouldBlock {
					t.Fatalf("%T: found %v", ctx, err)
				}
				if ctx == context.Context(p) && word != 1 {
					t.Error("expected the caller to be awake")
				}
			}
			if !once.Busy {
				t.Error("expected the caller to be told that the call can go on")
			}
			_ = h.Stats() // needs the lock
		})
	}
}

// A batch is the same wherever its call was interrupted: each try goes on from there.
func TestABusyCallLosesNothing(t *testing.T) {
	timeSlicesEnd(t)
	names, _ := readertest.WriteIDs(t, 1000)
	for _, name := range []string{"stacked", "concatenated"} {
		t.Run(name, func(t *testing.T) {
			read := func(length time.Duration) (all []byte, tries int) {
				limits.TimeSlice = length
				scope := readertest.Scope(t)
				if name == "stacked" {
					create(t, scope, "create_random_data_generator", "reader", nil, `{"count": 1000, "slots": [{"dtype": "int64", "dims": [2]}]}`)
				} else {
					create(t, scope, "create_file_reader", "reader", nil, readertest.OpenIDs(names, ""))
				}
				create(t, scope, "create_shard_reader", "shard", []string{"reader"}, `{"rank": 1, "world": 3}`)
				h := create(t, scope, "create_batch_reader", "batch", []string{"shard"}, `{"batch_size": 200}`)
				for {
					batch, err := h.ReadNext(wait.NonBlocking)
					tries++
					if err == io.EOF {
						return all, tries
					}
					if err == wait.ErrWouldBlock {
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					for i := range batch.Slots {
						all = append(all, batch.Slots[i].Data...)
					}
					batch.Release()
				}
			}
			want, few := read(time.Hour)
			found, many := read(0)
			if !bytes.Equal(want, found) || len(want) < 333*8 {
				t.Errorf("expected %d bytes, found other %d", len(want), len(found))
			}
			if few != 3 || many <= few {
				t.Errorf("expected at least 3 tries, found %d and %d", few, many)
			}
		})
	}
}

// A cancelled context, or a reset by another thread, ends a busy call as it ends a sleeping one.
func TestABusyCallCanBeEnded(t *testing.T) {
	for name := range busyChains {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " reset ", reset), func(t *testing.T) {
				h, source := busy(t, name)
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				done := make(chan error, 1)
				go func() {
					_, err := h.ReadNext(ctx)
					done <- err
				}()
				if name != "batch of passes" && name != "batch of sequences" {
					for source.Stats().Tuples == 0 {
						runtime.Gosched()
					}
				}
				if !reset {
					cancel()
					if err := <-done; !errors.Is(err, context.Canceled) {
						t.Errorf("found %v", err)
					}
					return
				}
				if err := readertest.ResetUntilEnd(t, h, done); !readertest.IsCancelled(err) {
					t.Errorf("found %v", err)
				}
			})
		}
	}
}
