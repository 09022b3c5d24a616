package memory

// #include "memory.h"
import "C"

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"
)

// A Pool allocates buffers and keeps released ones for reuse.
//
// Its memory, in use and idle together, never exceeds the largest amount that was in use at one time. To stay below
// that, it returns idle buffers of other sizes to the system. Buffers may outlive the Pool's Close.
type Pool struct {
	// The fields that each Get and Release changes come first, in as few cache lines as possible.
	mu        sync.Mutex
	classes   []class // sorted by size
	live      int     // bytes in use, in sizes of classes; idle and peak count the same way
	idle      int
	requested int // bytes in use, in sizes requested
	buffers   int // in use

	peak     int // the largest value of live so far
	closed   bool
	unpooled bool // released buffers are freed, not kept
	purpose  Purpose
	source   Source
	spares   *Buffer // Buffers without memory, for reuse

	mappings map[string]*Mapping // cached mappings of files that are not open, by file name
}

// pools are the Pools that are open or have buffers in use. Each Pool counts its own memory, so that a Get has no
// global count to update.
var pools struct {
	mu  sync.Mutex
	all map[*Pool]struct{}
}

// NewPool makes a Pool whose buffers count for the given purpose.
func NewPool(purpose Purpose) *Pool {
	p := &Pool{purpose: purpose}
	pools.mu.Lock()
	defer pools.mu.Unlock()
	if pools.all == nil {
		pools.all = make(map[*Pool]struct{})
	}
	pools.all[p] = struct{}{}
	return p
}

// NewUnpooled makes a Pool that keeps no released buffers. It is for memory that is allocated rarely but must be
// counted.
func NewUnpooled(purpose Purpose) *Pool {
	p := NewPool(purpose)
	p.unpooled = true
	return p
}

// A Source allocates memory of a special kind, such as pinned memory. All methods are safe for concurrent use.
type Source interface {
	// Allocate returns n bytes aligned to SourceAlignment. n is a multiple of SourceAlignment.
	Allocate(n int) (unsafe.Pointer, error)
	Free(p unsafe.Pointer, n int)
	// Close is called when everything is freed and no more memory will be requested.
	Close()
}

// SourceAlignment is the alignment, in bytes, of tuples' fields in a Source's memory. Devices use the same alignment.
const SourceAlignment = 256

// NewPinnedPool makes a Pool of pinned memory. Released buffers go back to the source.
func NewPinnedPool(source Source, purpose Purpose) *Pool {
	p := NewUnpooled(purpose)
	p.source = source
	return p
}

// Align rounds n up to a multiple of the alignment of fields in the Pool's buffers.
func (p *Pool) Align(n int) int {
	if p.source != nil {
		return (n + SourceAlignment - 1) &^ (SourceAlignment - 1)
	}
	return align(n)
}

// Pinned reports whether devices can copy from the Pool's buffers directly.
func (p *Pool) Pinned() bool { return p.source != nil }

// Stats counts the memory of all pools.
type Stats struct {
	Live    [numPurposes]int64 // bytes in use, by purpose
	Buffers int64              // in use
	Idle    int64              // bytes kept for reuse
	Slabs   [numSlabs]int64    // bytes, by kind
}

// Count returns the Stats of all pools at the moment.
func Count() (s Stats) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	for p := range pools.all {
		p.mu.Lock()
		s.Live[p.purpose] += int64(p.requested)
		s.Buffers += int64(p.buffers)
		if p.purpose != View { // the memory of views is small and never freed
			s.Idle += int64(p.idle)
		}
		p.mu.Unlock()
	}
	// Returned memory is counted before lent memory. In the other order, memory lent and returned in between would make
	// the difference negative.
	bytes, buffers := returned.bytes.Load(), returned.buffers.Load()
	s.Live[Lent] += lent.bytes.Load() - bytes
	s.Live[Mapped] += mappedBytes.Load()
	s.Buffers += lent.buffers.Load() - buffers + mappedWindows.Load()
	for i := range slabBytes {
		s.Slabs[i] = slabBytes[i].Load()
	}
	return s
}

type class struct {
	size int
	free *Buffer
}

// classOf rounds n up to the size of a class. There are four classes between two powers of two, so that at most a
// quarter of a buffer is unused. From 2 MiB on, the sizes are whole pages.
func classOf(n int) int {
	if n <= Alignment {
		return Alignment
	}
	step := max(1<<(bits.Len(uint(n-1))-3), Alignment)
	return (n + step - 1) &^ (step - 1)
}

// Get returns a buffer of n bytes. Its contents are undefined.
func (p *Pool) Get(n int) (*Buffer, error) {
	if n < 0 || n > 1<<46 {
		return nil, fmt.Errorf("%w: %d bytes were asked for", ErrNoMemory, n)
	}
	size := classOf(n)
	p.mu.Lock()
	var b *Buffer
	if p.source != nil {
		size = p.Align(max(n, 1))
	} else {
		b = p.find(size).take()
	}
	p.live += size
	p.requested += n
	p.buffers++
	if b != nil {
		p.idle -= size
		p.mu.Unlock()
		unpoison(b.data, size)
		b.size = n
		b.refs.Store(1)
		return b, nil
	}
	p.peak = max(p.peak, p.live)
	old := p.shrink(p.peak - p.live)
	if b = p.spares; b != nil {
		p.spares, b.next = b.next, nil
	}
	p.mu.Unlock()
	p.discard(old)

	if b == nil {
		b = &Buffer{pool: p, pinned: p.source != nil}
	}
	var data unsafe.Pointer
	var err error
	if p.source != nil {
		data, err = p.source.Allocate(size)
	} else {
		data, err = allocate(size)
	}
	if err != nil {
		p.mu.Lock()
		p.live -= size
		p.requested -= n
		p.buffers--
		b.next, p.spares = p.spares, b
		p.mu.Unlock()
		return nil, err
	}
	b.data, b.class, b.size = data, size, n
	b.refs.Store(1)
	return b, nil
}

// Resize replaces b with a buffer of n bytes that has b's first kept bytes. The caller must hold the only reference to
// b. Large buffers outside a Source are resized by moving pages, without a copy. After an error b is unchanged.
func (p *Pool) Resize(b *Buffer, n, kept int) (*Buffer, error) {
	if n < kept || n > 1<<46 {
		return nil, fmt.Errorf("%w: %d bytes were asked for, to keep %d", ErrNoMemory, n, kept)
	}
	size := classOf(n)
	if p.source == nil && size == b.class {
		p.mu.Lock()
		p.requested += n - b.size
		p.mu.Unlock()
		b.size = n
		return b, nil
	}
	if movesPages := p.source == nil && min(size, b.class) >= C.PFM_HUGE; movesPages {
		if data := C.pfm_resize(b.data, C.size_t(b.class), C.size_t(size)); data != nil {
			p.mu.Lock()
			p.live += size - b.class
			p.peak = max(p.peak, p.live)
			p.requested += n - b.size
			p.mu.Unlock()
			b.data, b.class, b.size = data, size, n
			return b, nil
		}
	}
	out, err := p.Get(n)
	if err != nil {
		return nil, err
	}
	for at := 0; at < kept; { // in pieces, so that Go's scheduler can interrupt between them
		at += copy(out.Bytes()[at:min(kept, at+1<<20)], b.Bytes()[at:])
	}
	b.Release()
	return out, nil
}

func (p *Pool) takeBack(b *Buffer) {
	if p.source != nil {
		p.source.Free(b.data, b.class)
		b.data = nil
		p.mu.Lock()
		p.live -= b.class
		p.requested -= b.size
		p.buffers--
		b.class, b.next, p.spares = 0, p.spares, b
		over := p.closed && p.buffers == 0
		p.mu.Unlock()
		if over {
			p.unregister()
		}
		return
	}
	poison(b.data, b.class)
	p.mu.Lock()
	p.live -= b.class
	p.idle += b.class
	p.requested -= b.size
	p.buffers--
	c := p.find(b.class)
	b.next, c.free = c.free, b
	limit := p.peak - p.live
	if p.closed || p.unpooled {
		limit = 0
	}
	old := p.shrink(limit)
	over := p.closed && p.buffers == 0
	p.mu.Unlock()
	p.discard(old)
	if over {
		p.unregister()
	}
}

// unregister removes a closed Pool without buffers from the pools that are counted.
func (p *Pool) unregister() {
	pools.mu.Lock()
	_, there := pools.all[p]
	delete(pools.all, p)
	pools.mu.Unlock()
	if there && p.source != nil {
		p.source.Close()
	}
}

// Close frees the idle buffers. Buffers released later are freed too.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	old := p.shrink(0)
	over := p.buffers == 0
	p.mu.Unlock()
	p.discard(old)
	p.dropMappings()
	if over {
		p.unregister()
	}
}

// Trim returns idle buffers to the system and resets the peak to the memory now in use.
func (p *Pool) Trim() {
	p.mu.Lock()
	p.peak = p.live
	old := p.shrink(0)
	p.mu.Unlock()
	p.discard(old)
	p.dropMappings()
}

// find returns the class of the given size and makes it if needed. There are so few classes that a scan is faster than
// a map.
func (p *Pool) find(size int) *class {
	at := len(p.classes)
	for i := range p.classes {
		if p.classes[i].size == size {
			return &p.classes[i]
		}
		if p.classes[i].size > size {
			at = i
			break
		}
	}
	p.classes = append(p.classes, class{})
	copy(p.classes[at+1:], p.classes[at:])
	p.classes[at] = class{size: size}
	return &p.classes[at]
}

// take returns the buffer released last, which is the most likely to be in the CPU cache; nil if there is none.
func (c *class) take() *Buffer {
	b := c.free
	if b != nil {
		c.free, b.next = b.next, nil
	}
	return b
}

// shrink removes idle buffers, the largest first, until at most limit bytes are idle. It returns them as a list.
func (p *Pool) shrink(limit int) (old *Buffer) {
	for i := len(p.classes) - 1; i >= 0 && p.idle > limit; i-- {
		for p.idle > limit {
			b := p.classes[i].take()
			if b == nil {
				break
			}
			p.idle -= b.class
			b.next, old = old, b
		}
	}
	return old
}

// discard returns memory to the system. The caller must not hold the lock, because that can take long.
func (p *Pool) discard(old *Buffer) {
	for old != nil {
		b := old
		old = b.next
		free(b.data, b.class)
		b.data, b.class = nil, 0
		p.mu.Lock()
		b.next, p.spares = p.spares, b
		p.mu.Unlock()
	}
}
