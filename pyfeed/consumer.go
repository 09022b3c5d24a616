package pyfeed

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Consumer is the consumers' end of a queue. Each queue has one, which its holder, its readers and its consumers' handles
// share by counted references: a reference is a way by which tuples can be popped.
type Consumer struct {
	*PyArrayFeedQueue
	references atomic.Int32

	delivery  *Delivery // to the queue's place, if that is a device; else nil
	delivered Pass      // the pass of the tuple in the Delivery, whose lock guards it
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

// Drop takes a reference away. After the last one nothing can pop any more: the queue is shut down, so that
// its producers end. The queue's memory stays until they have dropped theirs.
func (c *Consumer) Drop() {
	if c.references.Add(-1) > 0 {
		return
	}
	c.shutdown(true)
	if c.delivery != nil {
		c.delivery.Close()
	}
	c.pool.Trim() // producers may keep their references for long
	c.release()
}

// Queue is the queue.
func (c *Consumer) Queue() *PyArrayFeedQueue { return c.PyArrayFeedQueue }

// Deliver is Pop for whoever leaves the library with the tuple: it is at the queue's place.
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

// Producer is a reference to a queue by which nothing is popped. It keeps the queue's memory, but does not keep the queue
// open.
type Producer PyArrayFeedQueue

// Producer adds a producer's reference. The caller MUST have one of either kind.
func (q *PyArrayFeedQueue) Producer() *Producer {
	q.retain()
	return (*Producer)(q)
}

// Queue is the queue, with the reference still the Producer's.
func (p *Producer) Queue() *PyArrayFeedQueue { return (*PyArrayFeedQueue)(p) }

// Drop takes the reference away.
func (p *Producer) Drop() { p.Queue().release() }

// PyArrayFeedQueueHolder is what a Variable holds before there is a queue: it puts the making off
// until the queue's shape is known.
type PyArrayFeedQueueHolder struct {
	mu     sync.Mutex
	feeder *Consumer
}

// InitOnce makes the queue, and answers it with a reference that the caller drops. A second time is
// an error.
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

// Feeder is the queue, with a reference that the caller drops; an error before InitOnce.
func (h *PyArrayFeedQueueHolder) Feeder() (*Consumer, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.feeder == nil {
		return nil, Errorf(State, "feeder: the holder has no queue before init_once")
	}
	return h.feeder.Retain(), nil
}

// Drop lets go of the queue.
func (h *PyArrayFeedQueueHolder) Drop() {
	h.mu.Lock()
	q := h.feeder
	h.feeder = nil
	h.mu.Unlock()
	if q != nil {
		q.Drop()
	}
}
