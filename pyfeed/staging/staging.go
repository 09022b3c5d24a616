// Package staging keeps the staging buffers: of each place one, where tuples lie ready that were copied
// there while what came before was computed with.
//
// A Buffer is a queue that takes tuples of any look and is never closed. The process has one a place, for
// good: a program that stages and one that computes find each other by the place alone.
package staging

import (
	"context"
	"io"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Buffer is the staging buffer of a place, for any number of threads.
type Buffer struct {
	place pyfeed.Place
	queue *pyfeed.PyArrayFeedQueue
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
	var holder pyfeed.PyArrayFeedQueueHolder // it goes, its reference stays: the queue is for good
	q, err := holder.InitOnce(pyfeed.Options{Capacity: capacity, BytesLimit: bytesLimit, Place: place, Staging: true})
	if err != nil {
		return nil, err
	}
	return &Buffer{place, q}, nil
}

// Put copies a tuple to the place, behind the others. It waits for room. The tuple stays the caller's. At a device the
// copy may still be under way afterwards.
func (b *Buffer) Put(ctx context.Context, t *pyfeed.Tuple) error {
	return b.queue.Push(ctx, 1, t.Slots)
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
func (b *Buffer) Stats() pyfeed.Info { return b.queue.Info() }

// Place is whose buffer it is.
func (b *Buffer) Place() pyfeed.Place { return b.place }

// Queue is what the buffer is made of, for those who write tuples in place. It MUST NOT be closed.
func (b *Buffer) Queue() *pyfeed.PyArrayFeedQueue { return b.queue }

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
