package arrow

import (
	"encoding/binary"
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// The metadata of messages, of record batches and of a file's footer, as Message.fbs, Schema.fbs and File.fbs of the
// specification define them: https://github.com/apache/arrow/tree/main/format.

const (
	fileMagic    = "ARROW1"
	featherMagic = "FEA1"     // of Feather version 1, which is another format
	continuation = 0xffffffff // before the length of metadata, since version 0.15

	prefixBytes = 8 // continuation and length

	// maxMetadata bounds the metadata of a message. A schema of a million columns has less.
	maxMetadata = 256 << 20
)

// Versions of the metadata; see MetadataVersion.
const (
	version4 = 3
	version5 = 4
)

// Kinds of messages; see MessageHeader.
const (
	schemaMessage     = 1
	dictionaryMessage = 2
	batchMessage      = 3
)

var messageNames = map[byte]string{0: "none", schemaMessage: "a schema", dictionaryMessage: "a dictionary", batchMessage: "a record batch",
	4: "a tensor", 5: "a sparse tensor"}

// message is the metadata of a message.
type message struct {
	kind    byte
	version int
	body    int64 // bytes of the body
	header  table
}

// parseMessage parses the metadata of a message. An error says what is wrong.
func parseMessage(data []byte) (m message, err error) {
	b := newFlatbuffer(data)
	root := b.root()
	m = message{kind: root.byte(1), version: root.short(0, 0), body: root.long(3)}
	var has bool
	m.header, has = root.sub(2)
	switch {
	case b.bad:
		return m, errMetadata
	case !has || m.kind == 0:
		return m, pyfeed.Errorf(pyfeed.Corrupt, "expected a message with a header, found one without")
	case m.version < version4 || m.version > version5:
		return m, pyfeed.Errorf(pyfeed.Unsupported, "expected metadata of version 4 or 5, found version %d", m.version+1)
	case m.body < 0 || m.body > math.MaxInt64/2:
		return m, pyfeed.Errorf(pyfeed.Corrupt, "expected the size of a body, found %d", m.body)
	}
	return m, nil
}

// node has the number of elements of an array, and how many of them are null.
type node struct{ length, nulls int64 }

// part is the offset and size of a buffer in the body of a message.
type part struct{ at, size int64 }

// Codecs of buffers; see CompressionType.
const (
	codecLZ4  = 0
	codecZstd = 1
	codecNone = -1
)

// batchHeader is the metadata of a record batch.
type batchHeader struct {
	rows     int64
	nodes    []node
	parts    []part
	variadic []int64 // how many buffers each array of views has
	codec    int
}

// parse parses a RecordBatch. The slices of h are reused.
func (h *batchHeader) parse(t table) error {
	h.rows, h.nodes, h.parts, h.variadic, h.codec = t.long(0), h.nodes[:0], h.parts[:0], h.variadic[:0], codecNone
	b := t.b
	at, n := t.vector(1, 16)
	for ; n > 0; n-- {
		h.nodes = append(h.nodes, node{b.i64(at), b.i64(at + 8)})
		at += 16
	}
	at, n = t.vector(2, 16)
	for ; n > 0; n-- {
		h.parts = append(h.parts, part{b.i64(at), b.i64(at + 8)})
		at += 16
	}
	if c, is := t.sub(3); is {
		h.codec = int(c.byte(0))
		if method := c.byte(1); method != 0 {
			return pyfeed.Errorf(pyfeed.Unsupported, "compression: expected that of each buffer, method 0, found method %d", method)
		}
		if h.codec != codecLZ4 && h.codec != codecZstd {
			return pyfeed.Errorf(pyfeed.Unsupported, "compression: expected lz4 or zstd, codec 0 or 1, found codec %d", h.codec)
		}
	}
	at, n = t.vector(4, 8)
	for ; n > 0; n-- {
		h.variadic = append(h.variadic, b.i64(at))
		at += 8
	}
	if b.bad {
		return errMetadata
	}
	if h.rows < 0 || h.rows > math.MaxInt64/64 {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected a number of rows, found %d", h.rows)
	}
	return nil
}

// block is where a message of a file is, as the footer says.
type block struct {
	at       int64
	metadata int64 // bytes of the metadata, with the prefix
	body     int64
}

// footer is the end of a file.
type footer struct {
	schema       *schema
	dictionaries []block
	batches      []block
}

func parseFooter(data []byte) (*footer, error) {
	b := newFlatbuffer(data)
	root := b.root()
	if b.bad {
		return nil, errMetadata
	}
	version := root.short(0, 0)
	if version > version5 {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "expected metadata of version 4 or 5, found version %d", version+1)
	}
	version = max(version, version4) // some footers have none; the messages have
	described, is := root.sub(1)
	if !is {
		return nil, errMetadata
	}
	f := new(footer)
	var err error
	if f.schema, err = parseSchema(described, version); err != nil {
		return nil, err
	}
	for field, to := range map[int]*[]block{2: &f.dictionaries, 3: &f.batches} {
		at, n := root.vector(field, 24)
		for ; n > 0; n-- {
			*to = append(*to, block{b.i64(at), int64(int32(b.u32(at + 8))), b.i64(at + 16)})
			at += 24
		}
	}
	if b.bad {
		return nil, errMetadata
	}
	return f, nil
}

// prefix returns how many bytes of metadata follow the prefix of a message, and the size of the prefix. Files of versions
// before 0.15 have no continuation. length 0: the stream ends here.
func prefix(head []byte) (length int64, size int, whole bool) {
	if len(head) < 4 {
		return 0, 4, false
	}
	first := binary.LittleEndian.Uint32(head)
	if first != continuation {
		return int64(int32(first)), 4, true
	}
	if len(head) < prefixBytes {
		return 0, prefixBytes, false
	}
	return int64(int32(binary.LittleEndian.Uint32(head[4:]))), prefixBytes, true
}
