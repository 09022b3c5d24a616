package cuda

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// hostTuple makes a tuple with one slot of n int64s, which count up from first.
func hostTuple(t testing.TB, pool *memory.Pool, first, n int) *pyfeed.Tuple {
	t.Helper()
	tuple := pyfeed.NewTuple(1)
	shape(t, tuple, 0, pyfeed.Int64, n)
	if err := tuple.Allocate(pool); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		binary.NativeEndian.PutUint64(tuple.Slots[0].Data[8*i:], uint64(first+i))
	}
	return tuple
}

func values(t testing.TB, tensor *pyfeed.LoDTensor) []int64 {
	t.Helper()
	data := download(t, tensor)
	out := make([]int64, len(data)/8)
	for i := range out {
		out[i] = int64(binary.NativeEndian.Uint64(data[8*i:]))
	}
	return out
}

func checkCounting(t testing.TB, tuple *pyfeed.Tuple, first, n int) {
	t.Helper()
	got := values(t, &tuple.Slots[0])
	if len(got) != n {
		t.Fatalf("expected %d values, found %d", n, len(got))
	}
	for i, v := range got {
		if v != int64(first+i) {
			t.Fatalf("value %d: expected %d, found %d", i, first+i, v)
		}
	}
}

func TestTuplesArriveInOrder(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		s := newStager(k.device(t, nil), 2)
		defer s.Close()
		pool := memory.NewPool(memory.Batch)
		defer pool.Close()
		for i := range 100 {
			n := 1 + i*37%1000
			var from *pyfeed.Tuple
			if i%2 == 0 { // already in pinned memory
				from = pyfeed.NewTuple(1)
				shape(t, from, 0, pyfeed.Int64, n)
				if err := s.Take(from); err != nil {
					t.Fatal(err)
				}
				for k := range n {
					binary.NativeEndian.PutUint64(from.Slots[0].Data[8*k:], uint64(i+k))
				}
			} else {
				from = hostTuple(t, pool, i, n)
			}
			out := send(t, s, from)
			if out.Slots[0].Place != pyfeed.CUDAPlace(0) || !out.OnDevice() {
				t.Fatalf("expected a tuple at CUDAPlace(0), found %v", out.Slots[0].Place)
			}
			if err := out.Slots[0].Resident().Use(1); err != nil {
				t.Fatal(err)
			}
			checkCounting(t, out, i, n)
			out.Release()
		}
		if s.buffers > s.depth+2 {
			t.Errorf("expected at most %d reused buffers, found %d", s.depth+2, s.buffers)
		}
	})
}

func TestChunks(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		if k != onGPU { // the GPU uses segments of the normal size
			segmentBytes = 1 << 16
		}
		var calls atomic.Int64
		s := newStager(k.device(t, func(call string) error {
			if call == "Copy" {
				calls.Add(1)
			}
			return nil
		}), 1)
		defer s.Close()
		for i, n := range []int{1, segmentBytes, segmentBytes + 1, 5*segmentBytes + 12345} {
			from := take(t, s, n, uint64(i))
			expected := bytes.Clone(from.Slots[0].Data)
			before := calls.Load()
			out := send(t, s, from)
			if !bytes.Equal(download(t, &out.Slots[0]), expected) {
				t.Errorf("%d bytes: the downloaded bytes differ from those sent", n)
			}
			out.Release()
			if found, want := calls.Load()-before, int64((n+segmentBytes-1)/segmentBytes); found != want {
				t.Errorf("%d bytes: expected %d copies, found %d", n, want, found)
			}
		}
	})
}

func TestOffsetsStayOnTheHost(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		s := newStager(k.device(t, nil), 1)
		defer s.Close()
		pool := memory.NewPool(memory.Batch)
		defer pool.Close()
		from := pyfeed.NewTuple(3)
		for i := range 3 {
			shape(t, from, i, pyfeed.Int64, 6)
		}
		from.Slots[0].LoD = append(from.Slots[0].LoD, []int64{0, 2}, []int64{0, 1, 6})
		from.Slots[2].LoD = append(from.Slots[2].LoD, []int64{0, 6})
		if err := from.Allocate(pool); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			for k := range 6 {
				binary.NativeEndian.PutUint64(from.Slots[i].Data[8*k:], uint64(10*i+k))
			}
		}
		out := send(t, s, from)
		if found, want := fmt.Sprint(out.Slots[0].LoD, out.Slots[1].LoD, out.Slots[2].LoD), "[[0 2] [0 1 6]] [] [[0 6]]"; found != want {
			t.Errorf("expected %s, found %s", want, found)
		}
		for i := range 3 {
			if found, want := fmt.Sprint(values(t, &out.Slots[i])), fmt.Sprint([]int{10 * i, 10*i + 1, 10*i + 2, 10*i + 3, 10*i + 4, 10*i + 5}); found != want {
				t.Errorf("slot %d: expected %s, found %s", i, want, found)
			}
			if at := uintptr(unsafe.Pointer(unsafe.SliceData(out.Slots[i].Data))); at%memory.SourceAlignment != 0 {
				t.Errorf("slot %d: expected a field aligned to %d, found %#x", i, memory.SourceAlignment, at)
			}
		}
		out.Release()
	})
}

func TestEmptyTuples(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		s := newStager(k.device(t, nil), 1)
		defer s.Close()
		from := pyfeed.NewTuple(2)
		shape(t, from, 0, pyfeed.Int64, 0)
		shape(t, from, 1, pyfeed.Int64, 0)
		if err := s.Take(from); err != nil {
			t.Fatal(err)
		}
		out := send(t, s, from)
		if len(out.Slots) != 2 || len(out.Slots[1].Data) != 0 {
			t.Errorf("expected two empty slots, found %+v", out)
		}
		if err := out.Slots[0].Resident().Synchronize(ctx); err != nil {
			t.Error(err)
		}
		out.Release()
	})
}

// A consumer that holds all tuples would wait for itself. It gets more memory instead.
func TestAConsumerThatHoldsOn(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		s := newStager(k.device(t, nil), 2)
		defer s.Close()
		pool := memory.NewPool(memory.Batch)
		defer pool.Close()
		var held []*pyfeed.Tuple
		for i := range 20 {
			held = append(held, send(t, s, hostTuple(t, pool, i, 10)))
		}
		for i, out := range held {
			checkCounting(t, out, i, 10)
			out.Release()
		}
	})
}

func TestPutWaitsForRoom(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		s := newStager(k.device(t, nil), 1)
		defer s.Close()
		pool := memory.NewPool(memory.Batch)
		defer pool.Close()
		var ready []*pyfeed.Tuple
		for i := range 3 {
			out, err := s.Put(wait.NonBlocking, hostTuple(t, pool, i, 10))
			if err != nil {
				t.Fatal(err)
			}
			ready = append(ready, out)
		}
		last := hostTuple(t, pool, 3, 10)
		if _, err := s.Put(wait.NonBlocking, last); err != wait.ErrWouldBlock {
			t.Fatalf("expected a wait, found %v", err)
		}
		cancelled, cancel := context.WithCancelCause(ctx)
		why := errors.New("why")
		cancel(why)
		if _, err := s.Put(cancelled, last); err != why {
			t.Fatalf("expected %v, found %v", why, err)
		}
		var all sync.WaitGroup
		all.Go(func() {
			out, err := s.Put(ctx, last)
			if err != nil {
				t.Error(err)
				return
			}
			ready = append(ready, out)
		})
		ready[0].Release()
		all.Wait()
		for i, out := range ready[1:] {
			if err := s.Next(ctx, out); err != nil {
				t.Fatal(err)
			}
			checkCounting(t, out, i+1, 10)
			out.Release()
		}
	})
}

// A tuple that is released before it was copied also frees its buffer.
func TestDroppedOnTheWay(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		gate := make(chan struct{})
		s := newStager(k.device(t, func(call string) error {
			if call == "Copy" {
				<-gate
			}
			return nil
		}), 3)
		pool := memory.NewPool(memory.Batch)
		defer pool.Close()
		var all []*pyfeed.Tuple
		for i := range 5 {
			out, err := s.Put(ctx, hostTuple(t, pool, i, 10))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, out)
		}
		for _, out := range all[1:] {
			out.Release()
		}
		close(gate)
		if err := s.Next(ctx, all[0]); err != nil {
			t.Fatal(err)
		}
		checkCounting(t, all[0], 0, 10)
		all[0].Release()
		s.Close()
	})
}

func TestTuplesOutliveTheirStager(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		s := newStager(k.device(t, nil), 1)
		pool := memory.NewPool(memory.Batch)
		defer pool.Close()
		out := send(t, s, hostTuple(t, pool, 5, 10))
		s.Close()
		checkCounting(t, out, 5, 10)
		if _, err := s.Put(ctx, out); err == nil {
			t.Error("expected Put to fail after Close")
		}
		ended := s.device.ended
		out.Release()
		<-ended
	})
}

// Each call of a port fails once: the first, second and third time. The test gets the error, and nothing is leaked.
func TestEveryCallMayFail(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		for _, call := range []string{"Attach", "Alloc", "Register", "NewEvent", "Start", "Copy", "Wait", "Synchronize", "Use", "Release", "Download"} {
			last := int64(3)
			if testing.Short() {
				last = 1
			}
			for nth := int64(1); nth <= last; nth++ {
				everyCallMayFail(t, k, call, nth)
			}
		}
	})
}

func everyCallMayFail(t *testing.T, k kind, call string, nth int64) {
	t.Helper()
	var seen atomic.Int64
	bad := errors.New("bad luck")
	p, err := k.port(0)
	fine(t, err)
	d, err := begin(pyfeed.CUDAPlace(0), &interceptedPort{p, func(c string) error {
		if c == call && seen.Add(1) == nth {
			return bad
		}
		return nil
	}})
	if err != nil {
		if call != "Attach" && call != "Start" && call != "NewEvent" {
			t.Fatal(err)
		}
		return
	}
	s := newStager(d, 1)
	large := 13 << 20
	if testing.Short() {
		large = 5 << 20
	}
	for i, n := range []int{100, 3 << 20, large, 100, 100, 100} {
		in := pyfeed.NewTuple(1)
		shape(t, in, 0, pyfeed.Uint8, n)
		if s.Take(in) != nil {
			in.Release()
			continue
		}
		fill(in.Slots[0].Data, uint64(i))
		expected := bytes.Clone(in.Slots[0].Data)
		out, err := s.Put(ctx, in)
		if err != nil {
			in.Release()
			continue
		}
		if err = s.Next(ctx, out); err == nil {
			r, data := resident(out), make([]byte, n)
			_, _ = r.Use(1), r.Release(1)
			if err := r.Download(data, out.Slots[0].Data); err == nil && !bytes.Equal(data, expected) {
				t.Errorf("%s %d: tuple %d has other values", call, nth, i)
			}
		}
		out.Release()
	}
	s.Close()
	<-d.ended
	if n := seen.Load(); n < nth && call != "Attach" && call != "Start" {
		t.Errorf("%s was called %d times only", call, n)
	}
}

// A device starts with its first stager and ends with the last one, in any order of calls.
func TestDevicesComeAndGo(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		var all sync.WaitGroup
		var seen sync.Map
		for i := range 4 {
			all.Go(func() {
				for round := range 25 {
					s, err := (backend{}).NewStager(pyfeed.CUDAPlace(0), 1)
					if err != nil {
						t.Error(err)
						return
					}
					seen.Store(s.(*Stager).device, nil)
					in := take(t, s.(*Stager), 100, uint64(round))
					expected := bytes.Clone(in.Slots[0].Data)
					out := send(t, s.(*Stager), in)
					if i%2 == 0 {
						s.Close() // before its tuple is released
					}
					if !bytes.Equal(download(t, &out.Slots[0]), expected) {
						t.Error("the downloaded values differ from those sent")
					}
					out.Release()
					s.Close()
				}
			})
		}
		all.Wait()
		for d := range seen.Range {
			<-d.(*Device).ended
		}
	})
}

// A panic on a thread of a device makes all waits for it fail. A new device then replaces it.
func TestThreadsThatPanic(t *testing.T) {
	onEmulation.begin(t)
	for _, call := range []string{"Attach", "Start", "NewEvent", "Alloc", "Copy", "Synchronize"} {
		for nth := int64(1); nth <= 3; nth++ {
			var seen atomic.Int64
			newPort = func(int) (port, error) {
				return &interceptedPort{newEmulation(), func(c string) error {
					if c == call && seen.Add(1) == nth {
						panic("at " + call)
					}
					return nil
				}}, nil
			}
			var fault *pyfeed.Error
			s, err := (backend{}).NewStager(pyfeed.CUDAPlace(0), 2)
			if err == nil {
				for i := 0; i < 10 && err == nil; i++ {
					var out *pyfeed.Tuple
					in := take(t, s.(*Stager), 10+2_000_000*i, 1)
					if out, err = s.Put(ctx, in); err != nil {
						in.Release()
						break
					}
					if err = s.Next(ctx, out); err == nil {
						err = resident(out).Synchronize(ctx)
					}
					out.Release()
				}
			}
			if seen.Load() >= nth && (!errors.As(err, &fault) || fault.Kind != pyfeed.Fault || !strings.Contains(err.Error(), "at "+call)) {
				t.Errorf("%s %d: expected the panic, found %v", call, nth, err)
			}
			newPort = onEmulation.port
			d, err := open(pyfeed.CUDAPlace(0))
			fine(t, err)
			if fault != nil && d.err() != nil {
				t.Errorf("%s %d: expected a new device, found the failed one", call, nth)
			}
			d.drop()
			if s != nil {
				s.Close()
			}
		}
	}
}

func TestSlabsMergeFreePieces(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p := newPinned(k.device(t, nil))
		type got struct {
			at unsafe.Pointer
			n  int
		}
		var all []got
		for i := range 200 {
			n := memory.SourceAlignment * (1 + i%7)
			at, err := p.Allocate(n)
			if err != nil {
				t.Fatal(err)
			}
			for k := range unsafe.Slice((*byte)(at), n) {
				unsafe.Slice((*byte)(at), n)[k] = byte(i)
			}
			all = append(all, got{at, n})
		}
		for _, order := range []int{1, 0} { // every other piece, then the rest
			for i, g := range all {
				if i%2 != order {
					continue
				}
				for _, b := range unsafe.Slice((*byte)(g.at), g.n) {
					if b != byte(i) {
						t.Fatalf("piece %d was overwritten", i)
					}
				}
				p.Free(g.at, g.n)
			}
		}
		for i := range p.slabs {
			if f := p.slabs[i].free; len(f) != 1 || f[0] != (piece{0, p.slabs[i].size}) {
				t.Errorf("slab %d: expected one free piece, found %v", i, f)
			}
		}
		p.Close()
	})
}

// Many threads that need memory at the same time pin about as much as one would, and never get the same piece.
func TestSlabsForManyThreads(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		p := newPinned(k.device(t, nil))
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for round := range 50 {
					n := memory.SourceAlignment * (1 + (i*round)%200)
					at, err := p.Allocate(n)
					if err != nil {
						t.Error(err)
						return
					}
					piece := unsafe.Slice((*byte)(at), n)
					fill(piece, uint64(i))
					expected := bytes.Clone(piece)
					runtime.Gosched()
					if !bytes.Equal(piece, expected) {
						t.Error("a piece was written by another thread")
					}
					p.Free(at, n)
				}
			})
		}
		all.Wait()
		if n := memory.Count().Slabs[memory.PinnedSlab]; n > 8*memory.SlabUnit {
			t.Errorf("expected a few slabs, found %d bytes", n)
		}
		p.Close()
	})
}
