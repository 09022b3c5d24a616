package memory

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func mapped(t *testing.T, data []byte) (*Mapping, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := newMapping(int(f.Fd()), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return m, name
}

func TestMappingIsCountedUntilItsLastWindowGoes(t *testing.T) {
	before := Count()
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*WindowSize/16)
	m, name := mapped(t, data)
	if !bytes.Equal(m.Bytes(), data) {
		t.Fatal("the mapping differs from the file")
	}
	first, third := m.Window(10, 2), m.Window(2*WindowSize, 1)
	again := m.Window(5, 1) // before the last window: makes a new window
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	m.Close()
	if s := Count(); s.Live[Mapped]-before.Live[Mapped] != int64(len(data)) || s.Buffers-before.Buffers != 3 {
		t.Errorf("found %+v", s)
	}
	for _, b := range []*Buffer{first, third, first} {
		b.Release()
	}
	if !bytes.Equal(m.Bytes()[:100], data[:100]) { // released pages are read again from the file
		t.Error("the mapping differs from the file")
	}
	again.Release()
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// The missing part of a file that has shrunk reads as zeros, and the mapping becomes torn.
func TestAShrunkMappingReadsAsZeros(t *testing.T) {
	page := int(pageSize)
	m, name := mapped(t, bytes.Repeat([]byte{7}, 20*page+100))
	defer m.Close()
	if m.Bytes()[20*page] != 7 || m.torn() != nil {
		t.Fatal("the mapping is torn before the file has shrunk")
	}
	w := m.Window(0, 1)
	defer w.Release()
	if err := os.Truncate(name, int64(3*page)); err != nil {
		t.Fatal(err)
	}
	if m.Bytes()[3*page-1] != 7 || m.torn() != nil {
		t.Error("the remaining part of the file has changed")
	}
	sum := 0
	for _, b := range m.Bytes() {
		sum += int(b)
	}
	if sum != 7*3*page {
		t.Errorf("expected a sum of %d, found %d", 7*3*page, sum)
	}
	if m.torn() == nil || w.TornAt(w.Pointer(), 1) == nil {
		t.Error("expected the mapping to be torn")
	}
}

// TornAt finds a torn mapping by an address in it, whoever holds the memory.
func TestTornAt(t *testing.T) {
	page := int(pageSize)
	whole, _ := mapped(t, bytes.Repeat([]byte{7}, 4*page))
	defer whole.Close()
	m, name := mapped(t, bytes.Repeat([]byte{7}, 4*page))
	m.name = name
	at := func(m *Mapping, offset, size int) *Tear { return TornAt(unsafe.Pointer(&m.Bytes()[offset]), size) }
	if tear := at(m, 0, page); tear != nil || AnyTorn() {
		t.Fatalf("torn before the file has shrunk: %v", tear)
	}
	if err := os.Truncate(name, int64(page)); err != nil {
		t.Fatal(err)
	}
	faults := FaultCount()
	if m.Bytes()[3*page] != 0 || FaultCount() != faults+1 {
		t.Errorf("expected 1 fault, found %d", FaultCount()-faults)
	}
	for _, offset := range []int{0, 3 * page, 4*page - 1} {
		if tear := at(m, offset, 1); tear == nil || tear.File != name || tear.String() != "the file shrank before this was read" {
			t.Errorf("byte %d: expected a Tear of a file that shrank, found %v", offset, tear)
		}
	}
	if tear := at(m, 0, 0); tear != nil {
		t.Errorf("expected no Tear for 0 bytes, found %v", tear)
	}
	if tear := at(whole, 0, page); tear != nil {
		t.Errorf("expected no Tear of another file, found %v", tear)
	}
	local := make([]byte, 10)
	if tear := TornAt(unsafe.Pointer(&local[0]), 10); tear != nil {
		t.Errorf("expected no Tear for memory outside mappings, found %v", tear)
	}
	m.Close()
	if AnyTorn() {
		t.Error("expected no Tear after the mapping was closed")
	}
}

// Each thread that reads zeros in place of lost bytes finds AnyTorn, also if another thread has marked the file just now.
func TestEveryThreadFindsAnyTorn(t *testing.T) {
	page := int(pageSize)
	for range 50 {
		m, name := mapped(t, bytes.Repeat([]byte{7}, 2*page))
		if err := os.Truncate(name, int64(page)); err != nil {
			t.Fatal(err)
		}
		var begin, end sync.WaitGroup
		begin.Add(1)
		for range 8 {
			end.Go(func() {
				begin.Wait()
				if b := m.Bytes()[page]; b != 0 || !AnyTorn() {
					t.Errorf("expected 0 and a torn file, found %d and AnyTorn() = %t", b, AnyTorn())
				}
			})
		}
		begin.Done()
		end.Wait()
		m.Close()
	}
	if AnyTorn() {
		t.Error("expected no Tear after the mappings were closed")
	}
}

// After RearmFaults, an access to a missing page counts as a fault again.
func TestFaultsAreFoundAgain(t *testing.T) {
	page := int(pageSize)
	m, name := mapped(t, bytes.Repeat([]byte{7}, 8*page))
	defer m.Close()
	if err := os.Truncate(name, int64(2*page)); err != nil {
		t.Fatal(err)
	}
	sum := func() (n int) {
		for at := 0; at < 8*page; at += page {
			n += int(m.Bytes()[at])
		}
		return n
	}
	for _, first := range []int{6, 4, 2} { // the order of the accesses makes no difference
		if m.Bytes()[first*page] != 0 {
			t.Fatalf("page %d: expected zeros", first)
		}
	}
	for range 3 {
		before := RearmFaults()
		if FaultCount() != before {
			t.Error("a fault was counted without an access")
		}
		if n := sum(); n != 2*7 {
			t.Errorf("expected a sum of %d, found %d", 2*7, n)
		}
		if FaultCount() == before {
			t.Error("zeros were read without a fault being counted")
		}
		if after := FaultCount(); sum() != 2*7 || FaultCount() != after {
			t.Error("a second fault was counted without RearmFaults")
		}
	}
}

// When a file was written to, all data read from its mapping counts as torn.
func TestTearOfAFileWrittenTo(t *testing.T) {
	m, _ := mapped(t, bytes.Repeat([]byte{7}, 100))
	defer m.Close()
	before := FaultCount()
	m.Tear()
	m.Tear()
	if tear := TornAt(unsafe.Pointer(&m.Bytes()[0]), 1); tear == nil || tear.String() != "the file was written to before this was read" {
		t.Errorf("expected a Tear of a file written to, found %v", tear)
	}
	if FaultCount() == before || m.Bytes()[0] != 7 {
		t.Error("expected one more fault, and unchanged bytes")
	}
}

// remap maps the file of that name in its present state.
func remap(t *testing.T, p *Pool, name string) *Mapping {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Map(name, int(f.Fd()), info.Size())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestMappingsAreCached(t *testing.T) {
	before := Count()
	p := NewPool(File)
	name := filepath.Join(t.TempDir(), "file")
	write := func(data []byte) {
		t.Helper()
		if err := os.WriteFile(name+".new", data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	data := bytes.Repeat([]byte("0123456789abcdef"), 3*WindowSize/16)
	write(data)

	first := remap(t, p, name)
	second := remap(t, p, name) // while the first is in use
	if first == second {
		t.Fatal("two readers share one mapping at the same time")
	}
	window := first.Window(WindowSize, 1)
	first.Close()
	if m := remap(t, p, name); m == first || m == second {
		t.Fatal("a mapping was cached while in use")
	} else {
		m.Close()
	}
	window.Release()
	second.Close() // the first one is cached already
	again := remap(t, p, name)
	if again == second {
		t.Error("expected the mapping that was closed first")
	}
	if !bytes.Equal(again.Bytes(), data) || again.torn() != nil {
		t.Error("the mapping differs from the file")
	}
	again.Close()
	if err := os.Chtimes(name, time.Time{}, time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if m := remap(t, p, name); m == again {
		t.Error("a file that was written to was not mapped again")
	} else {
		again = m
	}
	again.Close()

	changed := bytes.ToUpper(data)
	write(changed)
	m := remap(t, p, name)
	if m == again || !bytes.Equal(m.Bytes(), changed) {
		t.Error("another file of the same name: expected its contents")
	}
	m.Close()
	if err := os.Truncate(name, 2*WindowSize); err != nil {
		t.Fatal(err)
	}
	shorter := remap(t, p, name)
	if !bytes.Equal(shorter.Bytes(), changed[:2*WindowSize]) || shorter.torn() != nil {
		t.Error("a shorter file: expected its contents")
	}
	if err := os.Truncate(name, 1); err != nil {
		t.Fatal(err)
	}
	if shorter.Bytes()[WindowSize] != 0 || shorter.torn() == nil {
		t.Error("a file that shrinks: expected zeros and a torn mapping")
	}
	shorter.Close()
	if err := os.Truncate(name, 2*WindowSize); err != nil {
		t.Fatal(err)
	}
	if m = remap(t, p, name); m == shorter || m.torn() != nil {
		t.Error("the mapping of a file that has shrunk was cached")
	}
	p.Close()
	m.Close() // after the pool was closed
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}

// use takes and releases a window of a mapping.
func use(m *Mapping, at int64) { m.Window(at, 1).Release() }

// useAlone does the same for a record that lies in one window.
func useAlone(m *Mapping, at int64) {
	use(m, at)
	m.dropWindow()
}

func TestMappingsAreKeptUpToABound(t *testing.T) {
	before, none := Count(), mappingCache.bytes
	p := NewPool(File)
	folder := t.TempDir()
	names := []string{filepath.Join(folder, "large"), filepath.Join(folder, "small")}
	sizes := []int64{maxCachedBytes + WindowSize/2, 2 * WindowSize}
	var all []*Mapping
	for i, name := range names {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(name, sizes[i]); err != nil { // a sparse file: it uses no disk space
			t.Fatal(err)
		}
		all = append(all, remap(t, p, name))
	}
	if mappingCache.bytes != none {
		t.Errorf("expected %d bytes to be cached before windows are used, found %d", none, mappingCache.bytes)
	}
	useAlone(all[0], 5*WindowSize)
	useAlone(all[0], maxCachedBytes)
	useAlone(all[0], 5*WindowSize)
	useAlone(all[1], 0)
	if first, second := all[0].cachedBytes, all[1].cachedBytes; first != WindowSize+WindowSize/2 || second != WindowSize {
		t.Errorf("expected that the windows that were used count once each, found %d and %d bytes", first, second)
	}
	if used := none + 2*WindowSize + WindowSize/2; mappingCache.bytes != used {
		t.Errorf("expected %d cached bytes, found %d", used, mappingCache.bytes)
	}
	for at := int64(0); at < maxCachedBytes; at += WindowSize {
		use(all[0], at)
	}
	useAlone(all[1], WindowSize)
	if n := mappingCache.bytes; n > maxCachedBytes || n < maxCachedBytes-WindowSize {
		t.Errorf("expected about %d cached bytes, found %d", maxCachedBytes, n)
	}
	if !all[0].isCached(5) || !all[0].isCached(maxCachedBytes/WindowSize) || all[0].isCached(maxCachedBytes/WindowSize-1) {
		t.Error("expected the windows that were used first")
	}
	if all[1].isCached(1) {
		t.Error("more is cached than the limit")
	}
	for _, m := range all {
		m.Close()
	}
	if n := Count().Live[Mapped] - before.Live[Mapped]; n != sizes[0]+sizes[1] {
		t.Errorf("expected %d mapped bytes, found %d", sizes[0]+sizes[1], n)
	}
	if m := remap(t, p, names[0]); m != all[0] {
		t.Error("the first mapping was not cached")
	} else {
		m.Close()
	}
	p.Trim()
	if after := Count(); after != before || mappingCache.bytes != none {
		t.Errorf("wrong counts: %+v and %d bytes cached before, %+v and %d after", before, none, after, mappingCache.bytes)
	}
	p.Close()
	files := mappingCache.files
	mappingCache.files = maxCachedFiles
	last := remap(t, p, names[1])
	useAlone(last, 0)
	if last.cachedBytes != 0 {
		t.Error("more files than the limit are cached")
	}
	last.Close()
	mappingCache.files = files

	c := NewUnpooled(File) // caches nothing
	defer c.Close()
	m := remap(t, c, names[1])
	use(m, 0)
	if m.Close(); Count() != before {
		t.Error("an unpooled pool cached a mapping")
	}
}

// A file that is decoded is used without windows. It counts as a whole, until it is used again.
func TestMappingsWithoutWindowsAreKept(t *testing.T) {
	none, files := mappingCache.bytes, mappingCache.files
	p := NewPool(File)
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, bytes.Repeat([]byte{1}, 3*WindowSize), 0o600); err != nil {
		t.Fatal(err)
	}
	m := remap(t, p, name)
	m.Close()
	if n := mappingCache.bytes - none; n != 3*WindowSize {
		t.Errorf("expected %d cached bytes, found %d", 3*WindowSize, n)
	}
	if again := remap(t, p, name); again != m || mappingCache.bytes != none || m.isCached(0) {
		t.Errorf("expected the same mapping without cached windows, found %d cached bytes", mappingCache.bytes-none)
	}
	useAlone(m, WindowSize)
	m.Close()
	if n := mappingCache.bytes - none; n != WindowSize || !m.isCached(1) {
		t.Errorf("expected the window that was used, found %d cached bytes", n)
	}
	if again := remap(t, p, name); again != m || !m.isCached(1) {
		t.Error("expected the same mapping with its window")
	}
	m.Close()
	p.Close()
	if mappingCache.bytes != none || mappingCache.files != files {
		t.Errorf("expected %d bytes of %d files, found %d of %d", none, files, mappingCache.bytes, mappingCache.files)
	}
}

// Eight readers of parts of a file, as streams of a service have, have room for the pages of all parts together.
func TestPartsOfAFileStayMapped(t *testing.T) {
	none := mappingCache.bytes
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const part = 32 * WindowSize
	if err := os.Truncate(name, 8*part); err != nil {
		t.Fatal(err)
	}
	for i := range int64(8) {
		p := NewPool(File)
		defer p.Close()
		m := remap(t, p, name)
		defer m.Close()
		for at := i * part; at < (i+1)*part; at += 8 * WindowSize { // records of eight windows
			use(m, at)
		}
		m.dropWindow()
		if m.cachedBytes < part-7*WindowSize {
			t.Errorf("reader %d: expected that its windows are cached, found %d bytes", i, m.cachedBytes)
		}
	}
	if n := mappingCache.bytes - none; n > 8*part {
		t.Errorf("expected at most %d cached bytes, found %d", 8*part, n)
	}
}

// isMapped reports whether a page is mapped, by /proc/PID/pagemap: see proc_pid_pagemap(5).
func isMapped(t *testing.T, at *byte) bool {
	t.Helper()
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var entry [8]byte
	if _, err := f.ReadAt(entry[:], int64(uintptr(unsafe.Pointer(at)))/pageSize*8); err != nil {
		t.Fatal(err)
	}
	return binary.NativeEndian.Uint64(entry[:])>>63 != 0
}

// Pages of windows that are not cached are returned also if they lie between cached ones. The windows are used in pairs,
// because the system may map pages of 2 MiB, which it returns as a whole.
func TestPagesBetweenCachedWindowsAreReturned(t *testing.T) {
	p := NewPool(File)
	defer p.Close()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, bytes.Repeat([]byte{1}, 10*WindowSize), 0o600); err != nil {
		t.Fatal(err)
	}
	m := remap(t, p, name)
	defer m.Close()
	for _, number := range []int64{0, 1, 4, 5} {
		useAlone(m, number*WindowSize)
	}
	mappingCache.mu.Lock()
	used := mappingCache.bytes
	mappingCache.bytes = maxCachedBytes
	mappingCache.mu.Unlock()
	w := m.Window(0, 1)
	use(m, 8*WindowSize) // the record at the beginning extends over eight windows
	for _, b := range m.data[:8*WindowSize] {
		if b != 1 {
			t.Fatal("the mapping differs from the file")
		}
	}
	w.Release()
	var found []bool
	for i := range 8 {
		found = append(found, isMapped(t, &m.data[i*WindowSize]))
	}
	if !slices.Equal(found, []bool{true, true, false, false, true, true, false, false}) {
		t.Errorf("expected that the pages of windows 0, 1, 4 and 5 stay mapped, found %v", found)
	}
	mappingCache.mu.Lock()
	mappingCache.bytes = used
	mappingCache.mu.Unlock()
}

func TestMapRefusesNothing(t *testing.T) {
	for _, size := range []int64{0, -1, 1 << 50} {
		if _, err := newMapping(0, size); err == nil {
			t.Errorf("expected an error for a mapping of %d bytes", size)
		}
	}
}

func TestArenaPiecesOutliveIt(t *testing.T) {
	before := Count()
	p := NewPool(File)
	a := NewArena(p)
	var pieces [][]byte
	var held []*Buffer
	for i := range 5000 {
		n := i % 300
		if i == 77 {
			n = arenaBlock // too large for the arena's buffer
		}
		piece, b, err := a.Get(n)
		if err != nil || len(piece) != n {
			t.Fatalf("asked for %d, found %d, %v", n, len(piece), err)
		}
		for j := range piece {
			piece[j] = byte(i)
		}
		pieces, held = append(pieces, piece), append(held, b)
	}
	a.Close()
	p.Close()
	for i, piece := range pieces {
		for _, b := range piece {
			if b != byte(i) {
				t.Fatalf("piece %d was overwritten", i)
			}
		}
		held[i].Release()
	}
	if after := Count(); after != before {
		t.Errorf("%+v before, %+v after", before, after)
	}
}
