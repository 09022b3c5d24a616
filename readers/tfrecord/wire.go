package tfrecord

import (
	"encoding/binary"
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/readers/storage"
)

// The messages, from tensorflow/core/example/{example,feature}.proto:
//
//	Example      { Features features = 1; }
//	Features     { map<string, Feature> feature = 1; }  // entries { string key = 1; Feature value = 2; }
//	Feature      { oneof kind { BytesList = 1; FloatList = 2; Int64List = 3; } }
//	BytesList    { repeated bytes value = 1; }
//	FloatList    { repeated float value = 1; }          // packed, or not
//	Int64List    { repeated int64 value = 1; }          // packed, or not
//
//	SequenceExample { Features context = 1; FeatureLists feature_lists = 2; }
//	FeatureLists    { map<string, FeatureList> feature_list = 1; }
//	FeatureList     { repeated Feature feature = 1; }
//
// The messages are parsed in place, and unknown fields are skipped. A SequenceExample would therefore be read as an
// Example that has only its context, which is mostly empty. So its second field is an error where an Example is expected.
const featureLists = 2

// field returns the number and the value of the field with a length at the beginning of b, and the size of the whole
// field. For a field without a length the number is 0. The size is -1 if b does not begin with a field.
func field(b []byte) (number protowire.Number, value []byte, size int) {
	// Most tags have one byte, and most lengths one or two.
	if len(b) >= 3 && b[0] < 0x80 && b[0]&7 == byte(protowire.BytesType) && b[0] >= 8 {
		n, at := int(b[1]), 2
		if n >= 0x80 {
			n, at = n&0x7f|int(b[2])<<7, 3
		}
		if at == 2 || b[2] < 0x80 {
			if n > len(b)-at {
				return 0, nil, -1
			}
			return protowire.Number(b[0] >> 3), b[at : at+n], at + n
		}
	}
	return longField(b)
}

func longField(b []byte) (number protowire.Number, value []byte, size int) {
	number, kind, n := protowire.ConsumeTag(b)
	if n < 0 {
		return 0, nil, -1
	}
	if kind != protowire.BytesType {
		m := protowire.ConsumeFieldValue(number, kind, b[n:])
		if m < 0 {
			return 0, nil, -1
		}
		return 0, nil, n + m
	}
	value, m := protowire.ConsumeBytes(b[n:])
	if m < 0 {
		return 0, nil, -1
	}
	return number, value, n + m
}

// scratch has memory for messages that come in parts, which is rare, and interrupts the parsing of long messages.
type scratch struct {
	joined    []byte
	interrupt *storage.Interrupt
	sincePoll int  // bytes parsed since the last poll
	stopped   bool // parsing was interrupted: results are not valid
}

// poll counts parsed bytes and polls the Interrupt. It returns false if parsing has to stop.
func (s *scratch) poll(bytes int) bool {
	s.sincePoll += bytes
	return s.sincePoll < storage.PollEvery || s.pollNow()
}

func (s *scratch) pollNow() bool {
	s.sincePoll = 0
	s.stopped = s.stopped || s.interrupt.Poll() != nil
	return !s.stopped
}

// copyBytes copies all of from, unless parsing has to stop.
func (s *scratch) copyBytes(to, from []byte) (ok bool) {
	s.stopped = s.stopped || s.interrupt.Copy(to, from) != nil
	return !s.stopped
}

// last returns the value of the last field of b whose number is between low and high. If earlier fields have the same
// number, their values are parts of one message: last joins them, and the value is a copy. ok reports whether b
// consists of fields.
func (s *scratch) last(b []byte, low, high protowire.Number) (number protowire.Number, value []byte, copied, ok bool) {
	begin := 0
	for len(b) > 0 {
		n, v, size := field(b)
		if size < 0 || !s.poll(size) {
			return 0, nil, false, false
		}
		b = b[size:]
		switch {
		case n < low || n > high:
		case n != number:
			number, value, copied = n, v, false
		default:
			if !copied {
				begin, copied = len(s.joined), true
				s.joined = append(s.joined, value...)
			}
			s.joined = append(s.joined, v...)
			value = s.joined[begin:]
		}
	}
	return number, value, copied, true
}

// countBytes returns the number of values of a BytesList, and the number of their bytes.
func (s *scratch) countBytes(b []byte) (n, total int, ok bool) {
	for len(b) > 0 {
		number, v, size := field(b)
		if size < 0 || !s.poll(size) {
			return 0, 0, false
		}
		if number == 1 {
			n++
			total += len(v)
		}
		b = b[size:]
	}
	return n, total, true
}

// nextBytes returns the first value of a BytesList, whose values were counted, and the bytes after it; nil once parsing
// has to stop.
func (s *scratch) nextBytes(b []byte) (v, rest []byte) {
	for s.poll(0) && !s.stopped {
		number, v, size := field(b)
		b = b[size:]
		s.sincePoll += size
		if number == 1 {
			return v, b
		}
	}
	return nil, nil
}

// element parses the field at the beginning of a list of numbers. packed is the content of a packed field; one is the
// value of a field of the given kind with a single number. For any other field both are nil.
func element(b []byte, kind protowire.Type) (packed, one []byte, size int) {
	number, v, size := field(b)
	if number == 1 {
		return v, nil, size
	}
	if number != 0 || size < 0 {
		return nil, nil, size
	}
	if number, found, n := protowire.ConsumeTag(b); number == 1 && found == kind {
		return nil, b[n:size], size
	}
	return nil, nil, size
}

// countFloats returns the number of values of a FloatList. If they are packed in one field, whole is its content.
func (s *scratch) countFloats(b []byte) (n int, whole []byte, ok bool) {
	if number, v, size := field(b); number == 1 && size == len(b) {
		return len(v) / 4, v, len(v)%4 == 0
	}
	for len(b) > 0 {
		packed, one, size := element(b, protowire.Fixed32Type)
		if size < 0 || len(packed)%4 != 0 || !s.poll(size) {
			return 0, nil, false
		}
		n += (len(packed) + len(one)) / 4
		b = b[size:]
	}
	return n, nil, true
}

// copyFloats copies the values of a FloatList, which were counted.
func (s *scratch) copyFloats(to, b []byte) (ok bool) {
	for len(b) > 0 {
		packed, one, size := element(b, protowire.Fixed32Type)
		for len(packed) > storage.PollEvery {
			to = to[copy(to, packed[:storage.PollEvery]):]
			packed = packed[storage.PollEvery:]
			if !s.pollNow() {
				return false
			}
		}
		to = to[copy(to, packed):]
		to = to[copy(to, one):]
		b = b[size:]
		if !s.poll(size) {
			return false
		}
	}
	return true
}

// countInts returns the number of values of an Int64List.
func (s *scratch) countInts(b []byte) (n int, ok bool) {
	for len(b) > 0 {
		packed, one, size := element(b, protowire.VarintType)
		if size < 0 || len(packed) > 0 && packed[len(packed)-1] >= 0x80 || !s.poll(size) {
			return 0, false
		}
		for len(packed) > storage.PollEvery {
			n += countVarints(packed[:storage.PollEvery])
			packed = packed[storage.PollEvery:]
			if !s.pollNow() {
				return 0, false
			}
		}
		if one != nil {
			n++
		} else {
			n += countVarints(packed)
		}
		b = b[size:]
	}
	return n, true
}

const highBits = 0x8080808080808080

// countVarints returns the number of bytes that end a varint.
func countVarints(b []byte) (n int) {
	for ; len(b) >= 8; b = b[8:] {
		n += bits.OnesCount64(^binary.LittleEndian.Uint64(b) & highBits)
	}
	for _, v := range b {
		n += int(v>>7 ^ 1)
	}
	return n
}

// readInts decodes the values of an Int64List, whose number is len(to).
func (s *scratch) readInts(to []int64, b []byte) (ok bool) {
	for len(b) > 0 {
		packed, one, size := element(b, protowire.VarintType)
		if packed == nil {
			packed = one
		}
		for len(packed) > storage.PollEvery {
			end := storage.PollEvery
			for end > 0 && packed[end-1] >= 0x80 { // within a varint
				end--
			}
			n := readVarints(to, packed[:end])
			if n <= 0 || !s.pollNow() {
				return false
			}
			to, packed = to[n:], packed[end:]
		}
		n := readVarints(to, packed)
		if n < 0 {
			return false
		}
		to = to[n:]
		b = b[size:]
		if !s.poll(size) {
			return false
		}
	}
	return len(to) == 0
}

// readVarints decodes b and returns the number of values, or -1 if b has an invalid varint, or too many.
func readVarints(to []int64, b []byte) int {
	i := 0
	for len(b) > 0 {
		if i == len(to) {
			return -1
		}
		if len(b) >= 8 && len(to)-i >= 8 {
			x := binary.LittleEndian.Uint64(b)
			if x&highBits == 0 {
				to8 := to[i : i+8 : i+8]
				for j := range to8 {
					to8[j] = int64(x & 0x7f)
					x >>= 8
				}
				i += 8
				b = b[8:]
				continue
			}
			// A varint ends with the first byte whose high bit is 0.
			if n := bits.TrailingZeros64(^x&highBits)/8 + 1; n <= 8 {
				to[i] = int64(gather(x & (^uint64(0) >> (64 - 8*n))))
				i++
				b = b[n:]
				continue
			}
		}
		v, n := protowire.ConsumeVarint(b)
		if n < 0 {
			return -1
		}
		to[i] = int64(v)
		i++
		b = b[n:]
	}
	return i
}

// gather joins the seven low bits of each of eight bytes.
func gather(x uint64) uint64 {
	x = x&0x007f007f007f007f | x&0x7f007f007f007f00>>1
	x = x&0x00003fff00003fff | x&0x3fff00003fff0000>>2
	return x&0x000000000fffffff | x&0x0fffffff00000000>>4
}
