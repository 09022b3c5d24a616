package cuda

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// Stager is pyfeed.Stager. Its memory at the device is buffers, each for one tuple.
type Stager struct {
	device *Device
	pool   *memory.Pool // pinned, for tuples that lie elsewhere
	lods   *memory.Pool

	mu      sync.Mutex
	depth   int
	free    []*deviceBuffer // the one that has been so for the longest first: work with it is done soonest
	buffers int             // all there are
	out     int             // whose tuple somebody has
	held    int             // and Next has answered
	closed  bool
	closer  bool      // somebody waits in Close, and will end the Stager
	gone    sync.Cond // of buffers
	room    wait.List
	ready   wait.List
}

// What has become of a buffer's tuple.
const (
	queued   = iota
	underway // streams can wait for it
	arrived
	failed
)

// deviceBuffer is device memory for a tuple. It belongs to a tuple from tryBuffer until the tuple's last reference is gone and
// its copy has ended, and it is free then.
type deviceBuffer struct {
	stager  *Stager
	buffer  memory.Buffer // what the tuple's tensors hold
	owners  atomic.Int32  // the tuple's references, and the copy
	copying atomic.Bool   // until the copy has ended, or will not be
	state   atomic.Int32
	err     error // of failed

	// The submitter's.
	memory deviceMemory
	copied event
	host   *pyfeed.Tuple // what is copied
	from   unsafe.Pointer
	bytes  int

	held bool           // guarded by the stager's lock
	lod  *memory.Buffer // of the offsets, which stay in the host's memory

	mu      sync.Mutex
	uses    []use
	unknown bool // what is done with it
}

// use is a stream that works with a buffer's tuple.
type use struct {
	stream   uint64
	thread   int  // of stream 2, which is another for each
	open     bool // something may have been submitted since the event was recorded
	recorded bool
	event    event
}

func newStager(d *Device, depth int) *Stager {
	s := &Stager{device: d, depth: depth, pool: memory.NewPinnedPool(newPinned(d.retain()), memory.Batch), lods: memory.NewPool(memory.Batch)}
	s.gone.L = &s.mu
	s.room.Init(&s.mu)
	s.room.Named("waits for memory of "+d.place.String(), trace.Backlog)
	s.ready.Init(&s.mu)
	s.ready.Named("waits for a copy to "+d.place.String()+" to begin", trace.Backlog)
	return s
}

// Take gives t pinned memory.
func (s *Stager) Take(t *pyfeed.Tuple) error { return t.Allocate(s.pool) }

// Err is why nothing can be copied any more.
func (s *Stager) Err() error { return s.device.err() }

// Put has t copied.
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
		buf.leave()
		buf.Reclaim()
		return nil, err
	}
	s.device.submit(buf)
	return out, nil
}

// tryBuffer takes a buffer. There are as many as tuples are ready, one more for that which is being copied and one for the
// consumer, and all of them are used: one that is free on the host may still be computed on, which the copy into it would wait
// for. There are more only for a consumer that holds on to all of them, which would else wait for itself.
func (s *Stager) tryBuffer(ctx context.Context) (*deviceBuffer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var buf *deviceBuffer
	switch {
	case s.closed:
		return nil, pyfeed.Errorf(pyfeed.Closed, "the way to %v is closed", s.device.place)
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
	s.out++
	buf.owners.Store(2)
	buf.state.Store(queued)
	buf.err = nil
	return buf, nil
}

func (s *Stager) addBuffer() *deviceBuffer {
	s.buffers++
	return &deviceBuffer{stager: s}
}

// fill makes the buffer that of t, and answers the tuple at the device, whose addresses Next fills in.
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

// offsets copies the LoDs of t, whose memory goes when it is copied.
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

// Next waits until t, which Put answered, is under way.
func (s *Stager) Next(ctx context.Context, t *pyfeed.Tuple) error {
	buf := bufferOf(t)
	if buf == nil {
		return nil
	}
	s = buf.stager // that of a staging buffer, it may be
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
			buf.place(t)
			if s.held++; s.held >= s.buffers {
				s.room.One().Send()
			}
		}
		return struct{}{}, nil
	})
	return err
}

// place puts the device's addresses where those of the host were.
func (s *deviceBuffer) place(t *pyfeed.Tuple) {
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

// Close ends the waits for room, and gives the memory back that no tuple holds, once what is copied into it is there. The
// rest goes with the tuples.
func (s *Stager) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed, s.closer = true, true
	free := s.free
	s.free = nil
	s.room.All()
	s.mu.Unlock()
	for _, buf := range free {
		s.device.submit((*ending)(buf))
	}
	s.mu.Lock()
	for s.buffers > s.out {
		s.gone.Wait()
	}
	s.closer = false
	over := s.buffers == 0
	s.mu.Unlock()
	if over {
		s.end()
	}
}

// end is when the last buffer is gone.
func (s *Stager) end() {
	s.pool.Close()
	s.lods.Close()
	s.device.drop()
}

// run copies, if anybody still wants it.
func (s *deviceBuffer) run(d *Device) {
	if s.owners.Load() == 1 {
		s.end(nil, true)
		return
	}
	empty, over := s.bytes == 0, true
	err := d.err()
	if err == nil {
		err = s.prepare(d)
	}
	if err == nil {
		over, err = d.copy(s)
	}
	if err != nil || empty {
		s.end(err, over || empty)
	}
}

// prepare has the copies wait for what was done with the buffer before, and the buffer have room.
func (s *deviceBuffer) prepare(d *Device) error {
	if s.copied == 0 {
		e, err := d.port.NewEvent()
		if err != nil {
			return d.failed(err)
		}
		s.copied = e
	}
	s.mu.Lock() // for a moment: whoever drops the tuple does not wait for a device
	uses, unknown := s.uses, s.unknown
	s.uses, s.unknown = nil, false
	s.mu.Unlock()
	if unknown {
		d.quarantine(s)
		for i := range uses {
			uses[i].recorded = false // of memory that is the buffer's no more
		}
	}
	small := s.memory.size < s.bytes
	err := d.behind(uses, small)
	s.mu.Lock()
	s.uses = uses
	s.mu.Unlock()
	if err == nil && small {
		err = d.resize(s, s.bytes+s.bytes/4)
	}
	return err
}

// behind has the copies, or the host, wait for all uses.
func (d *Device) behind(uses []use, host bool) error {
	for i := range uses {
		u := &uses[i]
		if !u.recorded {
			continue
		}
		wait := d.port.Wait
		if host {
			wait = d.port.Synchronize
		}
		if err := wait(u.event); err != nil {
			return d.failed(err)
		}
		u.recorded = false
	}
	return nil
}

// abandon is the end of a buffer that is not copied any more, unless that has come.
func (s *deviceBuffer) abandon(err error, over bool) { s.end(err, over) }

// setState changes the state, and wakes those who wait for that.
func (s *deviceBuffer) setState(state int32) {
	s.stager.mu.Lock()
	s.state.Store(state)
	s.stager.ready.All()
	s.stager.mu.Unlock()
}

// end is the end of the copy, good or bad: the first that comes. If it is not certain that the copy is over, the host's memory
// is not given back.
func (s *deviceBuffer) end(err error, over bool) {
	if !s.copying.CompareAndSwap(true, false) {
		return
	}
	host := s.host
	s.host = nil
	if over {
		host.Release()
	} else {
		s.device().keepUnconfirmed(host)
	}
	if err != nil {
		s.err = err
		s.setState(failed)
	} else {
		s.setState(arrived)
	}
	s.leave()
}

// Reclaim is when the last reference to the tuple's memory is gone. What was submitted to the streams of its
// consumers until now may still work with it.
func (s *deviceBuffer) Reclaim() {
	s.mu.Lock()
	for i := range s.uses {
		u := &s.uses[i]
		if u.open && s.record(u) != nil {
			s.unknown = true
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
	g.out--
	if s.held {
		s.held = false
		g.held--
	}
	g.mu.Unlock()
	s.leave()
}

// leave is one owner less.
func (s *deviceBuffer) leave() {
	if s.owners.Add(-1) > 0 {
		return
	}
	g := s.stager
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		g.device.submit((*ending)(s))
		return
	}
	g.free = append(g.free, s)
	wake := g.room.One()
	g.mu.Unlock()
	wake.Send()
}

// ending is a buffer that goes for good.
type ending deviceBuffer

func (e *ending) run(d *Device) {
	s := (*deviceBuffer)(e)
	d.releaseConfirmed()
	s.mu.Lock()
	if s.unknown {
		d.quarantine(s)
	}
	for _, u := range s.uses { // to free memory waits too, but is not said to
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
	s.stager.less()
}

func (e *ending) abandon(error, bool) {
	memory.CountSlab(memory.DeviceSlab, -e.memory.size)
	e.stager.less()
}

// less is one buffer fewer, of a Stager that is closed.
func (s *Stager) less() {
	s.mu.Lock()
	s.buffers--
	over := s.buffers == 0 && !s.closer
	s.gone.Broadcast()
	s.mu.Unlock()
	if over {
		s.end()
	}
}

// begun says why streams cannot have to do with the tuple.
func (s *deviceBuffer) begun() (state int32, err error) {
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

// Use is memory.Resident's.
func (s *deviceBuffer) Use(stream uint64) error {
	state, err := s.begun()
	if err != nil {
		return err
	}
	var wait event // what is there need not be waited for, but streams that will not do are refused all the same
	if state == underway {
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

// Release is memory.Resident's.
func (s *deviceBuffer) Release(stream uint64) error {
	if _, err := s.begun(); err != nil {
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

// find is the use of a stream, made if there is none. The lock is held.
func (s *deviceBuffer) find(stream uint64) *use {
	thread := 0
	if stream == perThread {
		thread = syscall.Gettid()
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

// Streams that are no addresses: that which comes behind all others but non-blocking ones, and that which is another for
// each thread.
const (
	legacy    = 1
	perThread = 2
)

// record notes how far a stream has come. The lock is held.
func (s *deviceBuffer) record(u *use) error {
	stream := u.stream
	if stream == perThread && u.thread != syscall.Gettid() {
		stream = legacy // which comes behind what was submitted to that of any thread
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

// Synchronize is memory.Resident's.
func (s *deviceBuffer) Synchronize(ctx context.Context) error {
	g := s.stager
	start := int64(wait.Began(ctx, s, uint64(trace.Begin()))) // of the call, which may be made again and again
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

// Download is memory.Resident's.
func (s *deviceBuffer) Download(to, from []byte) error {
	if err := s.Synchronize(context.Background()); err != nil || len(from) == 0 {
		return err
	}
	return s.device().failed(s.device().port.Download(unsafe.Pointer(unsafe.SliceData(to)), uint64(uintptr(unsafe.Pointer(unsafe.SliceData(from)))), len(from)))
}
