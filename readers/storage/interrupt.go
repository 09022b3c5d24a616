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

// ErrInterrupted says that an Interrupt ended something before it was done. What was read so far is kept: the same call
// goes on from there, or begins anew, and answers what it would have answered.
var ErrInterrupted = errors.New("interrupted")

// An Interrupt ends what takes long in a File, and in those who read it: a wait for data in a pipe, a scan for the next
// record, decompression, a checksum over many bytes. Whatever may take longer than some milliseconds calls Look every
// few MiB. A nil Interrupt ends nothing.
type Interrupt struct {
	done  atomic.Bool
	limit func() bool
	fired bool // a Look has answered ErrInterrupted since a File was opened

	mu   sync.Mutex
	file *os.File // which may wait in the poller
}

// Now ends what is going on, and whatever is begun later. Any goroutine.
func (i *Interrupt) Now() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.done.Store(true)
	i.reach()
}

// Limit sets a function that each Look asks whether the time is up; nil: only Now ends something. It is called by the one
// that reads, between two calls.
func (i *Interrupt) Limit(over func() bool) { i.limit = over }

// Look is ErrInterrupted when the caller should stop and answer that, else nil. One goroutine at a time: the one that reads.
func (i *Interrupt) Look() error {
	if i != nil && (i.done.Load() || i.limit != nil && i.limit()) {
		i.fired = true
		return ErrInterrupted
	}
	return nil
}

// Explains says whether an error may be what was made of an interruption, of something begun with the opening of a File.
func (i *Interrupt) Explains(err error) bool { return err != nil && i != nil && i.fired }

// LookEvery is how many bytes may be gone through between two calls of Look. Only tests change it.
var LookEvery = 4 << 20

// Copy copies all of from, unless it is interrupted.
func (i *Interrupt) Copy(to, from []byte) error {
	for len(from) > LookEvery {
		copy(to, from[:LookEvery])
		to, from = to[LookEvery:], from[LookEvery:]
		if err := i.Look(); err != nil {
			return err
		}
	}
	copy(to, from)
	return nil
}

// Stopped says whether Now was called. Any goroutine.
func (i *Interrupt) Stopped() bool { return i != nil && i.done.Load() }

func (i *Interrupt) of(file *os.File) {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.file = file
	i.reach()
}

func (i *Interrupt) reach() {
	if i.done.Load() && i.file != nil {
		_ = i.file.SetReadDeadline(time.Unix(1, 0)) // it is refused where nothing waits: on a disk, or once it is closed
	}
}

// mostBarren bounds the compressed bytes that hold nothing, one behind the other: frames to be skipped, empty members and
// empty blocks. A codec goes over them in a single call, which could go on for the length of any file.
const mostBarren = 16 << 20

// Packed is what a codec reads compressed bytes from. It ends a call of the codec where that does not look.
type Packed struct {
	from   io.Reader
	stop   *Interrupt
	barren int // bytes since the last that was decompressed
}

// Packed reads from a Reader.
func (i *Interrupt) Packed(from io.Reader) Packed { return Packed{from: from, stop: i} }

// Read answers ErrInterrupted after Now, behind which the codec cannot go on; a Limit is no matter of its.
func (p *Packed) Read(b []byte) (int, error) {
	switch {
	case p.stop.Stopped():
		return 0, ErrInterrupted
	case p.barren > mostBarren:
		return 0, fmt.Errorf("expected data, found %d MiB of compressed bytes that hold none", mostBarren>>20)
	}
	n, err := p.from.Read(b)
	p.barren += n
	return n, err
}

// Gave is told how many bytes the codec has answered.
func (p *Packed) Gave(n int) {
	if n > 0 {
		p.barren = 0
	}
}
