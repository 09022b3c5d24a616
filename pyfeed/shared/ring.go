// Package shared is the trainer's side of a queue that worker processes fill: a ring of cells in shared memory. Tuples
// are not copied between the processes. Workers do not run Go: their side is in python/pyfeed_worker/native.
//
// The ring has no locks, because a worker that dies would never release one (see ring.h there). A goroutine, the
// forwarder, takes the tuples that workers have committed and puts references to them into a PyArrayFeedQueue. A cell
// returns to the workers when the last reference to its tuple is released. The forwarder sleeps on one futex, and every
// event that it must handle wakes it through that futex. Each worker process is watched by a goroutine that Go's poller
// wakes when the process ends, without periodic checks.
package shared

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// maxCells limits the cells of a ring, because a worker searches all cells for a free one.
const maxCells = 4096

// Options are the options of a queue that workers fill.
type Options struct {
	Slots     []pyfeed.Slot
	RingCells uint64 // the number of tuples being written, queued or with the consumer
	CellBytes uint64 // the largest size of a tuple, with its offsets and alignment
	Place     pyfeed.Place
	Tasks     TaskOptions
}

// A Ring is the Feed of a queue that worker processes fill.
type Ring struct {
	queue      *pyfeed.PyArrayFeedQueue // owns the Ring; the Ring does not own the queue
	fd         int
	data       []byte
	at         constants
	head       *header
	workers    []worker
	order      []atomic.Uint64
	states     []atomic.Uint64
	leases     []lease
	offsets    *memory.Pool // memory for LoD offsets copied out of shared memory
	copies     *memory.Pool // memory for tuples copied out of the last cell, when a consumer holds all others
	unregister func()
	references atomic.Int32 // of the forwarder, and of each cell with the consumer

	// asleep reports that the forwarder sleeps. The trainer does not trust trainerSleeping in the ring, which a broken
	// worker may overwrite.
	asleep        atomic.Bool
	corrupted     atomic.Bool  // a returned cell no longer had the state that the consumer's lease gave it
	lentCells     atomic.Int32 // cells with the consumer or in the queue
	holding       atomic.Bool  // the forwarder waits until the consumer returns a cell or finds the queue empty
	consumerWaits atomic.Bool  // a consumer has found the queue empty since the last tuple was put into it

	tasks taskTable

	mu           sync.Mutex    // guards the fields below, through which other goroutines control the forwarder
	pass         pyfeed.Pass   // the open pass; PassNone: the queue is shut down
	gate         uint32        // the value of the ring's gate, which a broken worker may overwrite
	gateDamaged  bool          // the forwarder found it overwritten in this pass
	ending       bool          // the forwarder must end the pass,
	failure      error         // with this error, if not nil
	expected     uint32        // number of workers in the pass
	exitStatuses map[int]int32 // by process id
	attached     map[int]bool  // process ids of workers that have attached in the forwarder's pass; it alone writes them
	processes    map[int]*process
	stopped      bool

	forwarder forwarder
}

// forwarder has the fields that only the forwarder goroutine uses.
type forwarder struct {
	next         uint64 // position in the order
	workerEvents uint32
	pass         pyfeed.Pass
	finished     bool // the pass has ended
	pending      *pyfeed.Tuple
	worker       int // number of the worker that committed pending
	done         uint32
	processes    [workers]*process // by number in the table of workers
	entries      [workers]uint64   // the last known state of each worker's entry in the table
	mapped       []int             // for each cell, how many of its bytes are mapped to pages in this process
}

// lease is a cell of the ring that the consumer holds.
type lease struct {
	ring   *Ring
	cell   int
	held   atomic.Uint64 // the cell's state while the consumer holds it, plus `returning` while it is returned; else 0
	buffer memory.Buffer
	lod    *memory.Buffer
}

const returning = 0x80 // a flag in the low byte of held

// checkState returns false if the consumer holds the cell and a worker has overwritten its state with s. It then
// restores the state.
func (l *lease) checkState(s uint64) bool {
	held := l.held.Load()
	if held == 0 || held&returning != 0 || s == held {
		return true
	}
	l.ring.states[l.cell].CompareAndSwap(s, held)
	return false
}

// Reclaim returns the cell to the workers.
func (l *lease) Reclaim() {
	r := l.ring
	if l.lod != nil {
		l.lod.Release()
		l.lod = nil
	}
	r.lentCells.Add(-1)
	held := l.held.Load()
	l.held.Store(held | returning)
	if r.states[l.cell].CompareAndSwap(held, stateOf(free, generationOf(held)+1)) {
		r.wakeWaitingWorker()
	} else {
		r.corrupted.Store(true)
		r.wakeForwarder()
	}
	l.held.CompareAndSwap(held|returning, 0)
	if r.holding.Load() {
		r.wakeForwarder()
	}
	r.drop()
}

// New makes a ring and, by init, the queue that the ring fills.
func New(o Options, init func(pyfeed.QueueOptions) (*pyfeed.Consumer, error)) (*pyfeed.Consumer, *Ring, error) {
	q, r, err := newRing(o, init)
	if err == nil {
		r.start()
	}
	return q, r, err
}

// newRing makes the ring and the queue without starting the forwarder.
func newRing(o Options, init func(pyfeed.QueueOptions) (*pyfeed.Consumer, error)) (*pyfeed.Consumer, *Ring, error) {
	switch {
	case o.RingCells == 0 || o.RingCells > maxCells:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "ring_cells: expected 1 to %d, found %d", maxCells, o.RingCells)
	case o.CellBytes == 0 || o.CellBytes > 1<<40:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "cell_bytes: expected 1 to 2^40, found %d", o.CellBytes)
	case o.Tasks.Count < 0 || o.Tasks.Count > maxTasks || o.Tasks.Count > 0 && (o.Tasks.Slots < 1 || o.Tasks.Slots > math.MaxUint16):
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "tasks: expected at most %d, of 1 to %d slots, found %d of %d", maxTasks, math.MaxUint16, o.Tasks.Count, o.Tasks.Slots)
	case o.Tasks.Count > 0 && (o.Tasks.Bytes == 0 || o.Tasks.Bytes > 1<<40):
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "task_bytes: expected 1 to 2^40, found %d", o.Tasks.Bytes)
	case len(o.Slots) > math.MaxUint16:
		return nil, nil, pyfeed.Errorf(pyfeed.Slots, "slots: expected at most %d, found %d", math.MaxUint16, len(o.Slots))
	}
	if _, err := pyfeed.NewSpec(o.Slots); err != nil {
		return nil, nil, err
	}
	if err := o.Place.Check(); err != nil {
		return nil, nil, err
	}
	r := &Ring{
		fd:           -1,
		exitStatuses: make(map[int]int32), attached: make(map[int]bool), processes: make(map[int]*process),
		pass: 0, forwarder: forwarder{pass: 0, mapped: make([]int, o.RingCells)},
	}
	r.references.Store(1)
	if err := r.create(o); err != nil {
		r.drop()
		return nil, nil, err
	}
	// The queue holds one tuple more than there are cells, because a copy may be queued beside them all.
	q, err := init(pyfeed.QueueOptions{Capacity: o.RingCells + 1, Slots: o.Slots, Place: o.Place, Feed: r})
	if err != nil {
		r.drop()
		return nil, nil, err
	}
	r.queue = q.Queue()
	return q, r, nil
}

func (r *Ring) start() { wait.Go(r.run, r.poisoned) }

func (r *Ring) poisoned(fault error) {
	_ = r.queue.Fail(pyfeed.PassCurrent, pyfeed.Errorf(pyfeed.Fault, "%v", fault))
}

func (r *Ring) create(o Options) (err error) {
	h := sizes(int(o.RingCells), len(o.Slots), o.CellBytes, o.Tasks)
	if h.totalBytes > 1<<46 {
		return pyfeed.Errorf(pyfeed.Invalid, "cell_bytes: expected a ring of at most 2^46 bytes, found %d cells of %d bytes", o.RingCells, o.CellBytes)
	}
	_, _ = rand.Read(h.identity[:])
	h.trainer, h.pidNamespace = int64(os.Getpid()), pidNamespace()
	_, h.trainerStarted, _ = processStat(os.Getpid())
	fd, data, err := newMemory(int(h.totalBytes))
	if err != nil {
		return fmt.Errorf("%w: shared memory of %d bytes: %w", memory.ErrNoMemory, h.totalBytes, err)
	}
	r.fd, r.data = fd, data
	memory.CountSlab(memory.SharedSlab, len(data))
	memoryOfCells := data[pageOf(int(h.dataAt)):]
	memory.AdviseHuge(memoryOfCells)
	r.at, r.head = h, (*header)(unsafe.Pointer(&data[0]))
	r.head.constants = h
	r.gate = gateOf(0)
	r.head.gate.Store(r.gate)
	specs := view[spec](data, h.specsAt, len(o.Slots))
	for i, s := range o.Slots {
		specs[i] = spec{dtype: int32(s.DType), rank: int32(len(s.Dims)), lodLevels: uint32(s.LoDLevels)}
		copy(specs[i].dims[:], s.Dims)
	}
	r.createTasks(o.Tasks)
	r.workers = view[worker](data, h.workersAt, workers)
	r.order = view[atomic.Uint64](data, h.orderAt, int(h.order))
	r.states = view[atomic.Uint64](data, h.statesAt, int(h.ringCells))
	r.leases = make([]lease, h.ringCells)
	for i := range r.leases {
		r.leases[i].ring, r.leases[i].cell = r, i
	}
	r.offsets = memory.NewPool(memory.View)
	r.copies, err = pyfeed.HostPool(o.Place, memory.Queue)
	if err != nil || o.Place == pyfeed.CPUPlace() {
		return err
	}
	b, err := pyfeed.BackendOf(o.Place)
	if err != nil {
		return err
	}
	if r.unregister, err = b.Register(o.Place, memoryOfCells); err != nil {
		return err
	}
	for i := range r.leases {
		r.leases[i].buffer.Pin()
	}
	return nil
}

// drop releases a reference. The last drop unmaps the ring in this process; workers may still have it mapped.
func (r *Ring) drop() {
	if r.references.Add(-1) > 0 {
		return
	}
	if r.unregister != nil {
		r.unregister()
	}
	for _, p := range []*memory.Pool{r.offsets, r.copies} {
		if p != nil {
			p.Close()
		}
	}
	if r.fd >= 0 {
		memory.CountSlab(memory.SharedSlab, -len(r.data))
		_ = unix.Munmap(r.data)
		_ = unix.Close(r.fd)
	}
}

// Retain keeps the memory of the ring mapped until Release.
func (r *Ring) Retain() { r.references.Add(1) }

// Release undoes Retain.
func (r *Ring) Release() { r.drop() }

// FD returns the file descriptor of the ring, for workers to map. The Ring keeps ownership.
func (r *Ring) FD() int { return r.fd }

// Tasks returns the number of tasks of the ring.
func (r *Ring) Tasks() int { return len(r.tasks.records) }

// Expect sets the number of workers: the pass ends when that many have ended their part of it.
func (r *Ring) Expect(n uint32) {
	r.mu.Lock()
	r.expected = n
	r.mu.Unlock()
	r.wakeIfRunning()
}

// unknownStatus is the status of a process whose exit status another waiter has consumed.
const unknownStatus = math.MinInt32

// Exited reports the exit status of a worker process, or minus the signal number that ended it. The pass fails if the
// worker has not attached in it, unless the status is 0 and Expect was not called.
func (r *Ring) Exited(pid int, status int32) {
	r.mu.Lock()
	if p := r.processes[pid]; p != nil && !p.statusKnown.Load() && status != unknownStatus {
		p.setStatus(status)
	}
	r.exitStatuses[pid] = status
	r.mu.Unlock()
	r.wakeIfRunning()
}

// AtWork implements pyfeed.Feed.
func (r *Ring) AtWork(coming []int) bool {
	if r.Tasks() > 0 {
		return r.expectsResult()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pass == pyfeed.PassNone || r.ending || !r.hasRoom() {
		return false
	}
	for i := range r.workers {
		s := r.workers[i].state.Load()
		if kind := s & 0xff; (kind == attaching || kind == attached) && s>>8&0xffffff == workerPass(r.pass) {
			return true
		}
	}
	return slices.ContainsFunc(coming, func(pid int) bool { return !r.attached[pid] })
}

// hasRoom reports whether a worker writes to a cell, or could.
func (r *Ring) hasRoom() bool {
	for i := range r.states {
		if kind := kindOf(r.states[i].Load()); kind == free || kind == writing {
			return true
		}
	}
	return false
}

// ---- The producers' end, in this process ----

// Reserve implements pyfeed.Input: only workers push.
func (r *Ring) Reserve(context.Context, pyfeed.Pass, *pyfeed.Tuple) (pyfeed.Reservation, error) {
	return pyfeed.Reservation{}, errNoPushes()
}

// Lend implements pyfeed.Input: only workers push.
func (r *Ring) Lend(_ context.Context, _ pyfeed.Pass, t *pyfeed.Tuple, _ memory.Owner) error {
	t.Release()
	return errNoPushes()
}

func errNoPushes() error {
	return pyfeed.Errorf(pyfeed.State, "push: this queue is filled by worker processes, each with a producer of its own")
}

// Close implements pyfeed.Input: the pass ends after all tuples that workers have committed are queued.
func (r *Ring) Close(pass pyfeed.Pass) {
	if pass == pyfeed.PassCurrent {
		pass = r.queue.Pass()
	}
	r.beginEnd(pass, nil)
}

// Fail implements pyfeed.Input: consumers get the failure after all tuples that workers have committed.
func (r *Ring) Fail(pass pyfeed.Pass, failure error) error {
	if pass == pyfeed.PassCurrent {
		pass = r.queue.Pass()
	}
	if err := r.queue.CheckPass(pass); err != nil {
		return err
	}
	if !r.beginEnd(pass, failure) {
		return pyfeed.Errorf(pyfeed.Closed, "the queue is closed: pass %v takes no more tuples", pass)
	}
	return nil
}

// beginEnd closes the gate to workers and tells the forwarder to end the pass, with an error if the gate was damaged:
// workers may then have ended early. It returns false if the pass is already ending or is not the current one.
func (r *Ring) beginEnd(pass pyfeed.Pass, failure error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending || r.pass == pyfeed.PassNone || r.pass != pass {
		return false
	}
	r.mendGate()
	if failure == nil && r.gateDamaged { // the forwarder has not reported it yet
		failure = overwrittenError("its gate")
	}
	r.ending, r.failure = true, failure
	r.setGate(gateOf(pass) &^ openGate)
	return true
}

// ---- Called by the queue ----

// Starved implements pyfeed.Feed.
func (r *Ring) Starved() {
	r.consumerWaits.Store(true)
	if r.head.waitingWorkers.Load() == 0 { // a worker may have damaged the count: wake a sleeping worker anyway
		futexWake(unsafe.Pointer(&r.head.cellEvents), 1)
	}
	if r.holding.Load() {
		r.wakeForwarder()
	}
}

// PassBegan implements pyfeed.Feed.
func (r *Ring) PassBegan(pass pyfeed.Pass) { r.setPass(pass, gateOf(pass)) }

// ShutDown implements pyfeed.Feed.
func (r *Ring) ShutDown() { r.setPass(pyfeed.PassNone, shutDownGate) }

func (r *Ring) setPass(pass pyfeed.Pass, gate uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pass == pyfeed.PassNone {
		return
	}
	r.pass, r.ending, r.failure, r.expected, r.gateDamaged = pass, false, nil, 0, false
	clear(r.exitStatuses)
	maps.DeleteFunc(r.processes, func(_ int, p *process) bool { return p.dead.Load() && p.statusKnown.Load() })
	r.setGate(gate)
}

// setGate sets the gate and wakes all workers and the forwarder to check it. The lock is held.
func (r *Ring) setGate(gate uint32) {
	r.gate = gate
	r.head.gate.Store(gate)
	for _, word := range []*atomic.Uint32{&r.head.cellEvents, &r.head.passEvents, &r.head.taskEvents} {
		word.Add(1)
		futexWake(unsafe.Pointer(word), math.MaxInt32)
	}
	r.wakeForwarder()
}

// wakeForwarder wakes the forwarder to check for events.
func (r *Ring) wakeForwarder() {
	r.head.trainerEvents.Add(1)
	if r.asleep.Load() {
		futexWake(unsafe.Pointer(&r.head.trainerEvents), 1)
	}
}

// release marks a cell as free.
func (r *Ring) release(i int) {
	r.states[i].Store(stateOf(free, generationOf(r.states[i].Load())+1))
	r.wakeWaitingWorker()
}

// wakeWaitingWorker wakes a worker that waits for a cell.
func (r *Ring) wakeWaitingWorker() {
	r.head.cellEvents.Add(1)
	if r.head.waitingWorkers.Load() != 0 {
		futexWake(unsafe.Pointer(&r.head.cellEvents), 1)
	}
}
