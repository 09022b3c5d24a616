package prefetch

import (
	"bytes"
	"testing"
	"unsafe"
)

// Copy writes all bytes, and none before or after them. next may be any address.
func TestCopyCopiesAllBytes(t *testing.T) {
	const margin = 64
	from := make([]byte, Most+margin)
	for i := range from {
		from[i] = byte(i*7 + i>>8)
	}
	sizes := []int{Most - 1, Most}
	for n := Least; n < 5*Least; n++ {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		for shift := range 3 {
			to, want := bytes.Repeat([]byte{1}, n+2*margin), bytes.Repeat([]byte{1}, n+2*margin)
			copy(want[margin+shift:], from[shift*5:][:n])
			Copy(unsafe.Pointer(&to[margin+shift]), unsafe.Pointer(&from[shift*5]), n, nil)
			if !bytes.Equal(to, want) {
				t.Fatalf("%d bytes, shifted by %d: other bytes than by the built-in copy", n, shift)
			}
		}
	}
}

func TestDistance(t *testing.T) {
	for _, c := range []struct{ n, distance int }{{Least, 16}, {100, 16}, {1 << 10, 8}, {3136, 2}, {8 << 10, 1}, {Most, 1}} {
		if got := Distance(c.n); got != c.distance {
			t.Errorf("%d bytes: expected %d, found %d", c.n, c.distance, got)
		}
	}
}
