package readers

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// What a shuffle is for, beside its order: to have the next block when this one is used up.
func TestAShuffleReadsTheNextBlockWhileThisOneIsServed(t *testing.T) {
	scope := counted(t)
	const size = 10
	source := create(t, scope, "create_random_data_generator", "source", nil, `{"slots": [{"dtype": "int64", "dims": []}]}`)
	h := create(t, scope, "create_shuffle_reader", "shuffled", []string{"source"}, fmt.Sprintf(`{"buffer_size": %d}`, size))
	for i := range 3*size - 1 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		want := int64(i/size+2) * size // this block and the next
		for end := time.Now().Add(30 * time.Second); source.Stats().Tuples < want; {
			if time.Now().After(end) {
				t.Fatalf("after %d tuples: expected %d that are read, found %d", i+1, want, source.Stats().Tuples)
			}
		}
		if got := source.Stats().Tuples; got > want {
			t.Errorf("after %d tuples: expected %d that are read, found %d", i+1, want, got)
		}
	}
}

// Nobody reads the second block while the first instances of the first one are on their way: but from the next read on, and in
// any further pass.
func TestAShuffleGivesTheFirstInstancesBeforeItReadsOn(t *testing.T) {
	scope := counted(t)
	const size = 40
	source := create(t, scope, "create_random_data_generator", "source", nil, `{"slots": [{"dtype": "int64", "dims": []}]}`)
	h := create(t, scope, "create_shuffle_reader", "shuffled", []string{"source"}, fmt.Sprintf(`{"buffer_size": %d}`, size))
	p := h.reader.(*ShuffleReader).pump
	for pass := range 2 {
		before := source.Stats().Tuples
		for read := range 2 {
			out := make([]*pyfeed.Tuple, 3)
			if n, err := h.ReadMany(background, out); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			pyfeed.ReleaseAll(out)
			p.mu.Lock()
			for goesOn := pass > 0 || read > 0; goesOn && p.waiting() == 0; {
				p.mu.Unlock()
				runtime.Gosched()
				p.mu.Lock()
			}
			if blocks := (source.Stats().Tuples - before) / size; blocks != int64(min(1+pass+read, 2)) || p.ahead || p.reading {
				t.Errorf("pass %d, read %d: found %d blocks, more to be read: %v", pass, read, blocks, p.ahead)
			}
			p.mu.Unlock()
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

// Several consumers sleep when a block comes, of which the first to wake takes more than one tuple: the others are served of
// those, and need not sleep until the next block.
func TestConsumersShareWhatOneOfThemHasRead(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: leastRows, Slots: cells})
	h := create(t, scope, "create_shuffle_reader", "shuffled", []string{"reader"}, fmt.Sprintf(`{"buffer_size": %d}`, leastRows))
	p := h.reader.(*ShuffleReader).pump
	ctx, cancel := context.WithTimeout(background, time.Minute) // forever, to those who wait
	defer cancel()
	const consumers = 4
	served := make(chan error)
	for range consumers {
		go func() {
			tuple, err := h.ReadNext(ctx)
			if err == nil {
				tuple.Release()
			}
			served <- err
		}()
	}
	entered(&p.consumers, &p.mu, consumers)
	for i := range int64(leastRows) {
		push(t, q, numbers(pyfeed.Dims{2}, i, i))
	}
	for range consumers {
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
