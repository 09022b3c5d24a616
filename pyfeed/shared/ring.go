// Package shared is the trainer's side of a queue that other processes fill: a ring of cells in memory that they map.
// Nothing is copied between the processes, and workers run no Go: their side is python/pyfeed_worker/native.
//
// No lock is held in the ring by anybody who can die (see ring.h there). A goroutine, the forwarder, takes what workers have
// committed and puts references to it into an ordinary PyArrayFeedQueue; a cell goes back to the workers with the last
// reference. Whatever concerns the forwarder makes one futex go on, on which it sleeps. Each worker's process is watched by
// a goroutine that Go's poller wakes when the process ends: nobody wakes up for nothing.
package shared

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// maxCells bounds the cells of a ring: a worker looks for a free one among all.
const maxCells = 4096

// Options of a queue that workers fill.
type Options struct {
	Slots     []pyfeed.Slot
	RingCells uint64 // tuples being written, queued or with the consumer
	CellBytes uint64 // the most that a tuple takes, with its offsets and alignment
	Place     pyfeed.Place
}

// A Ring is the Feed that wraps a queue.
type Ring struct {
	queue      *pyfeed.PyArrayFeedQueue // which keeps the Ring, not the other way round
	fd         int
	data       []byte
	at         constants
	head       *header
	workers    []worker
	order      []atomic.Uint64
	states     []atomic.Uint64
	leases     []lease
	offsets    *memory.Pool // LoD, copied out of the workers' reach
	copies     *memory.Pool // for a consumer that keeps what it gets
	unregister func()
	references atomic.Int32 // the forwarder, and each cell with the consumer

	asleep        atomic.Bool  // the forwarder; workers have a word in the ring for it, which a broken one may have overwritten
	corrupted     atomic.Bool  // a cell that came back was not the consumer's any more
	lentCells     atomic.Int32 // cells with the consumer, or in the queue
	holding       atomic.Bool  // the forwarder waits for one of them to come back, or for
	consumerWaits atomic.Bool  // a consumer that found the queue empty

	mu           sync.Mutex  // guards what follows, which others ask of the forwarder
	pass         pyfeed.Pass // that is open; PassNone: the queue is shut down
	gate         uint32      // what the ring's has to be
	ending       bool        // it is to end
	failure      error
	expected     uint32
	exitStatuses map[int]int32 // by process id
	processes    map[int]*process
	stopped      bool

	forwarder forwarder
}

// forwarder is what only the forwarder touches.
type forwarder struct {
	next         uint64 // cell
	workerEvents uint32
	pass         pyfeed.Pass
	finished     bool // the pass
	pending      *pyfeed.Tuple
	worker       int // that committed it
	done         uint32
	present      [workers]*process // by number in the table
	entries      [workers]uint64   // what the table said of them
	attached     map[int]bool      // process ids seen in this pass
	mapped       []int             // of each cell: how many of its bytes have pages here
}

// lease is a cell of the ring that the consumer has.
type lease struct {
	ring   *Ring
	cell   int
	held   atomic.Uint64 // the cell's state while the consumer has it, with `returning` when it gives it back; else 0
	buffer memory.Buffer
	lod    *memory.Buffer
}

const returning = 0x80 // in the low byte

// whole answers false for a cell that the consumer has, whose state somebody has changed to s, and puts it right.
func (l *lease) whole(s uint64) bool {
	held := l.held.Load()
	if held == 0 || held&returning != 0 || s == held {
		return true
	}
	l.ring.states[l.cell].CompareAndSwap(s, held)
	return false
}

// Reclaim gives the cell back to the workers.
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

// New makes a ring, and the queue that it fills by init.
func New(o Options, init func(pyfeed.QueueOptions) (*pyfeed.Consumer, error)) (*pyfeed.Consumer, *Ring, error) {
	switch {
	case o.RingCells == 0 || o.RingCells > maxCells:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "ring_cells: expected 1 to %d, found %d", maxCells, o.RingCells)
	case o.CellBytes == 0 || o.CellBytes > 1<<40:
		return nil, nil, pyfeed.Errorf(pyfeed.Invalid, "cell_bytes: expected 1 to 2^40, found %d", o.CellBytes)
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
		exitStatuses: make(map[int]int32), processes: make(map[int]*process),
		pass: 0, forwarder: forwarder{pass: 0, attached: make(map[int]bool), mapped: make([]int, o.RingCells)},
	}
	r.references.Store(1)
	if err := r.create(o); err != nil {
		r.drop()
		return nil, nil, err
	}
	// One more than there are cells: a copy may be queued beside all of them.
	q, err := init(pyfeed.QueueOptions{Capacity: o.RingCells + 1, Slots: o.Slots, Place: o.Place, Feed: r})
	if err != nil {
		r.drop()
		return nil, nil, err
	}
	r.queue = q.Queue()
	wait.Go(r.run, r.poisoned)
	return q, r, nil
}

func (r *Ring) poisoned(fault error) {
	_ = r.queue.Fail(pyfeed.PassCurrent, pyfeed.Errorf(pyfeed.Fault, "%v", fault))
}

func (r *Ring) create(o Options) (err error) {
	h := sizes(int(o.RingCells), len(o.Slots), o.CellBytes)
	if h.totalBytes > 1<<46 {
		return pyfeed.Errorf(pyfeed.Invalid, "cell_bytes: %d cells of %d bytes are more than there can be", o.RingCells, o.CellBytes)
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
	memoryOfCells := data[h.dataAt:]
	_ = unix.Madvise(memoryOfCells, unix.MADV_HUGEPAGE) // advice
	r.at, r.head = h, (*header)(unsafe.Pointer(&data[0]))
	r.head.constants = h
	r.gate = gateOf(0)
	r.head.gate.Store(r.gate)
	specs := view[spec](data, h.specsAt, len(o.Slots))
	for i, s := range o.Slots {
		specs[i] = spec{dtype: int32(s.DType), rank: int32(len(s.Dims)), lodLevels: uint32(s.LoDLevels)}
		copy(specs[i].dims[:], s.Dims)
	}
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

// drop takes a reference away. With the last one the memory goes, here; workers may have it mapped still.
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

// FD is the ring's file descriptor, for workers to map. It stays the Ring's.
func (r *Ring) FD() int { return r.fd }

// Expect has the pass end when so many workers have ended their part of it.
func (r *Ring) Expect(n uint32) {
	r.mu.Lock()
	r.expected = n
	r.mu.Unlock()
	r.wakeIfRunning()
}

// unknownStatus is that of a process whose exit status somebody else has taken.
const unknownStatus = math.MinInt32

// Exited tells the exit status, or minus the signal, of a worker. One that has not attached in this pass fails it, unless
// that is 0 and no number of workers is expected.
func (r *Ring) Exited(pid int, status int32) {
	r.mu.Lock()
	if p := r.processes[pid]; p != nil && !p.statusKnown.Load() && status != unknownStatus {
		p.setStatus(status)
	}
	r.exitStatuses[pid] = status
	r.mu.Unlock()
	r.wakeIfRunning()
}

// ---- The producers' end, in this process ----

// Reserve implements pyfeed.Input: only workers push.
func (r *Ring) Reserve(context.Context, pyfeed.Pass, *pyfeed.Tuple) (pyfeed.Reservation, error) {
	return pyfeed.Reservation{}, noPushes()
}

// Lend implements pyfeed.Input: only workers push.
func (r *Ring) Lend(_ context.Context, _ pyfeed.Pass, t *pyfeed.Tuple, _ memory.Owner) error {
	t.Release()
	return noPushes()
}

func noPushes() error {
	return pyfeed.Errorf(pyfeed.State, "push: this queue is filled by worker processes, each with a producer of its own")
}

// Close implements pyfeed.Input: the pass ends when all that workers have committed is queued.
func (r *Ring) Close(pass pyfeed.Pass) {
	if pass == pyfeed.PassCurrent {
		pass = r.queue.Pass()
	}
	r.beginEnd(pass, nil)
}

// Fail implements pyfeed.Input: the failure comes behind all that workers have committed.
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

// beginEnd closes the gate to workers, unless that was done before or the pass is another: the forwarder ends the pass.
func (r *Ring) beginEnd(pass pyfeed.Pass, failure error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending || r.pass == pyfeed.PassNone || r.pass != pass {
		return false
	}
	r.ending, r.failure = true, failure
	r.shut(gateOf(pass) &^ openGate)
	return true
}

// ---- What the queue reports ----

// Starved implements pyfeed.Feed.
func (r *Ring) Starved() {
	r.consumerWaits.Store(true)
	if r.head.waitingWorkers.Load() == 0 { // unless that was overwritten while some slept, whom nobody else would wake
		futexWake(unsafe.Pointer(&r.head.cellEvents), 1)
	}
	if r.holding.Load() {
		r.wakeForwarder()
	}
}

// PassBegan implements pyfeed.Feed.
func (r *Ring) PassBegan(pass pyfeed.Pass) { r.setPass(pass, gateOf(pass)) }

// ShutDown implements pyfeed.Feed.
func (r *Ring) ShutDown() { r.setPass(pyfeed.PassNone, overGate) }

func (r *Ring) setPass(pass pyfeed.Pass, gate uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pass == pyfeed.PassNone {
		return
	}
	r.pass, r.ending, r.failure, r.expected = pass, false, nil, 0
	clear(r.exitStatuses)
	maps.DeleteFunc(r.processes, func(_ int, p *process) bool { return p.dead.Load() && p.statusKnown.Load() })
	r.shut(gate)
}

// shut sets the gate, and has everybody look at it. It is for the holder of the lock.
func (r *Ring) shut(gate uint32) {
	r.gate = gate
	r.head.gate.Store(gate)
	for _, word := range []*atomic.Uint32{&r.head.cellEvents, &r.head.passEvents} {
		word.Add(1)
		futexWake(unsafe.Pointer(word), math.MaxInt32)
	}
	r.wakeForwarder()
}

// wakeForwarder has the forwarder look around.
func (r *Ring) wakeForwarder() {
	r.head.trainerEvents.Add(1)
	if r.asleep.Load() {
		futexWake(unsafe.Pointer(&r.head.trainerEvents), 1)
	}
}

// release makes a cell free.
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
