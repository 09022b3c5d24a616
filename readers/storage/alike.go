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
	begin []byte    // room for the head
	end   [1]byte   // and for a byte that is not there
	parts [3][]byte // those, with the data between
}

// leastHead is by how many bytes compression is told.
const leastHead = 10

// NewAlike is for files that begin with head. nil: it is too short to tell that they are not compressed.
func NewAlike(head []byte) *Alike {
	if len(head) < leastHead {
		return nil
	}
	return &Alike{head: head, begin: make([]byte, len(head))}
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
	a.parts = [3][]byte{a.begin, to, a.end[:]}
	n, err := readParts(fd, a.parts[:])
	if err != nil {
		if _, kind, err := stat(fd); kind == unix.S_IFIFO && err == nil {
			return false, os.NewFile(uintptr(fd), path)
		}
	}
	closeNow(fd)
	return err == nil && n == len(a.head)+len(to) && bytes.Equal(a.begin, a.head), nil
}
