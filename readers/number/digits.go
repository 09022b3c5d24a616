package number

import (
	"math"
	"math/bits"
)

// Leading returns how many ASCII digits w begins with, the first in the low byte, 8 at most, and their value. It adds
// up neighbours in three steps: single digits, pairs, and groups of four.
func Leading(w uint64) (v uint64, n int) {
	const highs = 0x8080808080808080
	w ^= '0' * (highs >> 7)
	n = 8
	// The lowest byte that is not a digit has its high bit set; bytes above it may have it set by a carry.
	if others := (w + 0x7676767676767676 | w) & highs; others != 0 {
		n = bits.TrailingZeros64(others)
		w = w << 8 << (^n & 56) // shifts zeros in before the digits
		n >>= 3
	}
	w = w*10 + w>>8
	return ((w&0x000000ff000000ff)*(100+1000000<<32) + (w>>16&0x000000ff000000ff)*(1+10000<<32)) >> 32, n
}

// Exponent parses an e, an optional sign, and one to three digits, from the low byte of w on. n is its length; 0: it has
// another form.
func Exponent(w uint64) (x, n int) {
	n = 1
	sign := byte(w >> 8)
	if sign == '-' || sign == '+' {
		n++
	}
	v, digits := Leading(w >> (8 * n) & (1<<24 - 1))
	if digits == 0 {
		return 0, 0
	}
	if x = int(v); sign == '-' {
		x = -x
	}
	return x, n + digits
}

// Quotient returns the number nearest to m / 10^k.
func Quotient[F float32 | float64](m uint64, k int) F {
	if m == 0 {
		return 0
	}
	// Shift both until they begin with a one, and the dividend by 63 or 64 more bits: then the Quotient begins with a
	// one too.
	d := Powers[k]
	a, z := bits.LeadingZeros64(m), bits.LeadingZeros64(d)
	high, low, e := m<<a, uint64(0), z-a-64
	d <<= z
	if high >= d {
		high, low, e = high>>1, high<<63, e+1
	}
	q, rest := bits.Div64(high, low, d)
	if rest != 0 { // so that it does not look like the middle between two numbers
		q |= 1
	}
	return F(float64(F(q)) * math.Float64frombits(uint64(1023+e)<<52))
}

// Powers are the powers of ten that a uint64 holds.
var Powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}
