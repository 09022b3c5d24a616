// Package tfrecord reads and writes TFRecord files. Records are bytes, or tf.train.Example or tf.train.SequenceExample
// messages whose features are specified.
//
// A file is a sequence of records. Each record is
//
//	length      uint64, little-endian
//	masked CRC  uint32 of the 8 bytes of the length
//	data        length bytes
//	masked CRC  uint32 of the data
//
// A CRC is CRC-32C; masked is ((c>>15 | c<<17) + 0xa282ead8), as in tensorflow/core/lib/io/record_writer.h. Both CRCs
// of every record are checked. A whole file may be compressed by gzip or zlib.
//
// The records are tf.train.SequenceExamples if any feature says in which part of them it is.
package tfrecord

import (
	"hash/crc32"
	"math/bits"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Options are the options of the format.
type Options struct {
	// Features of a tf.train.Example or tf.train.SequenceExample become the slots, in this order. Without Features there
	// is one slot of bytes, "record".
	Features Features `json:"features"`
	// Compression is "none", "gzip" or "zlib". "": for writing, that of the file's suffix (.gz, .zlib); for reading, it
	// is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

// Check implements record.OptionsChecker.
func (o *Options) Check() error {
	if o.Features == nil {
		return nil
	}
	_, err := newPlan(o.Features)
	return err
}

// ForIndex implements record.IndexOptions: the features do not decide where records are.
func (o *Options) ForIndex() any { return &Options{Compression: o.Compression} }

func init() {
	record.MustRegister(record.Format{
		Tag:      "tfrecord",
		Suffixes: []string{".tfrecord", ".tfrecords", ".tfrec"},
		Options:  func() any { return new(Options) },
		Open:     Open,
		Create:   Create,
	})
}

const (
	headerSize = 12 // of a length and its CRC
	footerSize = 4  // of the data's CRC
	frameSize  = headerSize + footerSize
	maxLength  = 1 << 40 // of a record, in bytes: no machine could hold more
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc returns the masked CRC of data. It works in pieces, so that Go's scheduler and collector can run in between.
func crc(data []byte) uint32 {
	const piece = 1 << 20
	c := uint32(0)
	for len(data) > piece {
		c = crc32.Update(c, castagnoli, data[:piece])
		data = data[piece:]
	}
	return mask(crc32.Update(c, castagnoli, data))
}

const maskDelta = 0xa282ead8

func mask(c uint32) uint32 { return bits.RotateLeft32(c, -15) + maskDelta }

func unmask(c uint32) uint32 { return bits.RotateLeft32(c-maskDelta, 15) }

// lengthTable[i][b] is what byte i of a length, with the value b, adds to the CRC of a length of 0. The CRC is linear.
// The short lengths of most records need only a few of the tables. This takes half the time of a function call with the
// processor's CRC instruction.
var lengthTable [8][256]uint32

var zeroLength = crc32.Checksum(make([]byte, 8), castagnoli)

func init() {
	var b [8]byte
	for i := range lengthTable {
		for v := range lengthTable[i] {
			b[i] = byte(v)
			lengthTable[i][v] = crc32.Checksum(b[:], castagnoli) ^ zeroLength
		}
		b[i] = 0
	}
}

// lengthCRC returns the masked CRC of the 8 bytes of a length.
func lengthCRC(n uint64) uint32 {
	c := zeroLength ^ lengthTable[0][byte(n)] ^ lengthTable[1][byte(n>>8)]
	for i := 2; n>>(8*i) != 0 && i < 8; i++ {
		c ^= lengthTable[i][byte(n>>(8*i))]
	}
	return mask(c)
}

// recordName is the name of the slot of records that are not parsed.
const recordName = "record"

// resolveOptions returns the checked Options of a Config, and the storage options with their compression.
func resolveOptions(c *record.Config) (Options, storage.Options, error) {
	o := *record.OptionsFrom[Options](c)
	s := c.Storage
	switch o.Compression {
	case "", "none", "gzip", "zlib":
	default:
		return o, s, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none, gzip or zlib, found %q", o.Compression)
	}
	if o.Compression != "" && (s.Compression == "" || s.Compression == "auto") {
		s.Compression = o.Compression
	}
	return o, s, nil
}
