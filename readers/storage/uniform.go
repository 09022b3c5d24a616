package storage

import (
	"bytes"
	"os"

	"golang.org/x/sys/unix"
)

// UniformReader reads small files that begin with the same bytes and have the same size into memory of the caller. One
// goroutine at a time uses it.
type UniformReader struct {
	head       []byte
	headBuffer []byte    // receives the head of a file
	extraByte  [1]byte   // receives a byte only if the file is longer than expected
	parts      [3][]byte // headBuffer, the data and extraByte
}

// minHead is the number of bytes that detectCompression needs.
const minHead = 10

// NewUniformReader returns a reader of files that begin with head, or nil if head is too short to detect compression.
func NewUniformReader(head []byte) *UniformReader {
	if len(head) < minHead {
		return nil
	}
	return &UniformReader{head: head, headBuffer: make([]byte, len(head))}
}

// Read fills to with the data after the head if the file is regular, begins with the head and has exactly that size. It
// consumes nothing of any other file. If the file is a pipe, Read returns it opened, for Options.Pipe.
func (a *UniformReader) Read(path string, to []byte) (same bool, pipe *os.File) {
	if ByName(path) != "none" { // a File checks the suffix against the contents
		return false, nil
	}
	fd, err := openNonblocking(path)
	if err != nil {
		return false, nil
	}
	a.parts = [3][]byte{a.headBuffer, to, a.extraByte[:]}
	n, err := readParts(fd, a.parts[:])
	if err != nil {
		if _, kind, err := stat(fd); kind == unix.S_IFIFO && err == nil {
			return false, os.NewFile(uintptr(fd), path)
		}
	}
	closeFD(fd)
	return err == nil && n == len(a.head)+len(to) && bytes.Equal(a.headBuffer, a.head), nil
}
