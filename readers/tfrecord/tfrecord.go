// Package tfrecord reads and writes TFRecord files: records as bytes, or tf.train.Example messages by a
// specification of their features.
//
// A file is a run of records, each of which is
//
//	length      uint64, little-endian
//	masked CRC  uint32 of the 8 bytes of the length
//	data        length bytes
//	masked CRC  uint32 of the data
//
// where a CRC is CRC-32C and masked ((c>>15 | c<<17) + 0xa282ead8): tensorflow/core/lib/io/record_writer.h. Both
// are checked for every record. Whole files may be compressed, by gzip or zlib.
//
// A tf.train.SequenceExample is refused where features are asked for: read its records as bytes.
package tfrecord

import (
	"hash/crc32"
	"math/bits"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Options are what the format can be told.
type Options struct {
	// Features of a tf.train.Example become the slots, in this order. Without them there is one slot,
	// "record", of bytes.
	Features []Feature `json:"features"`
	// Compression is "none", "gzip" or "zlib". "" writes as the file's name says (.gz, .zlib), and reads by what the file
	// begins with.
	Compression string `json:"compression"`
}

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

// crc is the masked CRC of data. It goes by pieces, between which Go's scheduler and collector can get in.
func crc(data []byte) uint32 {
	const piece = 1 << 20
	c := uint32(0)
	for len(data) > piece {
		c = crc32.Update(c, castagnoli, data[:piece])
		data = data[piece:]
	}
	return mask(crc32.Update(c, castagnoli, data))
}

func mask(c uint32) uint32 { return bits.RotateLeft32(c, -15) + 0xa282ead8 }

// lengthTable[i][b] is what byte i of a length, with the value b, adds to the CRC of a length of 0. The CRC is
// linear, and with the short lengths that most records have it takes but a few of the tables: half the time of
// the processor's instruction behind a call.
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

// lengthCRC is the masked CRC of the 8 bytes of a length.
func lengthCRC(n uint64) uint32 {
	c := zeroLength ^ lengthTable[0][byte(n)] ^ lengthTable[1][byte(n>>8)]
	for i := 2; n>>(8*i) != 0 && i < 8; i++ {
		c ^= lengthTable[i][byte(n>>(8*i))]
	}
	return mask(c)
}

// recordName is that of the one slot of records that are not parsed.
const recordName = "record"

// settle are the Options of a Config, checked, and the storage's with what they say.
func settle(c *record.Config) (Options, storage.Options, error) {
	o := *record.OptionsOf[Options](c)
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
