package ops_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
)

var background = context.Background()

// create runs an operator and returns the reader it made.
func create(t *testing.T, scope *pyfeed.Scope, op, out string, ins []string, attributes string) *readers.ReaderHolder {
	t.Helper()
	if err := ops.Create(scope, op, out, ins, []byte(attributes)); err != nil {
		t.Fatal(err)
	}
	return reader(t, scope, out)
}

func reader(t *testing.T, scope *pyfeed.Scope, name string) *readers.ReaderHolder {
	t.Helper()
	h, err := readers.FindHolder(scope, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Drop)
	return h
}

// The operators, as functions for the tests.
func createPyArray(scope *pyfeed.Scope, out, feeder string) error {
	return ops.Create(scope, "create_py_array_reader", out, nil, fmt.Appendf(nil, `{"feeder_name": %q}`, feeder))
}

func createBatch(scope *pyfeed.Scope, out, in string, size uint64, dropLast bool) error {
	return ops.Create(scope, "create_batch_reader", out, []string{in}, fmt.Appendf(nil, `{"batch_size": %d, "drop_last": %v}`, size, dropLast))
}

// feed makes a queue in the variable "feed" and a reader of it in "reader".
func feed(t *testing.T, o pyfeed.QueueOptions) (*pyfeed.Scope, *pyfeed.Consumer) {
	t.Helper()
	before := memory.Count()
	scope := pyfeed.NewScope(nil)
	v, err := scope.Var("feed")
	if err != nil {
		t.Fatal(err)
	}
	q, err := v.InitQueue(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := createPyArray(scope, "reader", "feed"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		q.Drop()
		scope.Drop()
		if after := memory.Count(); after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
	return scope, q
}

func waiting(q *pyfeed.Consumer, consumers int) {
	for q.Info().WaitingConsumers != consumers {
		runtime.Gosched()
	}
}
