package files

import (
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A lane is a file that is being read, or a file group, and what was read of it ahead.
type lane struct {
	file      file
	group     []record.FileRef // nil: it is a file
	signature *fileSignature   // of the files of a group, or of a file that has ended
	chunks    []*record.Chunk
	bytes     int            // that were read while it stood by
	busy      bool           // a thread reads
	begun     bool           // something was read
	standsBy  bool           // it is not one of those that are read in turn yet
	requeued  bool           // it was split off a group, and no thread has begun it
	buffer    *memory.Buffer // in which a group has places, from place on; nil: it will have a buffer of its own
	place     int
	end       error // what came after the last chunk
}

// laneChunks is how many chunks a lane holds at most.
const laneChunks = 2

// set makes it a lane for a file, or for a group of files of a signature.
func (l *lane) set(refs []record.FileRef, signature *fileSignature, set *fileSet) {
	*l = lane{chunks: l.chunks[:0]}
	if len(refs) == 1 {
		l.file = file{FileRef: refs[0], fileSet: set}
	} else {
		l.group, l.signature, l.bytes = refs, signature, len(refs)*signature.size
	}
}

// numFiles is the number of its files.
func (l *lane) numFiles() int { return max(len(l.group), 1) }

// holds is how many instances were read ahead.
func (l *lane) holds() (n int) {
	for _, c := range l.chunks {
		n += c.Len()
	}
	return n
}

// wants reports whether a thread may read for it.
func (l *lane) wants() bool { return !l.busy && l.end == nil && len(l.chunks) < laneChunks }

// dropFirst takes the first chunk away, of which nothing is left.
func (l *lane) dropFirst() *record.Chunk {
	first := l.chunks[0]
	l.chunks = append(l.chunks[:0], l.chunks[1:]...)
	return first
}

// releaseBuffer is when nothing more is read into the places of a group.
func (l *lane) releaseBuffer() {
	if l.buffer != nil {
		l.buffer.Release()
		l.buffer = nil
	}
}

// close releases all that it has.
func (l *lane) close() {
	for _, c := range l.chunks {
		c.Release()
	}
	l.file.close()
	l.releaseBuffer()
}
