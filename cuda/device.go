package cuda

import (
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// segmentBytes is what one call copies at most: copy engines ignore priorities, so a long copy would delay the trainer's own small
// ones. Replaced by tests.
var segmentBytes = 16 << 20

const (
	// Copies that are under way at a time: one that runs, and one behind it, so that the copy engine does not run dry.
	maxInFlight = 2
	// Pieces of memory that are set aside at a time.
	maxQuarantined = 16
	// Calls that wait for the copies, and fail one after the other, before the driver is taken to refuse them all.
	maxWaits = 8
)

// Device is a device while somebody feeds it. It has two threads of its own. The submitter makes the calls that copy, in the
// order of the jobs; it waits for the device only where memory is freed, or an error leaves it in doubt what is under way. The
// completer sleeps in the driver until a copy is done.
type Device struct {
	place pyfeed.Place
	name  string // of the place
	port  port

	mu              sync.Mutex
	submitter       sync.Cond // for jobs, or for room in flight
	completer       sync.Cond // for what flies
	jobs            []job     // from first on
	first           int
	running         job
	inFlight        [maxInFlight]inFlightCopy
	inFlightCount   int
	refs            int
	over            bool // nothing more will fly
	lost            error
	unconfirmed     []*pyfeed.Tuple // whose memory a copy may still read: the driver refused every wait for it
	streams         []uint64        // of consumers that are gone, for the next
	submitterFailed bool            // the submitter has had a fault and runs no more jobs
	completerFailed bool            // the completer has had a fault and sees no more copies land
	ended           chan struct{}

	// The submitter's own.
	segmentEvents    [maxInFlight]event // behind segments that are not the last of their tuple
	nextSegmentEvent int
	quarantined      []deviceMemory // memory with which something unknown is done
}

// deviceMemory is memory of the device's.
type deviceMemory struct {
	addr uint64
	size int
}

// A job is something for the submitter to do. abandon is for one that will not be run, or not to its end, since the submitter
// is no more; over says that no copy of it is under way.
type job interface {
	run(d *Device)
	abandon(err error, over bool)
}

// inFlightCopy is a copy under way.
type inFlightCopy struct {
	event        event
	deviceBuffer *deviceBuffer // whose last segment it is, or nil
	bytes        int
	timer        timer // runs while there is a recording
}

var devices struct {
	mu  sync.Mutex
	all map[pyfeed.Place]*Device
}

// threads are those of all devices. They do not wait for each other's end.
var threads sync.Map

// open is the device of a place, begun if nobody feeds it yet, with a reference for the caller. Another takes the place of
// one that is lost, or says why not.
func open(place pyfeed.Place) (*Device, error) {
	if place.Kind == pyfeed.CUDAPinned { // which is pinned for all devices
		place = pyfeed.CUDAPlace(0)
	}
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d := devices.all[place]; d != nil && d.err() == nil {
		return d.retain(), nil
	}
	p, err := newPort(int(place.Device))
	if err != nil {
		return nil, about(place, err)
	}
	d, err := begin(place, p)
	if err != nil {
		return nil, err
	}
	if devices.all == nil {
		devices.all = map[pyfeed.Place]*Device{}
	}
	devices.all[place] = d
	return d, nil
}

// begin starts the threads. It owns the port.
func begin(place pyfeed.Place, p port) (*Device, error) {
	d := &Device{place: place, name: place.String(), port: p, refs: 1, ended: make(chan struct{})}
	d.submitter.L, d.completer.L = &d.mu, &d.mu
	started := make(chan error, 2)
	wait.Go(func() { d.runJobs(started) }, func(fault error) { started <- d.fault(fault) })
	if err := <-started; err != nil {
		<-d.ended
		return nil, about(place, err)
	}
	return d, nil
}

// fault is the end of the submitter but for those who wait for it.
func (d *Device) fault(fault error) error {
	d.mu.Lock()
	err := d.loseTo(fault)
	d.submitterFailed, d.over = true, true
	jobs, running := d.jobs[d.first:], d.running
	d.jobs, d.first, d.running = nil, 0, nil
	d.completer.Signal()
	d.mu.Unlock()
	over, _ := d.drain() // what is abandoned may be under way
	if running != nil {
		running.abandon(err, over)
	}
	for _, j := range jobs {
		j.abandon(err, true)
	}
	return err
}

// failCompleter is the end of the completer. The submitter goes on, to say why nothing works any more.
func (d *Device) failCompleter(fault error) error {
	d.mu.Lock()
	err := d.loseTo(fault)
	d.completerFailed = true
	inFlight := d.inFlight
	d.inFlight, d.inFlightCount = [maxInFlight]inFlightCopy{}, 0
	d.submitter.Signal()
	d.mu.Unlock()
	over, _ := d.drain() // the submitter waits itself for what it copies meanwhile
	for _, l := range inFlight {
		if l.deviceBuffer != nil {
			l.deviceBuffer.abandon(err, over)
		}
	}
	return err
}

// loseTo is for the lock's holder.
func (d *Device) loseTo(fault error) error {
	err := pyfeed.Errorf(pyfeed.Fault, "a thread of %v: %v", d.place, fault)
	d.lose(err)
	return err
}

func (d *Device) retain() *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refs++
	return d
}

// drop takes a reference away. With the last one the device is let go of, which is done when drop comes back, unless
// it is one of the devices' threads that calls it.
func (d *Device) drop() {
	devices.mu.Lock()
	d.mu.Lock()
	d.refs--
	over := d.refs == 0
	if over && devices.all[d.place] == d {
		delete(devices.all, d.place)
	}
	d.submitter.Signal()
	d.mu.Unlock()
	devices.mu.Unlock()
	_, ours := threads.Load(syscall.Gettid())
	if over && !ours {
		<-d.ended
	}
}

// submit hands the submitter a job.
func (d *Device) submit(j job) {
	d.mu.Lock()
	if d.submitterFailed {
		err := d.lost
		d.mu.Unlock()
		j.abandon(err, true)
		return
	}
	if d.first > 0 && len(d.jobs) == cap(d.jobs) { // rather than grow
		n := copy(d.jobs, d.jobs[d.first:])
		clear(d.jobs[n:])
		d.jobs, d.first = d.jobs[:n], 0
	}
	d.jobs = append(d.jobs, j)
	d.submitter.Signal()
	d.mu.Unlock()
}

// err is why the device can do nothing more, or nil.
func (d *Device) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// lose is for the lock's holder.
func (d *Device) lose(err error) {
	if d.lost == nil {
		d.lost = err
	}
}

// failed makes a port's error ours, and notes whether it is the device's last.
func (d *Device) failed(err error) error {
	if err == nil {
		return nil
	}
	ours := about(d.place, err)
	if lost(err) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lose(ours)
	}
	return ours
}

// attach makes this thread one of the device's, for good: it goes with its goroutine.
func (d *Device) attach() error {
	runtime.LockOSThread()
	threads.Store(syscall.Gettid(), nil)
	return d.port.Attach()
}

func (d *Device) detach() {
	_ = d.port.Detach() // an error says that the device is gone already, here and below
	threads.Delete(syscall.Gettid())
}

// runJobs is the submitter's thread.
func (d *Device) runJobs(started chan<- error) {
	defer close(d.ended)
	defer d.detach()
	err := d.attach()
	if err == nil {
		err = d.start()
	}
	completed := make(chan struct{})
	if err == nil {
		attached := make(chan error, 2)
		wait.Go(func() {
			defer close(completed)
			d.awaitCopies(attached)
		}, func(fault error) { attached <- d.failCompleter(fault) })
		err = <-attached
	} else {
		close(completed)
	}
	started <- err
	for err == nil && d.turn() {
	}
	<-completed
	d.stop()
	_ = d.port.Close()
}

// start gets what copies need.
func (d *Device) start() error {
	if err := d.port.Start(); err != nil {
		return err
	}
	for i := range d.segmentEvents {
		e, err := d.port.NewEvent()
		if err != nil {
			return err
		}
		d.segmentEvents[i] = e
	}
	return nil
}

// stop gives back what start got.
func (d *Device) stop() {
	for _, e := range d.segmentEvents {
		if e != 0 {
			_ = d.port.DestroyEvent(e)
		}
	}
	d.freeQuarantined()
	for _, s := range d.streams {
		_ = d.port.DestroyStream(s)
	}
	_ = d.port.Stop()
}

// newStream is a stream that nobody has.
func (d *Device) newStream() (uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.streams); n > 0 {
		s := d.streams[n-1]
		d.streams = d.streams[:n-1]
		return s, nil
	}
	return d.port.NewStream()
}

// keepStream is the end of a stream's owner. Tuples that were used on it may live longer: when they go, an event is
// recorded there.
func (d *Device) keepStream(s uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams = append(d.streams, s)
}

// turn does the next job; false: nobody is left.
func (d *Device) turn() bool {
	j := d.next()
	if j == nil {
		return false
	}
	j.run(d)
	d.mu.Lock()
	d.running = nil
	d.mu.Unlock()
	return true
}

// next waits for a job; nil: nobody is left.
func (d *Device) next() job {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.first == len(d.jobs) && d.refs > 0 {
		d.submitter.Wait()
	}
	if d.first == len(d.jobs) {
		d.over = true
		d.completer.Signal()
		return nil
	}
	j := d.jobs[d.first]
	d.jobs[d.first] = nil
	if d.first++; d.first == len(d.jobs) {
		d.jobs, d.first = d.jobs[:0], 0
	}
	d.running = j
	return j
}

// awaitCopies is the completer's thread. It waits for the copies, in their order.
func (d *Device) awaitCopies(attached chan<- error) {
	defer d.detach()
	err := d.attach()
	attached <- err
	if err != nil {
		return
	}
	var lane trace.Lane
	defer lane.Done()
	track, done := "copies to "+d.name, int64(0)
	for {
		l, more := d.oldest()
		if !more {
			return
		}
		over, err := d.awaitEvent(l.event)
		if l.timer.running {
			now := trace.Now()
			if took := d.port.Took(l.timer); took >= 0 {
				trace.TransferSpan(lane.Track(track), d.name, max(now-took, done), now, l.bytes)
			}
			done = now
		}
		d.completed()
		if l.deviceBuffer != nil {
			l.deviceBuffer.end(err, over)
		}
	}
}

// awaitEvent waits until what is before the event is done, and says whether that is certain, as drain does.
func (d *Device) awaitEvent(e event) (over bool, err error) {
	if err = d.port.Synchronize(e); err != nil && !lost(err) {
		return d.drain()
	}
	return true, d.fatal(err)
}

// drain waits until no copy is under way, and says whether that is certain: a device that is broken copies no more, but after
// another error a copy may still read the host's memory. A wait that fails is therefore repeated. An error says that the
// device is lost.
func (d *Device) drain() (over bool, err error) {
	for range maxWaits {
		if err = d.port.Drain(); err == nil || lost(err) {
			return true, d.fatal(err)
		}
	}
	return false, d.fatal(err)
}

// keepUnconfirmed keeps a tuple whose memory a copy may still read.
func (d *Device) keepUnconfirmed(host *pyfeed.Tuple) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unconfirmed = append(d.unconfirmed, host)
}

// releaseConfirmed gives back what is kept in doubt, if the driver no longer refuses to wait.
func (d *Device) releaseConfirmed() {
	d.mu.Lock()
	unconfirmed := d.unconfirmed
	d.unconfirmed = nil
	d.mu.Unlock()
	if len(unconfirmed) == 0 {
		return
	}
	over, _ := d.drain()
	for _, host := range unconfirmed {
		if over {
			host.Release()
		} else {
			d.keepUnconfirmed(host)
		}
	}
}

// fatal is an error after which nothing is certain.
func (d *Device) fatal(err error) error {
	if err == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lose(about(d.place, err))
	return d.lost
}

// oldest waits for the copy that began first; false: there will be no more.
func (d *Device) oldest() (l inFlightCopy, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inFlightCount == 0 && !d.over {
		d.completer.Wait()
	}
	return d.inFlight[0], d.inFlightCount > 0
}

// completed is the end of the oldest copy, whose event may be used again.
func (d *Device) completed() {
	d.mu.Lock()
	defer d.mu.Unlock()
	copy(d.inFlight[:], d.inFlight[1:d.inFlightCount])
	d.inFlightCount--
	d.inFlight[d.inFlightCount] = inFlightCopy{}
	d.submitter.Signal()
}

// room waits until one more copy may be under way.
func (d *Device) room() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.inFlightCount == maxInFlight && !d.completerFailed {
		d.submitter.Wait()
	}
	if d.completerFailed {
		return d.lost
	}
	return nil
}

// addInFlight notes that a copy is under way, for which there was room.
func (d *Device) addInFlight(l inFlightCopy) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.completerFailed {
		return d.lost
	}
	d.inFlight[d.inFlightCount] = l
	d.inFlightCount++
	d.completer.Signal()
	return nil
}

// copy brings a buffer's tuple under way, segment by segment. After an error nothing of it is under way, if that is certain (over).
func (d *Device) copy(s *deviceBuffer) (over bool, err error) {
	defer func() {
		if err != nil {
			over, _ = d.drain()
		}
	}()
	total := s.bytes // once the last segment is under way the buffer may land, and be another tuple's
	for at := 0; at < total; {
		if err := d.room(); err != nil {
			return false, err
		}
		n := min(segmentBytes, total-at)
		l := inFlightCopy{event: s.copied, deviceBuffer: s, bytes: n}
		if at+n < total {
			l.event, l.deviceBuffer = d.segmentEvents[d.nextSegmentEvent], nil
			d.nextSegmentEvent = (d.nextSegmentEvent + 1) % maxInFlight
		}
		l.timer, err = d.port.Copy(s.memory.addr+uint64(at), unsafe.Add(s.from, at), n, l.event, trace.On())
		if err != nil {
			return false, d.failed(err)
		}
		if at += n; at == total {
			s.setState(underway)
		}
		if err := d.addInFlight(l); err != nil {
			return false, err
		}
	}
	return false, nil
}

// deviceSize rounds up as drivers do: what is large comes in pieces of 2 MiB, what is small shares one.
func deviceSize(n int) int {
	const least = 512
	if n >= memory.SlabUnit/2 {
		return slabSize(n)
	}
	return (max(n, 1) + least - 1) &^ (least - 1)
}

// resize gives a buffer at least so much memory.
func (d *Device) resize(s *deviceBuffer, bytes int) error {
	d.free(s)
	size := deviceSize(bytes)
	addr, err := d.port.Alloc(size)
	if err != nil && len(d.quarantined) > 0 && !lost(err) {
		d.freeQuarantined()
		addr, err = d.port.Alloc(size)
	}
	if err != nil {
		return d.failed(outOfMemory(err, "device memory", size))
	}
	s.memory = deviceMemory{addr, size}
	memory.CountSlab(memory.DeviceSlab, size)
	return nil
}

// free gives a buffer's memory back, with which nothing is done any more.
func (d *Device) free(s *deviceBuffer) {
	d.release(s.memory)
	s.memory = deviceMemory{}
}

func (d *Device) release(m deviceMemory) {
	if m.size > 0 {
		_ = d.port.Free(m.addr)
		memory.CountSlab(memory.DeviceSlab, -m.size)
	}
}

// quarantine keeps a buffer's memory: nobody knows what is done with it, and to wait for all that the device does would break
// the captures of others. The driver waits when it is freed.
func (d *Device) quarantine(s *deviceBuffer) {
	if len(d.quarantined) == maxQuarantined {
		d.release(d.quarantined[0])
		d.quarantined = append(d.quarantined[:0], d.quarantined[1:]...)
	}
	d.quarantined = append(d.quarantined, s.memory)
	s.memory = deviceMemory{}
}

// freeQuarantined frees all that was set aside.
func (d *Device) freeQuarantined() {
	for _, m := range d.quarantined {
		d.release(m)
	}
	d.quarantined = d.quarantined[:0]
}
