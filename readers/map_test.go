package readers

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// A ticket is good for one result: a thread of the library reports a failure after each call of a C function,
// which counts if the function gave nothing. Unordered, the result may have been delivered by then.
func TestATicketIsGoodOnce(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		scope, q := feed(t, pyfeed.Options{Capacity: 9, Slots: cells})
		attributes := fmt.Appendf(nil, `{"ordered": %v}`, ordered)
		if err := Create(scope, "create_map_reader", "map", []string{"reader"}, attributes); err != nil {
			t.Fatal(err)
		}
		h := reader(t, scope, "map")
		for i := range int64(3) {
			push(t, q, numbers(pyfeed.Dims{2}, i, i))
		}
		q.Close(0)
		has := make(chan bool) // somebody has to read for there to be work
		go func() {
			is, _ := h.HasNext(background)
			has <- is
		}()
		soon, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		w := h.Workers()
		for i := range int64(3) {
			in, ticket, err := w.Take(soon)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Give(ticket, in); err != nil {
				t.Fatal(err)
			}
			if i == 0 && !<-has {
				t.Fatal("nothing there")
			}
			if got, want := next(t, h), fmt.Sprintf("[2] [] [%d %d]", i, i); got != want {
				t.Errorf("ordered %v: expected %s, found %s", ordered, want, got)
			}
			w.Fail(ticket, pyfeed.Errorf(pyfeed.State, "too late"))
		}
		go func() { _, _, _ = w.Take(background) }() // who finds the end
		if got := next(t, h); got != "EOF" {
			t.Errorf("ordered %v: expected the end, found %s", ordered, got)
		}
	}
}

func TestAFailedCreateLeavesNoVariable(t *testing.T) {
	scope, _ := feed(t, pyfeed.Options{Capacity: 9, Slots: cells})
	expect(t, createBatch(scope, "new", "reader", 0, false), pyfeed.Invalid, "batch_size")
	expect(t, createBatch(scope, "new", "nobody", 2, false), pyfeed.NotFound, "nobody")
	if _, err := scope.FindVar("new"); err == nil {
		t.Error("there is a variable, and nothing in it")
	}
}
