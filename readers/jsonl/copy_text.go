package jsonl

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
	"unsafe"
)

// copyText checks a string as text does, and copies it without its escapes. It returns the size of the copy; -1 if it is
// longer than to, which may also be returned if it is a little shorter. to MUST be so short that a copy need not be
// interrupted.
func (s *scanner) copyText(to []byte, b []byte, p int) (end, n int) {
	for {
		p, n = copyPlain(to, n, b, p)
		for p+8 <= len(b) && n+8 <= len(to) {
			w := binary.LittleEndian.Uint64(b[p:])
			binary.LittleEndian.PutUint64(to[n:], w)
			found := (((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones) | (w - ' '*ones) | w) & highs
			if found == 0 {
				p, n = p+8, n+8
				continue
			}
			k := bits.TrailingZeros64(found) / 8
			p, n = p+k, n+k
			break
		}
		begin, c := p, b[p]
		switch {
		case c == '"':
			return p + 1, n
		case n+4 > len(to):
			return failed, -1
		case c == '\\':
			if p = s.escape(b, p); p < 0 {
				return failed, 0
			}
			n += unescapeOne(to[n:], b[begin:])
		case c >= utf8.RuneSelf:
			if p = s.beyondASCII(b, p); p < 0 {
				return failed, 0
			}
			if p-begin > len(to)-n {
				return failed, -1
			}
			n += copy(to[n:], b[begin:p])
		case c < ' ':
			if c == '\n' || c == '\r' && b[p+1] == '\n' {
				return s.fail(p, "expected a closing quote, found the end of the line"), 0
			}
			return s.fail(p, "expected an escape for a control character in a string, found the byte %#02x", c), 0
		default: // too few bytes are left for a word
			to[n] = c
			p, n = p+1, n+1
		}
		if !s.poll(p) {
			return failed, 0
		}
	}
}

// unescapeOne stores the character of an escape that was checked, and returns its size.
func unescapeOne(to, b []byte) int {
	if c := b[1]; c != 'u' {
		to[0] = escapes[c]
		return 1
	}
	r, _ := hex(b, 2)
	if r&0xf800 == 0xd800 {
		low, _ := hex(b, 8)
		r = 0x10000 + (r-0xd800)<<10 + low - 0xdc00
	}
	return utf8.EncodeRune(to[:4:4], r)
}

// groupSize is how many bytes specials looks at.
const groupSize = 64

// copyPlain copies a part of a string, from b[p:] to to[n:], without its escapes. It stops before the quote at the end of
// the string, before damage, before less frequent escapes and characters, and near the end of b or to. It returns the new
// positions.
//
// The stops within a string are many and at irregular distances, so a loop that tests words would mispredict most of its
// branches. Therefore the positions of all special bytes in a group are found first, without branches.
func copyPlain(to []byte, n int, b []byte, p int) (next, copied int) {
	const most = 2*groupSize + 2 // bytes that a turn of the loop reads or writes from p or n on
	src, dst := unsafe.Pointer(unsafe.SliceData(b)), unsafe.Pointer(unsafe.SliceData(to))
	for p+most <= len(b) && n+most <= len(to) {
		begin, found := p, specials(unsafe.Add(src, p))
		for found != 0 {
			k := bits.TrailingZeros64(found)
			copyGroup(unsafe.Add(dst, n), unsafe.Add(src, p), begin+k-p)
			n += begin + k - p
			p = begin + k
			switch c := *(*[2]byte)(unsafe.Add(src, p)); {
			case c[0] == '\\' && escapes[c[1]] != 0:
				*(*byte)(unsafe.Add(dst, n)) = escapes[c[1]]
				n++
			case c[0]&0xe0 == 0xc0 && c[0] >= 0xc2 && c[1]&0xc0 == 0x80:
				*(*[2]byte)(unsafe.Add(dst, n)) = c
				n += 2
			default:
				return p, n
			}
			p += 2
			found &^= 3 << k
		}
		if end := begin + groupSize; p < end {
			copyGroup(unsafe.Add(dst, n), unsafe.Add(src, p), end-p)
			n += end - p
			p = end
		}
	}
	return p, n
}

// copyGroup copies n bytes, at most groupSize, and perhaps bytes behind them, up to groupSize bytes in all.
func copyGroup(to, from unsafe.Pointer, n int) {
	copyHalf(to, from)
	if n > groupSize/2 {
		copyHalf(unsafe.Add(to, groupSize/2), unsafe.Add(from, groupSize/2))
	}
}

// copyHalf copies half a group. Without the variable, the compiler would call memmove, since the two may overlap.
func copyHalf(to, from unsafe.Pointer) {
	half := *(*[groupSize / 2]byte)(from)
	*(*[groupSize / 2]byte)(to) = half
}

// specialsInWords is specials in plain Go.
func specialsInWords(p unsafe.Pointer) (found uint64) {
	for i, w := range (*[groupSize / 8][8]byte)(p) {
		w := binary.LittleEndian.Uint64(w[:])
		// The high bits tell which bytes are neither a quote nor a backslash, and not below a blank. No sum carries into
		// the next byte.
		const low = ^uint64(highs)
		plain := (((w^'"'*ones)&low + low) & ((w^'\\'*ones)&low + low) & (w&low + (0x80-' ')*ones))
		found |= ((^plain | w) & highs >> 7 * 0x0102040810204080 >> 56) << (8 * i)
	}
	return found
}
