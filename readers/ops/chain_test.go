package ops_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// A model is a reader in plain Go: it returns the tuples of a pass, each as its ids.
type model func(pass uint64) [][]int64

func (m model) shuffled(size int, seed uint64) model {
	return func(pass uint64) (out [][]int64) {
		in := m(pass)
		for block := uint64(0); len(in) > 0; block++ {
			n := min(size, len(in))
			refs := make([]*pyfeed.Tuple, n)
			at := map[*pyfeed.Tuple]int{}
			for i := range refs {
				refs[i] = &pyfeed.Tuple{}
				at[refs[i]] = i
			}
			permutation.Permute(refs, seed, pass, block, nil)
			for _, r := range refs {
				out = append(out, in[at[r]])
			}
			in = in[n:]
		}
		return out
	}
}

func (m model) batched(size int, dropLast bool) model {
	return func(pass uint64) (out [][]int64) {
		for part := range slices.Chunk(m(pass), size) {
			if len(part) == size || !dropLast {
				out = append(out, slices.Concat(part...))
			}
		}
		return out
	}
}

func (m model) passes(n uint64) model {
	return func(pass uint64) (out [][]int64) {
		for k := range n {
			out = append(out, m(pass*n+k)...)
		}
		return out
	}
}

func (m model) sharded(rank, world int) model {
	return func(pass uint64) (out [][]int64) {
		for i, t := range m(pass) {
			if i%world == rank {
				out = append(out, t)
			}
		}
		return out
	}
}

func (m model) shardedEvenly(rank, world int, even string) model {
	return func(pass uint64) (out [][]int64) {
		for group := range slices.Chunk(m(pass), world) {
			out = append(out, readertest.PartOf(group, make([]int64, len(group[0])), rank, world, even)...)
		}
		return out
	}
}

func (m model) split(size int, dropLast bool, rank, world int, even string) model {
	return func(pass uint64) (out [][]int64) {
		for batch := range slices.Chunk(m(pass), size) {
			part := readertest.PartOf(batch, make([]int64, len(batch[0])), rank, world, even)
			if (len(batch) == size || !dropLast) && len(part) > 0 {
				out = append(out, slices.Concat(part...))
			}
		}
		return out
	}
}

func (m model) mapped(by int64) model {
	return func(pass uint64) (out [][]int64) {
		for _, t := range m(pass) {
			made := slices.Clone(t)
			for i := range made {
				made[i] += by
			}
			out = append(out, made)
		}
		return out
	}
}

// chain is a random chain of decorators over files, and its model.
type chain struct {
	scope *pyfeed.Scope
	top   string
	text  []string
	model
	workers sync.WaitGroup
}

func (c *chain) add(t *testing.T, op string, ins []string, format string, args ...any) {
	t.Helper()
	attributes := fmt.Sprintf(format, args...)
	c.top = fmt.Sprintf("%s_%d", op, len(c.text))
	c.text = append(c.text, op+attributes)
	if err := ops.Create(c.scope, op, c.top, ins, []byte(attributes)); err != nil {
		t.Fatalf("%v: %v", c.text, err)
	}
}

// work starts workers that add by to every number.
func (c *chain) work(t *testing.T, by int64, threads int) {
	h, err := readers.FindHolder(c.scope, c.top)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Drop()
	for range threads {
		w := decorators.WorkersOf(h)
		c.workers.Go(func() {
			pool := memory.NewPool(memory.File)
			defer pool.Close()
			arena := memory.NewArena(pool)
			defer arena.Close()
			for {
				in, ticket, err := w.Take(background)
				if err != nil {
					return
				}
				step(w, in, ticket, by, arena)
			}
		})
	}
}

// step is a worker's step: it adds by to every number of a tuple.
func step(w *decorators.MapWorkers, in *pyfeed.Tuple, ticket uint64, by int64, arena *memory.Arena) {
	defer in.Release()
	all, err := readertest.IDsOf(in)
	if err != nil {
		w.Fail(ticket, err)
		return
	}
	out := pyfeed.NewTuple(2)
	id, seq := &out.Slots[0], &out.Slots[1]
	id.DType, seq.DType = pyfeed.Int64, pyfeed.Int64
	_ = id.SetDims(in.Slots[0].Dims())
	level := []int64{0}
	var data []byte
	for _, v := range all {
		v += by
		id.Data = binary.NativeEndian.AppendUint64(id.Data, uint64(v))
		for j := range v % 4 {
			data = binary.NativeEndian.AppendUint64(data, uint64(v+j))
		}
		level = append(level, level[len(level)-1]+v%4)
	}
	_ = seq.SetDims(pyfeed.Dims{level[len(level)-1]})
	seq.LoD, seq.InHeap = append(seq.LoD[:0], level), true
	for _, s := range []struct {
		to   *pyfeed.LoDTensor
		data []byte
	}{{id, id.Data}, {seq, data}} {
		room, b, err := arena.Get(len(s.data))
		if err != nil {
			panic(err)
		}
		copy(room, s.data)
		s.to.Hold(room, b)
	}
	if err := w.Give(ticket, out); err != nil {
		out.Release()
		w.Fail(ticket, err)
	}
}

// decorate adds a random decorator.
func (c *chain) decorate(t *testing.T, random *rand.Rand, batches *int) {
	in := []string{c.top}
	switch random.IntN(7) {
	case 0:
		size, seed := 1+random.IntN(60), random.Uint64()
		c.add(t, "create_shuffle_reader", in, `{"buffer_size": %d, "seed": %d}`, size, seed)
		c.model = c.shuffled(size, seed)
	case 1:
		if *batches == 2 {
			return
		}
		*batches++
		world := 1 + random.IntN(3)
		size, drop := world*(1+random.IntN(5)), random.IntN(2) == 0
		c.add(t, "create_batch_reader", in, `{"batch_size": %d, "drop_last": %v}`, size, drop)
		if random.IntN(2) == 0 {
			c.model = c.batched(size, drop)
			return
		}
		rank, even := random.IntN(world), readertest.Evens[random.IntN(3)]
		c.add(t, "create_split_batches_reader", []string{c.top}, `{"rank": %d, "world": %d, "even": %q}`, rank, world, even)
		c.model = c.split(size, drop, rank, world, even)
	case 2:
		n := 1 + random.IntN(3)
		c.add(t, "create_multi_pass_reader", in, `{"pass_num": %d}`, n)
		c.model = c.passes(uint64(n))
	case 3:
		c.add(t, "create_double_buffer_reader", in, `{"depth": %d}`, 1+random.IntN(4))
	case 4:
		world := 1 + random.IntN(3)
		rank := random.IntN(world)
		if random.IntN(2) == 0 {
			c.add(t, "create_shard_reader", in, `{"rank": %d, "world": %d}`, rank, world)
			c.model = c.sharded(rank, world)
			return
		}
		even := readertest.Evens[random.IntN(3)]
		c.add(t, "create_shard_reader", in, `{"rank": %d, "world": %d, "even": %q}`, rank, world, even)
		c.model = c.shardedEvenly(rank, world, even)
	case 5:
		by := int64(1 + random.IntN(1000))
		c.add(t, "create_map_reader", in, `{"capacity": %d}`, 1+random.IntN(20))
		c.work(t, by, 1+random.IntN(3))
		c.model = c.mapped(by)
	case 6: // no decorator
	}
}

func randomChain(t *testing.T, random *rand.Rand) *chain {
	c := &chain{scope: pyfeed.NewScope(nil)}
	counts := make([]int, 1+random.IntN(6))
	for i := range counts {
		counts[i] = random.IntN(50)
	}
	counts[0]++ // so that no file set is empty, which multi_pass refuses
	names, files := readertest.WriteIDs(t, counts...)
	width := 1 + random.IntN(4)
	c.add(t, "open_files", nil, `{"filenames": ["%s"], "slots": %s, "num_threads": %d, "interleave": %d}`,
		strings.Join(names, `", "`), readertest.IDSlots, 1+random.IntN(4), width)
	c.model = func(uint64) [][]int64 { return readertest.Interleaved(files, width) }
	batches := 0
	for range random.IntN(6) {
		c.decorate(t, random, &batches)
	}
	return c
}

// Random chains of decorators deliver what their models do, tuple by tuple and pass by pass, with resets at random
// points.
func TestChainsDoAsTheirModels(t *testing.T) {
	before := memory.Count()
	passes := 100
	if testing.Short() {
		passes = 6
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := randomChain(t, random)
		h, err := readers.FindHolder(c.scope, c.top)
		if err != nil {
			t.Fatal(err)
		}
		for pass := range uint64(passes) {
			want := c.model(pass)
			if len(want) == 0 { // all tuples were dropped, which a multi_pass above would refuse
				break
			}
			until := len(want) + 1
			if random.IntN(2) == 0 {
				until = random.IntN(until)
			}
			if err := compare(h, want, until, random); err != nil {
				t.Fatalf("chain %d, pass %d: %v\n%s", seed, pass, err, strings.Join(c.text, "\n"))
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
		h.Drop()
		c.scope.Drop()
		c.workers.Wait()
	}
	if after := memory.Count(); after != before {
		t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
	}
}

// compare reads the first tuples of a pass, with HasNext, ReadNext and ReadMany at random.
func compare(h *readers.ReaderHolder, want [][]int64, until int, random *rand.Rand) error {
	for i := 0; i < until; {
		if random.IntN(3) == 0 {
			has, err := h.HasNext(background)
			if err != nil || has != (i < len(want)) {
				return fmt.Errorf("before tuple %d of %d: has next: %v, %v", i, len(want), has, err)
			}
		}
		out := make([]*pyfeed.Tuple, 1+random.IntN(5))
		n, err := 0, error(nil)
		if len(out) == 1 {
			if out[0], err = h.ReadNext(background); err == nil {
				n = 1
			}
		} else {
			n, err = h.ReadMany(background, out)
		}
		if i == len(want) {
			if err != io.EOF || n != 0 {
				return fmt.Errorf("expected the end after %d tuples, found %d more and %v", i, n, err)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("tuple %d of %d: %v", i, len(want), err)
		}
		for _, tuple := range out[:n] {
			got, err := readertest.IDsOf(tuple)
			tuple.Release()
			if err != nil {
				return fmt.Errorf("tuple %d: %v", i, err)
			}
			if i == len(want) || !slices.Equal(got, want[i]) {
				return fmt.Errorf("tuple %d: expected %v, found %v", i, want[min(i, len(want)-1)], got)
			}
			i++
		}
	}
	return nil
}
