package record

import (
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// halfFormat returns the number of fraction bits and the exponent bias of float16 or bfloat16.
func halfFormat(d pyfeed.DType) (fraction, bias int) {
	if d == pyfeed.Float16 {
		return 10, 15
	}
	return 7, 127
}

// Halve rounds to the nearest float16 or bfloat16, and to even in the middle, as NumPy does. It returns false beyond
// the largest.
func Halve(f float64, d pyfeed.DType) (uint16, bool) {
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

// FromHalf returns the value of a float16 or bfloat16.
func FromHalf(h uint16, d pyfeed.DType) float64 {
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
