package cuda

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/tests/fakecuda"
)

// The fake driver reports a hazard when operations on the same memory are not ordered. Tests can pause its streams and
// copies.

// testTimeout limits waits for events that should happen at once.
const testTimeout = 30 * time.Second

// fakes makes a Stager to device 0 of the fake driver and a consumer's stream on that device.
func fakes(t testing.TB, depth int, tap func(string) error) (*Stager, uint64) {
	t.Helper()
	onFake.begin(t)
	return newStager(onFake.device(t, tap), depth), consumer(t, 0, true)
}

// consumer makes a stream as of a training program.
func consumer(t testing.TB, device int, nonBlocking bool) uint64 {
	t.Helper()
	stream, code := fakecuda.NewStream(device, nonBlocking)
	success(t, code)
	t.Cleanup(func() { fakecuda.DestroyStream(stream) })
	return stream
}

func success(t testing.TB, code int) {
	t.Helper()
	if code != 0 {
		t.Fatalf("the fake driver returned %d", code)
	}
}

// at returns the device memory of a slot.
func at(s *pyfeed.LoDTensor) fakecuda.Range {
	return fakecuda.Range{Address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s.Data)))), Bytes: uint64(len(s.Data))}
}

// reads submits a kernel that reads a tuple.
func reads(t testing.TB, stream uint64, out *pyfeed.Tuple) {
	t.Helper()
	success(t, fakecuda.Kernel(stream, 0, at(&out.Slots[0]), fakecuda.Range{}, 0))
}

// fails waits until the copy of a tuple has failed or the condition holds.
func fails(out *pyfeed.Tuple, or func() bool) bool {
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); runtime.Gosched() {
		if bufferOf(out).state.Load() == failed || or() {
			return true
		}
	}
	return false
}

func never() bool { return false }

// hazards returns the number of hazards, and resets the fake driver's counts and injected failures.
func hazards() int64 {
	defer fakecuda.Reset()
	return fakecuda.Count("hazards")
}

// without runs a test with all calls, which must give no hazard, and once without each of the given calls, which must
// give one.
func without(t *testing.T, calls []string, test func(t *testing.T, dropped string)) {
	for _, dropped := range append([]string{""}, calls...) {
		t.Run("without "+dropped, func(t *testing.T) {
			test(t, dropped)
			if n := hazards(); (n == 0) != (dropped == "") {
				t.Errorf("found %d hazards", n)
			}
		})
	}
}

// expectFault checks that an error is that of the driver, and names the place.
func expectFault(t testing.TB, what string, err error, code int, name string) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != pyfeed.CUDAError || e.CUDA == nil || e.CUDA.Code != code || e.CUDA.Name != name ||
		!strings.Contains(err.Error(), "CUDAPlace(0)") {
		t.Errorf("%s: expected %s of CUDAPlace(0), found %v", what, name, err)
	}
}

func expectKind(t testing.TB, what string, err error, kind pyfeed.Kind, words string) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: expected %q, found %v", what, words, err)
	}
}

// Tuples of 1 byte to several segments and of one to three slots: a kernel on the consumer's stream finds the bytes
// that were sent.
func TestFakeOrderAndContent(t *testing.T) {
	s, stream := fakes(t, 2, nil)
	defer s.Close()
	recording, err := trace.Start(0) // makes copies timed
	fine(t, err)
	defer recording.Stop()
	r := rand.New(rand.NewPCG(5, 5))
	type check struct {
		sum      fakecuda.Hashed
		expected uint64
	}
	var checks []check
	for i := range 300 {
		if i == 150 {
			recording.Stop()
		}
		in := pyfeed.NewTuple(1 + i%3)
		for k := range in.Slots {
			n := 1 + r.IntN(1<<r.IntN(18))
			if i%100 == 99 && k == 0 {
				n = 2*segmentBytes + r.IntN(1000)
			}
			shape(t, in, k, pyfeed.Uint8, n)
		}
		fine(t, s.Take(in))
		var expected []uint64
		for k := range in.Slots {
			fill(in.Slots[k].Data, uint64(10*i+k))
			expected = append(expected, fakecuda.Hash(in.Slots[k].Data))
		}
		out := send(t, s, in)
		fine(t, resident(out).Use(stream))
		for k := range out.Slots {
			m := at(&out.Slots[k])
			sum, code := fakecuda.Sum(stream, m.Address, m.Bytes)
			success(t, code)
			checks = append(checks, check{sum, expected[k]})
		}
		out.Release()
	}
	for i, c := range checks {
		if found, code := c.sum.Value(); code != 0 || found != c.expected {
			t.Fatalf("slot %d: expected the hash %#x, found %#x, code %d", i, c.expected, found, code)
		}
	}
	if n := fakecuda.Count("pageable_copies"); n != 0 {
		t.Errorf("expected copies from pinned memory, found %d others", n)
	}
}

// A buffer is reused while the kernel that reads it has not begun. Leaving out any of the three waits gives a hazard.
func TestFakeNoSlotIsReusedTooEarly(t *testing.T) {
	without(t, []string{"Wait", "Use", "Release"}, func(t *testing.T, dropped string) {
		s, stream := fakes(t, 1, func(call string) error {
			if call == dropped {
				return errDropped
			}
			return nil
		})
		for range 4 {
			success(t, fakecuda.Pause(stream))
			for i := range s.depth + 2 { // use each buffer once
				success(t, fakecuda.PauseCopies(0)) // only Use orders the kernel after the copy
				out := send(t, s, take(t, s, 1000, uint64(i)))
				fine(t, resident(out).Use(stream))
				reads(t, stream, out)
				success(t, fakecuda.ResumeCopies(0))
				// Otherwise the next copy would wait for this one while copies are paused.
				fine(t, resident(out).Synchronize(ctx))
				out.Release()
			}
			out := send(t, s, take(t, s, 1000, 7)) // its copy waits for the first kernel
			success(t, fakecuda.Resume(stream))
			fine(t, resident(out).Synchronize(ctx))
			out.Release()
			// Otherwise the copies of the next round would wait for the paused stream.
			success(t, fakecuda.Synchronize(stream))
		}
		s.Close()
	})
}

// A tuple is copied although the kernel that reads the previous tuple has not begun, even after that tuple was
// released.
func TestFakeCopiesOverlapKernels(t *testing.T) {
	for _, depth := range []int{1, pyfeed.Unlimited} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) {
			s, stream := fakes(t, depth, nil)
			defer s.Close()
			success(t, fakecuda.Pause(stream))
			for i := range int64(3) {
				out := send(t, s, take(t, s, 1000, uint64(i)))
				fine(t, resident(out).Use(stream))
				reads(t, stream, out)
				out.Release()
				if !fakecuda.Await("copies_done", i+1, testTimeout) {
					t.Errorf("tuple %d: expected the copy to finish, but it waits for a kernel", i)
				}
			}
			success(t, fakecuda.Resume(stream))
		})
	}
}

// A buffer that is given larger memory keeps the old memory until the kernel that reads it is done.
func TestFakeSlotsThatGrow(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	for i := range 12 {
		n := 100 + i/3*(3<<20)
		out := send(t, s, take(t, s, n, uint64(i)))
		fine(t, resident(out).Use(stream))
		reads(t, stream, out)
		fine(t, resident(out).Release(stream))
		out.Release()
	}
}

// Pinned memory is reused only after the copy from it is done. Without the wait for the copy, the fake driver reports a
// hazard.
func TestFakePinnedMemoryIsReusedOnlyAfterItsCopy(t *testing.T) {
	without(t, []string{"Synchronize"}, func(t *testing.T, dropped string) {
		s, _ := fakes(t, 2, func(call string) error {
			if call == dropped {
				return errDropped
			}
			return nil
		})
		success(t, fakecuda.PauseCopies(0))
		first := take(t, s, 1000, 1)
		from := unsafe.SliceData(first.Slots[0].Data)
		expected := bytes.Clone(first.Slots[0].Data)
		out := send(t, s, first)
		if dropped != "" {
			fine(t, resident(out).Synchronize(ctx)) // succeeds, because the wait is dropped
		}
		second := take(t, s, 1000, 2)
		if same := unsafe.SliceData(second.Slots[0].Data) == from; same != (dropped != "") {
			t.Errorf("without %q: wrong reuse of memory before the copy is done: %v", dropped, same)
		}
		success(t, fakecuda.ResumeCopies(0))
		if dropped == "" {
			if found := download(t, &out.Slots[0]); !bytes.Equal(found, expected) {
				t.Error("the downloaded values differ from those sent")
			}
			third := take(t, s, 1000, 3)
			if unsafe.SliceData(third.Slots[0].Data) != from {
				t.Error("expected memory to be reused after its copy")
			}
			third.Release()
		} else {
			success(t, fakecuda.Synchronize(fakecuda.Streams()[0])) // the copy stream
		}
		out.Release()
		second.Release()
		s.Close()
	})
}

// The wait for a copy fails. That does not mean that the copy is done.
func TestFakeWaitsThatFail(t *testing.T) {
	s, _ := fakes(t, 2, nil)
	defer s.Close()
	success(t, fakecuda.PauseCopies(0))
	fakecuda.Fail("cuEventSynchronize", 1, 999, false)
	first := take(t, s, 1000, 1)
	from, expected := unsafe.SliceData(first.Slots[0].Data), bytes.Clone(first.Slots[0].Data)
	out := send(t, s, first)
	if !fakecuda.Await("cuStreamSynchronize", 1, testTimeout) {
		t.Error("expected the host to wait for the copy stream")
	}
	second := take(t, s, 1000, 2)
	if unsafe.SliceData(second.Slots[0].Data) == from {
		t.Error("memory was reused while it was being copied")
	}
	success(t, fakecuda.ResumeCopies(0))
	if found := download(t, &out.Slots[0]); !bytes.Equal(found, expected) {
		t.Error("the downloaded values differ from those sent")
	}
	out.Release()
	second.Release()
}

// The driver refuses every wait while a tuple is copied. The device is lost, and the memory is not reused until a wait
// succeeds. Closing the Stager tries a wait again.
func TestFakeWaitsThatAlwaysFail(t *testing.T) {
	for _, recovers := range []bool{true, false} {
		t.Run(fmt.Sprint("recovers ", recovers), func(t *testing.T) {
			s, _ := fakes(t, 2, nil)
			success(t, fakecuda.PauseCopies(0))
			fakecuda.Fail("cuEventSynchronize", 1, 999, false)
			fakecuda.FailFrom("cuStreamSynchronize", 1, 999)
			first := take(t, s, 1000, 1)
			from := unsafe.SliceData(first.Slots[0].Data)
			out, err := s.Put(ctx, first)
			fine(t, err)
			expectFault(t, "Synchronize", resident(out).Synchronize(ctx), 999, "CUDA_ERROR_UNKNOWN")
			if !fails(out, never) { // the error may be returned before the copy's state changes
				t.Fatal("expected the copy to fail")
			}
			out.Release()
			second := take(t, s, 1000, 2)
			if unsafe.SliceData(second.Slots[0].Data) == from {
				t.Error("memory was reused while it was being copied")
			}
			_, err = s.Put(ctx, second)
			expectFault(t, "Put", err, 999, "CUDA_ERROR_UNKNOWN")
			second.Release()
			success(t, fakecuda.ResumeCopies(0))
			success(t, fakecuda.Synchronize(fakecuda.Streams()[0])) // of the copy stream
			if !recovers {
				s.Close()
			}
			if n := hazards(); n != 0 { // also clears the injected failures
				t.Errorf("expected no hazard, found %d", n)
			}
			if n := fakecuda.Count("registered"); n != 1 {
				t.Errorf("expected 1 kept block of pinned memory, found %d", n)
			}
			if recovers {
				s.Close()
			} else {
				s.device.releaseConfirmed() // frees the memory for the leak check
			}
		})
	}
}

// The same if the completer has panicked.
func TestFakeWaitsThatFailAfterAPanic(t *testing.T) {
	s, _ := fakes(t, 2, func(call string) error {
		if call == "Synchronize" {
			panic("at " + call)
		}
		return nil
	})
	success(t, fakecuda.PauseCopies(0))
	fakecuda.FailFrom("cuStreamSynchronize", 1, 999)
	first := take(t, s, 1000, 1)
	from := unsafe.SliceData(first.Slots[0].Data)
	out, err := s.Put(ctx, first)
	fine(t, err)
	expectKind(t, "Synchronize", resident(out).Synchronize(ctx), pyfeed.Fault, "at Synchronize")
	if !fails(out, never) { // the error may be returned before the copy's state changes
		t.Fatal("expected the copy to fail")
	}
	out.Release()
	second := take(t, s, 1000, 2)
	if unsafe.SliceData(second.Slots[0].Data) == from {
		t.Error("memory was reused while it was being copied")
	}
	second.Release()
	success(t, fakecuda.ResumeCopies(0))
	success(t, fakecuda.Synchronize(fakecuda.Streams()[0])) // of the copy stream
	if n := hazards(); n != 0 {                             // also clears the injected failures
		t.Errorf("expected no hazard, found %d", n)
	}
	s.Close()
}

// One to three arbitrary calls fail while a tuple is copied. Either the tuple arrives or there is an error, and its
// memory is not reused while the copy may read it.
func TestFakeFailuresWhileCopying(t *testing.T) {
	onFake.begin(t)
	failures := int64(0)
	copying := func(nth ...int) {
		d, err := open(pyfeed.CUDAPlace(0))
		fine(t, err)
		s := newStager(d, 1)
		first := take(t, s, 1000, 1)
		from := unsafe.SliceData(first.Slots[0].Data)
		success(t, fakecuda.PauseCopies(0))
		for i, n := range nth {
			fakecuda.Fail("*", n, []int{900, 2, 999}[i], false)
		}
		out, err := s.Put(ctx, first)
		fine(t, err)
		if !fails(out, func() bool { return fakecuda.Count("waits") > 0 }) {
			t.Fatalf("calls %v failed: expected a wait or an error", nth)
		}
		second := take(t, s, 1000, 2)
		if same := unsafe.SliceData(second.Slots[0].Data) == from; same && fakecuda.Count("pending") > 0 {
			t.Errorf("calls %v failed: memory was reused while it was being copied", nth)
		}
		success(t, fakecuda.ResumeCopies(0))
		_ = resident(out).Synchronize(ctx)
		failures += fakecuda.Count("failures")
		// Also clears the injected failures: closing the device tolerates one failure, not two.
		if n := hazards(); n != 0 {
			t.Errorf("calls %v failed: expected no hazard, found %d", nth, n)
		}
		out.Release()
		second.Release()
		s.Close()
		<-d.ended
		for _, what := range []string{"events", "device", "registered", "pending", "hazards", "misuses", "leaks"} {
			if n := fakecuda.Count(what); n != 0 {
				t.Fatalf("calls %v failed: %s: expected 0, found %d (%s)", nth, what, n, fakecuda.Complaint())
			}
		}
	}
	const calls = 12 // from the creation of an event to the wait for the copy
	for i := 1; i <= calls; i++ {
		copying(i)
		for k := i; k < i+6; k++ { // counted from the call after the first that fails
			copying(i, k)
			for l := k; l < k+5; l++ {
				copying(i, k, l)
			}
		}
	}
	if expected := int64(calls * 2); failures < expected {
		t.Errorf("expected at least %d failures, found %d", expected, failures)
	}
}

func TestFakeOutOfDeviceMemory(t *testing.T) {
	const large = memory.SlabUnit * 3 / 4 // 2 MiB with the room to grow
	s, stream := fakes(t, 2, nil)
	defer s.Close()
	fakecuda.SetMemory(3 * memory.SlabUnit)
	var held []*pyfeed.Tuple
	for i := range 3 {
		held = append(held, send(t, s, take(t, s, large, uint64(i))))
	}
	for range 3 {
		out, err := s.Put(ctx, take(t, s, large, 9))
		fine(t, err)
		err = s.Next(ctx, out)
		expectFault(t, "Next", err, 2, "CUDA_ERROR_OUT_OF_MEMORY")
		if err != nil && !strings.Contains(err.Error(), "device memory of 2097152 bytes") {
			t.Errorf("expected the requested size in the error, found %v", err)
		}
		expectFault(t, "Use", resident(out).Use(stream), 2, "CUDA_ERROR_OUT_OF_MEMORY")
		expectFault(t, "Synchronize", resident(out).Synchronize(ctx), 2, "CUDA_ERROR_OUT_OF_MEMORY")
		expectFault(t, "Download", resident(out).Download(nil, nil), 2, "CUDA_ERROR_OUT_OF_MEMORY")
		out.Release()
	}
	for _, out := range held {
		out.Release()
	}
	fakecuda.SetMemory(64 << 20)
	for i := range 10 { // the failed buffers get memory now
		in := take(t, s, large, uint64(i))
		expected := bytes.Clone(in.Slots[0].Data)
		out := send(t, s, in)
		if !bytes.Equal(download(t, &out.Slots[0]), expected) {
			t.Errorf("tuple %d: the downloaded values differ from those sent", i)
		}
		out.Release()
	}
}

func TestFakeOutOfPinnedMemory(t *testing.T) {
	s, _ := fakes(t, 2, nil)
	defer s.Close()
	fakecuda.SetPinned(3 * memory.SlabUnit)
	in := pyfeed.NewTuple(1)
	shape(t, in, 0, pyfeed.Uint8, 4*memory.SlabUnit)
	err := s.Take(in)
	expectFault(t, "Take", err, 2, "CUDA_ERROR_OUT_OF_MEMORY")
	if err != nil && !strings.Contains(err.Error(), "pinned memory of 8388608 bytes") {
		t.Errorf("expected the requested size in the error, found %v", err)
	}
	in.Release()
	// The limit has room for this slab only.
	in = take(t, s, 3*memory.SlabUnit, 1)
	if n := fakecuda.Count("registered_bytes"); n != 3*memory.SlabUnit {
		t.Errorf("expected %d bytes registered, found %d", 3*memory.SlabUnit, n)
	}
	out := send(t, s, in)
	fine(t, resident(out).Synchronize(ctx))
	out.Release()
	pool := memory.NewPool(memory.Batch)
	defer pool.Close()
	in = pyfeed.NewTuple(1)
	shape(t, in, 0, pyfeed.Uint8, 3*memory.SlabUnit)
	fine(t, in.Allocate(pool))
	held := take(t, s, 1, 1) // leaves no room to move the tuple to pinned memory
	_, err = s.Put(ctx, in)
	expectFault(t, "Put", err, 2, "CUDA_ERROR_OUT_OF_MEMORY")
	in.Release()
	held.Release()
	send(t, s, take(t, s, 1000, 2)).Release()
}

// scenario uses all features once. It continues after an error, and returns the last one.
func scenario(t *testing.T, stream uint64) (err error) {
	failed := func(e error) bool {
		if e != nil {
			err = e
		}
		return e != nil
	}
	place := pyfeed.CUDAPlace(0)
	if _, e := Info(0); failed(e) {
		return err
	}
	b := backend{}
	stager, e := b.NewStager(place, 1)
	if failed(e) {
		return err
	}
	s := stager.(*Stager)
	if own, e := b.NewStream(place); !failed(e) {
		own.Close()
	}
	page, e := memory.NewSlab(memory.SlabUnit)
	fine(t, e)
	if unregister, e := b.Register(place, unsafe.Slice((*byte)(page), memory.SlabUnit)); !failed(e) {
		unregister()
	}
	memory.FreeSlab(page, memory.SlabUnit)
	var late []*pyfeed.Tuple
	for i, n := range []int{100, 100, 100, 100, 2*segmentBytes + 1, 100, 100} {
		in := pyfeed.NewTuple(1)
		shape(t, in, 0, pyfeed.Uint8, n)
		if failed(s.Take(in)) {
			in.Release()
			continue
		}
		fill(in.Slots[0].Data, uint64(i))
		expected := fakecuda.Hash(in.Slots[0].Data)
		out, e := s.Put(ctx, in)
		if failed(e) {
			in.Release()
			continue
		}
		if failed(s.Next(ctx, out)) {
			out.Release()
			continue
		}
		r, m := resident(out), at(&out.Slots[0])
		if !failed(r.Use(stream)) {
			if sum, code := fakecuda.Sum(stream, m.Address, m.Bytes); code == 0 {
				if found, code := sum.Value(); code == 0 && found != expected {
					t.Errorf("tuple %d: expected the hash %#x, found %#x", i, expected, found)
				}
			}
		}
		switch i {
		case 0:
			failed(r.Release(stream))
		case 1:
			failed(r.Synchronize(ctx))
		case 2:
			data := make([]byte, n)
			if !failed(r.Download(data, out.Slots[0].Data)) && fakecuda.Hash(data) != expected {
				t.Error("the downloaded values differ from those sent")
			}
		case 3:
			late = append(late, out)
			continue
		default:
			failed(r.Synchronize(ctx))
		}
		out.Release()
	}
	s.Close()
	for _, out := range late {
		out.Release()
	}
	if len(late) > 0 {
		<-s.device.ended
	}
	return err
}

// Each call of the driver fails once. With or without an error, nothing hangs and nothing is leaked.
func TestFakeEveryCallMayFail(t *testing.T) {
	for _, code := range []int{2, 999} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			onFake.begin(t)
			segmentBytes = 1 << 20
			stream := consumer(t, 0, true)
			if code == 2 { // makes copies timed
				recording, err := trace.Start(0)
				fine(t, err)
				defer recording.Stop()
			}
			numErrors, step := 0, 1
			if testing.Short() {
				step = 5
			}
			for nth := 1; ; nth += step {
				fakecuda.Reset()
				fakecuda.Fail("*", nth, code, false)
				err := scenario(t, stream)
				if fakecuda.Count("failures") == 0 {
					fine(t, err)
					if numErrors < nth/step/10 {
						t.Errorf("only few errors were returned: %d failures gave %d errors", nth-1, numErrors)
					}
					break
				}
				if err != nil {
					numErrors++
					var e *pyfeed.Error
					if !errors.As(err, &e) || e.CUDA == nil && e.Kind != pyfeed.Unsupported || e.CUDA != nil && e.CUDA.Code != code {
						t.Errorf("call %d: expected the driver's code %d, found %v", nth, code, err)
					}
				}
				for _, what := range []string{"events", "device", "registered", "pending", "hazards", "misuses", "leaks"} {
					if n := fakecuda.Count(what); n != 0 {
						t.Fatalf("call %d, after %v: %s: expected 0, found %d (%s)", nth, err, what, n, fakecuda.Complaint())
					}
				}
				if n := len(fakecuda.Streams()); n != 1 {
					t.Fatalf("call %d, after %v: expected only the consumer's stream to be left, found %d streams", nth, err, n)
				}
			}
		})
	}
}

// The device breaks during the nth copy.
func TestFakeEveryCopyMayBreakTheDevice(t *testing.T) {
	for nth, over := 1, false; !over; nth++ {
		if !t.Run(fmt.Sprint(nth), func(t *testing.T) {
			onFake.begin(t)
			segmentBytes = 1 << 20
			stream := consumer(t, 0, true)
			fakecuda.Fail("cuMemcpyHtoDAsync_v2", nth, 700, true)
			err := scenario(t, stream)
			if over = fakecuda.Count("failures") == 0; !over {
				expectFault(t, "the end", err, 700, "CUDA_ERROR_ILLEGAL_ADDRESS")
			} else if fine(t, err); nth != 10 {
				t.Errorf("expected 9 copies, found %d", nth-1)
			}
			if n := hazards() + fakecuda.Count("misuses"); n != 0 { // also repairs the context
				t.Errorf("expected no hazards and misuses, found %d", n)
			}
		}) {
			return // the count of copies is not known
		}
	}
}

// A kernel of the consumer breaks the device. Every call returns the error, and Close does not block.
func TestFakeLostDevice(t *testing.T) {
	onFake.begin(t)
	stream := consumer(t, 0, true)
	d, err := open(pyfeed.CUDAPlace(0))
	fine(t, err)
	s := newStager(gone(t, d), 2)
	before := send(t, s, take(t, s, 1000, 1))
	fine(t, resident(before).Use(stream), resident(before).Synchronize(ctx))
	success(t, fakecuda.Kernel(stream, 0, at(&before.Slots[0]), fakecuda.Range{}, 719))
	fakecuda.Synchronize(stream)
	spare := take(t, s, 1000, 2)
	waiting := take(t, s, 1000, 3)
	out, err := s.Put(ctx, waiting)
	fine(t, err)
	const name = "CUDA_ERROR_LAUNCH_FAILED"
	expectFault(t, "Next", s.Next(ctx, out), 719, name)
	expectFault(t, "Next again", s.Next(ctx, out), 719, name)
	_, err = s.Put(ctx, spare)
	expectFault(t, "Put", err, 719, name)
	_, err = s.Put(ctx, spare)
	expectFault(t, "Put again", err, 719, name)
	for _, tuple := range []*pyfeed.Tuple{before, out} {
		r := resident(tuple)
		expectFault(t, "Next", s.Next(ctx, tuple), 719, name)
		expectFault(t, "Use", r.Use(stream), 719, name)
		expectFault(t, "Release", r.Release(stream), 719, name)
		expectFault(t, "Synchronize", r.Synchronize(ctx), 719, name)
		expectFault(t, "Download", r.Download(make([]byte, 1000), tuple.Slots[0].Data), 719, name)
	}
	large := pyfeed.NewTuple(1)
	shape(t, large, 0, pyfeed.Uint8, 8<<20)
	expectFault(t, "Take", s.Take(large), 719, name)
	large.Release()
	_, err = (backend{}).NewStager(pyfeed.CUDAPlace(0), 2)
	expectFault(t, "another Stager", err, 719, name)
	spare.Release()
	out.Release()
	before.Release()
	s.Close()
}

// At the end of the process the driver shuts down first. Calls that close return no error, and nothing hangs.
func TestFakeDriverThatIsGone(t *testing.T) {
	onFake.begin(t)
	s := newStager(onFake.device(t, nil), 2)
	stream, code := fakecuda.NewStream(0, true)
	success(t, code)
	held := send(t, s, take(t, s, 1000, 1))
	fine(t, resident(held).Use(stream), resident(held).Synchronize(ctx))
	fakecuda.Deinitialize(true)
	in := take(t, s, 1000, 2)
	if out, err := s.Put(ctx, in); err != nil {
		in.Release()
	} else {
		expectFault(t, "Next", s.Next(ctx, out), 4, "CUDA_ERROR_DEINITIALIZED")
		out.Release()
	}
	expectFault(t, "Use", resident(held).Use(stream), 4, "CUDA_ERROR_DEINITIALIZED")
	held.Release()
	s.Close()
	<-s.device.ended
	fakecuda.Deinitialize(false)
	// Release what the end of the process would have released.
	success(t, fakecuda.DestroyStream(stream))
	fine(t, forget(s.device))
	fakecuda.Reset()
}

// forget closes a device in the driver.
func forget(d *Device) error {
	p := d.port.(*driverPort)
	return errors.Join(p.Stop(), p.Close())
}

// Kernels read on streams given by number: the legacy and the per-thread default stream.
func TestFakeStreamsByName(t *testing.T) {
	s, _ := fakes(t, 1, nil)
	defer s.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	blocking := consumer(t, 0, false)
	for i := range 24 {
		stream := []uint64{0, 1, 2, blocking}[i%4]
		in := take(t, s, 1000, uint64(i))
		expected := fakecuda.Hash(in.Slots[0].Data)
		out := send(t, s, in)
		fine(t, resident(out).Use(stream))
		m := at(&out.Slots[0])
		sum, code := fakecuda.Sum(stream, m.Address, m.Bytes)
		success(t, code)
		if i%3 == 0 {
			fine(t, resident(out).Release(stream))
		}
		out.Release()
		if i%5 == 0 {
			if found, code := sum.Value(); code != 0 || found != expected {
				t.Errorf("stream %d: expected the hash %#x, found %#x", stream, expected, found)
			}
		} else {
			defer func() { _, _ = sum.Value() }()
		}
	}
}

// A tuple used on stream 2 of this thread is dropped by another thread. The event must come after the work that this
// thread has submitted.
func TestFakeStreamOfAnotherThread(t *testing.T) {
	without(t, []string{"Release"}, func(t *testing.T, dropped string) {
		s, _ := fakes(t, 1, func(call string) error {
			if call == dropped {
				return errDropped
			}
			return nil
		})
		runtime.LockOSThread()
		success(t, fakecuda.Pause(2))
		for range 6 {
			out := send(t, s, take(t, s, 1000, 1))
			fine(t, resident(out).Use(2))
			reads(t, 2, out)
			var all sync.WaitGroup
			all.Go(out.Release)
			all.Wait()
			if s.buffers == s.depth+2 {
				success(t, fakecuda.Resume(2))
			}
		}
		success(t, fakecuda.Synchronize(2))
		s.Close()
		runtime.UnlockOSThread()
	})
}

func TestFakeForeignAndDestroyedStreams(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	theirs := consumer(t, 1, true)
	old, code := fakecuda.NewStream(0, true)
	success(t, code)
	success(t, fakecuda.DestroyStream(old))
	out := send(t, s, take(t, s, 1000, 1))
	// A tuple that has arrived needs no wait, but the stream is checked all the same.
	fine(t, resident(out).Synchronize(ctx))
	r := resident(out)
	touched := func() int64 { return fakecuda.Calls("cuStreamWaitEvent") + fakecuda.Calls("cuEventRecord") }
	for range 2 {
		before := touched()
		expectKind(t, "Use of another device's", r.Use(theirs), pyfeed.Invalid, "stream: expected one of the primary context of CUDAPlace(0)")
		if n := touched() - before; n != 0 {
			t.Errorf("expected no calls with another device's stream, found %d", n)
		}
		expectKind(t, "Release on another device's", r.Release(theirs), pyfeed.Invalid, "stream: expected one of the primary context of CUDAPlace(0)")
		expectFault(t, "Use of a destroyed one", r.Use(old), 400, "CUDA_ERROR_INVALID_HANDLE")
		expectFault(t, "Release on a destroyed one", r.Release(old), 400, "CUDA_ERROR_INVALID_HANDLE")
		fine(t, r.Use(stream))
		reads(t, stream, out)
	}
	out.Release()
	success(t, fakecuda.Synchronize(stream))
	if n := fakecuda.Count("misuses"); n == 0 {
		t.Error("expected the fake driver to report the use of a destroyed stream")
	}
	if n := hazards(); n != 0 { // also clears the count of misuses
		t.Errorf("expected no hazards, found %d", n)
	}
}

// A stream of an executor may be closed while tuples that were used on it are held. An event is recorded on it when
// they are released.
func TestFakeStreamsGoBeforeTheirTuples(t *testing.T) {
	onFake.begin(t)
	d, err := open(pyfeed.CUDAPlace(0))
	fine(t, err)
	s := newStager(gone(t, d), 1)
	defer s.Close()
	for i := range 3 {
		stream, err := (backend{}).NewStream(pyfeed.CUDAPlace(0))
		fine(t, err)
		out := send(t, s, take(t, s, 1000, uint64(i)))
		fine(t, resident(out).Use(stream.Number()))
		reads(t, stream.Number(), out)
		success(t, fakecuda.Synchronize(stream.Number()))
		stream.Close()
		out.Release()
	}
	if n := len(fakecuda.Streams()); n != 2 {
		t.Errorf("expected two streams, the copy stream and a reused one, found %d", n)
	}
}

// A stream that is being captured is refused without being changed.
func TestFakeCapturedStreams(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	captured := consumer(t, 0, true)
	success(t, fakecuda.PauseCopies(0))
	for i, state := range []string{"under way", "there"} {
		out := send(t, s, take(t, s, 1000, uint64(i)))
		if state == "there" {
			fine(t, resident(out).Synchronize(ctx))
		}
		success(t, fakecuda.BeginCapture(captured, fakecuda.Global))
		expectKind(t, "Use", resident(out).Use(captured), pyfeed.State, "CUDAPlace(0): the stream is being captured into a graph")
		expectKind(t, "Release", resident(out).Release(captured), pyfeed.State, "CUDAPlace(0): the stream is being captured into a graph")
		fine(t, resident(out).Use(stream))
		out.Release()
		success(t, fakecuda.EndCapture(captured))
		success(t, fakecuda.ResumeCopies(0))
	}
}

// Calls on our threads and on callers' threads break no graph capture on another thread, in any capture mode.
func TestFakeCapturesOfOthers(t *testing.T) {
	onFake.begin(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	captured := consumer(t, 0, true)
	success(t, fakecuda.BeginCapture(captured, fakecuda.Global))
	before := fakecuda.Count("registered")
	var all sync.WaitGroup
	all.Go(func() {
		if err := scenario(t, consumer(t, 0, true)); err != nil {
			t.Error(err)
		}
		d, err := open(pyfeed.CUDAPlace(0))
		if err != nil {
			t.Error(err)
			return
		}
		s := newStager(d, 1)
		send(t, s, take(t, s, 4<<20, 1)).Release()
		if n := fakecuda.Count("registered"); n <= before {
			t.Errorf("expected memory to be pinned during the capture, found %d blocks", n)
		}
		s.Close()
	})
	all.Wait()
	success(t, fakecuda.EndCapture(captured))
}

// The consumer's stream is being captured when the last reference is dropped. No event can be recorded then, so that it
// is not known when the stream is done with the memory. The memory is not reused.
func TestFakeDroppedWhileCapturing(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	const rounds = maxQuarantined + 5 // more than the limit of quarantined blocks
	for i := range rounds {
		var all []*pyfeed.Tuple
		for k := range s.depth + 2 {
			out := send(t, s, take(t, s, 1000, uint64(i+k)))
			fine(t, resident(out).Use(stream))
			reads(t, stream, out)
			all = append(all, out)
		}
		before := all[0].Slots[0].Data
		runtime.LockOSThread()
		success(t, fakecuda.BeginCapture(stream, fakecuda.Global))
		all[0].Release()
		success(t, fakecuda.EndCapture(stream))
		runtime.UnlockOSThread()
		out := send(t, s, take(t, s, 1000, 9))
		if unsafe.SliceData(out.Slots[0].Data) == unsafe.SliceData(before) {
			t.Error("expected new memory, found the quarantined memory")
		}
		streams := fakecuda.Calls("cuStreamIsCapturing")
		out.Release()
		if n := fakecuda.Calls("cuStreamIsCapturing") - streams; n != 0 {
			t.Errorf("expected no call with a stream of the previous tuple, found %d", n)
		}
		for _, out := range all[1:] {
			out.Release()
		}
	}
	if n := fakecuda.Count("device"); n > maxQuarantined+3 {
		t.Errorf("expected at most %d pieces of memory, found %d", maxQuarantined+3, n)
	}
	// Later tuples reuse memory again, because each tuple has its own uses.
	for round := range 2 {
		before := fakecuda.Calls("cuMemAlloc_v2")
		for i := range 10 {
			send(t, s, take(t, s, 1000, uint64(i))).Release()
		}
		if n := fakecuda.Calls("cuMemAlloc_v2") - before; round > 0 && n != 0 {
			t.Errorf("expected memory to be reused, found %d allocations", n)
		}
	}
	// The same when the Stager is closed afterwards.
	out := send(t, s, take(t, s, 1000, 1))
	fine(t, resident(out).Use(stream))
	reads(t, stream, out)
	runtime.LockOSThread()
	success(t, fakecuda.BeginCapture(stream, fakecuda.Global))
	out.Release()
	success(t, fakecuda.EndCapture(stream))
	runtime.UnlockOSThread()
}

// While a blocking stream is being captured, calls with the legacy stream are refused too.
func TestFakeDroppedWhileLegacyStreamIsRefused(t *testing.T) {
	s, _ := fakes(t, 1, nil)
	defer s.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	captured := consumer(t, 0, false)
	out := send(t, s, take(t, s, 1000, 1))
	fine(t, resident(out).Use(1))
	reads(t, 1, out)
	success(t, fakecuda.BeginCapture(captured, fakecuda.ThreadLocal))
	expectKind(t, "Release", resident(out).Release(0), pyfeed.State, "the stream is being captured into a graph")
	out.Release()
	for i := range 6 {
		send(t, s, take(t, s, 1000, uint64(i))).Release()
	}
	success(t, fakecuda.EndCapture(captured))
}

// When memory runs out, quarantined memory is freed first.
func TestFakeOutOfMemoryWithSomeSetAside(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	fakecuda.SetMemory(4 * memory.SlabUnit)
	for i := range 12 {
		out := send(t, s, take(t, s, 1000, uint64(i)))
		fine(t, resident(out).Use(stream))
		reads(t, stream, out)
		runtime.LockOSThread()
		success(t, fakecuda.BeginCapture(stream, fakecuda.Global))
		out.Release()
		success(t, fakecuda.EndCapture(stream))
		runtime.UnlockOSThread()
	}
}

// Tuples are released twice, on two streams, by another thread, never, or without a use. No buffer is reused too early.
func TestFakeReleases(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	other := consumer(t, 0, true)
	for i := range 60 {
		out := send(t, s, take(t, s, 1000, uint64(i)))
		r := resident(out)
		fine(t, r.Use(stream))
		reads(t, stream, out)
		switch i % 6 {
		case 0: // twice
			fine(t, r.Release(stream), r.Release(stream))
		case 1: // used again between the two
			fine(t, r.Release(stream), r.Use(other))
			reads(t, other, out)
			fine(t, r.Release(other), r.Release(stream))
		case 2: // by another thread
			var all sync.WaitGroup
			all.Go(func() {
				if err := r.Release(stream); err != nil {
					t.Error(err)
				}
				out.Release()
			})
			all.Wait()
			continue
		case 3: // on a stream that was not used, but waits for the one that was
			fine(t, r.Use(other))
			reads(t, other, out)
			fine(t, r.Release(other))
		case 4: // a second reference outlives the first
			view := pyfeed.NewTuple(1)
			out.Slots[0].Share(&view.Slots[0])
			out.Release()
			reads(t, stream, view)
			view.Release()
			continue
		}
		out.Release()
	}
}

// A Put that waits for room fails when the Stager is closed. A Next that waits for a copy succeeds later. Close waits
// for neither.
func TestFakeCloseWhileBlocked(t *testing.T) {
	s, _ := fakes(t, 2, nil)
	success(t, fakecuda.PauseCopies(0))
	var ready []*pyfeed.Tuple
	for i := range 4 {
		out, err := s.Put(ctx, take(t, s, 1000, uint64(i)))
		fine(t, err)
		ready = append(ready, out)
	}
	last := take(t, s, 1000, 9)
	var all sync.WaitGroup
	all.Go(func() {
		_, err := s.Put(ctx, last)
		expectKind(t, "Put", err, pyfeed.Closed, "the stager to CUDAPlace(0) is closed")
		last.Release()
	})
	all.Go(func() { // waits for the copies in flight, which are paused
		if err := s.Next(ctx, ready[3]); err != nil {
			t.Errorf("Next: %v", err)
		}
	})
	waiting := func(what string, n func() int) {
		for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); runtime.Gosched() {
			s.mu.Lock()
			is := n() > 0
			s.mu.Unlock()
			if is {
				return
			}
		}
		t.Fatalf("expected a caller that waits for %s", what)
	}
	waiting("room", s.room.Len)
	waiting("a copy", s.ready.Len)
	cancelled, cancel := context.WithCancelCause(ctx)
	why := errors.New("why")
	cancel(why)
	if err := s.Next(cancelled, ready[3]); err != why {
		t.Errorf("expected %v, found %v", why, err)
	}
	s.Close()
	s.Close()
	if _, err := s.Put(ctx, last); err == nil {
		t.Error("expected Put to fail after Close")
	}
	success(t, fakecuda.ResumeCopies(0))
	all.Wait()
	for _, out := range ready {
		fine(t, s.Next(ctx, out), resident(out).Synchronize(ctx))
		out.Release()
	}
}

// Tuples from one pinned pool go to two devices in turn.
func TestFakeTwoDevices(t *testing.T) {
	onFake.begin(t)
	b := backend{}
	pool, err := b.Pool(pyfeed.CUDAPinnedPlace(), memory.Batch)
	fine(t, err)
	var stagers []*Stager
	var streams []uint64
	for i := range 2 {
		s, err := b.NewStager(pyfeed.CUDAPlace(i), 2)
		fine(t, err)
		stagers = append(stagers, s.(*Stager))
		gone(t, s.(*Stager).device)
		streams = append(streams, consumer(t, i, true))
	}
	tuples := make(chan *pyfeed.Tuple)
	var all sync.WaitGroup
	for i := range stagers {
		all.Go(func() {
			for in := range tuples {
				expected := fakecuda.Hash(in.Slots[0].Data)
				out, err := stagers[i].Put(ctx, in)
				if err == nil {
					err = stagers[i].Next(ctx, out)
				}
				if err == nil {
					err = resident(out).Use(streams[i])
				}
				if err != nil {
					t.Error(err)
					return
				}
				m := at(&out.Slots[0])
				sum, _ := fakecuda.Sum(streams[i], m.Address, m.Bytes)
				out.Release()
				if found, code := sum.Value(); code != 0 || found != expected {
					t.Errorf("device %d: expected the hash %#x, found %#x, code %d", i, expected, found, code)
				}
			}
			stagers[i].Close()
		})
	}
	for i := range 200 {
		in := pyfeed.NewTuple(1)
		shape(t, in, 0, pyfeed.Uint8, 1+i*i)
		fine(t, in.Allocate(pool))
		fill(in.Slots[0].Data, uint64(i))
		tuples <- in
	}
	close(tuples)
	all.Wait()
	pool.Close()
	if n := fakecuda.Count("pageable_copies"); n != 0 {
		t.Errorf("expected copies from pinned memory, found %d others", n)
	}
}

// The last piece of one device's pinned memory is released on a thread of another device. That thread does not block.
func TestFakePinnedMemoryEndsOnAnotherDevicesThread(t *testing.T) {
	onFake.begin(t)
	b := backend{}
	pool, err := b.Pool(pyfeed.CUDAPlace(0), memory.Batch)
	fine(t, err)
	devices.mu.Lock()
	first := gone(t, devices.all[pyfeed.CUDAPlace(0)])
	devices.mu.Unlock()
	stager, err := b.NewStager(pyfeed.CUDAPlace(1), 1)
	fine(t, err)
	s := stager.(*Stager)
	gone(t, s.device)
	success(t, fakecuda.PauseCopies(1))
	in := pyfeed.NewTuple(1)
	shape(t, in, 0, pyfeed.Uint8, 1000)
	fine(t, in.Allocate(pool))
	fill(in.Slots[0].Data, 1)
	expected := bytes.Clone(in.Slots[0].Data)
	out := send(t, s, in)
	pool.Close()
	success(t, fakecuda.ResumeCopies(1))
	<-first.ended
	if !bytes.Equal(download(t, &out.Slots[0]), expected) {
		t.Error("the downloaded values differ from those sent")
	}
	out.Release()
	s.Close()
}

// Counts the driver's calls for each batch after all buffers and events exist.
func TestFakeCallsOfABatch(t *testing.T) {
	s, stream := fakes(t, 1, nil)
	defer s.Close()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	batch := func(done bool) {
		in := take(t, s, 4096, 1)
		if !done {
			success(t, fakecuda.PauseCopies(0))
		}
		out := send(t, s, in)
		if done {
			fine(t, resident(out).Synchronize(ctx))
		}
		fine(t, resident(out).Use(stream), resident(out).Release(stream))
		if !done {
			success(t, fakecuda.ResumeCopies(0))
			fine(t, resident(out).Synchronize(ctx))
		}
		out.Release()
	}
	for range 10 {
		batch(true)
	}
	names := []string{"cuStreamWaitEvent", "cuMemcpyHtoDAsync_v2", "cuEventRecord", "cuEventSynchronize", "cuStreamIsCapturing", "calls"}
	for _, x := range []struct {
		what     string
		done     bool
		expected []int64
	}{
		{"a copy that is done", true, []int64{1, 1, 2, 1, 2, 7}},
		{"a copy that is not", false, []int64{2, 1, 2, 1, 2, 8}},
	} {
		const n = 20
		var before []int64
		for _, name := range names {
			before = append(before, fakecuda.Count(name))
		}
		for range n {
			batch(x.done)
		}
		for i, name := range names {
			if found := fakecuda.Count(name) - before[i]; found != n*x.expected[i] {
				t.Errorf("%s: %s: expected %d per batch, found %v", x.what, name, x.expected[i], float64(found)/n)
			}
		}
	}
}

// Many threads use many sizes, streams and ways to release. The contents are hashed in the order of the streams.
func TestFakeStress(t *testing.T) {
	onFake.begin(t)
	const producers, consumers = 3, 3
	tuples := 4000
	if testing.Short() {
		tuples = 1500
	}
	var streams []uint64
	for i := range 4 {
		streams = append(streams, consumer(t, 0, i > 0))
	}
	d, err := open(pyfeed.CUDAPlace(0))
	fine(t, err)
	gone(t, d)
	d.retain()
	var all sync.WaitGroup
	var checked atomic.Int64
	for k := range 2 {
		s := newStager(d, 1+k)
		ready := make(chan sent, 2)
		var put, got sync.WaitGroup
		for p := range producers {
			put.Go(func() {
				r := rand.New(rand.NewPCG(uint64(k), uint64(p)))
				for range tuples / producers {
					n := 1 + r.IntN(1<<r.IntN(16))
					if r.IntN(100) == 0 {
						n = 3 << 20
					}
					in := take(t, s, n, r.Uint64())
					hash := fakecuda.Hash(in.Slots[0].Data)
					out, err := s.Put(ctx, in)
					if err != nil {
						t.Error(err)
						return
					}
					ready <- sent{out, hash}
				}
			})
		}
		for c := range consumers {
			got.Go(func() { consume(t, s, ready, streams, rand.New(rand.NewPCG(uint64(k), uint64(100+c))), &checked) })
		}
		all.Go(func() {
			put.Wait()
			close(ready)
			got.Wait()
			s.Close()
		})
	}
	all.Wait()
	if n := checked.Load(); n < int64(tuples) {
		t.Errorf("expected at least %d checked tuples, found %d", tuples, n)
	}
}

// Many threads run while calls fail. All of them end, and nothing is leaked.
func TestFakeStressWithFailures(t *testing.T) {
	onFake.begin(t)
	segmentBytes = 1 << 12
	stream := consumer(t, 0, true)
	r := rand.New(rand.NewPCG(7, 7))
	failures := int64(0)
	for round := range 60 {
		for range 1 + r.IntN(4) {
			fakecuda.Fail("*", 1+r.IntN(600), []int{2, 999, 900}[r.IntN(3)], false)
		}
		d, err := open(pyfeed.CUDAPlace(0))
		if err != nil {
			fakecuda.Reset()
			continue
		}
		s := newStager(d, 1+r.IntN(3))
		ready := make(chan *pyfeed.Tuple)
		var put, got sync.WaitGroup
		for range 2 {
			seed := r.Uint64()
			put.Go(func() {
				r := rand.New(rand.NewPCG(seed, 0))
				for range 20 {
					in := pyfeed.NewTuple(1)
					shape(t, in, 0, pyfeed.Uint8, 1+r.IntN(3*segmentBytes))
					if err := s.Take(in); err != nil {
						in.Release()
						continue
					}
					fill(in.Slots[0].Data, r.Uint64())
					out, err := s.Put(ctx, in)
					if err != nil {
						in.Release()
						continue
					}
					ready <- out
				}
			})
			got.Go(func() {
				for out := range ready {
					if s.Next(ctx, out) == nil && resident(out).Use(stream) == nil {
						m := at(&out.Slots[0])
						fakecuda.Kernel(stream, 0, m, fakecuda.Range{}, 0)
						_ = resident(out).Synchronize(ctx)
					}
					out.Release()
				}
			})
		}
		put.Wait()
		close(ready)
		got.Wait()
		s.Close()
		<-d.ended
		for _, what := range []string{"events", "device", "registered", "hazards", "misuses", "leaks"} {
			if n := fakecuda.Count(what); n != 0 {
				t.Fatalf("round %d: %s: expected 0, found %d (%s)", round, what, n, fakecuda.Complaint())
			}
		}
		failures += fakecuda.Count("failures")
		fakecuda.Reset()
	}
	if failures < 30 {
		t.Errorf("expected more failures, found %d", failures)
	}
}

type sent struct {
	tuple *pyfeed.Tuple
	hash  uint64
}

func consume(t *testing.T, s *Stager, ready <-chan sent, streams []uint64, r *rand.Rand, checked *atomic.Int64) {
	runtime.LockOSThread() // stream 2 is the stream of this thread
	defer runtime.UnlockOSThread()
	streams = append([]uint64{1, 2}, streams...)
	var late []*pyfeed.Tuple
	var all sync.WaitGroup
	for x := range ready {
		out := x.tuple
		if r.IntN(10) == 0 {
			out.Release() // without a use
			continue
		}
		if err := s.Next(ctx, out); err != nil {
			t.Error(err)
			return
		}
		m := at(&out.Slots[0])
		var sums []fakecuda.Hashed
		for range 1 + r.IntN(2) {
			stream := streams[r.IntN(len(streams))]
			if err := resident(out).Use(stream); err != nil {
				t.Error(err)
				return
			}
			sum, code := fakecuda.Sum(stream, m.Address, m.Bytes)
			if code != 0 {
				t.Errorf("the fake driver returned %d", code)
				return
			}
			sums = append(sums, sum)
			if r.IntN(3) == 0 {
				if err := resident(out).Release(stream); err != nil {
					t.Error(err)
				}
			}
		}
		switch r.IntN(4) {
		case 0:
			late = append(late, out)
		case 1:
			all.Go(out.Release)
		default:
			out.Release()
		}
		for _, sum := range sums {
			if hash, code := sum.Value(); code != 0 || hash != x.hash {
				t.Errorf("expected the hash %#x, found %#x, code %d", x.hash, hash, code)
			}
			checked.Add(1)
		}
		if len(late) > 2 {
			late[0].Release()
			late = late[1:]
		}
	}
	for _, out := range late {
		all.Go(out.Release)
	}
	all.Wait()
}
