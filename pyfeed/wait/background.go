package wait

import (
	"fmt"
	"runtime/debug"
)

// Go runs a function in a goroutine of its own: the one way to start one. A panic in it, which would end the
// process, goes to failed instead, with where it happened.
func Go(run func(), failed func(fault error)) { go Recovered(run, failed) }

// Recovered runs a function in the caller's goroutine, from where a panic goes to failed too.
func Recovered(run func(), failed func(fault error)) {
	defer func() {
		if v := recover(); v != nil {
			failed(fmt.Errorf("%v\n%s", v, debug.Stack()))
		}
	}()
	run()
}
