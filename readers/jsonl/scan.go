package jsonl

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/bits"
	"strconv"
	"unicode/utf8"
	"unsafe"

	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// maxDepth is how deep arrays and objects may be nested.
const maxDepth = 1024

// A scanner checks JSON values, and finds their ends. All functions take a line with its end, "\n", and the position of
// a value. Since "\n" can occur nowhere in a value, they stop there without a comparison of positions. They return the
// position after the value, or failed.
type scanner struct {
	interrupt *storage.Interrupt
	pollAt    int // position at which to poll next
	depth     int // of arrays and objects around the position

	at      int    // position of the fault
	problem string // what was expected and found there; "": interrupted
}

const failed = -1

// fail notes a fault. It always returns failed.
func (s *scanner) fail(at int, format string, args ...any) int {
	s.at, s.problem = at, fmt.Sprintf(format, args...)
	return failed
}

// expected notes a fault about the byte at a position.
func (s *scanner) expected(what string, b []byte, at int) int {
	return s.fail(at, "expected %s, found %s", what, describe(b, at))
}

// describe formats what is at a position for an error.
func describe(b []byte, at int) string {
	switch c := b[at]; {
	case c == '\n' || c == '\r' && b[at+1] == '\n':
		return "the end of the line"
	case c >= utf8.RuneSelf:
		if r, n := utf8.DecodeRune(b[at:]); n > 1 {
			return strconv.QuoteRune(r)
		}
		return fmt.Sprintf("the byte %#02x", c)
	}
	for _, word := range []string{"NaN", "Infinity", "-Infinity"} {
		if hasPrefix(b[at:], word) {
			return word + ", which JSON does not have: write null, for which default gives the value"
		}
	}
	return strconv.QuoteRune(rune(b[at]))
}

func hasPrefix(b []byte, word string) bool {
	return len(b) >= len(word) && string(b[:len(word)]) == word
}

// poll polls the Interrupt once many bytes have been scanned since the last time.
func (s *scanner) poll(p int) bool {
	if p < s.pollAt {
		return true
	}
	s.pollAt = p + storage.PollEvery
	if s.interrupt.Poll() != nil {
		s.problem = ""
		return false
	}
	return true
}

// space skips white space within a line.
func space(b []byte, p int) int {
	for b[p] == ' ' || b[p] == '\t' || b[p] == '\r' {
		p++
	}
	return p
}

// value checks any value.
func (s *scanner) value(b []byte, p int) int {
	switch c := b[p]; {
	case c == '"':
		end, _ := s.text(b, p+1)
		return end
	case c == '{':
		return s.object(b, p)
	case c == '[':
		return s.array(b, p)
	case c == 't':
		return s.literal(b, p, "true")
	case c == 'f':
		return s.literal(b, p, "false")
	case c == 'n':
		return s.literal(b, p, "null")
	}
	return s.number(b, p)
}

func (s *scanner) literal(b []byte, p int, word string) int {
	for i := range len(word) {
		if b[p+i] != word[i] {
			return s.expected("a value", b, p)
		}
	}
	return p + len(word)
}

// enter counts an array or object around the position; leave counts back.
func (s *scanner) enter(p int) bool {
	if s.depth++; s.depth > maxDepth {
		s.fail(p, "expected arrays and objects nested at most %d deep, found more", maxDepth)
		return false
	}
	return s.poll(p)
}

func (s *scanner) leave() { s.depth-- }

func (s *scanner) object(b []byte, p int) int {
	if !s.enter(p) {
		return failed
	}
	if p = space(b, p+1); b[p] == '}' {
		s.leave()
		return p + 1
	}
	for {
		if b[p] != '"' {
			return s.expected("a name in quotes", b, p)
		}
		if p, _ = s.text(b, p+1); p < 0 {
			return failed
		}
		if p = s.colon(b, p); p < 0 {
			return failed
		}
		if p = s.value(b, p); p < 0 {
			return failed
		}
		var last bool
		if p, last = s.next(b, p, '}'); last || p < 0 {
			return p
		}
	}
}

func (s *scanner) array(b []byte, p int) int {
	if !s.enter(p) {
		return failed
	}
	if p = space(b, p+1); b[p] == ']' {
		s.leave()
		return p + 1
	}
	for {
		if p = s.value(b, p); p < 0 {
			return failed
		}
		var last bool
		if p, last = s.next(b, p, ']'); last || p < 0 {
			return p
		}
	}
}

// colon skips the colon after a name, and the white space around it.
func (s *scanner) colon(b []byte, p int) int {
	if b[p] != ':' {
		if p = space(b, p); b[p] != ':' {
			return s.expected("':' after a name", b, p)
		}
	}
	if p++; b[p] > ' ' {
		return p
	}
	return space(b, p)
}

// next skips what follows a value in an array or object: a comma, or the closing bracket.
func (s *scanner) next(b []byte, p int, closing byte) (behind int, last bool) {
	for first := true; ; first = false {
		switch {
		case b[p] == ',':
			if p++; b[p] == ' ' {
				p++
			}
			if b[p] <= ' ' {
				p = space(b, p)
			}
			if !s.poll(p) {
				return failed, false
			}
			return p, false
		case b[p] == closing:
			s.leave()
			return p + 1, true
		case !first:
			return s.expected(fmt.Sprintf("',' or '%c' after a value", closing), b, p), false
		}
		p = space(b, p)
	}
}

// number checks a number.
func (s *scanner) number(b []byte, p int) int {
	q := p
	if b[q] == '-' {
		q++
	}
	switch c := b[q]; {
	case c == '0':
		q++
	case c-'1' <= 8:
		q = s.digits(b, q)
	case q > p:
		if b[q] == 'I' {
			return s.expected("a value", b, p)
		}
		return s.expected("a digit", b, q)
	default:
		return s.expected("a value", b, p)
	}
	if q >= 0 && b[q] == '.' {
		if q++; b[q]-'0' > 9 {
			return s.expected("a digit after the point", b, q)
		}
		q = s.digits(b, q)
	}
	if q >= 0 && b[q]|0x20 == 'e' {
		if q++; b[q] == '-' || b[q] == '+' {
			q++
		}
		if b[q]-'0' > 9 {
			return s.expected("a digit of an exponent", b, q)
		}
		q = s.digits(b, q)
	}
	return q
}

// digits skips digits.
func (s *scanner) digits(b []byte, p int) int {
	for b[p]-'0' <= 9 {
		if p++; p >= s.pollAt && !s.poll(p) {
			return failed
		}
	}
	return p
}

const ones, highs = 0x0101010101010101, 0x8080808080808080

// text checks a string whose first byte after the quote is at p. escaped reports whether it has escapes.
func (s *scanner) text(b []byte, p int) (end int, escaped bool) {
	for {
		piece := b[:min(len(b), s.pollAt+8)]
		for p+8 <= len(piece) {
			// A quote and a backslash become zero bytes; the subtractions set the high bit of bytes that are zero, or
			// below a blank. A borrow goes to higher bytes only, so the lowest bit that is set is right.
			w := binary.LittleEndian.Uint64(piece[p:])
			found := (((w ^ '"'*ones) - ones) | ((w ^ '\\'*ones) - ones) | (w - ' '*ones) | w) & highs
			if found == 0 {
				if p += 8; p+groupSize > len(piece) {
					continue
				}
				if found = specials(unsafe.Pointer(&piece[p])); found == 0 {
					p += groupSize
					continue
				}
				p += bits.TrailingZeros64(found)
				break
			}
			p += bits.TrailingZeros64(found) / 8
			break
		}
		switch c := b[p]; {
		case c == '"':
			return p + 1, escaped
		case c == '\\':
			escaped = true
			if p = s.escape(b, p); p < 0 {
				return failed, true
			}
		case c >= utf8.RuneSelf:
			if p = s.beyondASCII(b, p); p < 0 {
				return failed, false
			}
		case c < ' ':
			if c == '\n' || c == '\r' && b[p+1] == '\n' {
				return s.fail(p, "expected a closing quote, found the end of the line"), false
			}
			return s.fail(p, "expected an escape for a control character in a string, found the byte %#02x", c), false
		default: // too few bytes are left for a word
			p++
		}
		if !s.poll(p) {
			return failed, false
		}
	}
}

// beyondASCII checks the UTF-8 sequences from p on.
func (s *scanner) beyondASCII(b []byte, p int) int {
	limit := s.pollAt + 8
	for b[p] >= utf8.RuneSelf && p < limit {
		if p+4 <= len(b) {
			// The bits that mark the bytes of a sequence, and those that tell overlong forms, surrogates and numbers
			// beyond U+10FFFF (The Unicode Standard, table 3-7).
			switch w := binary.LittleEndian.Uint32(b[p:]); {
			case w&0xc0c0f0 == 0x8080e0 && w&0x200f != 0 && w&0x200f != 0x200d:
				p += 3
				continue
			case w&0xc0e0 == 0x80c0 && w&0x1e != 0:
				p += 2
				continue
			}
		}
		r, n := utf8.DecodeRune(b[p:])
		if r == utf8.RuneError && n == 1 {
			return s.fail(p, "expected UTF-8, found the byte %#02x", b[p])
		}
		p += n
	}
	return p
}

// hexadecimal has the values of hexadecimal digits; other bytes have 0xff.
var hexadecimal = func() (t [256]byte) {
	for i := range t {
		t[i] = 0xff
	}
	for i := range 16 {
		t["0123456789abcdef"[i]], t["0123456789ABCDEF"[i]] = byte(i), byte(i)
	}
	return t
}()

// hex returns the number that four hexadecimal digits stand for; false: they are something else.
func hex(b []byte, p int) (rune, bool) {
	if p+4 > len(b) {
		return 0, false
	}
	h, i, j, k := hexadecimal[b[p]], hexadecimal[b[p+1]], hexadecimal[b[p+2]], hexadecimal[b[p+3]]
	return rune(h)<<12 | rune(i)<<8 | rune(j)<<4 | rune(k), h|i|j|k <= 0xf
}

// escape checks an escape, whose backslash is at p.
func (s *scanner) escape(b []byte, p int) int {
	switch b[p+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return p + 2
	case 'u':
		r, ok := hex(b, p+2)
		if !ok {
			return s.expected("four hexadecimal digits after \\u", b, p+2+hexDigits(b[p+2:]))
		}
		if r&0xf800 != 0xd800 {
			return p + 6
		}
		if r < 0xdc00 && b[p+6] == '\\' && b[p+7] == 'u' {
			if low, ok := hex(b, p+8); ok && low&0xfc00 == 0xdc00 {
				return p + 12
			}
		}
		return s.fail(p, "expected a pair of surrogates, found only one, %s: UTF-8 cannot represent it", b[p:p+6])
	}
	return s.expected("one of \"\\/bfnrtu after a backslash", b, p+1)
}

// hexDigits returns how many hexadecimal digits b begins with.
func hexDigits(b []byte) (n int) {
	for hexadecimal[b[n]] <= 0xf {
		n++
	}
	return n
}

// escapes has the characters that escapes of two characters stand for.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unescape stores the content of a string that was checked, without its quotes, and returns its size. to is at least as
// long as from. The only error is storage.ErrInterrupted.
func unescape(to, from []byte, interrupt *storage.Interrupt) (n int, err error) {
	for p, pollAt := 0, storage.PollEvery; p < len(from); {
		piece := from[:min(len(from), pollAt+8)]
		for p+8 <= len(piece) { // n <= p, so there is room for all eight bytes
			w := binary.LittleEndian.Uint64(piece[p:])
			binary.LittleEndian.PutUint64(to[n:], w)
			x := w ^ '\\'*ones
			found := (x - ones) & ^x & highs
			if found == 0 {
				p, n = p+8, n+8
				continue
			}
			k := bits.TrailingZeros64(found) / 8
			p, n = p+k, n+k
			break
		}
		if p >= pollAt {
			if err := interrupt.Poll(); err != nil {
				return 0, err
			}
			pollAt = p + storage.PollEvery
		}
		if p == len(from) {
			break
		}
		if c := from[p]; c != '\\' {
			to[n] = c
			p, n = p+1, n+1
			continue
		}
		if c := from[p+1]; c != 'u' {
			to[n] = escapes[c]
			p, n = p+2, n+1
			continue
		}
		r, _ := hex(from, p+2)
		p += 6
		if r&0xf800 == 0xd800 {
			low, _ := hex(from, p+2)
			r = 0x10000 + (r-0xd800)<<10 + low - 0xdc00
			p += 6
		}
		n += utf8.EncodeRune(to[n:n+4:n+4], r)
	}
	return n, nil
}

// A numeral is a number as it is written.
type numeral struct {
	number.Decimal
	integer bool // it has neither a point nor an exponent
}

// numeral parses a number. If Whole is not set, its value has to be parsed in another way.
func (s *scanner) numeral(b []byte, p int) (v numeral, end int) {
	q := p
	if b[q] == '-' {
		v.Negative = true
		q++
	}
	first := q
	m, q := someDigits(b, q, 0)
	count := q - first
	if count == 0 || b[first] == '0' && count > 1 {
		v.integer, v.Whole = true, true
		return v, s.number(b, p) // which fails, or stops after the 0
	}
	v.integer = true
	if b[q] == '.' && count <= maxDigits {
		v.integer = false
		first = q + 1
		if m, q = someDigits(b, first, m); q == first {
			return v, s.number(b, p)
		}
		count += q - first
		v.Exponent = first - q
	}
	if b[q]|0x20 != 'e' && count <= maxDigits {
		v.Mantissa, v.Whole = m, true
		return v, q
	}
	if end = s.number(b, p); end < 0 {
		return v, failed
	}
	v.integer = bytes.IndexFunc(b[p:end], func(r rune) bool { return r == '.' || r|0x20 == 'e' }) < 0
	if b[q]|0x20 == 'e' && end-q <= 6 { // a longer exponent is left to the other way
		x, _ := strconv.Atoi(string(b[q+1 : end])) // cannot fail
		v.Exponent += x
		v.Mantissa, v.Whole = m, count <= maxDigits
	}
	return v, end
}

// maxDigits is how many digits a uint64 can hold, whatever they are.
const maxDigits = 19

// someDigits parses digits, and adds them to those of m. It may stop after more than maxDigits.
func someDigits(b []byte, p int, m uint64) (v uint64, next int) {
	for limit := p + maxDigits; p <= limit; {
		if p+8 > len(b) {
			for ; b[p]-'0' <= 9 && p <= limit; p++ {
				m = m*10 + uint64(b[p]-'0')
			}
			break
		}
		w, n := number.Leading(binary.LittleEndian.Uint64(b[p:]))
		m = m*number.Powers[n&15] + w
		p += n
		if n < 8 {
			break
		}
	}
	return m, p
}
