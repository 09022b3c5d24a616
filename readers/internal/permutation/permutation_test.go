package permutation

import (
	"fmt"
	"testing"
)

// One seed gives one order, on every machine and with every release.
func TestThePermutationIsSpecified(t *testing.T) {
	permuted := func(seed, pass, block uint64) []int {
		numbers := make([]int, 12)
		for i := range numbers {
			numbers[i] = i
		}
		Permute(numbers, seed, pass, block, nil)
		return numbers
	}
	for _, c := range []struct {
		seed, pass, block uint64
		want              string
	}{
		{0, 0, 0, "[7 8 11 4 0 5 10 6 3 1 9 2]"}, {1, 0, 0, "[5 1 3 6 4 0 2 8 11 9 7 10]"}, {1, 1, 0, "[6 9 1 10 3 11 7 4 0 5 2 8]"}, {1, 0, 1, "[11 1 4 3 2 6 7 0 10 8 5 9]"},
	} {
		if got := fmt.Sprint(permuted(c.seed, c.pass, c.block)); got != c.want {
			t.Errorf("seed %d, pass %d, block %d: expected %s, found %s", c.seed, c.pass, c.block, c.want, got)
		}
	}
}
