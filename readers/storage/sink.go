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

// A Sink writes a file under a temporary name in the same folder until Commit. If the disk is full or the process is
// killed before Commit, the file of the requested name is the old one, or does not exist.
type Sink struct {
	path        string // as the caller gave it
	target      string // path with links resolved
	mode        fs.FileMode
	file        *os.File
	plain       *bufio.Writer
	compressor  io.WriteCloser // compresses into plain; nil if the file is not compressed
	uncommitted *Spool         // data that Commit compresses after any Patch; nil unless by CreatePatched
	spools      []*Spool
	offset      int64
	err         error
}

// Create begins a file. Compression is "none", "gzip", "zlib", "zstd" or "snappy". "" and "auto" stand for the
// compression of the path's suffix.
func Create(path, compression string) (*Sink, error) {
	s := &Sink{path: path}
	if err := s.resolveTarget(); err != nil {
		return nil, err
	}
	compression, err := writeCompression(path, compression)
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
		s.compressor = gzip.NewWriter(s.plain)
	case "zlib":
		s.compressor = zlib.NewWriter(s.plain)
	case "zstd": // WithZeroFrames: an empty stream has bytes too, as in the other formats
		s.compressor, err = zstd.NewWriter(s.plain, zstd.WithEncoderConcurrency(1), zstd.WithZeroFrames(true))
	case "snappy":
		s.compressor = &snappyWriter{Writer: s2.NewWriter(s.plain, s2.WriterSnappyCompat(), s2.WriterConcurrency(1)), to: s.plain}
	default:
		err = pyfeed.Errorf(pyfeed.Invalid, "compression: expected none, gzip, zlib, zstd or snappy, found %q", compression)
	}
	if err != nil {
		s.Abort()
		return nil, err
	}
	return s, nil
}

// snappyWriter writes the identifier of a stream even if the stream is empty.
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

const maxLinks = 40 // in a row, as in Linux

// resolveTarget follows links, so that the file they point to is replaced, not the link. The target must be a regular file
// or not exist: a rename must not replace a device or a pipe.
func (s *Sink) resolveTarget() error {
	if s.path == "" {
		return pyfeed.Errorf(pyfeed.Invalid, "expected the name of a file, found an empty string")
	}
	s.target = s.path
	for range maxLinks {
		link, err := os.Readlink(s.target)
		if err != nil { // not a link, or does not exist
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

// RegularFile returns nil if mode is that of a regular file, else an error that names the kind of file found.
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
		found = "too many links in a row"
	}
	return notRegularError(found)
}

// notRegularError names the kind of file found instead of a regular one.
type notRegularError string

func (found notRegularError) Error() string { return "expected a file, found " + string(found) }

// Unwrap returns the error that the system reports for such a file.
func (found notRegularError) Unwrap() error {
	if found == aDirectory {
		return syscall.EISDIR
	}
	return syscall.EINVAL
}

const aDirectory = "a directory"

// temporary creates a file in the target's folder.
func (s *Sink) temporary() (*os.File, error) {
	return os.CreateTemp(filepath.Dir(s.target), "."+filepath.Base(s.target)+".*.partial")
}

// CreatePatched is Create for a file that Patch will change: Commit compresses the data.
func CreatePatched(path, compression string) (*Sink, error) {
	s, err := Create(path, compression)
	if err == nil && s.compressor != nil {
		if s.uncommitted, err = s.Spool(); err != nil {
			s.Abort()
		}
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Write appends bytes. After an error only Abort may be called.
func (s *Sink) Write(b []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	var to io.Writer = s.plain
	switch {
	case s.uncommitted != nil:
		to = s.uncommitted
	case s.compressor != nil:
		to = s.compressor
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

// Patch overwrites earlier bytes at an offset. A compressed file MUST have been created by CreatePatched.
func (s *Sink) Patch(offset int64, b []byte) error {
	if s.err == nil {
		plain, file := s.plain, s.file
		if s.uncommitted != nil {
			plain, file = s.uncommitted.buffer, s.uncommitted.file
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

// Err returns the error of the first failed Write, an error if the Sink is closed, or nil.
func (s *Sink) Err() error { return s.err }

// Commit syncs the bytes to the disk and renames the file to its target.
func (s *Sink) Commit() error {
	err := s.err
	if err == nil && s.uncommitted != nil {
		_, err = s.uncommitted.WriteTo(s.compressor)
	}
	if err == nil && s.compressor != nil {
		err = s.compressor.Close()
		s.compressor = nil
	}
	for _, step := range []func() error{s.plain.Flush, s.applyMode, s.file.Sync, s.file.Close, s.rename} {
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

// end closes the spools and makes later writes fail.
func (s *Sink) end() {
	for _, p := range s.spools {
		_ = p.file.Close()
	}
	s.spools = nil
	if s.err == nil {
		s.err = pyfeed.Errorf(pyfeed.State, "%s: expected an open writer, found one that is closed", s.path)
	}
}

// applyMode sets the permissions of the replaced file, or else those of a newly created file.
func (s *Sink) applyMode() error { return s.file.Chmod(s.mode) }

func (s *Sink) rename() error { return os.Rename(s.file.Name(), s.target) }

// Abort removes the temporary file. After Commit it does nothing.
func (s *Sink) Abort() {
	if s.compressor != nil {
		s.plain.Reset(io.Discard)
		_ = s.compressor.Close()
		s.compressor = nil
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

// A Spool keeps bytes that a Sink receives later, when the bytes that precede them are known. It is an unlinked file in
// the Sink's folder, so that no file remains if the process is killed.
type Spool struct {
	sink   *Sink
	file   *os.File
	buffer *bufio.Writer
}

// Spool creates a Spool, which exists as long as the Sink is open.
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

// Write appends bytes.
func (p *Spool) Write(b []byte) (int, error) {
	n, err := p.buffer.Write(b)
	if err != nil {
		err = p.sink.failed("write", err)
	}
	return n, err
}

// WriteTo writes all bytes to w.
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
