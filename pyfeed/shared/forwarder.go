package shared

import (
	"context"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

func (r *Ring) run() {
	for {
		seen := r.head.trainerEvents.Load()
		if !r.forward() {
			break
		}
		r.sleep(seen)
	}
	r.stopWatching()
	r.drop()
}

// sleep returns when trainerEvents differs from seen. It may return early.
func (r *Ring) sleep(seen uint32) {
	r.asleep.Store(true)
	r.head.trainerSleeping.Store(1)
	if r.head.trainerEvents.Load() == seen {
		futexWait(unsafe.Pointer(&r.head.trainerEvents), seen)
	}
	r.head.trainerSleeping.Store(0)
	r.asleep.Store(false)
}

// forward handles all pending events. It returns false when the queue is shut down.
func (r *Ring) forward() bool {
	m := &r.forwarder
	r.mu.Lock()
	pass, stopped := r.pass, r.pass == pyfeed.PassNone
	r.stopped = stopped
	shut := r.mendGate()
	r.mu.Unlock()
	if pass != m.pass {
		r.begin(pass)
	}
	if stopped {
		return false
	}
	if shut { // workers may have read a closed gate and ended, as at the end of a pass
		r.overwritten("its gate")
	}
	if r.corrupted.Swap(false) {
		r.overwritten("the state of a cell")
	}
	r.move(false)
	r.checkTasks()
	r.checkWorkers()
	r.mu.Lock()
	ending, failure := r.ending && r.pass == m.pass, r.failure
	r.mu.Unlock()
	if ending && !m.finished {
		r.finish(failure)
		m.finished = true
	}
	return true
}

// mendGate restores the gate if a worker has overwritten it, and returns whether it had to. The lock is held.
func (r *Ring) mendGate() bool {
	if r.head.gate.Load() == r.gate {
		return false
	}
	r.gateDamaged = true
	r.head.gate.Store(r.gate)
	return true
}

// begin drops what is left of the previous pass and begins the given one.
func (r *Ring) begin(pass pyfeed.Pass) {
	m := &r.forwarder
	if m.pending != nil {
		m.pending.Release()
		m.pending = nil
	}
	m.pass, m.finished, m.done = pass, false, 0
	r.mu.Lock()
	clear(r.attached)
	r.mu.Unlock()
	// Check the table: workers may have attached to this pass before the forwarder began it.
	m.workerEvents = r.head.workerEvents.Load() - 1
	for i := range r.states {
		r.freeIfStale(i, r.states[i].Load())
	}
}

// freeIfStale frees cell i if it belongs to a pass that is over. s is a state of the cell that was read before; a
// worker of the next pass may have claimed the cell since then.
func (r *Ring) freeIfStale(i int, s uint64) {
	if !r.isStale(s) {
		return
	}
	r.revoke(i, s)
	s = r.states[i].Load()
	if r.isStale(s) && r.leases[i].checkState(s) && !r.owned(i, s) &&
		r.states[i].CompareAndSwap(s, stateOf(free, generationOf(s)+1)) {
		r.wakeWaitingWorker()
	}
}

// isStale reports whether a cell in state s belongs to a pass that is over.
func (r *Ring) isStale(s uint64) bool {
	return kindOf(s) != free && passOf(s) != cellPass(r.forwarder.pass) && !r.isAhead(passOf(s))
}

// owned reports whether a live worker or the consumer owns a cell, and so will free it.
func (r *Ring) owned(i int, s uint64) bool {
	if k := kindOf(s); k != writing && k != revoked || workerOf(s) >= workers {
		return r.leases[i].held.Load() != 0
	}
	w := r.workers[workerOf(s)].state.Load()
	return w&0xff != vacant && w>>8&0xffff == passOf(s)
}

// revoke marks a cell that is being written as revoked. Its worker notices that and frees the cell.
func (r *Ring) revoke(i int, s uint64) {
	if kindOf(s) == writing {
		r.states[i].CompareAndSwap(s, s&^0xff|revoked)
	}
}

// isAhead reports whether the given pass has begun but the forwarder is still busy with an earlier one. Workers that
// stay from pass to pass may use the new pass at once; their cells and entries wait until the forwarder begins it.
func (r *Ring) isAhead(pass uint64) bool {
	m := &r.forwarder
	if pass == cellPass(m.pass) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pass != m.pass && pass == cellPass(r.pass)
}

// finish delivers all committed tuples and ends the pass. The gate is closed already, so that no more tuples are
// committed.
func (r *Ring) finish(failure error) {
	for i := range r.states {
		if s := r.states[i].Load(); !r.isAhead(passOf(s)) {
			r.revoke(i, s)
		}
	}
	r.move(true)
	for i := range r.states { // cells whose worker died before it entered them in the order
		s := r.states[i].Load()
		switch {
		case kindOf(s) != committed || r.isAhead(passOf(s)):
		case r.leases[i].checkState(s):
			r.take(i, s)
			r.deliver()
		}
	}
	if failure == nil {
		r.queue.Close(r.forwarder.pass)
	} else {
		_ = r.queue.Fail(r.forwarder.pass, failure)
	}
}

// next takes the cell that was committed first; it returns -1 if there is none.
func (r *Ring) next() int {
	m := &r.forwarder
	for {
		n := uint64(len(r.order))
		entry, lap := &r.order[m.next%n], m.next/n
		tail, v := r.head.tail.Load(), entry.Load()
		if v>>40 != lap&0xffffff || v&0xffff == 0 {
			// Workers fill the entries up to the tail. So an unfilled entry must be the tail and empty, or the order is
			// damaged.
			if v != orderEntry(lap, 0, 0) || tail != m.next {
				r.reorder()
			}
			return -1
		}
		i := int(v&0xffff) - 1
		if i < len(r.states) && r.isAhead(passOf(r.states[i].Load())) {
			return -1
		}
		// The worker moves the tail after it fills the entry, and may have died in between.
		r.head.tail.CompareAndSwap(m.next, m.next+1)
		entry.Store(orderEntry(lap+1, 0, 0))
		m.next++
		if i >= len(r.states) {
			r.overwritten("its order")
			continue
		}
		s := r.states[i].Load()
		if kindOf(s) != committed || generationOf(s) != v>>16&0xffffff {
			continue // finish has taken this cell already, before its worker entered it in the order
		}
		if !r.leases[i].checkState(s) {
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

// reorder restarts the order at a lap that no worker has used yet. Cells that were in the old order are found by
// finish, which searches all cells.
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

// overwritten ends the pass because a worker has overwritten the ring's own data.
func (r *Ring) overwritten(what string) { r.fail(overwrittenError(what)) }

func overwrittenError(what string) *pyfeed.ProducerError {
	return &pyfeed.ProducerError{Who: "a worker process", Message: "it has overwritten parts of the ring: " + what}
}

// take makes the tuple in a committed cell the pending tuple. It ends the pass with an error if the cell holds no valid
// tuple.
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

// rejectTuple ends the pass with an error, because a worker has committed a tuple that is not valid.
func (r *Ring) rejectTuple(number int, err error) {
	who := "a worker process"
	if number < workers {
		if pid := pidOf(r.workers[number].state.Load()); pid != 0 {
			who = r.workerName(number, pid)
		}
	}
	r.fail(&pyfeed.ProducerError{Who: who, Message: "it committed a tuple that is not valid for this queue: " + err.Error()})
}

// move puts committed tuples into the queue. It never lends the last cell of the ring: a consumer that keeps many
// tuples, for a batch, a shuffle or a list, could otherwise hold every cell and wait forever for the next tuple. Unless
// all is set, move holds back the tuple in the last cell until a consumer waits for it or returns another cell. A
// consumer that waits gets a copy, which frees the cell.
func (r *Ring) move(all bool) {
	m := &r.forwarder
	for m.pending != nil || r.next() >= 0 {
		if all || r.hasMoreCells() {
			r.deliver()
			continue
		}
		r.holding.Store(true)
		returned := r.hasMoreCells()
		if !returned && !r.starves() {
			return // continued after wakeForwarder
		}
		r.holding.Store(false)
		if !returned {
			r.copy()
		}
	}
	r.holding.Store(false)
}

// hasMoreCells reports whether a cell is left for the workers if the cell of the pending tuple is lent, too. The
// pending tuple already counts as lent.
func (r *Ring) hasMoreCells() bool { return int(r.lentCells.Load()) < len(r.states) }

// starves reports whether a consumer waits for a tuple and the queue has none. A consumer that sleeps is in the queue's
// list; one that only looked has set consumerWaits.
func (r *Ring) starves() bool {
	info := r.queue.Info()
	return info.Size == 0 && (info.WaitingConsumers > 0 || r.consumerWaits.Load())
}

// deliver puts the pending tuple into the queue, or a copy of it if its cell is the last one.
func (r *Ring) deliver() {
	if r.hasMoreCells() {
		r.lend()
	} else if r.forwarder.pending != nil {
		r.copy()
	}
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
	if r.tasks.events.Result != nil {
		r.tasks.events.Result(t)
		return
	}
	r.consumerWaits.Store(false)
	if err := r.queue.Put(context.Background(), r.forwarder.pass, t); err != nil {
		t.Release()
		if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Closed {
			r.rejectTuple(r.forwarder.worker, err)
		}
	}
}

// populate maps the pages of a cell in one system call. Page faults in the consumer, one for each page, would cost
// more.
func (r *Ring) populate(i, bytes int) {
	m := &r.forwarder
	if m.mapped[i] < bytes && bytes > 1<<16 {
		at := int(r.at.dataAt) + i*int(r.at.stride)
		begin := pageOf(at + m.mapped[i])
		memory.MapPages(r.data[begin : at+bytes]) // if it cannot, the consumer takes page faults
		m.mapped[i] = bytes
	}
}
