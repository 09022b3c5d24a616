// Package main is the C library libpyfeed: pyfeed.h in front, Go behind.
//
// A call enters through a C function. That function refuses calls that must not enter Go (guard.h) and calls a Go
// function named pfgo_*. The Go function converts the arguments, calls a package that knows nothing of C, and converts
// the results. Where Go would block, it returns PFI_WOULD_BLOCK, and the thread sleeps in wait.c, outside Go. Each
// subject has a pair of files, in C and Go.
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

// minProcs is the minimum for GOMAXPROCS, the number of C threads that can be inside Go at the same time. A call that
// finds no idle processor of Go waits tens of milliseconds, until the runtime takes one from another thread. So a small
// machine gets more processors than it has cores. Each takes 14 KB once it is used.
const minProcs = 16

// raiseProcs applies minProcs when the first handle is made. A process that only loads the library then does not pay
// for it, and no other call is in progress that it would have to stop. GOMAXPROCS in the environment wins.
var raiseProcs = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.NumCPU(), minProcs))
	}
})

// The Go heap is small and its objects are short-lived. With Go's defaults it would be collected every 4 MiB, the first
// time in the middle of a first shuffle block. An untouched ballast of 32 MiB takes addresses but no memory. It counts
// as live and delays each collection by its size. Allocating it at once would trigger a collection beside the first
// batch. So GOGC first delays the first collection, and the ballast is made then. GOGC in the environment wins.
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
