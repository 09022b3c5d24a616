package record

import (
	"bytes"
	"testing"
)

func TestSpread(t *testing.T) {
	for _, size := range []int{1, 2, 4, 7, 8} {
		for _, stride := range []int{size, size + 1, 16} {
			const n = 5
			from, to, want := make([]byte, n*size), make([]byte, (n-1)*stride+size), make([]byte, (n-1)*stride+size)
			for i := range from {
				from[i] = byte(i + 1)
			}
			for k := range n {
				copy(want[k*stride:], from[k*size:][:size])
			}
			if Spread(to, from, stride, size); !bytes.Equal(to, want) {
				t.Errorf("size %d, stride %d: expected %x, found %x", size, stride, want, to)
			}
		}
	}
	Spread(nil, nil, 8, 8)
}
