package decorators

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/sources"
)

// The second block is not read while the first instances of the first block are delivered. It is read from the second
// read on; in later passes, from the first read on.
func TestAShuffleGivesTheFirstInstancesBeforeItReadsOn(t *testing.T) {
	readertest.Counted(t)
	const size = 40
	numbers, err := sources.NewRandomDataGenerator([]pyfeed.Slot{{DType: pyfeed.Int64}}, 0, 1, 0, -1)
	source := readertest.Hold(t, numbers, err)
	reader, err := NewShuffleReader(source.Retain(), size, 0)
	h, r := asReader[*shuffleReader](t, reader, err)
	p := r.prefetcher
	for pass := range 2 {
		before := source.Stats().Tuples
		for read := range 2 {
			out := make([]*pyfeed.Tuple, 3)
			if n, err := h.ReadMany(background, out); n != 3 || err != nil {
				t.Fatal(n, err)
			}
			pyfeed.ReleaseAll(out)
			p.mu.Lock()
			for goesOn := pass > 0 || read > 0; goesOn && p.numUntaken() == 0; {
				p.mu.Unlock()
				runtime.Gosched()
				p.mu.Lock()
			}
			if blocks := (source.Stats().Tuples - before) / size; blocks != int64(min(1+pass+read, 2)) || p.readAhead || p.reading {
				t.Errorf("pass %d, read %d: found %d blocks, more to be read: %v", pass, read, blocks, p.readAhead)
			}
			p.mu.Unlock()
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

// Several consumers sleep when a block arrives. The first to wake takes more tuples than it needs. The others get the
// rest, and do not sleep until the next block.
func TestConsumersShareReadAhead(t *testing.T) {
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: record.MinBlock, Slots: readertest.Cells})
	reader, err := NewShuffleReader(ofQueue(q), record.MinBlock, 0)
	h, r := asReader[*shuffleReader](t, reader, err)
	p := r.prefetcher
	ctx, cancel := context.WithTimeout(background, time.Minute) // longer than any wait of the test
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
	readertest.Entered(&p.consumers, &p.mu, consumers)
	for i := range int64(record.MinBlock) {
		readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, i, i))
	}
	for range consumers {
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}
