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
)

// WindowSize is how much of a mapped file is let go of at a time, in bytes: small enough to be in the
// cache still when a batch copies what a reader has checked, large enough for its system call not to count.
const WindowSize = 1 << 20

// ErrTooManyMappings says that so many files are mapped that one more could not be guarded: read it instead.
var ErrTooManyMappings = errors.New("too many mapped files")

// A Mapping is a file mapped for reading. Its memory is handed out in windows, Buffers, each of which
// gives its pages back with its last Release, unless they are kept, and keeps the Mapping until then. The file may
// shrink or go at any time, or a page may not be readable: what is then missing reads as zeros, in any thread, and Torn
// says so.
type Mapping struct {
	name   string // of the file
	data   []byte
	guard  *C.pfm_mapping
	refs   atomic.Int32
	window *Buffer // the one handed out last
	of     *window
	number int // of it

	pool      *Pool // that keeps it for who maps the file again; nil: none
	file      identity
	kept      int // bytes, from the first on, whose pages stay
	handedOut int // how far windows were handed out
	before    int // the same, when it was mapped before

	written   atomic.Bool               // it is torn because it was written to
	readError atomic.Pointer[readError] // nil: that was not the reason, or is not known yet
}

// readError is why a page could not be read.
type readError struct {
	number syscall.Errno
	passed bool // it can be read by now
}

// identity is a file as it was.
type identity struct {
	device, number uint64
	size           int64
	written        syscall.Timespec
	changed        syscall.Timespec
}

func identityOf(s *syscall.Stat_t) identity { return identity{s.Dev, s.Ino, s.Size, s.Mtim, s.Ctim} }

// What is kept of all files. To map a page anew in each pass takes half as long as to copy what is in it. But they count
// as the process's memory, though the system can have them back at any time, and as places in the handler's table.
const (
	mostKept      = 256 << 20 // bytes
	mostKeptFiles = 1024
)

var kept struct {
	mu           sync.Mutex
	bytes, files int
}

// Map maps size bytes of a file, more than 0, from its beginning. The descriptor may be closed afterwards. A file that
// was mapped before, and has not changed since, may have been kept.
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
			m.before = m.handedOut
			m.refs.Store(1)
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
		m.reserve()
	}
	return m, nil
}

// reserve has as many of the pages stay as there is room for.
func (m *Mapping) reserve() {
	kept.mu.Lock()
	defer kept.mu.Unlock()
	n := min(len(m.data), mostKept-kept.bytes)
	if n < len(m.data) {
		n -= n % WindowSize
	}
	if n > 0 && kept.files < mostKeptFiles {
		m.kept = n
		kept.bytes += n
		kept.files++
	}
}

// keep takes a Mapping that nobody uses any more. false: it is not wanted.
func (p *Pool) keep(m *Mapping) bool {
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

// dropMappings lets go of those that are kept.
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
		return nil, ErrTooManyMappings
	}
	C.pfm_guard()
	_ = syscall.Madvise(data, syscall.MADV_SEQUENTIAL) // advice
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

// mappings is all Mappings there are.
var mappings struct {
	mu     sync.Mutex // none is unmapped while it is held
	all    map[*Mapping]struct{}
	torn   []*Mapping // those of them that were, after so many faults
	faults uint32
}

// RearmFaults counts the parts of mapped files that were found missing: what is copied between two equal counts is whole. Where
// files were found to be shorter already, what is missing of them is found missing again from here on.
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

// FaultCount is what RearmFaults answered, to compare with.
func FaultCount() uint32 { return atomic.LoadUint32((*uint32)(&C.pfm_faults)) }

// AnyTorn says whether any mapped file is torn.
func AnyTorn() bool { return atomic.LoadUint32((*uint32)(&C.pfm_torn)) != 0 }

// tornMappings is the Mappings that are torn. The caller has the lock.
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

// A Tear is why what was read of a mapped file may not be what was in it.
type Tear struct {
	File    string
	Written bool          // it was written to
	Refused syscall.Errno // why a page of it could not be read; if it is 0 and Written is false, the file became shorter
	Passed  bool          // that page can be read by now
	From    int64         // where the first page that was missing begins
}

func (t *Tear) String() string {
	switch {
	case t.Written:
		return "the file was written to before this was read"
	case t.Refused != 0:
		return "read: " + t.Refused.Error()
	}
	return "the file shrank before this was read"
}

// TornAt is the Tear of the mapped file that so many bytes from p on lie in; nil: they lie in none that is torn. The
// caller MUST hold them. While no file is torn, it is quick.
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

// TornAt is Torn for so many bytes from p on, of which some lie in the mapping: what lies before a page that cannot be read
// is as it was.
func (m *Mapping) TornAt(p unsafe.Pointer, size int) *Tear {
	t := m.Torn()
	if t != nil && t.Refused != 0 && int64(uintptr(p)-uintptr(unsafe.Pointer(unsafe.SliceData(m.data))))+int64(size) <= t.From {
		return nil
	}
	return t
}

var pageSize = int64(syscall.Getpagesize())

// Bytes is the whole file, as long as the Mapping or one of its windows is held. What a reader keeps, it
// keeps by a window.
func (m *Mapping) Bytes() []byte { return m.data }

// IsTorn says whether not all of the file may be as it was when it was mapped. Any thread.
func (m *Mapping) IsTorn() bool { return atomic.LoadUint32((*uint32)(&m.guard.torn)) != 0 }

// Torn is why not all of the file may be as it was when it was mapped; nil: it is, as far as is known. Any thread.
func (m *Mapping) Torn() *Tear {
	if !m.IsTorn() {
		return nil
	}
	t := &Tear{File: m.name, Written: m.written.Load(), From: int64(atomic.LoadUint64((*uint64)(&m.guard.from)))}
	if !t.Written && t.From < int64(len(m.data)) {
		if m.readError.Load() == nil {
			m.diagnoseByName(t.From)
		}
		if r := m.readError.Load(); r != nil {
			t.Refused, t.Passed = r.number, r.passed
		}
	}
	return t
}

// TornOf is Torn for the owner of a descriptor of the file.
func (m *Mapping) TornOf(fd int) *Tear {
	if m.IsTorn() && !m.written.Load() && m.readError.Load() == nil {
		m.diagnose(fd, int64(atomic.LoadUint64((*uint64)(&m.guard.from))))
	}
	return m.Torn()
}

// diagnose finds out why a page was not there, although the file is as it was when it was mapped. If it is not, it shrank. A
// page fault does not tell: the file is asked.
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

// Tear makes the file one that was written to: what is held of it is not to be trusted.
func (m *Mapping) Tear() {
	m.written.Store(true)
	if atomic.SwapUint32((*uint32)(&m.guard.torn), 1) == 0 {
		atomic.AddUint32((*uint32)(&C.pfm_torn), 1)
	}
	atomic.AddUint32((*uint32)(&C.pfm_faults), 1)
}

// Window is the Buffer for data that begins at an offset, with n references for the caller. It is
// called by one reader at a time.
func (m *Mapping) Window(at int64, n int) *Buffer {
	number := int(at / WindowSize)
	if m.number != number {
		next := number == m.number+1
		from := number * WindowSize
		if m.window != nil && number > m.number { // whose data may have gone on behind its end
			m.of.data = m.data[m.number*WindowSize : from]
		}
		m.dropWindow()
		end := min(from+WindowSize, len(m.data))
		w := &window{m, m.data[from:end], end <= m.kept}
		m.handedOut = max(m.handedOut, end)
		m.refs.Add(1)
		m.of, m.window, m.number = w, &Buffer{size: len(w.data), owner: w, mapped: m}, number
		m.window.refs.Store(1)
		mappedWindows.Add(1)
		// Somebody else's handler may have come before ours since.
		C.pfm_guard()
		m.readAhead(from, next)
	}
	m.window.Retain(n)
	return m.window
}

// readAhead asks the system for what is four windows ahead: for all that lies between, where that was not asked
// for before. To ask costs something even if it is there already, as what was kept mostly is.
func (m *Mapping) readAhead(from int, requested bool) {
	begin, end := from+WindowSize, min(from+5*WindowSize, len(m.data))
	if requested {
		begin = from + 4*WindowSize
	}
	begin = max(begin, min(m.before, m.kept))
	if begin < end {
		_ = syscall.Madvise(m.data[begin:end], syscall.MADV_WILLNEED)
	}
}

func (m *Mapping) dropWindow() {
	if m.window != nil {
		m.window.Release()
		m.of, m.window, m.number = nil, nil, -1
	}
}

// Close gives up the reader's hold. The windows that are still held stay as they are.
func (m *Mapping) Close() {
	m.dropWindow()
	m.drop()
}

func (m *Mapping) drop() {
	if m.refs.Add(-1) > 0 || m.kept > 0 && !m.IsTorn() && m.pool.keep(m) {
		return
	}
	m.unmap()
}

func (m *Mapping) unmap() {
	if m.kept > 0 {
		kept.mu.Lock()
		kept.bytes -= m.kept
		kept.files--
		kept.mu.Unlock()
	}
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
	of   *Mapping
	data []byte
	kept bool
}

// Reclaim lets the system have the pages that are not kept.
func (w *window) Reclaim() {
	mappedWindows.Add(-1)
	if !w.kept {
		_ = syscall.Madvise(w.data, syscall.MADV_DONTNEED)
	}
	w.of.drop()
}

var mappedBytes, mappedWindows atomic.Int64
