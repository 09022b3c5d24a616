// Package storage reads and writes the bytes of files for the format packages. Files are mapped or read in large blocks,
// and decompressed by content. A file is written completely or not at all.
package storage

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Options control how a file is read. The zero value suits most files.
type Options struct {
	// Compression is "auto" or "", or one of [compressions]. "auto" detects the compression by the first bytes of the
	// file, which have to be compressed if the suffix stands for a compression.
	Compression string `json:"compression"`
	// IO is "auto" or "" (mapped, unless the file system is a network's), "map" or "read".
	IO string `json:"io"`
	// Interrupt ends long operations. nil: they are not interrupted.
	Interrupt *Interrupt `json:"-"`
	// Pipe is the open file if it is a pipe that a UniformReader has opened. The File owns it. nil: Open opens the file.
	Pipe *os.File `json:"-"`
	// Block is how many bytes are read at a time if the file is not mapped; 0: 1 MiB. If it is given, single records are
	// read here and there, so the system is told not to read ahead.
	Block int `json:"-"`
	// Opened is called with each opened File. May be nil.
	Opened func(*File) `json:"-"`
}

// Check returns an error for invalid Options.
func (o Options) Check() error {
	if o.Compression != "" && o.Compression != "auto" && !slices.Contains(compressions, o.Compression) {
		return pyfeed.Errorf(pyfeed.Invalid, "compression: expected auto, %s, found %q", alternatives(compressions), o.Compression)
	}
	switch o.IO {
	case "", "auto", "map", "read":
	default:
		return pyfeed.Errorf(pyfeed.Invalid, "io: expected auto, map or read, found %q", o.IO)
	}
	return nil
}

// A File is read from front to back, by one caller at a time. Offsets are those of the decompressed data.
type File struct {
	path    string
	options Options

	data []byte // all of a mapped file, or the current block
	at   int    // index of the position in data
	base int64  // offset of data[0]

	mapping     *memory.Mapping // of a mapped file; nil for others
	fd          int             // descriptor of a mapped file
	file        *os.File        // nil if the bytes are in memory
	source      io.ReadSeeker   // the file, or the bytes
	codec       codec           // nil if the file is not compressed
	compression string          // name of the codec's compression
	compressed  CompressedInput // input of the codec
	stream      io.Reader       // reads the decompressed bytes
	pool        *memory.Pool
	block       *memory.Buffer // holds data
	whole       bool           // the block is the whole file
	streamErr   error          // last error of stream; io.EOF at the end
	stampAtOpen fileStamp      // of a regular file that is mapped or read in blocks; else zero
	openedStamp fileStamp      // of any regular file
	size        int64          // size of the data; -1: unknown
}

// blockSize is how many bytes are read at a time if a file is not mapped and Options.Block is not given.
const blockSize = 1 << 20

// Open opens a file at its beginning. It allocates blocks from pool, which MUST outlive the File and all views of its data.
func Open(path string, o Options, pool *memory.Pool) (*File, error) {
	f, err := open(path, o, pool)
	if err == nil && o.Opened != nil {
		o.Opened(f)
	}
	return f, err
}

func open(path string, o Options, pool *memory.Pool) (*File, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Interrupt != nil {
		o.Interrupt.fired = false
	}
	f := &File{path: path, options: o, pool: pool, size: -1}
	if f.file = o.Pipe; f.file != nil {
		if err := f.startPipe(cmp.Or(o.Compression, "auto")); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	fd, err := openNonblocking(path)
	if err != nil {
		return nil, f.ioError("", err)
	}
	kept, err := f.start(fd)
	if !kept {
		closeFD(fd)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// New returns a File over bytes in memory, such as a part of another file. Errors name it by name.
func New(name string, data []byte, o Options, pool *memory.Pool) (*File, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	f := &File{path: name, options: o, pool: pool, size: -1, source: bytes.NewReader(data)}
	compression, err := f.resolveCompression(cmp.Or(o.Compression, "auto"), data)
	if err != nil {
		return nil, err
	}
	if compression == "none" {
		f.size = int64(len(data))
	}
	if err = f.decompress(compression); err != nil {
		return nil, err
	}
	return f, nil
}

// smallFile is the size in bytes up to which a file is read completely. Mapping a small file costs several times as
// much as copying it within the processor's cache. The exact size was not measured.
const smallFile = 96 << 10

// start determines the kind of an open file and prepares to read it. kept: the File owns the descriptor.
func (f *File) start(fd int) (kept bool, err error) {
	compression := cmp.Or(f.options.Compression, "auto")
	now, kind, err := stat(fd)
	if err != nil {
		return false, f.ioError("", err)
	}
	switch kind {
	case unix.S_IFREG:
		return f.startRegular(fd, now, compression)
	case unix.S_IFDIR:
		return false, &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: f.location(-1), Text: "expected a file, found a directory"}
	case unix.S_IFIFO: // not reopened: its writer would get SIGPIPE between close and open
		f.file = os.NewFile(uintptr(fd), f.path)
		return true, f.startPipe(compression)
	}
	if f.file, err = os.Open(f.path); err != nil {
		return false, f.ioError("", err)
	}
	f.source = f.file
	f.options.Interrupt.setFile(f.file)
	return false, f.decompress(f.compressionByName(compression))
}

// startPipe prepares to read an open pipe.
func (f *File) startPipe(compression string) (err error) {
	if f.source, err = newPipe(f.file); err != nil {
		return f.ioError("", err)
	}
	f.options.Interrupt.setFile(f.file)
	return f.decompress(f.compressionByName(compression))
}

// startRegular reads a small file completely, maps a larger one, or prepares to read it in blocks.
func (f *File) startRegular(fd int, now fileStamp, compression string) (kept bool, err error) {
	f.openedStamp = now
	size := now.size
	unsized := size == 0 // or the file system does not know the size, as in /proc and FUSE
	readWhole := unsized && mayBeUncompressed(compression) || size <= smallFile && f.readsSmallWhole(compression)
	if readWhole {
		room := size
		if unsized {
			room = smallFile
		}
		b, err := f.pool.Get(int(room))
		if err != nil {
			return false, f.ioError("", err)
		}
		n, err := readSmall(fd, b.Bytes()[:room])
		switch {
		case err != nil || unsized && n == smallFile:
			// There may be more data, or the data before the error has to be read in blocks.
			b.Release()
			if unsized {
				size = -1
			}
		default:
			if compression, err = f.useSmall(b, n, compression); f.whole || err != nil {
				return false, err
			}
		}
	}
	if compression == "auto" {
		var head [minHead]byte
		n, err := readSmall(fd, head[:])
		if err != nil {
			return false, f.ioErrorAt(int64(n), "read", err)
		}
		if compression, err = f.resolveCompression(compression, head[:n]); err != nil {
			return false, err
		}
	}
	f.stampAtOpen = now
	if compression == "none" {
		f.size = size
		if size > 0 && f.prefersMapping(fd) {
			f.mapping, err = f.pool.Map(f.path, fd, size)
			if err == nil {
				f.data, f.fd = f.mapping.Bytes(), fd
				return true, nil
			}
			if f.options.IO == "map" {
				return false, f.ioError("map", err)
			}
		}
	}
	if err = unix.SetNonblock(fd, false); err != nil { // so that os.File does not add it to the poller
		return false, f.ioError("", err)
	}
	f.file = os.NewFile(uintptr(fd), f.path)
	f.source = f.file
	if f.options.Block > 0 && compression == "none" {
		adviseRandom(fd)
		f.source = &positioned{f.file, 0}
	}
	return true, f.decompress(compression)
}

// positioned is a file whose position is not that of its descriptor, so that a seek is not a call of the system.
type positioned struct {
	file *os.File
	at   int64
}

func (p *positioned) Read(b []byte) (int, error) {
	n, err := p.file.ReadAt(b, p.at)
	p.at += int64(n)
	if n > 0 {
		err = nil // the next Read returns it
	}
	return n, err
}

func (p *positioned) Seek(offset int64, _ int) (int64, error) {
	p.at = offset
	return offset, nil
}

// prefersMapping reports whether to map a file. On a network file system each page fault is a request to a server.
func (f *File) prefersMapping(fd int) bool {
	return f.options.IO == "map" || f.options.IO != "read" && !onNetwork(fd)
}

// readsSmallWhole reports whether a small file is read completely.
func (f *File) readsSmallWhole(compression string) bool {
	return f.options.IO != "map" && mayBeUncompressed(compression)
}

// mayBeUncompressed reports whether the requested compression permits an uncompressed file.
func mayBeUncompressed(compression string) bool {
	return compression == "auto" || compression == "none"
}

// useSmall makes b, the contents of the file, the File's data, unless they are compressed. It returns the compression.
func (f *File) useSmall(b *memory.Buffer, n int, compression string) (string, error) {
	compression, err := f.resolveCompression(compression, b.Bytes()[:n])
	if compression == "none" {
		f.block, f.data, f.size, f.whole, f.streamErr = b, b.Bytes()[:n], int64(n), true, io.EOF
	} else {
		b.Release()
	}
	return compression, err
}

// Poll returns ErrInterrupted if a long operation on the File's data should stop.
func (f *File) Poll() error { return f.options.Interrupt.Poll() }

// Interrupt returns that of Options.
func (f *File) Interrupt() *Interrupt { return f.options.Interrupt }

// Path returns the path that the File was opened with.
func (f *File) Path() string { return f.path }

// Size returns the number of bytes, or -1 if it is only known after reading the file.
func (f *File) Size() int64 { return f.size }

// OpenedStamp returns the stored size in bytes, and the time of the last change in microseconds since 1970, that a regular
// file had when it was opened; else 0.
func (f *File) OpenedStamp() (size, changed int64) {
	return f.openedStamp.size, f.openedStamp.modified.Nano() / 1000
}

// IsMapped reports whether the file is mapped.
func (f *File) IsMapped() bool { return f.mapping != nil }

// InMemory reports whether all data is available without a read, mapped or copied.
func (f *File) InMemory() bool { return f.mapping != nil || f.whole }

// IsCopy reports whether the data is a copy of the complete file.
func (f *File) IsCopy() bool { return f.whole }

// IsCompressed reports whether the file is compressed.
func (f *File) IsCompressed() bool { return f.codec != nil }

// Offset returns the offset of the current position.
func (f *File) Offset() int64 { return f.base + int64(f.at) }

// Peek returns the data from the current position on: at least n bytes, or fewer at the end of the data, which is not
// an error. The bytes are valid until the next Peek, Rewind or Close; a reference that Hold returns keeps them valid
// longer.
func (f *File) Peek(n int) ([]byte, error) {
	if len(f.data)-f.at >= n || f.mapping != nil {
		return f.data[f.at:], nil
	}
	return f.fill(n)
}

// Hold returns n references to the memory of the bytes that Peek returned, for views that begin at the position.
func (f *File) Hold(n int) *memory.Buffer {
	if f.mapping != nil {
		return f.HoldAt(int64(f.at), n)
	}
	f.block.Retain(n)
	return f.block
}

// HoldAt is Hold for views that begin at an offset of a mapped file.
func (f *File) HoldAt(offset int64, n int) *memory.Buffer {
	return f.mapping.Window(min(offset, int64(len(f.data)-1)), n)
}

// InWindow returns how many of n instances of size bytes, from an offset of a mapped file on, begin in the same window and
// can therefore share one Hold.
func InWindow(offset int64, size, n int) int {
	if size == 0 {
		return n
	}
	left := memory.WindowSize - int(offset%memory.WindowSize)
	return min(n, (left-1)/size+1)
}

// Skip moves the position over n bytes that Peek has returned.
func (f *File) Skip(n int) { f.at += n }

// fill reads until a block has at least n bytes from the position on. The size of the block depends on the bytes read so
// far, not on n alone: a damaged length must not allocate memory for data that does not exist.
func (f *File) fill(n int) ([]byte, error) {
	var stop error
	for len(f.data)-f.at < n && f.streamErr == nil && stop == nil {
		left := f.data[f.at:]
		size := max(cmp.Or(f.options.Block, blockSize), min(n, 2*len(left)))
		if rest := int(f.size-f.Offset()) + 1; rest > len(left) { // known size: one byte more finds the end
			size = min(max(size, n), rest)
		}
		b, err := f.pool.Get(size)
		if err != nil {
			return nil, err
		}
		to := b.Bytes()
		if err := f.options.Interrupt.Copy(to, left); err != nil {
			b.Release()
			return left, err
		}
		have := len(left)
		for have < size && f.streamErr == nil {
			if stop = f.Poll(); stop != nil {
				break // keep the bytes read so far
			}
			var got int
			got, f.streamErr = f.stream.Read(to[have:min(size, have+blockSize)])
			have += got
			f.compressed.Produced(got)
		}
		f.base += int64(f.at)
		f.dropBlock()
		f.block, f.data, f.at = b, to[:have], 0
	}
	b := f.data[f.at:]
	switch {
	case len(b) >= n:
	case stop != nil:
		return b, stop
	case f.streamErr != io.EOF && f.streamErr != nil:
		return b, f.streamError(f.streamErr)
	}
	return b, nil
}

func (f *File) dropBlock() {
	if f.block != nil {
		f.block.Release()
		f.block, f.data = nil, nil
	}
}

// Rewind moves the position to the beginning. A pipe can be rewound only within its first block.
func (f *File) Rewind() error {
	f.at = 0
	_, isPipe := f.source.(*pipe)
	if f.mapping != nil || f.whole || isPipe && f.base == 0 {
		return nil
	}
	f.dropBlock()
	f.data, f.base, f.streamErr = nil, 0, nil
	if _, err := f.source.Seek(0, io.SeekStart); err != nil {
		return f.ioError("rewind", err)
	}
	if f.codec != nil {
		return f.rewindCodec()
	}
	return nil
}

// SeekTo moves the position to an offset, at or before the end of the data. Compressed data is decompressed up to there,
// and a pipe is read; such a File only moves forward. An offset behind the end is an error of kind Corrupt. After
// ErrInterrupted, SeekTo can be called again.
func (f *File) SeekTo(offset int64) error {
	end := f.base + int64(len(f.data))
	switch {
	case offset >= f.base && offset <= end:
		f.at = int(offset - f.base)
		return nil
	case !f.InMemory() && f.codec == nil && f.size >= 0 && offset >= 0 && offset <= f.size:
		f.dropBlock()
		f.data, f.at, f.base, f.streamErr = nil, 0, offset, nil
		if _, err := f.source.Seek(offset, io.SeekStart); err != nil {
			return f.ioError("seek", err)
		}
		return nil
	case !f.InMemory() && offset > end:
		for f.Offset() < offset {
			b, err := f.Peek(1)
			if err != nil {
				return err
			}
			if len(b) == 0 {
				break
			}
			f.Skip(int(min(int64(len(b)), offset-f.Offset())))
		}
		if f.Offset() == offset {
			return nil
		}
		end = f.Offset()
	}
	return f.Corrupt(end, -1, "expected data up to offset %d, found the end", offset)
}

// ReadAt fills b with the bytes at an offset of a file that is not compressed and whose size is known. It does not move the
// position. Any goroutine may call it until Close.
func (f *File) ReadAt(b []byte, offset int64) error {
	n, err := 0, error(nil)
	switch source := f.source.(type) {
	case *positioned:
		n, err = source.file.ReadAt(b, offset)
	case io.ReaderAt:
		n, err = source.ReadAt(b, offset)
	default: // in memory
		if offset <= int64(len(f.data)) {
			n = copy(b, f.data[offset:])
		}
	}
	switch {
	case n == len(b):
		return nil
	case err == nil || err == io.EOF:
		return f.Corrupt(offset+int64(n), -1, "expected %d bytes, found the end of the file", len(b)-n)
	}
	return f.ioErrorAt(offset+int64(n), "read", err)
}

// Finish reads to the end of the data, where compressed files have their checksum. On a closed File it does nothing.
func (f *File) Finish() error {
	if f.InMemory() {
		return nil
	}
	for {
		b, err := f.Peek(1)
		if err != nil || len(b) == 0 {
			return err
		}
		f.Skip(len(b))
	}
}

// CheckTruncated returns an error if a mapped file has shrunk or was written to since Open, or if one of its pages cannot be
// read. Callers MUST call it after they have read data of a mapped file and before they use the result.
func (f *File) CheckTruncated() error {
	if f.mapping == nil || !f.mapping.IsTorn() {
		return nil
	}
	if tear := f.mapping.TornOf(f.fd); tear.ReadError != 0 {
		var cause error = pageFault{tear.ReadError}
		if tear.Transient { // a record with zeros may have been delivered, which no later check would find
			cause = tear.ReadError
		}
		return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: f.location(tear.Offset), Text: tear.String(), Cause: cause}
	}
	now, _, err := stat(f.fd)
	if err != nil {
		now = fileStamp{}
	}
	return f.changedError(now)
}

// CheckUnchanged returns an error if a file that is mapped or read in blocks was written to since Open. Views of a mapped
// file are then marked as torn.
func (f *File) CheckUnchanged() error {
	if f.stampAtOpen.size == 0 { // files without a size, as in /proc, do not have a useful time either
		return f.CheckTruncated()
	}
	now, err := f.stampAtOpen, error(nil)
	switch {
	case f.mapping != nil:
		now, _, err = stat(f.fd)
	case f.file != nil:
		var conn syscall.RawConn
		if conn, err = f.file.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) { now, _, err = stat(int(fd)) })
		}
	}
	if err != nil || now == f.stampAtOpen {
		return f.CheckTruncated()
	}
	if f.mapping != nil {
		f.mapping.Tear()
	}
	return f.changedError(now)
}

// pageFault is the system's error for a page of a mapped file that could not be read.
type pageFault struct{ error }

func (p pageFault) Unwrap() error { return p.error }

// IsPageFault reports whether err is about a page of a mapped file that the system cannot read. The data before that page
// is available if the file is read in blocks instead of mapped.
func IsPageFault(err error) bool {
	if err == nil { // avoids the allocation of p
		return false
	}
	var p pageFault
	return errors.As(err, &p)
}

func (f *File) changedError(now fileStamp) error {
	text := fmt.Sprintf("the file was written to while it was read: expected %v, found %v", f.stampAtOpen, now)
	if now.size < f.stampAtOpen.size {
		text = fmt.Sprintf("the file shrank while it was read: expected %d bytes, found %d", f.stampAtOpen.size, now.size)
	}
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: f.location(f.Offset()), Text: text}
}

// Close closes the file. References from Hold stay valid.
func (f *File) Close() {
	f.dropBlock()
	if f.mapping != nil {
		f.mapping.Close()
		closeFD(f.fd)
		f.mapping, f.data = nil, nil
	}
	if z, is := f.codec.(zstdReader); is {
		z.Close()
	}
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	f.streamErr, f.at = io.EOF, 0
}

func (f *File) location(offset int64) *pyfeed.Location {
	return &pyfeed.Location{File: f.path, Offset: offset, Record: -1}
}

// ioError returns an error of the operating system.
func (f *File) ioError(doing string, err error) error { return f.ioErrorAt(-1, doing, err) }

// ioErrorAt is ioError for a read at an offset.
func (f *File) ioErrorAt(offset int64, doing string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	text := err.Error()
	if doing != "" {
		text = doing + ": " + text
	}
	return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: f.location(offset), Text: text, Cause: err}
}

// streamError returns an error of the stream: of the operating system, or of the compressed data.
func (f *File) streamError(err error) error {
	if f.options.Interrupt.Stopped() {
		return ErrInterrupted
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return f.ioErrorAt(f.base+int64(len(f.data)), "read", err)
	}
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = errors.New("expected more compressed data, found the end of the file")
	}
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: f.location(f.base + int64(len(f.data))), Text: "decompressing: " + err.Error(), Cause: ErrBadCompression}
}

// Corrupt returns an error about the data at an offset, in a record. record is -1 outside of records.
func (f *File) Corrupt(offset, record int64, format string, args ...any) *pyfeed.Error {
	e := f.Errorf(pyfeed.Corrupt, offset, format, args...)
	e.At.Record = record
	return e
}

// Errorf returns an error about the file, at an offset of its decompressed data; -1: at none.
func (f *File) Errorf(kind pyfeed.Kind, offset int64, format string, args ...any) *pyfeed.Error {
	e := pyfeed.Errorf(kind, format, args...)
	e.At = f.location(offset)
	return e
}
