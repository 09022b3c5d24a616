package permutation

import (
	"math"
	"slices"
	"testing"
)

func TestFeistelIsAPermutation(t *testing.T) {
	for _, n := range []uint64{1, 2, 3, 4, 5, 16, 17, 1000, 1 << 16, 1<<16 + 1, 100_003} {
		p, seen := NewFeistel(n, 1, 2), make([]bool, n)
		for i := range n {
			j := p.At(i)
			if seen[j] {
				t.Fatalf("%d numbers: %d is there twice", n, j)
			}
			seen[j] = true
		}
	}
}

// The order must never change, so that saved positions stay valid.
func TestFeistelIsFixed(t *testing.T) {
	for _, test := range []struct {
		n, seed, pass uint64
		want          []uint64
	}{
		{10, 0, 0, []uint64{5, 4, 8, 0, 1}},
		{1_000_000, 1, 0, []uint64{507606, 962076, 68176, 346920, 330175}},
		{1_000_000, 1, 1, []uint64{3801, 416941, 299957, 145746, 493187}},
		{math.MaxUint64, math.MaxUint64, math.MaxUint64, []uint64{9744229808425097686, 5453803631750169922, 5289540780402761639,
			13238075337070193390, 10053669366832101521}},
	} {
		p := NewFeistel(test.n, test.seed, test.pass)
		var found []uint64
		for i := range uint64(5) {
			found = append(found, p.At(i))
		}
		if !slices.Equal(found, test.want) {
			t.Errorf("%d numbers, seed %d, pass %d: expected %d, found %d", test.n, test.seed, test.pass, test.want, found)
		}
	}
}

// In a random permutation, the correlation of i and its image is near 0, and about one element is at its own place.
func TestFeistelMixes(t *testing.T) {
	const n = 1 << 16
	for seed := range uint64(8) {
		p := NewFeistel(n, seed, 3)
		var sum float64
		fixed, neighbours := 0, 0
		for i := range uint64(n) {
			j := p.At(i)
			sum += (float64(i) - n/2) * (float64(j) - n/2)
			if i == j {
				fixed++
			}
			if i > 0 && p.At(i-1)+1 == j {
				neighbours++
			}
		}
		correlation := sum / n / (n * n / 12)
		if math.Abs(correlation) > 0.02 || fixed > 8 || neighbours > 8 {
			t.Errorf("seed %d: correlation %.3f, %d fixed points, %d neighbours that stayed neighbours", seed, correlation, fixed, neighbours)
		}
	}
}

func TestFeistelRefusesNumbersBehindItsEnd(t *testing.T) {
	defer func() {
		if fault := recover(); fault != "expected a number below 3, found 3" {
			t.Errorf("found %v", fault)
		}
	}()
	NewFeistel(3, 0, 0).At(3)
}

func BenchmarkFeistel(b *testing.B) {
	p := NewFeistel(1_500_000_000, 1, 2)
	i := uint64(0)
	for b.Loop() {
		p.At(i)
		i++
	}
}
