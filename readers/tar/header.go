package tar

import (
	"bytes"
	"encoding/binary"
)

// blockSize is the unit of tar files, in bytes. Members begin at multiples of it.
const blockSize = 512

// block is a header. Its fields, by offset and length: name 0 100, mode 100 8, uid 108 8, gid 116 8, size 124 12, mtime
// 136 12, checksum 148 8, type 156 1, link 157 100, magic and version 257 8, user 265 32, group 297 32, device 329 16,
// prefix 345 155.
type block [blockSize]byte

// The member types that the reader distinguishes.
const (
	typeRegular    = '0'
	typeOldRegular = 0
	typeLink       = '1' // the types up to typeFIFO have a header only
	typeFIFO       = '6'
	typeContiguous = '7'
	typePax        = 'x'
	typeSolarisPax = 'X'
	typeGlobalPax  = 'g'
	typeLongName   = 'L'
	typeLongLink   = 'K'
	typeSparse     = 'S'
	typeContinued  = 'M'
)

// roundToBlocks rounds a size up to whole blocks.
func roundToBlocks(size int) int { return (size + blockSize - 1) &^ (blockSize - 1) }

// sum adds the bytes of a header, with the checksum field as spaces.
func (h *block) sum() uint64 {
	// Four 16-bit sums in each of two words: the sum of 128 bytes is at most 32640.
	const even = 0x00ff00ff00ff00ff
	var a, b uint64
	for i := 0; i < blockSize; i += 32 {
		p := h[i : i+32 : i+32]
		w, x := binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[8:])
		y, z := binary.LittleEndian.Uint64(p[16:]), binary.LittleEndian.Uint64(p[24:])
		if w|x|y|z == 0 { // most of a header is zeros, in the same places
			continue
		}
		a += w&even + w>>8&even + x&even + x>>8&even
		b += y&even + y>>8&even + z&even + z>>8&even
	}
	c := binary.LittleEndian.Uint64(h[148:])
	return lanes(a) + lanes(b) - lanes(c&even+c>>8&even) + 8*' '
}

func lanes(a uint64) uint64 {
	const even = 0x0000ffff0000ffff
	a = a&even + a>>16&even
	return a&0xffffffff + a>>32
}

// signedSum is the checksum of some old programs, which added signed bytes.
func (h *block) signedSum() int64 {
	sum := int64(8 * ' ')
	for i, c := range h {
		if i < 148 || i >= 156 {
			sum += int64(int8(c))
		}
	}
	return sum
}

// valid reports whether the checksum is right.
func (h *block) valid() bool {
	w := binary.BigEndian.Uint64(h[148:])
	want, ok := octals(w>>16 | 0x3030<<48)
	if !ok || w>>8&0xff != 0 { // not in the form that most programs write
		want, ok = octal(h[148:156])
	}
	return ok && want > 0 && (want == h.sum() || int64(want) == h.signedSum())
}

func (h *block) zero() bool { return h[0] == 0 && *h == block{} }

// octal parses an octal number in text: spaces, digits, spaces, and optionally a zero byte, after which anything may
// follow.
func octal(b []byte) (n uint64, ok bool) {
	i := 0
	for i < len(b) && b[i] == ' ' {
		i++
	}
	for ; i < len(b) && b[i]-'0' < 8; i++ {
		n = n<<3 | uint64(b[i]-'0') // 12 digits at most
	}
	for i < len(b) && b[i] == ' ' {
		i++
	}
	return n, i == len(b) || b[i] == 0
}

// octals parses eight octal digits at once, the first in the highest byte.
func octals(w uint64) (n uint64, ok bool) {
	ok = w&0xf8f8f8f8f8f8f8f8 == 0x3030303030303030
	w &= 0x0707070707070707
	w = (w | w>>5) & 0x003f003f003f003f
	w = (w | w>>10) & 0x00000fff00000fff
	return (w | w>>20) & 0xffffff, ok
}

// size returns the size of the data after the header. ok is false if it is not a valid size.
func (h *block) size() (n uint64, ok bool) {
	b := h[124:136]
	// Eleven digits and a zero byte. The first three digits are mostly 0.
	if last := binary.BigEndian.Uint64(h[127:]); b[11] == 0 && b[0] == '0' && b[1] == '0' && b[2] == '0' {
		if n, ok = octals(last); ok {
			return n, true
		}
	}
	if b[0] < 0x80 {
		return octal(b)
	}
	// GNU's form: 0x80 and a number of 11 bytes, big-endian.
	high := uint32(b[0]&0x7f)<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
	n = binary.BigEndian.Uint64(b[4:])
	return n, high == 0 && n < 1<<62
}

// name returns the member's name, as a part of the header if possible, else in buf.
func (h *block) name(buf *[]byte) []byte {
	name := text(h[:100])
	if h[345] == 0 || string(h[257:263]) != "ustar\x00" { // GNU headers have other fields there
		return name
	}
	b := append((*buf)[:0], text(h[345:500])...)
	b = append(b, '/')
	*buf = append(b, name...)
	return *buf
}

// text returns the bytes before the first zero byte.
func text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// extra has what extra headers say about the next member.
type extra struct {
	name    []byte // in the reader's buffer
	named   bool
	size    uint64
	sized   bool
	sparse  bool
	pathSet bool // by a pax header, which overrides GNU's long names
}

// pax parses records of the form "length key=value\n". On an error, expected says what was expected at offset at.
func (e *extra) pax(b []byte, buf *[]byte) (at int, expected string) {
	for at < len(b) {
		rest := b[at:]
		n, i := 0, 0
		for i < len(rest) && i < 9 && rest[i]-'0' < 10 {
			n = n*10 + int(rest[i]-'0')
			i++
		}
		if i == 0 || i == len(rest) || rest[i] != ' ' {
			return at, "the length of a record and a space"
		}
		if n > len(rest) || n < i+2 || rest[n-1] != '\n' {
			return at, "a record of the length that it gives, ending with a newline"
		}
		key, value, found := bytes.Cut(rest[i+1:n-1], []byte{'='})
		if !found || len(key) == 0 {
			return at, "key=value"
		}
		switch string(key) {
		case "path":
			if e.named, e.pathSet = len(value) > 0, len(value) > 0; e.named {
				*buf = append((*buf)[:0], value...)
				e.name = *buf
			}
		case "size":
			if e.sized = len(value) > 0; !e.sized {
				break
			}
			e.size = 0
			for _, c := range value {
				if c-'0' > 9 || e.size > 1<<58 {
					return at, "a size in bytes"
				}
				e.size = e.size*10 + uint64(c-'0')
			}
		default:
			e.sparse = e.sparse || bytes.HasPrefix(key, []byte("GNU.sparse."))
		}
		at += n
	}
	return 0, ""
}
