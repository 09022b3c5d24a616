package ops_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	_ "github.com/pyfeed/pyfeed/cuda" // emulated in host memory
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func init() { _ = os.Setenv("PYFEED_CUDA", "host") }

// counting fills a queue at a place with tuples of one number each, from 0 on, and closes it.
func counting(t *testing.T, scope *pyfeed.Scope, place pyfeed.Place, n int) *pyfeed.Consumer {
	t.Helper()
	v, err := scope.Var("queue")
	if err != nil {
		t.Fatal(err)
	}
	q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 4, Slots: []pyfeed.Slot{{DType: pyfeed.Int64}}, Place: place})
	if err != nil {
		t.Fatal(err)
	}
	wait.Go(func() {
		for i := range n {
			from := make([]pyfeed.LoDTensor, 1)
			from[0].DType, from[0].Data = pyfeed.Int64, binary.NativeEndian.AppendUint64(nil, uint64(i))
			if err := q.Push(context.Background(), pyfeed.PassCurrent, from); err != nil {
				return // the test has ended
			}
		}
		q.Close(pyfeed.PassCurrent)
	}, func(fault error) { panic(fault) })
	return q
}

// build runs operators, each of which reads the reader before it, and returns the last reader.
func build(t *testing.T, scope *pyfeed.Scope, steps ...string) *readers.ReaderHolder {
	t.Helper()
	var ins []string
	for i, op := range steps {
		name, attributes, _ := strings.Cut(op, " ")
		out := fmt.Sprint("r", i)
		if err := ops.Create(scope, name, out, ins, []byte(attributes)); err != nil {
			t.Fatal(err)
		}
		ins = []string{out}
	}
	h, err := readers.FindHolder(scope, ins[0])
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// placed reads at most limit tuples, and returns "places: numbers" for each.
func placed(t *testing.T, h *readers.ReaderHolder, limit int) (out []string) {
	t.Helper()
	for len(out) < limit {
		tuple, err := h.ReadNext(context.Background())
		if err == io.EOF {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		s := &tuple.Slots[0]
		data := make([]byte, len(s.Data))
		if r := s.Resident(); r != nil {
			if err := r.Use(1); err != nil {
				t.Fatal(err)
			}
			if err := r.Download(data, s.Data); err != nil {
				t.Fatal(err)
			}
		} else {
			copy(data, s.Data)
		}
		var all []string
		for i := 0; i < len(data); i += 8 {
			all = append(all, fmt.Sprint(binary.NativeEndian.Uint64(data[i:])))
		}
		out = append(out, s.Place.String()+": "+strings.Join(all, " "))
		tuple.Release()
	}
	return out
}

func left(t *testing.T) {
	t.Helper()
	end := time.Now().Add(10 * time.Second)
	for { // the copy thread releases the memory of the last tuple
		s := memory.Count()
		if s.Slabs == [len(s.Slabs)]int64{} {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("expected no pinned or device memory, found %v", s.Slabs)
		}
		runtime.Gosched()
	}
}

const (
	fromQueue = `create_py_array_reader {"feeder_name": "queue"}`
	gpu0      = `{"kind": 1, "device": 0}`
)

func TestTuplesComeOutAtTheirPlace(t *testing.T) {
	cases := []struct {
		name  string
		place pyfeed.Place
		ops   []string
		want  string
	}{
		{"a queue's reader", pyfeed.CUDAPlace(0), []string{fromQueue}, "CUDAPlace(0): 0; CUDAPlace(0): 1; CUDAPlace(0): 2; CUDAPlace(0): 3; CUDAPlace(0): 4"},
		{"batches of a queue", pyfeed.CUDAPlace(1), []string{fromQueue, `create_batch_reader {"batch_size": 2}`}, "CUDAPlace(1): 0 1; CUDAPlace(1): 2 3; CUDAPlace(1): 4"},
		{"double_buffer", pyfeed.CPUPlace(), []string{fromQueue, `create_batch_reader {"batch_size": 2}`, `create_double_buffer_reader {"place": ` + gpu0 + `}`},
			"CUDAPlace(0): 0 1; CUDAPlace(0): 2 3; CUDAPlace(0): 4"},
		{"both", pyfeed.CUDAPlace(0), []string{fromQueue, `create_shard_reader {"rank": 0, "world": 2}`, `create_double_buffer_reader {"place": ` + gpu0 + `, "depth": 1}`},
			"CUDAPlace(0): 0; CUDAPlace(0): 2; CUDAPlace(0): 4"},
		{"a double_buffer on the host of what is meant for a device", pyfeed.CUDAPlace(0), []string{fromQueue, `create_double_buffer_reader`, `create_batch_reader {"batch_size": 5}`},
			"CUDAPlace(0): 0 1 2 3 4"},
		{"two places", pyfeed.CPUPlace(), []string{fromQueue, `create_double_buffer_reader {"place": [` + gpu0 + `, {"kind": 1, "device": 1}], "depth": 1}`},
			"CUDAPlace(0): 0; CUDAPlace(1): 1; CUDAPlace(0): 2; CUDAPlace(1): 3; CUDAPlace(0): 4"},
		{"pinned memory", pyfeed.CPUPlace(), []string{fromQueue, `create_double_buffer_reader {"place": {"kind": 2, "device": 0}}`},
			"CUDAPinnedPlace(): 0; CUDAPinnedPlace(): 1; CUDAPinnedPlace(): 2; CUDAPinnedPlace(): 3; CUDAPinnedPlace(): 4"},
		{"a queue in pinned memory", pyfeed.CUDAPinnedPlace(), []string{fromQueue, `create_batch_reader {"batch_size": 3}`},
			"CUDAPinnedPlace(): 0 1 2; CUDAPinnedPlace(): 3 4"},
		{"a map of a queue", pyfeed.CUDAPlace(0), []string{fromQueue, `create_map_reader`},
			"CUDAPlace(0): 0; CUDAPlace(0): 1; CUDAPlace(0): 2; CUDAPlace(0): 3; CUDAPlace(0): 4"},
		{"multi_pass above", pyfeed.CPUPlace(), []string{fromQueue, `create_double_buffer_reader {"place": ` + gpu0 + `}`, `create_multi_pass_reader {"pass_num": 1}`},
			"CUDAPlace(0): 0; CUDAPlace(0): 1; CUDAPlace(0): 2; CUDAPlace(0): 3; CUDAPlace(0): 4"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			defer left(t)
			scope := pyfeed.NewScope(nil)
			defer scope.Drop()
			q := counting(t, scope, c.place, 5)
			defer q.Drop()
			h := build(t, scope, c.ops...)
			defer h.Drop()
			if w := decorators.WorkersOf(h); w != nil {
				wait.Go(func() {
					for {
						in, ticket, err := w.Take(context.Background())
						if err != nil {
							return // the reader is closed
						}
						if err := w.Give(ticket, in); err != nil {
							t.Error(err)
						}
					}
				}, func(fault error) { panic(fault) })
			}
			if found := strings.Join(placed(t, h, 100), "; "); found != c.want {
				t.Errorf("expected %s, found %s", c.want, found)
			}
		})
	}
}

// Batches for a device are written once, to the memory that the device copies from.
func TestBatchesAreWrittenIntoPinnedMemory(t *testing.T) {
	defer left(t)
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	q := counting(t, scope, pyfeed.CPUPlace(), 4)
	defer q.Drop()
	h := build(t, scope, fromQueue, `create_batch_reader {"batch_size": 2}`, `create_double_buffer_reader {"place": `+gpu0+`}`)
	defer h.Drop()
	below, err := readers.FindHolder(scope, "r1")
	if err != nil {
		t.Fatal(err)
	}
	defer below.Drop()
	batch, err := below.ReadNext(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer batch.Release()
	if _, is := batch.Pinned(); !is {
		t.Error("expected a batch in pinned memory")
	}
}

func TestDeviceReadersStartOver(t *testing.T) {
	defer left(t)
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	h := build(t, scope, `create_random_data_generator {"slots": [{"dtype": "int64", "dims": [2]}], "high": 100, "count": 7, "seed": 3}`,
		`create_double_buffer_reader {"place": [`+gpu0+`, {"kind": 1, "device": 1}]}`)
	defer h.Drop()
	var passes [][]string
	for _, limit := range []int{100, 3, 1, 100} { // the second and third pass are cut short
		passes = append(passes, placed(t, h, limit))
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	if len(passes[0]) != 7 || len(passes[3]) != 7 {
		t.Fatalf("expected 7 tuples a pass, found %d and %d", len(passes[0]), len(passes[3]))
	}
	for i, p := range passes {
		for k, text := range p {
			if want := fmt.Sprintf("CUDAPlace(%d): ", k%2); !strings.HasPrefix(text, want) {
				t.Errorf("pass %d, tuple %d: expected %s, found %s", i, k, want, text)
			}
		}
	}
	if has, err := h.HasNext(context.Background()); !has || err != nil {
		t.Errorf("expected a next tuple, found %v, %v", has, err)
	}
}

func TestDecoratorsOverDeviceTuplesAreRefused(t *testing.T) {
	defer left(t)
	for _, op := range []string{`create_batch_reader {"batch_size": 2}`, `create_shuffle_reader {"buffer_size": 2}`, `create_shard_reader {"rank": 0, "world": 1}`,
		`create_double_buffer_reader`, `create_map_reader`} {
		name, attributes, _ := strings.Cut(op, " ")
		scope := pyfeed.NewScope(nil)
		h := build(t, scope, `create_random_data_generator {"slots": [{"dtype": "int64", "dims": [2]}]}`, `create_double_buffer_reader {"place": `+gpu0+`}`)
		err := ops.Create(scope, name, "out", []string{"r1"}, []byte(attributes))
		want := name + ": expected a reader of tuples in the host's memory, found one whose tuples are at CUDAPlace(0)"
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("expected %q, found %v", want, err)
		}
		if err := ops.Create(scope, "create_zip_reader", "out", []string{"r0", "r1"}, nil); err == nil {
			t.Error("expected a zip to be refused")
		}
		h.Drop()
		scope.Drop()
	}
}

func TestPlacesThatAreNone(t *testing.T) {
	defer left(t)
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	build(t, scope, `create_random_data_generator {"slots": [{"dtype": "int64", "dims": [2]}]}`).Drop()
	for attributes, want := range map[string]string{
		`{"place": {"kind": 1, "device": 99}}`:                "CUDAPlace(99): expected a device from 0 to 7",
		`{"place": {"kind": 7, "device": 0}}`:                 "found kind 7, device 0",
		`{"place": {"kind": 0, "device": 1}}`:                 "found kind 0, device 1",
		`{"place": []}`:                                       "place: expected at least 1, found 0",
		`{"place": [` + gpu0 + `, {"kind": 0, "device": 0}]}`: "expected devices where there are several, found CPUPlace()",
		`{"place": {"kind": 1, "devise": 0}}`:                 "devise",
	} {
		if err := ops.Create(scope, "create_double_buffer_reader", "out", []string{"r0"}, []byte(attributes)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: expected %q, found %v", attributes, want, err)
		}
	}
}

// A reader that is dropped releases the tuples that it has read ahead; a tuple that was read stays valid.
func TestDeviceTuplesOutliveTheirReader(t *testing.T) {
	defer left(t)
	scope := pyfeed.NewScope(nil)
	h := build(t, scope, `create_random_data_generator {"slots": [{"dtype": "int64", "dims": [1000]}], "high": 100}`, `create_double_buffer_reader {"place": `+gpu0+`, "depth": 3}`)
	tuple, err := h.ReadNext(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	h.Drop()
	scope.Drop()
	s := &tuple.Slots[0]
	data := make([]byte, len(s.Data))
	if err := s.Resident().Download(data, s.Data); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(data); i += 8 {
		if v := binary.NativeEndian.Uint64(data[i:]); v > 100 {
			t.Fatalf("expected a number up to 100, found %d", v)
		}
	}
	if at := uintptr(unsafe.Pointer(unsafe.SliceData(s.Data))); at%memory.SourceAlignment != 0 {
		t.Errorf("expected an aligned tensor, found %#x", at)
	}
	tuple.Release()
}
