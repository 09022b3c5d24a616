// Package number parses and formats numbers as text, in files and in options, for each dtype. Floats are rounded
// correctly. The functions that start with Scan, Leading, Exponent and Quotient are parts of the formats' own loops over
// many numbers.
package number

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A Kind is how the values of a column are parsed.
type Kind uint8

const (
	None Kind = iota // no value is read
	Text
	Boolean
	Integer
	Float64
	Float32
	Half // float16 and bfloat16
)

// KindOf returns how numbers of a dtype are parsed; false for dtypes without a text form.
func KindOf(d pyfeed.DType) (Kind, bool) {
	switch d {
	case pyfeed.Bool:
		return Boolean, true
	case pyfeed.Float64:
		return Float64, true
	case pyfeed.Float32:
		return Float32, true
	case pyfeed.Float16, pyfeed.BFloat16:
		return Half, true
	case pyfeed.Complex64, pyfeed.Complex128:
		return 0, false
	}
	return Integer, d.Valid()
}

// Bounds returns the limits of integers of a dtype, below and above 0.
func Bounds(d pyfeed.DType) (below, above uint64) {
	bits := 8 * d.Size()
	switch d {
	case pyfeed.Int8, pyfeed.Int16, pyfeed.Int32, pyfeed.Int64:
		return 1 << (bits - 1), 1<<(bits-1) - 1
	}
	return 0, math.MaxUint64 >> (64 - bits)
}

// ScanInteger parses a sign and digits at p. The digits end at q; q is p if there are none, or too many.
func ScanInteger(b []byte, p int) (v uint64, negative bool, q int) {
	q = p
	if q < len(b) && b[q] == '-' {
		negative = true
		q++
	}
	first := q
	for q < len(b) && b[q]-'0' <= 9 {
		v = v*10 + uint64(b[q]-'0')
		q++
	}
	if q == first || q-first > 19 { // 19 digits are always less than 2^64
		return 0, false, p
	}
	return v, negative, q
}

// Decimal is a number as written: Mantissa × 10^Exponent.
type Decimal struct {
	Mantissa uint64
	Exponent int
	Negative bool
	Whole    bool // all digits fit into the mantissa
}

// ScanDecimal parses a number at p that ends at q. q is p if the number is not of the common form.
func ScanDecimal(b []byte, p int) (d Decimal, q int) {
	q = p
	if q < len(b) && b[q] == '-' {
		d.Negative = true
		q++
	}
	first := q
	m := uint64(0)
	for q < len(b) && b[q]-'0' <= 9 {
		m = m*10 + uint64(b[q]-'0')
		q++
	}
	digits := q - first
	if q < len(b) && b[q] == '.' {
		q++
		first = q
		for n := 8; n == 8 && q+8 <= len(b); {
			var v uint64
			v, n = Leading(binary.LittleEndian.Uint64(b[q:]))
			m = m*Powers[n] + v
			q += n
		}
		for q < len(b) && b[q]-'0' <= 9 {
			m = m*10 + uint64(b[q]-'0')
			q++
		}
		d.Exponent = first - q
		digits += q - first
	}
	if digits == 0 {
		return d, p
	}
	if q < len(b) && b[q]|0x20 == 'e' {
		q++
		minus := false
		if q < len(b) && (b[q] == '-' || b[q] == '+') {
			minus = b[q] == '-'
			q++
		}
		first, e := q, 0
		for q < len(b) && b[q]-'0' <= 9 && q-first < 5 {
			e = e*10 + int(b[q]-'0')
			q++
		}
		if q == first || q-first == 5 {
			return d, p
		}
		if minus {
			e = -e
		}
		d.Exponent += e
	}
	d.Mantissa, d.Whole = m, digits <= 19
	return d, q
}

// Tens are the powers of ten that a float64 holds exactly.
var Tens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10,
	1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// Exact returns the float64 nearest to d, if mantissa and power of ten are both exact as float64s: then one
// multiplication or division rounds only once (W. D. Clinger, How to read floating point numbers accurately, 1990).
func (d *Decimal) Exact() (f float64, ok bool) {
	if !d.Whole || d.Mantissa > 1<<53 {
		return 0, false
	}
	f = float64(d.Mantissa)
	switch e := d.Exponent; {
	case e == 0:
	case e < 0 && e >= -22:
		f /= Tens[-e]
	case e > 0 && e <= 22:
		f *= Tens[e]
	default:
		return 0, false
	}
	if d.Negative {
		f = -f
	}
	return f, true
}

// Halfway reports whether f lies in the middle between two float32s: then the number that f is the nearest float64 of
// may be nearer to one of them. f is normal as a float32, like all results of Exact.
func Halfway(f float64) bool { return math.Float64bits(f)&(1<<29-1) == 1<<28 }

// ScanFloat64 parses a number at p that ends at q. q is p if the number has to be parsed in another way.
func ScanFloat64(b []byte, p int) (float64, int) {
	d, q := ScanDecimal(b, p)
	if q == p {
		return 0, p
	}
	if f, ok := d.Exact(); ok {
		return f, q
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[p], q-p), 64)
	if err != nil {
		return 0, p
	}
	return f, q
}

// ScanFloat32 is ScanFloat64 for float32.
func ScanFloat32(b []byte, p int) (float32, int) {
	d, q := ScanDecimal(b, p)
	if q == p {
		return 0, p
	}
	if f, ok := d.Exact(); ok && !Halfway(f) {
		return float32(f), q
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[p], q-p), 32)
	if err != nil {
		return 0, p
	}
	return float32(f), q
}

// Trim removes blanks and tabs from both ends.
func Trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// A Fault says why a field is not a number.
type Fault uint8

const (
	OK         Fault = iota
	NotNumber        // the text is not a number
	OutOfRange       // the dtype cannot represent the number
)

// Parse parses a whole field in all valid forms: also with a plus sign, as inf or nan, and with blanks around it.
func Parse(b []byte, d pyfeed.DType, k Kind) (bits uint64, f Fault) {
	b = Trim(b)
	switch k {
	case Boolean:
		return ParseBool(b)
	case Integer:
		return ParseInteger(b, d)
	}
	width := 64
	if k == Float32 {
		width = 32
	}
	v, f := ParseFloat(b, width)
	if f != OK {
		return 0, f
	}
	switch {
	case k == Float32:
		return uint64(math.Float32bits(float32(v))), OK
	case k == Float64:
		return math.Float64bits(v), OK
	}
	h, ok := record.Halve(v, d)
	if !ok {
		return 0, OutOfRange
	}
	return uint64(h), OK
}

// Element returns the element of a dtype that a text stands for, such as the value of nulls in an option. It returns false
// if the dtype cannot represent it.
func Element(text string, d pyfeed.DType) ([]byte, bool) {
	kind, known := KindOf(d)
	if !known {
		return nil, false
	}
	bits, fault := Parse([]byte(text), d, kind)
	element := make([]byte, d.Size())
	record.PutElement(element, len(element), bits)
	return element, fault == OK
}

// ParseBool parses true, false, 0 or 1, ignoring case.
func ParseBool(b []byte) (uint64, Fault) {
	switch len(b) {
	case 1:
		if b[0] == '0' || b[0] == '1' {
			return uint64(b[0] - '0'), OK
		}
	case 4:
		if fold(b, "true") {
			return 1, OK
		}
	case 5:
		if fold(b, "false") {
			return 0, OK
		}
	}
	return 0, NotNumber
}

// fold reports whether b is word, ignoring case.
func fold(b []byte, word string) bool {
	if len(b) != len(word) {
		return false
	}
	for i := range b {
		if b[i]|0x20 != word[i] {
			return false
		}
	}
	return true
}

// ParseInteger parses digits and an optional sign. It returns the bits of the value.
func ParseInteger(b []byte, d pyfeed.DType) (uint64, Fault) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, NotNumber
	}
	for _, c := range b {
		if c-'0' > 9 {
			return 0, NotNumber
		}
	}
	for len(b) > 1 && b[0] == '0' {
		b = b[1:]
	}
	v, err := strconv.ParseUint(unsafe.String(&b[0], len(b)), 10, 64)
	below, above := Bounds(d)
	if negative {
		above, v = below, -v
		if err == nil && -v > above {
			return 0, OutOfRange
		}
	}
	if err != nil || !negative && v > above {
		return 0, OutOfRange
	}
	return v, OK
}

// ParseFloat parses a float of 32 or 64 bits, the width. It accepts what C's strtod accepts, except hexadecimal numbers.
func ParseFloat(b []byte, width int) (float64, Fault) {
	if len(b) == 0 {
		return 0, NotNumber
	}
	unsigned := b
	if b[0] == '-' || b[0] == '+' {
		unsigned = b[1:]
	}
	switch {
	case fold(unsigned, "nan"):
		return math.Float64frombits(0x7ff8 << 48), OK // NumPy's nan
	case fold(unsigned, "inf") || fold(unsigned, "infinity"):
		if b[0] == '-' {
			return math.Inf(-1), OK
		}
		return math.Inf(1), OK
	}
	for _, c := range b {
		if c-'0' > 9 && c != '.' && c != '-' && c != '+' && c|0x20 != 'e' { // strconv accepts more
			return 0, NotNumber
		}
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), width)
	if err != nil {
		if math.IsInf(f, 0) {
			return 0, OutOfRange
		}
		return 0, NotNumber
	}
	return f, OK
}

// Expected describes the numbers that a dtype accepts, for an error about one that it does not.
func Expected(d pyfeed.DType, f Fault) string {
	switch k, _ := KindOf(d); {
	case k == Boolean:
		return "a bool, true, false, 0 or 1"
	case k == Integer && f == OutOfRange:
		below, above := Bounds(d)
		return fmt.Sprintf("a number of %v, %d to %d", d, -int64(below), above)
	case f == OutOfRange:
		largest := math.MaxFloat64
		switch d {
		case pyfeed.Float32:
			largest = math.MaxFloat32
		case pyfeed.Float16:
			largest = 65504
		case pyfeed.BFloat16:
			largest = 0x1.fep127
		}
		return fmt.Sprintf("a number of %v, at most %.5g in size", d, largest)
	}
	return fmt.Sprintf("a number of %v", d)
}
