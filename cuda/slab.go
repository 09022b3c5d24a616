package cuda

import (
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

const (
	// A slab has room for this many pieces of the size requested first. Slabs are large because pinning takes a second
	// for each one or two gigabytes, and unpinning stops the device.
	piecesOfSlab = 4
	// A slab is not larger than this, unless a single piece is.
	largestSlab = 256 << 20
)

// pinned is a memory.Source of pinned host memory. It cuts pieces from slabs, which stay pinned until Close. All
// methods are safe for concurrent use.
type pinned struct {
	device *Device

	growing sync.Mutex // held while pinning, so that two threads do not pin memory for the same shortage
	mu      sync.Mutex // never held while pinning
	slabs   []slab
	total   int // bytes of all slabs; guarded by growing
}

type slab struct {
	begin unsafe.Pointer
	size  int
	free  []piece // sorted by address; adjacent pieces are joined
}

type piece struct{ at, size int }

// newPinned makes a Source, which takes over a reference to the device.
func newPinned(d *Device) *pinned { return &pinned{device: d} }

// Allocate returns the first free piece that is large enough, and pins a new slab if there is none.
func (p *pinned) Allocate(n int) (unsafe.Pointer, error) {
	if at := p.take(n); at != nil {
		return at, nil
	}
	p.growing.Lock()
	defer p.growing.Unlock()
	if at := p.take(n); at != nil { // another thread has added a slab
		return at, nil
	}
	needed := slabSize(n)
	size := max(needed, slabSize(min(max(piecesOfSlab*n, p.total), largestSlab)))
	s, err := p.pin(size)
	if err != nil && size > needed && p.device.err() == nil {
		s, err = p.pin(needed) // without room for more pieces
	}
	if err != nil {
		return nil, err
	}
	p.total += s.size
	at := s.take(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slabs = append(p.slabs, s)
	return at, nil
}

func (p *pinned) take(n int) unsafe.Pointer {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.slabs {
		if at := p.slabs[i].take(n); at != nil {
			return at
		}
	}
	return nil
}

// pin allocates and pins a new slab.
func (p *pinned) pin(size int) (slab, error) {
	begin, err := memory.NewSlab(size)
	if err != nil {
		return slab{}, err
	}
	if err := p.device.port.Register(begin, size); err != nil {
		memory.FreeSlab(begin, size)
		return slab{}, p.device.failed(outOfMemory(err, "pinned memory", size))
	}
	memory.CountSlab(memory.PinnedSlab, size)
	return slab{begin, size, []piece{{0, size}}}, nil
}

func slabSize(n int) int {
	return (max(n, 1) + memory.SlabUnit - 1) / memory.SlabUnit * memory.SlabUnit
}

func (s *slab) take(n int) unsafe.Pointer {
	for i := range s.free {
		f := &s.free[i]
		if f.size < n {
			continue
		}
		at := unsafe.Add(s.begin, f.at)
		if f.at, f.size = f.at+n, f.size-n; f.size == 0 {
			s.free = slices.Delete(s.free, i, i+1)
		}
		return at
	}
	return nil
}

// Free joins the piece with free neighbours.
func (p *pinned) Free(at unsafe.Pointer, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range p.slabs {
		s := &p.slabs[i]
		offset := uintptr(at) - uintptr(s.begin)
		if uintptr(at) >= uintptr(s.begin) && offset < uintptr(s.size) {
			s.put(piece{int(offset), n})
			return
		}
	}
	panic(fmt.Sprintf("cuda: Free of memory outside all slabs: %p", at))
}

func (s *slab) put(p piece) {
	i, _ := slices.BinarySearchFunc(s.free, p.at, func(f piece, at int) int { return f.at - at })
	after := i < len(s.free) && p.at+p.size == s.free[i].at
	before := i > 0 && s.free[i-1].at+s.free[i-1].size == p.at
	switch {
	case before && after:
		s.free[i-1].size += p.size + s.free[i].size
		s.free = slices.Delete(s.free, i, i+1)
	case before:
		s.free[i-1].size += p.size
	case after:
		s.free[i] = piece{p.at, p.size + s.free[i].size}
	default:
		s.free = slices.Insert(s.free, i, p)
	}
}

// Close unpins and frees all slabs. Unregister fails only if the device is gone, and then nothing is pinned any more.
func (p *pinned) Close() {
	p.mu.Lock()
	slabs := p.slabs
	p.slabs = nil
	p.mu.Unlock()
	for _, s := range slabs {
		_ = p.device.port.Unregister(s.begin)
		memory.FreeSlab(s.begin, s.size)
		memory.CountSlab(memory.PinnedSlab, -s.size)
	}
	p.device.drop()
}
