package storage

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// compressions are the values of the option compression for reading. "snappy-skippable" is snappy's framing format in
// which chunks of skippable types are permitted. The specification permits them, but no writer emits them.
var compressions = []string{"none", "gzip", "zlib", "zstd", "snappy", skippable}

const (
	skippable   = "snappy-skippable"
	snappyMagic = "\xff\x06\x00\x00sNaPpY" // the chunk that a stream begins with
)

func alternatives(all []string) string {
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// CutShardNumber returns a path without the number of a shard at its end, which TensorFlow writes after the suffix:
// "-00000-of-00005".
func CutShardNumber(path string) string {
	cutNumber := func(s string) (before string, cut bool) {
		before = strings.TrimRight(s, "0123456789")
		return before, before != s
	}
	count, counted := cutNumber(path)
	number, of := strings.CutSuffix(count, "-of-")
	before, numbered := cutNumber(number)
	before, dash := strings.CutSuffix(before, "-")
	if counted && of && numbered && dash {
		return before
	}
	return path
}

// suffixOf returns the suffix of a path, with its dot.
func suffixOf(path string) string { return filepath.Ext(CutShardNumber(path)) }

// ByName returns the compression that a file's suffix stands for, or "none".
func ByName(path string) string {
	switch strings.ToLower(suffixOf(path)) {
	case ".gz", ".tgz":
		return "gzip"
	case ".zst":
		return "zstd"
	case ".sz":
		return "snappy"
	case ".zlib":
		return "zlib"
	}
	return "none"
}

// detectCompression returns the compression that the first bytes of data show. A zlib header is too short to be recognized.
func detectCompression(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x1f\x8b\x08")):
		return "gzip"
	case bytes.HasPrefix(data, []byte("\x28\xb5\x2f\xfd")):
		return "zstd"
	case bytes.HasPrefix(data, []byte(snappyMagic)):
		return "snappy"
	}
	return "none"
}

// resolveCompression returns the requested compression of a file. If that is "auto", it returns the one that the first
// bytes, head, show. A file is damaged if its suffix stands for a compression but its bytes are not compressed; it is
// never read uncompressed.
func (f *File) resolveCompression(requested string, head []byte) (string, error) {
	if requested != "auto" {
		return requested, nil
	}
	detected := detectCompression(head)
	if detected != "none" {
		return detected, nil
	}
	bySuffix := ByName(f.path)
	switch {
	case bySuffix == "none",
		bySuffix == "zlib" && beginsZlib(head),
		bySuffix == "zstd" && beginsSkippable(head):
		return bySuffix, nil
	}
	what := "an empty file"
	if len(head) > 0 {
		what = fmt.Sprintf("the bytes % x", head[:min(len(head), 4)])
	}
	return bySuffix, f.Corrupt(0, -1, "expected %s data, as the suffix %s says, found %s (compression \"none\" reads the file as it is)",
		bySuffix, suffixOf(f.path), what)
}

// compressionByName returns the requested compression of a file that cannot be peeked into, or else that of its suffix.
func (f *File) compressionByName(requested string) string {
	if requested == "auto" {
		return ByName(f.path)
	}
	return requested
}

// beginsZlib reports whether a zlib stream may begin with b.
func beginsZlib(b []byte) bool {
	return len(b) >= 2 && b[0]&0x0f == 8 && b[0]>>4 <= 7 && (int(b[0])<<8|int(b[1]))%31 == 0
}

// beginsSkippable reports whether b begins with a skippable frame of zstd. Some programs write one before the data.
func beginsSkippable(b []byte) bool {
	return len(b) >= 4 && b[0]&0xf0 == 0x50 && bytes.Equal(b[1:4], []byte("\x2a\x4d\x18"))
}

// ErrBadCompression is the cause of errors about damaged compressed files.
var ErrBadCompression = errors.New("damage in compressed data")

// decompress sets stream, the decompressed data, at its beginning.
func (f *File) decompress(compression string) error {
	f.stream = f.source
	if compression == "none" {
		return nil
	}
	f.compression, f.codec = compression, codecs[compression]()
	return f.rewindCodec()
}

func (f *File) rewindCodec() error {
	f.compressed = f.options.Interrupt.CompressedInput(f.source)
	from := bufio.NewReaderSize(&f.compressed, 256<<10) // the codecs read small pieces
	_, err := from.Peek(1)
	if err == io.EOF { // some codecs accept an empty file, which may be a failed download
		err = errors.New("expected " + f.compression + " data, found an empty file")
	}
	if err == nil {
		err = f.codec.Reset(from)
	}
	if err != nil {
		f.streamErr = err
		return f.streamError(err)
	}
	f.stream = f.codec
	return nil
}

// A codec decompresses. Reset starts over with new input.
type codec interface {
	io.Reader
	Reset(*bufio.Reader) error
}

var codecs = map[string]func() codec{
	"gzip":    func() codec { return new(gzipReader) },
	"zlib":    func() codec { return new(zlibReader) },
	"zstd":    func() codec { return newZstd() },
	"snappy":  func() codec { return newSnappy(false) },
	skippable: func() codec { return newSnappy(true) },
}

// gzipReader reads concatenated streams as one.
type gzipReader struct{ gzip.Reader }

func (g *gzipReader) Reset(from *bufio.Reader) error { return g.Reader.Reset(from) }

// zlibReader reads concatenated streams as one, as gzipReader does. It reads no byte after the last stream.
type zlibReader struct {
	from   *bufio.Reader
	stream io.ReadCloser
}

func (z *zlibReader) Reset(from *bufio.Reader) (err error) {
	z.from = from
	return z.next()
}

func (z *zlibReader) next() (err error) {
	if z.stream == nil {
		z.stream, err = zlib.NewReader(z.from)
		return err
	}
	return z.stream.(zlib.Resetter).Reset(z.from, nil)
}

func (z *zlibReader) Read(b []byte) (int, error) {
	n, err := z.stream.Read(b)
	if err != io.EOF {
		return n, err
	}
	switch _, err = z.from.Peek(1); {
	case err == nil:
		if err = z.next(); errors.Is(err, zlib.ErrHeader) {
			err = errors.New("expected the end of the file or another zlib stream behind one, found something else")
		}
	case err != io.EOF:
		return n, err
	default:
		return n, io.EOF
	}
	return n, asUnexpectedEOF(err)
}

// asUnexpectedEOF returns io.ErrUnexpectedEOF for the end of a file within a stream.
func asUnexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zstdReader holds a decoder without goroutines of its own. The window, and so its memory, is bounded.
type zstdReader struct{ *zstd.Decoder }

func newZstd() zstdReader {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(512<<20), zstd.WithDecoderLowmem(true))
	if err != nil { // of the options, which are constant
		panic(err)
	}
	return zstdReader{d}
}

func (z zstdReader) Reset(from *bufio.Reader) error { return z.Decoder.Reset(from) }

// snappyReader reads the framing format of snappy.
type snappyReader struct {
	*s2.Reader
	chunks snappyChunks
}

func newSnappy(skip bool) *snappyReader {
	return &snappyReader{s2.NewReader(nil, s2.ReaderMaxBlockSize(1<<20)), snappyChunks{skip: skip}}
}

func (s *snappyReader) Reset(from *bufio.Reader) error {
	s.chunks.from, s.chunks.left = from, 0
	s.Reader.Reset(&s.chunks)
	return nil
}

// snappyChunks passes on the chunks whose types writers emit, and refuses others. Decoders skip any chunk of types 0x80 to
// 0xfe, so a flipped bit in a chunk's type would silently drop its data.
type snappyChunks struct {
	from *bufio.Reader
	left int // bytes of the chunk
	skip bool
}

const (
	snappyData   = 0x01 // the last type of a chunk with data
	snappyStream = 0xff // the type of a chunk that begins a stream
)

func (c *snappyChunks) Read(b []byte) (int, error) {
	if c.left == 0 {
		head, err := c.from.Peek(4)
		if len(head) == 0 {
			return 0, err
		}
		if kind := head[0]; kind > snappyData && kind < snappyStream && !c.skip {
			return 0, fmt.Errorf("expected a chunk of snappy's framing of type 0x00, 0x01 or 0xff, found %#02x (compression %q passes over types from 0x80 on)",
				kind, skippable)
		}
		if c.left = len(head); len(head) == 4 {
			c.left += int(head[1]) | int(head[2])<<8 | int(head[3])<<16
		}
	}
	n, err := c.from.Read(b[:min(len(b), c.left)])
	c.left -= n
	return n, err
}

// writeCompression returns the compression to write a file with: the requested one, or that of its suffix. A suffix that
// stands for another compression is an error, since readers would refuse the file.
func writeCompression(path, requested string) (string, error) {
	bySuffix := ByName(path)
	switch {
	case requested == "" || requested == "auto":
		return bySuffix, nil
	case bySuffix != "none" && requested != bySuffix:
		return "", pyfeed.Errorf(pyfeed.Invalid, "compression: expected %s, as the suffix %s of %s says, found %q", bySuffix, suffixOf(path), path, requested)
	}
	return requested, nil
}
