package cuda

import (
	"context"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Stager implements pyfeed.Stager. Its device memory is divided into buffers, each for one tuple.
type Stager struct {
	device *Device
	pool   *memory.Pool // for tuples that are not in pinned memory yet
	lods   *memory.Pool

	mu             sync.Mutex
	depth          int
	free           []*deviceBuffer // in the order in which they became free: work on the first is done soonest
	buffers        int             // number of all buffers
	taken          int             // buffers with a tuple that is not released yet
	held           int             // buffers whose tuple Next has returned to the consumer
	closed         bool
	closeWaits     bool      // Close is waiting, and will finish the Stager
	buffersChanged sync.Cond // signals a change of buffers
	room           wait.List
	ready          wait.List
}

// States of the tuple in a buffer.
const (
	queued      = iota
	copyStarted // streams can wait for the copy
	arrived
	failed
)

// deviceBuffer is device memory for one tuple. It belongs to a tuple from tryBuffer until the tuple's last reference is
// dropped and its copy has ended. Then it is free.
type deviceBuffer struct {
	stager  *Stager
	buffer  memory.Buffer // referenced by the tuple's tensors
	owners  atomic.Int32  // 2 while the tuple is referenced and its copy not ended, 1 while only one of these is true
	copying atomic.Bool   // the copy has not ended and was not abandoned
	state   atomic.Int32
	err     error // the error of state failed

	// Used by the submitter only.
	memory deviceMemory
	copied event
	host   *pyfeed.Tuple // the source of the copy
	from   unsafe.Pointer
	bytes  int

	held bool           // guarded by the stager's lock
	lod  *memory.Buffer // copies of the LoD offsets, in host memory

	mu        sync.Mutex
	uses      []use
	undefined bool // the end of a use could not be recorded: quarantine the memory
}

// use is the work of one stream on a buffer's tuple.
type use struct {
	stream   uint64
	thread   int  // the calling thread for stream 2, which is a different stream on each thread; otherwise 0
	open     bool // work may have been submitted since the event was recorded
	recorded bool
	event    event
}

func newStager(d *Device, depth int) *Stager {
	s := &Stager{device: d, depth: depth, pool: memory.NewPinnedPool(newPinned(d.retain()), memory.Batch), lods: memory.NewPool(memory.Batch)}
	s.buffersChanged.L = &s.mu
	s.room.Init(&s.mu)
	s.room.Named("waits for memory of "+d.place.String(), trace.Backlog)
	s.ready.Init(&s.mu)
	s.ready.Named("waits for a copy to "+d.place.String()+" to begin", trace.Backlog)
	return s
}

// Take allocates pinned memory for t.
func (s *Stager) Take(t *pyfeed.Tuple) error { return t.Allocate(s.pool) }

// Err returns the error that made the device unusable, or nil.
func (s *Stager) Err() error { return s.device.err() }

// Put queues the copy of t.
func (s *Stager) Put(ctx context.Context, t *pyfeed.Tuple) (*pyfeed.Tuple, error) {
	if len(t.Slots) == 0 {
		return nil, pyfeed.Errorf(pyfeed.Slots, "slots: expected at least 1, found 0")
	}
	if err := s.device.err(); err != nil {
		return nil, err
	}
	buf, err := wait.Do(ctx, s.tryBuffer)
	if err != nil {
		return nil, err
	}
	out, err := buf.fill(t)
	if err != nil {
		buf.dropOwner()
		buf.Reclaim()
		return nil, err
	}
	s.device.submit(buf)
	return out, nil
}

// tryBuffer takes a buffer for a tuple. Up to depth+2 buffers are made before a free one is reused: one for each ready
// tuple, one for the tuple being copied and one for the consumer. A buffer that is free on the host may still be in use
// on the device, and a copy into it would wait for that. More buffers are made only if the consumer holds all of them,
// because it would otherwise wait for itself, or if the depth is Unlimited.
func (s *Stager) tryBuffer(ctx context.Context) (*deviceBuffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var buf *deviceBuffer
	switch {
	case s.closed:
		return nil, pyfeed.Errorf(pyfeed.Closed, "the stager to %v is closed", s.device.place)
	case s.buffers < max(s.depth, 1)+2:
		buf = s.addBuffer()
	case len(s.free) > 0:
		buf = s.free[0]
		s.free = append(s.free[:0], s.free[1:]...)
	case s.held >= s.buffers || s.depth == pyfeed.Unlimited:
		buf = s.addBuffer()
	default:
		return nil, s.room.Enter(ctx)
	}
	s.taken++
	buf.owners.Store(2)
	buf.state.Store(queued)
	buf.err = nil
	return buf, nil
}

func (s *Stager) addBuffer() *deviceBuffer {
	s.buffers++
	return &deviceBuffer{stager: s}
}

// fill sets t as the source of the buffer's copy, and returns the tuple on the device. Its data has host addresses
// until Next sets those of the device.
func (s *deviceBuffer) fill(t *pyfeed.Tuple) (*pyfeed.Tuple, error) {
	data, is := t.Pinned()
	if !is {
		if err := t.Move(s.stager.pool); err != nil {
			return nil, err
		}
		data, _ = t.Pinned()
	}
	out := pyfeed.NewTuple(len(t.Slots))
	out.Pass = t.Pass
	if err := s.offsets(t, out); err != nil {
		out.Release()
		return nil, err
	}
	s.host, s.from, s.bytes = t, unsafe.Pointer(unsafe.SliceData(data)), len(data)
	s.copying.Store(true)
	s.buffer.WrapResident(len(data), s, len(t.Slots))
	for i := range t.Slots {
		from, to := &t.Slots[i], &out.Slots[i]
		to.DType, to.Place = from.DType, s.stager.device.place
		_ = to.SetDims(from.Dims())
		to.Hold(from.Data, &s.buffer)
	}
	return out, nil
}

// offsets copies the LoD offsets of t, because t is released after its copy.
func (s *deviceBuffer) offsets(t, out *pyfeed.Tuple) error {
	n := 0
	for i := range t.Slots {
		for _, level := range t.Slots[i].LoD {
			n += len(level)
		}
	}
	if n == 0 {
		return nil
	}
	b, err := s.stager.lods.Get(8 * n)
	if err != nil {
		return err
	}
	s.lod = b
	room := unsafe.Slice((*int64)(b.Pointer()), n)
	for i := range t.Slots {
		for _, level := range t.Slots[i].LoD {
			k := copy(room, level)
			out.Slots[i].LoD = append(out.Slots[i].LoD, room[:k:k])
			room = room[k:]
		}
	}
	return nil
}

// Next waits until the copy of t, which Put returned, has been submitted.
func (s *Stager) Next(ctx context.Context, t *pyfeed.Tuple) error {
	buf := bufferOf(t)
	if buf == nil {
		return nil
	}
	s = buf.stager // t may come from another Stager, such as a staging buffer's
	if err := s.device.err(); err != nil {
		return err
	}
	_, err := wait.Do(ctx, func(ctx context.Context) (struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		switch buf.state.Load() {
		case queued:
			return struct{}{}, s.ready.Enter(ctx)
		case failed:
			return struct{}{}, buf.err
		}
		if !buf.held {
			buf.held = true
			buf.setAddresses(t)
			if s.held++; s.held >= s.buffers {
				s.room.WakeOne().Send()
			}
		}
		return struct{}{}, nil
	})
	return err
}

// setAddresses replaces the host addresses of t with those of the device.
func (s *deviceBuffer) setAddresses(t *pyfeed.Tuple) {
	for i := range t.Slots {
		d := &t.Slots[i].Data
		if n := len(*d); n > 0 {
			at := uint64(uintptr(unsafe.Pointer(unsafe.SliceData(*d))) - uintptr(s.from))
			*d = unsafe.Slice((*byte)(pointer(s.memory.addr+at)), n)
		}
	}
}

func bufferOf(t *pyfeed.Tuple) *deviceBuffer {
	for i := range t.Slots {
		if s, is := t.Slots[i].Resident().(*deviceBuffer); is {
			return s
		}
	}
	return nil
}

// Close ends the waits for room. It frees the buffers without a tuple, after the copies into them have ended. The other
// buffers are freed with their tuples.
func (s *Stager) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.closeWaits = true, true
	free := s.free
	s.free = nil
	s.room.WakeAll()
	s.mu.Unlock()
	for _, buf := range free {
		s.device.submit((*bufferDestruction)(buf))
	}
	s.mu.Lock()
	for s.buffers > s.taken {
		s.buffersChanged.Wait()
	}
	s.closeWaits = false
	over := s.buffers == 0
	s.mu.Unlock()
	if over {
		s.finish()
	}
}

// finish closes the Stager when its last buffer is freed.
func (s *Stager) finish() {
	s.pool.Close()
	s.lods.Close()
	s.device.drop()
}

// setState changes the state and wakes the callers that wait for it.
func (s *deviceBuffer) setState(state int32) {
	s.stager.mu.Lock()
	s.state.Store(state)
	s.stager.ready.WakeAll()
	s.stager.mu.Unlock()
}

// Reclaim is called when the last reference to the tuple's memory is dropped. Streams of its consumers may still work
// on it. Therefore Reclaim records an event on each, for the next copy to wait for.
func (s *deviceBuffer) Reclaim() {
	s.mu.Lock()
	for i := range s.uses {
		u := &s.uses[i]
		if u.open && s.record(u) != nil {
			s.undefined = true
		}
		u.open = false
	}
	s.mu.Unlock()
	if s.lod != nil {
		s.lod.Release()
		s.lod = nil
	}
	g := s.stager
	g.mu.Lock()
	g.taken--
	if s.held {
		s.held = false
		g.held--
	}
	g.mu.Unlock()
	s.dropOwner()
}

// dropOwner removes one of the two owners. The last one frees the buffer for reuse.
func (s *deviceBuffer) dropOwner() {
	if s.owners.Add(-1) > 0 {
		return
	}
	g := s.stager
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		g.device.submit((*bufferDestruction)(s))
		return
	}
	g.free = append(g.free, s)
	wake := g.room.WakeOne()
	g.mu.Unlock()
	wake.Send()
}

// bufferDestruction is the job that frees a buffer's memory and events.
type bufferDestruction deviceBuffer

func (e *bufferDestruction) run(d *Device) {
	s := (*deviceBuffer)(e)
	d.releaseConfirmed()
	s.mu.Lock()
	if s.undefined {
		d.quarantine(s)
	}
	for _, u := range s.uses { // the driver also waits when it frees memory, but does not document it
		if u.recorded {
			_ = d.port.Synchronize(u.event)
		}
		if u.event != 0 {
			_ = d.port.DestroyEvent(u.event)
		}
	}
	s.uses = nil
	if s.copied != 0 {
		_ = d.port.DestroyEvent(s.copied)
	}
	d.free(s)
	s.mu.Unlock()
	s.stager.removeBuffer()
}

func (e *bufferDestruction) abandon(error, bool) {
	memory.CountSlab(memory.DeviceSlab, -e.memory.size)
	e.stager.removeBuffer()
}

// removeBuffer removes a buffer of a closed Stager.
func (s *Stager) removeBuffer() {
	s.mu.Lock()
	s.buffers--
	over := s.buffers == 0 && !s.closeWaits
	s.buffersChanged.Broadcast()
	s.mu.Unlock()
	if over {
		s.finish()
	}
}

// checkStarted returns the state of the copy, or the error for streams that want to use the tuple: the device is lost,
// the copy failed or is not submitted yet.
func (s *deviceBuffer) checkStarted() (state int32, err error) {
	if err := s.device().err(); err != nil {
		return 0, err
	}
	switch state = s.state.Load(); state {
	case failed:
		return 0, s.err
	case queued:
		return 0, pyfeed.Errorf(pyfeed.State, "the copy of the tuple has not begun")
	}
	return state, nil
}

// Use implements memory.Resident.
func (s *deviceBuffer) Use(stream uint64) error {
	state, err := s.checkStarted()
	if err != nil {
		return err
	}
	var wait event // a finished copy needs no wait, but an unusable stream is refused all the same
	if state == copyStarted {
		wait = s.copied
	}
	if err := s.device().port.Use(stream, wait); err != nil {
		return s.device().failed(err)
	}
	s.mu.Lock()
	s.find(stream).open = true
	s.mu.Unlock()
	return nil
}

// Release implements memory.Resident.
func (s *deviceBuffer) Release(stream uint64) error {
	if _, err := s.checkStarted(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.record(s.find(stream)); err != nil {
		return s.device().failed(err)
	}
	return nil
}

func (s *deviceBuffer) device() *Device { return s.stager.device }

// find returns the use of a stream, and makes it if there is none. The lock is held.
func (s *deviceBuffer) find(stream uint64) *use {
	thread := 0
	if stream == perThreadStream {
		thread = trace.ThreadID()
	}
	var spare *use
	for i := range s.uses {
		u := &s.uses[i]
		switch {
		case (u.open || u.recorded) && u.stream == stream && u.thread == thread:
			return u
		case !u.open && !u.recorded && spare == nil:
			spare = u
		}
	}
	if spare == nil {
		s.uses = append(s.uses, use{})
		spare = &s.uses[len(s.uses)-1]
	}
	spare.stream, spare.thread = stream, thread
	return spare
}

// Stream numbers that are not handles: the legacy default stream, which waits for all blocking streams, and the
// per-thread default stream.
const (
	legacyStream    = 1
	perThreadStream = 2
)

// record records an event on a use's stream, after all work submitted so far. The lock is held.
func (s *deviceBuffer) record(u *use) error {
	stream := u.stream
	if stream == perThreadStream && u.thread != trace.ThreadID() {
		stream = legacyStream // the legacy stream waits for the per-thread streams of all threads
	}
	if u.event == 0 {
		e, err := s.device().port.NewEvent()
		if err != nil {
			return err
		}
		u.event = e
	}
	if err := s.device().port.Release(stream, u.event); err != nil {
		return err
	}
	u.open, u.recorded = false, true
	return nil
}

// Synchronize implements memory.Resident.
func (s *deviceBuffer) Synchronize(ctx context.Context) error {
	g := s.stager
	// Start of the call, which tries several times.
	start := int64(wait.GenerationAtStart(ctx, s, uint64(trace.Begin())))
	_, err := wait.Do(ctx, func(ctx context.Context) (struct{}, error) {
		if err := g.device.err(); err != nil {
			return struct{}{}, err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		switch s.state.Load() {
		case arrived:
			return struct{}{}, nil
		case failed:
			return struct{}{}, s.err
		}
		return struct{}{}, g.ready.Enter(ctx)
	})
	if start != 0 && err != wait.ErrWouldBlock {
		trace.StallSpan(wait.TrackOf(ctx), g.device.name, start, trace.Now())
	}
	return err
}

// Download implements memory.Resident.
func (s *deviceBuffer) Download(to, from []byte) error {
	if err := s.Synchronize(context.Background()); err != nil || len(from) == 0 {
		return err
	}
	return s.device().failed(s.device().port.Download(unsafe.Pointer(unsafe.SliceData(to)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(from)))), len(from)))
}
