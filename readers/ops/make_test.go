package ops_test

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func expectKind(t *testing.T, err error, kind pyfeed.Kind) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("found the error %v, expected one of kind %v", err, kind)
	}
}

// numbers makes a reader of the numbers from 0 to n-1 in batches of 2.
func numbers(t *testing.T, n int) *readers.ReaderHolder {
	t.Helper()
	one, err := ops.Make(background, "create_range_reader", ops.Attributes{"count": n})
	if err != nil {
		t.Fatal(err)
	}
	two, err := ops.Make(background, "create_batch_reader", ops.Attributes{"batch_size": 2}, one)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(two.Drop)
	return two
}

// loop returns the numbers of a pass until stop.
func loop(t *testing.T, r *readers.ReaderHolder, stop int64) (all []int64) {
	t.Helper()
	for tuple, err := range r.Pass(background) {
		if err != nil {
			t.Fatal(err)
		}
		values, err := pyfeed.ValuesOf[int64](&tuple.Slots[0])
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, values...)
		if values[0] >= stop {
			break
		}
	}
	return all
}

func TestEachLoopIsAPass(t *testing.T) {
	before := memory.Count()
	t.Cleanup(func() { // after the reader is dropped
		if after := memory.Count(); after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
	r := numbers(t, 6)
	for pass, stop := range []int64{math.MaxInt64, 2, math.MaxInt64} {
		want := 6
		if stop == 2 {
			want = 4
		}
		if all := loop(t, r, stop); len(all) != want || all[want-1] != int64(want-1) {
			t.Errorf("pass %d: found %v", pass, all)
		}
	}
	if passes := r.Stats().Passes; passes != 3 {
		t.Errorf("found %d passes, expected 3", passes)
	}
}

// failingReader fails after two tuples.
type failingReader struct {
	readers.Reader
	left int
}

func (r *failingReader) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	if r.left--; r.left < 0 {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "damaged")
	}
	return r.Reader.ReadNext(ctx)
}

func TestALoopEndsWithItsError(t *testing.T) {
	all, err := ops.MakeNow(readertest.Scope(t), "create_range_reader", nil, []byte(`{"count": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	r := readers.NewHolder(&failingReader{all, 2})
	defer r.Drop()
	var failures []error
	tuples := 0
	for tuple, err := range r.Pass(background) {
		if err == nil {
			tuples++
			continue
		}
		if tuple != nil {
			t.Error("found a tuple beside an error")
		}
		failures = append(failures, err)
	}
	if len(failures) != 1 || tuples != 2 {
		t.Fatalf("found %d tuples and the errors %v, expected 2 and one error", tuples, failures)
	}
	expectKind(t, failures[0], pyfeed.Corrupt)
}

func TestACancelledLoopEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(background)
	cancel()
	scope, _ := feed(t, pyfeed.QueueOptions{Capacity: 1, Slots: []pyfeed.Slot{{DType: pyfeed.Int64}}})
	h := reader(t, scope, "reader")
	loops := 0
	for tuple, err := range h.Pass(ctx) {
		loops++
		if tuple != nil {
			t.Error("found a tuple in an empty queue")
		}
		if !errors.Is(err, context.Canceled) {
			t.Errorf("found the error %v, expected that of the context", err)
		}
	}
	if loops != 1 {
		t.Errorf("the body ran %d times, expected once, with the error", loops)
	}
}

func TestMakeRefuses(t *testing.T) {
	_, err := ops.Make(background, "create_batch_reader", nil)
	expectKind(t, err, pyfeed.Invalid)
	if !strings.Contains(err.Error(), "inputs: expected 1, found 0") {
		t.Errorf("found the error %v", err)
	}
	_, err = ops.Make(background, "open_file", ops.Attributes{"filenames": []string{"a.csv"}})
	expectKind(t, err, pyfeed.NotFound)
	_, err = ops.Make(background, "open_files", ops.Attributes{"filenames": func() {}})
	expectKind(t, err, pyfeed.Invalid)
	_, err = ops.Make(background, "open_files", ops.Attributes{"filenames": []string{filepath.Join(t.TempDir(), "none.csv")}})
	if err == nil {
		t.Error("found a reader of a missing file")
	}
}

// countingReader counts how often it is closed.
type countingReader struct {
	readers.Reader
	closed *int
}

func (r countingReader) Close() { *r.closed++; r.Reader.Close() }

func TestMakeTakesOverItsInputs(t *testing.T) {
	closed := 0
	input := func() *readers.ReaderHolder {
		r, err := ops.MakeNow(readertest.Scope(t), "create_range_reader", nil, []byte(`{"count": 4}`))
		if err != nil {
			t.Fatal(err)
		}
		return readers.NewHolder(countingReader{r, &closed})
	}
	for i, attributes := range []ops.Attributes{{"batch_size": 0}, {"batch": 2}, {"batch_size": func() {}}} {
		if _, err := ops.Make(background, "create_batch_reader", attributes, input()); err == nil {
			t.Errorf("%v: found a reader", attributes)
		}
		if closed != i+1 {
			t.Errorf("%v: the input was not dropped", attributes)
		}
	}
	closed = 0
	r, err := ops.Make(background, "create_batch_reader", ops.Attributes{"batch_size": 2}, input())
	if err != nil {
		t.Fatal(err)
	}
	if closed != 0 {
		t.Error("the input was dropped before its reader")
	}
	r.Drop()
	if closed != 1 {
		t.Errorf("the input was dropped %d times, expected once", closed)
	}
}
