package wait

import (
	"fmt"
	"runtime/debug"
)

// Go runs a function in a new goroutine. All goroutines of the library are started by Go. A panic would end the
// process; Go passes it to failed instead, with the stack.
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
