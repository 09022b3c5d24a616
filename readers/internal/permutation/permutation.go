// Package permutation has the permutations of shuffles. Both functions are specified to the bit and never change: on
// every machine and with every release, the order is a function of the seed, the pass and the block.
package permutation

import (
	"math/bits"
	"math/rand/v2"
)

// pollEvery is how many elements are permuted between two polls of done.
const pollEvery = 1 << 18

// Permute is the Fisher-Yates shuffle. It is driven by PCG-DXSM, which Go specifies to the bit, and by Lemire's bounded
// numbers ("Fast Random Integer Generation in an Interval", 2019), so that no release of Go changes the order. When
// done is closed, it stops halfway.
func Permute[T any](all []T, seed, pass, block uint64, done <-chan struct{}) {
	random := rand.NewPCG(seed, Mix(pass)+block)
	for i := uint64(len(all)); i > 1; i-- {
		if i%pollEvery == 0 {
			select {
			case <-done:
				return
			default:
			}
		}
		high, low := bits.Mul64(random.Uint64(), i)
		for least := -i % i; low < least; {
			high, low = bits.Mul64(random.Uint64(), i)
		}
		all[i-1], all[high] = all[high], all[i-1]
	}
}

// Mix spreads the number of a pass over all bits: SplitMix64's finalizer (Steele, Lea and Flood, 2014).
func Mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
