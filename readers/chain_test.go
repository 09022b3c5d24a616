package readers

import (
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// The format "ids" of these tests: int64 numbers, each of them an instance of two slots, the number and a
// sequence of number%4 numbers from it on.
type ids struct {
	f     *storage.File
	arena *memory.Arena
	n     int64
}

func init() {
	MustRegister(Format{Tag: "ids", Suffixes: []string{".ids"}, Open: func(path string, c *Config) (Records, error) {
		f, err := storage.Open(path, c.Storage, c.Pool)
		if err != nil {
			return nil, err
		}
		return &ids{f: f, arena: memory.NewArena(c.Pool)}, nil
	}})
}

var idSlots = `[{"name": "id", "dtype": "int64", "dims": []}, {"name": "seq", "dtype": "int64", "dims": [-1], "lod_levels": 1}]`

func (r *ids) Read(out []*pyfeed.Tuple) (int, error) {
	for i, t := range out[:min(len(out), 7)] {
		b, err := r.f.Peek(8)
		if err != nil || len(b) == 0 {
			if i == 0 && err == nil {
				err = io.EOF
			}
			return i, err
		}
		if len(b) < 8 {
			return i, r.f.Corrupt(r.f.Offset(), r.n, "expected 8 bytes, found %d", len(b))
		}
		id := int64(binary.NativeEndian.Uint64(b))
		if id < 0 {
			return i, r.f.Corrupt(r.f.Offset(), r.n, "expected a number from 0 on, found %d", id)
		}
		t.Slots[0].DType = pyfeed.Int64
		t.Slots[0].Hold(b[:8:8], r.f.Hold(1))
		t.Slots[0].ReadOnly = true
		fillSequence(&t.Slots[1], r.arena, id)
		r.f.Skip(8)
		r.n++
	}
	return min(len(out), 7), nil
}

func fillSequence(s *pyfeed.LoDTensor, arena *memory.Arena, id int64) {
	n := id % 4
	s.DType = pyfeed.Int64
	_ = s.SetDims(pyfeed.Dims{n})
	s.LoD = append(s.LoD[:0], []int64{0, n})
	s.InHeap = true
	data, b, err := arena.Get(int(8 * n))
	if err != nil {
		panic(err)
	}
	for j := range n {
		binary.NativeEndian.PutUint64(data[8*j:], uint64(id+j))
	}
	s.Hold(data, b)
}

// Ended is known of every other file that is small.
func (r *ids) Ended() bool {
	b, err := r.f.Peek(1)
	return r.f.Complete() && err == nil && len(b) == 0 && r.n%2 == 1
}

func (r *ids) Resync() error {
	r.f.Skip(8)
	r.n++
	return nil
}
func (r *ids) Number() (int64, bool) { return r.n, true }
func (r *ids) Intact() error         { return r.f.Intact() }

// Unchanged is the File's.
func (r *ids) Unchanged() error { return r.f.Unchanged() }
func (r *ids) Close() {
	r.arena.Close()
	r.f.Close()
}

// writeIDs makes files of so many numbers each, all different.
func writeIDs(t testing.TB, counts ...int) (names []string, all [][]int64) {
	t.Helper()
	dir := t.TempDir()
	next := int64(0)
	for i, n := range counts {
		var b []byte
		var in []int64
		for range n {
			b = binary.NativeEndian.AppendUint64(b, uint64(next))
			in = append(in, next)
			next++
		}
		name := filepath.Join(dir, fmt.Sprintf("%03d.ids", i))
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
		names, all = append(names, name), append(all, in)
	}
	return names, all
}

// A model is a reader in plain Go: the tuples of a pass, each the ids in it.
type model func(pass uint64) [][]int64

// interleaved is what MultipleReader promises when ordered.
func interleaved(files [][]int64, width int) model {
	return func(uint64) (out [][]int64) {
		rest := files
		var lanes [][]int64
		for len(lanes) < width && len(rest) > 0 {
			lanes, rest = append(lanes, rest[0]), rest[1:]
		}
		for turn := 0; len(lanes) > 0; {
			turn %= len(lanes)
			if len(lanes[turn]) > 0 {
				out = append(out, lanes[turn][:1])
				lanes[turn] = lanes[turn][1:]
				turn++
				continue
			}
			if len(rest) > 0 {
				lanes[turn], rest = rest[0], rest[1:]
			} else {
				lanes = slices.Delete(lanes, turn, turn+1)
			}
		}
		return out
	}
}

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
			permute(refs, seed, pass, block, nil)
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

// found reads the ids of a tuple and checks the sequences that go with them.
func found(tuple *pyfeed.Tuple) ([]int64, error) {
	id, seq := &tuple.Slots[0], &tuple.Slots[1]
	var all []int64
	for b := id.Data; len(b) > 0; b = b[8:] {
		all = append(all, int64(binary.NativeEndian.Uint64(b)))
	}
	level := seq.LoD[0]
	if len(level) != len(all)+1 {
		return nil, fmt.Errorf("%d sequences for %d ids", len(level)-1, len(all))
	}
	for i, v := range all {
		if n := level[i+1] - level[i]; n != v%4 {
			return nil, fmt.Errorf("id %d has a sequence of %d", v, n)
		}
		for j := level[i]; j < level[i+1]; j++ {
			if got := int64(binary.NativeEndian.Uint64(seq.Data[8*j:])); got != v+j-level[i] {
				return nil, fmt.Errorf("id %d: element %d is %d", v, j-level[i], got)
			}
		}
	}
	return all, nil
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
	if err := Create(c.scope, op, c.top, ins, []byte(attributes)); err != nil {
		t.Fatalf("%v: %v", c.text, err)
	}
}

// work runs workers that add to every number.
func (c *chain) work(t *testing.T, by int64, threads int) {
	h, err := find(c.scope, c.top)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Drop()
	for range threads {
		w := h.Workers()
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
				w.step(in, ticket, by, arena)
			}
		})
	}
}

func (w *MapWorkers) step(in *pyfeed.Tuple, ticket uint64, by int64, arena *memory.Arena) {
	defer in.Release()
	all, err := found(in)
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
		size, drop := 1+random.IntN(9), random.IntN(2) == 0
		c.add(t, "create_batch_reader", in, `{"batch_size": %d, "drop_last": %v}`, size, drop)
		c.model = c.batched(size, drop)
	case 2:
		n := 1 + random.IntN(3)
		c.add(t, "create_multi_pass_reader", in, `{"pass_num": %d}`, n)
		c.model = c.passes(uint64(n))
	case 3:
		c.add(t, "create_double_buffer_reader", in, `{"depth": %d}`, 1+random.IntN(4))
	case 4:
		world := 1 + random.IntN(3)
		rank := random.IntN(world)
		c.add(t, "create_shard_reader", in, `{"rank": %d, "world": %d}`, rank, world)
		c.model = c.sharded(rank, world)
	case 5:
		by := int64(1 + random.IntN(1000))
		c.add(t, "create_map_reader", in, `{"capacity": %d}`, 1+random.IntN(20))
		c.work(t, by, 1+random.IntN(3))
		c.model = c.mapped(by)
	case 6: // nothing
	}
}

func randomChain(t *testing.T, random *rand.Rand) *chain {
	c := &chain{scope: pyfeed.NewScope(nil)}
	counts := make([]int, 1+random.IntN(6))
	for i := range counts {
		counts[i] = random.IntN(50)
	}
	counts[0]++ // an empty pass is an error of multi_pass, tested elsewhere
	names, files := writeIDs(t, counts...)
	width := 1 + random.IntN(4)
	c.add(t, "open_files", nil, `{"filenames": ["%s"], "slots": %s, "thread_num": %d, "interleave": %d}`,
		strings.Join(names, `", "`), idSlots, 1+random.IntN(4), width)
	c.model = interleaved(files, width)
	batches := 0
	for range random.IntN(6) {
		c.decorate(t, random, &batches)
	}
	return c
}

// Random chains of decorators deliver what their models say, tuple by tuple, pass after pass, with resets at
// random points.
func TestChainsDoAsTheirModels(t *testing.T) {
	before := memory.Count()
	passes := 100
	if testing.Short() {
		passes = 10
	}
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := randomChain(t, random)
		h, err := find(c.scope, c.top)
		if err != nil {
			t.Fatal(err)
		}
		for pass := range uint64(passes) {
			want := c.model(pass)
			if len(want) == 0 { // dropped, all of it, which a multi_pass would refuse
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
		t.Errorf("counts: %+v before, %+v after", before, after)
	}
}

// compare reads the first tuples of a pass, by any of the ways to read.
func compare(h *ReaderHolder, want [][]int64, until int, random *rand.Rand) error {
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
			got, err := found(tuple)
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
