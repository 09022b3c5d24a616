package processes

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/shared"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/sources"
)

// A reader that is closed says so before its tickets become invalid. A tuple that is posted in between is released: the
// Pool forgets its tuples only once.
func TestATupleIsNotPostedAfterTheEnd(t *testing.T) {
	source := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 1, Slots: readertest.Cells})
	reader, err := decorators.NewMapReader(readers.NewHolder(sources.NewPyArrayReader(source.Retain())), nil, 1, true, nil)
	h := readertest.Hold(t, reader, err)
	workers := decorators.WorkersOf(h)
	var holder pyfeed.PyArrayFeedQueueHolder
	options := shared.Options{
		Slots: readertest.Cells, RingCells: 1, CellBytes: 4096, Tasks: shared.TaskOptions{Count: 1, Slots: 1, Bytes: 4096},
	}
	before := memory.Count().Slabs
	queue, ring, err := shared.New(options, holder.InitOnce)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		queue.Shutdown()
		queue.Drop()
		holder.Drop()
		readertest.Until(func() bool { return memory.Count().Slabs == before }) // the goroutine of the ring has ended
	}()
	p := &Pool{workers: workers, queue: queue, ring: ring, posted: make(map[uint64]*pyfeed.Tuple)}
	p.changed = sync.NewCond(&p.mu)
	p.asked.Init(&p.mu)

	reading, stop := context.WithCancel(t.Context())
	read := make(chan error)
	go func() {
		_, err := h.ReadNext(reading)
		read <- err
	}()
	readertest.Push(t, source, readertest.Numbers(pyfeed.Dims{2}, 0, 0))
	tuple, ticket, err := workers.TakeInside(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.reset(true)
	if _, err := workers.Position(ticket); err != nil {
		t.Fatalf("the ticket: expected an open one, found %v", err)
	}
	p.postOne(tuple, ticket)
	if len(p.posted) != 0 {
		t.Errorf("tuples that stay posted: expected none, found %d", len(p.posted))
	}
	stop()
	if err := <-read; !errors.Is(err, context.Canceled) {
		t.Errorf("the read: expected %v, found %v", context.Canceled, err)
	}
}
