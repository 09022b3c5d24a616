package main

// #include "internal.h"
import "C"

import (
	"fmt"
	"os"
	"runtime/debug"
	"sync"
)

var poisoning sync.Once

// guard is deferred first by every function that C calls. It stops a panic, prints the first one, and poisons the library:
// the panic may have left data half written.
func guard(st *C.pf_status, err *C.pf_error) {
	fault := recover()
	if fault == nil {
		return
	}
	poison(fmt.Sprintf("%v\n%s", fault, debug.Stack()))
	if st != nil {
		*st = fillError(err, C.PF_POISONED, -1, fmt.Sprintf("pyfeed stopped after a fault inside it: %v", fault))
	}
}

// poison has every later call refused. The first fault is printed.
func poison(fault string) {
	C.pfi_poison()
	poisoning.Do(func() {
		fmt.Fprintf(os.Stderr, "pyfeed: a fault inside the library, which stops here: %s", fault)
	})
}
