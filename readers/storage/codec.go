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

// compressions are what a caller can say of a file that is read. "snappy-skippable" is snappy's framing whose chunks of
// types that no writer emits are passed over, as its specification permits.
var compressions = []string{"none", "gzip", "zlib", "zstd", "snappy", skippable}

const (
	skippable   = "snappy-skippable"
	snappyMagic = "\xff\x06\x00\x00sNaPpY" // the chunk that a stream begins with
)

func alternatives(all []string) string {
	last := len(all) - 1
	return strings.Join(all[:last], ", ") + " or " + all[last]
}

// ByName is the compression that the end of a file's name stands for; "none" if it stands for none.
func ByName(path string) string {
	switch strings.ToLower(filepath.Ext(path)) {
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

// sniff tells how data is compressed by how it begins. A zlib stream has too little in front to be told so.
func sniff(data []byte) string {
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

// tell is how the file is compressed that begins with head: as it was said, or by its first bytes. If the name says that it
// is compressed and the bytes are not, it is damaged: it is never taken for what it would be without the suffix.
func (f *File) tell(said string, head []byte) (string, error) {
	if said != "auto" {
		return said, nil
	}
	found := sniff(head)
	if found != "none" {
		return found, nil
	}
	named := ByName(f.path)
	switch {
	case named == "none",
		named == "zlib" && beginsZlib(head),
		named == "zstd" && beginsSkippable(head):
		return named, nil
	}
	what := "an empty file"
	if len(head) > 0 {
		what = fmt.Sprintf("the bytes % x", head[:min(len(head), 4)])
	}
	return named, f.Corrupt(0, -1, "expected %s data, as the suffix %s says, found %s (compression \"none\" reads the file as it is)",
		named, filepath.Ext(f.path), what)
}

// untold is how a file is compressed that cannot be looked into: as it was said, or by its name.
func (f *File) untold(said string) string {
	if said == "auto" {
		return ByName(f.path)
	}
	return said
}

// beginsZlib says whether a zlib stream may begin so.
func beginsZlib(b []byte) bool {
	return len(b) >= 2 && b[0]&0x0f == 8 && b[0]>>4 <= 7 && (int(b[0])<<8|int(b[1]))%31 == 0
}

// beginsSkippable says whether a skippable frame of zstd begins so: some programs write one before the first frame of data.
func beginsSkippable(b []byte) bool {
	return len(b) >= 4 && b[0]&0xf0 == 0x50 && bytes.Equal(b[1:4], []byte("\x2a\x4d\x18"))
}

// ErrPacked is the cause of damage in what a whole file is compressed to.
var ErrPacked = errors.New("damage in compressed data")

// decompress has a stream of the data, which begins as the file does.
func (f *File) decompress(compression string) error {
	f.stream = f.raw
	if compression == "none" {
		return nil
	}
	f.compression, f.codec = compression, codecs[compression]()
	return f.rewindCodec()
}

func (f *File) rewindCodec() error {
	f.packed = f.options.Interrupt.Packed(f.raw)
	from := bufio.NewReaderSize(&f.packed, 256<<10) // the codecs read small pieces
	_, err := from.Peek(1)
	if err == io.EOF { // some codecs take nothing for an empty stream: a failed download would be an empty data set
		err = errors.New("expected " + f.compression + " data, found an empty file")
	}
	if err == nil {
		err = f.codec.Reset(from)
	}
	if err != nil {
		f.end = err
		return f.broken(err)
	}
	f.stream = f.codec
	return nil
}

// A codec decompresses; Reset begins anew.
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

// gzipReader reads streams that follow one another as one.
type gzipReader struct{ gzip.Reader }

func (g *gzipReader) Reset(from *bufio.Reader) error { return g.Reader.Reset(from) }

// zlibReader reads streams that follow one another as one, as gzipReader does. It reads no byte behind the last.
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
	return n, unended(err)
}

// unended makes the end of a file within a stream an error.
func unended(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// zstdReader holds a decoder with no goroutines of its own and a bound on what a frame may ask for.
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

// snappyChunks gives the chunks of the framing format on, of types that writers emit: a reader passes over any of 0x80 to
// 0xfe, so that one bit that was flipped in the type of a chunk would have its data disappear.
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

// writesAs is the compression of a file that is written: as it was said, or as the name says. A name that says another
// would have the file refused when it is read.
func writesAs(path, said string) (string, error) {
	named := ByName(path)
	switch {
	case said == "" || said == "auto":
		return named, nil
	case named != "none" && said != named:
		return "", pyfeed.Errorf(pyfeed.Invalid, "compression: expected %s, as the suffix %s of %s says, found %q", named, filepath.Ext(path), path, said)
	}
	return said, nil
}
