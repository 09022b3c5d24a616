package number

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strconv"
	"testing"
)

func TestQuotientRoundsAsStrconv(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	check := func(m uint64, k int) {
		s := fmt.Sprintf("%de-%d", m, k)
		if want, _ := strconv.ParseFloat(s, 64); Quotient[float64](m, k) != want {
			t.Fatalf("%s: expected %v, found %v", s, want, Quotient[float64](m, k))
		}
		if want, _ := strconv.ParseFloat(s, 32); Quotient[float32](m, k) != float32(want) {
			t.Fatalf("%s: expected the float32 %v, found %v", s, want, Quotient[float32](m, k))
		}
	}
	random := 20_000
	if testing.Short() {
		random = 2_000
	}
	for k := range Powers {
		for _, m := range []uint64{0, 1, 9, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1 << 63, 1<<63 + 1, 1<<63 + 1<<10, math.MaxUint64, Powers[k], Powers[k] - 1, Powers[k] + 1} {
			check(m, k)
		}
		for range random {
			check(rng.Uint64()>>rng.IntN(64), k)
		}
		// The middle of two floats and its neighbours: odd numbers times a power of five, divided by a power of ten.
		for _, width := range []int{24, 53} {
			five := new(big.Int).Exp(big.NewInt(5), big.NewInt(int64(k)), nil)
			for range 1000 {
				middle := new(big.Int).SetUint64(rng.Uint64()>>(64-width)<<1 | 1<<width | 1)
				if middle.Mul(middle, five); middle.BitLen() > 64 {
					break
				}
				m := middle.Uint64()
				for _, n := range []uint64{m - 1, m, m + 1} {
					check(n, k)
					check(n<<(64-middle.BitLen()), k)
				}
			}
		}
	}
}
