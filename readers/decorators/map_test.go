package decorators

import (
	"context"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// A worker that is woken for room finds no tuple yet and gives up. Another worker that waits for room takes its place.
func TestAWorkerThatGoesAwayLeavesItsRoom(t *testing.T) {
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Cells})
	reader, err := NewMapReader(ofQueue(q), nil, 1, true, nil)
	h, r := asReader[*mapReader](t, reader, err)
	w := WorkersOf(h)
	soon, cancel := context.WithTimeout(background, time.Minute) // longer than any wait of the test
	defer cancel()
	delivered := make(chan error)
	for range 2 {
		go func() {
			tuple, err := h.ReadNext(soon)
			if err == nil {
				tuple.Release()
			}
			delivered <- err
		}()
	}
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 0, 0))
	in, ticket, err := w.Take(soon)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error)
	first, leave := context.WithCancel(soon)
	for i, ctx := range []context.Context{first, soon} {
		go func() {
			in, ticket, err := w.Take(ctx)
			if err == nil {
				err = w.Give(ticket, in)
			}
			end <- err
		}()
		readertest.Until(func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.fullWorkers.Len() == i+1
		})
	}
	if err := w.Give(ticket, in); err != nil {
		t.Fatal(err)
	}
	if err := <-delivered; err != nil {
		t.Fatal(err)
	}
	readertest.Until(func() bool {
		r.prefetcher.mu.Lock()
		defer r.prefetcher.mu.Unlock()
		return r.prefetcher.consumers.Len() > 0
	})
	leave()
	if err := <-end; err != context.Canceled {
		t.Errorf("expected that the first worker was cancelled, found %v", err)
	}
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 1, 1))
	for range 2 { // the other worker, and the consumer that waits for its result
		select {
		case err = <-end:
		case err = <-delivered:
		}
		if err != nil {
			t.Error(err)
		}
	}
}
