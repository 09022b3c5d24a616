package recordio

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/s2"
)

// Each of the two libraries means another format by snappy: framed blocks of the snappy format. The Go library uses the
// standard framing (framing_format.txt of google/snappy). Fluid uses the older framing of the snappystream library,
// which Java's SnappyOutputStream used at first: seven bytes of magic, then blocks of
//
//	u8: 1 snappy, 0 stored | u16 big-endian: size | u32 big-endian: masked CRC-32C of the data | the block
//
// A step reads a frame from the front of from and appends its data, at most maxBlock bytes, to to, which has the room.
// It returns the rest of from, which is always shorter than from.
type step func(to, from []byte) (have, rest []byte, err error)

const (
	oldMagic     = "snappy\x00"
	oldBlock     = 32 << 10 // largest data of a block of the old framing
	oldHeader    = 1 + 2 + 4
	framingMagic = "\xff\x06\x00\x00sNaPpY"
	framingBlock = 64 << 10
	maxBlock     = framingBlock // larger of the two
	frameHeader  = 1 + 3 + 4    // of a frame with data
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maskedCRC returns the CRC-32C as both framings store it.
func maskedCRC(b []byte) uint32 {
	c := crc32.Checksum(b, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// decode appends the data of a block.
func decode(to, block []byte, packed bool, limit int, sum uint32) ([]byte, error) {
	at := len(to)
	if packed {
		n, err := s2.DecodedLen(block)
		if err != nil {
			return nil, errors.New("expected a snappy block, found one without a size")
		}
		if n > limit {
			return nil, fmt.Errorf("expected a snappy block of at most %d bytes, found %d", limit, n)
		}
		if _, err = s2.Decode(to[at:at+n:at+n], block); err != nil {
			return nil, fmt.Errorf("expected a snappy block, found one that cannot be decoded: %w", err)
		}
		to = to[:at+n]
	} else {
		if len(block) > limit {
			return nil, fmt.Errorf("expected a stored block of at most %d bytes, found %d", limit, len(block))
		}
		to = append(to, block...)
	}
	if found := maskedCRC(to[at:]); found != sum {
		return nil, fmt.Errorf("checksum of a snappy block: expected %08x, found %08x", sum, found)
	}
	return to, nil
}

// oldStep reads the old framing. It accepts the magic again before any block, as the old reader did.
func oldStep(to, from []byte) ([]byte, []byte, error) {
	if bytes.HasPrefix(from, []byte(oldMagic)) {
		return to, from[len(oldMagic):], nil
	}
	if len(from) < oldHeader {
		return nil, nil, fmt.Errorf("expected the header of a snappy block, %d bytes, found %d", oldHeader, len(from))
	}
	flag, size, sum := from[0], int(binary.BigEndian.Uint16(from[1:])), binary.BigEndian.Uint32(from[3:])
	from = from[oldHeader:]
	switch {
	case flag > 1:
		return nil, nil, fmt.Errorf("expected a snappy block, 1, or a stored one, 0, found %d", flag)
	case size == 0 || size > oldBlock:
		return nil, nil, fmt.Errorf("expected a block of 1 to %d bytes, found %d", oldBlock, size)
	case size > len(from):
		return nil, nil, fmt.Errorf("expected a block of %d bytes, found %d", size, len(from))
	}
	to, err := decode(to, from[:size], flag == 1, oldBlock, sum)
	return to, from[size:], err
}

// framingStep reads the standard framing.
func framingStep(to, from []byte) ([]byte, []byte, error) {
	if len(from) < 4 {
		return nil, nil, fmt.Errorf("expected the header of a snappy frame, 4 bytes, found %d", len(from))
	}
	kind, size := from[0], int(binary.LittleEndian.Uint32(from)>>8)
	body := from[4:]
	if size > len(body) {
		return nil, nil, fmt.Errorf("expected a snappy frame of %d bytes, found %d", size, len(body))
	}
	body, rest := body[:size], body[size:]
	switch {
	case kind <= 1:
		if size < 4 {
			return nil, nil, fmt.Errorf("expected a snappy frame with a checksum, found %d bytes", size)
		}
		to, err := decode(to, body[4:], kind == 0, framingBlock, binary.LittleEndian.Uint32(body))
		return to, rest, err
	case kind == framingMagic[0] && string(body) != framingMagic[4:]:
		return nil, nil, fmt.Errorf("expected the snappy frame %q, found %q", framingMagic[4:], body[:min(len(body), 6)])
	case kind < 0x80:
		return nil, nil, fmt.Errorf("expected a snappy frame that is known or may be skipped, found number %#02x", kind)
	}
	return to, rest, nil // the magic again, or a skippable frame
}

// appendOld appends data in the old framing. A block is stored if it would not shrink by more than an eighth.
func appendOld(to, data []byte) []byte {
	to = append(to, oldMagic...)
	for len(data) > 0 {
		block := data[:min(len(data), oldBlock)]
		data = data[len(block):]
		at := len(to)
		to = append(to, make([]byte, oldHeader)...)
		var packed bool
		to, packed = appendBlock(to, block)
		head := to[at:]
		if packed {
			head[0] = 1
		}
		binary.BigEndian.PutUint16(head[1:], uint16(len(to)-at-oldHeader))
		binary.BigEndian.PutUint32(head[3:], maskedCRC(block))
	}
	return to
}

// appendFraming appends data in the standard framing.
func appendFraming(to, data []byte) []byte {
	to = append(to, framingMagic...)
	for len(data) > 0 {
		block := data[:min(len(data), framingBlock)]
		data = data[len(block):]
		at := len(to)
		to = append(to, make([]byte, frameHeader)...)
		var packed bool
		to, packed = appendBlock(to, block)
		head := to[at:]
		binary.LittleEndian.PutUint32(head, uint32(len(to)-at-4)<<8)
		if !packed {
			head[0] = 1
		}
		binary.LittleEndian.PutUint32(head[4:], maskedCRC(block))
	}
	return to
}

func appendBlock(to, block []byte) (got []byte, packed bool) {
	at := len(to)
	to = append(to, make([]byte, s2.MaxEncodedLen(len(block)))...)
	coded := s2.EncodeSnappy(to[at:], block)
	if len(coded) >= len(block)-len(block)/8 {
		return append(to[:at], block...), false
	}
	return to[:at+len(coded)], true
}
