package driver_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"gorgonia.org/cu"

	"github.com/pyfeed/pyfeed/cuda/driver"
	"github.com/pyfeed/pyfeed/tests/fakecuda"
)

// The tests from here on use the fake driver. It has two devices, and reports misuse where a real driver would crash.

var open sync.Once

// library builds the fake driver and returns its path.
func library(t *testing.T) string { return fakecuda.Build(t) }

// device returns a context for a test, and checks at the end of the test that everything is released.
func device(t *testing.T, number int) driver.Context {
	t.Helper()
	path := library(t)
	open.Do(func() {
		fakecuda.Load(path)
		fakecuda.SetDevices(2)
		fine(t, driver.OpenFile(path))
	})
	fakecuda.Reset()
	c, err := driver.Retain(number)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		fakecuda.Reset()
		if err := driver.Release(number); err != nil {
			t.Error(err)
		}
		for _, what := range []string{"streams", "events", "device", "pinned", "registered", "hazards", "misuses"} {
			if n := fakecuda.Count(what); n != 0 {
				t.Errorf("%s: expected 0 in the end, found %d (%s)", what, n, fakecuda.Complaint())
			}
		}
	})
	return c
}

func fine(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func success(t *testing.T, code int) {
	t.Helper()
	if code != 0 {
		t.Fatalf("the fake driver returned %d", code)
	}
}

// consumer makes a stream as of a training program.
func consumer(t *testing.T, device int, nonBlocking bool) uint64 {
	t.Helper()
	s, code := fakecuda.NewStream(device, nonBlocking)
	success(t, code)
	t.Cleanup(func() { success(t, fakecuda.DestroyStream(s)) })
	return s
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// attached calls f on a new thread that is attached to the context.
func attached(t *testing.T, c driver.Context, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if err := c.Attach(); err != nil {
			t.Error(err)
			return
		}
		f()
		if err := driver.Detach(); err != nil {
			t.Error(err)
		}
	}()
	<-done
}

func TestDevices(t *testing.T) {
	c := device(t, 0)
	n := must(driver.Count())(t)
	if n != 2 {
		t.Errorf("expected 2 devices, found %d", n)
	}
	if name := must(driver.Name(1))(t); name == "" || strings.ContainsRune(name, 0) {
		t.Errorf("wrong device name %q", name)
	}
	if again := must(driver.Retain(0))(t); again != c {
		t.Errorf("expected the shared context %#x, found %#x", c, again)
	}
	fine(t, driver.Release(0))
	for _, err := range []error{second(driver.Name(2)), second(driver.Retain(-1))} {
		var e *driver.Error
		if !errors.As(err, &e) || e.Name != "CUDA_ERROR_INVALID_DEVICE" || e.Call != "cuDeviceGet" {
			t.Errorf("a missing device: expected an error, found %v", err)
		}
	}
	if err := driver.Release(2); err == nil {
		t.Error("releasing a missing device: expected an error")
	}
}

func TestMemory(t *testing.T) {
	c := device(t, 0)
	free, total, err := c.MemInfo()
	fine(t, err)
	a := must(c.Alloc(64 << 20))(t)
	less, again, err := c.MemInfo()
	fine(t, err)
	if free-less < 64<<20 || again != total || total < free {
		t.Errorf("of %d bytes, expected the free %d to shrink by 64 MiB, found %d of %d", total, free, less, again)
	}
	fine(t, c.Free(a))

	host := make([]byte, 1<<20)
	p := unsafe.Pointer(&host[0])
	var pin runtime.Pinner
	pin.Pin(p)
	defer pin.Unpin()
	fine(t, c.Register(p, len(host)))
	var e *driver.Error
	if err := c.Register(p, len(host)); !errors.As(err, &e) || e.Code != 712 || e.Sticky() {
		t.Errorf("registered twice: expected an error, found %v", err)
	}
	fine(t, c.Unregister(p))
}

func TestErrorsHaveTheDriversWords(t *testing.T) {
	c := device(t, 0)
	_, err := c.Alloc(1 << 50)
	var e *driver.Error
	if !errors.As(err, &e) || !e.OutOfMemory() || e.Sticky() {
		t.Fatalf("wrong error: %#v", err)
	}
	expect(t, "an error", "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory", err.Error())

	fakecuda.Fail("cuMemAlloc_v2", 1, 4711, false)
	_, err = c.Alloc(1)
	expect(t, "an error of a later driver's", "cuMemAlloc: CUDA error 4711, which this driver has no name for", err.Error())

	fakecuda.Fail("cuDeviceGetCount", 1, 46, false)
	_, err = driver.Count()
	expect(t, "an error by way of cu", "cuDeviceGetCount: CUDA_ERROR_DEVICE_UNAVAILABLE (46): device unavailable", err.Error())
}

// Not all codes between the sticky ones are sticky: cuda.h documents for each what it means for the process.
func TestErrorKinds(t *testing.T) {
	sticky := []int{46, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810, 911}
	capture := []int{900, 901, 902, 903, 904, 905, 906, 907}
	for code := range 1000 {
		e := &driver.Error{Code: code}
		for what, is := range map[string][2]bool{
			"OutOfMemory": {e.OutOfMemory(), code == 2},
			"NotReady":    {e.NotReady(), code == 600},
			"Gone":        {e.Gone(), code == 4},
			"Sticky":      {e.Sticky(), slices.Contains(sticky, code)},
			"Capture":     {e.Capture(), slices.Contains(capture, code)},
		} {
			if is[0] != is[1] {
				t.Errorf("%d: %s: expected %v, found %v", code, what, is[1], is[0])
			}
		}
	}
}

func TestCopies(t *testing.T) {
	c := device(t, 0)
	const n = 1 << 20
	p := must(c.HostAlloc(n))(t)
	from := unsafe.Slice((*byte)(p), n)
	for i := range from {
		from[i] = byte(i * 7)
	}
	a := must(c.Alloc(2 * n))(t)
	s := must(c.NewStream(true))(t)
	e := must(c.NewEvent(false))(t)
	attached(t, c, func() {
		fakecuda.Pause(uint64(s))
		if err := errors.Join(driver.Copy(a, p, n, s), driver.CopyAndRecord(a+n, p, n, s, e)); err != nil {
			t.Error(err)
		}
		if done, err := driver.Query(e); done || err != nil {
			t.Errorf("a paused copy: expected it not to be done, found %v, %v", done, err)
		}
		fakecuda.Resume(uint64(s))
		if err := driver.Synchronize(e); err != nil {
			t.Error(err)
		}
		if done, err := driver.Query(e); !done || err != nil {
			t.Errorf("a copy that was waited for: expected it to be done, found %v, %v", done, err)
		}
	})
	to := make([]byte, 2*n)
	fine(t, c.Download(unsafe.Pointer(&to[0]), a, 2*n))
	if !bytes.Equal(to[:n], from) || !bytes.Equal(to[n:], from) {
		t.Error("the downloaded bytes differ from those sent")
	}
	fine(t, c.DestroyEvent(e), c.DestroyStream(s), c.Free(a), c.HostFree(p))
}

// Download waits also for a copy into pinned memory, which the driver does not wait for.
func TestDownloadsAreWaitedFor(t *testing.T) {
	c := device(t, 0)
	const n = 4096
	a, p := must(c.Alloc(n))(t), must(c.HostAlloc(n))(t)
	fakecuda.SetBandwidth(0, 20*time.Millisecond)
	fine(t, c.Download(p, a, n))
	// The fake driver fills new device memory with 0xA5.
	if to := unsafe.Slice((*byte)(p), n); to[0] != 0xA5 || to[n-1] != 0xA5 {
		t.Errorf("Download returned before the end of the copy: found %#x and %#x", to[0], to[n-1])
	}
	fine(t, c.Free(a), c.HostFree(p))
}

func TestStreamsWaitForEvents(t *testing.T) {
	c := device(t, 0)
	first, then := must(c.NewStream(false))(t), must(c.NewStream(true))(t)
	begin, end := must(c.NewEvent(true))(t), must(c.NewEvent(true))(t)
	attached(t, c, func() {
		fakecuda.Pause(uint64(first))
		if err := errors.Join(driver.Record(begin, first), driver.WaitEvent(then, begin), driver.Record(end, then)); err != nil {
			t.Error(err)
		}
		if done, err := driver.Query(end); done || err != nil {
			t.Errorf("an event on a paused stream: expected it not to be done, found %v, %v", done, err)
		}
		fakecuda.Resume(uint64(first))
		if err := driver.Synchronize(end); err != nil {
			t.Error(err)
		}
		if ms, err := driver.Elapsed(begin, end); ms < 0 || err != nil {
			t.Errorf("wrong time between two events: %v ms, %v", ms, err)
		}
	})
	fine(t, c.SynchronizeStream(first), c.SynchronizeStream(then))
	fine(t, c.DestroyEvent(begin), c.DestroyEvent(end), c.DestroyStream(first), c.DestroyStream(then))
}

// everything makes each call that any thread may make once, and undoes all of them.
func everything(c driver.Context, user uint64) (err error) {
	undo := func(f func() error) {
		problem := f()
		var e *driver.Error
		if errors.As(problem, &e) && e.Call == "cuCtxPushCurrent" { // the call was not made
			err = errors.Join(err, problem)
			problem = f()
		}
		err = errors.Join(err, problem)
	}
	if _, _, err := c.MemInfo(); err != nil {
		return err
	}
	a, err := c.Alloc(4096)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.Free(a) })
	p, err := c.HostAlloc(4096)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.HostFree(p) })
	page := unsafe.Pointer(&pages[0])
	if err := c.Register(page, len(pages)); err != nil {
		return err
	}
	defer undo(func() error { return c.Unregister(page) })
	s, err := c.NewStream(true)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.DestroyStream(s) })
	e, err := c.NewEvent(false)
	if err != nil {
		return err
	}
	defer undo(func() error { return c.DestroyEvent(e) })
	for _, stream := range []uint64{0, 1, 2, user} {
		if err := errors.Join(c.Release(stream, e), c.Use(stream, e)); err != nil {
			return err
		}
	}
	return errors.Join(c.SynchronizeStream(s), c.Download(p, a, 4096))
}

// pages is memory to register; Go's collector does not move it.
var pages [8192]byte

// current returns the context of the calling thread.
func current(t *testing.T) driver.Context {
	t.Helper()
	c := must(cu.CurrentContext())(t)
	return *(*driver.Context)(unsafe.Pointer(&c))
}

func TestGuestsLeaveThreadsAsTheyWere(t *testing.T) {
	c, other := device(t, 0), device(t, 1)
	user := consumer(t, 0, true)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for _, before := range []driver.Context{0, other, c} {
		fine(t, cu.SetCurrentContext(*(*cu.CUContext)(unsafe.Pointer(&before))))
		fine(t, everything(c, user))
		if after := current(t); after != before {
			t.Errorf("expected the thread's context %#x to be restored, found %#x", before, after)
		}
	}
	fine(t, cu.SetCurrentContext(cu.CUContext{}))
}

// Each driver call of everything fails once. What was created is released, and the error is returned. Only failures of
// calls that restore the thread, or of calls that a release can do without, return no error.
func TestEveryCallMayFail(t *testing.T) {
	c := device(t, 0)
	user := consumer(t, 0, true)
	attempt := func(nth int) (err error) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			runtime.LockOSThread() // the thread's state may not have been restored: it ends with the goroutine
			fakecuda.Fail("*", nth, 999, false)
			err = everything(c, user)
		}()
		<-done
		return err
	}
	silent := 0
	for nth := 1; ; nth++ {
		fakecuda.Reset()
		err := attempt(nth)
		if fakecuda.Count("failures") == 0 {
			fine(t, err)
			if silent == 0 || silent == nth-1 {
				t.Errorf("too many failures without an error: of %d failures, %d", nth-1, silent)
			}
			break
		}
		var e *driver.Error
		switch {
		case err == nil:
			silent++
		case !errors.As(err, &e) || e.Code != 999 || e.Name != "CUDA_ERROR_UNKNOWN":
			t.Errorf("call %d: wrong error %v", nth, err)
		}
		if n := fakecuda.Count("device") + fakecuda.Count("pinned") + fakecuda.Count("registered"); n != 0 {
			t.Fatalf("call %d, after %v: %d blocks of memory were not freed", nth, err, n)
		}
	}
}

// While a graph is captured in global mode, calls on any thread would be refused and end the capture. In relaxed mode
// they do not.
func TestCapturesAreLeftAlone(t *testing.T) {
	c := device(t, 0)
	captured, user := consumer(t, 0, true), consumer(t, 0, true)
	e := must(c.NewEvent(false))(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	success(t, fakecuda.BeginCapture(captured, fakecuda.Global))
	fine(t, everything(c, user))
	for _, f := range []func(uint64, driver.Event) error{c.Use, c.Release} {
		before := fakecuda.Count("cuStreamWaitEvent") + fakecuda.Count("cuEventRecord")
		if err := f(captured, e); !errors.Is(err, driver.ErrCapturing) {
			t.Errorf("a stream that is being captured: expected ErrCapturing, found %v", err)
		}
		if after := fakecuda.Count("cuStreamWaitEvent") + fakecuda.Count("cuEventRecord"); after != before {
			t.Error("a stream that is being captured was changed")
		}
	}
	success(t, fakecuda.EndCapture(captured))

	// Check that a call without relaxed mode does break the capture. This also shows that the thread's mode was
	// restored.
	success(t, fakecuda.BeginCapture(captured, fakecuda.Global))
	fine(t, cu.SetCurrentContext(*(*cu.CUContext)(unsafe.Pointer(&c))))
	if _, err := cu.MemAlloc(4096); err == nil {
		t.Error("an allocation in global mode: expected an error")
	}
	if code := fakecuda.EndCapture(captured); code == 0 {
		t.Error("after an allocation in global mode: expected the capture to be broken")
	}
	fine(t, cu.SetCurrentContext(cu.CUContext{}), c.DestroyEvent(e))
}

// The legacy default stream waits for all blocking streams, including the captured one. Our calls must not use it.
func TestLegacyStreamDuringCapture(t *testing.T) {
	c := device(t, 0)
	a := must(c.Alloc(16))(t)
	captured := consumer(t, 0, false)
	e := must(c.NewEvent(false))(t)
	success(t, fakecuda.BeginCapture(captured, fakecuda.Global))
	for _, stream := range []uint64{0, 1} {
		if err := errors.Join(c.Use(stream, e)); !errors.Is(err, driver.ErrCapturing) {
			t.Errorf("stream %d: found %v", stream, err)
		}
		if err := errors.Join(c.Release(stream, e)); !errors.Is(err, driver.ErrCapturing) {
			t.Errorf("stream %d: found %v", stream, err)
		}
	}
	var to [16]byte
	fine(t, c.Download(unsafe.Pointer(&to), a, len(to)))
	success(t, fakecuda.EndCapture(captured))
	fine(t, c.DestroyEvent(e), c.Free(a))
}

func TestForeignStreams(t *testing.T) {
	c, other := device(t, 0), device(t, 1)
	theirs, ours := consumer(t, 1, true), consumer(t, 0, true)
	e := must(c.NewEvent(false))(t)
	for range 2 {
		// Release comes first: the cache may still know the handle as a stream of this context.
		if err := c.Release(theirs, e); !errors.Is(err, driver.ErrForeign) {
			t.Errorf("expected ErrForeign, found %v", err)
		}
		if err := c.Use(theirs, e); !errors.Is(err, driver.ErrForeign) {
			t.Errorf("expected ErrForeign, found %v", err)
		}
		fine(t, c.Use(ours, e), c.Release(ours, e))
	}
	if n := fakecuda.Count("cuStreamWaitEvent"); n != 2 {
		t.Errorf("expected 2 waiting streams, found %d", n)
	}
	e2 := must(other.NewEvent(false))(t)
	fine(t, other.Use(theirs, e2), c.DestroyEvent(e), other.DestroyEvent(e2))
	if err := c.Use(theirs, 0); !strings.Contains(err.Error(), fmt.Sprintf("stream %#x: ", theirs)) {
		t.Errorf("expected an error with the stream's number, found %v", err)
	}
}

// A thread that releases a tuple may have no context.
func TestConsumersWithoutAContext(t *testing.T) {
	c := device(t, 0)
	user := consumer(t, 0, true)
	e := must(c.NewEvent(false))(t)
	for call, f := range map[string]func() error{
		"cuStreamIsCapturing": func() error { return c.Use(user, e) },
		"cuStreamWaitEvent":   func() error { return c.Use(user, e) },
		"cuEventRecord":       func() error { return c.Release(user, e) },
	} {
		fakecuda.Fail(call, 1, 201, false)
		fine(t, f())
		if n := fakecuda.Count("failures"); n == 0 {
			t.Errorf("%s: expected an error", call)
		}
	}
	fine(t, c.DestroyEvent(e))
}

// Counts the driver calls that a batch costs its consumer.
func TestCallsOfAConsumer(t *testing.T) {
	c := device(t, 0)
	user := consumer(t, 0, true)
	e := must(c.NewEvent(false))(t)
	fine(t, c.Use(user, e)) // on the first use, the driver is asked for the stream's context
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	calls := func(f func() error) int64 {
		before := fakecuda.Count("calls")
		fine(t, f())
		return fakecuda.Count("calls") - before
	}
	for _, x := range []struct {
		what     string
		expected int64
		f        func() error
	}{
		{"use of a stream", 2, func() error { return c.Use(user, e) }},
		{"release", 2, func() error { return c.Release(user, e) }},
		{"use of the legacy stream on a thread without a context", 5, func() error { return c.Use(0, e) }},
	} {
		if n := calls(x.f); n != x.expected {
			t.Errorf("%s: expected %d calls of the driver, found %d", x.what, x.expected, n)
		}
	}
	attached(t, c, func() {
		if n := calls(func() error { return c.Use(1, e) }); n != 3 {
			t.Errorf("use of the legacy stream where the context is current: expected 3 calls, found %d", n)
		}
	})
	fine(t, c.SynchronizeStream(driver.Stream(user)), c.DestroyEvent(e))
}

func TestNothingIsAllocated(t *testing.T) {
	c := device(t, 0)
	user := consumer(t, 0, true)
	e := must(c.NewEvent(false))(t)
	if n := testing.AllocsPerRun(100, func() { fine(t, c.Use(user, e), c.Release(user, e)) }); n != 0 {
		t.Errorf("use and release: expected no allocation, found %v", n)
	}
	fine(t, c.SynchronizeStream(driver.Stream(user)), c.DestroyEvent(e))
}

// Download returns after its copy has ended even if the driver refuses to wait, unless it refuses every time.
func TestDownloadWaitsThatFail(t *testing.T) {
	c := device(t, 0)
	a := must(c.Alloc(4096))(t)
	var to [4096]byte
	fakecuda.Fail("cuStreamSynchronize", 1, 999, false)
	fakecuda.Fail("cuStreamSynchronize", 1, 2, false)
	fine(t, c.Download(unsafe.Pointer(&to), a, len(to)))
	if n := fakecuda.Calls("cuStreamSynchronize"); n != 3 {
		t.Errorf("expected 3 waits, found %d", n)
	}
	fakecuda.FailFrom("cuStreamSynchronize", 1, 999)
	var e *driver.Error
	if err := c.Download(unsafe.Pointer(&to), a, len(to)); !errors.As(err, &e) || e.Code != 999 {
		t.Errorf("expected the driver's code 999, found %v", err)
	}
	fakecuda.Reset()
	fine(t, c.Free(a))
}

func TestLostDevice(t *testing.T) {
	c := device(t, 0)
	a := must(c.Alloc(4096))(t)
	fakecuda.Break(0, 719)
	var e *driver.Error
	if _, err := c.Alloc(1); !errors.As(err, &e) || !e.Sticky() || e.Name != "CUDA_ERROR_LAUNCH_FAILED" {
		t.Errorf("wrong error: %v", err)
	}
	fakecuda.Reset()
	fine(t, c.Free(a))
}

func TestDriverThatIsGone(t *testing.T) {
	c := device(t, 0)
	fakecuda.Deinitialize(true)
	_, err := c.Alloc(1)
	fakecuda.Deinitialize(false)
	var e *driver.Error
	if !errors.As(err, &e) || !e.Gone() {
		t.Errorf("wrong error: %v", err)
	}
}

func TestManyThreads(t *testing.T) {
	c := device(t, 0)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 50 {
				a, err := c.Alloc(4096)
				s, err2 := c.NewStream(false)
				e, err3 := c.NewEvent(false)
				if err := errors.Join(err, err2, err3); err != nil {
					t.Error(err)
					return
				}
				var to [64]byte
				if err := errors.Join(c.Release(uint64(s), e), c.Use(1, e), c.Download(unsafe.Pointer(&to), a, len(to)), c.SynchronizeStream(s),
					c.DestroyStream(s), c.DestroyEvent(e), c.Free(a)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// The error of cuInit is the reason, and cuInit is called only once. A new process is needed to test that.
func TestNoDevice(t *testing.T) {
	expect(t, "no device", "cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected\n100 CUDA_ERROR_NO_DEVICE no CUDA-capable device is detected cuInit\n",
		child(t, "cause", library(t), "FAKECUDA_DEVICES=0"))
}

func TestOpenFromManyThreads(t *testing.T) {
	expect(t, "many threads", "", child(t, "threads", "", "LD_LIBRARY_PATH="+filepath.Dir(library(t))))
}

func TestOneDriverAProcess(t *testing.T) {
	path := library(t)
	expect(t, "one after the other",
		path+".not.there: cannot open shared object file: No such file or directory\n<nil>\n<nil>\n1 <nil>\n<nil>\n"+
			"opening "+path+".not.there: the driver "+path+" is already open, and a process can have only one\n", child(t, "then", path))
}
