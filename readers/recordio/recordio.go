// Package recordio reads and writes RecordIO files of two layouts: that of the Go library (PaddlePaddle/recordio) and
// that of the C++ library in Fluid 0.12 to 1.5. A file is a sequence of chunks, each with its own checksum. In both
// layouts a chunk begins with the same magic number and stores its records in the same way. The layouts differ in the
// header and in the framing that they use for snappy.
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
		Defaults: map[string]any{"records": "auto"},
		Open:     Open,
		Create:   Create,
	})
}

// Options are the options of the format. The zero value suits most files.
type Options struct {
	// Records is what a record holds. "tensors": tensors as Fluid writes them, one for each slot. "bytes": any bytes,
	// in one slot of uint8. "auto" or "": when reading, tensors if one of the first records holds tensors; when
	// writing, tensors, except in the Go layout if a tuple is one slot of bytes.
	Records string `json:"records"`

	// The other options are for writing; a reader detects them.

	// Layout is "fluid" or "", or "go".
	Layout string `json:"layout"`
	// Compression is the compression of the chunks: "none" or "", "snappy", or in the Go layout "gzip".
	Compression string `json:"compression"`
	// RecordsPerChunk is the number of records of a chunk; 0: 1000 in the Fluid layout, as in Fluid, and no limit in
	// Go's.
	RecordsPerChunk int64 `json:"records_per_chunk"`
	// ChunkBytes limits the bytes of records in a chunk, which ends before the record that would exceed them; 0: 32
	// MiB. Fluid's own writer had no such limit. But a chunk's size has 32 bits, and a reader must have the whole chunk
	// in memory to verify its checksum. Fluid reads smaller chunks as well. If neither RecordsPerChunk nor ChunkBytes is
	// given, and chunks are not compressed, a record of bytes from 8 KiB to 4 MiB gets a chunk of its own.
	ChunkBytes int64 `json:"chunk_bytes"`
}

const (
	defaultRecords = 1000
	defaultBytes   = 32 << 20
	maxBytes       = 1 << 31
)

// options returns the options of a Config, checked, with defaults filled in.
func options(c *record.Config) (Options, error) {
	o := *record.OptionsFrom[Options](c)
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
	if o.ChunkBytes < 0 || o.ChunkBytes > maxBytes {
		return o, pyfeed.Errorf(pyfeed.Invalid, "chunk_bytes: expected 1 to %d, or 0 for %d, found %d", maxBytes, defaultBytes, o.ChunkBytes)
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
	lengthSize = 4 // of the length before each record
	magic      = 0x01020304
)

var magicBytes = binary.LittleEndian.AppendUint32(nil, magic)

// The numbers of the compressors. Fluid also has a number for gzip, but no code that writes or reads it.
const (
	uncompressed = iota
	snappy
	gzipped
)

// header is the header of a chunk.
type header struct {
	fluid      bool
	records    uint32
	checksum   uint32 // CRC-32/IEEE of the payload as stored
	compressor uint32
	size       uint32 // of the payload as stored
}

// totalSize is the size of header and payload.
func (h *header) totalSize() int { return headerSize + int(h.size) }

// chunkFault is a fault of a chunk: a text with two numbers. It is formatted only when it is reported, since a search for the
// next chunk meets many faults.
type chunkFault struct {
	text            string // "": no fault
	expected, found uint64
}

func (f chunkFault) String() string { return fmt.Sprintf(f.text, f.expected, f.found) }

// parse reads a header. The number at byte 12 distinguishes the layouts: in Fluid's it is the compressor, 0 or 1; in
// Go's it is the size of the stored payload, which is at least 4, the length of a record.
func (h *header) parse(b []byte) chunkFault {
	if len(b) < headerSize {
		return chunkFault{"expected a chunk header of %d bytes, found the end of the file after %d", headerSize, uint64(len(b))}
	}
	if !bytes.Equal(b[:4], magicBytes) {
		return chunkFault{"expected the magic number %08x of a chunk, found %08x", uint64(binary.BigEndian.Uint32(magicBytes)), uint64(binary.BigEndian.Uint32(b))}
	}
	var fields [4]uint32
	for i := range fields {
		fields[i] = binary.LittleEndian.Uint32(b[4+4*i:])
	}
	limit := uint32(snappy)
	if fields[2] <= limit {
		*h = header{fluid: true, records: fields[0], checksum: fields[1], compressor: fields[2], size: fields[3]}
	} else {
		*h = header{checksum: fields[0], compressor: fields[1], size: fields[2], records: fields[3]}
		limit = gzipped
	}
	switch {
	case !h.fluid && h.size < lengthSize:
		return chunkFault{"byte 12 of a chunk header: expected a compressor of 0 or 1 in Fluid's layout, or a size of at least %d in Go's, found %d", lengthSize, uint64(h.size)}
	case h.compressor > limit:
		return chunkFault{"chunk header: expected a compressor of at most %d, found %d", uint64(limit), uint64(h.compressor)}
	case h.records == 0:
		return chunkFault{"chunk header: expected at least %d record, found %d", 1, 0}
	case h.compressor == uncompressed && uint64(h.size) < lengthSize*uint64(h.records):
		return chunkFault{"chunk header: expected at least %d bytes for the lengths of its records, found a size of %d", lengthSize * uint64(h.records), uint64(h.size)}
	}
	return chunkFault{}
}

// put appends the header, including the payload's size and checksum.
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

// checksum returns the checksum of a chunk. It works in pieces, so that Go's scheduler and collector can run in
// between.
func checksum(b []byte) (sum uint32) {
	const piece = 1 << 20
	for len(b) > piece {
		sum = crc32.Update(sum, crc32.IEEETable, b[:piece])
		b = b[piece:]
	}
	return crc32.Update(sum, crc32.IEEETable, b)
}
