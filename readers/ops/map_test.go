package ops_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func TestMapDeliversAFailureInItsPlace(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 10)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	if err := ops.Create(scope, "create_map_reader", "map", []string{"files"}, []byte(`{"capacity": 4}`)); err != nil {
		t.Fatal(err)
	}
	h, err := readers.FindHolder(scope, "map")
	if err != nil {
		t.Fatal(err)
	}
	w := decorators.WorkersOf(h)
	mine := errors.New("mine")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			tuple, ticket, err := w.Take(background)
			if err != nil {
				readertest.Expect(t, err, pyfeed.Closed, "is gone")
				return
			}
			if all, _ := readertest.IDsOf(tuple); all[0] == 3 {
				tuple.Release()
				w.Fail(ticket, mine)
			} else if err := w.Give(ticket, tuple); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 3 {
		got, err := readertest.Drain(h)
		if !slices.Equal(got, []int64{0, 1, 2}) || err != mine {
			t.Errorf("found %v, then %v", got, err)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := scope.Erase("map"); err != nil {
		t.Fatal(err)
	}
	h.Drop()
	<-done
}

func TestMapRefusesMismatchedTuples(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 1)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	h := create(t, scope, "create_map_reader", "map", []string{"files"}, `{"slots": [{"dtype": "int64", "dims": [3]}]}`)
	go func() { _, _ = h.HasNext(background) }()
	w := decorators.WorkersOf(h)
	tuple, ticket, err := w.Take(background)
	if err != nil {
		t.Fatal(err)
	}
	readertest.Expect(t, w.Give(ticket, tuple), pyfeed.Slots, "expected 1, found 2")
	tuple.Release()
	w.Fail(ticket, errors.New("mine"))
}

// A ticket takes one result. A thread of the library reports a failure after each call of a C function, which is
// ignored if the function gave a result. Unordered, that result may have been delivered by then.
func TestATicketIsGoodOnce(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		scope, q := feed(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Cells})
		attributes := fmt.Appendf(nil, `{"ordered": %v}`, ordered)
		if err := ops.Create(scope, "create_map_reader", "map", []string{"reader"}, attributes); err != nil {
			t.Fatal(err)
		}
		h := reader(t, scope, "map")
		for i := range int64(3) {
			readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, i, i))
		}
		q.Close(pyfeed.PassCurrent)
		has := make(chan bool) // workers get tuples only while a consumer reads
		go func() {
			is, _ := h.HasNext(background)
			has <- is
		}()
		soon, cancel := context.WithTimeout(background, 10*time.Second)
		defer cancel()
		w := decorators.WorkersOf(h)
		for i := range int64(3) {
			in, ticket, err := w.Take(soon)
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Give(ticket, in); err != nil {
				t.Fatal(err)
			}
			if i == 0 && !<-has {
				t.Fatal("expected a next tuple")
			}
			if got, want := readertest.Next(t, h), fmt.Sprintf("[2] [] [%d %d]", i, i); got != want {
				t.Errorf("ordered %v: expected %s, found %s", ordered, want, got)
			}
			w.Fail(ticket, pyfeed.Errorf(pyfeed.State, "too late"))
		}
		go func() { _, _, _ = w.Take(background) }() // this call finds the end
		if got := readertest.Next(t, h); got != "EOF" {
			t.Errorf("ordered %v: expected the end, found %s", ordered, got)
		}
	}
}
