package mds

import (
	"encoding/binary"
	"hash"
	"math/bits"
)

// The hash functions XXH32 and XXH64 with the seed 0, after their specification:
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md

const (
	prime32x1, prime32x2, prime32x3, prime32x4, prime32x5 uint32 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1

	prime64x1 uint64 = 0x9E3779B185EBCA87
	prime64x2 uint64 = 0xC2B2AE3D27D4EB4F
	prime64x3 uint64 = 0x165667B19E3779F9
	prime64x4 uint64 = 0x85EBCA77C2B2AE63
	prime64x5 uint64 = 0x27D4EB2F165667C5
)

// stripes collects input until it has a stripe.
type stripes struct {
	total uint64
	rest  []byte // less than a stripe
}

// add calls each for every complete stripe of size bytes.
func (s *stripes) add(b []byte, size int, each func(stripe []byte)) {
	s.total += uint64(len(b))
	if len(s.rest) > 0 {
		n := min(len(b), size-len(s.rest))
		s.rest, b = append(s.rest, b[:n]...), b[n:]
		if len(s.rest) < size {
			return
		}
		each(s.rest)
		s.rest = s.rest[:0]
	}
	for ; len(b) >= size; b = b[size:] {
		each(b[:size])
	}
	s.rest = append(s.rest, b...)
}

type xxh64 struct {
	stripes
	lanes [4]uint64
}

func newXXH64() hash.Hash {
	h := new(xxh64)
	h.Reset()
	return h
}

func (h *xxh64) Reset() {
	one, two := prime64x1, prime64x2 // variables, since sums of the constants overflow
	*h = xxh64{lanes: [4]uint64{one + two, two, 0, -one}}
}
func (h *xxh64) Size() int      { return 8 }
func (h *xxh64) BlockSize() int { return 32 }

func round64(lane, input uint64) uint64 {
	return bits.RotateLeft64(lane+input*prime64x2, 31) * prime64x1
}

func (h *xxh64) Write(b []byte) (int, error) {
	h.add(b, 32, func(stripe []byte) {
		for i := range h.lanes {
			h.lanes[i] = round64(h.lanes[i], binary.LittleEndian.Uint64(stripe[8*i:]))
		}
	})
	return len(b), nil
}

func (h *xxh64) Sum(to []byte) []byte {
	v := prime64x5
	if l := h.lanes; h.total >= 32 {
		v = bits.RotateLeft64(l[0], 1) + bits.RotateLeft64(l[1], 7) + bits.RotateLeft64(l[2], 12) + bits.RotateLeft64(l[3], 18)
		for _, lane := range l {
			v = (v^round64(0, lane))*prime64x1 + prime64x4
		}
	}
	v += h.total
	rest := h.rest
	for ; len(rest) >= 8; rest = rest[8:] {
		v = bits.RotateLeft64(v^round64(0, binary.LittleEndian.Uint64(rest)), 27)*prime64x1 + prime64x4
	}
	if len(rest) >= 4 {
		v = bits.RotateLeft64(v^uint64(binary.LittleEndian.Uint32(rest))*prime64x1, 23)*prime64x2 + prime64x3
		rest = rest[4:]
	}
	for _, b := range rest {
		v = bits.RotateLeft64(v^uint64(b)*prime64x5, 11) * prime64x1
	}
	v = (v ^ v>>33) * prime64x2
	v = (v ^ v>>29) * prime64x3
	return binary.BigEndian.AppendUint64(to, v^v>>32)
}

type xxh32 struct {
	stripes
	lanes [4]uint32
}

func newXXH32() hash.Hash {
	h := new(xxh32)
	h.Reset()
	return h
}

func (h *xxh32) Reset() {
	one, two := prime32x1, prime32x2 // variables, since sums of the constants overflow
	*h = xxh32{lanes: [4]uint32{one + two, two, 0, -one}}
}
func (h *xxh32) Size() int      { return 4 }
func (h *xxh32) BlockSize() int { return 16 }

func (h *xxh32) Write(b []byte) (int, error) {
	h.add(b, 16, func(stripe []byte) {
		for i := range h.lanes {
			h.lanes[i] = bits.RotateLeft32(h.lanes[i]+binary.LittleEndian.Uint32(stripe[4*i:])*prime32x2, 13) * prime32x1
		}
	})
	return len(b), nil
}

func (h *xxh32) Sum(to []byte) []byte {
	v := prime32x5
	if l := h.lanes; h.total >= 16 {
		v = bits.RotateLeft32(l[0], 1) + bits.RotateLeft32(l[1], 7) + bits.RotateLeft32(l[2], 12) + bits.RotateLeft32(l[3], 18)
	}
	v += uint32(h.total)
	rest := h.rest
	for ; len(rest) >= 4; rest = rest[4:] {
		v = bits.RotateLeft32(v+binary.LittleEndian.Uint32(rest)*prime32x3, 17) * prime32x4
	}
	for _, b := range rest {
		v = bits.RotateLeft32(v+uint32(b)*prime32x5, 11) * prime32x1
	}
	v = (v ^ v>>15) * prime32x2
	v = (v ^ v>>13) * prime32x3
	return binary.BigEndian.AppendUint32(to, v^v>>16)
}
