package main

import "testing"

const poisoned = 17 // PF_POISONED of pyfeed.h, which a test file cannot name

func TestGuardStopsAPanicAndSaysSo(t *testing.T) {
	st := setError(nil, nil)
	func() {
		defer guard(&st, nil)
		var none *cancelToken
		none.cancel() // dereferences nil
	}()
	if st != poisoned {
		t.Errorf("expected status %d, found %d", poisoned, st)
	}
}

func TestGuardLeavesAnAnswerAlone(t *testing.T) {
	st := setError(errTimeout, nil)
	want := st
	func() { defer guard(&st, nil) }()
	if st != want {
		t.Errorf("expected status %d, found %d", want, st)
	}
}
