package jsonl

import "unsafe"

// specials returns which of the groupSize bytes at p are not simply copied from a string: quotes, backslashes, control
// characters, and bytes beyond ASCII. Bit i of the result stands for the i-th byte.
//
//go:noescape
func specials(p unsafe.Pointer) uint64
