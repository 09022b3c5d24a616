// Package raw reads and writes files of fixed-size records: the slots of an instance one after the other, packed
// without padding, directly followed by the next instance. Examples are CIFAR-10's binary files, whose records have a
// byte and 3 × 32 × 32 bytes, and the files of numpy.ndarray.tofile. The file does not describe its records: the slots
// MUST be given, with dtypes and with dims without -1.
package raw

import (
	"math"
	"math/bits"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are the options of the format.
type Options struct {
	// ByteOrder of numbers is "little" or "big". "": "little".
	ByteOrder string `json:"byte_order"`
	// HeaderBytes at the beginning of the file are skipped. A writer fills them with zeros.
	HeaderBytes int64 `json:"header_bytes"`
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy". "": for writing, that of the file's suffix (.gz,
	// .zlib, .zst, .sz); for reading, it is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

func init() {
	record.MustRegister(record.Format{
		Tag:      "raw",
		Suffixes: []string{".raw", ".bin"},
		Options:  func() any { return new(Options) },
		Open:     Open,
		Create:   Create,
	})
}

// layout describes the position of an instance's slots in its record.
type layout struct {
	fields []field
	size   int   // of a record, in bytes
	header int64 // size of the header before the first record, in bytes
}

type field struct {
	dtype    pyfeed.DType
	dims     pyfeed.Dims
	at, size int  // offset and size in the record, in bytes
	reversed bool // the byte order of the numbers in the file is not the machine's
}

func newLayout(c *record.Config) (*layout, error) {
	o := record.OptionsFrom[Options](c)
	var big bool
	switch o.ByteOrder {
	case "", "little":
	case "big":
		big = true
	default:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "raw: byte_order: expected little or big, found %q", o.ByteOrder)
	}
	if o.HeaderBytes < 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "raw: header_bytes: expected 0 or more, found %d", o.HeaderBytes)
	}
	if len(c.Slots) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "raw: slots: expected those of an instance, because the file does not describe its records, found none")
	}
	l := &layout{header: o.HeaderBytes}
	for i, s := range c.Slots {
		if !s.DType.Valid() {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "raw: dtype: expected that of the records, found %v", s.DType)
		}
		if s.LoDLevels != 0 {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "raw: LoD: expected 0 levels, because records are of one size, found %d", s.LoDLevels)
		}
		if len(s.Dims) > pyfeed.MaxRank {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "raw: rank: expected at most %d dimensions, found %d", pyfeed.MaxRank, len(s.Dims))
		}
		size := uint64(s.DType.Size())
		for _, d := range s.Dims {
			if d < 0 {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "raw: dims: expected sizes without -1, because records are of one size, found %v", s.Dims)
			}
			high, low := bits.Mul64(size, uint64(d))
			if high != 0 || low > math.MaxInt {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "raw: dims %v of %v are more bytes than there are", s.Dims, s.DType)
			}
			size = low
		}
		if uint64(l.size)+size > math.MaxInt {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "raw: the slots are more bytes than there are")
		}
		l.fields = append(l.fields, field{
			dtype: s.DType, dims: append(pyfeed.Dims(nil), s.Dims...), at: l.size, size: int(size),
			reversed: big != record.BigEndian && s.DType.Size() > 1,
		})
		l.size += int(size)
	}
	if l.size == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "raw: slots: expected records of at least 1 byte, found dims with a size of 0")
	}
	return l, nil
}
