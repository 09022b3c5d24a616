package cuda

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/cuda/driver"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/tests/fakecuda"
)

// A kind of device. Tests that use each run on the emulation and on the fake driver. With PYFEED_GPU_TESTS=1 they also
// run on the GPU of this machine, in a separate process, because a process can have only one driver.
type kind string

const (
	onEmulation kind = "emulation"
	onFake      kind = "fake"
	onGPU       kind = "gpu"
)

var kinds = []kind{onEmulation, onFake}

func TestMain(m *testing.M) {
	gpu := os.Getenv("PYFEED_GPU_TESTS")
	if gpu == "child" {
		kinds = []kind{onGPU}
	}
	code := m.Run()
	if gpu == "1" && code == 0 {
		child := exec.Command(os.Args[0], "-test.v", "-test.skip=^TestFake", "-test.timeout=300s")
		child.Env = append(os.Environ(), "PYFEED_GPU_TESTS=child")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Run(); err != nil {
			fmt.Println("on the GPU:", err)
			code = 1
		}
	}
	os.Exit(code)
}

var loaded sync.Once

// each runs a test on all kinds of devices and checks that it leaks nothing.
func each(t *testing.T, test func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			k.begin(t)
			test(t, k)
		})
	}
}

// begin makes devices of the kind serve all places until the test ends.
func (k kind) begin(t testing.TB) {
	t.Helper()
	switch k {
	case onFake:
		path := fakecuda.Build(t)
		loaded.Do(func() {
			fakecuda.Load(path)
			fakecuda.SetDevices(2)
			if err := driver.OpenFile(path); err != nil {
				t.Fatal(err)
			}
		})
		fakecuda.Reset()
	case onGPU:
		if err := driver.Open(); err != nil {
			t.Fatal(err)
		}
	}
	oldPort, oldEmulated, oldSegmentBytes := newPort, emulated, segmentBytes
	before, alive := memory.Count(), map[string]int64{}
	if k == onFake {
		for _, what := range counts {
			alive[what] = fakecuda.Count(what)
		}
	}
	emulated = func() bool { return k == onEmulation }
	newPort = k.port
	t.Cleanup(func() {
		newPort, emulated, segmentBytes = oldPort, oldEmulated, oldSegmentBytes
		expectNoLeaks(t, before)
		for what, n := range alive {
			if found := fakecuda.Count(what); found != n {
				t.Errorf("%s: expected %d in the end, found %d (%s)", what, n, found, fakecuda.Complaint())
			}
		}
	})
}

func (k kind) port(device int) (port, error) {
	if k == onEmulation {
		return newEmulation(), nil
	}
	return newDriverPort(device)
}

// device opens device 0. Its calls go through tap, unless that is nil. The test waits at its end until the device is
// closed.
func (k kind) device(t testing.TB, tap func(call string) error) *Device {
	t.Helper()
	p, err := k.port(0)
	if err != nil {
		t.Fatal(err)
	}
	if tap != nil {
		p = &interceptedPort{p, tap}
	}
	d, err := begin(pyfeed.CUDAPlace(0), p)
	if err != nil {
		t.Fatal(err)
	}
	return gone(t, d)
}

// gone makes the test wait at its end until the device is closed.
func gone(t testing.TB, d *Device) *Device {
	t.Cleanup(func() {
		if !t.Failed() { // a failed test may still hold references
			<-d.ended
		}
	})
	return d
}

// expectNoLeaks checks at the end of a test that all memory and devices are released.
func expectNoLeaks(t testing.TB, before memory.Stats) {
	t.Helper()
	if s := memory.Count(); s.Buffers != before.Buffers || s.Slabs != before.Slabs {
		t.Errorf("expected no leaked memory, found %+v at the end, %+v at the beginning", s, before)
	}
	devices.mu.Lock()
	defer devices.mu.Unlock()
	if n := len(devices.all); n != 0 {
		t.Errorf("expected no device in use, found %d", n)
	}
}

// Counts that must be the same after a test as before: 0, unless another test has failed.
var counts = []string{"contexts", "retains", "streams", "events", "device", "pinned", "registered", "pending", "captures", "hazards",
	"misuses", "leaks"}

// interceptedPort is a port whose calls go through a function of the test. The function can observe, delay, fail or
// drop them.
type interceptedPort struct {
	port
	intercept func(call string) error
}

// errDropped makes a call return success without being made.
var errDropped = errors.New("dropped")

func (p *interceptedPort) do(call string, f func() error) error {
	switch err := p.intercept(call); err {
	case nil:
		return f()
	case errDropped:
		return nil
	default:
		return err
	}
}

func (p *interceptedPort) Attach() error { return p.do("Attach", p.port.Attach) }
func (p *interceptedPort) Start() error  { return p.do("Start", p.port.Start) }

func (p *interceptedPort) Alloc(bytes int) (addr uint64, err error) {
	err = p.do("Alloc", func() error { addr, err = p.port.Alloc(bytes); return err })
	return addr, err
}

func (p *interceptedPort) Register(at unsafe.Pointer, bytes int) error {
	return p.do("Register", func() error { return p.port.Register(at, bytes) })
}

func (p *interceptedPort) NewEvent() (e event, err error) {
	err = p.do("NewEvent", func() error { e, err = p.port.NewEvent(); return err })
	return e, err
}

func (p *interceptedPort) Copy(to uint64, from unsafe.Pointer, bytes int, e event, timed bool) (took timer, err error) {
	err = p.do("Copy", func() error { took, err = p.port.Copy(to, from, bytes, e, timed); return err })
	return took, err
}

func (p *interceptedPort) Wait(e event) error {
	return p.do("Wait", func() error { return p.port.Wait(e) })
}
func (p *interceptedPort) Drain() error { return p.do("Drain", p.port.Drain) }
func (p *interceptedPort) Synchronize(e event) error {
	return p.do("Synchronize", func() error { return p.port.Synchronize(e) })
}
func (p *interceptedPort) Use(stream uint64, e event) error {
	return p.do("Use", func() error { return p.port.Use(stream, e) })
}
func (p *interceptedPort) Release(stream uint64, e event) error {
	return p.do("Release", func() error { return p.port.Release(stream, e) })
}
func (p *interceptedPort) Download(to unsafe.Pointer, from uint64, bytes int) error {
	return p.do("Download", func() error { return p.port.Download(to, from, bytes) })
}

var ctx = context.Background()

// take makes a tuple with one slot of n bytes in pinned memory. The seed determines the contents.
func take(t testing.TB, s *Stager, n int, seed uint64) *pyfeed.Tuple {
	t.Helper()
	tuple := pyfeed.NewTuple(1)
	shape(t, tuple, 0, pyfeed.Uint8, n)
	if err := s.Take(tuple); err != nil {
		t.Fatal(err)
	}
	fill(tuple.Slots[0].Data, seed)
	return tuple
}

// fill writes contents that differ for each seed.
func fill(b []byte, seed uint64) {
	x := seed*0x9E3779B97F4A7C15 + 1
	for i := range b[:min(len(b), 256)] {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		b[i] = byte(x)
	}
	for n := 256; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

func shape(t testing.TB, tuple *pyfeed.Tuple, slot int, dtype pyfeed.DType, n int) {
	t.Helper()
	s := &tuple.Slots[slot]
	s.DType = dtype
	if err := s.SetDims(pyfeed.Dims{int64(n)}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Measure(); err != nil {
		t.Fatal(err)
	}
}

// download returns the bytes of a slot.
func download(t testing.TB, tensor *pyfeed.LoDTensor) []byte {
	t.Helper()
	data := make([]byte, len(tensor.Data))
	if err := tensor.Resident().Download(data, tensor.Data); err != nil {
		t.Fatal(err)
	}
	return data
}

// send copies a tuple to the device and returns it when streams can wait for it.
func send(t testing.TB, s *Stager, tuple *pyfeed.Tuple) *pyfeed.Tuple {
	t.Helper()
	out, err := s.Put(ctx, tuple)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Next(ctx, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// resident returns the device memory of a tuple.
func resident(out *pyfeed.Tuple) memory.Resident { return out.Slots[0].Resident() }

func fine(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}
