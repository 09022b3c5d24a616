// Package cuda feeds the GPUs of CUDA's driver: pinned memory of the host's, copies to a device beside whatever it
// computes, and tuples there that wait for, and are waited for by, the streams of their consumers. It is
// pyfeed's Backend.
//
// A tuple goes from pinned memory to a buffer of the device's in one copy, on a stream of our own. Its consumer's
// stream waits for that copy by an event (Use), and the next copy into the buffer by another for the consumer (Release):
// nothing waits on the host.
package cuda

import (
	"sync"
	"unsafe"

	"github.com/pyfeed/pyfeed/cuda/driver"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

func init() { pyfeed.SetBackend(backend{}) }

// emulated says whether devices are their emulations in the host's memory.
var emulated = sync.OnceValue(func() bool { return driver.Getenv("PYFEED_CUDA") == "host" })

// Emulated says whether devices are their emulations, which the host can touch.
func Emulated() bool { return emulated() }

// emulatedDevices is how many devices a machine has whose devices are emulations.
const emulatedDevices = 8

// newPort is replaced by tests.
var newPort = func(device int) (port, error) {
	if emulated() {
		return newEmulation(), nil
	}
	return newDriverPort(device)
}

// Available opens the driver, and says whether there is a device to feed, or why not, in the driver's words.
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

// Count is how many devices there are.
func Count() (int, error) {
	if emulated() {
		return emulatedDevices, nil
	}
	if err := driver.Open(); err != nil {
		return 0, err
	}
	return driver.Count()
}

// DeviceInfo is what a device is.
type DeviceInfo struct {
	Name        string
	Free, Total int64 // bytes of its memory
}

// Info asks the driver.
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
			return DeviceInfo{}, about(place, err)
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

// backend is pyfeed.Backend.
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
		_ = d.port.Unregister(at) // an error says that the device is gone
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

// stream is pyfeed.Stream.
type stream struct {
	device *Device
	number uint64
}

func (s *stream) Number() uint64 { return s.number }

func (s *stream) Close() {
	s.device.keepStream(s.number)
	s.device.drop()
}
