package storage

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// Alike reads small files that begin with the same bytes and are equally long into memory of its caller's, who is one at
// a time.
type Alike struct {
	head  []byte
	parts [3][]byte // room for the head, that for the data, and one byte that is not there
}

// leastHead is by how many bytes compression is told.
const leastHead = 10

// NewAlike is for files that begin with head. nil: it is too short to tell that they are not compressed.
func NewAlike(head []byte) *Alike {
	if len(head) < leastHead {
		return nil
	}
	return &Alike{head: head, parts: [3][]byte{make([]byte, len(head)), nil, make([]byte, 1)}}
}

// Read fills to with what is in a file behind the head, if it is regular, begins with the head and has as many bytes
// behind it. Of any other nothing is lost: a pipe is answered, open, for Options.
func (a *Alike) Read(path string, to []byte) (same bool, pipe *os.File) {
	if ByName(path) != "none" { // for File to hold its bytes against
		return false, nil
	}
	fd, err := openNow(path)
	if err != nil {
		return false, nil
	}
	a.parts[1] = to
	n, err := readParts(fd, a.parts[:])
	if err != nil {
		if _, kind, err := stat(fd); kind == unix.S_IFIFO && err == nil {
			return false, os.NewFile(uintptr(fd), path)
		}
	}
	closeNow(fd)
	return err == nil && n == len(a.head)+len(to) && bytes.Equal(a.parts[0], a.head), nil
}
