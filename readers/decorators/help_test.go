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

// ofQueue returns a holder of a reader of a queue.
func ofQueue(q *pyfeed.Consumer) *readers.ReaderHolder {
	return readers.NewHolder(sources.NewPyArrayReader(q.Retain()))
}

// asReader returns a reader of this package as a T, and its holder. The reader is closed at the end of the test.
func asReader[T readers.Reader](t *testing.T, r readers.Reader, err error) (*readers.ReaderHolder, T) {
	t.Helper()
	h := readertest.Hold(t, r, err)
	return h, r.(T)
}
