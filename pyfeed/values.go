package pyfeed

import "unsafe"

// Element is a Go type of elements. Float16 and BFloat16 have none: their bytes are in [LoDTensor.Data].
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 | float32 | float64 | complex64 | complex128
}

// dtypeOf returns the dtype whose elements have the type T.
func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case bool:
		return Bool
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case float32:
		return Float32
	case float64:
		return Float64
	case complex64:
		return Complex64
	}
	return Complex128
}

// ValuesOf returns the elements of a tensor in row-major order, without a copy: they are valid as long as the tensor.
// If the tensor is ReadOnly, they MUST NOT be changed. It fails if the elements are not of type T or not in host memory.
func ValuesOf[T Element](t *LoDTensor) ([]T, error) {
	want := dtypeOf[T]()
	if t.DType != want {
		return nil, Errorf(Type, "values: expected a tensor of %v, found one of %v", want, t.DType)
	}
	if t.OnDevice() {
		return nil, Errorf(Unsupported, "values: expected a tensor in host memory, found one in that of a device")
	}
	data := unsafe.SliceData(t.Data)
	if uintptr(unsafe.Pointer(data))%unsafe.Alignof(*new(T)) != 0 {
		return nil, Errorf(State, "values: expected a tensor whose memory is aligned for %v, as readers deliver it", want)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(data)), len(t.Data)/want.Size()), nil
}
