package pyfeed

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Consumer is the consumers' end of a queue. Each queue has exactly one. The queue's holder, its readers and its
// consumer handles share it by counted references: as long as one reference exists, tuples can be popped.
type Consumer struct {
	*PyArrayFeedQueue
	references atomic.Int32
	loops      LoopMark // shared by all readers of the queue

	delivery  *Delivery // to the queue's place if that is a device; else nil
	delivered Pass      // the pass of the Delivery's pending tuple; guarded by the lock of the Delivery
}

func newConsumer(q *PyArrayFeedQueue) *Consumer {
	c := &Consumer{PyArrayFeedQueue: q}
	q.retain()
	c.references.Store(1)
	if q.place.Kind == CUDA {
		c.delivery = NewDelivery(q.place)
	}
	return c
}

// Retain adds a reference.
func (c *Consumer) Retain() *Consumer {
	c.references.Add(1)
	return c
}

// Drop releases a reference. The last Drop shuts the queue down, so that its producers end instead of waiting for room.
// The queue's memory stays until the producers have dropped their references.
func (c *Consumer) Drop() {
	if c.references.Add(-1) > 0 {
		return
	}
	c.shutdown(true)
	if c.delivery != nil {
		c.delivery.Close()
	}
	c.pool.Trim() // producers may keep the pool alive for long
	c.release()
}

// A LoopMark records the pass of a queue in which a loop over one of its readers last began. The zero LoopMark stands
// for no pass.
type LoopMark struct{ next atomic.Uint64 } // the number of the pass plus 1; 0: none

// Loops returns the mark that all readers of the queue share. A reader that is made later begins with this mark.
func (c *Consumer) Loops() *LoopMark { return &c.loops }

// In reports whether the last loop began in the given pass. PassNone counts as the first pass, because a loop would
// open it.
func (m *LoopMark) In(pass Pass) bool { return m.next.Load() == pass.loopMark() }

// Set records that a loop began in the given pass.
func (m *LoopMark) Set(pass Pass) { m.next.Store(pass.loopMark()) }

// Clear resets the mark to no pass.
func (m *LoopMark) Clear() { m.next.Store(0) }

func (p Pass) loopMark() uint64 {
	if p == PassNone {
		p = p.next()
	}
	return uint64(p) + 1
}

// Queue returns the queue.
func (c *Consumer) Queue() *PyArrayFeedQueue { return c.PyArrayFeedQueue }

// Deliver is Pop for consumers outside the library: it returns the tuple in the memory of the queue's place.
func (c *Consumer) Deliver(ctx context.Context) (*Tuple, error) {
	if c.delivery == nil {
		return c.Pop(ctx)
	}
	return wait.Do(ctx, func(ctx context.Context) (*Tuple, error) {
		c.delivery.dropIf(func() bool { return !c.isCurrent(c.delivered) })
		return c.delivery.Next(ctx, func(ctx context.Context) (*Tuple, error) {
			p, err := c.tryPop(ctx)
			if err == nil {
				c.delivered = p.pass
			}
			return p.tuple, err
		})
	})
}

// Producer is a reference to a queue for pushing only. It keeps the queue's memory, but does not keep the queue open.
type Producer PyArrayFeedQueue

// Producer adds a producer's reference. The caller MUST hold a reference of the queue, as a producer or as the
// consumer.
func (q *PyArrayFeedQueue) Producer() *Producer {
	q.retain()
	return (*Producer)(q)
}

// Queue returns the queue. The Producer keeps its reference.
func (p *Producer) Queue() *PyArrayFeedQueue { return (*PyArrayFeedQueue)(p) }

// Drop releases the reference.
func (p *Producer) Drop() { p.Queue().release() }

// PyArrayFeedQueueHolder is what a Variable holds before its queue exists. It delays the creation of the queue until
// the shapes are known.
type PyArrayFeedQueueHolder struct {
	mu     sync.Mutex
	feeder *Consumer
}

// InitOnce makes the queue and returns it with a reference that the caller drops. A second call fails with State.
func (h *PyArrayFeedQueueHolder) InitOnce(o QueueOptions) (*Consumer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeder != nil {
		return nil, Errorf(State, "init_once: this holder's queue was made already, with capacity %d", h.feeder.capacity)
	}
	q, err := NewQueue(o)
	if err != nil {
		return nil, err
	}
	h.feeder = q
	return q.Retain(), nil
}

// Feeder returns the queue with a reference that the caller drops. Before InitOnce it fails with State.
func (h *PyArrayFeedQueueHolder) Feeder() (*Consumer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeder == nil {
		return nil, Errorf(State, "feeder: the holder has no queue before init_once")
	}
	return h.feeder.Retain(), nil
}

// Drop releases the holder's reference to the queue.
func (h *PyArrayFeedQueueHolder) Drop() {
	h.mu.Lock()
	q := h.feeder
	h.feeder = nil
	h.mu.Unlock()
	if q != nil {
		q.Drop()
	}
}
