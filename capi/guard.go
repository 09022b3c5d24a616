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

// guard recovers a panic. Every function that C calls defers it first. It prints the first panic, sets *st to
// PF_POISONED and poisons the library, because the panic may have left data half written. A nil st has no status to
// set.
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

// poison makes every later call return PF_POISONED, and prints the first fault to standard error.
func poison(fault string) {
	C.pfi_poison()
	poisoning.Do(func() {
		fmt.Fprintf(os.Stderr, "pyfeed: a fault inside the library, which stops here: %s", fault)
	})
}
