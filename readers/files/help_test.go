package files

import (
	"context"
	"testing"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

var background = context.Background()

// counted fails the test if it does not release all memory.
func counted(t *testing.T) *testing.T {
	t.Helper()
	readertest.Counted(t)
	return t
}

// withAttributes opens files as the operators do.
func withAttributes(attributes string, open func(context.Context, *Options) (readers.Reader, error)) (readers.Reader, error) {
	o := Options{NumThreads: 2, Ordered: true, Interleave: 8}
	err := record.DecodeAttributes("open_files", []byte(attributes), &o)
	if err == nil {
		err = o.Check()
	}
	if err != nil {
		return nil, err
	}
	return open(background, &o)
}

// openMany makes a reader of files, which is dropped at the end of the test.
func openMany(t *testing.T, attributes string) (*readers.ReaderHolder, *filesReader) {
	t.Helper()
	r, err := withAttributes(attributes, Open)
	h := readertest.Hold(t, r, err)
	return h, r.(*filesReader)
}

// openOne makes a reader of one file, which is dropped at the end of the test.
func openOne(t *testing.T, attributes string) (*readers.ReaderHolder, readers.Reader) {
	t.Helper()
	r, err := withAttributes(attributes, OpenFile)
	return readertest.Hold(t, r, err), r
}
