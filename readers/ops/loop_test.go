package ops_test

import (
	"fmt"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/sources"
)

// makeReader is create with the readers below as last arguments.
func makeReader(t *testing.T, scope *pyfeed.Scope, op, out, attributes string, in ...string) *readers.ReaderHolder {
	t.Helper()
	return create(t, scope, op, out, in, attributes)
}

var oneNumber = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{1}}}

func TestLoopsAreNoted(t *testing.T) {
	const end, first, second = "EOF", "[1] [] [0]", "[1] [] [1]"
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 8, Slots: oneNumber})
	push := func(values ...int64) {
		for _, v := range values {
			readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, v))
		}
		q.Close(pyfeed.PassCurrent)
	}
	begin := func(h *readers.ReaderHolder) {
		t.Helper()
		if _, err := h.BeginLoop(); err != nil {
			t.Fatal(err)
		}
	}
	next := func(h *readers.ReaderHolder, want string) {
		t.Helper()
		if found := readertest.Next(t, h); found != want {
			t.Errorf("expected %s, found %s", want, found)
		}
	}

	one := readertest.Hold(t, sources.NewPyArrayReader(q.Retain()), nil)
	push(0, 1)
	next(one, first)
	begin(one) // goes on at the current position
	next(one, second)
	next(one, end)
	refused := "cannot start over"
	readertest.Expect(t, loopError(one), pyfeed.State, refused)
	readertest.Expect(t, loopError(one), pyfeed.State, refused) // a refused loop changes nothing
	other := readertest.Hold(t, sources.NewPyArrayReader(q.Retain()), nil)
	readertest.Expect(t, loopError(other), pyfeed.State, refused) // a loop over the queue's pass has begun
	if _, _, err := q.Reopen(); err != nil {
		t.Fatal(err)
	}
	push(0, 1)
	begin(other)
	next(other, first)
	one.JoinLoop()
	next(one, second)
	next(other, end)
}

// The first loop over a new chain above a reader that was looped over begins that reader's next pass.
func TestALoopOverANewChain(t *testing.T) {
	scope := readertest.Scope(t)
	base := makeReader(t, scope, "create_random_data_generator", "base", `{"slots": [{"dtype": "int64", "dims": [1]}], "count": 5}`)
	shuffled := makeReader(t, scope, "create_shuffle_reader", "shuffled", `{"buffer_size": 5}`, "base")
	for i := range 3 {
		top := makeReader(t, scope, "create_batch_reader", fmt.Sprint("top", i), `{"batch_size": 2}`, "shuffled")
		if _, err := top.BeginLoop(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if found := readertest.Next(t, top); found == "EOF" {
				t.Fatalf("chain %d: found the end", i)
			}
		}
		if found := readertest.Next(t, top); found != "EOF" {
			t.Fatalf("chain %d: expected the end, found %s", i, found)
		}
	}
	for _, h := range []*readers.ReaderHolder{base, shuffled} {
		if s := h.Stats(); s.Passes != 3 {
			t.Errorf("expected 3 passes, found %d", s.Passes)
		}
	}
}

// A refused reset keeps the tuples that were read ahead.
func TestARefusedResetDropsNothing(t *testing.T) {
	for _, op := range []string{"create_double_buffer_reader", "create_shuffle_reader", "create_zip_reader"} {
		t.Run(op, func(t *testing.T) {
			scope := readertest.Scope(t)
			v, err := scope.Var("queue")
			if err != nil {
				t.Fatal(err)
			}
			q, err := v.InitQueue(pyfeed.QueueOptions{Capacity: 8, Slots: oneNumber})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(q.Drop)
			makeReader(t, scope, "create_py_array_reader", "below", `{"feeder_name": "queue"}`)
			attributes, in := "{}", []string{"below"}
			switch op {
			case "create_shuffle_reader":
				attributes = `{"buffer_size": 2}`
			case "create_zip_reader":
				makeReader(t, scope, "create_random_data_generator", "data", `{"slots": [{"dtype": "int64", "dims": [1]}]}`)
				in = append(in, "data")
			}
			top := makeReader(t, scope, op, "top", attributes, in...)
			for i := range 4 {
				readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{1}, int64(i)))
			}
			q.Close(pyfeed.PassCurrent)
			if found := readertest.Next(t, top); found == "EOF" {
				t.Fatal("found the end")
			}
			readertest.Expect(t, top.ReInit(), pyfeed.State, "cannot start over")
			for i := range 3 {
				if found := readertest.Next(t, top); found == "EOF" {
					t.Fatalf("lost %d tuples", 3-i)
				}
			}
		})
	}
}

func TestLengths(t *testing.T) {
	data := func(count int64) string {
		return fmt.Sprintf(`{"slots": [{"dtype": "uint8", "dims": [1]}], "count": %d}`, count)
	}
	type step struct{ op, attributes string }
	batch := func(size int, drop bool) step {
		return step{"create_batch_reader", fmt.Sprintf(`{"batch_size": %d, "drop_last": %v}`, size, drop)}
	}
	for name, c := range map[string]struct {
		source string
		above  []step
		length int64
	}{
		"none":                 {data(0), nil, 0},
		"some":                 {data(10), nil, 10},
		"endless":              {data(-1), nil, readers.Endless},
		"batch":                {data(10), []step{batch(4, false)}, 3},
		"batch, exactly":       {data(12), []step{batch(4, false)}, 3},
		"drop_last":            {data(10), []step{batch(4, true)}, 2},
		"endless batches":      {data(-1), []step{batch(4, true)}, readers.Endless},
		"shuffle":              {data(10), []step{{"create_shuffle_reader", `{"buffer_size": 3}`}}, 10},
		"double_buffer":        {data(10), []step{{"create_double_buffer_reader", `{}`}}, 10},
		"map":                  {data(10), []step{{"create_map_reader", `{}`}}, 10},
		"first shard":          {data(10), []step{{"create_shard_reader", `{"rank": 0, "world": 3}`}}, 4},
		"last shard":           {data(10), []step{{"create_shard_reader", `{"rank": 2, "world": 3}`}}, 3},
		"no tuple for a shard": {data(2), []step{{"create_shard_reader", `{"rank": 2, "world": 3}`}}, 0},
		"passes":               {data(10), []step{{"create_multi_pass_reader", `{"pass_num": 3}`}, batch(4, false)}, 8},
		"batches in passes":    {data(10), []step{batch(4, false), {"create_multi_pass_reader", `{"pass_num": 3}`}}, 9},
		"endless passes":       {data(10), []step{{"create_multi_pass_reader", `{}`}}, readers.Endless},
		"too many passes":      {data(10), []step{{"create_multi_pass_reader", `{"pass_num": 4611686018427387904}`}}, readers.Endless},
	} {
		t.Run(name, func(t *testing.T) {
			scope := readertest.Scope(t)
			h := makeReader(t, scope, "create_random_data_generator", "0", c.source)
			for i, s := range c.above {
				h = makeReader(t, scope, s.op, fmt.Sprint(i+1), s.attributes, fmt.Sprint(i))
			}
			if n := h.Length(); n != c.length {
				t.Errorf("expected %d, found %d", c.length, n)
			}
		})
	}

	scope := readertest.Scope(t)
	short := makeReader(t, scope, "create_random_data_generator", "short", data(3))
	endless := makeReader(t, scope, "create_random_data_generator", "endless", data(-1))
	if n := makeReader(t, scope, "create_zip_reader", "zip", "", "endless", "short").Length(); n != 3 || short.Length() != 3 {
		t.Errorf("zip: found %d", n)
	}
	if s := endless.Stats(); s.Length == nil || *s.Length != -1 {
		t.Errorf("endless: found %v", s.Length)
	}
}

func loopError(h *readers.ReaderHolder) error {
	_, err := h.BeginLoop()
	return err
}

// A call of a loop that comes after a reset takes nothing of the new pass.
func TestALoopEndsWithItsPass(t *testing.T) {
	h := makeReader(t, readertest.Scope(t), "create_random_data_generator", "base", `{"slots": [{"dtype": "int64", "dims": [1]}], "count": 5}`)
	old := h.JoinLoop()
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	_, err := h.ReadNextInLoop(t.Context(), old)
	readertest.Expect(t, err, pyfeed.Cancelled, "was reset")
	if s := h.Stats(); s.Tuples != 0 {
		t.Errorf("expected no tuple, found %d", s.Tuples)
	}
	tuple, err := h.ReadNextInLoop(t.Context(), h.JoinLoop())
	if err != nil {
		t.Fatal(err)
	}
	tuple.Release()
}
