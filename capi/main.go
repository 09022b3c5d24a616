// Package main is the C library libpyfeed: pyfeed.h in front, Go behind.
//
// A call comes in through entry.c, which keeps out what Go must not see, to a function here named
// pfgo_*, which turns C's words into Go's, calls a package that knows nothing of C, and turns the
// answer back. Blocking calls answer PFI_WOULD_BLOCK: their threads sleep in wait.c, not in Go.
package main

// #cgo LDFLAGS: -ldl
// #include "internal.h"
import "C"

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
)

func main() {}

// leastProcs is how many threads of C's may be inside Go at once, at least. A call for which no
// processor of Go's is left waits until one is taken from another thread, tens of milliseconds: so
// there are more of them than cores on a small machine. Each takes 14 KB, the rest costs nothing while unused.
const leastProcs = 16

// prepare makes them with the first handle: who only loads the library does not pay for them. Nobody is at work yet who
// would have to be stopped for it.
var prepare = sync.OnceFunc(func() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(runtime.NumCPU(), leastProcs))
	}
})

// Go collects its heap whenever that has doubled, from 4 MiB on: of small things that live short, which is all that we
// have there, many times a second, and first in the middle of a first shuffle block. So the first collection is put off
// until there are as many bytes as the ballast has. That is made then: it is never touched, and so takes addresses but
// no memory, and counted as live it has each further collection wait for as many bytes more. To make it at once would
// be a collection at once, beside the first batch. Whoever sets GOGC has it so.
func init() {
	const usual, least = 100, 4 << 20
	if percent := debug.SetGCPercent(usual * ballastSize / least); percent != usual {
		debug.SetGCPercent(percent)
		return
	}
	runtime.AddCleanup(new([64]byte), func(size int) {
		ballast = make([]byte, size)
		debug.SetGCPercent(usual)
	}, ballastSize)
}

const ballastSize = 32 << 20

var ballast []byte

var poisoning sync.Once

// guard is deferred first by every function that C calls. A panic stops at it, is printed once, and
// shuts the library: what it left half done must not be used.
func guard(st *C.pf_status, err *C.pf_error) {
	fault := recover()
	if fault == nil {
		return
	}
	poison(fmt.Sprintf("%v\n%s", fault, debug.Stack()))
	if st != nil {
		*st = fail(err, C.PF_POISONED, -1, fmt.Sprintf("pyfeed stopped after a fault inside it: %v", fault))
	}
}

// poison shuts the library. What it says is printed the first time.
func poison(fault string) {
	C.pfi_poison()
	poisoning.Do(func() {
		fmt.Fprintf(os.Stderr, "pyfeed: a fault inside the library, which stops here: %s", fault)
	})
}
