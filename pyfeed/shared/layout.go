package shared

import (
	"sync/atomic"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// The ring as it lies in shared memory: python/pyfeed_worker/native/ring.h says what it means.

const (
	magic     = "pyfeed\x1a\n"
	version   = 1
	workers   = 256
	alignment = 256
	pageSize  = 4096

	failureBytes = 8192
	typeBytes    = 256
	textBytes    = 2048
)

// States of a slot.
const (
	free = iota
	writing
	committed
	revoked
	consumer
)

// States of a worker.
const (
	nobody = iota
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

type worker struct {
	state   atomic.Uint64
	started atomic.Uint64
	pushed  atomic.Uint64
	_       [5]uint64
}

// constants are what nobody writes any more once there is a ring; the trainer goes by its own copy.
type constants struct {
	magic                [8]byte
	version, headerBytes uint32
	identity             [16]byte
	totalBytes           uint64
	ringSlots, numSlots  uint32 // the latter: tensors of a tuple
	cells, workers       uint32
	slotBytes, stride    uint64
	specsAt, workersAt   uint64
	failuresAt, cellsAt  uint64
	statesAt, tensorsAt  uint64
	dataAt               uint64
	trainer              int64
	trainerStarted       uint64
	pidNamespace         uint64
	_                    [104]byte
}

type header struct {
	constants

	gate atomic.Uint32
	_    [60]byte
	tail atomic.Uint64
	_    [56]byte

	arrivals, sleeping, news atomic.Uint32
	_                        [52]byte

	frees, blocked, turns atomic.Uint32
	_                     [52]byte
}

func cellOf(lap, generation, slotAnd1 uint64) uint64 {
	return lap&0xffffff<<40 | generation&0xffffff<<16 | slotAnd1
}

func stateOf(state, generation uint64) uint64 { return state | generation&0xffffff<<24 }

// What a slot's word says.
func kindOf(state uint64) int          { return int(state & 0xff) }
func workerOf(state uint64) int        { return int(state >> 8 & 0xffff) }
func generationOf(state uint64) uint64 { return state >> 24 & 0xffffff }
func passOf(state uint64) uint64       { return state >> 48 }

// Gates: the pass, above a bit that says whether it takes tuples. After an over one there is no pass. A ring that is zero
// takes none.
const (
	openGate = 1
	overGate = 1<<32 - 2
)

func gateOf(pass pyfeed.Pass) uint32 { return uint32(pass<<1) | openGate }

// The numbers of passes in the states of slots and workers are cut short.
func slotPass(pass pyfeed.Pass) uint64   { return uint64(pass) & 0xffff }
func workerPass(pass pyfeed.Pass) uint64 { return uint64(pass) & 0xffffff }

// sizes works out where everything lies.
func sizes(slots, tensors int, slotBytes uint64) constants {
	h := constants{
		version: version, headerBytes: uint32(unsafe.Sizeof(header{})), workers: workers,
		ringSlots: uint32(slots), numSlots: uint32(tensors), slotBytes: slotBytes, cells: 1,
	}
	copy(h.magic[:], magic)
	for h.cells < 2*h.ringSlots {
		h.cells *= 2
	}
	align := uint64(alignment)
	if slotBytes >= pageSize {
		align = pageSize
	}
	h.stride = (max(slotBytes, 1) + align - 1) &^ (align - 1)
	at := uint64(pageSize)
	room := func(to *uint64, n int, size uintptr) {
		*to = at
		at = (at + uint64(n)*uint64(size) + pageSize - 1) &^ (pageSize - 1)
	}
	room(&h.specsAt, tensors, unsafe.Sizeof(spec{}))
	room(&h.workersAt, workers, unsafe.Sizeof(worker{}))
	room(&h.failuresAt, workers, failureBytes)
	room(&h.cellsAt, int(h.cells), 8)
	room(&h.statesAt, slots, 8)
	room(&h.tensorsAt, slots*tensors, unsafe.Sizeof(tensor{}))
	const huge = 2 << 20
	if h.stride*uint64(slots) >= huge {
		at = (at + huge - 1) &^ (huge - 1)
	}
	h.dataAt = at
	h.totalBytes = (at + h.stride*uint64(slots) + pageSize - 1) &^ (pageSize - 1)
	return h
}

// view is n T's that begin at an offset of the ring.
func view[T any](data []byte, at uint64, n int) []T {
	return unsafe.Slice((*T)(unsafe.Pointer(&data[at])), n)
}
