package cuda

import (
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// twin is a device in the host's memory, for machines without one: everything is as with a real one, but that a copy
// is done when it has begun, and that streams do nothing.
type twin struct {
	mu      sync.Mutex
	pieces  map[uint64][]byte // by address
	streams atomic.Uint64
}

func newTwin() *twin { return &twin{pieces: map[uint64][]byte{}} }

func (t *twin) Attach() error { return nil }
func (t *twin) Detach() error { return nil }
func (t *twin) Start() error  { return nil }
func (t *twin) Stop() error   { return nil }

func (t *twin) Alloc(bytes int) (uint64, error) {
	piece, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, fmt.Errorf("%w: the system gave no %d bytes: %w", memory.ErrNoMemory, bytes, err)
	}
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(piece))))
	t.mu.Lock()
	t.pieces[addr] = piece
	t.mu.Unlock()
	return addr, nil
}

func (t *twin) Free(addr uint64) error {
	t.mu.Lock()
	piece := t.pieces[addr]
	delete(t.pieces, addr)
	t.mu.Unlock()
	return unix.Munmap(piece)
}

func (t *twin) Register(unsafe.Pointer, int) error { return nil }
func (t *twin) Unregister(unsafe.Pointer) error    { return nil }
func (t *twin) NewEvent() (event, error)           { return 0, nil }
func (t *twin) DestroyEvent(event) error           { return nil }

func (t *twin) Copy(to uint64, from unsafe.Pointer, bytes int, _ event, timed bool) (timer, error) {
	begin := trace.Now()
	copy(unsafe.Slice((*byte)(pointer(to)), bytes), unsafe.Slice((*byte)(from), bytes))
	return timer{running: timed, took: trace.Now() - begin}, nil
}

func (t *twin) Took(of timer) int64 { return of.took }

func (t *twin) Wait(event) error            { return nil }
func (t *twin) Drain() error                { return nil }
func (t *twin) Synchronize(event) error     { return nil }
func (t *twin) Use(uint64, event) error     { return nil }
func (t *twin) Release(uint64, event) error { return nil }

func (t *twin) Download(to unsafe.Pointer, from uint64, bytes int) error {
	copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(pointer(from)), bytes))
	return nil
}

func (t *twin) NewStream() (uint64, error) { return 2 + t.streams.Add(1), nil }
func (t *twin) DestroyStream(uint64) error { return nil }

func (t *twin) MemInfo() (free, total int64, err error) {
	var s unix.Sysinfo_t
	if err := unix.Sysinfo(&s); err != nil {
		return 0, 0, err
	}
	unit := int64(s.Unit)
	return int64(s.Freeram) * unit, int64(s.Totalram) * unit, nil
}

func (t *twin) Close() error { return nil }

// pointer is an address as a pointer. It is one of memory that is not Go's.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
