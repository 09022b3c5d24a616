package readers_test

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
)

// A number of tuples of all processes that they cannot share is an error, not a rounded position.
func TestTuplesOfAProcess(t *testing.T) {
	shards := readers.VirtualShards{Total: 48, Rank: 3, World: 8}
	if n, err := shards.OfProcess(24); n != 3 || err != nil {
		t.Errorf("expected 3 tuples, found %d, %v", n, err)
	}
	_, err := shards.OfProcess(20)
	if !pyfeed.IsKind(err, pyfeed.State) || err.Error() != "state: expected a position that the number of processes, 8, divides, found 20 tuples" {
		t.Errorf("found %v", err)
	}
	for _, whole := range []readers.VirtualShards{{}, {Total: 48, World: 8, Batched: true}} {
		if n, err := whole.OfProcess(20); n != 20 || err != nil {
			t.Errorf("%v: expected 20 tuples, found %d, %v", whole, n, err)
		}
	}
}
