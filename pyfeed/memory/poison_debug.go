//go:build pfdebug && !asan

package memory

import (
	"bytes"
	"fmt"
	"unsafe"
)

// poisonByte fills idle memory. A read of idle memory sees this value; a write to it is detected when the memory is
// next allocated.
const poisonByte = 0xDB

var poisoned = bytes.Repeat([]byte{poisonByte}, 1<<16)

func chunks(p unsafe.Pointer, n int, do func(at int, b []byte)) {
	for at := 0; at < n; at += len(poisoned) {
		do(at, unsafe.Slice((*byte)(unsafe.Add(p, at)), min(len(poisoned), n-at)))
	}
}

func poison(p unsafe.Pointer, n int) {
	chunks(p, n, func(_ int, b []byte) { copy(b, poisoned) })
}

func unpoison(p unsafe.Pointer, n int) {
	chunks(p, n, func(at int, b []byte) {
		if bytes.Equal(b, poisoned[:len(b)]) {
			return
		}
		for i, v := range b {
			if v != poisonByte {
				panic(fmt.Sprintf("memory: byte %d of a released buffer of %d was written to after its release: expected %#x, found %#x",
					at+i, n, poisonByte, v))
			}
		}
	})
}
