package readers

import (
	"context"
	"math/bits"
	"math/rand/v2"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// ShuffleReader permutes its instances block by block: the next block is read while this one is served. One
// seed gives one order, on every machine; each pass has another. It moves references, never bytes.
type ShuffleReader struct {
	ahead
	under *upstream
	size  int
	seed  uint64
	pass  uint64
	block uint64 // the next to be read of the pass
	pump  *pump
}

func checkBufferSize(size uint64) error {
	if size == 0 || size > 1<<31 {
		return pyfeed.Errorf(pyfeed.Invalid, "buffer_size: expected 1 to 2^31 tuples, found %d", size)
	}
	return nil
}

// NewShuffleReader takes over a reference to under.
func NewShuffleReader(under *ReaderHolder, size, seed uint64) (*ShuffleReader, error) {
	if err := checkBufferSize(size); err != nil {
		under.Drop()
		return nil, err
	}
	r := &ShuffleReader{under: above(under), size: int(size), seed: seed}
	r.pump = newPump("shuffle", 1, func(ctx context.Context, c *chunk) error { return r.fill(ctx, &c.Lot) })
	r.read, r.many, r.left = r.pump.take, leastRows, r.pump.wake
	return r, nil
}

// fill reads a block and permutes it.
func (r *ShuffleReader) fill(ctx context.Context, l *Lot) (end error) {
	for l.Len() < r.size && end == nil && ctx.Err() == nil {
		_, end = r.under.readMany(ctx, l, r.size-l.Len())
	}
	permute(l.items, r.seed, r.pass, r.block, ctx.Done())
	r.block++
	return end
}

// permutedPerLook is how many items are permuted between two looks at whether the pass goes on.
const permutedPerLook = 1 << 18

// permute is Fisher and Yates's shuffle, driven by PCG-DXSM, which Go specifies to the bit, and by Lemire's
// bounded numbers ("Fast Random Integer Generation in an Interval", 2019), so that no release of Go changes it. It is left
// in the middle when done is closed: the block is dropped then.
func permute[T any](all []T, seed, pass, block uint64, done <-chan struct{}) {
	random := rand.NewPCG(seed, mix(pass)+block)
	for i := uint64(len(all)); i > 1; i-- {
		if i%permutedPerLook == 0 {
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

// mix spreads the number of a pass over all bits: SplitMix64's finalizer (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// ReInit begins a pass, in an order of its own.
func (r *ShuffleReader) ReInit(pass uint64) error {
	r.drop()
	r.pump.stop()
	if err := r.under.Begin(pass); err != nil {
		return err
	}
	r.pass, r.block = pass, 0
	return nil
}

// Spec is that of the reader below.
func (r *ShuffleReader) Spec() *pyfeed.Spec { return r.under.Spec() }

// Describe names it.
func (r *ShuffleReader) Describe(s *Stats) {
	s.Reader = "shuffle"
	s.Waited = r.pump.waited().Seconds()
	s.Extra = map[string]any{"buffer_size": r.size, "seed": r.seed}
	s.Below = []Stats{r.under.Stats()}
}

// Close lets go of the reader below.
func (r *ShuffleReader) Close() {
	r.drop()
	r.pump.stop()
	r.under.Drop()
}
