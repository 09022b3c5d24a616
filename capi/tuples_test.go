package main

import (
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// A tuple that C writes for a variable or a map reader is no reservation: a commit fails and leaves it on loan.
func TestOnlyReservationsAreCommitted(t *testing.T) {
	view, err := views.Get(1)
	if err != nil {
		t.Fatal(err)
	}
	id := writeLoans.put(writeLoan{loan: loan{tuple: pyfeed.NewTuple(0), view: view}}) | writeBit
	if _, err := takeReservation(id, true); err == nil || !strings.Contains(err.Error(), "found one for the result of a map") {
		t.Errorf("expected a refusal, found %v", err)
	}
	if n := writeLoans.len(); n != 1 {
		t.Errorf("expected 1 tuple on loan, found %d", n)
	}
	releaseLoan(id)
	if _, err := takeReservation(id, true); err == nil || !strings.Contains(err.Error(), "released already") {
		t.Errorf("expected a refusal, found %v", err)
	}
	if n := writeLoans.len(); n != 0 {
		t.Errorf("expected no tuple on loan, found %d", n)
	}
}
