package files

import (
	"io"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A lane is a file, or a file group, that is being read, and the chunks that were read ahead from it.
type lane struct {
	file      file
	group     []record.FileRef // nil: it is a file
	signature *fileSignature   // of the files of a group, or of a file that has ended
	chunks    []*record.Chunk
	bytes     int            // that were read, or are to be read by a group, while it stands by
	busy      bool           // a thread reads for it
	begun     bool           // something was read
	standsBy  bool           // it waits to replace a lane, and is not read in turn yet
	requeued  bool           // it was split off a group, and no thread has begun it
	index     int            // of its first file, in the order of the pass
	starts    []chunkStart   // of chunks, each where its first instance is
	reading   chunkStart     // where the read in progress began
	numRead   int64          // instances that were read, from where reading began
	ahead     int64          // instances that are read before those to be delivered
	buffer    *memory.Buffer // in which a group has places, beginning with place; nil: it will get a buffer of its own
	place     int
	end       error // the error or end after the last chunk
}

// chunkStart is where a chunk begins: at ahead instances after a place in the file.
type chunkStart struct {
	filePlace
	ahead int64
	stamp fileStamp // of the file; zero before it is opened
}

// laneChunks is how many chunks a lane holds at most.
const laneChunks = 2

// set resets the lane for a file, or for a group of files with a signature.
func (l *lane) set(refs []record.FileRef, signature *fileSignature, set *fileSet) {
	*l = lane{chunks: l.chunks[:0], starts: l.starts[:0]}
	if len(refs) == 1 {
		l.file = file{FileRef: refs[0], fileSet: set}
	} else {
		l.group, l.signature, l.bytes = refs, signature, len(refs)*signature.size
	}
}

// numFiles returns the number of its files.
func (l *lane) numFiles() int { return max(len(l.group), 1) }

// numInstances returns how many instances were read ahead.
func (l *lane) numInstances() (n int) {
	for _, c := range l.chunks {
		n += c.Len()
	}
	return n
}

// hasRoom reports whether a thread may read for it.
func (l *lane) hasRoom() bool { return !l.busy && l.end == nil && len(l.chunks) < laneChunks }

// dropFirst removes and returns the first chunk, which is empty.
func (l *lane) dropFirst() *record.Chunk {
	first := l.chunks[0]
	l.chunks = append(l.chunks[:0], l.chunks[1:]...)
	l.starts = append(l.starts[:0], l.starts[1:]...)
	return first
}

// nextStart returns where the next read begins. None is in progress.
func (l *lane) nextStart() chunkStart {
	if place, known := l.file.place(); known {
		return chunkStart{place, l.ahead, l.file.stamp}
	}
	return chunkStart{l.file.from, l.numRead + l.ahead, l.file.stamp}
}

// dropAhead drops the first instances of a chunk of n that was read before those to be delivered. It returns how many are
// left.
func (l *lane) dropAhead(chunk *record.Chunk, n int) int {
	l.numRead += int64(n)
	if drop := min(int64(n), l.ahead); drop > 0 {
		var before record.Chunk
		chunk.MoveTo(&before, int(drop))
		before.Release()
		l.ahead -= drop
		n -= int(drop)
	}
	return n
}

// anchor returns where the consumer is in the lane.
func (l *lane) anchor() laneAnchor {
	if len(l.chunks) == 0 && l.end == io.EOF {
		return laneAnchor{file: ended}
	}
	start := l.reading
	switch {
	case len(l.chunks) > 0:
		start = l.starts[0]
		start.ahead += int64(l.chunks[0].NumTaken())
	case !l.busy:
		start = l.nextStart()
	}
	return laneAnchor{file: l.index, from: start.filePlace, ahead: start.ahead, stamp: start.stamp}
}

// corruptBefore returns how many damaged records the consumer has passed in the lane.
func (l *lane) corruptBefore() int64 {
	switch {
	case len(l.chunks) > 0:
		return l.starts[0].corrupt
	case l.busy:
		return l.reading.corrupt
	}
	if l.end == io.EOF {
		return l.file.numCorrupt
	}
	return l.nextStart().corrupt
}

// restore makes the lane one of an anchor.
func (l *lane) restore(a laneAnchor) {
	l.file.beginAt(a.from)
	l.ahead = a.ahead
}

// releaseBuffer is called when nothing more is read into the places of a group.
func (l *lane) releaseBuffer() {
	if l.buffer != nil {
		l.buffer.Release()
		l.buffer = nil
	}
}

// close releases everything that the lane holds.
func (l *lane) close() {
	for _, c := range l.chunks {
		c.Release()
	}
	l.file.close()
	l.releaseBuffer()
}
