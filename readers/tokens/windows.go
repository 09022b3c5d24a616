package tokens

import (
	"math"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// windows divides tokens into windows.
type windows struct {
	length  int64 // tokens of a slot
	stride  int64 // tokens from one window to the next
	need    int64 // tokens of a window: length, or one more for targets
	targets bool
	short   bool // tokens at the end become a shorter window
	whole   bool // all tokens are one window, also if there are none
}

func newWindows(o *Options) (windows, error) {
	w := windows{length: o.Length, stride: o.Stride, targets: o.Targets, short: o.Last == "short", whole: o.Documents == "whole"}
	switch {
	case w.whole:
		return w, nil
	case w.length == 0:
		return w, pyfeed.Errorf(pyfeed.Invalid, "tokens: length: expected the number of tokens of a window, found none")
	}
	if w.stride == 0 {
		w.stride = w.length
	}
	if w.need = w.length; w.targets {
		w.need++
	}
	return w, nil
}

// ragged reports whether windows differ in length.
func (w *windows) ragged() bool { return w.short || w.whole }

// full returns the number of windows of the full length in n tokens.
func (w *windows) full(n int64) int64 {
	if w.whole || n < w.need {
		return 0
	}
	return (n-w.need)/w.stride + 1
}

// count returns the number of windows in n tokens.
func (w *windows) count(n int64) int64 {
	if w.whole {
		return 1
	}
	full := w.full(n)
	if w.tail(n, full) > 0 {
		full++
	}
	return full
}

// tail returns how many tokens are in the short window behind full windows of n tokens; 0: there is none. Tokens that
// are all in the last full window make none.
func (w *windows) tail(n, full int64) int64 {
	left := n - full*w.stride
	least := int64(1)
	if w.targets {
		least = 2
	}
	if !w.short || left < least || full > 0 && (full-1)*w.stride+w.need >= n {
		return 0
	}
	return left
}

// tokensAt returns the number of tokens in a window of n tokens; 0 behind the last one. For whole documents, it is n.
func (w *windows) tokensAt(window, n int64) int64 {
	full := w.full(n)
	switch {
	case w.whole:
		return n
	case window < full:
		return w.need
	case window == full:
		return w.tail(n, full)
	}
	return 0
}

// start returns the number of the first token of a window.
func (w *windows) start(window int64) int64 {
	if w.whole {
		return 0
	}
	return window * w.stride
}

// fits reports whether the first token of a window has a number.
func (w *windows) fits(window int64) bool {
	return w.whole || window <= (math.MaxInt64>>8)/w.stride
}
