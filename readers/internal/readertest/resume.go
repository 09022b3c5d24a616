package readertest

import (
	"context"
	"fmt"
	"io"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// A Chain makes the same chain of readers again and again. It returns the topmost reader, and a function that releases
// the chain. attempt is the number of chains made before: each may have another number of threads.
type Chain func(attempt int) (top *readers.ReaderHolder, close func())

// text formats all of a tuple.
func text(t *pyfeed.Tuple) (out string) {
	for i := range t.Slots {
		s := &t.Slots[i]
		out += fmt.Sprintf("%v %v %v %x|", s.DType, s.Dims(), s.LoD, s.Data)
	}
	return out + fmt.Sprint(t.Pass)
}

// step reads the next tuple; at the end of the pass it begins the next one and returns "end".
func step(t *testing.T, h *readers.ReaderHolder) string {
	t.Helper()
	tuple, err := h.ReadNext(context.Background())
	if err == io.EOF {
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		return "end"
	}
	if err != nil {
		return err.Error()
	}
	defer tuple.Release()
	return text(tuple)
}

// Steps reads so many tuples and ends of passes, and returns them as text.
func Steps(t *testing.T, h *readers.ReaderHolder, n int) (all []string) {
	t.Helper()
	for range n {
		all = append(all, step(t, h))
	}
	return all
}

// Save returns the state of a reader.
func Save(t *testing.T, h *readers.ReaderHolder) []byte {
	t.Helper()
	saved, err := h.State()
	if err != nil {
		t.Fatal(err)
	}
	return saved
}

// Resumes reads so many tuples and ends of passes from a chain, and saves the state before each. From each state it goes on
// in another chain, compares everything that follows, and goes on a second time from a state that was saved three steps
// later. It returns the size in bytes of the largest state.
func Resumes(t *testing.T, steps int, chain Chain) (largest int) {
	t.Helper()
	top, end := chain(0)
	var states [][]byte
	var all []string
	for range steps {
		states = append(states, Save(t, top))
		all = append(all, step(t, top))
		if len(all)%5 == 1 { // a tuple that was only asked for does not count
			_, _ = top.HasNext(context.Background()) // the next step returns its error
		}
	}
	end()
	for i, state := range states {
		largest = max(largest, len(state))
		if !resumes(t, fmt.Sprintf("step %d", i), state, all[i:], 2*i+1, chain, true) {
			t.Fatalf("state %s", state)
		}
	}
	return largest
}

func resumes(t *testing.T, what string, state []byte, expected []string, attempt int, chain Chain, again bool) bool {
	t.Helper()
	top, end := chain(attempt)
	defer end()
	if err := top.SetState(state, true); err != nil {
		t.Errorf("%s: %v", what, err)
		return false
	}
	var second []byte
	for k, e := range expected {
		if k == 3 && again {
			second = Save(t, top)
		}
		if found := step(t, top); found != e {
			t.Errorf("%s: tuple %d after: expected %.200s\nfound %.200s", what, k, e, found)
			return false
		}
	}
	if second == nil {
		return true
	}
	return resumes(t, what+", and 3 later", second, expected[min(3, len(expected)):], attempt+1, chain, false)
}
