package main

import (
	"context"
	"reflect"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// callBlocking calls blocking with a call that may wait. A test file cannot name the type of the call.
func callBlocking(try func(context.Context) (int, error)) (any, error) {
	f := reflect.ValueOf(blocking[int])
	call := reflect.New(f.Type().In(0).Elem())
	mayWait := call.Elem().FieldByName("may_wait")
	reflect.NewAt(mayWait.Type(), mayWait.Addr().UnsafePointer()).Elem().SetUint(1)
	out := f.Call([]reflect.Value{call, reflect.ValueOf(try)})
	err, _ := out[1].Interface().(error)
	return out[0].Interface(), err
}

// The first attempt may find no data that the second attempt finds: the call then leaves no waiter behind.
func TestACallThatNeedNotSleepLeavesNoWaiter(t *testing.T) {
	before := waiters.len()
	for _, want := range []error{nil, errCancelled} {
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
