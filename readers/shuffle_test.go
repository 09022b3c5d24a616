package readers

import (
	"fmt"
	"testing"
	"time"
)

// What a shuffle is for, beside its order: to have the next block when this one is used up.
func TestAShuffleReadsTheNextBlockWhileThisOneIsServed(t *testing.T) {
	scope := counted(t)
	const size = 10
	source := create(t, scope, "create_random_data_generator", "source", nil, `{"slots": [{"dtype": "int64", "dims": []}]}`)
	h := create(t, scope, "create_shuffle_reader", "shuffled", []string{"source"}, fmt.Sprintf(`{"buffer_size": %d}`, size))
	for i := range 3*size - 1 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		want := int64(i/size+2) * size // this block and the next
		for end := time.Now().Add(30 * time.Second); source.Stats().Tuples < want; {
			if time.Now().After(end) {
				t.Fatalf("after %d tuples: expected %d that are read, found %d", i+1, want, source.Stats().Tuples)
			}
		}
		if got := source.Stats().Tuples; got > want {
			t.Errorf("after %d tuples: expected %d that are read, found %d", i+1, want, got)
		}
	}
}
