package record

import (
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Spread copies elements of size bytes, which lie one behind the other, to positions that are stride bytes apart. The last
// position needs only size bytes.
func Spread(to, from []byte, stride, size int) {
	n := len(from) / max(size, 1)
	switch {
	case n == 0:
	case stride == size:
		pyfeed.Copy(to, from)
	case size == 1:
		spread[[1]byte](to, from, stride, n)
	case size == 2:
		spread[[2]byte](to, from, stride, n)
	case size == 4:
		spread[[4]byte](to, from, stride, n)
	case size == 8:
		spread[[8]byte](to, from, stride, n)
	default:
		for i := range n {
			pyfeed.Copy(to[i*stride:][:size], from[i*size:][:size])
		}
	}
}

// spread is Spread for n elements of the size of T, without checks in the loop.
func spread[T any](to, from []byte, stride, n int) {
	var element T
	size := int(unsafe.Sizeof(element))
	_ = to[(n-1)*stride+size-1]
	t, f := unsafe.Pointer(unsafe.SliceData(to)), unsafe.Pointer(unsafe.SliceData(from))
	for i := range n {
		*(*T)(unsafe.Add(t, i*stride)) = *(*T)(unsafe.Add(f, i*size))
	}
}
