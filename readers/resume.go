package readers

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/state"
)

// Exact resume. A state has the number of tuples that the topmost reader has delivered. From it, each reader computes
// the number that it had to read from the reader below, whatever it has read ahead. Only readers for which arithmetic
// does not suffice add something of their own: readers of files, for example, where to go on in which files. To restore
// a state is the same in the other direction.

// Position is a position in the data of a reader: after the first N tuples of pass number Pass. If the data is divided
// among processes, N counts the tuples of this process; in a state, it counts those of all processes.
type Position struct {
	Pass uint64
	N    int64
}

// A Resumable is a Reader whose position can be saved, and restored in another reader of the same kind.
type Resumable interface {
	Reader
	// Identity returns the kind of the reader, and the options that decide which tuples it delivers in which order.
	// Options that only decide how fast it is, such as the number of threads, are not among them.
	Identity() (kind string, options []state.Option)
	// Save saves a position in the current pass or an earlier one: it calls SaveBelow for each reader below, and SetAt for
	// what Restore cannot compute. It does not read, and may be called during a read of another goroutine.
	Save(p Position, s *Saver) error
	// Restore goes to a position in the pass that the reader has just begun: it calls RestoreBelow for each reader below.
	// It returns how many of the tuples that the reader delivers next come before the position.
	Restore(p Position, s *Restorer) (ahead int64, err error)
}

// StateChecker is implemented by readers that can refuse a state before anything is changed.
type StateChecker interface {
	// CheckState returns an error if the reader cannot go on at a position with what SetAt was given, or nil. If strict is false,
	// it only returns an error if the reader cannot go on there at all.
	CheckState(at []byte, strict bool) error
}

// Saver collects the parts of a state.
type Saver struct {
	readers []state.Reader
	current int
}

// SetAt sets the reader's own part of the state: JSON without spaces, with members in the order of their names.
func (s *Saver) SetAt(at []byte) { s.readers[s.current].At = at }

// SaveBelow saves a position in the reader below.
func (s *Saver) SaveBelow(u *Upstream, p Position) error {
	if err := u.checkOnlyReader(); err != nil {
		return err
	}
	before := s.current
	err := s.save(u.ReaderHolder, p)
	s.current = before
	return err
}

func (s *Saver) save(h *ReaderHolder, p Position) error {
	r, can := h.reader.(Resumable)
	if !can {
		return pyfeed.Errorf(pyfeed.State, "the reader %s cannot save its position", h.label())
	}
	kind, options := r.Identity()
	s.current = len(s.readers)
	s.readers = append(s.readers, state.Reader{Kind: kind, Options: options})
	return r.Save(p, s)
}

// State returns the position behind the tuples that this reader has delivered to its consumers, as JSON. It is an error of
// kind State if that is not known exactly. Any thread may call it.
func (h *ReaderHolder) State() ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.waitingCalls.Load() > 0:
		return nil, pyfeed.Errorf(pyfeed.State, "expected no consumer within a read of the reader %s, found one that waits: "+
			"save the position when all consumers are between two reads", h.label())
	case h.readBy.Load() != nil:
		return nil, pyfeed.Errorf(pyfeed.State, "expected the topmost reader of a chain, found %s, which another reader reads", h.label())
	}
	s, n := Saver{}, h.delivered.Load()
	if err := s.save(h, Position{h.pass, n}); err != nil {
		return nil, err
	}
	saved := state.State{Pass: h.pass, N: n * h.VirtualShards().Share(), Ended: h.ended && h.loopBegan(), Readers: s.readers}
	return saved.Encode(), nil
}

// Restorer hands out the parts of a state.
type Restorer struct {
	readers []state.Reader // those not handed out yet
	current state.Reader
}

// At decodes the reader's own part of the state. It returns false if there is none.
func (s *Restorer) At(to any) (bool, error) {
	if s.current.At == nil {
		return false, nil
	}
	return true, DecodeAt(s.current.Kind, s.current.At, to)
}

// DecodeAt decodes a reader's own part of a state.
func DecodeAt(kind string, at []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(at))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "state: %s: expected its position, found other JSON: %v", kind, err)
	}
	return nil
}

// RestoreBelow begins the position's pass in the reader below, and goes to the position.
func (s *Restorer) RestoreBelow(u *Upstream, p Position) error {
	before := s.current
	defer func() { s.current = before }()
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.pass != p.Pass {
		u.began.Store(0)
		if err := u.begin(p.Pass, u); err != nil {
			return err
		}
	}
	return s.restore(u.ReaderHolder, p)
}

func (s *Restorer) restore(h *ReaderHolder, p Position) (err error) {
	r, _ := h.reader.(Resumable)
	s.current, s.readers = s.readers[0], s.readers[1:]
	if p.N < 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "state: %s: expected a position from 0 on, found %d", s.current.Kind, p.N)
	}
	h.ahead, err = r.Restore(p, s)
	return err
}

// SetState goes to the position of a state of a reader that was made in the same way: the next tuple is the one that was
// next when the state was saved. It begins the pass of the state, like a reset: calls that wait in the reader are
// cancelled. A state of another chain or of other data is an error of kind State, which says what differs. If strict is
// false, differences are accepted with which the reader can go on at the same number of tuples, such as another seed or
// files that have changed. After an error, the reader is as before, or at the beginning of the pass. Any thread may call
// it.
func (h *ReaderHolder) SetState(data []byte, strict bool) error {
	saved, err := state.Decode(data)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	rest, err := h.checkKinds(saved.Readers)
	if err == nil && len(rest) > 0 {
		err = pyfeed.Errorf(pyfeed.State, "the state is of another chain: expected a reader %s below, found none", rest[0].Kind)
	}
	if err == nil {
		_, err = h.checkState(saved.Readers, strict)
	}
	if err != nil {
		return err
	}
	divided := h.VirtualShards().Total > 0
	n, err := h.VirtualShards().OfProcess(saved.N)
	if err != nil && !saved.Ended {
		return err
	}
	if err == nil {
		err = h.goTo(saved, n)
	}
	if pyfeed.IsKind(err, pyfeed.State) && saved.Ended && divided {
		// In a job of another size, the pass may end elsewhere, if the tuples cannot be divided evenly.
		saved.Pass, saved.Ended, n = saved.Pass+1, false, 0
		err = h.begin(saved.Pass, nil)
	}
	if err != nil {
		_ = h.begin(saved.Pass, nil) // the first error is the one to tell
		h.setLoopBegan(false)
		return err
	}
	h.delivered.Store(n)
	h.ended = saved.Ended
	h.setLoopBegan(saved.Ended) // the next loop then begins the next pass
	return nil
}

// goTo begins the pass of a state, and goes to the n-th tuple of this process.
func (h *ReaderHolder) goTo(saved *state.State, n int64) error {
	h.deferPasses(true)
	defer h.deferPasses(false)
	if err := h.begin(saved.Pass, nil); err != nil {
		return err
	}
	s := Restorer{readers: saved.Readers}
	return s.restore(h, Position{saved.Pass, n})
}

// deferPasses calls DeferPass of all sources below.
func (h *ReaderHolder) deferPasses(deferred bool) {
	if source, is := h.reader.(PassSource); is {
		source.DeferPass(deferred)
	}
	for _, u := range h.upstreams() {
		u.deferPasses(deferred)
	}
}

// checkKinds compares the kinds of this reader and of those below it with those of the readers of a state. It returns the
// readers of the state that are left.
func (h *ReaderHolder) checkKinds(saved []state.Reader) ([]state.Reader, error) {
	r, can := h.reader.(Resumable)
	if !can {
		return nil, pyfeed.Errorf(pyfeed.State, "the reader %s cannot restore a position", h.label())
	}
	kind, _ := r.Identity()
	if len(saved) == 0 {
		return nil, pyfeed.Errorf(pyfeed.State, "the state is of another chain: expected no reader in the place of %s, found one", kind)
	}
	err := saved[0].CheckKind(kind)
	saved = saved[1:]
	for _, u := range h.upstreams() {
		if err == nil {
			saved, err = u.checkKinds(saved)
		}
	}
	return saved, err
}

// checkState does the same for the options and positions of readers of the same kinds.
func (h *ReaderHolder) checkState(saved []state.Reader, strict bool) ([]state.Reader, error) {
	_, options := h.reader.(Resumable).Identity()
	if err := saved[0].Compare(options, strict); err != nil {
		return nil, err
	}
	if c, can := h.reader.(StateChecker); can {
		if err := c.CheckState(saved[0].At, strict); err != nil {
			return nil, err
		}
	}
	saved = saved[1:]
	for _, u := range h.upstreams() {
		var err error
		if saved, err = u.checkState(saved, strict); err != nil {
			return nil, err
		}
	}
	return saved, nil
}

// ErrPassTooShort is the error that a pass has ended before a restored position.
func ErrPassTooShort(missing int64) error {
	return pyfeed.Errorf(pyfeed.State, "expected %d more tuples before the position that was restored, found the end of the pass: "+
		"there is less data than when the position was saved", missing)
}

// skipAhead drops the tuples before a restored position. The caller holds the lock.
func (h *ReaderHolder) skipAhead(ctx context.Context) error {
	var slice wait.TimeSlice
	for h.ahead > 0 {
		n, err := h.reader.ReadMany(ctx, &h.chunk, int(min(h.ahead, record.ChunkSize)))
		h.chunk.Release()
		h.ahead -= int64(n)
		switch {
		case err == io.EOF:
			return ErrPassTooShort(h.ahead)
		case err != nil:
			return err
		case h.ahead > 0 && slice.Expired(ctx):
			return wait.ErrWouldBlock
		}
	}
	return nil
}

// checkOnlyReader returns an error if the reader below was read by others than this Upstream since it was reset, or is not
// in the pass that the reader above believes it to be in.
func (u *Upstream) checkOnlyReader() error {
	by := u.readBy.Load()
	if u.delivered.Load() == 0 && !u.shared.Load() && (by == nil || by == u) {
		if u.otherPass.Load() || u.began.Load() == 0 && u.inOtherPass() {
			return pyfeed.Errorf(pyfeed.State, "expected the reader %s to be in the pass of the reader above it, found that it was reset alone: "+
				"reset the topmost reader", u.label())
		}
		return nil
	}
	return pyfeed.Errorf(pyfeed.State, "expected tuples of the reader %s to be read by the reader above it only, found another "+
		"consumer in this pass: reset the topmost reader, and read only from there", u.label())
}
