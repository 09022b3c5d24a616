package ops_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

func TestAMultiPassThatIsEmptySaysSo(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 0)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	h := create(t, scope, "create_multi_pass_reader", "passes", []string{"files"}, `{"pass_num": 3}`)
	_, err := h.ReadNext(background)
	readertest.Expect(t, err, pyfeed.State, "pass 0 had no tuples")
}

// The reads that wait for the end of a pass begin the next pass.
func TestAMultiPassOverASlowQueue(t *testing.T) {
	for name, chain := range map[string][]string{
		"alone":         {"create_multi_pass_reader"},
		"shuffle above": {"create_multi_pass_reader", "create_shuffle_reader"},
		"shuffle below": {"create_shuffle_reader", "create_multi_pass_reader"},
		"batch above":   {"create_multi_pass_reader", "create_batch_reader"},
		"twice":         {"create_multi_pass_reader", "create_multi_pass_reader"},
	} {
		t.Run(name, func(t *testing.T) {
			scope, q := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Rows, Restartable: true})
			attributes := map[string]string{"create_multi_pass_reader": `{"pass_num": 3}`,
				"create_shuffle_reader": `{"buffer_size": 1}`, "create_batch_reader": `{"batch_size": 1}`}
			below, passes := "reader", int64(1)
			for i, op := range chain {
				if op == "create_multi_pass_reader" {
					passes *= 3
				}
				out := fmt.Sprint("above", i)
				create(t, scope, op, out, []string{below}, attributes[op])
				below = out
			}
			h := reader(t, scope, below)
			produced := make(chan error, 1)
			go func() {
				pass := pyfeed.PassNone
				for i := range passes {
					var err error
					if pass, err = q.WaitPass(background, pass); err != nil {
						produced <- err
						return
					}
					waiting(q, 1)
					if err = q.Push(background, pass, []pyfeed.LoDTensor{readertest.Numbers(pyfeed.Dims{1}, i)}); err != nil {
						produced <- err
						return
					}
					waiting(q, 1)
					q.Close(pass)
				}
				produced <- nil
			}()
			for i := range passes {
				if want, found := fmt.Sprintf("[1] [] [%d]", i), readertest.Next(t, h); found != want {
					t.Errorf("expected %s, found %s", want, found)
				}
			}
			if _, err := h.ReadNext(background); err != io.EOF {
				t.Errorf("expected the end, found %v", err)
			}
			q.Shutdown()
			if err := <-produced; err != nil {
				t.Error(err)
			}
		})
	}
}

// Of several consumers that wait for the end of a pass, the first begins the next pass, and the others go on in it.
func TestConsumersOfAMultiPassWaitForTheEndOfAPass(t *testing.T) {
	const passes, consumers = 4, 3
	for name, chain := range map[string][]string{
		"alone":       {"create_multi_pass_reader"},
		"batch above": {"create_multi_pass_reader", "create_batch_reader"},
		"batch below": {"create_batch_reader", "create_multi_pass_reader"},
	} {
		t.Run(name, func(t *testing.T) {
			scope, q := feed(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Rows, Restartable: true})
			attributes := map[string]string{"create_multi_pass_reader": fmt.Sprintf(`{"pass_num": %d}`, passes),
				"create_batch_reader": `{"batch_size": 1}`}
			below := "reader"
			for i, op := range chain {
				out := fmt.Sprint("above", i)
				create(t, scope, op, out, []string{below}, attributes[op])
				below = out
			}
			h := reader(t, scope, below)
			var failed atomic.Bool
			allWait := func() {
				for q.Info().WaitingConsumers != consumers && !failed.Load() {
					runtime.Gosched()
				}
			}
			var producer, ends sync.WaitGroup
			producer.Go(func() {
				pass := pyfeed.PassNone
				for i := range int64(passes) {
					var err error
					if pass, err = q.WaitPass(background, pass); err != nil {
						break
					}
					allWait()
					if err = q.Push(background, pass, []pyfeed.LoDTensor{readertest.Numbers(pyfeed.Dims{1}, i)}); err != nil {
						break
					}
					allWait()
					q.Close(pass)
				}
			})
			var mu sync.Mutex
			var found []string
			for range consumers {
				ends.Go(func() {
					for next := ""; next != "EOF" && !failed.Load(); {
						next = readertest.Next(t, h)
						mu.Lock()
						if found = append(found, next); next != "EOF" && next[0] != '[' {
							failed.Store(true)
						}
						mu.Unlock()
					}
				})
			}
			ends.Wait()
			failed.Store(true) // so that a producer that still waits for consumers ends
			q.Shutdown()
			producer.Wait()
			want := []string{"[1] [] [0]", "[1] [] [1]", "[1] [] [2]", "[1] [] [3]", "EOF", "EOF", "EOF"}
			if !slices.Equal(found, want) {
				t.Errorf("expected %q, found %q", want, found)
			}
		})
	}
}

func TestThePassOfATupleGoesWithIt(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 4)
	create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, ""))
	create(t, scope, "create_multi_pass_reader", "passes", []string{"files"}, `{"pass_num": 3}`)
	mapped := create(t, scope, "create_map_reader", "mapped", []string{"passes"}, `{}`)
	go func() {
		for w := decorators.WorkersOf(mapped); ; {
			tuple, ticket, err := w.Take(background)
			if err != nil {
				return
			}
			tuple.Pass = 0 // as if a worker had made the tuple
			if err := w.Give(ticket, tuple); err != nil {
				t.Error(err)
			}
		}
	}()
	create(t, scope, "create_batch_reader", "batches", []string{"mapped"}, `{"batch_size": 2}`)
	h := create(t, scope, "create_double_buffer_reader", "top", []string{"batches"}, `{"depth": 5}`)
	for i := range 6 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		if tuple.Pass != int64(i/2) || h.Stats().PassID != int64(i/2) {
			t.Errorf("batch %d: expected pass %d, found %d and %d", i, i/2, tuple.Pass, h.Stats().PassID)
		}
		tuple.Release()
	}
}

func TestZipEndsWithTheShortestOrRefuses(t *testing.T) {
	scope := readertest.Scope(t)
	names, _ := readertest.WriteIDs(t, 7, 10)
	create(t, scope, "open_files", "a", nil, readertest.OpenIDs(names[:1], ""))
	create(t, scope, "open_files", "b", nil, readertest.OpenIDs(names[1:], ""))
	h := create(t, scope, "create_zip_reader", "zip", []string{"a", "b"}, "")
	for range 2 {
		for i := range int64(7) {
			tuple, err := h.ReadNext(background)
			if err != nil {
				t.Fatal(err)
			}
			second := binary.NativeEndian.Uint64(tuple.Slots[2].Data)
			if got, err := readertest.IDsOf(tuple); err != nil || got[0] != i || second != uint64(7+i) || len(tuple.Slots) != 4 {
				t.Errorf("tuple %d: found %v and %d, %v", i, got, second, err)
			}
			tuple.Release()
		}
		if _, err := h.ReadNext(background); err != io.EOF {
			t.Errorf("expected the end, found %v", err)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	create(t, scope, "open_files", "a2", nil, readertest.OpenIDs(names[:1], ""))
	create(t, scope, "open_files", "b2", nil, readertest.OpenIDs(names[1:], ""))
	strict := create(t, scope, "create_zip_reader", "strict", []string{"a2", "b2"}, `{"strict": true}`)
	got, err := readertest.Drain(strict)
	if len(got) != 7 {
		t.Errorf("expected 7 tuples before, found %d", len(got))
	}
	readertest.Expect(t, err, pyfeed.State, "found an end of readers [0] and more tuples of [1]")
	err = ops.Create(scope, "create_zip_reader", "one", []string{"a"}, nil)
	readertest.Expect(t, err, pyfeed.Invalid, "expected 2 or more, found 1")
}

func TestRandomDataIsTheSameEverywhere(t *testing.T) {
	scope := readertest.Scope(t)
	h := create(t, scope, "create_random_data_generator", "random", nil,
		`{"slots": [{"dtype": "int64", "dims": [3]}], "low": -2, "high": 100, "seed": 7, "count": 2}`)
	for range 2 {
		for _, want := range []string{"[3] [] [72 49 62]", "[3] [] [1 20 58]", "EOF"} {
			if got := readertest.Next(t, h); got != want {
				t.Errorf("expected %s, found %s", want, got)
			}
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRandomDataOfEveryDTypeIsInItsRange(t *testing.T) {
	scope := readertest.Scope(t)
	for d := pyfeed.Bool; d.Valid(); d++ {
		h := create(t, scope, "create_random_data_generator", "random", nil,
			fmt.Sprintf(`{"slots": [{"dtype": %q, "dims": [1000]}], "low": 0, "high": 1, "count": 1}`, d))
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(tuple.Slots[0].Data); n != 1000*d.Size() {
			t.Errorf("%v: found %d bytes", d, n)
		}
		if d == pyfeed.Bool || d == pyfeed.Uint8 || d == pyfeed.Int8 {
			ones := 0
			for _, b := range tuple.Slots[0].Data {
				if b > 1 {
					t.Fatalf("%v: found %d", d, b)
				}
				ones += int(b)
			}
			if ones < 400 || ones > 600 {
				t.Errorf("%v: expected about 500 ones, found %d", d, ones)
			}
		}
		tuple.Release()
	}
	readertest.Expect(t, ops.Create(scope, "create_random_data_generator", "x", nil, []byte(`{"slots": [{"dtype": "uint8", "dims": [1]}], "high": 256}`)),
		pyfeed.Invalid, "expected a range within 0 to 255 for uint8")
	readertest.Expect(t, ops.Create(scope, "create_random_data_generator", "x", nil, []byte(`{"slots": [{"dtype": "uint8", "dims": [-1]}]}`)),
		pyfeed.Shape, "expected a size, found -1")
}

// A shuffle reads the next block while the current one is delivered.
func TestAShuffleReadsTheNextBlockWhileThisOneIsServed(t *testing.T) {
	scope := readertest.Scope(t)
	const size = 10
	source := create(t, scope, "create_random_data_generator", "source", nil, `{"slots": [{"dtype": "int64", "dims": []}]}`)
	h := create(t, scope, "create_shuffle_reader", "shuffled", []string{"source"}, fmt.Sprintf(`{"buffer_size": %d}`, size))
	for i := range 3*size - 1 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		want := int64(i/size+2) * size // the current block and the next
		for end := time.Now().Add(30 * time.Second); source.Stats().Tuples < want; {
			if time.Now().After(end) {
				t.Fatalf("after %d tuples: expected %d tuples to be read, found %d", i+1, want, source.Stats().Tuples)
			}
		}
		if got := source.Stats().Tuples; got > want {
			t.Errorf("after %d tuples: expected %d tuples to be read, found %d", i+1, want, got)
		}
	}
}
