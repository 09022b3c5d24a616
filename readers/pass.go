package readers

import (
	"context"
	"io"
	"iter"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Pass is one loop over the reader, by the rules of BeginLoop: the first goes through the current pass, and each further
// loop begins the next pass, also if the one before ended early. A tuple is valid until the loop asks for the next, and
// is released then. An error is the last value of the loop; it comes with a nil tuple.
func (h *ReaderHolder) Pass(ctx context.Context) iter.Seq2[*pyfeed.Tuple, error] {
	return func(yield func(*pyfeed.Tuple, error) bool) {
		loop, err := h.BeginLoop()
		for err == nil {
			var t *pyfeed.Tuple
			if t, err = h.ReadNextInLoop(ctx, loop); err == nil && !deliver(t, yield) {
				return
			}
		}
		if err != io.EOF {
			yield(nil, err)
		}
	}
}

// deliver releases the tuple also if the body of the loop panics.
func deliver(t *pyfeed.Tuple, yield func(*pyfeed.Tuple, error) bool) bool {
	defer t.Release()
	return yield(t, nil)
}
