// Package staging has the staging buffers: one for each place. Tuples are copied there while earlier tuples are still
// being computed on.
//
// A Buffer wraps a queue that accepts tuples of any dtypes and dims and is never closed. It exists until the process
// ends. A program that stages tuples and a program that computes on them find the buffer by its place.
package staging

import (
	"context"
	"io"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Buffer is the staging buffer of a place. All methods are safe for concurrent use.
type Buffer struct {
	queue  *pyfeed.Consumer
	stager pyfeed.Stager // if the place is a device, copies tuples there before they are queued; else nil
}

var buffers struct {
	mu  sync.Mutex
	all map[pyfeed.Place]*Buffer
}

// Get returns the buffer of a place. The first call makes it. capacity is in tuples, at least 1; bytesLimit is in
// bytes, 0 means no limit. A later call with other limits fails with State.
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

// labels assign a consumer's wait to the readers, not to a producer: the tuples come from a run or a thread that reads.
var labels = &pyfeed.QueueLabels{Queue: "staging buffer", ForTuple: "waits for a staged tuple", TupleWait: trace.Wait}

func stagerTo(place pyfeed.Place) (pyfeed.Stager, error) {
	backend, err := pyfeed.BackendOf(place)
	if err != nil {
		return nil, err
	}
	return backend.NewStager(place, pyfeed.Unlimited)
}

// Put queues a copy of t at the place. It waits for room. The caller keeps ownership of t. A copy to a device may still
// be in progress when Put returns.
func (b *Buffer) Put(ctx context.Context, t *pyfeed.Tuple) error {
	b.noteProducer(ctx)
	r, copied, err := pyfeed.ReserveCopy(ctx, b.queue, pyfeed.PassCurrent, t.Slots)
	if err != nil {
		return err
	}
	return b.Commit(&r, copied)
}

// Reserve is the first half of Put, for a caller that writes the tuple itself. It waits for room for t and allocates
// t's memory. The caller MUST call Commit, or Cancel of the Reservation.
func (b *Buffer) Reserve(ctx context.Context, t *pyfeed.Tuple) (pyfeed.Reservation, error) {
	b.noteProducer(ctx)
	return b.queue.Reserve(ctx, pyfeed.PassCurrent, t)
}

// noteProducer tells the trace that the caller produces the staged tuples.
func (b *Buffer) noteProducer(ctx context.Context) {
	if trace.On() {
		b.queue.NoteProducer(ctx)
	}
}

// Commit is the second half of Put: it submits the copy to a device, if any, and queues the tuple. It always takes
// ownership of t, and never waits.
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

// Get waits for the oldest tuple and returns it; the caller owns it.
func (b *Buffer) Get(ctx context.Context) (*pyfeed.Tuple, error) {
	t, err := b.queue.Deliver(ctx)
	if err == io.EOF {
		err = pyfeed.Errorf(pyfeed.Closed, "the staging buffer is shut down")
	}
	return t, err
}

// Size returns the number of tuples in the buffer.
func (b *Buffer) Size() int { return b.queue.Info().Size }

// Clear drops the tuples in the buffer and returns their number. It wakes producers that wait for room, and returns
// idle memory to the system. A tuple that is being put during the call is queued afterwards.
func (b *Buffer) Clear() int { return b.queue.Clear() }

// Stats returns the current state of the buffer.
func (b *Buffer) Stats() pyfeed.QueueInfo { return b.queue.Info() }

// Place returns the place of the buffer.
func (b *Buffer) Place() pyfeed.Place { return b.queue.Place() }

// Drop does nothing, because buffers are never closed. It satisfies the interface of handles.
func (b *Buffer) Drop() {}

// Shutdown drops the contents of all buffers and makes every present and later wait in them fail. It is called at the
// end of a process whose threads would otherwise wait forever.
func Shutdown() {
	buffers.mu.Lock()
	defer buffers.mu.Unlock()
	for _, b := range buffers.all {
		b.queue.Shutdown()
	}
}
