// Package processes lets worker processes compute the results of a map reader. A Pool posts the tuples of the reader as
// tasks of a ring in shared memory, and gives the reader the results that the workers push into the ring. It calls
// nothing that needs Python: the owner of the Pool starts the processes when the Pool asks for them.
package processes

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/shared"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/decorators"
)

// Kind says what the owner of a Pool has to do.
type Kind int

const (
	// WorkersNeeded: the pass of the queue has ended because a process died, and a tuple waits: replace the processes that
	// have ended, and reopen the queue.
	WorkersNeeded Kind = iota + 1
	// TaskFailed: the function has failed for a tuple: fail or skip its ticket.
	TaskFailed
)

// An Event is work for the owner of a Pool.
type Event struct {
	Kind    Kind
	Ticket  uint64             // of the tuple
	Failure shared.TaskFailure // of TaskFailed
}

// Pool connects a map reader with the ring of a queue that worker processes fill.
type Pool struct {
	workers *decorators.MapWorkers
	queue   *pyfeed.Consumer
	ring    *shared.Ring
	fault   func(error)

	posting sync.Mutex // held by postOne

	mu       sync.Mutex
	changed  *sync.Cond // the fields below
	state    state
	asked    wait.List // the owner, in Next
	failures []shared.TaskFailure
	free     bool // a task was freed
	// posted has the tuples that have no result yet, by ticket. A tuple is nil while it is being posted.
	posted            map[uint64]*pyfeed.Tuple
	ends              uint64 // how many passes of the queue have ended
	endsWithoutResult int    // of the latest ones, with no result between them
	waiting           uint64 // the ticket of the tuple that waits for workers
	// failure is the error for all tuples of a pass of the reader; nil: there is none. failedIn is FirstTicket in that pass.
	failure  error
	failedIn uint64
}

// state is that of the queue, and of the owner's work.
type state int

const (
	ready  state = iota // the pass of the queue is open
	idle                // it has ended, and no tuple waits
	needed              // it has ended, and a tuple waits
	asking              // the owner replaces processes
	closed              // the reader is gone
)

// New makes a Pool and starts its goroutines, which end when the reader is closed. The last slot of the queue's tuples is an
// int64 without dimensions, the ticket; those before it are the slots of the results. The Pool takes over a reference to
// the queue. fault gets the panic of a goroutine.
func New(workers *decorators.MapWorkers, queue *pyfeed.Consumer, fault func(error)) (*Pool, error) {
	ring, is := queue.Feed().(*shared.Ring)
	if !is || ring.Tasks() == 0 {
		queue.Drop()
		return nil, pyfeed.Errorf(pyfeed.State, "queue: expected one that worker processes fill, with tasks, found another")
	}
	p := &Pool{workers: workers, queue: queue, ring: ring, fault: fault, posted: make(map[uint64]*pyfeed.Tuple)}
	p.changed = sync.NewCond(&p.mu)
	p.asked.Init(&p.mu)
	ring.HandleTasks(shared.TaskEvents{Result: p.give, Freed: p.taskFreed, Failed: p.taskFailed, Expects: p.expects})
	workers.OnReset(p.reset)
	p.run(p.post)
	p.run(p.watch)
	return p, nil
}

// run starts a goroutine, during which the memory of the ring stays mapped.
func (p *Pool) run(f func()) {
	p.ring.Retain()
	wait.Go(func() {
		defer p.ring.Release()
		f()
	}, p.fault)
}

// Drop does nothing: the goroutines end with the reader.
func (p *Pool) Drop() {}

// Next returns the next event for the owner, and waits for one. A call after WorkersNeeded says that the queue is open
// again. It returns an error of kind Closed when the reader is gone.
func (p *Pool) Next(ctx context.Context) (Event, error) {
	return wait.Do(ctx, func(ctx context.Context) (Event, error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.state == asking {
			p.setState(ready)
		}
		switch {
		case p.state == closed:
			return Event{}, pyfeed.Errorf(pyfeed.Closed, "the reader whose tuples are mapped is gone")
		case len(p.failures) > 0:
			f := p.failures[0]
			p.failures = p.failures[1:]
			p.forget(f.Ticket)
			p.endsWithoutResult = 0
			return Event{TaskFailed, f.Ticket, f}, nil
		case p.state == needed:
			p.setState(asking)
			return Event{Kind: WorkersNeeded, Ticket: p.waiting}, nil
		}
		return Event{}, p.asked.Enter(ctx)
	})
}

// setState changes the state. The lock is held.
func (p *Pool) setState(s state) {
	p.state = s
	p.changed.Broadcast()
}

// forget releases the tuple of a ticket. The lock is held.
func (p *Pool) forget(ticket uint64) {
	if t := p.posted[ticket]; t != nil {
		t.Release()
	}
	delete(p.posted, ticket)
}

// reset forgets the tuples that were posted before a reset of the reader.
func (p *Pool) reset(isClosed bool) {
	p.ring.Revoke()
	p.mu.Lock()
	defer p.mu.Unlock()
	for ticket := range p.posted {
		p.forget(ticket)
	}
	p.free = true
	p.changed.Broadcast()
	if isClosed {
		p.setState(closed)
		p.asked.WakeAll()
	}
}

// expects reports whether a posted tuple has no result yet, or one waits for workers.
func (p *Pool) expects() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.posted) > 0 || p.state == needed
}

func (p *Pool) taskFreed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = true
	p.changed.Broadcast()
}

func (p *Pool) taskFailed(f shared.TaskFailure) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failures = append(p.failures, f)
	p.asked.WakeOne().Send()
}

// post takes tuples of the reader and posts them, until the reader is closed.
func (p *Pool) post() {
	for {
		t, ticket, err := p.workers.TakeInside(context.Background())
		if err != nil {
			break
		}
		p.postOne(t, ticket)
	}
	p.reset(true)
	p.queue.Shutdown()
	p.queue.Drop()
}

// postOne posts a tuple, which it takes over, and waits until a task is free. One caller at a time waits, so that none
// misses that a task was freed.
func (p *Pool) postOne(t *pyfeed.Tuple, ticket uint64) {
	p.posting.Lock()
	defer p.posting.Unlock()
	for {
		if err := p.await(ticket); err != nil {
			t.Release()
			p.workers.Fail(ticket, err)
			return
		}
		at, err := p.workers.Position(ticket)
		if err != nil { // the reader was reset
			t.Release()
			return
		}
		p.mu.Lock()
		if p.state == closed { // nothing would release a tuple that is posted from here on
			p.mu.Unlock()
			t.Release()
			return
		}
		p.posted[ticket], p.free = nil, false
		ends := p.ends
		p.mu.Unlock()
		posted, err := p.ring.Post(shared.Task{Ticket: ticket, Pass: at.Pass, Index: uint64(at.N)}, t)
		p.mu.Lock()
		_, expected := p.posted[ticket]
		switch {
		case posted && !expected: // it has its result already, or the reader was reset
			t.Release()
			p.mu.Unlock()
			return
		case posted && ends == p.ends:
			p.posted[ticket] = t
			p.mu.Unlock()
			return
		}
		delete(p.posted, ticket) // not posted, or in a pass of the queue that has ended meanwhile
		for err == nil && !posted && !p.free && p.state == ready {
			p.changed.Wait()
		}
		p.mu.Unlock()
		if err != nil {
			t.Release()
			p.workers.Fail(ticket, err)
			return
		}
	}
}

// await waits until the queue is open. It returns an error if no tuple of this pass of the reader can have a result.
func (p *Pool) await(ticket uint64) error {
	first := p.workers.FirstTicket()
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.state != ready && p.state != closed {
		if p.failure != nil && p.failedIn == first {
			return p.failure
		}
		if p.state == idle {
			p.waiting = ticket
			p.setState(needed)
			p.asked.WakeOne().Send()
		}
		p.changed.Wait()
	}
	return nil
}

// give gives a result to the reader.
func (p *Pool) give(t *pyfeed.Tuple) {
	last := len(t.Slots) - 1
	if last < 0 || t.Slots[last].DType != pyfeed.Int64 || len(t.Slots[last].Data) != 8 {
		t.Release() // a broken worker has pushed it
		return
	}
	ticket := binary.NativeEndian.Uint64(t.Slots[last].Data)
	t.Slots[last].Drop()
	t.Slots = t.Slots[:last]
	p.mu.Lock()
	p.forget(ticket)
	p.endsWithoutResult = 0
	p.mu.Unlock()
	if err := p.workers.Give(ticket, t); err != nil {
		t.Release()
		p.workers.Fail(ticket, err)
	}
}

// watch waits for the ends of the queue's passes, until it is shut down. No tuple is in the queue: see give.
func (p *Pool) watch() {
	for {
		t, err := p.queue.Pop(context.Background())
		if err == nil {
			t.Release()
		} else if !p.ended(err) {
			return
		}
	}
}

// maxEndsWithoutResult is how many passes of the queue may end one after the other without any result.
const maxEndsWithoutResult = 3

// ended handles the end of a pass of the queue: a worker has died. The tuples that dead workers had fail; all others are
// posted again. If the processes cannot start, or end again and again, all tuples of this pass of the reader fail. It waits
// for the next pass of the queue, and returns false if there is none.
func (p *Pool) ended(err error) bool {
	first := p.workers.FirstTicket()
	p.ring.Revoke()
	p.mu.Lock()
	if p.state == closed {
		p.mu.Unlock()
		return false
	}
	failed, started := p.ring.Lost()
	for _, ticket := range failed {
		p.forget(ticket)
	}
	again := make(map[uint64]*pyfeed.Tuple)
	for ticket, t := range p.posted {
		if t != nil { // postOne posts the others again
			again[ticket] = t
			delete(p.posted, ticket)
		}
	}
	p.failure = nil
	p.ends++
	if p.endsWithoutResult++; len(failed) > 0 {
		p.endsWithoutResult = 0
	}
	if p.endsWithoutResult > 0 && !started || p.endsWithoutResult >= maxEndsWithoutResult {
		p.failure, p.failedIn = err, first
		p.endsWithoutResult = 0
	}
	p.setState(idle)
	p.mu.Unlock()
	for _, ticket := range failed {
		p.workers.Fail(ticket, err)
	}
	if len(again) > 0 {
		p.run(func() {
			for _, ticket := range slices.Sorted(maps.Keys(again)) {
				p.postOne(again[ticket], ticket)
			}
		})
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.state != ready && p.state != closed {
		p.changed.Wait()
	}
	return p.state != closed
}
