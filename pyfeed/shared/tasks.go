package shared

import (
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// maxTasks limits the tasks of a ring, because a worker searches all of them for the next one.
const maxTasks = 4096

// TaskOptions are the options of the tasks of a ring: tuples that the trainer posts and that workers take. A ring
// without tasks has the zero TaskOptions.
type TaskOptions struct {
	Count int    // the number of tasks that are posted, or that workers have
	Slots int    // tensors of a task
	Bytes uint64 // the largest size of a task, with its offsets and alignment
}

// Task identifies a task.
type Task struct {
	Ticket      uint64 // comes back with the result
	Pass, Index uint64 // the position of the tuple, for the worker
}

// TaskFailure is the error of a worker's function for a task.
type TaskFailure struct {
	Ticket                   uint64
	Type, Message, Traceback string
	Pickle                   []byte // the exception; empty if it is too large
}

// TaskEvents are calls about tasks, by the forwarder but for Expects. They must not block.
type TaskEvents struct {
	Result func(*pyfeed.Tuple) // takes over a tuple of the ring, which is not put into the queue
	Freed  func()              // a task is free, after Post has found none
	Failed func(TaskFailure)   // the function of a worker has failed

	Expects func() bool // whether a result or an error is still to come; called by any goroutine
}

// taskTable has the trainer's view of the tasks of a ring.
type taskTable struct {
	records []taskRecord
	tensors []tensor

	mu     sync.Mutex
	posted []postedTask
	events TaskEvents // set before the first worker attaches
	wanted bool       // Post has found no free task
	// Since the last call of Lost: the tickets of tasks whose workers have died, and whether a worker has attached.
	lost     []uint64
	attached bool
}

// postedTask is a task as the trainer knows it: workers may overwrite its record in the ring.
type postedTask struct {
	ticket uint64
	inUse  bool // it was not free when the trainer looked last
}

func (r *Ring) createTasks(o TaskOptions) {
	if o.Count == 0 {
		return
	}
	r.tasks.records = view[taskRecord](r.data, r.at.tasksAt, o.Count)
	r.tasks.tensors = view[tensor](r.data, r.at.taskTensorsAt, o.Count*o.Slots)
	r.tasks.posted = make([]postedTask, o.Count)
}

// HandleTasks sets the functions that the forwarder calls.
func (r *Ring) HandleTasks(events TaskEvents) {
	r.tasks.mu.Lock()
	defer r.tasks.mu.Unlock()
	r.tasks.events = events
}

// Post copies a tuple into a free task for the next worker that takes one. It returns false if no task is free; the
// forwarder calls TaskEvents.Freed later. The caller still owns the tuple. It is an error of kind TooLarge if the tuple
// does not fit into a task. One caller at a time.
func (r *Ring) Post(task Task, t *pyfeed.Tuple) (posted bool, err error) {
	m := &r.tasks
	m.mu.Lock()
	i := r.freeTask()
	if i < 0 {
		m.wanted = true
		r.head.tasksWanted.Store(1)
		i = r.freeTask() // a worker that frees a task from here on finds tasksWanted set
	}
	if i >= 0 {
		m.wanted = false
		r.head.tasksWanted.Store(0)
		m.posted[i] = postedTask{task.Ticket, true}
		s := m.records[i].state.Load()
		m.records[i].state.Store(stateOf(taskWriting, generationOf(s)+1))
	}
	m.mu.Unlock()
	if i < 0 {
		return false, nil
	}
	rec := &m.records[i]
	if err = r.write(i, t); err != nil {
		rec.state.Store(stateOf(taskFree, generationOf(rec.state.Load())+1))
		return false, err
	}
	rec.owner.Store(0)
	rec.ticket.Store(task.Ticket)
	rec.pass.Store(task.Pass)
	rec.index.Store(task.Index)
	rec.state.Store(stateOf(taskPosted, generationOf(rec.state.Load())+1))
	r.head.taskEvents.Add(1)
	if r.head.waitingTakers.Load() != 0 {
		futexWake(unsafe.Pointer(&r.head.taskEvents), 1)
	}
	return true, nil
}

// freeTask returns the number of a free task; -1: there is none. The lock of the table is held.
func (r *Ring) freeTask() int {
	for i := range r.tasks.posted {
		if !r.tasks.posted[i].inUse || r.isFree(i) {
			return i
		}
	}
	return -1
}

func (r *Ring) isFree(i int) bool {
	rec := &r.tasks.records[i]
	return kindOf(rec.state.Load()) == taskFree && rec.raised.Load() == 0
}

// write describes and copies a tuple into the memory of a task.
func (r *Ring) write(i int, t *pyfeed.Tuple) error {
	n := int(r.at.taskSlots)
	if len(t.Slots) != n {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected %d, found %d", n, len(t.Slots))
	}
	size := uint64(0)
	room := func(bytes int) (at uint64) {
		at = size
		size = (size + uint64(bytes) + alignment - 1) &^ (alignment - 1)
		return at
	}
	described := r.tasks.tensors[i*n : (i+1)*n]
	for j := range t.Slots {
		s := &t.Slots[j]
		d := tensor{dtype: int32(s.DType), rank: int32(len(s.Dims())), lodLevels: uint32(len(s.LoD)), nbytes: uint64(len(s.Data))}
		copy(d.dims[:], s.Dims())
		for k, level := range s.LoD {
			d.lodAt[k], d.lodCount[k] = room(len(level)*offsetBytes), uint64(len(level))
		}
		d.dataAt = room(len(s.Data))
		if size > r.at.taskBytes {
			continue
		}
		described[j] = d
	}
	if size > r.at.taskBytes {
		return pyfeed.Errorf(pyfeed.TooLarge, "cell_bytes: expected a tuple of at most %d bytes for the workers, found %d", r.at.taskBytes, size)
	}
	at := int(r.at.taskDataAt) + i*int(r.at.taskStride) + taskFailureBytes
	memory := r.data[at : at+int(r.at.taskBytes)]
	size = 0
	for j := range t.Slots { // the places are computed again, not read back from shared memory
		s := &t.Slots[j]
		for _, level := range s.LoD {
			to := room(len(level) * offsetBytes)
			if len(level) > 0 {
				copy(memory[to:], unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(level))), len(level)*offsetBytes))
			}
		}
		to := room(len(s.Data))
		pyfeed.Copy(memory[to:int(to)+len(s.Data)], s.Data)
	}
	return t.CheckTruncated()
}

// Revoke takes back all tasks that no worker has taken yet.
func (r *Ring) Revoke() {
	for i := range r.tasks.records {
		rec := &r.tasks.records[i]
		if s := rec.state.Load(); kindOf(s) == taskPosted {
			rec.state.CompareAndSwap(s, stateOf(taskFree, generationOf(s)+1))
		}
	}
}

// Lost returns the tickets of the tasks whose workers have died since the last call, and whether a worker has attached
// since then.
func (r *Ring) Lost() (tickets []uint64, attached bool) {
	r.tasks.mu.Lock()
	defer r.tasks.mu.Unlock()
	tickets, attached = r.tasks.lost, r.tasks.attached
	r.tasks.lost, r.tasks.attached = nil, false
	return tickets, attached
}

// expectsResult reports whether a posted tuple has no result yet. A task that is not free says less: a worker may keep
// its arrays after the result.
func (r *Ring) expectsResult() bool {
	r.tasks.mu.Lock()
	expects := r.tasks.events.Expects
	r.tasks.mu.Unlock()
	return expects != nil && expects()
}

// noteAttached notes that a worker has attached.
func (r *Ring) noteAttached() {
	r.tasks.mu.Lock()
	defer r.tasks.mu.Unlock()
	r.tasks.attached = true
}

// checkTasks handles the errors of tasks, and tasks that workers have freed.
func (r *Ring) checkTasks() {
	m := &r.tasks
	if len(m.posted) == 0 {
		return
	}
	m.mu.Lock()
	events := m.events
	var failures []TaskFailure
	free, posted, damaged := 0, 0, false
	for i := range m.posted {
		if !m.posted[i].inUse {
			free++
			continue
		}
		if m.records[i].raised.Load() != 0 {
			failures = append(failures, r.taskFailure(i))
			m.records[i].raised.Store(0)
		}
		if s := m.records[i].state.Load(); kindOf(s) > taskWriting {
			m.records[i].state.Store(stateOf(taskFree, generationOf(s)+1))
			damaged = true
		}
		if r.isFree(i) {
			m.posted[i].inUse = false
			free++
		} else if kindOf(m.records[i].state.Load()) == taskPosted {
			posted++
		}
	}
	// Post is continued for several tasks at a time, while the workers still have others: it would be woken by each result.
	freed := m.wanted && (2*free >= len(m.posted) || free > 0 && posted == 0)
	m.mu.Unlock()
	if damaged {
		r.overwritten("a task")
	}
	for _, f := range failures {
		if events.Failed != nil {
			events.Failed(f)
		}
	}
	if freed && events.Freed != nil {
		events.Freed()
	}
}

// taskFailure returns the error that a worker has written for a task.
func (r *Ring) taskFailure(i int) TaskFailure {
	text := append([]byte(nil), r.data[int(r.at.taskDataAt)+i*int(r.at.taskStride):][:taskFailureBytes]...)
	pickle := text[typeBytes+textBytes+taskTracebackBytes:]
	return TaskFailure{
		Ticket:    r.tasks.posted[i].ticket,
		Type:      terminated(text[:typeBytes]),
		Message:   terminated(text[typeBytes:][:textBytes]),
		Traceback: terminated(text[typeBytes+textBytes:][:taskTracebackBytes]),
		Pickle:    pickle[:min(r.tasks.records[i].pickleBytes.Load(), uint64(len(pickle)))],
	}
}

// reclaimTasks frees the tasks of a dead worker.
func (r *Ring) reclaimTasks(number, pid int, pass uint64) {
	m := &r.tasks
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.records {
		rec := &m.records[i]
		s := rec.state.Load()
		if kindOf(s) != taskTaken || rec.owner.Load() != uint64(pid) && (workerOf(s) != number || passOf(s) != pass) {
			continue
		}
		m.lost = append(m.lost, m.posted[i].ticket)
		rec.raised.Store(0)
		rec.state.Store(stateOf(taskFree, generationOf(s)+1))
	}
}
