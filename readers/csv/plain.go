package csv

import (
	"encoding/binary"
	"unsafe"

	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Most numbers are a sign, digits, a point, digits, and an exponent, directly followed by the delimiter or the line's
// end. Such fields are called plain, and are parsed here in loops. All other fields, and all errors, are left to
// records.parseGeneral. Most of the time is spent in finding where the next field begins, because everything else
// depends on it. So that code looks at no byte twice and avoids branches that the processor mispredicts.

const (
	// plainMask is the largest offset in a field. Masked with it, an index needs no bounds check. A plain number is
	// shorter: it has at most a sign, a point, 19 digits and 5 bytes of exponent.
	plainMask = 31
	// plainReach is how many bytes are read from the beginning of a field, whatever they are.
	plainReach = plainMask + 8
)

// run is a series of columns of one dtype that are consecutive in the file and in a row.
type run struct {
	*column         // the first column
	first, end int  // number of the first column, and of the one after the last
	last       bool // it ends with the last column of the record
}

func runs(columns []column) (all []run) {
	for i := range columns {
		c := &columns[i]
		if k := len(all) - 1; k >= 0 && c.kind == all[k].kind && c.dtype == all[k].dtype && c.at == all[k].at+(i-all[k].first)*c.size {
			all[k].end++
			continue
		}
		all = append(all, run{column: c, first: i, end: i + 1})
	}
	if k := len(all) - 1; k >= 0 {
		all[k].last = true
	}
	return all
}

// plain parses plain fields of the run, from column i on, the first of which begins at p. It stops at the first field
// that is not plain. It returns that column and its position, or the column and position after the run.
func (r *run) plain(b []byte, p, i int, line []byte, delimiter byte) (behind, next int) {
	n, at, last := r.end-i, r.at+(i-r.first)*r.size, delimiter
	if r.last {
		last = '\n'
	}
	k := 0
	switch r.kind {
	case number.Float64:
		k, p = plainFloats(b, p, elements[float64](line, at, n), delimiter, last)
	case number.Float32:
		k, p = plainFloats(b, p, elements[float32](line, at, n), delimiter, last)
	case number.Integer:
		k, p = r.plainIntegers(b, p, line[at:], n, delimiter, last)
	}
	return i + k, p
}

// elements returns n elements of line at byte at, which is aligned.
func elements[E any](line []byte, at, n int) []E {
	return unsafe.Slice((*E)(unsafe.Pointer(unsafe.SliceData(line[at:]))), n)
}

// plainFloats parses fields from p on into out. k of them are plain; the next field begins at next.
func plainFloats[F float32 | float64](b []byte, p int, out []F, delimiter, last byte) (k, next int) {
	for k = range out {
		if p+plainReach > len(b) {
			return k, p
		}
		w := (*[plainReach]byte)(unsafe.Pointer(&b[p])) // b[p:] takes three more instructions
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
		digits, fraction := q-first+1, 0 // digits after the point
		if w[q&plainMask] == '.' {
			q++
			first = q
			for n := 8; n == 8 && q <= plainMask-8; { // a longer number has too many digits
				var v uint64
				v, n = number.Leading(binary.LittleEndian.Uint64(w[q&plainMask:]))
				m = m*number.Powers[n&15] + v
				q += n
			}
			fraction = q - first
			digits += fraction
		}
		if digits > 19 { // 20 digits may exceed 2^64
			return k, p
		}
		want := delimiter
		if k == len(out)-1 {
			want = last
		}
		if w[q&plainMask] != want {
			if w[q&plainMask]|0x20 == 'e' {
				x, n := number.Exponent(binary.LittleEndian.Uint64(w[q&plainMask:]))
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
				exact /= number.Tens[fraction]
			} else {
				exact *= number.Tens[-fraction]
			}
			if unsafe.Sizeof(f) == 4 && number.Halfway(exact) {
				return k, p
			}
			f = F(exact)
		} else if fraction >= 0 && fraction < len(number.Powers) {
			f = number.Quotient[F](m, fraction)
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
		if p+plainReach > len(b) {
			return k, p
		}
		w := (*[plainReach]byte)(unsafe.Pointer(&b[p]))
		q, limit := 0, above
		if w[0] == '-' {
			q, limit = 1, below
		}
		v, digits := number.Leading(binary.LittleEndian.Uint64(w[q&plainMask:]))
		if digits == 8 {
			more, n := number.Leading(binary.LittleEndian.Uint64(w[(q+8)&plainMask:]))
			v = v*number.Powers[n] + more
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
		if w[q&plainMask] != want || digits == 0 || digits == 16 || v > limit {
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
