package shared

import (
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// The structs of the ring in shared memory, as in python/pyfeed_worker/native/ring.h, which describes them.

const (
	magic     = "pyfeed\x1a\n"
	version   = 2
	workers   = 256
	alignment = 256
	pageSize  = 4096 // the parts of the ring begin at multiples of it, on machines with larger pages too

	failureBytes = 8192
	typeBytes    = 256
	textBytes    = 2048

	taskFailureBytes   = 1 << 16
	taskTracebackBytes = 1 << 14
)

// States of a task.
const (
	taskFree = iota
	taskPosted
	taskTaken
	taskWriting
)

// States of a cell.
const (
	free = iota
	writing
	committed
	revoked
	consumer
)

// States of a worker.
const (
	vacant = iota
	attaching
	attached
	ended
	failed
)

type spec struct {
	dtype     int32
	rank      int32
	lodLevels uint32
	_         uint32
	dims      [pyfeed.MaxRank]int64
}

type tensor struct {
	dtype     int32
	rank      int32
	lodLevels uint32
	_         uint32
	dataAt    uint64
	nbytes    uint64
	dims      [pyfeed.MaxRank]int64
	lodAt     [pyfeed.MaxLoDLevels]uint64
	lodCount  [pyfeed.MaxLoDLevels]uint64
}

type taskRecord struct {
	state       atomic.Uint64
	raised      atomic.Uint64
	owner       atomic.Uint64
	ticket      atomic.Uint64
	pass, index atomic.Uint64
	pickleBytes atomic.Uint64
	_           uint64
}

type worker struct {
	state   atomic.Uint64
	started atomic.Uint64
	pushed  atomic.Uint64
	number  atomic.Uint64
	_       [4]uint64
}

// constants are written once, when the ring is created. The trainer uses its own copy, which workers cannot overwrite.
type constants struct {
	magic                [8]byte
	version, headerBytes uint32
	identity             [16]byte
	totalBytes           uint64
	ringCells, numSlots  uint32 // numSlots: tensors of a tuple
	order, workers       uint32 // the number of entries in the order and in the table of workers
	cellBytes, stride    uint64
	specsAt, workersAt   uint64
	failuresAt, orderAt  uint64
	statesAt, tensorsAt  uint64
	dataAt               uint64
	trainer              int64
	trainerStarted       uint64
	pidNamespace         uint64

	tasks, taskSlots      uint32 // tasks: 0 if workers get none; taskSlots: tensors of a task
	taskBytes, taskStride uint64
	tasksAt, taskTensorsAt,
	taskDataAt uint64
	_ [56]byte
}

type header struct {
	constants

	gate atomic.Uint32
	_    [60]byte
	tail atomic.Uint64
	_    [56]byte

	trainerEvents, trainerSleeping, workerEvents atomic.Uint32
	_                                            [52]byte

	cellEvents, waitingWorkers, passEvents atomic.Uint32
	taskEvents, waitingTakers, tasksWanted atomic.Uint32
	_                                      [40]byte
}

func orderEntry(lap, generation, cellAnd1 uint64) uint64 {
	return lap&0xffffff<<40 | generation&0xffffff<<16 | cellAnd1
}

func stateOf(state, generation uint64) uint64 { return state | generation&0xffffff<<24 }

// The fields of the state word of a cell.
func kindOf(state uint64) int          { return int(state & 0xff) }
func workerOf(state uint64) int        { return int(state >> 8 & 0xffff) }
func generationOf(state uint64) uint64 { return state >> 24 & 0xffffff }
func passOf(state uint64) uint64       { return state >> 48 }

// A gate is the number of the pass shifted left by one, plus openGate while that pass accepts tuples. After the
// shutdown it is shutDownGate. The gate of new memory is 0, which accepts no tuples.
const (
	openGate     = 1
	shutDownGate = 1<<32 - 2
)

func gateOf(pass pyfeed.Pass) uint32 { return uint32(pass<<1) | openGate }

// The states of cells and workers hold only the low bits of the number of the pass.
func cellPass(pass pyfeed.Pass) uint64   { return uint64(pass) & 0xffff }
func workerPass(pass pyfeed.Pass) uint64 { return uint64(pass) & 0xffffff }

// sizes computes the offsets and sizes of all parts of the ring.
func sizes(ringCells, tensors int, cellBytes uint64, tasks TaskOptions) constants {
	h := constants{
		version: version, headerBytes: uint32(unsafe.Sizeof(header{})), workers: workers,
		ringCells: uint32(ringCells), numSlots: uint32(tensors), cellBytes: cellBytes, order: 1,
	}
	copy(h.magic[:], magic)
	for h.order < 2*h.ringCells {
		h.order *= 2
	}
	align := uint64(alignment)
	if cellBytes >= pageSize {
		align = pageSize
	}
	h.stride = (max(cellBytes, 1) + align - 1) &^ (align - 1)
	at := uint64(pageSize)
	room := func(to *uint64, n int, size uintptr) {
		*to = at
		at = (at + uint64(n)*uint64(size) + pageSize - 1) &^ (pageSize - 1)
	}
	room(&h.specsAt, tensors, unsafe.Sizeof(spec{}))
	room(&h.workersAt, workers, unsafe.Sizeof(worker{}))
	room(&h.failuresAt, workers, failureBytes)
	room(&h.orderAt, int(h.order), 8)
	room(&h.statesAt, ringCells, 8)
	room(&h.tensorsAt, ringCells*tensors, unsafe.Sizeof(tensor{}))
	if tasks.Count > 0 {
		h.tasks, h.taskSlots, h.taskBytes = uint32(tasks.Count), uint32(tasks.Slots), tasks.Bytes
		h.taskStride = (taskFailureBytes + tasks.Bytes + pageSize - 1) &^ (pageSize - 1)
		room(&h.tasksAt, tasks.Count, unsafe.Sizeof(taskRecord{}))
		room(&h.taskTensorsAt, tasks.Count*tasks.Slots, unsafe.Sizeof(tensor{}))
	}
	h.dataAt = at
	h.taskDataAt = (at + h.stride*uint64(ringCells) + pageSize - 1) &^ (pageSize - 1)
	h.totalBytes = h.taskDataAt + h.taskStride*uint64(h.tasks)
	return h
}

// view returns the n values of type T at offset at of the ring.
func view[T any](data []byte, at uint64, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&data[at])), n)
}

// pageOf returns the beginning of the machine's page that contains offset at of the ring.
func pageOf(at int) int { return at &^ (os.Getpagesize() - 1) }
