package csv

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// A kind is how the fields of a column are parsed.
type kind uint8

const (
	skipped kind = iota
	text
	boolean
	integer
	float64s
	float32s
	halves // float16 and bfloat16
)

// kindOf returns how numbers of a dtype are parsed; false for dtypes without a text form.
func kindOf(d pyfeed.DType) (kind, bool) {
	switch d {
	case pyfeed.Bool:
		return boolean, true
	case pyfeed.Float64:
		return float64s, true
	case pyfeed.Float32:
		return float32s, true
	case pyfeed.Float16, pyfeed.BFloat16:
		return halves, true
	case pyfeed.Complex64, pyfeed.Complex128:
		return 0, false
	}
	return integer, d.Valid()
}

// bounds returns the limits of integers of a dtype, below and above 0.
func bounds(d pyfeed.DType) (below, above uint64) {
	bits := 8 * d.Size()
	switch d {
	case pyfeed.Int8, pyfeed.Int16, pyfeed.Int32, pyfeed.Int64:
		return 1 << (bits - 1), 1<<(bits-1) - 1
	}
	return 0, math.MaxUint64 >> (64 - bits)
}

// scanInteger parses a sign and digits at p. The digits end at q; q is p if there are none, or too many.
func scanInteger(b []byte, p int) (v uint64, negative bool, q int) {
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

// decimal is a number as written: mantissa × 10^exponent.
type decimal struct {
	mantissa uint64
	exponent int
	negative bool
	whole    bool // all digits fit into the mantissa
}

// scanDecimal parses a number at p that ends at q. q is p if the number is not of the common form.
func scanDecimal(b []byte, p int) (d decimal, q int) {
	q = p
	if q < len(b) && b[q] == '-' {
		d.negative = true
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
			v, n = leading(binary.LittleEndian.Uint64(b[q:]))
			m = m*powers[n] + v
			q += n
		}
		for q < len(b) && b[q]-'0' <= 9 {
			m = m*10 + uint64(b[q]-'0')
			q++
		}
		d.exponent = first - q
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
		d.exponent += e
	}
	d.mantissa, d.whole = m, digits <= 19
	return d, q
}

// Powers of ten that a float64 holds exactly.
var tens = [...]float64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10,
	1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22}

// exact returns the float64 nearest to d, if mantissa and power of ten are both exact as float64s: then one
// multiplication or division rounds only once (W. D. Clinger, How to read floating point numbers accurately, 1990).
func (d *decimal) exact() (f float64, ok bool) {
	if !d.whole || d.mantissa > 1<<53 {
		return 0, false
	}
	f = float64(d.mantissa)
	switch e := d.exponent; {
	case e == 0:
	case e < 0 && e >= -22:
		f /= tens[-e]
	case e > 0 && e <= 22:
		f *= tens[e]
	default:
		return 0, false
	}
	if d.negative {
		f = -f
	}
	return f, true
}

// halfway reports whether f lies in the middle between two float32s: then the number that f is the nearest float64 of
// may be nearer to one of them. f is normal as a float32, like all results of exact.
func halfway(f float64) bool { return math.Float64bits(f)&(1<<29-1) == 1<<28 }

// scanFloat64 parses a number at p that ends at q. q is p if the number has to be parsed in another way.
func scanFloat64(b []byte, p int) (float64, int) {
	d, q := scanDecimal(b, p)
	if q == p {
		return 0, p
	}
	if f, ok := d.exact(); ok {
		return f, q
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[p], q-p), 64)
	if err != nil {
		return 0, p
	}
	return f, q
}

// scanFloat32 is scanFloat64 for float32.
func scanFloat32(b []byte, p int) (float32, int) {
	d, q := scanDecimal(b, p)
	if q == p {
		return 0, p
	}
	if f, ok := d.exact(); ok && !halfway(f) {
		return float32(f), q
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[p], q-p), 32)
	if err != nil {
		return 0, p
	}
	return float32(f), q
}

// trim removes blanks and tabs from both ends.
func trim(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\t') {
		b = b[1:]
	}
	for len(b) > 0 && (b[len(b)-1] == ' ' || b[len(b)-1] == '\t') {
		b = b[:len(b)-1]
	}
	return b
}

// A numberFault says why a field is not a number.
type numberFault uint8

const (
	none numberFault = iota
	noNumber
	outOfRange
)

// parseNumber parses a whole field in all valid forms: also with a plus sign, as inf or nan, and with blanks around it.
func parseNumber(b []byte, d pyfeed.DType, k kind) (bits uint64, f numberFault) {
	b = trim(b)
	switch k {
	case boolean:
		return parseBool(b)
	case integer:
		return parseInteger(b, d)
	}
	width := 64
	if k == float32s {
		width = 32
	}
	v, f := parseFloat(b, width)
	if f != none {
		return 0, f
	}
	switch {
	case k == float32s:
		return uint64(math.Float32bits(float32(v))), none
	case k == float64s:
		return math.Float64bits(v), none
	}
	h, ok := halve(v, d)
	if !ok {
		return 0, outOfRange
	}
	return uint64(h), none
}

func parseBool(b []byte) (uint64, numberFault) {
	switch len(b) {
	case 1:
		if b[0] == '0' || b[0] == '1' {
			return uint64(b[0] - '0'), none
		}
	case 4:
		if fold(b, "true") {
			return 1, none
		}
	case 5:
		if fold(b, "false") {
			return 0, none
		}
	}
	return 0, noNumber
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

func parseInteger(b []byte, d pyfeed.DType) (uint64, numberFault) {
	negative := false
	if len(b) > 0 && (b[0] == '-' || b[0] == '+') {
		negative = b[0] == '-'
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, noNumber
	}
	for _, c := range b {
		if c-'0' > 9 {
			return 0, noNumber
		}
	}
	for len(b) > 1 && b[0] == '0' {
		b = b[1:]
	}
	v, err := strconv.ParseUint(unsafe.String(&b[0], len(b)), 10, 64)
	below, above := bounds(d)
	if negative {
		above, v = below, -v
		if err == nil && -v > above {
			return 0, outOfRange
		}
	}
	if err != nil || !negative && v > above {
		return 0, outOfRange
	}
	return v, none
}

// parseFloat rounds correctly. It accepts what C's strtod accepts, except hexadecimal numbers.
func parseFloat(b []byte, width int) (float64, numberFault) {
	if len(b) == 0 {
		return 0, noNumber
	}
	unsigned := b
	if b[0] == '-' || b[0] == '+' {
		unsigned = b[1:]
	}
	switch {
	case fold(unsigned, "nan"):
		return math.Float64frombits(0x7ff8 << 48), none // NumPy's nan
	case fold(unsigned, "inf") || fold(unsigned, "infinity"):
		if b[0] == '-' {
			return math.Inf(-1), none
		}
		return math.Inf(1), none
	}
	for _, c := range b {
		if c-'0' > 9 && c != '.' && c != '-' && c != '+' && c|0x20 != 'e' { // strconv accepts more
			return 0, noNumber
		}
	}
	f, err := strconv.ParseFloat(unsafe.String(&b[0], len(b)), width)
	if err != nil {
		if math.IsInf(f, 0) {
			return 0, outOfRange
		}
		return 0, noNumber
	}
	return f, none
}

// halfFormat returns the number of fraction bits and the exponent bias of float16 or bfloat16.
func halfFormat(d pyfeed.DType) (fraction, bias int) {
	if d == pyfeed.Float16 {
		return 10, 15
	}
	return 7, 127
}

// halve rounds to the nearest float16 or bfloat16, and to even in the middle, as NumPy does. It returns false beyond
// the largest.
func halve(f float64, d pyfeed.DType) (uint16, bool) {
	fraction, bias := halfFormat(d)
	sign := uint16(math.Float64bits(f) >> 48 & 0x8000)
	infinity := uint16(0x7fff) >> fraction << fraction
	switch size := math.Abs(f); {
	case f != f:
		return infinity | 1<<(fraction-1), true
	case math.IsInf(f, 0):
		return sign | infinity, true
	case size == 0:
		return sign, true
	default:
		// In units of the last place; below the normal numbers, that is the unit of the smallest normal number.
		_, exponent := math.Frexp(size)
		exponent = max(exponent-1, 1-bias)
		units := uint64(math.RoundToEven(math.Ldexp(size, fraction-exponent)))
		h := units + uint64(exponent+bias-1)<<fraction // the leading one adds 1 to the exponent
		return sign | uint16(min(h, uint64(infinity))), h < uint64(infinity)
	}
}

// halfToFloat returns the value of a float16 or bfloat16.
func halfToFloat(h uint16, d pyfeed.DType) float64 {
	fraction, bias := halfFormat(d)
	exponent := int(h & 0x7fff >> fraction)
	f := float64(h & (1<<fraction - 1))
	switch exponent {
	case 0x7fff >> fraction:
		if f != 0 {
			return math.NaN()
		}
		f = math.Inf(1)
	case 0:
		f = math.Ldexp(f, 1-bias-fraction)
	default:
		f = math.Ldexp(f+float64(uint(1)<<fraction), exponent-bias-fraction)
	}
	if h&0x8000 != 0 {
		f = -f
	}
	return f
}

// expectedNumber describes the numbers that a column accepts.
func expectedNumber(d pyfeed.DType, f numberFault) string {
	switch k, _ := kindOf(d); {
	case k == boolean:
		return "a bool, true, false, 0 or 1"
	case k == integer && f == outOfRange:
		below, above := bounds(d)
		return fmt.Sprintf("a number of %v, %d to %d", d, -int64(below), above)
	case f == outOfRange:
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
