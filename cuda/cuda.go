// Package cuda delivers tuples to GPUs through the CUDA driver. It provides pinned host memory, copies to a device that
// run beside the device's computation, and the synchronization of device tuples with the streams of their consumers. It
// implements pyfeed.Backend.
//
// A tuple is copied from pinned memory to a device buffer in one copy, on a stream of this package. The consumer's
// stream waits for that copy through an event (Use). The next copy into the buffer waits for the consumer through
// another event (Release). The host does not wait.
package cuda

import (
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/cuda/driver"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

func init() { pyfeed.SetBackend(backend{}) }

// emulated reports whether devices are emulated in host memory.
var emulated = sync.OnceValue(func() bool { return driver.Getenv("PYFEED_CUDA") == "host" })

// Emulated reports whether devices are emulated in host memory. The host can then access their tuples.
func Emulated() bool { return emulated() }

// emulatedDevices is the number of emulated devices.
const emulatedDevices = 8

// newPort opens a port. Tests replace it.
var newPort = func(device int) (port, error) {
	if emulated() {
		return newEmulation(), nil
	}
	return newDriverPort(device)
}

// Available opens the driver and reports whether there is a device. If there is none, the string is the reason, as
// given by the driver.
func Available() (bool, string) {
	n, err := Count()
	switch {
	case err != nil:
		return false, err.Error()
	case n == 0:
		return false, "the CUDA driver has no device"
	}
	return true, ""
}

// Count returns the number of devices.
func Count() (int, error) {
	if emulated() {
		return emulatedDevices, nil
	}
	if err := driver.Open(); err != nil {
		return 0, err
	}
	return driver.Count()
}

// DeviceInfo describes a device.
type DeviceInfo struct {
	Name        string
	Free, Total int64 // bytes of its memory
}

// Info returns the name and the memory of a device.
func Info(device int) (DeviceInfo, error) {
	place := pyfeed.CUDAPlace(device)
	if err := check(place); err != nil {
		return DeviceInfo{}, err
	}
	d, err := open(place)
	if err != nil {
		return DeviceInfo{}, err
	}
	defer d.drop()
	info := DeviceInfo{Name: "host emulation"}
	if !emulated() {
		if info.Name, err = driver.Name(device); err != nil {
			return DeviceInfo{}, atPlace(place, err)
		}
	}
	info.Free, info.Total, err = d.port.MemInfo()
	return info, d.failed(err)
}

func check(p pyfeed.Place) error {
	n, err := Count()
	if err != nil {
		return pyfeed.Errorf(pyfeed.Unsupported, "%v: %v", p, err)
	}
	if n == 0 {
		return pyfeed.Errorf(pyfeed.Unsupported, "%v: the CUDA driver has no device", p)
	}
	if p.Device < 0 || int(p.Device) >= n {
		return pyfeed.Errorf(pyfeed.Invalid, "%v: expected a device from 0 to %d", p, n-1)
	}
	return nil
}

// backend implements pyfeed.Backend.
type backend struct{}

func (backend) Check(p pyfeed.Place) error { return check(p) }

func (backend) Pool(p pyfeed.Place, purpose memory.Purpose) (*memory.Pool, error) {
	d, err := open(p)
	if err != nil {
		return nil, err
	}
	return memory.NewPinnedPool(newPinned(d), purpose), nil
}

func (backend) Register(p pyfeed.Place, data []byte) (func(), error) {
	d, err := open(p)
	if err != nil {
		return nil, err
	}
	at := unsafe.Pointer(unsafe.SliceData(data))
	if err := d.port.Register(at, len(data)); err != nil {
		defer d.drop()
		return nil, d.failed(outOfMemory(err, "pinned memory", len(data)))
	}
	return func() {
		_ = d.port.Unregister(at) // it fails only if the device is gone
		d.drop()
	}, nil
}

func (backend) NewStager(p pyfeed.Place, depth int) (pyfeed.Stager, error) {
	d, err := open(p)
	if err != nil {
		return nil, err
	}
	return newStager(d, depth), nil
}

func (backend) NewStream(p pyfeed.Place) (pyfeed.Stream, error) {
	d, err := open(p)
	if err != nil {
		return nil, err
	}
	number, err := d.newStream()
	if err != nil {
		defer d.drop()
		return nil, d.failed(err)
	}
	return &stream{d, number}, nil
}

// stream implements pyfeed.Stream.
type stream struct {
	device *Device
	number uint64
}

func (s *stream) Number() uint64 { return s.number }

func (s *stream) Close() {
	s.device.keepStream(s.number)
	s.device.drop()
}
