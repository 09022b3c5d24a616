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

// A worker is woken for room, finds nothing to take yet, and goes away: another that waits for room takes its place.
func TestAWorkerThatGoesAwayLeavesItsRoom(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: 9, Slots: cells})
	h := create(t, scope, "create_map_reader", "map", []string{"reader"}, `{"capacity": 1}`)
	r, w := h.reader.(*MapReader), h.Workers()
	soon, cancel := context.WithTimeout(background, time.Minute) // forever, to those who wait
	defer cancel()
	delivered := make(chan error)
	for range 2 {
		go func() {
			tuple, err := h.ReadNext(soon)
			if err == nil {
				tuple.Release()
			}
			delivered <- err
		}()
	}
	push(t, q, numbers(pyfeed.Dims{2}, 0, 0))
	in, ticket, err := w.Take(soon)
	if err != nil {
		t.Fatal(err)
	}
	end := make(chan error)
	first, leave := context.WithCancel(soon)
	for i, ctx := range []context.Context{first, soon} {
		go func() {
			in, ticket, err := w.Take(ctx)
			if err == nil {
				err = w.Give(ticket, in)
			}
			end <- err
		}()
		until(func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.crowded.Len() == i+1
		})
	}
	if err := w.Give(ticket, in); err != nil {
		t.Fatal(err)
	}
	if err := <-delivered; err != nil {
		t.Fatal(err)
	}
	until(func() bool {
		r.pump.mu.Lock()
		defer r.pump.mu.Unlock()
		return r.pump.consumers.Len() > 0
	})
	leave()
	if err := <-end; err != context.Canceled {
		t.Errorf("expected that the first has gone away, found %v", err)
	}
	push(t, q, numbers(pyfeed.Dims{2}, 1, 1))
	for range 2 { // the other worker, and who waits for its result
		select {
		case err = <-end:
		case err = <-delivered:
		}
		if err != nil {
			t.Error(err)
		}
	}
}
