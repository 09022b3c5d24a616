package arrow

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Types of fields; see Type.
const (
	typeNull            = 1
	typeInt             = 2
	typeFloat           = 3
	typeBinary          = 4
	typeUtf8            = 5
	typeBool            = 6
	typeDecimal         = 7
	typeDate            = 8
	typeTime            = 9
	typeTimestamp       = 10
	typeInterval        = 11
	typeList            = 12
	typeStruct          = 13
	typeUnion           = 14
	typeFixedBinary     = 15
	typeFixedList       = 16
	typeMap             = 17
	typeDuration        = 18
	typeLargeBinary     = 19
	typeLargeUtf8       = 20
	typeLargeList       = 21
	typeRunEndEncoded   = 22
	typeBinaryView      = 23
	typeUtf8View        = 24
	typeListView        = 25
	typeLargeListView   = 26
	numTypes            = 27
	maxDepth            = 64 // of nested fields
	extensionName       = "ARROW:extension:name"
	extensionMetadata   = "ARROW:extension:metadata"
	huggingFaceMetadata = "huggingface"
)

var typeNames = [numTypes]string{"none", "null", "int", "float", "binary", "utf8", "bool", "decimal", "date", "time", "timestamp", "interval",
	"list", "struct", "union", "fixed_size_binary", "fixed_size_list", "map", "duration", "large_binary", "large_utf8", "large_list",
	"run_end_encoded", "binary_view", "utf8_view", "list_view", "large_list_view"}

// field is a column of the schema, or a part of one.
type field struct {
	name     string
	kind     byte         // its type
	dtype    pyfeed.DType // of an element that is a number; Any for others
	width    int          // bytes of an element in its buffer, for types of fixed size; 0: bits, or none
	size     int          // elements of a fixed_size_list, or the scale of a decimal
	children []*field

	// indices of a column that is encoded by a dictionary: its own type is that of the values
	encoded    bool
	dictionary int64
	index      pyfeed.DType

	extension, extensionText string

	node  int // number of its node in a record batch
	part  int // number of its first buffer, if arrays of views had no variadic buffers
	views int // number of arrays of views before it
}

// numbering numbers the nodes and buffers of the fields of a record batch.
type numbering struct{ nodes, parts, views int }

// A schema describes the columns of a file.
type schema struct {
	fields   []*field
	metadata map[string]string
	count    numbering // of all fields
}

func keyValues(t table, number int) map[string]string {
	var all map[string]string
	for _, kv := range t.tables(number) {
		if all == nil {
			all = make(map[string]string)
		}
		all[kv.text(0)] = kv.text(1)
	}
	return all
}

// parseSchema parses a Schema.
func parseSchema(t table, version int) (*schema, error) {
	s := &schema{metadata: keyValues(t, 2)}
	endianness := t.short(0, 0)
	for _, f := range t.tables(1) {
		one, err := parseField(f, 0)
		if err != nil {
			return nil, err
		}
		s.fields = append(s.fields, one)
	}
	if t.b.bad {
		return nil, errMetadata
	}
	if endianness != 0 {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "endianness: expected numbers with the low byte first, found big-endian ones: "+
			"write the file on a little-endian machine")
	}
	for _, f := range s.fields {
		s.count.field(f, version)
	}
	return s, nil
}

func parseField(t table, depth int) (*field, error) {
	if depth > maxDepth {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "expected columns nested at most %d deep, found more", maxDepth)
	}
	f := &field{name: t.text(0), kind: t.byte(2)}
	details, is := t.sub(3)
	custom := keyValues(t, 6)
	f.extension, f.extensionText = custom[extensionName], custom[extensionMetadata]
	if t.b.bad || !is {
		return nil, errMetadata
	}
	for _, child := range t.tables(5) {
		one, err := parseField(child, depth+1)
		if err != nil {
			return nil, err
		}
		f.children = append(f.children, one)
	}
	err := f.setType(details)
	if encoding, is := t.sub(4); is && err == nil {
		f.encoded, f.dictionary, f.index = true, encoding.long(0), pyfeed.Int32
		if index, is := encoding.sub(1); is {
			if f.index, is = intType(index); !is {
				err = pyfeed.Errorf(pyfeed.Corrupt, "expected integers as indices of a dictionary, found %d bits", index.int(0, 0))
			}
		}
	}
	if t.b.bad {
		return nil, errMetadata
	}
	if err != nil {
		e := err.(*pyfeed.Error)
		e.Text = fmt.Sprintf("column %q: %s", shorten(f.name), e.Text)
		return nil, err
	}
	return f, nil
}

// intType returns the dtype of an Int.
func intType(t table) (pyfeed.DType, bool) {
	signed := t.bool(1)
	switch t.int(0, 0) {
	case 8:
		return pick(signed, pyfeed.Int8, pyfeed.Uint8), true
	case 16:
		return pick(signed, pyfeed.Int16, pyfeed.Uint16), true
	case 32:
		return pick(signed, pyfeed.Int32, pyfeed.Uint32), true
	case 64:
		return pick(signed, pyfeed.Int64, pyfeed.Uint64), true
	}
	return pyfeed.Any, false
}

func pick[T any](first bool, a, b T) T {
	if first {
		return a
	}
	return b
}

// setType sets dtype, width and size.
func (f *field) setType(t table) error {
	wrong := func(format string, args ...any) error { return pyfeed.Errorf(pyfeed.Corrupt, format, args...) }
	children := -1 // any number
	switch f.kind {
	case typeNull, typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8:
		children = 0
	case typeBinaryView, typeUtf8View:
		children, f.width = 0, viewSize
	case typeInt:
		var is bool
		if f.dtype, is = intType(t); !is {
			return wrong("expected an integer of 8, 16, 32 or 64 bits, found %d", t.int(0, 0))
		}
	case typeFloat:
		precision := t.short(0, 0)
		if precision < 0 || precision > 2 {
			return wrong("expected a float of precision 0 to 2, found %d", precision)
		}
		f.dtype = []pyfeed.DType{pyfeed.Float16, pyfeed.Float32, pyfeed.Float64}[precision]
	case typeBool:
		children, f.dtype = 0, pyfeed.Bool
		return nil // of bits
	case typeDecimal:
		bits := t.int(2, 128)
		f.size, f.width = t.int(1, 0), bits/8
		if bits != 32 && bits != 64 && bits != 128 && bits != 256 || f.size < -maxScale || f.size > maxScale {
			return wrong("expected a decimal of 32, 64, 128 or 256 bits and a scale of at most %d, found %d and %d", maxScale, bits, f.size)
		}
	case typeDate:
		f.dtype = pick(t.short(0, 1) == 0, pyfeed.Int32, pyfeed.Int64)
	case typeTime:
		f.dtype = pick(t.int(1, 32) == 32, pyfeed.Int32, pyfeed.Int64)
	case typeTimestamp, typeDuration:
		f.dtype = pyfeed.Int64
	case typeInterval:
		if unit := t.short(0, 0); unit == 0 { // months
			f.dtype = pyfeed.Int32
		} else {
			f.width = pick(unit == 1, 8, 16)
		}
	case typeFixedBinary:
		children, f.width = 0, t.int(0, 0)
		if f.width < 0 || f.width > maxWidth {
			return wrong("expected a fixed_size_binary of at most %d bytes, found %d", maxWidth, f.width)
		}
	case typeFixedList:
		children, f.size = 1, t.int(0, 0)
		if f.size < 0 || f.size > maxWidth {
			return wrong("expected a fixed_size_list of at most %d elements, found %d", maxWidth, f.size)
		}
	case typeList, typeLargeList, typeListView, typeLargeListView:
		children = 1
	case typeMap:
		children = 1
		if len(f.children) == 1 && (f.children[0].kind != typeStruct || len(f.children[0].children) != 2) {
			return wrong("expected a map of a struct with two fields, found another")
		}
	case typeRunEndEncoded:
		children = 2
	case typeStruct:
	case typeUnion:
		f.size = pick(t.short(0, 0) == 0, 0, 1) // sparse or dense
	default:
		return pyfeed.Errorf(pyfeed.Unsupported, "expected a type with a number from 1 to %d, found %d", numTypes-1, f.kind)
	}
	if children >= 0 && len(f.children) != children {
		return wrong("expected %d fields in a %s, found %d", children, f, len(f.children))
	}
	if f.dtype != pyfeed.Any {
		f.width = f.dtype.Size()
	}
	return nil
}

const (
	maxWidth = 1 << 30
	maxScale = 400
	viewSize = 16 // bytes of an element of binary_view
)

func (f *field) String() string { return typeNames[f.kind] }

// field numbers a field and its children.
func (n *numbering) field(f *field, version int) {
	f.node, f.part, f.views = n.nodes, n.parts, n.views
	n.nodes++
	if f.encoded {
		n.parts += 2
		return // the children are in the dictionary
	}
	switch f.kind {
	case typeNull, typeRunEndEncoded:
	case typeUnion:
		n.parts += 1 + f.size
		if version < version5 {
			n.parts++
		}
	case typeStruct, typeFixedList:
		n.parts++
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeListView, typeLargeListView:
		n.parts += 3
	case typeBinaryView, typeUtf8View:
		n.parts += 2
		n.views++
	default:
		n.parts += 2
	}
	for _, child := range f.children {
		n.field(child, version)
	}
}

// values returns the field of the values of a dictionary, as the only column of its record batch.
func (f *field) values(version int) *schema {
	v := *f
	v.encoded = false
	s := &schema{fields: []*field{&v}}
	s.count.field(&v, version)
	return s
}

// sameType reports whether the values of two fields have the same type.
func (f *field) sameType(g *field) bool {
	return f.kind == g.kind && f.dtype == g.dtype && f.width == g.width && f.size == g.size && slices.EqualFunc(f.children, g.children, (*field).sameType)
}

// isBytes reports whether elements are byte strings of any size.
func (f *field) isBytes() bool {
	switch f.kind {
	case typeBinary, typeUtf8, typeLargeBinary, typeLargeUtf8, typeBinaryView, typeUtf8View:
		return true
	}
	return false
}

// shorten shortens a name for an error.
func shorten(name string) string {
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	return strings.ToValidUTF8(name, "?")
}
