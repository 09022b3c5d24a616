package storage

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// ErrInterrupted is the error of an operation that an Interrupt has ended. No data is lost: the same call continues, or
// starts over, and returns the same result as an uninterrupted one.
var ErrInterrupted = errors.New("interrupted")

// An Interrupt ends long operations on a File and in the format that reads it: a wait for data in a pipe, a scan for the
// next record, decompression, a checksum over many bytes. Every loop that may run for more than a few milliseconds calls
// Poll every few MiB. A nil Interrupt never interrupts.
type Interrupt struct {
	done  atomic.Bool
	limit func() bool
	fired bool // Poll has returned ErrInterrupted since the File was opened

	mu   sync.Mutex
	file *os.File // a read of it may block in Go's poller
}

// Stop ends the current operation and every later one. It may be called from any goroutine.
func (i *Interrupt) Stop() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done.Store(true)
	i.cancelRead()
}

// SetLimit sets a function that reports whether the time slice of the caller has expired; each Poll calls it. nil: only
// Stop interrupts. The reading goroutine calls SetLimit between two reads.
func (i *Interrupt) SetLimit(expired func() bool) { i.limit = expired }

// Poll returns ErrInterrupted if the caller should stop and return that error. Only the reading goroutine may call it.
func (i *Interrupt) Poll() error {
	if i != nil && (i.done.Load() || i.limit != nil && i.limit()) {
		i.fired = true
		return ErrInterrupted
	}
	return nil
}

// MayExplain reports whether err may be a consequence of an interruption since the File was opened.
func (i *Interrupt) MayExplain(err error) bool { return err != nil && i != nil && i.fired }

// PollEvery is the largest number of bytes to process between two calls of Poll. Only tests change it.
var PollEvery = 4 << 20

// Copy copies all of from, unless it is interrupted.
func (i *Interrupt) Copy(to, from []byte) error {
	for len(from) > PollEvery {
		copy(to, from[:PollEvery])
		to, from = to[PollEvery:], from[PollEvery:]
		if err := i.Poll(); err != nil {
			return err
		}
	}
	copy(to, from)
	return nil
}

// Stopped reports whether Stop was called. It may be called from any goroutine.
func (i *Interrupt) Stopped() bool { return i != nil && i.done.Load() }

func (i *Interrupt) setFile(file *os.File) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file = file
	i.cancelRead()
}

func (i *Interrupt) cancelRead() {
	if i.done.Load() && i.file != nil {
		_ = i.file.SetReadDeadline(time.Unix(1, 0)) // fails, harmlessly, for files on a disk and for closed ones
	}
}

// maxSinceOutput bounds a run of compressed bytes without any output: skippable frames, empty members and empty blocks. A
// codec skips them within one call, which could otherwise take as long as the file is large.
const maxSinceOutput = 16 << 20

// CompressedInput is the input of a codec. It interrupts calls of codecs, which do not poll.
type CompressedInput struct {
	from        io.Reader
	interrupt   *Interrupt
	sinceOutput int // compressed bytes since the last output
}

// CompressedInput returns an input that reads from a Reader.
func (i *Interrupt) CompressedInput(from io.Reader) CompressedInput {
	return CompressedInput{from: from, interrupt: i}
}

// Read returns ErrInterrupted after Stop. It ignores the limit, since a codec cannot continue after an error.
func (p *CompressedInput) Read(b []byte) (int, error) {
	switch {
	case p.interrupt.Stopped():
		return 0, ErrInterrupted
	case p.sinceOutput > maxSinceOutput:
		return 0, fmt.Errorf("expected data, found %d MiB of compressed bytes that hold none", maxSinceOutput>>20)
	}
	n, err := p.from.Read(b)
	p.sinceOutput += n
	return n, err
}

// Produced notes that the codec has returned n bytes of output.
func (p *CompressedInput) Produced(n int) {
	if n > 0 {
		p.sinceOutput = 0
	}
}
