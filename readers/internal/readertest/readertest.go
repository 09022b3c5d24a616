// Package readertest has what the tests of readers share: small formats, queues, and checks of what is read. Only tests
// import it.
package readertest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
)

// Counted fails a test that does not release all memory. It counts after all functions that later calls of t.Cleanup
// register.
func Counted(t *testing.T) {
	t.Helper()
	CountedAfter(t, new(sync.WaitGroup))
}

// CountedAfter is Counted for tests with other owners of memory, whose end it waits for.
func CountedAfter(t *testing.T, others *sync.WaitGroup) {
	t.Helper()
	before := memory.Count()
	t.Cleanup(func() {
		others.Wait()
		if after := memory.Count(); after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
}

// Scope returns a scope that is dropped at the end of the test. It fails a test that does not release all memory.
func Scope(t *testing.T) *pyfeed.Scope {
	t.Helper()
	return ScopeAfter(t, new(sync.WaitGroup))
}

// ScopeAfter is Scope for tests in which others hold memory until the scope is dropped. It waits for their end.
func ScopeAfter(t *testing.T, others *sync.WaitGroup) *pyfeed.Scope {
	t.Helper()
	CountedAfter(t, others)
	scope := pyfeed.NewScope(nil)
	t.Cleanup(scope.Drop)
	return scope
}

// Hold returns a holder of a reader, which is dropped at the end of the test.
func Hold(t *testing.T, r readers.Reader, err error) *readers.ReaderHolder {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	h := readers.NewHolder(r)
	t.Cleanup(h.Drop)
	return h
}

// Expect fails the test if err is not of that kind, or does not contain text.
func Expect(t *testing.T, err error, kind pyfeed.Kind, text string) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Text, text) {
		t.Errorf("expected an error of kind %d with %q, found %v", kind, text, err)
	}
}

// IsCancelled reports whether a reset ended a call.
func IsCancelled(err error) bool {
	var e *pyfeed.Error
	return errors.As(err, &e) && e.Kind == pyfeed.Cancelled
}

// ResetUntilEnd resets a reader until the call that sends its error has ended, and returns the error. A single reset does
// not cancel a call that has not begun to wait: its first try does not wait.
func ResetUntilEnd(t *testing.T, h *readers.ReaderHolder, ended <-chan error) error {
	t.Helper()
	for {
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-ended:
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Until waits for an event in another goroutine.
func Until(happened func() bool) {
	for !happened() {
		runtime.Gosched()
	}
}

// Entered waits until at least n callers wait in a list.
func Entered(l *wait.List, mu *sync.Mutex, n int) {
	Until(func() bool {
		mu.Lock()
		defer mu.Unlock()
		return l.Len() >= n
	})
}

// ---- Numbers ----------------------------------------------------------------------------------

// Slots of int64 numbers: sequences, and pairs.
var (
	Rows  = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{-1}}}
	Cells = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{2}}}
)

// Numbers returns a tensor of int64 numbers.
func Numbers(dims pyfeed.Dims, values ...int64) pyfeed.LoDTensor {
	s := pyfeed.LoDTensor{DType: pyfeed.Int64}
	_ = s.SetDims(dims)
	for _, v := range values {
		s.Data = binary.NativeEndian.AppendUint64(s.Data, uint64(v))
	}
	return s
}

// Queue returns a queue that is dropped at the end of the test. It fails a test that does not release all memory.
func Queue(t *testing.T, o pyfeed.QueueOptions) *pyfeed.Consumer {
	t.Helper()
	Counted(t)
	var holder pyfeed.PyArrayFeedQueueHolder
	q, err := holder.InitOnce(o)
	if err != nil {
		t.Fatal(err)
	}
	holder.Drop()
	t.Cleanup(q.Drop)
	return q
}

// Push pushes a tuple.
func Push(t *testing.T, q *pyfeed.Consumer, slots ...pyfeed.LoDTensor) {
	t.Helper()
	if err := q.Push(context.Background(), pyfeed.PassCurrent, slots); err != nil {
		t.Fatal(err)
	}
}

// Show formats the dims, LoD (level of detail) and numbers of a tensor.
func Show(s *pyfeed.LoDTensor) string {
	var values []int64
	for i := 0; i < len(s.Data); i += 8 {
		values = append(values, int64(binary.NativeEndian.Uint64(s.Data[i:])))
	}
	return fmt.Sprint(s.Dims(), s.LoD, values)
}

// Next reads and formats the next tuple, or returns the text of the error.
func Next(t *testing.T, h *readers.ReaderHolder) string {
	t.Helper()
	tuple, err := h.ReadNext(context.Background())
	if err != nil {
		return err.Error()
	}
	defer tuple.Release()
	var all []string
	for i := range tuple.Slots {
		all = append(all, Show(&tuple.Slots[i]))
	}
	return strings.Join(all, " ")
}

// Drain reads to the end. It returns the ids in their order, and the error at the end.
func Drain(h *readers.ReaderHolder) (all []int64, err error) {
	for {
		tuple, err := h.ReadNext(context.Background())
		if err != nil {
			return all, err
		}
		got, err := IDsOf(tuple)
		tuple.Release()
		if err != nil {
			return all, err
		}
		all = append(all, got...)
	}
}

// Drained reads to the end of the pass. Any other error fails the test.
func Drained(t *testing.T, h *readers.ReaderHolder) []int64 {
	t.Helper()
	all, err := Drain(h)
	if err != io.EOF {
		t.Fatal(err)
	}
	return all
}
