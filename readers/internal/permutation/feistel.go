package permutation

import (
	"fmt"
	"math/bits"
)

// rounds of a Feistel network: with fewer than 4, neighbours stay related (Luby and Rackoff, 1988); 6 leave a margin.
const rounds = 6

// Feistel is a permutation of the numbers from 0 to n-1, of which any element can be computed without the others. It is a
// Feistel network over the next even number of bits, whose results of n or more are put in again until they are smaller
// (cycle walking: Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002).
type Feistel struct {
	n, mask uint64
	half    int // bits of each half
	keys    [rounds]uint64
}

// NewFeistel returns the permutation of n numbers for a seed and a pass.
func NewFeistel(n, seed, pass uint64) *Feistel {
	half := max((bits.Len64(max(n, 1)-1)+1)/2, 1)
	p := &Feistel{n: n, half: half, mask: 1<<half - 1}
	key := Mix(seed) ^ Mix(^pass)
	for i := range p.keys {
		key = Mix(key + uint64(i))
		p.keys[i] = key
	}
	return p
}

// At returns element i, which must be less than n: otherwise the walk might not end.
func (p *Feistel) At(i uint64) uint64 {
	if i >= p.n {
		panic(fmt.Sprintf("expected a number below %d, found %d", p.n, i))
	}
	for {
		left, right := i>>p.half, i&p.mask
		for _, key := range p.keys {
			left, right = right, left^Mix(right^key)&p.mask
		}
		if i = left<<p.half | right; i < p.n {
			return i
		}
	}
}
