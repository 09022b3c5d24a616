package pyfeed

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// DType is the type of a tensor's elements, in native byte order.
type DType int32

// The dtypes. The C API uses the same numbers.
const (
	Any DType = iota // in a Slot: taken from the first tuple
	Bool
	Int8
	Int16
	Int32
	Int64
	Uint8
	Uint16
	Uint32
	Uint64
	Float16
	BFloat16
	Float32
	Float64
	Complex64
	Complex128
	numDTypes
)

var dtypes = [numDTypes]struct {
	name string
	size int
}{
	{"any", 0}, {"bool", 1}, {"int8", 1}, {"int16", 2}, {"int32", 4}, {"int64", 8},
	{"uint8", 1}, {"uint16", 2}, {"uint32", 4}, {"uint64", 8},
	{"float16", 2}, {"bfloat16", 2}, {"float32", 4}, {"float64", 8}, {"complex64", 8}, {"complex128", 16},
}

// Size returns the bytes of one element; 0 for Any.
func (d DType) Size() int { return dtypes[d].size }

// Valid reports whether d is the type of an element: known, and not Any.
func (d DType) Valid() bool { return d > Any && d < numDTypes }

func (d DType) String() string {
	if d < 0 || d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", int32(d))
	}
	return dtypes[d].name
}

// Reverse reverses the bytes of each element in place. It converts from the other byte order to the native one.
func (d DType) Reverse(data []byte) {
	size := d.Size()
	switch d {
	case Complex64, Complex128: // two numbers in each element
		size /= 2
	}
	// Eight bytes are converted at a time, which makes the loop as fast as memory.
	order := binary.NativeEndian
	switch size {
	case 2:
		for ; len(data) >= 8; data = data[8:] {
			const low = 0x00ff00ff00ff00ff
			v := order.Uint64(data)
			order.PutUint64(data, v>>8&low|v&low<<8)
		}
		for ; len(data) >= 2; data = data[2:] {
			order.PutUint16(data, bits.ReverseBytes16(order.Uint16(data)))
		}
	case 4:
		for ; len(data) >= 8; data = data[8:] {
			order.PutUint64(data, bits.RotateLeft64(bits.ReverseBytes64(order.Uint64(data)), 32))
		}
		for ; len(data) >= 4; data = data[4:] {
			order.PutUint32(data, bits.ReverseBytes32(order.Uint32(data)))
		}
	case 8:
		for ; len(data) >= 8; data = data[8:] {
			order.PutUint64(data, bits.ReverseBytes64(order.Uint64(data)))
		}
	}
}

// DTypeOf returns the dtype with the given name.
func DTypeOf(name string) (DType, bool) {
	for i, d := range dtypes {
		if d.name == name {
			return DType(i), true
		}
	}
	return Any, false
}
