package program

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	_ "github.com/pyfeed/pyfeed/cuda" // for devices emulated in host memory
	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/staging"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func init() { _ = os.Setenv("PYFEED_CUDA", "host") }

func executorAt(t *testing.T, place pyfeed.Place) *Executor {
	t.Helper()
	e, err := NewExecutor(place)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Drop)
	return e
}

// deviceReader makes a reader of 5 tuples on a device in the variable "r".
func deviceReader(t *testing.T, scope *pyfeed.Scope, device int) {
	t.Helper()
	err := ops.Create(scope, "create_random_data_generator", "below", nil, []byte(`{"slots": [{"dtype": "int64", "dims": [4]}], "high": 1000, "count": 5}`))
	if err == nil {
		err = ops.Create(scope, "create_double_buffer_reader", "r", []string{"below"}, fmt.Appendf(nil, `{"place": {"kind": 1, "device": %d}}`, device))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// onDevice downloads a tensor from a device.
func onDevice(t *testing.T, s *pyfeed.LoDTensor) (out []int64) {
	t.Helper()
	data := make([]byte, len(s.Data))
	if err := s.Resident().Download(data, s.Data); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(data); i += 8 {
		out = append(out, int64(binary.NativeEndian.Uint64(data[i:])))
	}
	return out
}

func TestAProgramAtADevice(t *testing.T) {
	place := pyfeed.CUDAPlace(1)
	var seen [][]int64
	kernel(t, "look", func(_ context.Context, c *Call) error {
		if c.Place() != place || c.Stream() == 0 || c.Ins[0].Place != place || !c.Ins[0].OnDevice() {
			t.Errorf("expected a tensor and a stream at %v, found %v at %v, stream %d", place, c.Ins[0].Place, c.Place(), c.Stream())
		}
		seen = append(seen, onDevice(t, c.Ins[0]))
		return nil
	})
	scope := scopeOf(t)
	deviceReader(t, scope, 1)
	b := build(t)
	b.persistable("r", desc.Reader)
	b.tensor("x")
	b.tensor("has")
	b.op("has_next", names("r"), names("has"))
	b.while("has", func(b *builder) {
		b.op("read", names("r"), names("x"))
		b.call("look", names("x"), nil)
		b.op("has_next", names("r"), names("has"))
	})
	if _, err := executorAt(t, place).Run(background, b.p, scope, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 5 || slices.Equal(seen[0], seen[1]) {
		t.Fatalf("expected 5 tuples, found %v", seen)
	}
}

func TestDeviceTensorsAreForKernelsOnly(t *testing.T) {
	place := pyfeed.CUDAPlace(0)
	in := "expected a tensor in the host's memory, found one at CUDAPlace(0)"
	kernel(t, "write", func(context.Context, *Call) error { return nil })
	cases := map[string]func(b *builder){
		"less_than":  func(b *builder) { b.tensor("y"); b.op("less_than", names("x", "x"), names("y")) },
		"increment":  func(b *builder) { b.op("increment", names("x"), names("x")) },
		"increment2": func(b *builder) { b.tensor("y"); b.op("increment", names("x"), names("y")) },
		"in place":   func(b *builder) { b.call("write", names("x"), names("x")) },
		"stage": func(b *builder) {
			b.variable(&desc.Variable{Name: "s", Kind: desc.Stage})
			b.op("stage", names("x"), names("s"))
		},
	}
	for name, add := range cases {
		t.Run(name, func(t *testing.T) {
			scope := scopeOf(t)
			deviceReader(t, scope, 0)
			b := build(t)
			b.persistable("r", desc.Reader)
			b.tensor("x")
			b.op("read", names("r"), names("x"))
			add(b)
			_, err := executorAt(t, place).Run(background, b.p, scope, nil, nil, nil)
			if err == nil || !strings.Contains(err.Error(), in) {
				t.Errorf("expected %q, found %v", in, err)
			}
		})
	}
	t.Run("another place", func(t *testing.T) {
		for _, at := range []pyfeed.Place{pyfeed.CPUPlace(), pyfeed.CUDAPlace(1)} {
			scope := scopeOf(t)
			deviceReader(t, scope, 0)
			b := build(t)
			b.persistable("r", desc.Reader)
			b.tensor("x")
			b.op("read", names("r"), names("x"))
			_, err := executorAt(t, at).Run(background, b.p, scope, nil, nil, nil)
			want := fmt.Sprintf("expected tuples at %v, where the executor is, found one at CUDAPlace(0); the tuple is lost", at)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("expected %q, found %v", want, err)
			}
		}
	})
}

func TestFetchesFromADevice(t *testing.T) {
	scope := scopeOf(t)
	deviceReader(t, scope, 0)
	b := build(t)
	b.persistable("r", desc.Reader)
	b.tensor("x")
	b.tensor("y")
	b.op("read", names("r"), names("x"))
	b.op("assign", names("x"), names("y"))
	b.op("print", names("y"), nil)
	out, err := executorAt(t, pyfeed.CUDAPlace(0)).Run(background, b.p, scope, nil, nil, names("x", "y"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Release()
	if x, y := onDevice(t, &out.Slots[0]), onDevice(t, &out.Slots[1]); !slices.Equal(x, y) || len(x) != 4 {
		t.Errorf("expected the same four numbers, found %v and %v", x, y)
	}
}

func TestStagingAtADevice(t *testing.T) {
	place := pyfeed.CUDAPlace(2)
	buffer, err := staging.Get(place, 3, 0)
	if err != nil {
		t.Fatal(err)
	}
	b := build(t)
	b.tensor("x")
	b.tensor("y")
	b.variable(&desc.Variable{Name: "s", Kind: desc.Stage})
	b.op("stage", names("x"), names("s"))
	b.op("unstage", names("s"), names("y"))
	e := executorAt(t, place)
	for i := range 20 {
		feeds := pyfeed.NewTuple(1)
		feeds.Slots[0] = of(pyfeed.Dims{3}, int64(i), int64(i+1), int64(i+2))
		out, err := e.Run(background, b.p, scopeOf(t), names("x"), feeds, names("y"))
		if err != nil {
			t.Fatal(err)
		}
		if got := onDevice(t, &out.Slots[0]); !slices.Equal(got, []int64{int64(i), int64(i + 1), int64(i + 2)}) || out.Slots[0].Place != place {
			t.Fatalf("run %d: wrong tensor: %v at %v", i, got, out.Slots[0].Place)
		}
		out.Release()
	}
	if n := buffer.Clear(); n != 0 {
		t.Errorf("expected an empty buffer, found %d tuples", n)
	}
}
