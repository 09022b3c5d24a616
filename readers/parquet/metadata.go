package parquet

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// The structs of a file's footer, of which the fields that are needed are decoded. Their fields and numbers are those of
// https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.

// physical is the type in which values are stored.
type physical int32

const (
	typeBoolean   physical = 0
	typeInt32     physical = 1
	typeInt64     physical = 2
	typeInt96     physical = 3
	typeFloat     physical = 4
	typeDouble    physical = 5
	typeByteArray physical = 6
	typeFixed     physical = 7
)

var physicalNames = []string{"BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"}

func (p physical) String() string { return nameOf("type", physicalNames, int32(p)) }

// nameOf returns the name of a number of the format, or the number, if it has no name.
func nameOf(kind string, names []string, number int32) string {
	if number >= 0 && int(number) < len(names) && names[number] != "" {
		return names[number]
	}
	return fmt.Sprintf("%s %d", kind, number)
}

// size returns the bytes of a value; 0 if that is not fixed or depends on the column.
func (p physical) size() int {
	switch p {
	case typeInt32, typeFloat:
		return 4
	case typeInt64, typeDouble:
		return 8
	case typeInt96:
		return 12
	}
	return 0
}

// repetition says how often a field occurs.
type repetition int32

const (
	required repetition = 0
	optional repetition = 1
	repeated repetition = 2
)

// annotation says what the values of a column mean.
type annotation int

const (
	noAnnotation annotation = iota
	annotatedString
	annotatedList
	annotatedMap
	annotatedDecimal
	annotatedDate
	annotatedTime
	annotatedTimestamp
	annotatedInteger
	annotatedFloat16
	annotatedOther // UUID, JSON, BSON, ENUM, INTERVAL, VARIANT and others, whose bytes are delivered as they are
)

// fileMeta is what a footer says.
type fileMeta struct {
	schema    []schemaElement
	rows      int64
	groups    []groupMeta
	slots     string // what a pyfeed writer has stored about the slots; "": nothing
	encrypted bool
}

// schemaElement is a node of the schema, in depth-first order.
type schemaElement struct {
	name       string
	typ        physical // -1: a group
	length     int      // bytes of a value of typeFixed
	repetition repetition
	children   int
	annotation annotation
	scale      int // of a decimal
	bits       int // of an integer
	unsigned   bool
}

// groupMeta describes a row group.
type groupMeta struct {
	columns []columnMeta
	rows    int64
}

// columnMeta describes the pages of a column in a row group.
type columnMeta struct {
	typ              physical
	codec            int32
	values           int64 // with nulls
	compressed       int64 // bytes of all pages
	uncompressed     int64
	data, dictionary int64 // offset of the first page of data, and of the dictionary; 0: there is none
	external         string
	encrypted        bool
	statistics       statistics
}

// start returns the offset of the first page.
func (c *columnMeta) start() int64 {
	if c.dictionary > 0 && c.dictionary < c.data {
		return c.dictionary
	}
	return c.data
}

// statistics of the values of a column in a row group, in plain encoding. nil: not known.
type statistics struct {
	min, max       []byte
	oldMin, oldMax []byte // with an order that is only defined for signed numbers
	nulls          int64  // -1: not known
}

// slotsKey is the key of the metadata under which a writer stores what the slots looked like.
const slotsKey = "pyfeed.slots"

// parseFooter decodes the footer.
func parseFooter(data []byte) (*fileMeta, error) {
	r := &thriftReader{data: data}
	m := &fileMeta{rows: -1}
	r.fields(func(id int, kind byte) {
		switch id {
		case 2:
			r.structures(kind, func() { m.schema = append(m.schema, parseElement(r)) })
		case 3:
			m.rows = r.i64(kind)
		case 4:
			r.structures(kind, func() { m.groups = append(m.groups, parseGroup(r)) })
		case 5:
			r.structures(kind, func() {
				if key, value := parseKeyValue(r); key == slotsKey {
					m.slots = value
				}
			})
		case 8:
			m.encrypted = true
			r.skip(kind)
		default:
			r.skip(kind)
		}
	})
	if r.err == nil && m.schema == nil {
		r.fail("expected a schema, found none")
	}
	if r.err == nil && m.rows < 0 {
		r.fail("expected the number of rows, found %d", m.rows)
	}
	return m, r.err
}

func parseKeyValue(r *thriftReader) (key, value string) {
	r.fields(func(id int, kind byte) {
		switch {
		case id == 1:
			key = string(r.bytes(kind))
		case id == 2 && key == slotsKey:
			value = string(r.bytes(kind))
		default:
			r.skip(kind)
		}
	})
	return key, value
}

func parseElement(r *thriftReader) schemaElement {
	e := schemaElement{typ: -1}
	converted := int32(-1)
	logical := noAnnotation
	r.fields(func(id int, kind byte) {
		switch id {
		case 1:
			if e.typ = physical(r.i32(kind)); e.typ < 0 || e.typ > typeFixed {
				r.fail("expected the physical type of a column, 0 to %d, found %d", typeFixed, e.typ)
			}
		case 2:
			e.length = int(r.i32(kind))
		case 3:
			if e.repetition = repetition(r.i32(kind)); e.repetition < 0 || e.repetition > repeated {
				r.fail("expected a repetition, 0 to %d, found %d", repeated, e.repetition)
			}
		case 4:
			e.name = string(r.bytes(kind))
		case 5:
			e.children = int(r.i32(kind))
		case 6:
			converted = r.i32(kind)
		case 7:
			e.scale = int(r.i32(kind))
		case 10:
			r.structure(kind, func(id int, kind byte) { logical = e.logical(r, id, kind) })
		default:
			r.skip(kind)
		}
	})
	switch {
	case r.err != nil:
	case e.children < 0:
		r.fail("expected a number of children, found %d", e.children)
	case e.typ == typeFixed && e.length <= 0:
		r.fail("expected values of at least 1 byte, found a length of %d", e.length)
	}
	if e.annotation = logical; logical == noAnnotation {
		e.annotation = e.converted(converted)
	}
	return e
}

// converted returns the annotation of the older kind of annotations.
func (e *schemaElement) converted(number int32) annotation {
	switch number {
	case 0: // UTF8
		return annotatedString
	case 1, 2: // MAP, MAP_KEY_VALUE
		return annotatedMap
	case 3:
		return annotatedList
	case 5:
		return annotatedDecimal
	case 6:
		return annotatedDate
	case 7, 8:
		return annotatedTime
	case 9, 10:
		return annotatedTimestamp
	case 11, 12, 13, 14: // UINT_8 to UINT_64
		e.bits, e.unsigned = 8<<(number-11), true
		return annotatedInteger
	case 15, 16, 17, 18: // INT_8 to INT_64
		e.bits = 8 << (number - 15)
		return annotatedInteger
	case -1:
		return noAnnotation
	}
	return annotatedOther
}

// logical decodes the newer kind of annotations, a union, of which it is called for the one field.
func (e *schemaElement) logical(r *thriftReader, id int, kind byte) annotation {
	switch id {
	case 5:
		r.structure(kind, func(id int, kind byte) {
			if id == 1 {
				e.scale = int(r.i32(kind))
			} else {
				r.skip(kind)
			}
		})
		return annotatedDecimal
	case 10:
		r.structure(kind, func(id int, kind byte) {
			switch id {
			case 1:
				e.bits = int(r.i8(kind))
			case 2:
				e.unsigned = kind == thriftFalse // the field is isSigned
				r.skip(kind)
			default:
				r.skip(kind)
			}
		})
		return annotatedInteger
	}
	r.skip(kind)
	switch id {
	case 1:
		return annotatedString
	case 2:
		return annotatedMap
	case 3:
		return annotatedList
	case 6:
		return annotatedDate
	case 7:
		return annotatedTime
	case 8:
		return annotatedTimestamp
	case 15:
		return annotatedFloat16
	}
	return annotatedOther
}

func parseGroup(r *thriftReader) groupMeta {
	g := groupMeta{rows: -1}
	r.fields(func(id int, kind byte) {
		switch id {
		case 1:
			r.structures(kind, func() { g.columns = append(g.columns, parseChunk(r, len(g.columns))) })
		case 3:
			g.rows = r.i64(kind)
		default:
			r.skip(kind)
		}
	})
	if r.err == nil && g.rows < 0 {
		r.fail("expected the number of rows of a row group, found %d", g.rows)
	}
	return g
}

// parseChunk decodes what a row group says about a column.
func parseChunk(r *thriftReader, number int) columnMeta {
	c := columnMeta{typ: -1, statistics: statistics{nulls: -1}}
	found := false
	r.fields(func(id int, kind byte) {
		switch id {
		case 1:
			c.external = string(r.bytes(kind))
		case 3:
			found = true
			r.structure(kind, func(id int, kind byte) { c.parse(r, id, kind) })
		case 8, 9: // crypto_metadata, encrypted_column_metadata
			c.encrypted = true
			r.skip(kind)
		default:
			r.skip(kind)
		}
	})
	switch {
	case r.err != nil:
	case !found && !c.encrypted:
		r.fail("%s: expected the metadata of a column, found none", columns.Label("", number))
	case c.values < 0 || c.compressed < 0 || c.uncompressed < 0 || c.data < 0 || c.dictionary < 0:
		r.fail("%s: expected sizes and offsets of at least 0, found %d values, %d and %d bytes, offsets %d and %d",
			columns.Label("", number), c.values, c.compressed, c.uncompressed, c.data, c.dictionary)
	}
	return c
}

// parse decodes a field of the metadata of a column. Its path is left out: the columns are those of the schema, in order.
func (c *columnMeta) parse(r *thriftReader, id int, kind byte) {
	switch id {
	case 1:
		c.typ = physical(r.i32(kind))
	case 4:
		c.codec = r.i32(kind)
	case 5:
		c.values = r.i64(kind)
	case 6:
		c.uncompressed = r.i64(kind)
	case 7:
		c.compressed = r.i64(kind)
	case 9:
		c.data = r.i64(kind)
	case 11:
		c.dictionary = r.i64(kind)
	case 12:
		r.structure(kind, func(id int, kind byte) { c.statistics.parse(r, id, kind) })
	default:
		r.skip(kind)
	}
}

func (s *statistics) parse(r *thriftReader, id int, kind byte) {
	switch id {
	case 1:
		s.oldMax = r.bytes(kind)
	case 2:
		s.oldMin = r.bytes(kind)
	case 3:
		s.nulls = r.i64(kind)
	case 5:
		s.max = r.bytes(kind)
	case 6:
		s.min = r.bytes(kind)
	default:
		r.skip(kind)
	}
}

// The magic bytes that a file begins and ends with.
var (
	magic          = []byte("PAR1")
	encryptedMagic = []byte("PARE")
)

// tailSize is the number of bytes after the footer: its length, and the magic bytes.
const tailSize = 8

// readFooter reads and decodes the footer of a file. end is the offset at which it begins, where all pages end.
func readFooter(in *input) (m *fileMeta, end int64, err error) {
	f, size := in.file, in.size
	encrypted := func(found string) error {
		return f.Errorf(pyfeed.Unsupported, -1, "expected a Parquet file that is not encrypted, found %s", found)
	}
	head, err := in.read(0, int(min(size, 4)))
	if err != nil {
		return nil, 0, err
	}
	if bytes.Equal(head, encryptedMagic) {
		return nil, 0, encrypted("an encrypted one")
	}
	if size < int64(len(magic)+tailSize) || !bytes.Equal(head, magic) {
		return nil, 0, f.Corrupt(0, -1, "expected a Parquet file, which begins with %q, found %d bytes that begin with %q", magic, size, head)
	}
	tail, err := in.read(size-tailSize, tailSize)
	if err != nil {
		return nil, 0, err
	}
	length := int64(binary.LittleEndian.Uint32(tail))
	if bytes.Equal(tail[4:], encryptedMagic) {
		return nil, 0, encrypted("an encrypted footer")
	}
	if !bytes.Equal(tail[4:], magic) {
		return nil, 0, f.Corrupt(size-4, -1, "expected %q at the end, found %q: the file may be cut off", magic, tail[4:])
	}
	if end = size - tailSize - length; end < int64(len(magic)) {
		return nil, 0, f.Corrupt(size-tailSize, -1, "expected a footer of at most %d bytes, found a length of %d", size-tailSize-int64(len(magic)), length)
	}
	data, err := in.read(end, int(length))
	if err != nil {
		return nil, 0, err
	}
	if err := f.Poll(); err != nil {
		return nil, 0, err
	}
	data = bytes.Clone(data) // the statistics are views of it
	if m, err = parseFooter(data); err != nil {
		at := int64(0)
		if e, is := err.(*thriftError); is {
			at = int64(e.at)
		}
		return nil, 0, f.Corrupt(end+at, -1, "footer: %v", err)
	}
	if m.encrypted {
		return nil, 0, encrypted("one with encrypted columns")
	}
	var rows int64
	for i := range m.groups {
		if rows += m.groups[i].rows; rows < 0 || rows > m.rows {
			break
		}
	}
	if rows != m.rows && m.rows > 0 { // some writers leave the number of all rows out
		return nil, 0, f.Corrupt(end, -1, "footer: expected row groups of %d rows together, found %d", m.rows, rows)
	}
	return m, end, nil
}

// input gives access to the bytes of a file that is complete and not compressed. Any goroutine may call its methods.
type input struct {
	file *storage.File
	size int64
	data []byte // of a mapped file or a copy; nil: the file is read
}

// read returns n bytes at an offset. They are a view of the file, or a copy in Go's heap.
func (in *input) read(offset int64, n int) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	if in.data != nil {
		return in.data[offset : offset+int64(n)], nil
	}
	b := make([]byte, n)
	return b, in.readInto(b, offset)
}

// readInto fills b with the bytes at an offset.
func (in *input) readInto(b []byte, offset int64) error {
	if in.data != nil {
		copy(b, in.data[offset:])
		return nil
	}
	return in.file.ReadAt(b, offset)
}
