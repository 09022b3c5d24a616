package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// A Sink is a file that is being written, under another name in the same folder until Commit. Whatever
// happens before, a full disk or a killed process, there is no file of the name that was asked for, or the old one.
type Sink struct {
	path   string // as it was given
	target string // where links lead from there
	mode   fs.FileMode
	file   *os.File
	plain  *bufio.Writer
	packed io.WriteCloser // compresses into plain; nil where nothing is compressed
	whole  *Spool         // all that is compressed, until Commit; nil where Patch need not write over it
	spools []*Spool
	offset int64
	err    error
}

// Create begins a file. Compression is "none", "gzip", "zlib", "zstd" or "snappy"; "" or "auto": what the end of
// the file's name stands for.
func Create(path, compression string) (*Sink, error) {
	s := &Sink{path: path}
	if err := s.aim(); err != nil {
		return nil, err
	}
	compression, err := writesAs(path, compression)
	if err != nil {
		return nil, err
	}
	file, err := s.temporary()
	if err != nil {
		return nil, s.failed("create", err)
	}
	s.file, s.plain = file, bufio.NewWriterSize(file, 256<<10)
	switch compression {
	case "none":
	case "gzip":
		s.packed = gzip.NewWriter(s.plain)
	case "zlib":
		s.packed = zlib.NewWriter(s.plain)
	case "zstd": // WithZeroFrames: a stream of nothing has bytes too, as in the other formats
		s.packed, err = zstd.NewWriter(s.plain, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	case "snappy":
		s.packed = &snappyWriter{Writer: s2.NewWriter(s.plain, s2.WriterSnappyCompat(), s2.WriterConcurrency(1)), to: s.plain}
	default:
		err = pyfeed.Errorf(pyfeed.Invalid, "compression: expected none, gzip, zlib, zstd or snappy, found %q", compression)
	}
	if err != nil {
		s.Abort()
		return nil, err
	}
	return s, nil
}

// snappyWriter writes the identifier of a stream even if nothing follows.
type snappyWriter struct {
	*s2.Writer
	to    io.Writer
	begun bool
}

func (w *snappyWriter) Write(b []byte) (int, error) {
	w.begun = w.begun || len(b) > 0
	return w.Writer.Write(b)
}

func (w *snappyWriter) Close() error {
	err := w.Writer.Close()
	if err == nil && !w.begun {
		_, err = io.WriteString(w.to, snappyMagic)
	}
	return err
}

const mostLinks = 40 // one after the other, as Linux has it

// aim follows links, so that what they lead to is replaced, not they. What is there may only be a file: to rename over
// a device or a pipe would take it away from everybody else.
func (s *Sink) aim() error {
	if s.path == "" {
		return pyfeed.Errorf(pyfeed.Invalid, "expected the name of a file, found an empty string")
	}
	s.target = s.path
	for range mostLinks {
		link, err := os.Readlink(s.target)
		if err != nil { // no link, or nothing there
			break
		}
		if !filepath.IsAbs(link) {
			link = filepath.Dir(s.target) + "/" + link // not cleaned: a folder may be a link too
		}
		s.target = link
	}
	info, err := os.Lstat(s.target)
	if errors.Is(err, fs.ErrNotExist) {
		s.mode = 0o666 &^ umask()
		return nil
	}
	if err == nil {
		s.mode = info.Mode().Perm()
		err = RegularFile(info.Mode())
	}
	if err != nil {
		return s.failed("create", err)
	}
	return nil
}

// RegularFile is nil for a file's mode; else it says what was found.
func RegularFile(mode fs.FileMode) error {
	found := "something else"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		found = aDirectory
	case mode&fs.ModeNamedPipe != 0:
		found = "a pipe"
	case mode&fs.ModeSocket != 0:
		found = "a socket"
	case mode&fs.ModeDevice != 0:
		found = "a device"
	case mode&fs.ModeSymlink != 0:
		found = "too many links, one after the other"
	}
	return notAFile(found)
}

// notAFile is what was found in a file's place.
type notAFile string

func (found notAFile) Error() string { return "expected a file, found " + string(found) }

// Unwrap is what the system would have said.
func (found notAFile) Unwrap() error {
	if found == aDirectory {
		return syscall.EISDIR
	}
	return syscall.EINVAL
}

const aDirectory = "a directory"

// temporary makes a file beside the one that is being written.
func (s *Sink) temporary() (*os.File, error) {
	return os.CreateTemp(filepath.Dir(s.target), "."+filepath.Base(s.target)+".*.partial")
}

// CreatePatched begins a file as Create does, for one who will Patch it: what is compressed is put aside until Commit.
func CreatePatched(path, compression string) (*Sink, error) {
	s, err := Create(path, compression)
	if err == nil && s.packed != nil {
		if s.whole, err = s.Spool(); err != nil {
			s.Abort()
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Write adds bytes. After an error the Sink is good for Abort only.
func (s *Sink) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	var to io.Writer = s.plain
	switch {
	case s.whole != nil:
		to = s.whole
	case s.packed != nil:
		to = s.packed
	}
	n, err := to.Write(b)
	s.offset += int64(n)
	if err != nil {
		s.err = s.failed("write", err)
		return n, s.err
	}
	return n, nil
}

// Offset is the number of bytes written, before compression.
func (s *Sink) Offset() int64 { return s.offset }

// Patch writes over what was written at an offset before, in a file that is not compressed or was made to be patched.
func (s *Sink) Patch(offset int64, b []byte) error {
	if s.err == nil {
		plain, file := s.plain, s.file
		if s.whole != nil {
			plain, file = s.whole.buffer, s.whole.file
		}
		err := plain.Flush()
		if err == nil {
			_, err = file.WriteAt(b, offset)
		}
		if err != nil {
			s.err = s.failed("write", err)
		}
	}
	return s.err
}

// Err is what a Write answers: nil, or why one failed, or that the Sink is closed.
func (s *Sink) Err() error { return s.err }

// Commit makes the file what it is called, with all its bytes on the disk.
func (s *Sink) Commit() error {
	err := s.err
	if err == nil && s.whole != nil {
		_, err = s.whole.WriteTo(s.packed)
	}
	if err == nil && s.packed != nil {
		err = s.packed.Close()
		s.packed = nil
	}
	for _, step := range []func() error{s.plain.Flush, s.settleMode, s.file.Sync, s.file.Close, s.rename} {
		if err == nil {
			err = step()
		}
	}
	if err != nil {
		if s.err == nil {
			s.err = s.failed("write", err)
		}
		s.Abort()
		return s.err
	}
	s.file = nil
	s.end()
	return nil
}

// end lets go of what was put aside. Nothing can be written any more.
func (s *Sink) end() {
	for _, p := range s.spools {
		_ = p.file.Close()
	}
	s.spools = nil
	if s.err == nil {
		s.err = pyfeed.Errorf(pyfeed.State, "%s: expected an open writer, found one that is closed", s.path)
	}
}

// settleMode gives the file the rights that the one it replaces had, or one made by its own name would have.
func (s *Sink) settleMode() error { return s.file.Chmod(s.mode) }

func (s *Sink) rename() error { return os.Rename(s.file.Name(), s.target) }

// Abort leaves nothing behind. After Commit it does nothing.
func (s *Sink) Abort() {
	if s.packed != nil {
		s.plain.Reset(io.Discard)
		_ = s.packed.Close()
		s.packed = nil
	}
	if s.file != nil {
		_ = os.Remove(s.file.Name())
		_ = s.file.Close()
		s.file = nil
	}
	s.end()
}

func (s *Sink) failed(doing string, err error) error {
	var mine *pyfeed.Error
	if errors.As(err, &mine) {
		return mine
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	var l *os.LinkError
	if errors.As(err, &l) {
		err = l.Err
	}
	return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, Text: fmt.Sprintf("%s: %v", doing, err), Cause: err,
		At: &pyfeed.Location{File: s.path, Offset: -1, Record: -1}}
}

// A Spool is bytes that a Sink gets later, because something comes before them that is known last. They lie in a file
// beside the Sink's, which has no name any more: nothing of it is left behind, whatever happens.
type Spool struct {
	sink   *Sink
	file   *os.File
	buffer *bufio.Writer
}

// Spool begins one, which ends with the Sink.
func (s *Sink) Spool() (*Spool, error) {
	file, err := s.temporary()
	if err == nil {
		if err = os.Remove(file.Name()); err != nil {
			_ = file.Close()
		}
	}
	if err != nil {
		return nil, s.failed("create", err)
	}
	p := &Spool{s, file, bufio.NewWriterSize(file, 256<<10)}
	s.spools = append(s.spools, p)
	return p, nil
}

// Write adds bytes.
func (p *Spool) Write(b []byte) (int, error) {
	n, err := p.buffer.Write(b)
	if err != nil {
		err = p.sink.failed("write", err)
	}
	return n, err
}

// WriteTo writes all of them.
func (p *Spool) WriteTo(to io.Writer) (n int64, err error) {
	if err = p.buffer.Flush(); err == nil {
		_, err = p.file.Seek(0, io.SeekStart)
	}
	if err == nil {
		n, err = io.Copy(to, p.file)
	}
	if err != nil {
		err = p.sink.failed("write", err)
	}
	return n, err
}
