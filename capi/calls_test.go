package main

import (
	"context"
	"reflect"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// callBlocking calls blocking with a call that waits, whose type a test file cannot name.
func callBlocking(try func(context.Context) (int, error)) (any, error) {
	f := reflect.ValueOf(blocking[int])
	call := reflect.New(f.Type().In(0).Elem())
	waits := call.Elem().FieldByName("waits")
	reflect.NewAt(waits.Type(), waits.Addr().UnsafePointer()).Elem().SetUint(1)
	out := f.Call([]reflect.Value{call, reflect.ValueOf(try)})
	err, _ := out[1].Interface().(error)
	return out[0].Interface(), err
}

// What a first try lacked may come before the second, which would have waited for it.
func TestACallThatNeedNotSleepLeavesNothingBehind(t *testing.T) {
	before := waiters.len()
	for _, want := range []error{nil, errStopped} {
		tries := 0
		_, err := callBlocking(func(ctx context.Context) (int, error) {
			if tries++; ctx == wait.NonBlocking {
				return 0, wait.ErrWouldBlock
			}
			return 1, want
		})
		if tries != 2 || err != want {
			t.Errorf("expected %v at the second try, found %v at number %d", want, err, tries)
		}
	}
	if n := waiters.len(); n != before {
		t.Errorf("expected %d waiters, found %d", before, n)
	}
}
