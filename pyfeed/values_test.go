package pyfeed

import (
	"errors"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

func TestDTypesOfElements(t *testing.T) {
	all := []DType{dtypeOf[bool](), dtypeOf[int8](), dtypeOf[int16](), dtypeOf[int32](), dtypeOf[int64](), dtypeOf[uint8](),
		dtypeOf[uint16](), dtypeOf[uint32](), dtypeOf[uint64](), dtypeOf[float32](), dtypeOf[float64](), dtypeOf[complex64](),
		dtypeOf[complex128]()}
	want := slices.DeleteFunc([]DType{Bool, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64, Float16, BFloat16, Float32, Float64,
		Complex64, Complex128}, func(d DType) bool { return d == Float16 || d == BFloat16 })
	if !slices.Equal(all, want) {
		t.Errorf("found %v, expected %v", all, want)
	}
}

func TestValuesOfAreAView(t *testing.T) {
	var x LoDTensor
	if err := x.AllocateTensor(Int32, Dims{2, 3}, nil, memory.NewUnpooled(memory.Batch)); err != nil {
		t.Fatal(err)
	}
	defer x.Drop()
	values, err := ValuesOf[int32](&x)
	if err != nil || len(values) != 6 {
		t.Fatalf("found %d values and the error %v, expected 6", len(values), err)
	}
	copy(values, []int32{1, 2, 3, 4, 5, -1})
	if got := x.Data[20:24]; !slices.Equal(got, []byte{255, 255, 255, 255}) {
		t.Errorf("the last element has the bytes %v", got)
	}
}

func TestValuesOfRefuses(t *testing.T) {
	var x LoDTensor
	if err := x.AllocateTensor(Int64, Dims{2}, nil, memory.NewUnpooled(memory.Batch)); err != nil {
		t.Fatal(err)
	}
	defer x.Drop()
	expect := func(err error, kind Kind) {
		t.Helper()
		var e *Error
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("found the error %v, expected one of kind %v", err, kind)
		}
	}
	_, err := ValuesOf[float64](&x)
	expect(err, Type)

	unaligned := x
	unaligned.Data = x.Data[1:9]
	_, err = ValuesOf[int64](&unaligned)
	expect(err, State)
}
