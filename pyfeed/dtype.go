package pyfeed

import "fmt"

// DType is the type of a tensor's elements, in native byte order.
type DType int32

// The numbers are those of the C API.
const (
	Any DType = iota // in a Slot: the first tuple decides
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

// Size is the number of bytes of an element; 0 for Any.
func (d DType) Size() int { return dtypes[d].size }

// Valid says whether elements can be of this type.
func (d DType) Valid() bool { return d > Any && d < numDTypes }

func (d DType) String() string {
	if d < 0 || d >= numDTypes {
		return fmt.Sprintf("dtype(%d)", int32(d))
	}
	return dtypes[d].name
}
