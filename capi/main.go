// Package main is the C library libpyfeed: pyfeed.h in front, Go behind.
//
// A call comes in through a C function, which refuses what must not reach Go (guard.h), to a Go function named pfgo_*. That
// one converts the arguments, calls a package that knows nothing of C, and converts the results. Where Go would block, the
// status is PFI_WOULD_BLOCK and the thread sleeps in blocking.c, outside Go. Each subject has a pair of files, in C and Go.
package main

// #cgo LDFLAGS: -ldl
// #include "internal.h"
import "C"

import (
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

func main() {}

// minProcs is the least number of C threads that may be inside Go at once. A call that finds no idle processor of Go's
// waits tens of milliseconds, until one is taken from another thread: so a small machine gets more of them than it has
// cores. Each takes 14 KB once it is used.
const minProcs = 16

// raiseProcs applies minProcs with the first handle, so that a process that only loads the library does not pay for it, and
// no other call has to be stopped for it.
var raiseProcs = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.NumCPU(), minProcs))
	}
})

// The Go heap is small and its objects are short-lived, so with Go's defaults it would be collected every 4 MiB, the first
// time in the middle of a first shuffle block. An untouched ballast, which takes addresses but no memory, counts as live
// and delays each collection by its size. Allocating it at once would trigger a collection beside the first batch: so the
// first collection is delayed by GOGC, and the ballast is made then. GOGC in the environment wins.
func init() {
	const defaultPercent, firstHeap = 100, 4 << 20
	if percent := debug.SetGCPercent(defaultPercent * ballastSize / firstHeap); percent != defaultPercent {
		debug.SetGCPercent(percent)
		return
	}
	runtime.AddCleanup(new([64]byte), func(size int) {
		ballast = make([]byte, size)
		debug.SetGCPercent(defaultPercent)
	}, ballastSize)
}

const ballastSize = 32 << 20

var ballast []byte
