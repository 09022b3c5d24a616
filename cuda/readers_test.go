package cuda

import (
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/sources"
	"github.com/pyfeed/pyfeed/tests/fakecuda"
)

// Tests readers that deliver tuples on devices: each tuple arrives once, in order, on the devices in turn, and is
// copied while earlier tuples are still being computed on.
func TestFakeReaders(t *testing.T) {
	first, second := pyfeed.CUDAPlace(0), pyfeed.CUDAPlace(1)
	for _, x := range []struct {
		what   string
		queue  pyfeed.Place
		places []pyfeed.Place // of a double_buffer, if there is one
		depth  uint64
	}{
		{"delivery", first, nil, 0},
		{"double buffer", pyfeed.CPUPlace(), []pyfeed.Place{first}, 1},
		{"pinned", first, []pyfeed.Place{first}, 2},
		{"other device", first, []pyfeed.Place{second}, 2},
		{"two devices", first, []pyfeed.Place{first, second}, 1},
		{"two devices, deeper", pyfeed.CPUPlace(), []pyfeed.Place{first, second}, 3},
	} {
		t.Run(x.what, func(t *testing.T) {
			onFake.begin(t)
			const n = 41
			q := numbers(t, x.queue, n)
			h := readers.NewHolder(sources.NewPyArrayReader(q))
			places := []pyfeed.Place{x.queue}
			if len(x.places) > 0 {
				places = x.places
				r, err := decorators.NewDoubleBufferReader(h, places, x.depth)
				fine(t, err)
				h = readers.NewHolder(r)
			}
			streams := []uint64{consumer(t, 0, true), consumer(t, 1, true)}
			var sums []fakecuda.Hashed
			for i := 0; ; i++ {
				if i == 10 { // from here on kernels are paused; one more tuple is read for each device
					for _, s := range streams {
						success(t, fakecuda.Synchronize(s))
						success(t, fakecuda.Pause(s))
					}
				}
				if i == 10+len(places) {
					if !fakecuda.Await("copies_done", int64(i), testTimeout) {
						t.Errorf("expected %d tuples to be copied while kernels are paused, found %d", i, fakecuda.Count("copies_done"))
					}
					for _, s := range streams {
						success(t, fakecuda.Resume(s))
					}
				}
				out, err := h.ReadNext(ctx)
				if err == io.EOF {
					break
				}
				fine(t, err)
				place := places[i%len(places)]
				if out.Slots[0].Place != place {
					t.Errorf("tuple %d: expected it at %v, found it at %v", i, place, out.Slots[0].Place)
				}
				stream := streams[place.Device]
				fine(t, resident(out).Use(stream))
				m := at(&out.Slots[0])
				sum, code := fakecuda.Sum(stream, m.Address, m.Bytes)
				success(t, code)
				sums = append(sums, sum)
				if i%2 == 0 {
					fine(t, resident(out).Release(stream))
				}
				out.Release()
			}
			if len(sums) != n {
				t.Errorf("expected %d tuples, found %d", n, len(sums))
			}
			for i, sum := range sums {
				if found, code := sum.Value(); code != 0 || found != fakecuda.Hash(number(i)) {
					t.Errorf("tuple %d: expected what was pushed, found other values, code %d", i, code)
				}
			}
			h.Drop()
		})
	}
}

// number returns the contents of tuple i.
func number(i int) []byte {
	b := make([]byte, 1000+37*i)
	fill(b, uint64(i))
	return b
}

// numbers makes a queue and pushes n tuples into it.
func numbers(t *testing.T, place pyfeed.Place, n int) *pyfeed.Consumer {
	t.Helper()
	scope := pyfeed.NewScope(nil)
	t.Cleanup(scope.Drop)
	v, err := scope.Var("queue")
	fine(t, err)
	q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 4, Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}}}, Place: place})
	fine(t, err)
	var pushing sync.WaitGroup
	t.Cleanup(pushing.Wait)
	pushing.Go(func() {
		for i := range n {
			from := make([]pyfeed.LoDTensor, 1)
			from[0].DType, from[0].Data = pyfeed.Uint8, number(i)
			if err := from[0].SetDims(pyfeed.Dims{int64(len(from[0].Data))}); err != nil {
				t.Error(err)
			}
			if err := q.Push(ctx, pyfeed.PassCurrent, from); err != nil {
				t.Error(fmt.Errorf("tuple %d: %w", i, err))
				return
			}
		}
		q.Close(pyfeed.PassCurrent)
	})
	return q
}

// A reader of a lost device returns the error on each call, also if there is no tuple to read and the call would
// otherwise wait.
func TestFakeReadersOfALostDevice(t *testing.T) {
	for what, places := range map[string][]pyfeed.Place{"delivery": nil, "double buffer": {pyfeed.CUDAPlace(0)}} {
		t.Run(what, func(t *testing.T) {
			onFake.begin(t)
			scope := pyfeed.NewScope(nil)
			defer scope.Drop()
			v, err := scope.Var("queue")
			fine(t, err)
			place := pyfeed.CUDAPlace(0)
			if places != nil {
				place = pyfeed.CPUPlace()
			}
			q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 4, Slots: []pyfeed.Slot{{DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}}}, Place: place})
			fine(t, err)
			h := readers.NewHolder(sources.NewPyArrayReader(q))
			if places != nil {
				r, err := decorators.NewDoubleBufferReader(h, places, 1)
				fine(t, err)
				h = readers.NewHolder(r)
			}
			defer h.Drop()
			push := func(i int) {
				from := make([]pyfeed.LoDTensor, 1)
				from[0].DType, from[0].Data = pyfeed.Uint8, number(i)
				fine(t, from[0].SetDims(pyfeed.Dims{int64(len(from[0].Data))}), q.Push(ctx, pyfeed.PassCurrent, from))
			}
			push(0)
			out, err := h.ReadNext(ctx)
			fine(t, err)
			out.Release()
			success(t, fakecuda.Break(0, 719))
			push(1)
			for range 3 {
				_, err := h.ReadNext(ctx)
				expectFault(t, "ReadNext", err, 719, "CUDA_ERROR_LAUNCH_FAILED")
			}
		})
	}
}
