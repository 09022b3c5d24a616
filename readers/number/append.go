package number

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Append writes the fewest digits that are read as the same number. Floats always have a point or an exponent, so
// that readers distinguish them from integers.
func Append(to, data []byte, d pyfeed.DType) []byte {
	order := binary.NativeEndian
	v, whole := record.Integer(d, data)
	switch {
	case d == pyfeed.Bool:
		return strconv.AppendBool(to, v != 0)
	case d == pyfeed.Uint64:
		return strconv.AppendUint(to, uint64(v), 10)
	case whole:
		return strconv.AppendInt(to, v, 10)
	}
	switch d {
	case pyfeed.Float32:
		return appendFloat(to, float64(math.Float32frombits(order.Uint32(data))), -1, 32)
	case pyfeed.Float64:
		return appendFloat(to, math.Float64frombits(order.Uint64(data)), -1, 64)
	}
	h := order.Uint16(data) // float16 or bfloat16
	f := record.FromHalf(h, d)
	for digits := 1; ; digits++ { // at most five
		s := appendFloat(to, f, digits, 64)
		if v, flaw := Parse(s[len(to):], d, Half); flaw == OK && uint16(v) == h || f != f {
			return s
		}
	}
}

func appendFloat(to []byte, f float64, digits, width int) []byte {
	switch {
	case f != f:
		return append(to, "nan"...)
	case math.IsInf(f, 1):
		return append(to, "inf"...)
	case math.IsInf(f, -1):
		return append(to, "-inf"...)
	}
	from := len(to)
	to = strconv.AppendFloat(to, f, 'g', digits, width)
	if !bytes.ContainsAny(to[from:], ".e") {
		to = append(to, ".0"...)
	}
	return to
}
