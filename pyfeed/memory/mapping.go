package memory

// #include <stdlib.h>
// #include "mapping.h"
import "C"

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/internal/fence"
)

// WindowSize is the unit in which pages of a mapped file are released, in bytes. It is small enough that data a reader
// has checked is still in the CPU cache when a batch copies it, and large enough to make the cost of the system call
// negligible.
const WindowSize = 1 << 20

// errTooManyMappings is returned when the fault handler's table of mappings is full. The caller reads the file instead.
var errTooManyMappings = errors.New("too many mapped files")

// A Mapping is a file mapped for reading. Its memory is used through windows: Buffers of WindowSize bytes, each of
// which holds a reference to the Mapping. The last Release of a window returns its pages to the system, unless they are
// cached. The file may shrink or be deleted, or a page may be unreadable, at any time. The missing data then reads as
// zeros in every thread, and the Mapping becomes torn.
type Mapping struct {
	name   string // name of the file
	data   []byte
	guard  *C.pfm_mapping
	refs   atomic.Int32
	window *Buffer // the last window handed out
	of     *window
	number int // index of window

	pool        *Pool // caches the Mapping for the next Map of the file; nil: none
	file        identity
	cached      []atomic.Uint64 // a bit for each window whose pages stay mapped; set under the lock of mappingCache
	cachedBytes int             // of these windows
	isWhole     bool            // it was cached without a window: the whole file counts until it is used again

	written   atomic.Bool               // torn because the file was written to
	readError atomic.Pointer[readError] // nil: not the reason, or not known yet
}

// readError is why a page of the file could not be read.
type readError struct {
	number    syscall.Errno
	transient bool // the page was readable afterwards
}

// Limits of the mappings cached between passes, for all files of the process. Mapping a page again takes half as long
// as copying it (docs/performance.md, "Small records": 100 KB records 16.7 → 13.0 µs; "zip under a shuffle": 512 instead
// of 256 MiB). The limits exist because cached pages count as the process's memory, and each mapping uses an entry in the
// fault handler's table. They do not depend on the memory of the machine, because the system can reclaim the pages. Only
// windows that a reader has used or passed count, so readers of parts of a large file have room for all of them.
const (
	maxCachedBytes = 512 << 20 // bytes
	maxCachedFiles = 1024
)

var mappingCache struct {
	mu           sync.Mutex
	bytes, files int
}

// Map maps the first size bytes of a file; size must be positive. The descriptor may be closed afterwards. If the Pool
// has cached a mapping of the file, and the file has not changed, Map reuses it.
func (p *Pool) Map(name string, fd int, size int64) (*Mapping, error) {
	var s syscall.Stat_t
	if err := syscall.Fstat(fd, &s); err != nil {
		return nil, err
	}
	file := identityOf(&s)
	p.mu.Lock()
	m := p.mappings[name]
	delete(p.mappings, name)
	p.mu.Unlock()
	if m != nil {
		if m.file == file && int64(len(m.data)) == size && !m.IsTorn() {
			m.refs.Store(1)
			if m.isWhole {
				m.uncache()
			}
			return m, nil
		}
		m.unmap()
	}
	m, err := newMapping(fd, size)
	if err != nil {
		return nil, err
	}
	m.name, m.file = name, file
	if !p.unpooled {
		m.pool = p
		m.cached = make([]atomic.Uint64, (len(m.data)+64*WindowSize-1)/(64*WindowSize))
	}
	return m, nil
}

// isCached reports whether the pages of a window stay mapped.
func (m *Mapping) isCached(number int) bool {
	return m.cached != nil && m.cached[number/64].Load()&(1<<(number%64)) != 0
}

// cache makes the pages of windows stay mapped, from a number on, as far as the limits permit.
func (m *Mapping) cache(number int, data []byte) {
	for len(data) > 0 && m.isCached(number) {
		number, data = number+1, data[min(WindowSize, len(data)):]
	}
	if m.pool == nil || len(data) == 0 {
		return
	}
	mappingCache.mu.Lock()
	defer mappingCache.mu.Unlock()
	for at := 0; at < len(data); at += WindowSize {
		n, i := min(WindowSize, len(data)-at), number+at/WindowSize
		switch {
		case m.isCached(i):
			continue
		case mappingCache.bytes+n > maxCachedBytes || m.cachedBytes == 0 && mappingCache.files >= maxCachedFiles:
			return
		case m.cachedBytes == 0:
			mappingCache.files++
		}
		mappingCache.bytes += n
		m.cachedBytes += n
		m.cached[i/64].Or(1 << (i % 64))
	}
}

// uncache is the opposite of cache, for all windows. No window is in use.
func (m *Mapping) uncache() {
	if m.cachedBytes == 0 {
		return
	}
	mappingCache.mu.Lock()
	defer mappingCache.mu.Unlock()
	mappingCache.bytes -= m.cachedBytes
	mappingCache.files--
	m.cachedBytes, m.isWhole = 0, false
	for i := range m.cached {
		m.cached[i].Store(0)
	}
}

// cacheMapping caches a Mapping that is no longer used. It returns false if it cannot.
func (p *Pool) cacheMapping(m *Mapping) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mappings[m.name] != nil {
		return false
	}
	if p.mappings == nil {
		p.mappings = make(map[string]*Mapping)
	}
	p.mappings[m.name] = m
	return true
}

// dropMappings unmaps the cached mappings.
func (p *Pool) dropMappings() {
	p.mu.Lock()
	all := p.mappings
	p.mappings = nil
	p.mu.Unlock()
	for _, m := range all {
		m.unmap()
	}
}

func newMapping(fd int, size int64) (*Mapping, error) {
	if size <= 0 || size > 1<<46 {
		return nil, syscall.EINVAL
	}
	data, err := syscall.Mmap(fd, 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	guard := (*C.pfm_mapping)(C.calloc(1, C.sizeof_pfm_mapping))
	guard.begin = (*C.uint8_t)(unsafe.SliceData(data))
	guard.size = C.uint64_t((size + pageSize - 1) &^ (pageSize - 1))
	guard.from = guard.size
	if C.pfm_watch(guard) == 0 {
		C.free(unsafe.Pointer(guard))
		_ = syscall.Munmap(data)
		return nil, errTooManyMappings
	}
	C.pfm_guard()
	_ = unix.Madvise(data, unix.MADV_SEQUENTIAL) // the error is ignored: it is only advice
	m := &Mapping{data: data, guard: guard, number: -1}
	m.refs.Store(1)
	mappedBytes.Add(size)
	mappings.mu.Lock()
	if mappings.all == nil {
		mappings.all = make(map[*Mapping]struct{})
	}
	mappings.all[m] = struct{}{}
	mappings.mu.Unlock()
	return m, nil
}

// mappings are all Mappings of the process.
var mappings struct {
	mu     sync.Mutex // no Mapping is unmapped while it is held
	all    map[*Mapping]struct{}
	torn   []*Mapping // the torn ones among them, as of the value of FaultCount in faults
	faults uint32
}

// RearmFaults returns the number of faults in mapped files so far. A copy between two equal counts is complete. It also
// makes the zeros of files that are torn already raise faults again, so that they are counted.
func RearmFaults() uint32 {
	if AnyTorn() {
		mappings.mu.Lock()
		for _, m := range tornMappings() {
			C.pfm_rearm(m.guard)
		}
		mappings.mu.Unlock()
	}
	return FaultCount()
}

// FaultCount returns the current number of faults, to compare with the result of RearmFaults.
func FaultCount() uint32 { return atomic.LoadUint32((*uint32)(&C.pfm_faults)) }

// AnyTorn reports whether any mapped file is torn. If it returns false, all data that the caller has read from mapped
// files is what was in them.
func AnyTorn() bool {
	fence.Loads()
	return atomic.LoadUint32((*uint32)(&C.pfm_torn)) != 0
}

// tornMappings returns the torn Mappings. The lock is held.
func tornMappings() []*Mapping {
	if faults := FaultCount(); faults != mappings.faults {
		mappings.torn, mappings.faults = nil, faults
		for m := range mappings.all {
			if m.IsTorn() {
				mappings.torn = append(mappings.torn, m)
			}
		}
	}
	return mappings.torn
}

// A Tear is the reason why data read from a mapped file may differ from what was in it.
type Tear struct {
	File      string
	Written   bool          // the file was written to
	ReadError syscall.Errno // why a page could not be read; if it is 0 and Written is false, the file has shrunk
	Transient bool          // the page was readable afterwards
	Offset    int64         // offset of the first missing page
}

func (t *Tear) String() string {
	switch {
	case t.Written:
		return "the file was written to before this was read"
	case t.ReadError != 0:
		return "read: " + t.ReadError.Error()
	}
	return "the file shrank before this was read"
}

// TornAt returns the Tear of the mapped file that contains any of the size bytes at p; nil if they are in no torn file.
// The caller MUST hold a reference to the memory. The call is cheap while no file is torn.
func TornAt(p unsafe.Pointer, size int) *Tear {
	if !AnyTorn() || size == 0 {
		return nil
	}
	if m := tornAt(p, size); m != nil {
		return m.TornAt(p, size)
	}
	return nil
}

func tornAt(p unsafe.Pointer, size int) *Mapping {
	mappings.mu.Lock()
	defer mappings.mu.Unlock()
	at := uintptr(p)
	for _, m := range tornMappings() {
		begin := uintptr(unsafe.Pointer(unsafe.SliceData(m.data)))
		if at < begin+uintptr(len(m.data)) && at+uintptr(size) > begin {
			return m
		}
	}
	return nil
}

// TornAt returns the Tear for the size bytes at p, some of which are in the mapping. It returns nil if they end before
// the page that could not be read, because data before that page is intact.
func (m *Mapping) TornAt(p unsafe.Pointer, size int) *Tear {
	t := m.torn()
	if t != nil && t.ReadError != 0 && int64(uintptr(p)-uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))+int64(size) <= t.Offset {
		return nil
	}
	return t
}

var pageSize = int64(syscall.Getpagesize())

// Bytes returns the whole file. It is valid while the Mapping or one of its windows is held. A reader that keeps data
// holds the window of that data.
func (m *Mapping) Bytes() []byte { return m.data }

// IsTorn reports whether the file is known to differ from when it was mapped. If it returns false, all data that the
// caller has read from the mapping is what was in the file. Safe for concurrent use.
func (m *Mapping) IsTorn() bool {
	fence.Loads() // the fault handler first sets torn and then maps zeros
	return atomic.LoadUint32((*uint32)(&m.guard.torn)) != 0
}

// torn returns how the file differs from when it was mapped; nil if no difference is known. Safe for concurrent use.
func (m *Mapping) torn() *Tear {
	if !m.IsTorn() {
		return nil
	}
	t := &Tear{File: m.name, Written: m.written.Load(), Offset: int64(atomic.LoadUint64((*uint64)(&m.guard.from)))}
	if !t.Written && t.Offset < int64(len(m.data)) {
		if m.readError.Load() == nil {
			m.diagnoseByName(t.Offset)
		}
		if r := m.readError.Load(); r != nil {
			t.ReadError, t.Transient = r.number, r.transient
		}
	}
	return t
}

// TornOf is torn for a caller that has a descriptor of the file.
func (m *Mapping) TornOf(fd int) *Tear {
	if m.IsTorn() && !m.written.Load() && m.readError.Load() == nil {
		m.diagnose(fd, int64(atomic.LoadUint64((*uint64)(&m.guard.from))))
	}
	return m.torn()
}

// diagnose finds out why a page was missing. If the file has changed since it was mapped, it has shrunk, and readError
// stays nil. Otherwise diagnose reads the page to get the error, because a page fault does not tell the reason.
func (m *Mapping) diagnose(fd int, from int64) {
	var s syscall.Stat_t
	err := syscall.Fstat(fd, &s)
	if err == nil && identityOf(&s) != m.file {
		return
	}
	for again := true; again; again = err == syscall.EINTR {
		if err == nil || err == syscall.EINTR {
			_, err = syscall.Pread(fd, make([]byte, 1), from)
		}
	}
	number, is := err.(syscall.Errno)
	if !is {
		number = syscall.EIO
	}
	m.readError.Store(&readError{number, !is})
}

func (m *Mapping) diagnoseByName(from int64) {
	fd, err := syscall.Open(m.name, syscall.O_RDONLY|syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	switch err {
	case nil:
		m.diagnose(fd, from)
		_ = syscall.Close(fd)
	case syscall.EIO, syscall.ESTALE:
		m.readError.Store(&readError{number: err.(syscall.Errno)})
	}
}

// Tear marks the file as written to: data already read from it is not reliable.
func (m *Mapping) Tear() {
	m.written.Store(true)
	atomic.AddUint32((*uint32)(&C.pfm_torn), 1) // before the mark, as in the fault handler
	if atomic.SwapUint32((*uint32)(&m.guard.torn), 1) != 0 {
		atomic.AddUint32((*uint32)(&C.pfm_torn), ^uint32(0))
	}
	atomic.AddUint32((*uint32)(&C.pfm_faults), 1)
}

// Window returns the Buffer for data that begins at offset at, with n references for the caller. Only one reader may
// call it at a time.
func (m *Mapping) Window(at int64, n int) *Buffer {
	number := int(at / WindowSize)
	if m.number != number {
		next := number == m.number+1
		from := number * WindowSize
		if m.window != nil && number > m.number { // data of the last window may extend into this one
			m.of.data = m.data[m.number*WindowSize : from]
		}
		m.dropWindow()
		end := min(from+WindowSize, len(m.data))
		w := &window{m, number, m.data[from:end]}
		m.refs.Add(1)
		m.of, m.window, m.number = w, &Buffer{size: len(w.data), owner: w, mapped: m}, number
		m.window.refs.Store(1)
		mappedWindows.Add(1)
		// Another library may have replaced our signal handler since.
		C.pfm_guard()
		m.readAhead(from, next)
	}
	m.window.Retain(n)
	return m.window
}

// readAhead asks the system to read the next four windows, or only the fourth if the earlier ones were requested
// before. Cached pages are not requested, because a request costs time even for pages in memory.
func (m *Mapping) readAhead(from int, requested bool) {
	begin, end := from+WindowSize, min(from+5*WindowSize, len(m.data))
	if requested {
		begin = from + 4*WindowSize
	}
	for begin < end && m.isCached(begin/WindowSize) {
		begin += WindowSize
	}
	if begin < end {
		_ = unix.Madvise(m.data[begin:end], unix.MADV_WILLNEED)
	}
}

func (m *Mapping) dropWindow() {
	if m.window != nil {
		m.window.Release()
		m.of, m.window, m.number = nil, nil, -1
	}
}

// Close releases the reader's reference. Windows that are still held stay valid.
func (m *Mapping) Close() {
	m.dropWindow()
	m.drop()
}

func (m *Mapping) drop() {
	if m.refs.Add(-1) > 0 {
		return
	}
	if m.cachedBytes == 0 { // it was used without windows, such as by a decoder
		m.cache(0, m.data[:min(len(m.data), maxCachedBytes)])
		m.isWhole = true
	}
	if m.cachedBytes == 0 || m.IsTorn() || !m.pool.cacheMapping(m) {
		m.unmap()
	}
}

func (m *Mapping) unmap() {
	m.uncache()
	mappings.mu.Lock()
	delete(mappings.all, m)
	if m.IsTorn() {
		mappings.torn = slices.DeleteFunc(mappings.torn, func(other *Mapping) bool { return other == m })
		atomic.AddUint32((*uint32)(&C.pfm_torn), ^uint32(0))
	}
	C.pfm_forget(m.guard)
	mappings.mu.Unlock()
	mappedBytes.Add(-int64(len(m.data)))
	_ = syscall.Munmap(m.data)
	C.free(unsafe.Pointer(m.guard))
}

type window struct {
	mapping *Mapping
	number  int
	data    []byte // of this window, and of those up to the next one: its last record may extend into them
}

// Reclaim returns the pages of the window to the system, unless they are cached. It examines maxCachedBytes at most,
// because the reader may have jumped far.
func (w *window) Reclaim() {
	mappedWindows.Add(-1)
	near := w.data[:min(len(w.data), maxCachedBytes)]
	w.mapping.cache(w.number, near)
	begin := 0 // of pages that are not cached
	for at := 0; at < len(near); at += WindowSize {
		if w.mapping.isCached(w.number + at/WindowSize) {
			returnPages(w.data[begin:at])
			begin = min(at+WindowSize, len(w.data))
		}
	}
	returnPages(w.data[begin:])
	w.mapping.drop()
}

func returnPages(data []byte) {
	if len(data) > 0 {
		_ = unix.Madvise(data, unix.MADV_DONTNEED)
	}
}

var mappedBytes, mappedWindows atomic.Int64
