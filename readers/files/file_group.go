package files

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A file group is several files in a row that one thread reads one after the other into one buffer: short files that are
// expected to look like those before them. The locks of the reader, of the pool and of spare tuples are taken once for all of
// them, and their instances are a Block. Each is still a file of its own, so that the order is that of files read one by
// one. A file that looks otherwise, or is damaged, or not there, ends the group and is read by itself, as any other; the
// files behind it are requeued.

// Measured in docs/performance.md, "npy files, one array each".
const (
	minSameSignature = 4                   // short files in a row, after which others are expected to be the same
	maxGroupBytes    = maxStandbyBytes / 4 // of one group
)

// fileSignature is what files of one instance each have in common, if they differ in the data of that only.
type fileSignature struct {
	format *record.Format
	head   []byte
	first  pyfeed.LoDTensor // but for its data
	size   int              // of the data in bytes
}

// signature is what other files may have in common with one whose only instance was read; nil: nothing.
func (f *file) signature() *fileSignature {
	r, can := f.records.(record.SingleRecord)
	if !can {
		return nil
	}
	head, slot := r.Signature()
	if len(head) == 0 {
		return nil
	}
	s := &fileSignature{format: f.Format, head: head, first: pyfeed.LoDTensor{DType: slot.DType, ReadOnly: true}}
	err := s.first.SetDims(slot.Dims)
	if err == nil {
		s.size, err = s.first.Measure()
	}
	if err != nil || s.size == 0 || storage.NewAlike(head) == nil {
		return nil
	}
	return s
}

func (s *fileSignature) equals(other *fileSignature) bool {
	return s.format == other.format && s.first.DType == other.first.DType && bytes.Equal(s.head, other.head) &&
		slices.Equal(s.first.Dims(), other.first.Dims())
}

// grouper decides how many files a thread claims as a group, and gives the groups of a batch places in one buffer. It does no
// I/O and has no lock: filesReader's guards it.
type grouper struct {
	pool *memory.Pool
	last *fileSignature // of the short files that were read last; nil: there was none
	same int            // how many in a row had that

	buffer    *memory.Buffer // for a batch of instances, in which groups are given places; nil: there is none
	bufferFor *fileSignature
	from, to  int // the files that it has places for
}

// observe is told the signature of a file of which a chunk was read; nil: it has none.
func (g *grouper) observe(signature *fileSignature) {
	switch {
	case signature == nil:
		g.same = 0
	case g.last != nil && g.last.equals(signature):
		g.same++
	default:
		g.last, g.same = signature, 1
	}
}

// expects reports whether the next files are expected to have the last signature.
func (g *grouper) expects() bool { return g.same >= minSameSignature }

// reset forgets all files.
func (g *grouper) reset() {
	g.releaseBuffer()
	g.last, g.same = nil, 0
}

// size is how many of the next files, of which so many are left, a thread should claim: the threads share a batch of the
// instances that a consumer asks for, and none keeps it waiting.
func (g *grouper) size(asked, threads, left int) int {
	if !g.expects() {
		return 1
	}
	share := (min(asked, wakeAfter) + threads - 1) / threads
	return max(min(share, maxGroupBytes/g.last.size, left), 1)
}

// reserve sees to a buffer for a batch of asked instances, which begins where a batch does if each file has one, and returns
// how many of the next n files, of files in all, it has places for. So the instances of a batch lie one behind the other,
// whichever threads read them.
func (g *grouper) reserve(n, next, files, asked int) int {
	if g.buffer != nil && (g.last != g.bufferFor || next >= g.to) {
		g.releaseBuffer()
	}
	if g.buffer == nil {
		size := asked * g.last.size
		if size > maxStandbyBytes {
			return n
		}
		buffer, err := g.pool.Get(size)
		if err != nil {
			return n // and the group asks for its own
		}
		g.buffer, g.bufferFor, g.from = buffer, g.last, next/asked*asked
		g.to = g.from + asked
	}
	rest := min(g.to, files) - next
	if n == rest-1 {
		n = rest // one alone would be read into a buffer of its own
	}
	return min(n, rest)
}

// place gives the group of a lane, which begins with the next file, places in the buffer, if there is one.
func (g *grouper) place(l *lane, next int) {
	if g.buffer != nil {
		g.buffer.Retain(1)
		l.buffer, l.place = g.buffer, next-g.from
	}
}

// advance is told which file is the next: without places for that, the buffer is not needed any more.
func (g *grouper) advance(next, files int) {
	if next >= min(g.to, files) {
		g.releaseBuffer()
	}
}

func (g *grouper) releaseBuffer() {
	if g.buffer != nil {
		g.buffer.Release()
		g.buffer = nil
	}
}

// groupResult is what came of reading a group.
type groupResult struct {
	n        int      // files that were read
	mismatch bool     // the file behind those is not like them
	pipe     *os.File // the same, if it is a pipe that is open
}

// readGroup reads the group of a lane, until the end, a file that is not like the others, or cut. After slow nanoseconds it ends
// with the file that is being read.
func (s *fileSet) readGroup(l *lane, out *record.Chunk, slow int64, cut *atomic.Bool, t trace.Track) (r groupResult) {
	first, size := l.signature.first, l.signature.size
	if s.spec.Check(&pyfeed.Tuple{Slots: []pyfeed.LoDTensor{first}}) != nil {
		return groupResult{mismatch: true}
	}
	b := l.buffer
	if b == nil {
		var err error
		if b, err = s.pool.Get(len(l.group) * size); err != nil {
			return groupResult{mismatch: true} // and it is tried again for one alone
		}
		defer b.Release()
	}
	to := b.Bytes()[l.place*size:][:len(l.group)*size]
	reader, opened, begin := storage.NewAlike(l.signature.head), s.openedPath(), trace.Now()
	for _, ref := range l.group {
		if cut.Load() || r.n > 0 && trace.Now()-begin >= slow {
			break
		}
		start, same := trace.Begin(), false
		if ref.Format == l.signature.format && ref.Path != opened {
			same, r.pipe = reader.Read(ref.Path, to[r.n*size:(r.n+1)*size])
		}
		if !same {
			r.mismatch = true
			break
		}
		trace.Since(t, trace.Read, filepath.Base(ref.Path), start)
		r.n++
	}
	if r.n == 0 {
		return r
	}
	b.Retain(r.n)
	first.Data = to[: size : r.n*size]
	block := record.NewBlock([]pyfeed.LoDTensor{first}, size, r.n, b)
	block.SetFiles(l.group[:r.n:r.n])
	out.AddBlock(block)
	return r
}

// openedPath is the path of the file that was opened before, which is not opened again.
func (s *fileSet) openedPath() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened.path
}
