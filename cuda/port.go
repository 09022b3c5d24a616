package cuda

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/cuda/driver"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// event is an event of the driver, or 0.
type event = driver.Event

// A port gives access to one device: through the driver, or to an emulation in host memory. Methods marked E may be
// called only by the submitter's thread, the others by any thread.
type port interface {
	// Attach and Detach are called by each thread of the device, before and after all other calls.
	Attach() error
	Detach() error
	// E: Start creates the copy stream, Stop destroys it.
	Start() error
	Stop() error

	Alloc(bytes int) (uint64, error)
	Free(addr uint64) error
	Register(p unsafe.Pointer, bytes int) error
	Unregister(p unsafe.Pointer) error
	NewEvent() (event, error)
	DestroyEvent(e event) error

	// E: on the copy stream. Copy submits a copy and records e after it. If timed is set, the copy is timed.
	Copy(to uint64, from unsafe.Pointer, bytes int, e event, timed bool) (timer, error)
	Wait(e event) error
	// Drain blocks the host until all work of the copy stream is done.
	Drain() error
	// Called by a thread of the device. Synchronize waits for an event. Elapsed returns the duration of a finished copy
	// in nanoseconds; it is negative if unknown.
	Synchronize(e event) error
	Elapsed(t timer) int64

	// Called with streams of consumers, on a thread of the consumer. Use fails for a stream that cannot be used.
	// Otherwise it makes the stream wait for e, unless e is 0.
	Use(stream uint64, e event) error
	Release(stream uint64, e event) error

	Download(to unsafe.Pointer, from uint64, bytes int) error
	NewStream() (uint64, error)
	DestroyStream(stream uint64) error

	MemInfo() (free, total int64, err error)
	Close() error
}

// timer measures one copy.
type timer struct {
	running    bool
	begin, end event
	took       int64
}

// driverPort is the port to a device of the CUDA driver.
type driverPort struct {
	device int
	ctx    driver.Context
	copies driver.Stream
}

func newDriverPort(device int) (port, error) {
	ctx, err := driver.Retain(device)
	if err != nil {
		return nil, err
	}
	return &driverPort{device: device, ctx: ctx}, nil
}

func (p *driverPort) Attach() error { return p.ctx.Attach() }
func (p *driverPort) Detach() error { return driver.Detach() }

func (p *driverPort) Start() (err error) {
	p.copies, err = p.ctx.NewStream(true)
	return err
}

func (p *driverPort) Stop() error {
	if p.copies == 0 {
		return nil
	}
	return p.DestroyStream(uint64(p.copies))
}

func (p *driverPort) Alloc(bytes int) (uint64, error) { return p.ctx.Alloc(int64(bytes)) }
func (p *driverPort) Free(addr uint64) error {
	return retryUndo(p.ctx.Free(addr), func() error { return p.ctx.Free(addr) })
}
func (p *driverPort) Register(at unsafe.Pointer, bytes int) error {
	return p.ctx.Register(at, bytes)
}
func (p *driverPort) Unregister(at unsafe.Pointer) error {
	return retryUndo(p.ctx.Unregister(at), func() error { return p.ctx.Unregister(at) })
}
func (p *driverPort) NewEvent() (event, error) { return p.ctx.NewEvent(false) }
func (p *driverPort) DestroyEvent(e event) error {
	return retryUndo(p.ctx.DestroyEvent(e), func() error { return p.ctx.DestroyEvent(e) })
}

// retryUndo repeats a call that releases a resource, if the first call failed because it could not make the context
// current.
func retryUndo(err error, undo func() error) error {
	var fault *driver.Error
	if errors.As(err, &fault) && fault.Call == "cuCtxPushCurrent" {
		return undo()
	}
	return err
}

func (p *driverPort) Copy(to uint64, from unsafe.Pointer, bytes int, e event, timed bool) (t timer, err error) {
	if timed {
		t.begin, t.end, t.running = p.clock()
	}
	err = driver.CopyAndRecord(to, from, bytes, p.copies, e)
	if t.running && (err != nil || driver.Record(t.end, p.copies) != nil) {
		p.unclock(t.begin, t.end)
		t = timer{}
	}
	return t, err
}

// clock records the beginning of a timed copy. If that fails, the copy is not timed.
func (p *driverPort) clock() (begin, end event, running bool) {
	begin, err := p.ctx.NewEvent(true)
	if err != nil {
		return 0, 0, false
	}
	end, err = p.ctx.NewEvent(true)
	if err == nil {
		err = driver.Record(begin, p.copies)
	}
	if err != nil {
		p.unclock(begin, end)
	}
	return begin, end, err == nil
}

func (p *driverPort) unclock(events ...event) {
	for _, e := range events {
		if e != 0 {
			_ = p.DestroyEvent(e)
		}
	}
}

func (p *driverPort) Elapsed(t timer) int64 {
	defer p.unclock(t.begin, t.end)
	if driver.Synchronize(t.end) != nil {
		return -1
	}
	ms, err := driver.Elapsed(t.begin, t.end)
	if err != nil {
		return -1
	}
	return int64(ms * 1e6)
}

func (p *driverPort) Drain() error {
	if p.copies == 0 { // Start has not created it
		return nil
	}
	return p.ctx.SynchronizeStream(p.copies)
}

func (p *driverPort) Wait(e event) error        { return driver.WaitEvent(p.copies, e) }
func (p *driverPort) Synchronize(e event) error { return driver.Synchronize(e) }

func (p *driverPort) Use(stream uint64, e event) error     { return p.ctx.Use(stream, e) }
func (p *driverPort) Release(stream uint64, e event) error { return p.ctx.Release(stream, e) }

func (p *driverPort) Download(to unsafe.Pointer, from uint64, bytes int) error {
	return p.ctx.Download(to, from, bytes)
}

func (p *driverPort) NewStream() (uint64, error) {
	s, err := p.ctx.NewStream(false)
	return uint64(s), err
}
func (p *driverPort) DestroyStream(stream uint64) error {
	return retryUndo(p.ctx.DestroyStream(driver.Stream(stream)), func() error { return p.ctx.DestroyStream(driver.Stream(stream)) })
}

func (p *driverPort) MemInfo() (free, total int64, err error) { return p.ctx.MemInfo() }
func (p *driverPort) Close() error                            { return driver.Release(p.device) }

// atPlace converts an error of a port to an error for callers, which names the place.
func atPlace(place pyfeed.Place, err error) error {
	var fault *driver.Error
	var ours *pyfeed.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &ours), errors.Is(err, memory.ErrNoMemory):
		return err
	case errors.Is(err, driver.ErrCapturing):
		return pyfeed.Errorf(pyfeed.State, "%v: the stream is being captured into a graph: use and release tuples outside the capture", place)
	case errors.Is(err, driver.ErrForeign):
		return pyfeed.Errorf(pyfeed.Invalid, "stream: expected one of the primary context of %v: %v", place, err)
	case errors.As(err, &fault):
		e := pyfeed.Errorf(pyfeed.CUDAError, "%v: %v", place, err)
		e.CUDA = &pyfeed.CUDAFault{Code: fault.Code, Name: fault.Name}
		e.Cause = err
		return e
	}
	return pyfeed.Errorf(pyfeed.Unsupported, "%v: %v", place, err)
}

// lost reports whether the device is unusable after err.
func lost(err error) bool {
	var fault *driver.Error
	return errors.As(err, &fault) && (fault.Sticky() || fault.Gone())
}

// outOfMemory adds the requested memory to an error.
func outOfMemory(err error, what string, bytes int) error {
	return fmt.Errorf("%s of %d bytes: %w", what, bytes, err)
}
