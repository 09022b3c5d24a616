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

// emulation is a device emulated in host memory, for machines without a GPU. It behaves as a real device, except that a
// copy is complete when it is submitted, and that streams do nothing.
type emulation struct {
	mu      sync.Mutex
	pieces  map[uint64][]byte // memory blocks by address
	streams atomic.Uint64
}

func newEmulation() *emulation { return &emulation{pieces: map[uint64][]byte{}} }

func (t *emulation) Attach() error { return nil }
func (t *emulation) Detach() error { return nil }
func (t *emulation) Start() error  { return nil }
func (t *emulation) Stop() error   { return nil }

func (t *emulation) Alloc(bytes int) (uint64, error) {
	piece, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return 0, fmt.Errorf("%w: the system could not allocate %d bytes: %w", memory.ErrNoMemory, bytes, err)
	}
	addr := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(piece))))
	t.mu.Lock()
	t.pieces[addr] = piece
	t.mu.Unlock()
	return addr, nil
}

func (t *emulation) Free(addr uint64) error {
	t.mu.Lock()
	piece := t.pieces[addr]
	delete(t.pieces, addr)
	t.mu.Unlock()
	return unix.Munmap(piece)
}

func (t *emulation) Register(unsafe.Pointer, int) error { return nil }
func (t *emulation) Unregister(unsafe.Pointer) error    { return nil }
func (t *emulation) NewEvent() (event, error)           { return 0, nil }
func (t *emulation) DestroyEvent(event) error           { return nil }

func (t *emulation) Copy(to uint64, from unsafe.Pointer, bytes int, _ event, timed bool) (timer, error) {
	begin := trace.Now()
	copy(unsafe.Slice((*byte)(pointer(to)), bytes), unsafe.Slice((*byte)(from), bytes))
	return timer{running: timed, took: trace.Now() - begin}, nil
}

func (t *emulation) Elapsed(of timer) int64 { return of.took }

func (t *emulation) Wait(event) error            { return nil }
func (t *emulation) Drain() error                { return nil }
func (t *emulation) Synchronize(event) error     { return nil }
func (t *emulation) Use(uint64, event) error     { return nil }
func (t *emulation) Release(uint64, event) error { return nil }

func (t *emulation) Download(to unsafe.Pointer, from uint64, bytes int) error {
	copy(unsafe.Slice((*byte)(to), bytes), unsafe.Slice((*byte)(pointer(from)), bytes))
	return nil
}

func (t *emulation) NewStream() (uint64, error) { return 2 + t.streams.Add(1), nil }
func (t *emulation) DestroyStream(uint64) error { return nil }

func (t *emulation) MemInfo() (free, total int64, err error) {
	return hostMemory()
}

func (t *emulation) Close() error { return nil }

// pointer converts an address outside Go's heap to a pointer.
func pointer(addr uint64) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
