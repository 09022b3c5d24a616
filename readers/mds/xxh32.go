package mds

import (
	"encoding/binary"
	"hash"
	"math/bits"
)

// The hash function XXH32 with the seed 0, after its specification:
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. No maintained module has it.

const (
	prime1, prime2, prime3, prime4, prime5 uint32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

	stripeSize = 16 // bytes
)

type xxh32 struct {
	lanes [4]uint32
	total uint64 // bytes
	rest  []byte // less than a stripe
}

func newXXH32() hash.Hash {
	h := new(xxh32)
	h.Reset()
	return h
}

func (h *xxh32) Reset() {
	one, two := prime1, prime2 // variables, since sums of the constants overflow
	*h = xxh32{lanes: [4]uint32{one + two, two, 0, -one}, rest: h.rest[:0]}
}
func (h *xxh32) Size() int      { return 4 }
func (h *xxh32) BlockSize() int { return stripeSize }

func (h *xxh32) Write(b []byte) (int, error) {
	n := len(b)
	h.total += uint64(n)
	if len(h.rest) > 0 {
		k := min(n, stripeSize-len(h.rest))
		h.rest, b = append(h.rest, b[:k]...), b[k:]
		if len(h.rest) < stripeSize {
			return n, nil
		}
		h.add(h.rest)
		h.rest = h.rest[:0]
	}
	for ; len(b) >= stripeSize; b = b[stripeSize:] {
		h.add(b)
	}
	h.rest = append(h.rest, b...)
	return n, nil
}

// add adds the stripe at the beginning of b.
func (h *xxh32) add(b []byte) {
	for i := range h.lanes {
		h.lanes[i] = bits.RotateLeft32(h.lanes[i]+binary.LittleEndian.Uint32(b[4*i:])*prime2, 13) * prime1
	}
}

func (h *xxh32) Sum(to []byte) []byte {
	v := prime5
	if l := h.lanes; h.total >= stripeSize {
		v = bits.RotateLeft32(l[0], 1) + bits.RotateLeft32(l[1], 7) + bits.RotateLeft32(l[2], 12) + bits.RotateLeft32(l[3], 18)
	}
	v += uint32(h.total)
	rest := h.rest
	for ; len(rest) >= 4; rest = rest[4:] {
		v = bits.RotateLeft32(v+binary.LittleEndian.Uint32(rest)*prime3, 17) * prime4
	}
	for _, b := range rest {
		v = bits.RotateLeft32(v+uint32(b)*prime5, 11) * prime1
	}
	v = (v ^ v>>15) * prime2
	v = (v ^ v>>13) * prime3
	return binary.BigEndian.AppendUint32(to, v^v>>16)
}
