package parquet

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var errValuesEnd = errors.New("expected more values in the page, found the end of its data")

// hybrid decodes runs of integers of at most 32 bits: runs of one value, and runs of bit-packed values. Levels and
// indices of a dictionary are stored so. The encoding is specified at
// https://github.com/apache/parquet-format/blob/master/Encodings.md#RLE.
type hybrid struct {
	data   []byte
	width  uint
	at     int    // of the next run
	left   int    // values left in the run
	packed bool   // the run is bit-packed
	value  uint32 // of a run of one value
	bit    int    // of a bit-packed run: the position of the next value
}

// begin starts over with other data.
func (h *hybrid) begin(data []byte, width int) { *h = hybrid{data: data, width: uint(width)} }

// run begins the next run, if no values are left.
func (h *hybrid) run() error {
	for h.left == 0 {
		if h.width == 0 { // all values are 0, whatever the runs are
			h.packed, h.value, h.left = false, 0, 1<<31
			return nil
		}
		head, n := binary.Uvarint(h.data[min(h.at, len(h.data)):])
		if n <= 0 || head>>33 != 0 {
			return errValuesEnd
		}
		h.at += n
		if h.packed = head&1 == 1; h.packed {
			h.left = int(head>>1) * 8
			h.bit = h.at * 8
			h.at += int(head>>1) * int(h.width)
			continue
		}
		h.left = int(head >> 1)
		size := int(h.width+7) / 8
		if len(h.data)-h.at < size {
			return errValuesEnd
		}
		h.value = 0
		for i := range size {
			h.value |= uint32(h.data[h.at+i]) << (8 * i)
		}
		h.at += size
	}
	return nil
}

// constant returns how many of the next n values are equal, and their value, if they are a run of one value; else 0.
func (h *hybrid) constant(n int) (k int, value uint32, err error) {
	if err := h.run(); err != nil || h.packed {
		return 0, 0, err
	}
	k = min(n, h.left)
	h.left -= k
	return k, h.value, nil
}

// take returns how many of the next n values are in the run, which is bit-packed, and checks that its data is there.
func (h *hybrid) take(n int) (int, error) {
	n = min(n, h.left)
	if (h.bit+n*int(h.width)+7)/8 > len(h.data) {
		return 0, errValuesEnd
	}
	h.left -= n
	return n, nil
}

// indices decodes the next values.
func (h *hybrid) indices(to []uint32) error {
	for len(to) > 0 {
		k, value, err := h.constant(len(to))
		if err != nil {
			return err
		}
		if k > 0 {
			for i := range to[:k] {
				to[i] = value
			}
			to = to[k:]
			continue
		}
		if k, err = h.take(len(to)); err != nil {
			return err
		}
		h.bit = unpack(to[:k], h.data, h.bit, h.width)
		to = to[k:]
	}
	return nil
}

// unpack decodes bit-packed values from a bit on, and returns the position behind them. The data MUST have them.
func unpack(to []uint32, data []byte, bit int, width uint) int {
	mask := uint64(1)<<width - 1
	i := 0
	if width <= 16 && bit&7 == 0 {
		i = unpackGroups(to, data[bit>>3:], width)
		bit += i * int(width)
	}
	for fast := len(data) - 8; i < len(to) && bit>>3 <= fast; i++ {
		to[i] = uint32(binary.LittleEndian.Uint64(data[bit>>3:]) >> (bit & 7) & mask)
		bit += int(width)
	}
	for ; i < len(to); i++ {
		to[i] = uint32(load(data, bit) & mask)
		bit += int(width)
	}
	return bit
}

// unpackGroups decodes groups of eight values of at most 16 bits, as far as data has eight bytes for each load, and returns
// the number of values. Four values lie in the 64 bits that a load returns.
func unpackGroups(to []uint32, data []byte, width uint) int {
	mask := uint64(1)<<width - 1
	half, shift := int(width)*4>>3, width*4&7
	n := 0
	for ; len(to)-n >= 8 && len(data) >= half+8; n += 8 {
		out := (*[8]uint32)(to[n:])
		low := binary.LittleEndian.Uint64(data)
		high := binary.LittleEndian.Uint64(data[half:]) >> shift
		out[0] = uint32(low & mask)
		out[4] = uint32(high & mask)
		low, high = low>>(width&63), high>>(width&63)
		out[1] = uint32(low & mask)
		out[5] = uint32(high & mask)
		low, high = low>>(width&63), high>>(width&63)
		out[2] = uint32(low & mask)
		out[6] = uint32(high & mask)
		low, high = low>>(width&63), high>>(width&63)
		out[3] = uint32(low & mask)
		out[7] = uint32(high & mask)
		data = data[width:]
	}
	return n
}

// load returns the bits from a position on, at least 57 if the data has them.
func load(data []byte, bit int) uint64 {
	var word [8]byte
	copy(word[:], data[bit>>3:])
	return binary.LittleEndian.Uint64(word[:]) >> (bit & 7)
}

// levels decodes the next levels, of which none is greater than most. same reports that all are equal to it.
func (h *hybrid) levels(to []uint8, most int) (same bool, err error) {
	same = true
	for len(to) > 0 {
		k, value, err := h.constant(len(to))
		if err != nil {
			return false, err
		}
		if k > 0 {
			if value > uint32(most) {
				return false, levelError(value, most)
			}
			same = same && value == uint32(most)
			for i := range to[:k] {
				to[i] = uint8(value)
			}
			to = to[k:]
			continue
		}
		if k, err = h.take(len(to)); err != nil {
			return false, err
		}
		if h.width == 1 {
			same = h.unpackBits(to[:k]) && same
		} else {
			var all [64]uint32
			for part := to[:k]; len(part) > 0; {
				n := min(len(part), len(all))
				h.bit = unpack(all[:n], h.data, h.bit, h.width)
				for i, v := range all[:n] {
					if v > uint32(most) {
						return false, levelError(v, most)
					}
					same = same && v == uint32(most)
					part[i] = uint8(v)
				}
				part = part[n:]
			}
		}
		to = to[k:]
	}
	return same, nil
}

// unpackBits decodes levels of one bit, and reports whether all are 1.
func (h *hybrid) unpackBits(to []uint8) bool {
	ones := true
	i := 0
	for ; i < len(to) && h.bit&7 != 0; i++ {
		to[i] = h.data[h.bit>>3] >> (h.bit & 7) & 1
		ones = ones && to[i] == 1
		h.bit++
	}
	for ; len(to)-i >= 8; i += 8 {
		b := uint64(h.data[h.bit>>3])
		ones = ones && b == 0xff
		// Each bit is moved to the lowest bit of a byte of its own.
		b = (b | b<<28) & 0x0000000f0000000f
		b = (b | b<<14) & 0x0003000300030003
		b = (b | b<<7) & 0x0101010101010101
		binary.LittleEndian.PutUint64(to[i:], b)
		h.bit += 8
	}
	for ; i < len(to); i++ {
		to[i] = h.data[h.bit>>3] >> (h.bit & 7) & 1
		ones = ones && to[i] == 1
		h.bit++
	}
	return ones
}

func levelError(found uint32, most int) error {
	return fmt.Errorf("expected levels of at most %d, found %d", most, found)
}

// delta decodes integers that are stored as differences. The encoding is specified at
// https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTAENC.
type delta struct {
	data    []byte
	at      int    // of the next block, or of the miniblock
	per     int    // values of a miniblock
	widths  []byte // of the miniblocks of the block that were not begun
	perHead int    // miniblocks of a block
	left    int    // values left in all
	inMini  int    // values left in the miniblock
	width   uint   // of the miniblock
	bit     int    // position of the next difference in the miniblock
	least   int64  // is added to all differences of the block
	value   int64  // the next one
}

// begin reads the head. count is the number of values that the page has at most.
func (d *delta) begin(data []byte, count int) error {
	*d = delta{data: data}
	var head [4]uint64
	for i := range head {
		v, n := binary.Uvarint(data[d.at:])
		if n <= 0 {
			return errValuesEnd
		}
		head[i] = v
		d.at += n
	}
	block, minis := head[0], head[1]
	if block == 0 || block > 1<<20 || minis == 0 || block%minis != 0 || block/minis%8 != 0 {
		return fmt.Errorf("expected blocks of a multiple of 8 values for each miniblock, found %d values in %d miniblocks", block, minis)
	}
	if head[2] > uint64(count) {
		return fmt.Errorf("expected at most %d values, found %d", count, head[2])
	}
	d.per, d.perHead, d.left = int(block/minis), int(minis), int(head[2])
	d.value = int64(head[3]>>1) ^ -int64(head[3]&1)
	return nil
}

// next decodes the next values. Sums wrap around, as the specification demands.
func (d *delta) next(to []int64) error {
	for i := range to {
		if d.left == 0 {
			return errValuesEnd
		}
		to[i] = d.value
		if d.left--; d.left == 0 {
			d.finish()
			continue
		}
		if d.inMini == 0 {
			if err := d.mini(); err != nil {
				return err
			}
		}
		d.inMini--
		d.value += d.least
		if d.width > 0 {
			v := load(d.data, d.bit)
			if have := 64 - uint(d.bit&7); have < d.width && d.bit>>3+8 < len(d.data) {
				v |= uint64(d.data[d.bit>>3+8]) << have
			}
			d.value += int64(v & (1<<d.width - 1))
			d.bit += int(d.width)
		}
	}
	return nil
}

// mini begins the next miniblock.
func (d *delta) mini() error {
	if len(d.widths) == 0 {
		v, n := binary.Uvarint(d.data[min(d.at, len(d.data)):])
		if n <= 0 || len(d.data)-d.at-n < d.perHead {
			return errValuesEnd
		}
		d.least = int64(v>>1) ^ -int64(v&1)
		d.at += n
		d.widths = d.data[d.at:][:d.perHead]
		d.at += d.perHead
	}
	d.width, d.widths = uint(d.widths[0]), d.widths[1:]
	if d.width > 64 {
		return fmt.Errorf("expected differences of at most 64 bits, found %d", d.width)
	}
	d.inMini = d.per
	d.bit = d.at * 8
	// The last miniblock may be cut off after the last value.
	if need := (min(d.per, d.left)*int(d.width) + 7) / 8; len(d.data)-d.at < need {
		return errValuesEnd
	}
	d.at += d.per / 8 * int(d.width)
	return nil
}

// finish moves behind the last miniblock.
func (d *delta) finish() { d.at = min(d.at, len(d.data)) }

// all skips all values and returns the position behind them.
func (d *delta) all() (int, error) {
	var to [64]int64
	for d.left > 0 {
		if err := d.next(to[:min(d.left, len(to))]); err != nil {
			return 0, err
		}
	}
	return d.at, nil
}
