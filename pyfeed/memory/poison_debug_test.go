//go:build pfdebug && !asan

package memory

import (
	"strings"
	"testing"
	"unsafe"
)

func TestReleasedMemoryIsPoisoned(t *testing.T) {
	p := NewPool(Queue)
	b := get(t, p, 200)
	at := b.Pointer()
	copy(b.Bytes(), "secret")
	b.Release()
	for i, v := range unsafe.Slice((*byte)(at), 200) {
		if v != poisonByte {
			t.Fatalf("byte %d: expected %#x, found %#x", i, poisonByte, v)
		}
	}
	p.Close()
}

func TestWriteAfterReleaseIsFound(t *testing.T) {
	p := NewPool(Queue)
	b := get(t, p, 200)
	at := b.Pointer()
	b.Release()
	*(*byte)(unsafe.Add(at, 17)) = 1
	defer func() {
		found, _ := recover().(string)
		if !strings.Contains(found, "byte 17 of a released buffer") {
			t.Errorf("expected a panic that names byte 17, found %q", found)
		}
	}()
	_, _ = p.Get(200)
}
