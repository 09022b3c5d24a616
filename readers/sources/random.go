package sources

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/state"
)

// randomDataGenerator makes instances of random numbers that are uniform in a range. It serves tests, and measurements
// of the rest of a chain when reading costs nothing. Instance i is the same in every pass and on every machine.
type randomDataGenerator struct {
	readers.PeekBuffer
	spec      *pyfeed.Spec
	slots     any // dtypes and dims, for states
	low, high float64
	seed      uint64
	count     int64 // instances in a pass; negative: the pass has no end
	at        int64
	pool      *memory.Pool
	arena     *memory.Arena
}

// NewRandomDataGenerator makes a reader of slots whose dims are all known. Numbers are at least low and less than high;
// integers may be equal to high.
func NewRandomDataGenerator(slots []pyfeed.Slot, low, high float64, seed uint64, count int64) (readers.Reader, error) {
	spec, err := pyfeed.NewSpec(slots)
	if err == nil {
		err = CheckRandomData(slots, low, high)
	}
	if err != nil {
		return nil, err
	}
	r := &randomDataGenerator{spec: spec, low: low, high: high, seed: seed, count: count, pool: memory.NewPool(memory.File)}
	texts := make([]string, len(slots))
	for i, slot := range slots {
		texts[i] = slot.String()
	}
	r.slots = state.Text(strings.Join(texts, ";"))
	r.arena = memory.NewArena(r.pool)
	r.Read = readers.FromBatchFunc(r.generate)
	return r, nil
}

// CheckRandomData returns an error for slots and ranges for which no random numbers can be made.
func CheckRandomData(slots []pyfeed.Slot, low, high float64) error {
	for i, s := range slots {
		switch {
		case s.DType == pyfeed.Any:
			return pyfeed.SlotErrorf(pyfeed.Type, i, "expected a dtype, found any")
		case s.LoDLevels > 0:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "LoD: expected none, found %d levels", s.LoDLevels)
		}
		for j, d := range s.Dims {
			if d < 0 {
				return pyfeed.SlotErrorf(pyfeed.Shape, i, "dimension %d: expected a size, found %d", j, d)
			}
		}
		if err := inRange(s.DType, low, high); err != nil {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%v", err)
		}
	}
	if !(low <= high) || math.IsInf(high-low, 0) {
		return pyfeed.Errorf(pyfeed.Invalid, "low, high: expected finite numbers with low <= high, found %v and %v", low, high)
	}
	return nil
}

func inRange(d pyfeed.DType, low, high float64) error {
	least, limit := math.Inf(-1), math.Inf(1)
	switch d {
	case pyfeed.Bool:
		least, limit = 0, 1
	case pyfeed.Int8, pyfeed.Int16, pyfeed.Int32, pyfeed.Int64:
		limit = math.Ldexp(1, min(8*d.Size()-1, 53))
		least, limit = -limit, limit-1
	case pyfeed.Uint8, pyfeed.Uint16, pyfeed.Uint32, pyfeed.Uint64:
		least, limit = 0, math.Ldexp(1, min(8*d.Size(), 53))-1
	}
	if low < least || high > limit {
		return pyfeed.Errorf(pyfeed.Invalid, "low, high: expected a range within %v to %v for %v, found %v to %v", least, limit, d, low, high)
	}
	return nil
}

func (r *randomDataGenerator) generate(_ context.Context, out []*pyfeed.Tuple) (int, error) {
	n := len(out)
	if r.count >= 0 {
		n = int(min(int64(n), r.count-r.at))
	}
	if n == 0 {
		return 0, io.EOF
	}
	pyfeed.NewTuples(out[:n], r.spec.Len())
	for k, t := range out[:n] {
		if err := r.instance(t); err != nil {
			pyfeed.ReleaseAll(out[:n])
			return 0, err
		}
		r.at++
		if k+1 < n && r.arena.Full() { // one memory block each call
			pyfeed.ReleaseAll(out[k+1 : n])
			return k + 1, nil
		}
	}
	return n, nil
}

func (r *randomDataGenerator) instance(t *pyfeed.Tuple) error {
	random := rand.NewPCG(r.seed, permutation.Mix(uint64(r.at)))
	for i := range t.Slots {
		slot, s := r.spec.Slot(i), &t.Slots[i]
		s.DType = slot.DType
		if err := s.SetDims(slot.Dims); err != nil {
			return err
		}
		size, err := s.Measure()
		if err != nil {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
		data, b, err := r.arena.Get(size)
		if err != nil {
			return err
		}
		s.Hold(data, b)
		r.draw(s.DType, data, random)
	}
	return nil
}

// draw fills data with random numbers.
func (r *randomDataGenerator) draw(d pyfeed.DType, data []byte, random *rand.PCG) {
	native := binary.NativeEndian
	if d == pyfeed.Complex64 || d == pyfeed.Complex128 { // two numbers each
		d -= pyfeed.Complex64 - pyfeed.Float32
	}
	size := d.Size()
	for ; len(data) > 0; data = data[size:] {
		unit := float64(random.Uint64()>>11) / (1 << 53)
		v := r.low + unit*(r.high-r.low)
		switch d {
		case pyfeed.Float64:
			native.PutUint64(data, math.Float64bits(v))
			continue
		case pyfeed.Float32:
			native.PutUint32(data, math.Float32bits(float32(v)))
			continue
		case pyfeed.BFloat16:
			native.PutUint16(data, uint16(math.Float32bits(float32(v))>>16))
			continue
		case pyfeed.Float16:
			native.PutUint16(data, half(float32(v)))
			continue
		}
		whole := uint64(int64(math.Floor(r.low + unit*(r.high-r.low+1))))
		switch size {
		case 1:
			data[0] = byte(whole)
		case 2:
			native.PutUint16(data, uint16(whole))
		case 4:
			native.PutUint32(data, uint32(whole))
		case 8:
			native.PutUint64(data, whole)
		}
	}
}

// half converts to IEEE 754 binary16, rounded towards zero. A number too small to be a normal binary16 becomes 0.
func half(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	exponent := int(b>>23&0xff) - 127 + 15
	switch {
	case exponent <= 0:
		return sign
	case exponent >= 31:
		return sign | 0x7bff
	}
	return sign | uint16(exponent)<<10 | uint16(b>>13&0x3ff)
}

// ReInit starts over.
func (r *randomDataGenerator) ReInit(uint64) error {
	r.DropPeeked()
	r.at = 0
	return nil
}

// Identity implements readers.Resumable.
func (r *randomDataGenerator) Identity() (string, []state.Option) {
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	return "random_data", []state.Option{
		{Name: "count", Value: r.count, Optional: true},
		{Name: "high", Value: number(r.high), Optional: true},
		{Name: "low", Value: number(r.low), Optional: true},
		{Name: "seed", Value: r.seed, Optional: true},
		{Name: "slots", Value: r.slots, Optional: true},
	}
}

// Save implements readers.Resumable.
func (r *randomDataGenerator) Save(readers.Position, *readers.Saver) error { return nil }

// Restore implements readers.Resumable.
func (r *randomDataGenerator) Restore(p readers.Position, _ *readers.Restorer) (int64, error) {
	r.at = p.N
	if r.count >= 0 {
		r.at = min(r.at, r.count)
	}
	return 0, nil
}

// Length implements readers.Sized.
func (r *randomDataGenerator) Length() int64 {
	if r.count < 0 {
		return readers.Endless
	}
	return r.count
}

// Spec returns that of the instances.
func (r *randomDataGenerator) Spec() *pyfeed.Spec { return r.spec }

// Describe implements readers.Reader.
func (r *randomDataGenerator) Describe(s *readers.Stats) {
	s.Reader = "random_data"
	s.Extra = map[string]any{"low": r.low, "high": r.high, "seed": r.seed, "count": r.count}
}

// Close releases the memory.
func (r *randomDataGenerator) Close() {
	r.DropPeeked()
	r.arena.Close()
	r.pool.Close()
}
