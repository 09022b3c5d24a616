package wait

import (
	"fmt"
	"runtime/debug"
)

// Go calls run in a new goroutine. If run panics, Go calls failed with the panic and the stack, so that the panic does
// not end the process. The library has no other go statement.
func Go(run func(), failed func(fault error)) { go Recovered(run, failed) }

// Recovered runs a function in the caller's goroutine and passes a panic to failed.
func Recovered(run func(), failed func(fault error)) {
	defer func() {
		if v := recover(); v != nil {
			failed(fmt.Errorf("%v\n%s", v, debug.Stack()))
		}
	}()
	run()
}
