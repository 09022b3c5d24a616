package npy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	npyio "github.com/sbinet/npyio/npy"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// An Array is the description of an array in the header of an npy file.
type Array struct {
	DType   pyfeed.DType
	Swapped bool // the elements are not in the machine's byte order
	Fortran bool // the first dimension varies fastest
	Shape   pyfeed.Dims
	Begin   int // bytes before the data
	Size    int // bytes of the data
}

const (
	magic     = "\x93NUMPY"
	alignment = 64 // of the data in the file, in bytes

	// prefixSize is the largest size of the part before the dictionary: magic, version and the dictionary's length.
	prefixSize = 12
	// maxDictionary bounds the dictionary. NumPy refuses to evaluate one of more than 10000 characters.
	maxDictionary = 1 << 20
	// maxRank is the largest number of dimensions of an array: one more than that of its rows.
	maxRank = pyfeed.MaxRank + 1
)

// fault returns an error about the byte of a header at an offset. atOffset adds the file.
func fault(kind pyfeed.Kind, offset int, format string, args ...any) error {
	e := pyfeed.Errorf(kind, format, args...)
	e.At = &pyfeed.Location{Offset: int64(offset), Record: -1}
	return e
}

// atOffset completes the location of an error of DataOffset or Parse, for a header at an offset of a file.
func atOffset(err error, file string, offset, record int64) error {
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.At == nil {
		return err
	}
	located := *e
	located.At = &pyfeed.Location{File: file, Offset: e.At.Offset + offset, Record: record}
	return &located
}

// DataOffset returns the number of bytes before the data of an npy file that begins with head. head has prefixSize
// bytes, or the whole file if that is shorter.
func DataOffset(head []byte) (int, error) {
	_, begin, err := findData(head)
	return begin, err
}

// findData returns the offsets of the dictionary and of the data.
func findData(head []byte) (dict, begin int, err error) {
	if n := min(len(head), len(magic)); string(head[:n]) != magic[:n] {
		return 0, 0, fault(pyfeed.Corrupt, 0, "expected an npy file, which begins with %q, found %q", magic, head[:n])
	}
	if len(head) < len(magic)+4 {
		return 0, 0, fault(pyfeed.Corrupt, len(head), "expected an npy header, found the end after %d bytes", len(head))
	}
	major, minor := head[len(magic)], head[len(magic)+1]
	if major < 1 || major > 3 || minor != 0 {
		return 0, 0, fault(pyfeed.Corrupt, len(magic), "expected version 1.0, 2.0 or 3.0 of npy, found %d.%d", major, minor)
	}
	dict = len(magic) + 4
	n := uint32(binary.LittleEndian.Uint16(head[len(magic)+2:]))
	if major > 1 {
		if dict += 2; len(head) < dict {
			return 0, 0, fault(pyfeed.Corrupt, len(head), "expected an npy header, found the end after %d bytes", len(head))
		}
		n = binary.LittleEndian.Uint32(head[len(magic)+2:])
	}
	if n > maxDictionary {
		return 0, 0, fault(pyfeed.Corrupt, len(magic)+2, "expected a dictionary of at most %d bytes, found one of %d", maxDictionary, n)
	}
	return dict, dict + int(n), nil
}

// Parse parses the header at the beginning of data. The offset of an error is relative to data: see atOffset.
func Parse(data []byte) (*Array, error) {
	dict, begin, err := findData(data)
	if err != nil {
		return nil, err
	}
	if len(data) < begin {
		return nil, fault(pyfeed.Corrupt, len(data), "expected a header of %d bytes, found %d", begin, len(data))
	}
	text := data[dict:begin]
	if data[len(magic)] == 3 && !utf8.Valid(text) {
		return nil, fault(pyfeed.Corrupt, dict, "expected a dictionary in UTF-8, as version 3 has it, found other bytes")
	}
	c := checker{text: text, base: dict}
	if err = c.dictionary(); err != nil {
		return nil, err
	}
	h, err := readHeader(c.canonical())
	if err != nil {
		return nil, fault(pyfeed.Corrupt, dict, "header: %v", err)
	}
	a := &Array{Begin: begin, Fortran: h.Descr.Fortran}
	if a.DType, a.Swapped, err = typeOf(h.Descr.Type); err != nil {
		return nil, fault(pyfeed.Type, c.offset(descr), "dtype: %v", err)
	}
	long := 0 // dimensions of more than one element
	for _, d := range h.Descr.Shape {
		if d > 1 {
			long++
		}
		a.Shape = append(a.Shape, int64(d))
	}
	if a.Size, err = byteSize(a.DType, a.Shape); err != nil {
		return nil, fault(pyfeed.Corrupt, c.offset(shape), "shape: %v", err)
	}
	a.Fortran = a.Fortran && long > 1 && a.Size > 0 // else both orders are the same
	return a, nil
}

// byteSize returns the number of bytes of an array. As in NumPy, the product of the other dimensions must not overflow
// either, even if a dimension is 0.
func byteSize(d pyfeed.DType, shape pyfeed.Dims) (int, error) {
	n, over, empty := uint64(d.Size()), false, false
	for _, d := range shape {
		if d == 0 {
			empty = true
			continue
		}
		high, low := bits.Mul64(n, uint64(d))
		over = over || high != 0 || low > math.MaxInt64
		n = low
	}
	if over {
		return 0, fmt.Errorf("expected one that a file can hold, found %v of %v", shape, d)
	}
	if empty {
		return 0, nil
	}
	return int(n), nil
}

// kinds are NumPy's letters and sizes. f8, c16: the number is a size in bytes.
var kinds = map[string]pyfeed.DType{
	"b1": pyfeed.Bool, "?": pyfeed.Bool,
	"i1": pyfeed.Int8, "i2": pyfeed.Int16, "i4": pyfeed.Int32, "i8": pyfeed.Int64,
	"u1": pyfeed.Uint8, "u2": pyfeed.Uint16, "u4": pyfeed.Uint32, "u8": pyfeed.Uint64,
	"f2": pyfeed.Float16, "f4": pyfeed.Float32, "f8": pyfeed.Float64,
	"c8": pyfeed.Complex64, "c16": pyfeed.Complex128,
}

// typeOf parses NumPy's description of a type: a byte order, a letter and a size, or a name.
func typeOf(name string) (d pyfeed.DType, swapped bool, err error) {
	// NumPy saves a type of another library as bytes, V, but with that type's byte order. Of the types of ml_dtypes
	// with two bytes, only bfloat16 is saved as <V2. Plain bytes of NumPy are |V2.
	if name == "<V2" || name == "bfloat16" {
		return pyfeed.BFloat16, record.BigEndian && name == "<V2", nil
	}
	order, kind := byte('='), name
	if kind != "" && strings.IndexByte("<>=|", kind[0]) >= 0 {
		order, kind = kind[0], kind[1:]
	}
	d, known := kinds[kind]
	if !known && order == '=' {
		d, known = pyfeed.DTypeOf(kind)
		known = known && d.Valid()
	}
	if known {
		return d, d.Size() > 1 && (order == '<' && record.BigEndian || order == '>' && !record.BigEndian), nil
	}
	if len(name) > 64 {
		name = name[:64] + "..."
	}
	var advice string
	switch kind[:min(1, len(kind))] {
	case "O":
		advice = "Python objects, which only Python can read: save arrays of numbers"
	case "S", "U", "T":
		advice = "strings: save a.view(numpy.uint8), or a format of records"
	case "M", "m":
		advice = "dates or times: save a.view(numpy.int64)"
	case "V":
		advice = "bytes of no known type: save a.view(numpy.uint8), or as the type that they are"
	case "f", "c":
		advice = "numbers of a size that is not supported: save a.astype(numpy.float32), or of another size"
	default:
		advice = "save numbers"
	}
	return 0, false, fmt.Errorf("expected a bool, an integer, a float of 2, 4 or 8 bytes or a complex of 8 or 16, found %q, %s", name, advice)
}

// nameOf returns NumPy's description of a dtype in the machine's byte order.
func nameOf(d pyfeed.DType) string {
	order := "<"
	switch {
	case d == pyfeed.BFloat16:
		return "<V2"
	case d.Size() == 1:
		order = "|"
	case record.BigEndian:
		order = ">"
	}
	for name, of := range kinds {
		if of == d && len(name) > 1 {
			return order + name
		}
	}
	return ""
}

// The keys of the dictionary, sorted as NumPy writes them.
const (
	descr = iota
	fortranOrder
	shape
	numKeys
)

var keys = [numKeys]string{"descr", "fortran_order", "shape"}

// checker limits the size of a dictionary and rejects it unless it is a Python literal with the three keys of an array
// of numbers. It does not interpret the values: npyio does.
type checker struct {
	text  []byte
	at    int
	base  int                               // offset of text in the file
	value [numKeys]struct{ begin, end int } // range in text; 0: no value yet
}

// offset returns the offset of a value in the file.
func (c *checker) offset(key int) int { return c.base + c.value[key].begin }

// literal returns the text of a value.
func (c *checker) literal(key int) []byte { return c.text[c.value[key].begin:c.value[key].end] }

func (c *checker) fault(format string, args ...any) error {
	return fault(pyfeed.Corrupt, c.base+c.at, "header: "+format, args...)
}

// peek skips spaces and returns the next byte; 0 at the end.
func (c *checker) peek() byte {
	for ; c.at < len(c.text); c.at++ {
		switch b := c.text[c.at]; b {
		case ' ', '\t', '\n', '\r', '\f':
		default:
			return b
		}
	}
	return 0
}

// found returns the part of the text at the position that an error shows.
func (c *checker) found() string {
	if c.at >= len(c.text) {
		return "the end"
	}
	return strconv.Quote(string(c.text[c.at:min(c.at+24, len(c.text))]))
}

func (c *checker) expect(b byte) error {
	if c.peek() != b {
		return c.fault("expected %q, found %s", b, c.found())
	}
	c.at++
	return nil
}

func (c *checker) dictionary() error {
	if err := c.expect('{'); err != nil {
		return err
	}
	for c.peek() != '}' {
		if err := c.entry(); err != nil {
			return err
		}
		if c.peek() == '}' {
			break
		}
		if err := c.expect(','); err != nil {
			return err
		}
	}
	c.at++
	if c.peek() != 0 || c.at < len(c.text) {
		return c.fault("expected nothing after the dictionary, found %s", c.found())
	}
	for i, k := range keys {
		if c.value[i].end == 0 {
			return c.fault("expected a key '%s', found none", k)
		}
	}
	return nil
}

func (c *checker) entry() error {
	c.peek()
	begin := c.at
	if err := c.quoted(); err != nil {
		return err
	}
	i := slices.Index(keys[:], string(c.text[begin+1:c.at-1]))
	if i < 0 || c.value[i].end != 0 {
		c.at = begin
		return c.fault("expected the keys 'descr', 'fortran_order' and 'shape', once each, found %s", c.found())
	}
	if err := c.expect(':'); err != nil {
		return err
	}
	c.peek()
	begin = c.at
	err := [numKeys]func() error{c.description, c.truth, c.sizes}[i]()
	c.value[i].begin, c.value[i].end = begin, c.at
	return err
}

// quoted parses a string without escapes, like the keys and types of NumPy.
func (c *checker) quoted() error {
	quote := c.peek()
	if quote != '\'' && quote != '"' {
		return c.fault("expected a string in quotes, found %s", c.found())
	}
	in := c.text[c.at+1:]
	n := bytes.IndexByte(in, quote)
	if n < 0 {
		return c.fault("expected a string in quotes, found no second quote after %s", c.found())
	}
	for _, b := range in[:n] {
		if b < ' ' || b > '~' || strings.IndexByte(`\'"{}`, b) >= 0 {
			return c.fault("expected a string of plain characters, found %s", c.found())
		}
	}
	c.at += n + 2
	return nil
}

func (c *checker) description() error {
	if b := c.peek(); b == '[' || b == '(' {
		return fault(pyfeed.Type, c.base+c.at, "dtype: expected numbers of one type, found a structured one, %s: "+
			"save an array for each field, as npz if in one file", c.found())
	}
	return c.quoted()
}

func (c *checker) truth() error {
	for _, word := range []string{"False", "True"} {
		if bytes.HasPrefix(c.text[c.at:], []byte(word)) {
			c.at += len(word)
			return nil
		}
	}
	return c.fault("fortran_order: expected True or False, found %s", c.found())
}

// sizes parses a tuple of integers that are not negative. Python 2 wrote an L after integers that it stored as long.
func (c *checker) sizes() error {
	tuple := c.base + c.at
	if err := c.expect('('); err != nil {
		return err
	}
	n, comma, negative := 0, false, error(nil)
	for c.peek() != ')' {
		if n > 0 && !comma {
			return c.fault("shape: expected ',' or ')', found %s", c.found())
		}
		begin := c.at
		if c.at < len(c.text) && c.text[c.at] == '-' {
			c.at++
		}
		digits := c.at
		for c.at < len(c.text) && c.text[c.at]-'0' < 10 {
			c.at++
		}
		if c.at == digits || c.at-begin > 20 {
			c.at = begin
			return c.fault("shape: expected an integer, found %s", c.found())
		}
		if digits > begin && negative == nil {
			negative = fault(pyfeed.Corrupt, tuple, "shape: dimension %d: expected a size, found %s", n, c.text[begin:c.at])
		}
		if c.at < len(c.text) && c.text[c.at] == 'L' {
			c.at++
		}
		n++
		if comma = c.peek() == ','; comma {
			c.at++
		}
	}
	if n == 1 && !comma {
		return c.fault("shape: expected a tuple, found an integer in parentheses")
	}
	c.at++
	if n > maxRank {
		return fault(pyfeed.Shape, tuple, "shape: expected at most %d dimensions, found %d", maxRank, n)
	}
	return negative
}

// canonical returns a header of version 2 with the values in the only order and spelling that npyio accepts: without
// spaces, and without the L of Python 2.
func (c *checker) canonical() []byte {
	head := append(make([]byte, 0, 256), magic...)
	head = append(head, 2, 0, 0, 0, 0, 0)
	for i, key := range keys {
		head = fmt.Appendf(head, "%s'%s': ", []string{"{", ", ", ", "}[i], key)
		switch i {
		case descr: // in single quotes
			text := c.literal(i)
			head = append(append(append(head, '\''), text[1:len(text)-1]...), '\'')
		case fortranOrder:
			head = append(head, c.literal(i)...)
		case shape:
			for _, b := range c.literal(i) {
				if b >= '0' && b <= '9' || b == ',' || b == '(' || b == ')' {
					head = append(head, b)
				}
			}
		}
	}
	head = append(head, ", }\n"...)
	binary.LittleEndian.PutUint32(head[len(magic)+2:], uint32(len(head)-prefixSize))
	return head
}

// readHeader parses a header with npyio, which slices without checks. If it panics, the header is invalid.
func readHeader(head []byte) (h *npyio.Header, err error) {
	defer func() {
		if p := recover(); p != nil {
			h, err = nil, fmt.Errorf("expected a dictionary of NumPy's, found another: %v", p)
		}
	}()
	r, err := npyio.NewReader(bytes.NewReader(head))
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "npy: "))
	}
	return &r.Header, nil
}

// digits is the space for the first dimension in a header, which is overwritten when the number of rows is known.
const digits = 21

// Header returns the header that NumPy writes, byte for byte, for an array in the machine's byte order whose last
// dimension varies fastest. Its size does not depend on the first dimension.
func Header(d pyfeed.DType, dims pyfeed.Dims) []byte {
	text := "{'descr': '" + nameOf(d) + "', 'fortran_order': False, 'shape': ("
	for i, n := range dims {
		if i > 0 {
			text += ", "
		}
		text += strconv.FormatInt(n, 10)
	}
	if len(dims) == 1 {
		text += ","
	}
	text += "), }"
	if len(dims) > 0 {
		text += strings.Repeat(" ", digits-len(strconv.FormatInt(dims[0], 10)))
	}
	size := len(magic) + 4 + len(text) + 1
	text += strings.Repeat(" ", alignment-size%alignment) + "\n"
	head := make([]byte, 0, len(magic)+4+len(text))
	head = append(head, magic...)
	head = append(head, 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	return append(head, text...)
}

// A Parser parses many headers, one at a time. A header with the same bytes as the last one only costs a comparison.
type Parser struct {
	head  []byte
	array *Array
}

// Parse is the function Parse. The Array MUST NOT be changed.
func (p *Parser) Parse(data []byte) (*Array, error) {
	if p.array != nil && bytes.HasPrefix(data, p.head) {
		return p.array, nil
	}
	a, err := Parse(data)
	if err != nil {
		return nil, err
	}
	p.head, p.array = append(p.head[:0], data[:a.Begin]...), a
	return a, nil
}
