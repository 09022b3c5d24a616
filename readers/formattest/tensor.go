package formattest

import (
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Tensor makes a tensor of data in the machine's byte order.
func Tensor(d pyfeed.DType, dims pyfeed.Dims, data []byte, lod ...[]int64) pyfeed.LoDTensor {
	s := pyfeed.LoDTensor{DType: d, Data: data, LoD: lod}
	if err := s.SetDims(dims); err != nil {
		panic(err)
	}
	return s
}

// Text returns a byte string.
func Text(v string) pyfeed.LoDTensor {
	n := int64(len(v))
	return Tensor(pyfeed.Uint8, pyfeed.Dims{n}, []byte(v), []int64{0, n})
}

// Zeros returns a tensor of zeros.
func Zeros(d pyfeed.DType, dims ...int64) pyfeed.LoDTensor {
	s := Tensor(d, dims, nil)
	n, err := s.Measure()
	if err != nil {
		panic(err)
	}
	s.Data = make([]byte, n)
	return s
}

var dtypes = map[reflect.Kind]pyfeed.DType{reflect.Bool: pyfeed.Bool, reflect.Int8: pyfeed.Int8, reflect.Int16: pyfeed.Int16,
	reflect.Int32: pyfeed.Int32, reflect.Int64: pyfeed.Int64, reflect.Uint8: pyfeed.Uint8, reflect.Uint16: pyfeed.Uint16,
	reflect.Uint32: pyfeed.Uint32, reflect.Uint64: pyfeed.Uint64, reflect.Float32: pyfeed.Float32, reflect.Float64: pyfeed.Float64}

// TensorOf makes a tensor of a number or of a slice of numbers. A slice has one dimension unless dims are given.
func TensorOf(values any, dims ...int64) pyfeed.LoDTensor {
	kind := reflect.TypeOf(values)
	if kind.Kind() == reflect.Slice {
		kind = kind.Elem()
		if dims == nil {
			dims = []int64{int64(reflect.ValueOf(values).Len())}
		}
	}
	data, err := binary.Append(nil, binary.NativeEndian, values)
	if err != nil {
		panic(err)
	}
	return Tensor(dtypes[kind.Kind()], dims, data)
}

// Tuple makes a tuple of tensors.
func Tuple(slots ...pyfeed.LoDTensor) *pyfeed.Tuple { return &pyfeed.Tuple{Slots: slots} }

// FormatTuple formats the slots of a tuple with FormatTensor.
func FormatTuple(t *pyfeed.Tuple) string {
	var all []string
	for i := range t.Slots {
		all = append(all, FormatTensor(&t.Slots[i]))
	}
	return strings.Join(all, " ")
}

// FormatTensor formats a tensor: a byte string in quotes, a scalar as it is, other numbers in brackets. The dims follow
// if there are several, and the LoD (level of detail) without its first level if that has one sequence.
func FormatTensor(s *pyfeed.LoDTensor) string {
	var text string
	rank := len(s.Dims())
	if s.DType == pyfeed.Uint8 && rank == 1 && len(s.LoD) > 0 {
		text = fmt.Sprintf("%q", s.Data)
	} else {
		var elements []string
		for b, size := s.Data, s.DType.Size(); len(b) >= size && size > 0; b = b[size:] {
			elements = append(elements, formatElement(s.DType, b[:size]))
		}
		text = strings.Join(elements, " ")
		if rank > 0 {
			text = "[" + text + "]"
		}
		if rank > 1 {
			text += fmt.Sprint("dims", s.Dims())
		}
	}
	lod := s.LoD
	if len(lod) > 0 && len(lod[0]) == 2 {
		lod = lod[1:]
	}
	if len(lod) > 0 {
		text += fmt.Sprint("lod", lod)
	}
	return text
}

// formatElement formats an element like Go, or its bytes in hexadecimal if Go has no such type.
func formatElement(d pyfeed.DType, b []byte) string {
	n, integer := record.Integer(d, b)
	switch {
	case d == pyfeed.Bool:
		return fmt.Sprint(n != 0)
	case d == pyfeed.Uint64:
		return fmt.Sprint(uint64(n))
	case integer:
		return fmt.Sprint(n)
	case d == pyfeed.Float32:
		return fmt.Sprint(math.Float32frombits(binary.NativeEndian.Uint32(b)))
	case d == pyfeed.Float64:
		return fmt.Sprint(math.Float64frombits(binary.NativeEndian.Uint64(b)))
	}
	return hex.EncodeToString(b)
}

// Hex returns the bytes of hexadecimal digits. It ignores blanks.
func Hex(digits string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// Random returns n bytes, the same in each call.
func Random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{}).Read(b)
	return b
}

// Options decodes the options of a format from JSON, as open_files does. "" stands for no options.
func Options[O any](t testing.TB, text string) *O {
	t.Helper()
	o := new(O)
	if text != "" {
		d := json.NewDecoder(strings.NewReader(text))
		d.DisallowUnknownFields()
		if err := d.Decode(o); err != nil {
			t.Fatal(err)
		}
	}
	return o
}
