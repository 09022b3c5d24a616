package decorators

import (
	"context"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/sources"
)

var background = context.Background()

// ofQueue is a reader of a queue, for the one that takes it over.
func ofQueue(q *pyfeed.Consumer) *readers.ReaderHolder {
	return readers.NewHolder(sources.NewPyArrayReader(q.Retain()))
}

// made is a reader of this package, which is closed at the end of the test, and its holder.
func made[T readers.Reader](t *testing.T, r readers.Reader, err error) (*readers.ReaderHolder, T) {
	t.Helper()
	h := readertest.Hold(t, r, err)
	return h, r.(T)
}
