package parquet

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/dsnet/compress/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/pyfeed/pyfeed/readers/storage"
)

// The compressions of pages.
const (
	codecNone   = 0
	codecSnappy = 1
	codecGzip   = 2
	codecLZO    = 3
	codecBrotli = 4
	codecLZ4    = 5 // with the frames of Hadoop, or without them
	codecZstd   = 6
	codecLZ4Raw = 7
)

var codecNames = []string{"UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"}

func codecName(codec int32) string { return nameOf("codec", codecNames, codec) }

// supported reports whether pages of a codec can be read.
func supported(codec int32) bool {
	return codec >= 0 && int(codec) < len(codecNames) && codec != codecLZO
}

// errRoom is the error that decompressed data is larger than the memory for it.
var errRoom = errors.New("expected less decompressed data, found more")

// decompress decompresses a page into to, which it fills exactly. It returns errRoom, or errLZ4, if the data is
// larger than to.
func decompress(codec int32, to, from []byte, poll func() error) error {
	n, err := 0, error(nil)
	switch codec {
	case codecSnappy:
		if n, err = s2.DecodedLen(from); err == nil && n > len(to) {
			return errRoom
		}
		if err == nil && n == len(to) {
			var got []byte
			if got, err = s2.Decode(to, from); err == nil {
				n = len(got)
			}
		}
	case codecZstd:
		n, err = decompressZstd(to, from)
	case codecGzip:
		n, err = decompressGzip(to, from, poll)
	case codecBrotli:
		var r *brotli.Reader
		if r, err = brotli.NewReader(bytes.NewReader(from), nil); err == nil {
			n, err = readFull(to, r, poll)
		}
	case codecLZ4Raw:
		n, err = decompressLZ4(to, from)
	case codecLZ4:
		n, err = decompressHadoop(to, from, poll)
	default:
		return fmt.Errorf("expected a known codec, found %s", codecName(codec))
	}
	if err == nil && n != len(to) {
		err = fmt.Errorf("expected %d bytes of decompressed data, found %d", len(to), n)
	}
	return err
}

// readFull reads until to is full or the data ends, and checks that it ends then.
func readFull(to []byte, from io.Reader, poll func() error) (n int, err error) {
	for n < len(to) {
		if err := poll(); err != nil {
			return n, err
		}
		k, err := from.Read(to[n:min(len(to), n+storage.PollEvery)])
		n += k
		if err == io.EOF {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
	var more [1]byte
	switch k, err := from.Read(more[:]); {
	case k > 0:
		return n, errRoom
	case err != io.EOF && err != nil:
		return n, err
	}
	return n, nil
}

// zstdDecoders are decoders that no page uses. They have no goroutines.
var zstdDecoders = sync.Pool{New: func() any {
	d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
	if err != nil { // of the options, which are constant
		panic(err)
	}
	return d
}}

func decompressZstd(to, from []byte) (int, error) {
	d := zstdDecoders.Get().(*zstd.Decoder)
	defer zstdDecoders.Put(d)
	got, err := d.DecodeAll(from, to[:0:len(to)])
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) {
		err = errRoom
	}
	return len(got), err
}

// gzipReader is a decoder that no page uses.
type gzipReader struct {
	gzip.Reader
	from   bytes.Reader
	buffer bufio.Reader
}

var gzipReaders = sync.Pool{New: func() any { return new(gzipReader) }}

func decompressGzip(to, from []byte, poll func() error) (int, error) {
	g := gzipReaders.Get().(*gzipReader)
	defer gzipReaders.Put(g)
	g.from.Reset(from)
	defer g.from.Reset(nil)
	if err := g.Reset(&g.from); err != nil {
		return 0, err
	}
	return readFull(to, &g.Reader, poll)
}

// errLZ4 is the error that a block of LZ4 is damaged, or that its data is larger than the memory for it.
var errLZ4 = errors.New("expected a block of LZ4 with the data of the page, found something else")

func decompressLZ4(to, from []byte) (int, error) {
	n, err := lz4.UncompressBlock(from, to)
	if err != nil {
		return 0, errLZ4
	}
	return n, nil
}

// decompressHadoop decodes blocks of LZ4 that each follow their two sizes, as Hadoop's codec writes them. Some writers
// use the codec for a single block without sizes.
func decompressHadoop(to, from []byte, poll func() error) (int, error) {
	out, at := 0, 0
	for at < len(from) {
		if len(from)-at < 8 {
			break
		}
		size := int(binary.BigEndian.Uint32(from[at:]))
		packed := int(binary.BigEndian.Uint32(from[at+4:]))
		if packed > len(from)-at-8 || size > len(to)-out {
			break
		}
		n, err := decompressLZ4(to[out:out+size], from[at+8:][:packed])
		if err != nil || n != size {
			break
		}
		if err := poll(); err != nil {
			return out, err
		}
		out += n
		at += 8 + packed
	}
	if at == len(from) && at > 0 {
		return out, nil
	}
	return decompressLZ4(to, from)
}
