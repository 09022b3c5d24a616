// Package recordio reads and writes RecordIO files of both layouts there are: that of the Go library
// (PaddlePaddle/recordio) and that of the C++ one inside Fluid 0.12 to 1.5. A file is a run of chunks, each
// with a checksum of its own; the layouts share the magic number that a chunk begins with and the way records
// lie in it, and differ in the header and in what they call snappy.
package recordio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

func init() {
	record.MustRegister(record.Format{
		Tag:      "recordio",
		Suffixes: []string{".recordio", ".rio"},
		Options:  func() any { return new(Options) },
		Open:     Open,
		Create:   Create,
	})
}

// Options are what the format can be told. The zero value is right for most.
type Options struct {
	// Records is what a record holds: "tensors", as Fluid wrote them, a slot each; "bytes", whatever they
	// are, in one slot of uint8; "auto" or "": when reading, tensors if one of the first records holds some; when
	// writing, tensors, but in Go's layout bytes if a tuple is one slot of them.
	Records string `json:"records"`

	// The others are for writing; a reader sees for itself.

	// Layout is "fluid" or "", or "go".
	Layout string `json:"layout"`
	// Compression is that of the chunks: "none" or "", "snappy", or in Go's layout "gzip".
	Compression string `json:"compression"`
	// RecordsPerChunk ends a chunk; 0: 1000 in Fluid's layout, as there, and any number in Go's.
	RecordsPerChunk int64 `json:"records_per_chunk"`
	// ChunkBytes ends a chunk before the record that would take its records beyond so many bytes; 0: 32 MiB.
	// Fluid's own writer had no such bound: but a chunk has 32 bits for its size, and whoever reads one
	// must have all of it in memory to see that its checksum is right. Fluid reads smaller chunks as well.
	ChunkBytes int64 `json:"chunk_bytes"`
}

const (
	defaultRecords = 1000
	defaultBytes   = 32 << 20
	mostBytes      = 1 << 31
)

// options are those of a Config, checked, with the defaults in.
func options(c *record.Config) (Options, error) {
	o := *record.OptionsOf[Options](c)
	switch o.Records {
	case "":
		o.Records = "auto"
	case "auto", "tensors", "bytes":
	default:
		return o, pyfeed.Errorf(pyfeed.Invalid, "records: expected auto, tensors or bytes, found %q", o.Records)
	}
	switch o.Layout {
	case "":
		o.Layout = "fluid"
	case "fluid", "go":
	default:
		return o, pyfeed.Errorf(pyfeed.Invalid, "layout: expected fluid or go, found %q", o.Layout)
	}
	switch o.Compression {
	case "":
		o.Compression = "none"
	case "none", "snappy":
	case "gzip":
		if o.Layout == "fluid" {
			return o, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none or snappy in the fluid layout, found gzip, which only the go layout has")
		}
	default:
		return o, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none, snappy or gzip, found %q", o.Compression)
	}
	if o.RecordsPerChunk < 0 || o.RecordsPerChunk > math.MaxUint32 {
		return o, pyfeed.Errorf(pyfeed.Invalid, "records_per_chunk: expected 1 to %d, or 0 for the layout's own, found %d", uint32(math.MaxUint32), o.RecordsPerChunk)
	}
	if o.ChunkBytes < 0 || o.ChunkBytes > mostBytes {
		return o, pyfeed.Errorf(pyfeed.Invalid, "chunk_bytes: expected 1 to %d, or 0 for %d, found %d", mostBytes, defaultBytes, o.ChunkBytes)
	}
	if o.RecordsPerChunk == 0 {
		o.RecordsPerChunk = math.MaxUint32
		if o.Layout == "fluid" {
			o.RecordsPerChunk = defaultRecords
		}
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = defaultBytes
	}
	return o, nil
}

const (
	headerSize = 20
	lengthSize = 4 // of a record, before it
	magic      = 0x01020304
)

var magicBytes = binary.LittleEndian.AppendUint32(nil, magic)

// The numbers of the compressors. Fluid has a number for gzip too, but nothing that writes or reads it.
const (
	uncompressed = iota
	snappy
	gzipped
)

// header is that of a chunk.
type header struct {
	fluid      bool
	records    uint32
	checksum   uint32 // CRC-32/IEEE of the payload, as it is in the file
	compressor uint32
	size       uint32 // of the payload, as it is in the file
}

// whole is the size of header and payload.
func (h *header) whole() int { return headerSize + int(h.size) }

// flaw is what is wrong with a chunk: a text with two numbers, put together only for those that somebody is
// told about. Whoever looks for a chunk meets many.
type flaw struct {
	text            string // "": nothing
	expected, found uint64
}

func (f flaw) String() string { return fmt.Sprintf(f.text, f.expected, f.found) }

// parse reads a header. The two layouts are told apart by the number at byte 12: Fluid's compressor, 0 or 1, or
// Go's compressed size, which is 4 at least, the length of a record.
func (h *header) parse(b []byte) flaw {
	if len(b) < headerSize {
		return flaw{"expected a chunk header of %d bytes, found the end of the file after %d", headerSize, uint64(len(b))}
	}
	if !bytes.Equal(b[:4], magicBytes) {
		return flaw{"expected the magic number %08x of a chunk, found %08x", uint64(binary.BigEndian.Uint32(magicBytes)), uint64(binary.BigEndian.Uint32(b))}
	}
	var fields [4]uint32
	for i := range fields {
		fields[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	most := uint32(snappy)
	if fields[2] <= most {
		*h = header{fluid: true, records: fields[0], checksum: fields[1], compressor: fields[2], size: fields[3]}
	} else {
		*h = header{checksum: fields[0], compressor: fields[1], size: fields[2], records: fields[3]}
		most = gzipped
	}
	switch {
	case !h.fluid && h.size < lengthSize:
		return flaw{"byte 12 of a chunk header: expected a compressor of 0 or 1 in Fluid's layout, or a size of at least %d in Go's, found %d", lengthSize, uint64(h.size)}
	case h.compressor > most:
		return flaw{"chunk header: expected a compressor of at most %d, found %d", uint64(most), uint64(h.compressor)}
	case h.records == 0:
		return flaw{"chunk header: expected at least %d record, found %d", 1, 0}
	case h.compressor == uncompressed && uint64(h.size) < lengthSize*uint64(h.records):
		return flaw{"chunk header: expected at least %d bytes for the lengths of its records, found a size of %d", lengthSize * uint64(h.records), uint64(h.size)}
	}
	return flaw{}
}

// put appends the header, its payload's size and checksum included.
func (h *header) put(b []byte) []byte {
	fields := [...]uint32{magic, h.checksum, h.compressor, h.size, h.records}
	if h.fluid {
		fields = [...]uint32{magic, h.records, h.checksum, h.compressor, h.size}
	}
	for _, f := range fields {
		b = binary.LittleEndian.AppendUint32(b, f)
	}
	return b
}

// checksum is a chunk's. It goes in pieces, between which Go's scheduler and collector can get in.
func checksum(b []byte) (sum uint32) {
	const piece = 1 << 20
	for len(b) > piece {
		sum = crc32.Update(sum, crc32.IEEETable, b[:piece])
		b = b[piece:]
	}
	return crc32.Update(sum, crc32.IEEETable, b)
}
