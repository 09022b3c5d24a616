package recordio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A record that Fluid wrote is a tuple: the number of its tensors, and each tensor as SerializeToStream writes it
// (lod_tensor.cc and tensor_util.cc):
//
//	u32 version 0 | u64 levels | for each: u64 bytes, u64 offsets... |
//	u32 version 0 | i32 bytes | TensorDesc | data
//
// The data has no length and no alignment. TensorDesc is a message of proto2:
//
//	required Type data_type = 1; repeated int64 dims = 2;

// Fluid's VarType.Type for each dtype of pyfeed, in the order of pyfeed's dtypes. -1: Fluid has no such type.
var fluidTypes = [...]int8{
	pyfeed.Bool: 0, pyfeed.Int8: 21, pyfeed.Int16: 1, pyfeed.Int32: 2, pyfeed.Int64: 3,
	pyfeed.Uint8: 20, pyfeed.Uint16: -1, pyfeed.Uint32: -1, pyfeed.Uint64: 19, // SIZE_T
	pyfeed.Float16: 4, pyfeed.BFloat16: -1, pyfeed.Float32: 5, pyfeed.Float64: 6,
	pyfeed.Complex64: -1, pyfeed.Complex128: -1,
}

// dtypes is the inverse of fluidTypes. Any: the number is not that of an element type.
var dtypes = func() (all [22]pyfeed.DType) {
	for d := pyfeed.Bool; d.Valid(); d++ {
		if n := fluidTypes[d]; n >= 0 {
			all[n] = d
		}
	}
	return all
}()

const (
	typeField = 1
	dimsField = 2

	tensorSize = 4 + 8 + 4 + 4 + 2 // of the smallest: no LoD, no dims, no data
)

// tensors returns the number of tensors at the beginning of a record.
func tensors(data []byte) (int, error) {
	if len(data) < 4 {
		return 0, fmt.Errorf("expected the number of tensors, 4 bytes, found a record of %d", len(data))
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if limit := uint64(len(data)-4) / tensorSize; n == 0 || n > limit {
		return 0, fmt.Errorf("expected at least 1 tensor and, in a record of %d bytes, at most %d, found %d", len(data), limit, n)
	}
	return int(n), nil
}

// parseTensors parses the tensors of a record into slots, whose number tensors has returned; their data are views of
// the record. It returns the position in the record where it stopped. If the error wraps storage.ErrInterrupted, the
// record has to be parsed again.
func parseTensors(data []byte, slots []pyfeed.LoDTensor, o *record.Offsets, stop *storage.Interrupt) (at int, err error) {
	rest := data[4:]
	for i := range slots {
		if rest, err = parseTensor(rest, &slots[i], o, stop); err != nil {
			return len(data) - len(rest), fmt.Errorf("tensor %d: %w", i, err)
		}
	}
	if len(rest) > 0 {
		return len(data) - len(rest), fmt.Errorf("expected the end of the record after %d tensors, found %d more bytes", len(slots), len(rest))
	}
	return len(data), nil
}

// looksLikeTensors reports whether a record begins like a record of tensors: with their number, the LoD (level of
// detail) of the first, and a description that begins with its type. Other records do not, so a record that does and
// cannot be parsed is damaged.
func looksLikeTensors(data []byte) bool {
	if _, err := tensors(data); err != nil {
		return false
	}
	var first pyfeed.LoDTensor
	b, err := parseLoD(data[4:], &first, new(record.Offsets), nil)
	if err != nil || len(b) < 5 {
		return false
	}
	size := uint64(binary.LittleEndian.Uint32(b))
	return size > 0 && size <= uint64(len(b)-4) && b[4] == typeField<<3 // a varint
}

// parseTensor returns the bytes after the tensor, or those at which parsing failed.
func parseTensor(b []byte, t *pyfeed.LoDTensor, o *record.Offsets, stop *storage.Interrupt) ([]byte, error) {
	b, err := parseLoD(b, t, o, stop)
	if err != nil {
		return b, err
	}
	if len(b) < 4 {
		return b, fmt.Errorf("expected the size of the description, 4 bytes, found %d", len(b))
	}
	size := uint64(binary.LittleEndian.Uint32(b))
	if size > uint64(len(b)-4) || size > math.MaxInt32 {
		return b, fmt.Errorf("expected a description of at most %d bytes, found a size of %d", len(b)-4, int32(size))
	}
	if err = parseDescription(b[4:4+size], t, stop); err != nil {
		return b[4:], err
	}
	b = b[4+size:]
	n, err := t.Measure()
	if err != nil {
		return b, err
	}
	if n > len(b) {
		return b, fmt.Errorf("expected %d bytes of data for %v %v, found %d", n, t.DType, t.Dims(), len(b))
	}
	t.Data = b[:n:n]
	t.ReadOnly = true
	return b[n:], nil
}

// parseLoD parses the part of a tensor before the size of its description: two versions and the LoD between them.
func parseLoD(b []byte, t *pyfeed.LoDTensor, o *record.Offsets, stop *storage.Interrupt) ([]byte, error) {
	b, err := parseVersion(b)
	if err != nil {
		return b, err
	}
	if len(b) < 8 {
		return b, fmt.Errorf("expected the number of LoD levels, 8 bytes, found %d", len(b))
	}
	levels := binary.LittleEndian.Uint64(b)
	if levels > pyfeed.MaxLoDLevels {
		return b, fmt.Errorf("expected at most %d LoD levels, found %d", pyfeed.MaxLoDLevels, levels)
	}
	b = b[8:]
	t.LoD = t.LoD[:0]
	for i := range int(levels) {
		if len(b) < 8 {
			return b, fmt.Errorf("LoD level %d: expected its size, 8 bytes, found %d", i, len(b))
		}
		size := binary.LittleEndian.Uint64(b)
		if size%8 != 0 || size > uint64(len(b)-8) {
			return b, fmt.Errorf("LoD level %d: expected a multiple of 8 bytes and at most %d, found %d", i, len(b)-8, size)
		}
		b = b[8:]
		level := o.Get(int(size / 8)) // copied, since the offsets in the record are not aligned
		for j := range level {
			if j > 0 && j%(storage.PollEvery/8) == 0 {
				if err := stop.Poll(); err != nil {
					return b, err
				}
			}
			level[j] = int64(binary.LittleEndian.Uint64(b[8*j:])) // too large ones become negative: an error later
		}
		t.LoD = append(t.LoD, level)
		t.InHeap = true
		b = b[size:]
	}
	return parseVersion(b)
}

func parseVersion(b []byte) ([]byte, error) {
	if len(b) < 4 {
		return b, fmt.Errorf("expected a version, 4 bytes, found %d", len(b))
	}
	if v := binary.LittleEndian.Uint32(b); v != 0 {
		return b, fmt.Errorf("expected version 0, found %d", v)
	}
	return b[4:], nil
}

// parseDescription parses a TensorDesc. It skips unknown fields, as protobuf requires.
func parseDescription(b []byte, t *pyfeed.LoDTensor, stop *storage.Interrupt) error {
	var room [pyfeed.MaxRank]int64
	dims, typed := pyfeed.Dims(room[:0]), false
	dim := func(v uint64) error {
		if len(dims) == pyfeed.MaxRank {
			return fmt.Errorf("rank: expected at most %d dimensions, found more", pyfeed.MaxRank)
		}
		dims = append(dims, int64(v))
		return nil
	}
	for next := len(b) - storage.PollEvery; len(b) > 0; {
		if len(b) < next {
			if err := stop.Poll(); err != nil {
				return err
			}
			next = len(b) - storage.PollEvery
		}
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("description: expected a field, found %v", protowire.ParseError(n))
		}
		b = b[n:]
		switch {
		case field == typeField && kind == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return fmt.Errorf("description: expected a type, found %v", protowire.ParseError(n))
			}
			if v >= uint64(len(dtypes)) || dtypes[v] == pyfeed.Any {
				return fmt.Errorf("description: expected the number of a type of elements, found %d", int64(v))
			}
			t.DType, typed = dtypes[v], true
			b = b[n:]
		case field == dimsField && kind == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return fmt.Errorf("description: expected a dimension, found %v", protowire.ParseError(n))
			}
			if err := dim(v); err != nil {
				return err
			}
			b = b[n:]
		case field == dimsField && kind == protowire.BytesType:
			packed, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return fmt.Errorf("description: expected dimensions, found %v", protowire.ParseError(n))
			}
			b = b[n:]
			for len(packed) > 0 {
				v, n := protowire.ConsumeVarint(packed)
				if n < 0 {
					return fmt.Errorf("description: expected a dimension, found %v", protowire.ParseError(n))
				}
				if err := dim(v); err != nil {
					return err
				}
				packed = packed[n:]
			}
		default:
			n := protowire.ConsumeFieldValue(field, kind, b)
			if n < 0 {
				return fmt.Errorf("description: expected the value of field %d, found %v", field, protowire.ParseError(n))
			}
			b = b[n:]
		}
	}
	if !typed {
		return errors.New("description: expected a type, found none")
	}
	return t.SetDims(dims)
}

// appendTensors appends a tuple as Fluid writes it. The slots have been measured.
func appendTensors(b []byte, slots []pyfeed.LoDTensor) []byte {
	b = binary.LittleEndian.AppendUint32(b, uint32(len(slots)))
	for i := range slots {
		b = appendTensor(b, &slots[i])
	}
	return b
}

func appendTensor(b []byte, t *pyfeed.LoDTensor) []byte {
	b = binary.LittleEndian.AppendUint32(b, 0)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(t.LoD)))
	for _, level := range t.LoD {
		b = binary.LittleEndian.AppendUint64(b, uint64(8*len(level)))
		for _, offset := range level {
			b = binary.LittleEndian.AppendUint64(b, uint64(offset))
		}
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	at := len(b)
	b = binary.LittleEndian.AppendUint32(b, 0) // the size, which is written below
	b = protowire.AppendTag(b, typeField, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(fluidTypes[t.DType]))
	for _, d := range t.Dims() {
		b = protowire.AppendTag(b, dimsField, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(d))
	}
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-4))
	return append(b, t.Data...)
}
