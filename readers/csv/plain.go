package csv

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"

	"github.com/pyfeed/pyfeed/readers/record"
)

// Most numbers are a sign, digits, a point, digits, an exponent, with the delimiter or the line's end right behind them.
// Those are plain: they are read here, many in a loop. Any others, and whatever is wrong, are left to records.other. The
// time goes into learning where the next field begins, for which all that follows waits: nothing on the way there is
// looked at twice, or may keep the processor from guessing on.

const (
	// plainMask is what an offset in a field may be at most: an index then takes no check. A plain number is shorter,
	// since it has a sign, a point, 19 digits and 5 bytes of exponent at most.
	plainMask = 31
	// plainRoom is how many bytes from the beginning of a field on are looked at, whatever they are.
	plainRoom = plainMask + 8
)

// run is columns of one dtype that follow each other, in the file and in a row.
type run struct {
	*column            // the first
	first, behind int  // numbers of the columns
	last          bool // of the record
}

func runs(columns []column) (all []run) {
	for i := range columns {
		c := &columns[i]
		if k := len(all) - 1; k >= 0 && c.kind == all[k].kind && c.dtype == all[k].dtype && c.at == all[k].at+(i-all[k].first)*c.size {
			all[k].behind++
			continue
		}
		all = append(all, run{column: c, first: i, behind: i + 1})
	}
	if k := len(all) - 1; k >= 0 {
		all[k].last = true
	}
	return all
}

// plain reads fields of the run from column i on, the first at p, as many as are plain. It answers the column that was
// not read, and where that begins, or what is behind the run.
func (r *run) plain(b []byte, p, i int, line []byte, delimiter byte) (behind, next int) {
	n, at, last := r.behind-i, r.at+(i-r.first)*r.size, delimiter
	if r.last {
		last = '\n'
	}
	k := 0
	switch r.kind {
	case float64s:
		k, p = plainFloats(b, p, elements[float64](line, at, n), delimiter, last)
	case float32s:
		k, p = plainFloats(b, p, elements[float32](line, at, n), delimiter, last)
	case integer:
		k, p = r.plainIntegers(b, p, line[at:], n, delimiter, last)
	}
	return i + k, p
}

// elements are n of line from a byte on, where they are aligned.
func elements[E any](line []byte, at, n int) []E {
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(line[at:]))), n)
}

// plainFloats reads fields from p on into out. k were plain; the next field begins at next.
func plainFloats[F float32 | float64](b []byte, p int, out []F, delimiter, last byte) (k, next int) {
	for k = range out {
		if p+plainRoom > len(b) {
			return k, p
		}
		w := (*[plainRoom]byte)(unsafe.Pointer(&b[p])) // b[p:] takes three instructions more, for which all others wait
		first, m := 1, uint64(w[0]-'0')
		if m > 9 {
			if m = uint64(w[1] - '0'); m > 9 || w[0] != '-' {
				return k, p
			}
			first = 2
		}
		q := first
		for w[q&plainMask]-'0' <= 9 && q < 9 {
			m = m*10 + uint64(w[q&plainMask]-'0')
			q++
		}
		digits, fraction := q-first+1, 0 // of them behind the point
		if w[q&plainMask] == '.' {
			q++
			first = q
			for n := 8; n == 8 && q <= plainMask-8; { // then there are too many digits in any case
				var v uint64
				v, n = leading(binary.LittleEndian.Uint64(w[q&plainMask:]))
				m = m*powers[n&15] + v
				q += n
			}
			fraction = q - first
			digits += fraction
		}
		if digits > 19 { // more may be 2^64
			return k, p
		}
		want := delimiter
		if k == len(out)-1 {
			want = last
		}
		if w[q&plainMask] != want {
			if w[q&plainMask]|0x20 == 'e' {
				x, n := exponent(binary.LittleEndian.Uint64(w[q&plainMask:]))
				fraction -= x
				q += n
			}
			if w[q&plainMask] == '\r' && want == '\n' {
				q++
			}
			if w[q&plainMask] != want {
				return k, p
			}
		}
		var f F
		if m <= 1<<53 && fraction >= -22 && fraction <= 22 {
			// One multiplication or division of float64s: see exact.
			exact := float64(int64(m))
			if fraction >= 0 {
				exact /= tens[fraction]
			} else {
				exact *= tens[-fraction]
			}
			if unsafe.Sizeof(f) == 4 && halfway(exact) {
				return k, p
			}
			f = F(exact)
		} else if fraction >= 0 && fraction < len(powers) {
			f = quotient[F](m, fraction)
		} else {
			return k, p
		}
		if w[0] == '-' {
			f = -f
		}
		out[k] = f
		p += q + 1
	}
	return len(out), p
}

// plainIntegers is plainFloats for n integers of a run.
func (r *run) plainIntegers(b []byte, p int, out []byte, n int, delimiter, last byte) (k, next int) {
	below, above, size := r.below, r.above, r.size
	for k = range n {
		if p+plainRoom > len(b) {
			return k, p
		}
		w := (*[plainRoom]byte)(unsafe.Pointer(&b[p]))
		q, most := 0, above
		if w[0] == '-' {
			q, most = 1, below
		}
		v, digits := leading(binary.LittleEndian.Uint64(w[q&plainMask:]))
		if digits == 8 {
			more, n := leading(binary.LittleEndian.Uint64(w[(q+8)&plainMask:]))
			v = v*powers[n] + more
			digits += n
		}
		q += digits
		want := delimiter
		if k == n-1 {
			want = last
		}
		if w[q&plainMask] == '\r' && want == '\n' {
			q++
		}
		if w[q&plainMask] != want || digits == 0 || digits == 16 || v > most {
			return k, p
		}
		if w[0] == '-' {
			v = -v
		}
		record.PutElement(out[k*size:], size, v)
		p += q + 1
	}
	return n, p
}

// leading is how many ASCII digits w begins with, the first in the low byte, 8 at most, and their value: three steps
// that each add up neighbours, of one digit, two, and four.
func leading(w uint64) (v uint64, n int) {
	const highs = 0x8080808080808080
	w ^= '0' * (highs >> 7)
	n = 8
	// The lowest byte that is no digit has its high bit set; above it others may, by a carry.
	if others := (w + 0x7676767676767676 | w) & highs; others != 0 {
		n = bits.TrailingZeros64(others)
		w = w << 8 << (^n & 56) // zeros before them
		n >>= 3
	}
	w = w*10 + w>>8
	return ((w&0x000000ff000000ff)*(100+1000000<<32) + (w>>16&0x000000ff000000ff)*(1+10000<<32)) >> 32, n
}

// exponent reads an e, perhaps a sign, and one to three digits. It is n bytes long; 0: it is of another form.
func exponent(w uint64) (x, n int) {
	n = 1
	sign := byte(w >> 8)
	if sign == '-' || sign == '+' {
		n++
	}
	v, digits := leading(w >> (8 * n) & (1<<24 - 1))
	if digits == 0 {
		return 0, 0
	}
	if x = int(v); sign == '-' {
		x = -x
	}
	return x, n + digits
}

// quotient is the number nearest to m / 10^k.
func quotient[F float32 | float64](m uint64, k int) F {
	if m == 0 {
		return 0
	}
	// Both shifted until they begin with a one, and the dividend 63 or 64 bits further: then the quotient does too.
	d := powers[k]
	a, z := bits.LeadingZeros64(m), bits.LeadingZeros64(d)
	high, low, e := m<<a, uint64(0), z-a-64
	d <<= z
	if high >= d {
		high, low, e = high>>1, high<<63, e+1
	}
	q, rest := bits.Div64(high, low, d)
	if rest != 0 { // so that it is not taken for the middle of two
		q |= 1
	}
	return F(float64(F(q)) * math.Float64frombits(uint64(1023+e)<<52))
}

// Powers of ten that a uint64 holds.
var powers = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19}
