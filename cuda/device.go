package cuda

import (
	"runtime"
	"sync"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// segmentBytes is the largest copy in one call. Copy engines ignore stream priorities, so that a longer copy would
// delay small copies of the training program. Tests replace it.
var segmentBytes = 16 << 20

const (
	// Copies in progress at the same time: a second one waits behind the first, so that the copy engine is never idle.
	maxInFlight = 2
	// Blocks of quarantined memory, beyond which the oldest is freed.
	maxQuarantined = 16
	// Failed waits for copies in a row after which the driver is assumed to refuse every wait.
	maxFailedWaits = 8
)

// Device is a device in use, from its first reference to its last. It has two threads. The submitter makes the calls
// that copy, in the order of the jobs. It waits for the device only to free memory, or after an error that leaves the
// state of copies unknown. The completer blocks in the driver until a copy is done.
type Device struct {
	place pyfeed.Place
	name  string // of the place
	port  port

	mu              sync.Mutex
	submitter       sync.Cond // signals a new job, or the end of a copy
	completer       sync.Cond // signals a copy in flight
	jobs            []job     // the queue is jobs[first:]
	first           int
	running         job
	inFlight        [maxInFlight]inFlightCopy
	inFlightCount   int
	refs            int
	closing         bool // no more copies are submitted
	lost            error
	unconfirmed     []*pyfeed.Tuple // tuples whose memory a copy may still read, because every wait for it has failed
	streams         []uint64        // streams of closed owners, for reuse
	submitterFailed bool            // the submitter has panicked: it runs no more jobs
	completerFailed bool            // the completer has panicked: it waits for no more copies
	ended           chan struct{}

	// Used by the submitter only.
	segmentEvents    [maxInFlight]event // for all segments of a tuple except the last
	nextSegmentEvent int
	quarantined      []deviceMemory // memory that unknown work may still use
}

// deviceMemory is a block of device memory.
type deviceMemory struct {
	addr uint64
	size int
}

// A job is work for the submitter. abandon is called instead of run, or during run, if the submitter has failed.
// certain reports that no copy of the job is in progress.
type job interface {
	run(d *Device)
	abandon(err error, certain bool)
}

// inFlightCopy is a submitted copy.
type inFlightCopy struct {
	event        event
	deviceBuffer *deviceBuffer // for the last segment of a tuple its buffer; otherwise nil
	bytes        int
	timer        timer // runs while a recording is on
}

var devices struct {
	mu  sync.Mutex
	all map[pyfeed.Place]*Device
}

// threads has the ids of the devices' OS threads. They never wait for a device to close, because two of them could then
// wait for each other.
var threads sync.Map

// open returns the device of a place with a reference for the caller. It starts the device if it is not in use yet, and
// replaces a lost one.
func open(place pyfeed.Place) (*Device, error) {
	if place.Kind == pyfeed.CUDAPinned { // pinned memory is pinned for all devices
		place = pyfeed.CUDAPlace(0)
	}
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if d := devices.all[place]; d != nil && d.err() == nil {
		return d.retain(), nil
	}
	p, err := newPort(int(place.Device))
	if err != nil {
		return nil, atPlace(place, err)
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

// begin starts the threads of a device, which owns the port.
func begin(place pyfeed.Place, p port) (*Device, error) {
	d := &Device{place: place, name: place.String(), port: p, refs: 1, ended: make(chan struct{})}
	d.submitter.L, d.completer.L = &d.mu, &d.mu
	started := make(chan error, 2)
	wait.Go(func() { d.runJobs(started) }, func(fault error) { started <- d.fault(fault) })
	if err := <-started; err != nil {
		<-d.ended
		return nil, atPlace(place, err)
	}
	return d, nil
}

// fault handles a panic of the submitter: it marks the device as lost and abandons the jobs.
func (d *Device) fault(fault error) error {
	d.mu.Lock()
	err := d.failWith(fault)
	d.submitterFailed, d.closing = true, true
	jobs, running := d.jobs[d.first:], d.running
	d.jobs, d.first, d.running = nil, 0, nil
	d.completer.Signal()
	d.mu.Unlock()
	certain, _ := d.drain() // copies of the running job may be in progress
	if running != nil {
		running.abandon(err, certain)
	}
	for _, j := range jobs {
		j.abandon(err, true)
	}
	return err
}

// failCompleter handles a panic of the completer: it marks the device as lost and abandons the copies in flight. The
// submitter continues, so that later jobs get the error.
func (d *Device) failCompleter(fault error) error {
	d.mu.Lock()
	err := d.failWith(fault)
	d.completerFailed = true
	inFlight := d.inFlight
	d.inFlight, d.inFlightCount = [maxInFlight]inFlightCopy{}, 0
	d.submitter.Signal()
	d.mu.Unlock()
	certain, _ := d.drain() // the submitter drains the copies that it submits meanwhile
	for _, l := range inFlight {
		if l.deviceBuffer != nil {
			l.deviceBuffer.abandon(err, certain)
		}
	}
	return err
}

// failWith marks the device as lost after a panic. The lock is held.
func (d *Device) failWith(fault error) error {
	err := pyfeed.Errorf(pyfeed.Fault, "a thread of %v: %v", d.place, fault)
	d.setLost(err)
	return err
}

func (d *Device) retain() *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refs++
	return d
}

// drop releases a reference. The last drop closes the device and waits for the end of its threads, unless the caller is
// itself a thread of a device.
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
	_, ours := threads.Load(trace.ThreadID())
	if over && !ours {
		<-d.ended
	}
}

// submit queues a job for the submitter.
func (d *Device) submit(j job) {
	d.mu.Lock()
	if d.submitterFailed {
		err := d.lost
		d.mu.Unlock()
		j.abandon(err, true)
		return
	}
	if d.first > 0 && len(d.jobs) == cap(d.jobs) { // reuse the space of finished jobs instead of growing
		n := copy(d.jobs, d.jobs[d.first:])
		clear(d.jobs[n:])
		d.jobs, d.first = d.jobs[:n], 0
	}
	d.jobs = append(d.jobs, j)
	d.submitter.Signal()
	d.mu.Unlock()
}

// err returns the error that made the device unusable, or nil.
func (d *Device) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lost
}

// setLost marks the device as unusable. The first error is kept. The lock is held.
func (d *Device) setLost(err error) {
	if d.lost == nil {
		d.lost = err
	}
}

// failed converts an error of the port for callers. If it is a sticky error, the device becomes lost.
func (d *Device) failed(err error) error {
	if err == nil {
		return nil
	}
	ours := atPlace(d.place, err)
	if lost(err) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.setLost(ours)
	}
	return ours
}

// attach makes the calling thread one of the device's threads. The thread ends with its goroutine.
func (d *Device) attach() error {
	runtime.LockOSThread()
	threads.Store(trace.ThreadID(), nil)
	return d.port.Attach()
}

func (d *Device) detach() {
	_ = d.port.Detach() // here and below, calls fail only if the device is gone
	threads.Delete(trace.ThreadID())
}

// runJobs runs on the submitter's thread.
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
	for err == nil && d.runNextJob() {
	}
	<-completed
	d.stop()
	_ = d.port.Close()
}

// start creates the copy stream and the events of the segments.
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

// stop releases what start created, and the memory and streams that are kept.
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

// newStream returns an unused stream.
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

// keepStream keeps the stream of a closed owner for reuse. The stream must stay valid: tuples used on it may live
// longer, and when they are released an event is recorded on it.
func (d *Device) keepStream(s uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.streams = append(d.streams, s)
}

// runNextJob runs the next job. It returns false if the device is no longer used.
func (d *Device) runNextJob() bool {
	j := d.nextJob()
	if j == nil {
		return false
	}
	j.run(d)
	d.mu.Lock()
	d.running = nil
	d.mu.Unlock()
	return true
}

// nextJob waits for a job. It returns nil if the device is no longer used.
func (d *Device) nextJob() job {
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.first == len(d.jobs) && d.refs > 0 {
		d.submitter.Wait()
	}
	if d.first == len(d.jobs) {
		d.closing = true
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

// deviceSize rounds up as drivers do: large blocks take multiples of 2 MiB, small ones share such a block.
func deviceSize(n int) int {
	const least = 512
	if n >= memory.SlabUnit/2 {
		return slabSize(n)
	}
	return (max(n, 1) + least - 1) &^ (least - 1)
}

// resize gives a buffer at least the given amount of memory. Its contents are lost.
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

// free frees a buffer's memory, which the device no longer uses.
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

// quarantine sets a buffer's memory aside, because the device may still use it. Waiting for all work of the device
// would break graph captures of the program. The driver waits when the memory is freed.
func (d *Device) quarantine(s *deviceBuffer) {
	if len(d.quarantined) == maxQuarantined {
		d.release(d.quarantined[0])
		d.quarantined = append(d.quarantined[:0], d.quarantined[1:]...)
	}
	d.quarantined = append(d.quarantined, s.memory)
	s.memory = deviceMemory{}
}

// freeQuarantined frees all quarantined memory.
func (d *Device) freeQuarantined() {
	for _, m := range d.quarantined {
		d.release(m)
	}
	d.quarantined = d.quarantined[:0]
}
