package tokens

import (
	"encoding/binary"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// widen converts little-endian integers of one dtype to native ones of another, which holds all values of the first. It
// returns an error if it is interrupted.
func widen(interrupt *storage.Interrupt, to []byte, out pyfeed.DType, from []byte, d pyfeed.DType) error {
	item, wide := d.Size(), out.Size()
	for len(from) > 0 {
		n := min(len(from)/item, max(storage.PollEvery/wide, 1))
		if d == pyfeed.Uint16 && wide == 8 && !record.BigEndian { // the usual case
			widenUint16(to[:n*8], from[:n*2])
		} else {
			for i := range n {
				record.PutElement(to[i*wide:], wide, bitsOf(d, from[i*item:]))
			}
		}
		if to, from = to[n*wide:], from[n*item:]; len(from) > 0 {
			if err := interrupt.Poll(); err != nil {
				return err
			}
		}
	}
	return nil
}

func widenUint16(to, from []byte) {
	for len(from) >= 2 && len(to) >= 8 {
		binary.LittleEndian.PutUint64(to, uint64(from[0])|uint64(from[1])<<8)
		to, from = to[8:], from[2:]
	}
}

// bitsOf returns the first element of little-endian integers, with its sign extended.
func bitsOf(d pyfeed.DType, b []byte) uint64 {
	order := binary.LittleEndian
	switch d {
	case pyfeed.Uint8:
		return uint64(b[0])
	case pyfeed.Int8:
		return uint64(int8(b[0]))
	case pyfeed.Uint16:
		return uint64(order.Uint16(b))
	case pyfeed.Int16:
		return uint64(int16(order.Uint16(b)))
	case pyfeed.Uint32:
		return uint64(order.Uint32(b))
	case pyfeed.Int32:
		return uint64(int32(order.Uint32(b)))
	}
	return order.Uint64(b)
}
