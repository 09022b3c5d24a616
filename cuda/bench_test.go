package cuda

import (
	"runtime"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// batch sends a tuple of 4 KiB to the device and releases it there.
func batch(tb testing.TB, s *Stager, stream uint64) {
	in := pyfeed.NewTuple(1)
	shape(tb, in, 0, pyfeed.Uint8, 4096)
	if err := s.Take(in); err != nil {
		tb.Fatal(err)
	}
	out := send(tb, s, in)
	r := resident(out)
	if err := r.Use(stream); err != nil {
		tb.Fatal(err)
	}
	if err := r.Release(stream); err != nil {
		tb.Fatal(err)
	}
	out.Release()
}

func TestNothingIsAllocated(t *testing.T) {
	each(t, func(t *testing.T, k kind) {
		d := k.device(t, nil)
		s := newStager(d, 2)
		defer s.Close()
		stream, err := d.port.NewStream()
		fine(t, err)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for range 100 { // until all buffers and events exist
			batch(t, s, stream)
		}
		if n := testing.AllocsPerRun(200, func() { batch(t, s, stream) }); n != 0 {
			t.Errorf("expected no allocation per batch, found %v", n)
		}
		fine(t, d.port.DestroyStream(stream))
	})
}

// BenchmarkPutNext measures the cost of a batch on the host, with an emulated device.
func BenchmarkPutNext(b *testing.B) {
	onEmulation.begin(b)
	s := newStager(onEmulation.device(b, nil), 2)
	defer s.Close()
	b.ReportAllocs()
	for b.Loop() {
		batch(b, s, 1)
	}
}
