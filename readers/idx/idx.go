// Package idx reads and writes IDX files, like those of the MNIST database of handwritten digits: one array, whose rows
// along the first dimension are the instances.
//
// The format is specified at http://yann.lecun.com/exdb/mnist: two zero bytes, the type of the elements, the number of
// dimensions, each dimension as a big-endian uint32, and the elements, big-endian, with the last dimension varying
// fastest.
package idx

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Options are the options of the format.
type Options struct {
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy". "": for writing, that of the file's suffix (.gz,
	// .zlib, .zst, .sz); for reading, it is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

func init() {
	record.MustRegister(record.Format{
		Tag:      "idx",
		Suffixes: []string{".idx", "-idx1-ubyte", "-idx2-ubyte", "-idx3-ubyte", ".idx1-ubyte", ".idx2-ubyte", ".idx3-ubyte"},
		Options:  func() any { return new(Options) },
		Open:     Open,
		Create:   Create,
	})
}

// types are the dtypes by their numbers in the file.
var types = map[byte]pyfeed.DType{
	0x08: pyfeed.Uint8,
	0x09: pyfeed.Int8,
	0x0B: pyfeed.Int16,
	0x0C: pyfeed.Int32,
	0x0D: pyfeed.Float32,
	0x0E: pyfeed.Float64,
}

func typeOf(d pyfeed.DType) (byte, bool) {
	for number, dtype := range types {
		if dtype == d {
			return number, true
		}
	}
	return 0, false
}

// megatronMagic begins another kind of file with the suffix .idx.
const megatronMagic = "MMIDIDX\x00\x00"

const names = "uint8, int8, int16, int32, float32 or float64"

// header is the part of a file before its elements.
type header struct {
	dtype pyfeed.DType
	count int64       // of instances
	dims  pyfeed.Dims // of an instance
	size  int         // of an instance, in bytes
}

// headerSize is the size of the header, in bytes, of an array of so many dimensions.
func headerSize(rank int) int { return 4 + 4*rank }

// dataOffset is the offset of the first instance.
func (h *header) dataOffset() int64 { return int64(headerSize(1 + len(h.dims))) }

// readHeader parses the header and moves the position to the first instance.
func readHeader(f *storage.File) (*header, error) {
	b, err := f.Peek(4)
	if len(b) < 4 {
		if err == nil {
			err = f.Corrupt(0, -1, "expected a header of 4 bytes and more, found %d", len(b))
		}
		return nil, err
	}
	if magic, err := f.Peek(len(megatronMagic)); err == nil && bytes.HasPrefix(magic, []byte(megatronMagic)) {
		return nil, f.Corrupt(0, -1, "expected two zero bytes, with which an idx file begins, found the index of tokens of Megatron-LM: "+
			"the format \"tokens\" reads it")
	}
	dtype, known := types[b[2]]
	if b[0] != 0 || b[1] != 0 {
		return nil, f.Corrupt(0, -1, "expected two zero bytes, with which an idx file begins, found %#02x %#02x", b[0], b[1])
	}
	if !known {
		return nil, f.Corrupt(2, -1, "expected a type of 0x08, 0x09, 0x0b, 0x0c, 0x0d or 0x0e, found %#02x", b[2])
	}
	rank := int(b[3])
	if rank < 1 || rank > pyfeed.MaxRank+1 {
		return nil, f.Corrupt(3, -1, "expected 1 to %d dimensions, the first of them the instances, found %d", pyfeed.MaxRank+1, rank)
	}
	length := headerSize(rank)
	if b, err = f.Peek(length); len(b) < length {
		if err == nil {
			err = f.Corrupt(0, -1, "expected a header of %d bytes, for %d dimensions, found %d", length, rank, len(b))
		}
		return nil, err
	}
	h := &header{dtype: dtype, count: int64(binary.BigEndian.Uint32(b[4:]))}
	size, over := uint64(dtype.Size()), false
	for i := 1; i < rank; i++ {
		d := binary.BigEndian.Uint32(b[4+4*i:])
		h.dims = append(h.dims, int64(d))
		high, low := bits.Mul64(size, uint64(d))
		over = over || high != 0 || low > math.MaxInt
		size = low
	}
	if over {
		return nil, f.Corrupt(4, -1, "expected dimensions that memory can hold, found %v of %v an instance", h.dims, dtype)
	}
	if size == 0 && h.count > 0 {
		return nil, f.Corrupt(8, -1, "expected instances with elements, found %d of dims %v", h.count, h.dims)
	}
	h.size = int(size)
	f.Skip(length)
	return h, nil
}

// bytes returns the header as it is stored in a file.
func (h *header) bytes() []byte {
	number, _ := typeOf(h.dtype)
	b := []byte{0, 0, number, byte(1 + len(h.dims))}
	b = binary.BigEndian.AppendUint32(b, uint32(h.count))
	for _, d := range h.dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return b
}

func (h *header) slot() pyfeed.Slot {
	return pyfeed.Slot{DType: h.dtype, Dims: slices.Clone(h.dims)}
}
