package readers

import (
	"context"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// RandomAccess is implemented by readers whose records can be read by their numbers.
type RandomAccess interface {
	Reader
	// At returns a record, which the caller owns. Records are numbered from 0 in an order that no pass changes. It does not
	// change what is read next. Any goroutine may call it until Close.
	At(i int64) (*pyfeed.Tuple, error)
}

// ErrNoRandomAccess is the error of At for readers of that kind.
func ErrNoRandomAccess(kind string) error {
	return pyfeed.Errorf(pyfeed.Unsupported, "the reader %s has no records by number: expected one of open_files with index=True", kind)
}

// At returns the record of that number. Any thread may call it. The tuple can be exported from the library.
func (h *ReaderHolder) At(ctx context.Context, i int64) (*pyfeed.Tuple, error) {
	r, can := h.reader.(RandomAccess)
	if !can {
		return nil, ErrNoRandomAccess(h.label())
	}
	t, err := r.At(i)
	if err != nil {
		return nil, h.external(err)
	}
	if err = EnsureExportable(ctx, t); err != nil {
		t.Release()
		return nil, err
	}
	return t, nil
}
