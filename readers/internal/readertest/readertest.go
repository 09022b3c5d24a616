// Package readertest has what the tests of readers have in common: small formats, queues, and checks of what is read. Only
// tests import it.
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

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
)

// Counted fails a test that does not give all its memory back. What is cleaned up by later calls of t.Cleanup comes before.
func Counted(t *testing.T) {
	t.Helper()
	CountedAfter(t, new(sync.WaitGroup))
}

// CountedAfter is Counted where others hold memory too: they are waited for.
func CountedAfter(t *testing.T, others *sync.WaitGroup) {
	t.Helper()
	before := memory.Count()
	t.Cleanup(func() {
		others.Wait()
		if after := memory.Count(); after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
}

// Scope is one that is dropped at the end of a test that gives all its memory back.
func Scope(t *testing.T) *pyfeed.Scope {
	t.Helper()
	Counted(t)
	scope := pyfeed.NewScope(nil)
	t.Cleanup(scope.Drop)
	return scope
}

// Hold is a holder of a reader that is dropped at the end of the test.
func Hold(t *testing.T, r readers.Reader, err error) *readers.ReaderHolder {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	h := readers.NewHolder(r)
	t.Cleanup(h.Drop)
	return h
}

// Expect fails a test whose error is another.
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

// Until waits for something that another goroutine is about to do.
func Until(happened func() bool) {
	for !happened() {
		runtime.Gosched()
	}
}

// Entered waits until n callers wait in a list, or more.
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

// Numbers is a tensor of int64 numbers.
func Numbers(dims pyfeed.Dims, values ...int64) pyfeed.LoDTensor {
	s := pyfeed.LoDTensor{DType: pyfeed.Int64}
	_ = s.SetDims(dims)
	for _, v := range values {
		s.Data = binary.NativeEndian.AppendUint64(s.Data, uint64(v))
	}
	return s
}

// Queue is one that is dropped at the end of a test that gives all its memory back.
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

// Show is the dims, LoD and numbers of a tensor.
func Show(s *pyfeed.LoDTensor) string {
	var values []int64
	for i := 0; i < len(s.Data); i += 8 {
		values = append(values, int64(binary.NativeEndian.Uint64(s.Data[i:])))
	}
	return fmt.Sprint(s.Dims(), s.LoD, values)
}

// Next shows the next tuple, or the error.
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

// Drain reads to the end: the ids in their order, and what came after them.
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

// Drained reads to the end, which MUST be that of the pass.
func Drained(t *testing.T, h *readers.ReaderHolder) []int64 {
	t.Helper()
	all, err := Drain(h)
	if err != io.EOF {
		t.Fatal(err)
	}
	return all
}
