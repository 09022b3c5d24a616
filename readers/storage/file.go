// Package storage is the bytes of files for those who read and write formats: mapped or read in large
// blocks, decompressed by content, and written whole or not at all.
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
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// Options say how a file is read. The zero value is right for most.
type Options struct {
	// Compression is "auto" or "" (by the file's first bytes, which have to be compressed if the suffix says so), or one of
	// [compressions].
	Compression string `json:"compression"`
	// IO is "auto" or "" (mapped, unless the file system is a network's), "map" or "read".
	IO string `json:"io"`
	// Interrupt ends what takes long. nil: nothing does.
	Interrupt *Interrupt `json:"-"`
	// Pipe is the file, which is the File's then, if that is a pipe and was opened by an Alike. nil: it is to be opened.
	Pipe *os.File `json:"-"`
	// Opened is told of each File that was opened. nil: nothing is.
	Opened func(*File) `json:"-"`
}

// Check says what is wrong with the Options.
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

	data []byte // what can be seen: all of a mapped file, or the block
	at   int    // of the position, in data
	base int64  // offset of data[0]

	mapping     *memory.Mapping // of a mapped file; else:
	fd          int             // of that, as long as it is there
	file        *os.File        // nil if the bytes are in memory
	raw         io.ReadSeeker   // the file, or the bytes
	codec       codec           // nil where nothing is compressed
	compression string          // that it is for
	packed      Packed          // what it reads from
	stream      io.Reader       // of the bytes, decompressed
	pool        *memory.Pool
	block       *memory.Buffer // holds data
	whole       bool           // the block is all of the file
	end         error          // what the stream answered last: io.EOF, or why it cannot go on
	opened      stamp          // of a regular file that is mapped or read in blocks; else zero
	size        int64          // of the file; -1 if that is not known, or not that of the data
}

// blockSize is how much is read at a time where a file is not mapped.
const blockSize = 1 << 20

// Open opens a file at its beginning. Blocks that are read come from pool, which must outlive the File
// and all that was held of it.
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
		if err := f.beginPipe(cmp.Or(o.Compression, "auto")); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	fd, err := openNow(path)
	if err != nil {
		return nil, f.failed("", err)
	}
	kept, err := f.begin(fd)
	if !kept {
		closeNow(fd)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// New is a File of bytes in memory, under a name for errors: a part of another file, or a test's.
func New(name string, data []byte, o Options, pool *memory.Pool) (*File, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	f := &File{path: name, options: o, pool: pool, size: -1, raw: bytes.NewReader(data)}
	compression, err := f.tell(cmp.Or(o.Compression, "auto"), data)
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

// smallFile is the size in bytes up to which a file is read as a whole. To map one costs several times what it
// costs to copy it once more, within the cache.
const smallFile = 96 << 10

// begin takes what has been opened for what it is. It says whether it keeps the descriptor.
func (f *File) begin(fd int) (kept bool, err error) {
	compression := cmp.Or(f.options.Compression, "auto")
	if f.whileSmall(compression) {
		b, n, err := f.readUsual(fd)
		if err != nil {
			return false, f.failed("", err)
		}
		if b != nil {
			compression, err = f.take(b, n, compression)
		}
		if f.whole || err != nil {
			return false, err
		}
	}
	now, kind, err := stat(fd)
	if err != nil {
		return false, f.failed("", err)
	}
	switch kind {
	case unix.S_IFREG:
		return f.beginRegular(fd, now, compression)
	case unix.S_IFDIR:
		return false, &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: f.place(-1), Text: "expected a file, found a directory"}
	case unix.S_IFIFO: // it is opened once only, or whoever writes into it would find that nobody reads
		f.file = os.NewFile(uintptr(fd), f.path)
		return true, f.beginPipe(compression)
	}
	if f.file, err = os.Open(f.path); err != nil {
		return false, f.failed("", err)
	}
	f.raw = f.file
	f.options.Interrupt.of(f.file)
	return false, f.decompress(f.untold(compression))
}

// beginPipe begins with a pipe that is open.
func (f *File) beginPipe(compression string) (err error) {
	if f.raw, err = newPipe(f.file); err != nil {
		return f.failed("", err)
	}
	f.options.Interrupt.of(f.file)
	return f.decompress(f.untold(compression))
}

// beginRegular reads a small file, maps it, or has it read in blocks.
func (f *File) beginRegular(fd int, now stamp, compression string) (kept bool, err error) {
	size := now.size
	// A size of 0 may stand for one that the file system does not know: in /proc, and in FUSE.
	if unsized := size == 0; (unsized && asItIs(compression) || f.whileSmall(compression)) && size <= smallFile {
		learnSize(size)
		room := size
		if unsized {
			room = smallFile
		}
		b, err := f.pool.Get(int(room))
		if err != nil {
			return false, f.failed("", err)
		}
		n, err := readSmall(fd, b.Bytes()[:room])
		switch {
		case err != nil || unsized && n == smallFile:
			// There may be more, or what lies before the error is read in blocks.
			b.Release()
			if unsized {
				size = -1
			}
		default:
			if compression, err = f.take(b, n, compression); f.whole || err != nil {
				return false, err
			}
		}
	} else if f.whileSmall(compression) {
		learnSize(-1)
	}
	if compression == "auto" {
		var head [leastHead]byte
		n, err := readSmall(fd, head[:])
		if err != nil {
			return false, f.failedAt(int64(n), "read", err)
		}
		if compression, err = f.tell(compression, head[:n]); err != nil {
			return false, err
		}
	}
	f.opened = now
	if compression == "none" {
		f.size = size
		if size > 0 && f.options.IO != "read" && (f.options.IO == "map" || !onNetwork(fd)) {
			f.mapping, err = f.pool.Map(f.path, fd, size)
			if err == nil {
				f.data, f.fd = f.mapping.Bytes(), fd
				return true, nil
			}
			if f.options.IO == "map" {
				return false, f.failed("map", err)
			}
		}
	}
	if err = unix.SetNonblock(fd, false); err != nil { // or os.File would have the poller look at it
		return false, f.failed("", err)
	}
	f.file = os.NewFile(uintptr(fd), f.path)
	f.raw = f.file
	return true, f.decompress(compression)
}

// whileSmall says whether a file that is small is to be read as a whole.
func (f *File) whileSmall(compression string) bool {
	return f.options.IO != "map" && asItIs(compression)
}

// asItIs says whether a file may be one that is not compressed.
func asItIs(compression string) bool { return compression == "auto" || compression == "none" }

// take has b, which is all of a file, be what can be seen, unless it is compressed. It answers how.
func (f *File) take(b *memory.Buffer, n int, compression string) (string, error) {
	compression, err := f.tell(compression, b.Bytes()[:n])
	if compression == "none" {
		f.block, f.data, f.size, f.whole, f.end = b, b.Bytes()[:n], int64(n), true, io.EOF
	} else {
		b.Release()
	}
	return compression, err
}

// Files of one data set are often of one size. To read so many bytes and one more, and find that it is not there, is to
// know the size without asking for it.
var (
	lastSize  atomic.Int64 // of a file; -1: it was not small
	usualSize atomic.Int64 // of the last two, if they were of the same; else 0
)

func learnSize(size int64) {
	if lastSize.Swap(size) != size {
		size = 0
	}
	usualSize.Store(max(size, 0))
}

// readUsual reads a file of the usual size. It answers no buffer for any other, of which nothing is lost.
func (f *File) readUsual(fd int) (*memory.Buffer, int, error) {
	usual := int(usualSize.Load())
	if usual == 0 {
		return nil, 0, nil
	}
	b, err := f.pool.Get(usual + 1)
	if err != nil {
		return nil, 0, err
	}
	// Of a pipe, a directory, or what else has no size, nothing is read so.
	if n, err := readSmall(fd, b.Bytes()); err == nil && n == usual {
		return b, n, nil
	}
	b.Release()
	return nil, 0, nil
}

// Look is ErrInterrupted if a caller that is busy with the File's data for long should stop.
func (f *File) Look() error { return f.options.Interrupt.Look() }

// Interrupt is what Options had.
func (f *File) Interrupt() *Interrupt { return f.options.Interrupt }

// Path is what the File was opened as.
func (f *File) Path() string { return f.path }

// Size is the number of bytes, or -1 if that takes reading them.
func (f *File) Size() int64 { return f.size }

// Mapped says whether all the data can be seen without copying it.
func (f *File) Mapped() bool { return f.mapping != nil }

// Complete says whether all the data can be seen without reading, copied or not.
func (f *File) Complete() bool { return f.mapping != nil || f.whole }

// Whole says whether the data is a copy of all of the file, as it is there.
func (f *File) Whole() bool { return f.whole }

// Compressed says whether the data is decompressed.
func (f *File) Compressed() bool { return f.codec != nil }

// Offset is that of the position.
func (f *File) Offset() int64 { return f.base + int64(f.at) }

// Peek is the data from the position on: at least n bytes of it, unless it ends before. It is valid until
// the next Peek, Rewind or Close, or as long as a Hold made after it. An error is that of reading: the end of
// the data is none.
func (f *File) Peek(n int) ([]byte, error) {
	if len(f.data)-f.at >= n || f.mapping != nil {
		return f.data[f.at:], nil
	}
	return f.fill(n)
}

// Hold gives n references to the memory that what Peek answered lies in, and says that a reader keeps a
// view of it that begins at the position.
func (f *File) Hold(n int) *memory.Buffer {
	if f.mapping != nil {
		return f.HoldAt(int64(f.at), n)
	}
	f.block.Retain(n)
	return f.block
}

// HoldAt is Hold for what begins at an offset of a mapped file, wherever the position is.
func (f *File) HoldAt(offset int64, n int) *memory.Buffer {
	return f.mapping.Window(min(offset, int64(len(f.data)-1)), n)
}

// InWindow is how many of n instances of size bytes from an offset of a mapped file on begin in the same window:
// one Hold is for all of them.
func InWindow(offset int64, size, n int) int {
	if size == 0 {
		return n
	}
	left := memory.WindowSize - int(offset%memory.WindowSize)
	return min(n, (left-1)/size+1)
}

// Skip moves the position over n bytes that Peek has shown.
func (f *File) Skip(n int) { f.at += n }

// fill brings at least n bytes into a block of their own, which begins with what the old one still has. It
// takes memory for what there is, not for what somebody asks for.
func (f *File) fill(n int) ([]byte, error) {
	var stop error
	for len(f.data)-f.at < n && f.end == nil && stop == nil {
		left := f.data[f.at:]
		size := max(blockSize, min(n, 2*len(left)))
		if rest := int(f.size-f.Offset()) + 1; rest > len(left) { // it is known: all that is asked for, and one to come to the end
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
		for have < size && f.end == nil {
			if stop = f.Look(); stop != nil {
				break // with what has come
			}
			var got int
			got, f.end = f.stream.Read(to[have:min(size, have+blockSize)])
			have += got
			f.packed.Gave(got)
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
	case f.end != io.EOF && f.end != nil:
		return b, f.broken(f.end)
	}
	return b, nil
}

func (f *File) dropBlock() {
	if f.block != nil {
		f.block.Release()
		f.block, f.data = nil, nil
	}
}

// Rewind goes back to the beginning. In a pipe that takes that it is in memory still.
func (f *File) Rewind() error {
	f.at = 0
	_, isPipe := f.raw.(*pipe)
	if f.mapping != nil || f.whole || isPipe && f.base == 0 {
		return nil
	}
	f.dropBlock()
	f.data, f.base, f.end = nil, 0, nil
	if _, err := f.raw.Seek(0, io.SeekStart); err != nil {
		return f.failed("rewind", err)
	}
	if f.codec != nil {
		return f.rewindCodec()
	}
	return nil
}

// Finish goes to the end of the data, whatever of it was used: the checksum of what is compressed is there. Of a File that is
// closed there is nothing more to know.
func (f *File) Finish() error {
	if f.Complete() {
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

// Intact is an error if a mapped file was found to be shorter than it was when it was opened, to have been written to, or
// to have a page that cannot be read. What was read of it MUST be checked so before it is believed.
func (f *File) Intact() error {
	if f.mapping == nil || !f.mapping.IsTorn() {
		return nil
	}
	if tear := f.mapping.TornOf(f.fd); tear.Refused != 0 {
		var cause error = pageFault{tear.Refused}
		if tear.Passed { // a record with zeros may have been delivered, which nothing would find
			cause = tear.Refused
		}
		return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: f.place(tear.From), Text: tear.String(), Cause: cause}
	}
	now, _, err := stat(f.fd)
	if err != nil {
		now = stamp{}
	}
	return f.changed(now)
}

// Unchanged is an error if a file that is mapped, or read in blocks, was written to since it was opened. What is held of one
// that is mapped is then found torn.
func (f *File) Unchanged() error {
	if f.opened.size == 0 { // what has no size, as in /proc, says nothing by its time either
		return f.Intact()
	}
	now, err := f.opened, error(nil)
	switch {
	case f.mapping != nil:
		now, _, err = stat(f.fd)
	case f.file != nil:
		var conn syscall.RawConn
		if conn, err = f.file.SyscallConn(); err == nil {
			_ = conn.Control(func(fd uintptr) { now, _, err = stat(int(fd)) })
		}
	}
	if err != nil || now == f.opened {
		return f.Intact()
	}
	if f.mapping != nil {
		f.mapping.Tear()
	}
	return f.changed(now)
}

// pageFault is the system's error where a page of a mapped file could not be read.
type pageFault struct{ error }

func (p pageFault) Unwrap() error { return p.error }

// IsPageFault says whether an error is that of a page of a mapped file that still cannot be read. What lies before it in
// the file is all there if the file is read instead, up to the same error.
func IsPageFault(err error) bool {
	if err == nil { // p is allocated
		return false
	}
	var p pageFault
	return errors.As(err, &p)
}

func (f *File) changed(now stamp) error {
	text := fmt.Sprintf("the file was written to while it was read: expected %v, found %v", f.opened, now)
	if now.size < f.opened.size {
		text = fmt.Sprintf("the file shrank while it was read: expected %d bytes, found %d", f.opened.size, now.size)
	}
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: f.place(f.Offset()), Text: text}
}

// Close lets go of the file. What is held of it stays.
func (f *File) Close() {
	f.dropBlock()
	if f.mapping != nil {
		f.mapping.Close()
		closeNow(f.fd)
		f.mapping, f.data = nil, nil
	}
	if z, is := f.codec.(zstdReader); is {
		z.Close()
	}
	if f.file != nil {
		f.file.Close()
		f.file = nil
	}
	f.end, f.at = io.EOF, 0
}

func (f *File) place(offset int64) *pyfeed.Location {
	return &pyfeed.Location{File: f.path, Offset: offset, Record: -1}
}

// failed is an error of the operating system.
func (f *File) failed(doing string, err error) error { return f.failedAt(-1, doing, err) }

// failedAt is failed for what was to be read at an offset.
func (f *File) failedAt(offset int64, doing string, err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		err = p.Err
	}
	text := err.Error()
	if doing != "" {
		text = doing + ": " + text
	}
	return &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, At: f.place(offset), Text: text, Cause: err}
}

// broken is an error of the stream: the operating system's, or of what was compressed.
func (f *File) broken(err error) error {
	if f.options.Interrupt.Stopped() {
		return ErrInterrupted
	}
	var p *fs.PathError
	if errors.As(err, &p) {
		return f.failedAt(f.base+int64(len(f.data)), "read", err)
	}
	if err == io.ErrUnexpectedEOF || err == io.EOF {
		err = errors.New("expected more compressed data, found the end of the file")
	}
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: f.place(f.base + int64(len(f.data))), Text: "decompressing: " + err.Error(), Cause: ErrPacked}
}

// Corrupt is an error about what the data holds at an offset, and in which record, -1 if in none.
func (f *File) Corrupt(offset, record int64, format string, args ...any) *pyfeed.Error {
	return &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, Text: fmt.Sprintf(format, args...),
		At: &pyfeed.Location{File: f.path, Offset: offset, Record: record}}
}
