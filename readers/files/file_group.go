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

// A file group is a run of consecutive short files that one thread reads into one buffer. They are expected to have the
// signature of the files before them. The locks of the reader, of the pool and of the spare tuples are then taken once
// for the whole group, and the instances form a Block. Each instance is still that of its own file, so the order is the
// same as if files were read one by one. A file with another signature, a damaged file or a missing file ends the group
// and is read by itself; the files after it are requeued.

// Measured in docs/performance.md, "npy files, one array each": groups of 256 KiB and of 1 MiB were not faster.
// minSameSignature was not measured: a wrong guess costs one failed read.
const (
	minSameSignature = 4                   // consecutive short files after which the next are expected to be like them
	maxGroupBytes    = maxStandbyBytes / 4 // of one group
)

// fileSignature has what files with one instance each share, if they differ only in the data of that instance.
type fileSignature struct {
	format *record.Format
	head   []byte
	first  pyfeed.LoDTensor // the instance without its data
	size   int              // of the instance's data, in bytes
}

// signature returns the signature of a file whose only instance was read; nil: it has none.
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
	if err != nil || s.size == 0 || storage.NewUniformReader(head) == nil {
		return nil
	}
	return s
}

func (s *fileSignature) equals(other *fileSignature) bool {
	return s.format == other.format && s.first.DType == other.first.DType && bytes.Equal(s.head, other.head) &&
		slices.Equal(s.first.Dims(), other.first.Dims())
}

// grouper decides how many files a thread claims as a group, and reserves places for the groups of a batch in one
// buffer. It does no I/O. The lock of the filesReader guards it.
type grouper struct {
	pool    *memory.Pool
	last    *fileSignature // of the last short file that was read; nil: none was
	numSame int            // how many files in a row had it

	buffer    *memory.Buffer // for the instances of one batch, with places for groups; nil: there is none
	bufferFor *fileSignature
	from, to  int // the range of files that have places in it
}

// observe notes the signature of a file after its first chunk was read; nil: it has none.
func (g *grouper) observe(signature *fileSignature) {
	switch {
	case signature == nil:
		g.numSame = 0
	case g.last != nil && g.last.equals(signature):
		g.numSame++
	default:
		g.last, g.numSame = signature, 1
	}
}

// expects reports whether the next files are expected to have the last signature.
func (g *grouper) expects() bool { return g.numSame >= minSameSignature }

// reset forgets all signatures.
func (g *grouper) reset() {
	g.releaseBuffer()
	g.last, g.numSame = nil, 0
}

// size returns how many of the next files a thread should claim; left files remain. The threads share the instances
// that a consumer asks for, so that none of them reads so many that the consumer waits for it alone.
func (g *grouper) size(asked, threads, left int) int {
	if !g.expects() {
		return 1
	}
	share := (min(asked, wakeAfter) + threads - 1) / threads
	return max(min(share, maxGroupBytes/g.last.size, left), 1)
}

// reserve makes sure that there is a buffer for the batch that the next file belongs to. If each file has one instance,
// a batch has asked instances, and begins with file 0, asked, 2*asked, … reserve returns how many of the next n files
// have places in the buffer; files is the number of all files. So the instances of a batch are contiguous in memory,
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
			return n // the group gets a buffer of its own
		}
		g.buffer, g.bufferFor, g.from = buffer, g.last, next/asked*asked
		g.to = g.from + asked
	}
	rest := min(g.to, files) - next
	if leavesSingleFile := n == rest-1; leavesSingleFile { // the last file would be read into a buffer of its own
		n = rest
	}
	return min(n, rest)
}

// place gives the group of lane l, whose first file is next, its places in the buffer, if there is one.
func (g *grouper) place(l *lane, next int) {
	if g.buffer != nil {
		g.buffer.Retain(1)
		l.buffer, l.place = g.buffer, next-g.from
	}
}

// advance sets the next file, and releases the buffer if it has no place for that file.
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

// groupResult is the result of reading a group.
type groupResult struct {
	n        int      // files that were read
	mismatch bool     // the file after those has another signature
	pipe     *os.File // that file, if it is a pipe, which is open now
}

// readGroup reads the group of a lane. It stops after the last file, at a file with another signature, or when cut is
// set. After slow nanoseconds it stops with the current file.
func (s *fileSet) readGroup(l *lane, out *record.Chunk, slow int64, cut *atomic.Bool, t trace.Track) (r groupResult) {
	first, size := l.signature.first, l.signature.size
	if s.spec.Check(&pyfeed.Tuple{Slots: []pyfeed.LoDTensor{first}}) != nil {
		return groupResult{mismatch: true}
	}
	b := l.buffer
	if b == nil {
		var err error
		if b, err = s.pool.Get(len(l.group) * size); err != nil {
			return groupResult{mismatch: true} // the first file is tried again by itself
		}
		defer b.Release()
	}
	to := b.Bytes()[l.place*size:][:len(l.group)*size]
	reader, opened, begin := storage.NewUniformReader(l.signature.head), s.openedPath(), trace.Now()
	for _, ref := range l.group {
		tooSlow := r.n > 0 && trace.Now()-begin >= slow // a consumer may wait for the files read so far
		if tooSlow || cut.Load() {
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

// openedPath returns the path of the file that was opened before the reader was made. It must not be opened again.
func (s *fileSet) openedPath() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.opened.path
}
