package readers

import (
	"context"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Loops. A loop, such as Python's for, goes through one pass of a reader. Each ReaderHolder notes that a loop began in
// its current pass, so that the next loop begins another pass. BeginLoop notes this in all readers below, too: when a
// new chain is built above a reader that was looped over, its first loop begins the next pass of that reader. Otherwise
// it would only find the end of the old pass.

// A PassSource is a Reader whose data has passes of its own, such as the reader of a queue. It keeps the note of begun
// loops itself, because the data can begin a pass without the reader, and several readers can share the data.
type PassSource interface {
	Reader
	// LoopBegan reports whether a loop began in the current pass of the data.
	LoopBegan() bool
	// SetLoopBegan notes whether a loop began in the current pass of the data.
	SetLoopBegan(began bool)
	// JoinPass lets the call behind ctx, which began the current pass, go on in that pass.
	JoinPass(ctx context.Context)
	// CanReInit returns the error that ReInit would return, and changes nothing.
	CanReInit() error
	// DeferPass says whether the next ReInit leaves it to Restore to begin a pass: the data would otherwise begin it at its
	// first tuple.
	DeferPass(deferred bool)
	// HasNewPass reports whether the producer of the data has begun a pass of which nothing was read yet.
	HasNewPass() bool
}

// A Loop identifies the pass that a loop goes through: 1 more than the number of resets of the reader when the loop
// began.
type Loop uint64

// BeginLoop begins a loop over the reader. The first loop since the reader was made or reset goes on at the reader's
// current position, and so does a loop after an error, unless the producer of the data has begun a new pass since. Any
// other loop resets the reader first; if the reset fails, no loop begins.
func (h *ReaderHolder) BeginLoop() (Loop, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.loopBegan() || h.failed.Load() && h.hasNewPass() {
		pass := h.pass
		if !h.looped.Load() { // a new chain above readers that were looped over before
			pass = h.highestPass()
		}
		if err := h.reset(pass + 1); err != nil {
			if e, is := err.(*pyfeed.Error); is && e.Kind == pyfeed.State {
				return 0, pyfeed.Errorf(pyfeed.State, "%s. A loop over current_pass() goes on with the current pass", e.Text)
			}
			return 0, err
		}
	}
	h.setLoopBegan(true)
	return h.currentLoop(), nil
}

func (h *ReaderHolder) currentLoop() Loop { return Loop(h.resets.Load() + 1) }

// JoinLoop begins a loop over the rest of the current pass.
func (h *ReaderHolder) JoinLoop() Loop {
	h.setLoopBegan(true)
	return h.currentLoop()
}

// loopBegan reports whether a loop began in the current pass of the reader, or of one below it.
func (h *ReaderHolder) loopBegan() bool {
	if source, is := h.reader.(PassSource); is {
		return source.LoopBegan()
	}
	if h.looped.Load() {
		return true
	}
	for _, u := range h.upstreams() {
		if u.loopBegan() {
			return true
		}
	}
	return false
}

// setLoopBegan sets the note in the reader and in all readers below it.
func (h *ReaderHolder) setLoopBegan(began bool) {
	h.looped.Store(began)
	if source, is := h.reader.(PassSource); is {
		source.SetLoopBegan(began)
	}
	for _, u := range h.upstreams() {
		u.setLoopBegan(began)
	}
}

// highestPass returns the highest number of a pass among the reader and all readers below it. The caller holds the
// lock.
func (h *ReaderHolder) highestPass() uint64 {
	highest := h.pass
	for _, u := range h.upstreams() {
		u.mu.Lock()
		highest = max(highest, u.highestPass())
		u.mu.Unlock()
	}
	return highest
}

// reset starts the given pass, for a caller that is not a reader above this one. If a reader below cannot start over,
// nothing changes: the tuples that were read ahead stay. The caller holds the lock.
func (h *ReaderHolder) reset(pass uint64) error {
	if err := h.canReInit(); err != nil {
		return err
	}
	if err := h.begin(pass, nil); err != nil {
		return err
	}
	h.setLoopBegan(false)
	return nil
}

// canReInit returns the error of the first reader below that cannot start over. The caller holds the lock.
func (h *ReaderHolder) canReInit() error {
	if source, is := h.reader.(PassSource); is {
		return source.CanReInit()
	}
	for _, u := range h.upstreams() {
		u.mu.Lock()
		err := u.canReInit()
		u.mu.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// noteError clears the note of a begun loop after an error of the reader. The next loop then goes on at the current
// position: it meets the same error again, unless the reader can go on after it.
func (h *ReaderHolder) noteError(ctx context.Context, err error) {
	if err != io.EOF && pyfeed.IsFinal(ctx, err) {
		h.setLoopBegan(false)
		h.failed.Store(true)
	}
}

// hasNewPass reports whether a source below has a new pass. Readers between may still hold the error of the old pass.
func (h *ReaderHolder) hasNewPass() bool {
	if source, is := h.reader.(PassSource); is {
		return source.HasNewPass()
	}
	for _, u := range h.upstreams() {
		if u.hasNewPass() {
			return true
		}
	}
	return false
}

// upstreams returns the readers that this reader reads.
func (h *ReaderHolder) upstreams() []*Upstream {
	if d, is := h.reader.(Decorator); is {
		return d.Upstreams()
	}
	return nil
}
