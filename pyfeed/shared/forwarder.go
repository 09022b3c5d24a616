package shared

import (
	"context"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// A wake-up through the kernel costs several microseconds: one that is about to come is worth looking out for.
const spins = 100

func (r *Ring) run() {
	for {
		seen := r.head.trainerEvents.Load()
		if !r.turn() {
			break
		}
		r.sleep(seen)
	}
	r.forget()
	r.drop()
}

// sleep ends when arrivals is not what was seen any more, or earlier.
func (r *Ring) sleep(seen uint32) {
	for range spins {
		if r.head.trainerEvents.Load() != seen {
			return
		}
	}
	r.asleep.Store(true)
	r.head.trainerSleeping.Store(1)
	if r.head.trainerEvents.Load() == seen {
		futexWait(unsafe.Pointer(&r.head.trainerEvents), seen)
	}
	r.head.trainerSleeping.Store(0)
	r.asleep.Store(false)
}

// turn does all that can be done now. It answers false when the queue is shut down.
func (r *Ring) turn() bool {
	m := &r.forwarder
	r.mu.Lock()
	pass, stopped := r.pass, r.pass == pyfeed.PassNone
	r.stopped = stopped
	shut := r.head.gate.Load() != r.gate
	if shut {
		r.head.gate.Store(r.gate)
	}
	r.mu.Unlock()
	if pass != m.pass {
		r.begin(pass)
	}
	if stopped {
		return false
	}
	if shut { // workers may have gone, as if the pass were over
		r.overwritten("its gate")
	}
	if r.corrupted.Swap(false) {
		r.overwritten("the state of a cell")
	}
	r.move(false)
	r.lookAtWorkers()
	r.mu.Lock()
	ending, failure := r.ending && r.pass == m.pass, r.failure
	r.mu.Unlock()
	if ending && !m.finished {
		r.finish(failure)
		m.finished = true
	}
	return true
}

// begin drops what is left of the pass before.
func (r *Ring) begin(pass pyfeed.Pass) {
	m := &r.forwarder
	if m.pending != nil {
		m.pending.Release()
		m.pending = nil
	}
	m.pass, m.finished, m.done = pass, false, 0
	clear(m.attached)
	m.workerEvents = r.head.workerEvents.Load() - 1 // workers of this pass may have been met before it began here
	r.move(true)
	for i := range r.states {
		s := r.states[i].Load()
		if passOf(s) == cellPass(pass) || r.early(passOf(s)) {
			continue
		}
		r.revoke(i, s)
		s = r.states[i].Load()
		if r.leases[i].whole(s) && passOf(s) != cellPass(pass) && kindOf(s) != free && !r.owned(i, s) &&
			r.states[i].CompareAndSwap(s, stateOf(free, generationOf(s)+1)) {
			r.wakeWaitingWorker()
		}
	}
}

// owned says whether there is somebody to make a cell free.
func (r *Ring) owned(i int, s uint64) bool {
	if k := kindOf(s); k != writing && k != revoked || workerOf(s) >= workers {
		return r.leases[i].held.Load() != 0
	}
	w := r.workers[workerOf(s)].state.Load()
	return w&0xff != vacant && w>>8&0xffff == passOf(s)
}

// revoke takes a cell that is being written back. Its worker will find out, and make it free.
func (r *Ring) revoke(i int, s uint64) {
	if kindOf(s) == writing {
		r.states[i].CompareAndSwap(s, s&^0xff|revoked)
	}
}

// early says whether what is of that pass, in the ring, has to wait for the next turn: a pass has begun that the forwarder, busy
// with the one before, has not begun yet. Workers that stay are there at once.
func (r *Ring) early(pass uint64) bool {
	m := &r.forwarder
	if pass == cellPass(m.pass) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pass != m.pass && pass == cellPass(r.pass)
}

// finish delivers all that workers have committed, and ends the pass. The gate is closed: no more can come of it.
func (r *Ring) finish(failure error) {
	for i := range r.states {
		if s := r.states[i].Load(); !r.early(passOf(s)) {
			r.revoke(i, s)
		}
	}
	r.move(true)
	for i := range r.states { // of workers that did not get to say so
		s := r.states[i].Load()
		switch {
		case kindOf(s) != committed || r.early(passOf(s)):
		case r.leases[i].whole(s):
			r.take(i, s)
			r.lend()
		}
	}
	if failure == nil {
		r.queue.Close(r.forwarder.pass)
	} else {
		_ = r.queue.Fail(r.forwarder.pass, failure)
	}
}

// next takes the cell that was committed before all others; -1 if there is none.
func (r *Ring) next() int {
	m := &r.forwarder
	for {
		n := uint64(len(r.order))
		entry, lap := &r.order[m.next%n], m.next/n
		tail, v := r.head.tail.Load(), entry.Load()
		if v>>40 != lap&0xffffff || v&0xffff == 0 {
			// Entries before the tail are filled. This one was not: so it is the tail, and empty.
			if v != orderEntry(lap, 0, 0) || tail != m.next {
				r.reorder()
			}
			return -1
		}
		i := int(v&0xffff) - 1
		if i < len(r.states) && r.early(passOf(r.states[i].Load())) {
			return -1
		}
		// Its worker may not have got there.
		r.head.tail.CompareAndSwap(m.next, m.next+1)
		entry.Store(orderEntry(lap+1, 0, 0))
		m.next++
		if i >= len(r.states) {
			r.overwritten("its order")
			continue
		}
		s := r.states[i].Load()
		if kindOf(s) != committed || generationOf(s) != v>>16&0xffffff {
			continue // it was found before it was in the order
		}
		if !r.leases[i].whole(s) {
			r.overwritten("the state of a cell")
			continue
		}
		if passOf(s) != cellPass(m.pass) || m.finished {
			r.release(i)
			continue
		}
		r.take(i, s)
		if m.pending != nil {
			return i
		}
	}
}

// reorder begins the order anew, where no worker has been yet. What was in it is found by looking at all cells.
func (r *Ring) reorder() {
	m, n := &r.forwarder, uint64(len(r.order))
	lap := m.next/n + 2
	for i := range r.order {
		r.order[i].Store(orderEntry(lap, 0, 0))
	}
	m.next = lap * n
	r.head.tail.Store(m.next)
	r.overwritten("its order")
}

// overwritten ends the pass for what somebody wrote into the ring who had no business to.
func (r *Ring) overwritten(what string) {
	r.fail(&pyfeed.ProducerError{Who: "a worker process", Message: "it has overwritten parts of the ring: " + what})
}

// take makes a committed cell the pending tuple. One that is none ends the pass.
func (r *Ring) take(i int, s uint64) {
	s = s&^0xff | consumer
	r.states[i].Store(s)
	r.leases[i].held.Store(s)
	t, err := r.tupleOf(i)
	if err != nil {
		r.leases[i].held.Store(0)
		r.release(i)
		r.rejectTuple(workerOf(s), err)
		return
	}
	r.forwarder.pending, r.forwarder.worker = t, workerOf(s)
}

// rejectTuple ends the pass for what a worker has committed.
func (r *Ring) rejectTuple(number int, err error) {
	who := "a worker process"
	if number < workers {
		if pid := pidOf(r.workers[number].state.Load()); pid != 0 {
			who = workerName(pid)
		}
	}
	r.fail(&pyfeed.ProducerError{Who: who, Message: "it committed what is no tuple of this queue: " + err.Error()})
}

// move puts what workers have committed into the queue: all of it, or as long as a cell stays that the consumer
// cannot keep. Else one that keeps many tuples, for a batch or to shuffle them, would wait for ever for the next: so
// if it waits, the tuple in the last cell is copied.
func (r *Ring) move(all bool) {
	m := &r.forwarder
	for m.pending != nil || r.next() >= 0 {
		if all || int(r.lentCells.Load()) < len(r.states) { // the pending one counts
			r.lend()
			continue
		}
		r.holding.Store(true)
		returned := int(r.lentCells.Load()) < len(r.states)
		starves := !returned && r.consumerWaits.Load() && r.queue.Info().Size == 0
		if !returned && !starves {
			return // until a kick
		}
		r.holding.Store(false)
		if starves {
			r.copy()
		}
	}
	r.holding.Store(false)
}

// lend puts the pending tuple into the queue.
func (r *Ring) lend() {
	t := r.forwarder.pending
	if t == nil {
		return
	}
	r.forwarder.pending = nil
	r.put(t)
}

// copy puts a copy of the pending tuple into the queue.
func (r *Ring) copy() {
	m := &r.forwarder
	from := m.pending
	m.pending = nil
	t := pyfeed.NewTuple(len(from.Slots))
	for i := range from.Slots {
		s := &t.Slots[i]
		s.DType, s.LoD = from.Slots[i].DType, append(s.LoD[:0], from.Slots[i].LoD...)
		_ = s.SetDims(from.Slots[i].Dims())
		_, _ = s.Measure()
	}
	start := trace.Begin()
	err := t.Allocate(r.copies)
	if err == nil {
		bytes := 0
		for i := range t.Slots {
			pyfeed.Copy(t.Slots[i].Data, from.Slots[i].Data)
			bytes += len(t.Slots[i].Data)
		}
		trace.CopySince(0, "out of the ring", start, bytes)
	}
	from.Release()
	if err != nil {
		t.Release()
		_ = r.Fail(m.pass, err)
		return
	}
	r.put(t)
}

func (r *Ring) put(t *pyfeed.Tuple) {
	r.consumerWaits.Store(false)
	if err := r.queue.Put(context.Background(), r.forwarder.pass, t); err != nil {
		t.Release()
		if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Closed {
			r.rejectTuple(r.forwarder.worker, err)
		}
	}
}

// populate maps the pages of a cell: faults, one by one, would cost the consumer more.
func (r *Ring) populate(i, bytes int) {
	m := &r.forwarder
	if have := m.mapped[i] &^ (pageSize - 1); m.mapped[i] < bytes && bytes > 1<<16 {
		at := int(r.at.dataAt) + i*int(r.at.stride)
		begin := (at + have) &^ (pageSize - 1)
		_ = unix.Madvise(r.data[begin:at+bytes], unix.MADV_POPULATE_WRITE) // if it cannot, the consumer will
		m.mapped[i] = bytes
	}
}
