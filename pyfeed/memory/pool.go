package memory

// #include "memory.h"
import "C"

import (
	"fmt"
	"math/bits"
	"sync"
	"unsafe"
)

// A Pool hands out buffers and keeps those that come back for the next to ask.
//
// What it holds, in use and idle together, never exceeds the most that was in use at one time: an
// idle buffer of another size goes back to the system before that would happen. Buffers may outlive
// the Pool's Close.
type Pool struct {
	// What each Get and Release changes lies in one cache line, which goes to and fro between the threads that do them.
	mu        sync.Mutex
	classes   []class // by rising size
	live      int     // bytes in use, in whole classes, as idle and peak
	idle      int
	requested int // bytes in use, as they were asked for
	buffers   int // in use

	peak     int // the most that live has been
	closed   bool
	unpooled bool // what comes back is freed, not kept
	purpose  Purpose
	source   Source
	spares   *Buffer // Buffers without memory, to save Go's allocator the trouble

	mappings map[string]*Mapping // of files that nobody reads now, by name

	_ [16]byte // up to a size of which Go's allocator has each at the beginning of a line
}

// Pools that are open or have buffers in use. Counting is theirs, so that it costs a Get nothing.
var pools struct {
	mu  sync.Mutex
	all map[*Pool]struct{}
}

// NewPool makes a Pool whose buffers are counted for a purpose.
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

// NewUnpooled makes a Pool that keeps nothing: for memory that is seldom asked for, but counted.
func NewUnpooled(purpose Purpose) *Pool {
	p := NewPool(purpose)
	p.unpooled = true
	return p
}

// A Source has memory that is not the system's ordinary kind. Any thread.
type Source interface {
	// Allocate gives n bytes, a multiple of SourceAlignment, and aligned to it.
	Allocate(n int) (unsafe.Pointer, error)
	Free(p unsafe.Pointer, n int)
	// Close comes when all is freed and nothing more will be asked for.
	Close()
}

// SourceAlignment is that of the fields of tuples in a Source's memory, in bytes: a device's.
const SourceAlignment = 256

// NewPinnedPool makes a Pool of pinned memory. What comes back is the source's to keep.
func NewPinnedPool(source Source, purpose Purpose) *Pool {
	p := NewUnpooled(purpose)
	p.source = source
	return p
}

// Align rounds n up to a multiple of what fields in the Pool's buffers are aligned to.
func (p *Pool) Align(n int) int {
	if p.source != nil {
		return (n + SourceAlignment - 1) &^ (SourceAlignment - 1)
	}
	return Align(n)
}

// Pinned says whether devices copy from the Pool's buffers by themselves.
func (p *Pool) Pinned() bool { return p.source != nil }

// Stats is what all pools hold.
type Stats struct {
	Live    [numPurposes]int64 // bytes in use, by purpose
	Buffers int64              // in use
	Idle    int64              // bytes kept for the next buffers
	Slabs   [numSlabs]int64    // bytes, by kind
}

// Count looks at all pools.
func Count() (s Stats) {
	pools.mu.Lock()
	defer pools.mu.Unlock()
	for p := range pools.all {
		p.mu.Lock()
		s.Live[p.purpose] += int64(p.requested)
		s.Buffers += int64(p.buffers)
		if p.purpose != View { // which is kept for good, and small
			s.Idle += int64(p.idle)
		}
		p.mu.Unlock()
	}
	bytes, buffers := returned.bytes.Load(), returned.buffers.Load() // first, or what comes and goes meanwhile would count as less than none
	s.Live[Lent] += lent.bytes.Load() - bytes
	s.Live[Mapped] += mappedBytes.Load()
	s.Buffers += lent.buffers.Load() - buffers + mappedWindows.Load()
	for i := range slabBytes {
		s.Slabs[i] = slabBytes[i].Load()
	}
	return s
}

// From so many bytes on, a buffer is worth asking which processor this is: to write one that another has in its cache
// takes twice as long. So many are looked at.
const affinityBytes, affinityDepth = 64 << 10, 8

type class struct {
	size int
	free *Buffer
}

// classOf rounds up to one of four steps between two powers of two, so that at most a quarter is
// wasted; from 2 MiB on these are whole pages too.
func classOf(n int) int {
	if n <= Alignment {
		return Alignment
	}
	step := max(1<<(bits.Len(uint(n-1))-3), Alignment)
	return (n + step - 1) &^ (step - 1)
}

// Get hands out a buffer of n bytes with whatever its last user left in it.
func (p *Pool) Get(n int) (*Buffer, error) {
	if n < 0 || n > 1<<46 {
		return nil, fmt.Errorf("%w: %d bytes were asked for", ErrNoMemory, n)
	}
	size := classOf(n)
	var processor int32
	if size >= affinityBytes && p.source == nil {
		processor = int32(C.pfm_processor()) + 1
	}
	p.mu.Lock()
	var b *Buffer
	if p.source != nil {
		size = p.Align(max(n, 1))
	} else {
		b = p.find(size).take(processor)
	}
	p.live += size
	p.requested += n
	p.buffers++
	if b != nil {
		p.idle -= size
		p.mu.Unlock()
		unpoison(b.data, size)
		b.size, b.processor = n, processor
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
	b.data, b.class, b.size, b.processor = data, size, n, processor
	b.refs.Store(1)
	return b, nil
}

// Resize answers a buffer of n bytes in place of b, of which the caller has the only reference, with its first kept bytes. Large
// memory of the host's own is not copied: its pages move. After an error b is as it was.
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
	if p.source == nil && min(size, b.class) >= C.PFM_HUGE {
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
	for at := 0; at < kept; { // in pieces, between which Go's scheduler gets in
		at += copy(out.Bytes()[at:min(kept, at+1<<20)], b.Bytes()[at:])
	}
	b.Release()
	return out, nil
}

func (p *Pool) put(b *Buffer) {
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
			p.forget()
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
		p.forget()
	}
}

// forget takes a closed Pool without buffers out of the count.
func (p *Pool) forget() {
	pools.mu.Lock()
	_, there := pools.all[p]
	delete(pools.all, p)
	pools.mu.Unlock()
	if there && p.source != nil {
		p.source.Close()
	}
}

// Close frees what is idle, and from now on all that comes back.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	old := p.shrink(0)
	over := p.buffers == 0
	p.mu.Unlock()
	p.discard(old)
	p.dropMappings()
	if over {
		p.forget()
	}
}

// Trim gives what is idle back to the system, and forgets how much was in use before.
func (p *Pool) Trim() {
	p.mu.Lock()
	p.peak = p.live
	old := p.shrink(0)
	p.mu.Unlock()
	p.discard(old)
	p.dropMappings()
}

// find is the class of that size, made if there is none. There are few: a scan beats a map.
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

// take takes the buffer that came back last out, or, if the processor is known, the last that was written on it and may
// still be in its cache. If none of the latest was, it is the oldest of them, the least likely to be missed elsewhere.
func (c *class) take(processor int32) *Buffer {
	at := &c.free
	if *at == nil {
		return nil
	}
	for i := 0; processor != 0 && i < affinityDepth-1 && (*at).processor != processor && (*at).next != nil; i++ {
		at = &(*at).next
	}
	b := *at
	*at, b.next = b.next, nil
	return b
}

// shrink takes buffers out, the largest first, until at most limit bytes are idle.
func (p *Pool) shrink(limit int) (old *Buffer) {
	for i := len(p.classes) - 1; i >= 0 && p.idle > limit; i-- {
		for p.idle > limit {
			b := p.classes[i].take(0)
			if b == nil {
				break
			}
			p.idle -= b.class
			b.next, old = old, b
		}
	}
	return old
}

// discard gives memory back to the system, which can take long: no lock is held.
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
