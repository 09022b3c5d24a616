package ops_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func TestPyArrayReaderReadsItsQueue(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells})
	h := reader(t, scope, "reader")
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 1, 2))
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 3, 4))
	q.Close(pyfeed.PassCurrent)
	for range 3 {
		if has, err := h.HasNext(background); !has || err != nil {
			t.Fatalf("has next: %v, %v", has, err)
		}
	}
	if got := readertest.Next(t, h); got != "[2] [] [1 2]" {
		t.Errorf("found %s", got)
	}
	if got := readertest.Next(t, h); got != "[2] [] [3 4]" {
		t.Errorf("found %s", got)
	}
	if has, err := h.HasNext(background); has || err != nil {
		t.Errorf("at the end: has next: %v, %v", has, err)
	}
	if _, err := h.ReadNext(background); err != io.EOF {
		t.Errorf("expected io.EOF, found %v", err)
	}
}

func TestPyArrayReaderReInitError(t *testing.T) {
	scope, _ := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells})
	readertest.Expect(t, reader(t, scope, "reader").ReInit(), pyfeed.State, "from_generator")
}

func TestResetAsksARestartableQueueForAPass(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells, Restartable: true})
	h := reader(t, scope, "reader")
	before := pyfeed.PassNone
	produce := func(pass pyfeed.Pass, value int64) {
		got, err := q.WaitPass(background, before)
		if got != pass || err != nil {
			t.Fatalf("expected pass %v, found %v, %v", pass, got, err)
		}
		before = pass
		if err := q.Push(background, pass, []pyfeed.LoDTensor{readertest.Numbers(pyfeed.Dims{2}, value, value)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := h.ReadNext(wait.NonBlocking); err != wait.ErrWouldBlock {
		t.Fatalf("expected the first read to open a pass, found %v", err)
	}
	produce(0, 7)
	if has, _ := h.HasNext(background); !has { // HasNext reads one tuple ahead, which the reset drops
		t.Fatal("expected a next tuple")
	}
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	produce(1, 8)
	if got := readertest.Next(t, h); got != "[2] [] [8 8]" {
		t.Errorf("after the reset: %s", got)
	}
}

// Calls that wait do not hold the reader's lock, which a reset needs.
func TestResetWhileReadsWait(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells, Restartable: true})
	if err := createBatch(scope, "batch", "reader", 2, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	errs := make(chan error)
	go func() {
		_, err := h.ReadNext(background)
		errs <- err
	}()
	go func() {
		_, err := h.HasNext(background)
		errs <- err
	}()
	waiting(q, 2)
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		readertest.Expect(t, <-errs, pyfeed.Cancelled, "the reader was reset")
	}
}

func TestReadOpMovesSlotsIntoVariables(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 2, Slots: append(readertest.Cells, readertest.Rows...)})
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 1, 2), readertest.Numbers(pyfeed.Dims{1}, 9))
	readertest.Expect(t, ops.Read(background, scope, "reader", []string{"x"}), pyfeed.Slots, "has 2 slots, but 1 outputs were named")
	child := pyfeed.NewScope(scope)
	defer child.Drop()
	if _, err := scope.Var("x"); err != nil { // x is found in the parent scope, y is made in the child
		t.Fatal(err)
	}
	if err := ops.Read(background, child, "reader", []string{"x", "y"}); err != nil {
		t.Fatal(err)
	}
	for name, in := range map[string]*pyfeed.Scope{"x": scope, "y": child} {
		v, _ := in.Var(name)
		var s pyfeed.LoDTensor
		if err := v.ShareTensor(&s); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := map[string]string{"x": "[2] [] [1 2]", "y": "[1] [] [9]"}[name]
		if got := readertest.Show(&s); got != want {
			t.Errorf("%s: expected %s, found %s", name, want, got)
		}
		s.Drop()
	}
	q.Close(pyfeed.PassCurrent)
	if err := ops.Read(background, child, "reader", []string{"x", "y"}); err != io.EOF {
		t.Errorf("expected io.EOF, found %v", err)
	}
}

func TestReadersLiveAsLongAsTheyAreUsed(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 2, Slots: readertest.Rows})
	if err := createBatch(scope, "batch", "reader", 1, false); err != nil {
		t.Fatal(err)
	}
	h := reader(t, scope, "batch")
	for _, name := range []string{"feed", "reader", "batch"} {
		if err := scope.Erase(name); err != nil {
			t.Fatal(err)
		}
	}
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, 1))
	if got := readertest.Next(t, h); got != "[1] [] [1]" {
		t.Errorf("found %s", got)
	}
}

// After a queue was reopened, a reset of its chain succeeds once. After tuples of the new pass were read, a reset is
// refused.
func TestAChainGoesOnWhereTheQueueWasReopened(t *testing.T) {
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	v, err := scope.Var("queue")
	if err != nil {
		t.Fatal(err)
	}
	q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 9, Slots: []pyfeed.Slot{{DType: pyfeed.Int64}}})
	if err != nil {
		t.Fatal(err)
	}
	defer q.Drop()
	h := build(t, scope, fromQueue, `create_shuffle_reader {"buffer_size": 1}`, `create_double_buffer_reader`)
	defer h.Drop()
	for pass := range 3 {
		if pass > 0 {
			if _, _, err := q.Reopen(); err != nil {
				t.Fatal(err)
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 4 {
			from := make([]pyfeed.LoDTensor, 1)
			from[0].DType, from[0].Data = pyfeed.Int64, binary.NativeEndian.AppendUint64(nil, uint64(10*pass+i))
			if err := q.Push(background, pyfeed.PassCurrent, from); err != nil {
				t.Fatal(err)
			}
		}
		q.Close(pyfeed.PassCurrent)
		if found, want := strings.Join(placed(t, h, 100), "; "), fmt.Sprintf("CPUPlace(): %d; CPUPlace(): %d; CPUPlace(): %d; CPUPlace(): %d", 10*pass, 10*pass+1, 10*pass+2, 10*pass+3); found != want {
			t.Errorf("pass %d: expected %s, found %s", pass, want, found)
		}
		if err := h.ReInit(); err == nil || !strings.Contains(err.Error(), "cannot start over") {
			t.Errorf("pass %d: expected a reset to be refused, found %v", pass, err)
		}
	}
}

func TestManyThreadsReadEachTupleOnce(t *testing.T) {
	scope := readertest.Scope(t)
	names, files := readertest.WriteIDs(t, 5000, 4000, 1)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	create(t, scope, "create_shuffle_reader", "shuffled", []string{"files"}, `{"buffer_size": 500}`)
	h := create(t, scope, "create_double_buffer_reader", "top", []string{"shuffled"}, `{"depth": 3}`)
	var mu sync.Mutex
	var all []int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			got, err := readertest.Drain(h)
			if err != io.EOF {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	group.Wait()
	slices.Sort(all)
	if want := slices.Concat(files...); !slices.Equal(all, want) {
		t.Errorf("expected each of %d ids once, found %d", len(want), len(all))
	}
}

func TestNothingIsReadBeforeTheFirstRead(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 100)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	create(t, scope, "create_shuffle_reader", "s", []string{"files"}, `{"buffer_size": 10}`)
	create(t, scope, "create_double_buffer_reader", "d", []string{"s"}, ``)
	h := reader(t, scope, "files")
	if s := h.Stats(); s.Tuples != 0 || s.Extra["opened"] != 0 {
		t.Errorf("found %+v", s)
	}
}

func TestAContextEndsAWait(t *testing.T) {
	scope, q := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells})
	h := create(t, scope, "create_double_buffer_reader", "top", []string{"reader"}, "")
	ctx, cancel := context.WithCancelCause(background)
	waits := make(chan error)
	go func() {
		_, err := h.ReadNext(ctx)
		waits <- err
	}()
	for q.Info().WaitingConsumers == 0 {
	}
	mine := errors.New("mine")
	cancel(mine)
	if err := <-waits; err != mine {
		t.Errorf("expected the cause, found %v", err)
	}
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 1, 2))
	if got := readertest.Next(t, h); got != "[2] [] [1 2]" {
		t.Errorf("found %s", got)
	}
}

func TestEndlessReadAheadStops(t *testing.T) {
	for op, attributes := range map[string]string{
		"create_double_buffer_reader": `{"depth": 3}`,
		"create_shuffle_reader":       `{"buffer_size": 100}`,
		"create_map_reader":           `{}`,
	} {
		var workers sync.WaitGroup
		readertest.CountedAfter(t, &workers)
		scope := pyfeed.NewScope(nil)
		t.Cleanup(scope.Drop)
		create(t, scope, "create_random_data_generator", "random", nil, `{"slots": [{"dtype": "uint8", "dims": []}]}`)
		h := create(t, scope, op, "top", []string{"random"}, attributes)
		if w := decorators.WorkersOf(h); w != nil {
			workers.Go(func() {
				for {
					tuple, ticket, err := w.Take(background)
					if err != nil {
						return
					}
					_ = w.Give(ticket, tuple)
				}
			})
		}
		for range 3 {
			tuple, err := h.ReadNext(background)
			if err != nil {
				t.Fatal(err)
			}
			tuple.Release()
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
