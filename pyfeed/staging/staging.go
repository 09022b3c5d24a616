// Package staging keeps the staging buffers: of each place one, where tuples lie ready that were copied
// there while what came before was computed with.
//
// A Buffer wraps a queue that takes tuples of any look and is never closed. The process has one a place, for
// good: a program that stages and one that computes find each other by the place alone.
package staging

import (
	"context"
	"io"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Buffer is the staging buffer of a place, for any number of threads.
type Buffer struct {
	queue  *pyfeed.Consumer
	stager pyfeed.Stager // copies tuples to the place before they are queued, if that is a device; else nil
}

var buffers struct {
	mu  sync.Mutex
	all map[pyfeed.Place]*Buffer
}

// Get is the buffer of a place, made by the first call. Capacity counts tuples, at least 1, bytesLimit
// bytes; 0: no limit. With other limits than the first call's the answer is an error.
func Get(place pyfeed.Place, capacity, bytesLimit uint64) (*Buffer, error) {
	buffers.mu.Lock()
	defer buffers.mu.Unlock()
	if b := buffers.all[place]; b != nil {
		i := b.queue.Info()
		if capacity != uint64(i.Capacity) || bytesLimit != uint64(i.BytesLimit) {
			return nil, pyfeed.Errorf(pyfeed.State,
				"get_buffer: expected the limits that the buffer of %v was made with, capacity %d and bytes_limit %d, found capacity %d and bytes_limit %d",
				place, i.Capacity, i.BytesLimit, capacity, bytesLimit)
		}
		return b, nil
	}
	b, err := newBuffer(place, capacity, bytesLimit)
	if err != nil {
		return nil, err
	}
	if buffers.all == nil {
		buffers.all = make(map[pyfeed.Place]*Buffer)
	}
	buffers.all[place] = b
	return b, nil
}

func newBuffer(place pyfeed.Place, capacity, bytesLimit uint64) (*Buffer, error) {
	q, err := pyfeed.NewQueue(pyfeed.QueueOptions{Capacity: capacity, BytesLimit: bytesLimit, Place: place, AnyTuple: true, Labels: labels})
	if err != nil {
		return nil, err
	}
	b := &Buffer{queue: q}
	if place.Kind == pyfeed.CUDA {
		if b.stager, err = stagerTo(place); err != nil {
			q.Drop()
			return nil, err
		}
	}
	return b, nil
}

// labels say that what a consumer waits for comes from within: a run, or a thread that reads.
var labels = &pyfeed.QueueLabels{Queue: "staging buffer", ForTuple: "waits for a staged tuple", TupleWait: trace.Wait}

func stagerTo(place pyfeed.Place) (pyfeed.Stager, error) {
	backend, err := pyfeed.BackendOf(place)
	if err != nil {
		return nil, err
	}
	return backend.NewStager(place, pyfeed.Unlimited)
}

// Put copies a tuple to the place, behind the others. It waits for room. The tuple stays the caller's. At a device the
// copy may still be under way afterwards.
func (b *Buffer) Put(ctx context.Context, t *pyfeed.Tuple) error {
	b.noteProducer(ctx)
	r, copied, err := pyfeed.ReserveCopy(ctx, b.queue, pyfeed.PassCurrent, t.Slots)
	if err != nil {
		return err
	}
	return b.Commit(&r, copied)
}

// Reserve is the first half of Put, for a caller that writes the tuple itself: it waits for room for t, and gives it memory.
// Commit MUST follow, or Cancel of the Reservation.
func (b *Buffer) Reserve(ctx context.Context, t *pyfeed.Tuple) (pyfeed.Reservation, error) {
	b.noteProducer(ctx)
	return b.queue.Reserve(ctx, pyfeed.PassCurrent, t)
}

// noteProducer tells the trace that what is staged comes from the caller.
func (b *Buffer) noteProducer(ctx context.Context) {
	if trace.On() {
		b.queue.NoteProducer(ctx)
	}
}

// Commit is the second half: it begins the copy to a device, and queues the tuple, which is the Buffer's, come what may. It
// never waits.
func (b *Buffer) Commit(r *pyfeed.Reservation, t *pyfeed.Tuple) error {
	if b.stager != nil {
		staged, err := b.stager.Put(wait.NonBlocking, t)
		if err != nil {
			r.Cancel(t)
			return err
		}
		t = staged
	}
	return r.Commit(t)
}

// Get takes the oldest tuple out, which is the caller's then. It waits for one.
func (b *Buffer) Get(ctx context.Context) (*pyfeed.Tuple, error) {
	t, err := b.queue.Deliver(ctx)
	if err == io.EOF {
		err = pyfeed.Errorf(pyfeed.Closed, "the staging buffer is shut down")
	}
	return t, err
}

// Size is the number of tuples in the buffer.
func (b *Buffer) Size() int { return b.queue.Info().Size }

// Clear drops what is in the buffer, gives its memory back to the system, and answers the number of tuples.
// Those that wait for room get it. A tuple that is being put lands behind.
func (b *Buffer) Clear() int { return b.queue.Clear() }

// Stats looks at the buffer.
func (b *Buffer) Stats() pyfeed.QueueInfo { return b.queue.Info() }

// Place is whose buffer it is.
func (b *Buffer) Place() pyfeed.Place { return b.queue.Place() }

// Drop is for handles: the buffer stays.
func (b *Buffer) Drop() {}

// Shutdown ends every wait in a buffer, now and later, and drops what is in them all. It is for the end of a
// process that nothing else could bring about.
func Shutdown() {
	buffers.mu.Lock()
	defer buffers.mu.Unlock()
	for _, b := range buffers.all {
		b.queue.Shutdown()
	}
}
