package record

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// released fails a test that does not release all memory.
func released(t *testing.T) {
	t.Helper()
	before := memory.Count()
	t.Cleanup(func() {
		if after := memory.Count(); after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
}

func poolFor(t *testing.T) *memory.Pool {
	t.Helper()
	pool := memory.NewPool(memory.Batch)
	t.Cleanup(pool.Close)
	return pool
}

// numbersBlock makes a Block of the numbers first to end-1. An instance has the number as uint32, and then wide bytes
// that begin with it.
func numbersBlock(t *testing.T, pool *memory.Pool, name string, wide, first, end int) *Block {
	t.Helper()
	n, stride := end-first, 4+wide+1
	b, err := pool.Get(n * stride)
	if err != nil {
		t.Fatal(err)
	}
	for k := range n {
		one := b.Bytes()[k*stride:][:stride]
		clear(one)
		binary.NativeEndian.PutUint32(one, uint32(first+k))
		for i := range wide {
			one[4+i] = byte((first + k) >> (8 * (i % 4)))
		}
	}
	slots := []pyfeed.LoDTensor{{DType: pyfeed.Uint32, ReadOnly: true}, {DType: pyfeed.Uint8, ReadOnly: true}}
	slots[0].Data, slots[1].Data = b.Bytes()[:4], b.Bytes()[4:4+wide]
	if err := slots[1].SetDims(pyfeed.Dims{int64(wide)}); err != nil {
		t.Fatal(err)
	}
	b.Retain(n - 1)
	block := NewBlock(slots, stride, n, b)
	block.SetOrigin(pyfeed.Origin{File: &name, Record: int64(first)})
	return block
}

// texts takes all instances, and returns what there is to know of each.
func texts(t *testing.T, c *Chunk) (all []string) {
	for c.Len() > 0 {
		one := takeOne(t, c)
		text := fmt.Sprint(one.Pass, one.From.String())
		for i := range one.Slots {
			text += fmt.Sprintf(" %v %v %x", one.Slots[i].DType, one.Slots[i].Dims(), one.Slots[i].Data)
		}
		all = append(all, text)
		one.Release()
	}
	return all
}

var permutations = map[string]Permutation{
	"one":   {Seed: 3, Pass: 1, Blocks: []uint64{5}},
	"three": {Seed: 3, Pass: 1, Blocks: []uint64{5, 6, 7}},
}

// Gathered instances have the values, origins, pass and order that they have without.
func TestGatheredInstancesAreAsPermutedOnes(t *testing.T) {
	for _, wide := range []int{0, 1, 4, 8, 63, 100, 17 << 10} {
		for name, p := range permutations {
			t.Run(fmt.Sprint(wide, name), func(t *testing.T) {
				released(t)
				pool := poolFor(t)
				fill := func(c *Chunk) {
					since := c.Checkpoint()
					c.AddBlock(numbersBlock(t, pool, "a", wide, 0, 20))
					var few Chunk // becomes tuples
					few.AddBlock(numbersBlock(t, pool, "b", wide, 20, 23))
					for few.Len() > 0 {
						c.Add(takeOne(t, &few))
					}
					var two [2]Chunk // are interleaved
					two[0].AddBlock(numbersBlock(t, pool, "c", wide, 23, 43))
					two[1].AddBlock(numbersBlock(t, pool, "d", wide, 43, 63))
					Interleave([]*Chunk{&two[0], &two[1]}, c, 20)
					c.SetPass(since, 2)
				}
				var plain, gathered Chunk
				fill(&plain)
				fill(&gathered)
				size := gathered.Bytes()
				plain.Permute(p, nil)
				g := Gatherer{Pool: pool}
				g.Gather(&gathered, p, nil)
				if len(gathered.blocks) != 1 || !gathered.blocks[0].batchable || gathered.Bytes() != size {
					t.Fatalf("expected a Block of %d bytes, found %d blocks of %d", size, len(gathered.blocks), gathered.Bytes())
				}
				want, got := texts(t, &plain), texts(t, &gathered)
				if !slices.Equal(got, want) {
					t.Errorf("expected %q, found %q", want, got)
				}
				if slices.IsSorted(got) {
					t.Error("expected another order than before")
				}
				fill(&gathered) // the Gatherer and the Chunk are used again
				g.Gather(&gathered, p, nil)
				if got = texts(t, &gathered); !slices.Equal(got, want) {
					t.Errorf("again: expected %q, found %q", want, got)
				}
			})
		}
	}
}

// What has several layouts or passes, is large, or is only a few instances is permuted, but not gathered.
func TestWhatIsNotGathered(t *testing.T) {
	p := permutations["one"]
	pool := memory.NewPool(memory.Batch)
	defer pool.Close()
	add := func(wide, n int, pass int64) func(*Chunk) {
		return func(c *Chunk) {
			since := c.Checkpoint()
			c.AddBlock(numbersBlock(t, pool, "a", wide, 0, n))
			c.SetPass(since, pass)
		}
	}
	tuples := func(c *Chunk) {
		var some Chunk
		add(4, 40, 0)(&some)
		for some.Len() > 0 {
			c.Add(takeOne(t, &some))
		}
	}
	spans := func(c *Chunk) {
		b, err := pool.Get(100)
		if err != nil {
			t.Fatal(err)
		}
		clear(b.Bytes())
		b.Retain(49)
		c.AddBlock(NewSpanBlock(b.Bytes(), make([]Span, 50), b))
	}
	for name, fills := range map[string][]func(*Chunk){
		"shapes": {add(4, 40, 0), add(5, 40, 0)},
		"passes": {add(4, 40, 0), add(4, 40, 1)},
		"few":    {add(4, MinBlock-1, 0)},
		"large":  {add(maxGathered/40, 40, 0)},
		"tuples": {tuples},
		"spans":  {spans},
	} {
		t.Run(name, func(t *testing.T) {
			var plain, other Chunk
			for _, fill := range fills {
				fill(&plain)
				fill(&other)
			}
			plain.Permute(p, nil)
			g := Gatherer{Pool: pool}
			g.Gather(&other, p, nil)
			for _, b := range other.blocks {
				if b.batchable {
					t.Error("expected that nothing is gathered")
				}
			}
			if want, got := texts(t, &plain), texts(t, &other); !slices.Equal(got, want) {
				t.Errorf("expected %q, found %q", want, got)
			}
		})
	}
}

// A batch of consecutive gathered instances is a view of their memory. Views may be written, and the memory is in use until
// the last is released.
func TestBatchesAreViewsOfGatheredInstances(t *testing.T) {
	released(t)
	pool := poolFor(t)
	const batch, n = 64, 3*64 + 5
	var c Chunk
	c.AddBlock(numbersBlock(t, pool, "a", 16, 0, n))
	g := Gatherer{Pool: pool}
	g.Gather(&c, permutations["one"], nil)
	var want [][]byte // the numbers of each batch
	var batches []*pyfeed.Tuple
	for c.Len() > 0 {
		var some Chunk
		k := c.MoveTo(&some, batch)
		if !some.Viewable() {
			t.Fatal("expected a view")
		}
		view := pyfeed.NewTuple(2)
		some.TakeView(view)
		if some.Len() != 0 || len(view.Slots[0].Data) != 4*k || len(view.Slots[1].Data) != 16*k || view.Slots[0].ReadOnly {
			t.Fatalf("expected writable slots of %d instances, found %d and %d bytes", k, len(view.Slots[0].Data), len(view.Slots[1].Data))
		}
		for i := range k {
			if !bytes.Equal(view.Slots[0].Data[4*i:][:4], view.Slots[1].Data[16*i:][:4]) {
				t.Fatalf("batch %d: the slots of instance %d do not belong together", len(batches), i)
			}
		}
		want = append(want, bytes.Clone(view.Slots[0].Data))
		batches = append(batches, view)
	}
	for i := range batches[1].Slots {
		for k := range batches[1].Slots[i].Data {
			batches[1].Slots[i].Data[k] = 0xff
		}
	}
	inUse := memory.Count().Live
	for _, i := range []int{1, 0, 3} {
		if i != 1 && !bytes.Equal(batches[i].Slots[0].Data, want[i]) {
			t.Errorf("batch %d was changed by a write to batch 1", i)
		}
		batches[i].Release()
	}
	if now := memory.Count().Live; now != inUse {
		t.Errorf("expected the memory to be in use until the last batch is released: %v, found %v", inUse, now)
	}
	if !bytes.Equal(batches[2].Slots[0].Data, want[2]) {
		t.Error("batch 2 was changed by the release of the others")
	}
	batches[2].Release()
	if now := memory.Count().Live; now == inUse {
		t.Error("expected the memory to be released with the last batch")
	}
}

func TestWhatIsNoView(t *testing.T) {
	released(t)
	pool := poolFor(t)
	var c Chunk
	defer c.Release()
	c.AddBlock(numbersBlock(t, pool, "a", 16, 0, 300))
	if c.Viewable() {
		t.Error("instances that were not gathered: expected no view")
	}
	g := Gatherer{Pool: pool}
	g.Gather(&c, permutations["one"], nil)
	if !c.Viewable() {
		t.Error("all instances: expected a view")
	}
	var first, odd, apart Chunk
	defer first.Release()
	defer odd.Release()
	defer apart.Release()
	c.MoveTo(&first, 3)
	c.MoveTo(&odd, 64)
	if !first.Viewable() || odd.Viewable() {
		t.Error("expected no view from an address that is not aligned")
	}
	c.MoveTo(&first, 5)
	c.MoveTo(&apart, 16)
	c.MoveTo(&odd, 7)
	c.MoveTo(&apart, 16)
	if first.Viewable() || apart.Viewable() {
		t.Error("instances that are not consecutive: expected no view")
	}
	c.Permute(permutations["one"], nil)
	if c.Viewable() {
		t.Error("instances that were permuted again: expected no view")
	}
}

// If a file has become shorter when its instances are copied, they stay in the file, in their order. A batch of them then
// fails.
func TestInstancesOfATornFileAreNotGathered(t *testing.T) {
	released(t)
	pool := poolFor(t)
	path := filepath.Join(t.TempDir(), "shrinks")
	size := 2 * os.Getpagesize()
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := pool.Map(path, int(f.Fd()), int64(size))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const n = 64
	var c Chunk
	defer c.Release()
	slot := pyfeed.LoDTensor{DType: pyfeed.Uint8, Data: m.Bytes()[:size/n]}
	if err := slot.SetDims(pyfeed.Dims{int64(size / n)}); err != nil {
		t.Fatal(err)
	}
	c.AddBlock(NewBlock([]pyfeed.LoDTensor{slot}, size/n, n, m.Window(0, n)))
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	g := Gatherer{Pool: pool}
	g.Gather(&c, permutations["one"], nil)
	if c.Len() != n || c.blocks[0].batchable {
		t.Fatalf("expected %d instances in the file, found %d", n, c.Len())
	}
	e, is := c.CheckTruncated().(*pyfeed.Error)
	if !is || e.Kind != pyfeed.Corrupt || m.TornAt(unsafe.Pointer(&m.Bytes()[size-1]), 1) == nil {
		t.Errorf("expected an error of the file, found %v", e)
	}
	var plain Chunk
	defer plain.Release()
	plain.AddBlock(NewBlock([]pyfeed.LoDTensor{slot}, size/n, n, m.Window(0, n)))
	plain.Permute(permutations["one"], nil)
	if !slices.Equal(plain.items, c.items) {
		t.Error("expected the order of the permutation")
	}
}

// A stopped shuffle has all its instances, so that it can release them.
func TestAGatherThatIsStopped(t *testing.T) {
	released(t)
	pool := poolFor(t)
	done := make(chan struct{})
	close(done)
	var c Chunk
	defer c.Release()
	const n = 1<<18 + 1
	c.AddBlock(numbersBlock(t, pool, "a", 0, 0, n))
	g := Gatherer{Pool: pool}
	g.Gather(&c, permutations["one"], done)
	seen := make([]bool, n)
	for c.Len() > 0 {
		one := takeOne(t, &c)
		seen[binary.NativeEndian.Uint32(one.Slots[0].Data)] = true
		one.Release()
	}
	if slices.Contains(seen, false) {
		t.Error("expected each instance once")
	}
}

// Joined instances have the slots of all, and of each as many as follow one another in all.
func TestZipJoinsBlocks(t *testing.T) {
	released(t)
	pool := poolFor(t)
	fill := func(c *Chunk, wide int, bounds ...int) {
		for i, end := range bounds[1:] {
			since := c.Checkpoint()
			c.AddBlock(numbersBlock(t, pool, fmt.Sprint(wide), wide, bounds[i], end))
			c.SetPass(since, int64(wide))
		}
	}
	var a, b, to Chunk
	fill(&a, 3, 0, 30, 100)
	fill(&b, 5, 0, 20, 50, 90)
	all := func(*pyfeed.Tuple) bool { return true }
	from := []*Chunk{&a, &b}
	if n := Zip(from, &to, 100, func(*pyfeed.Tuple) bool { return false }); n != 0 || a.Len() != 100 || b.Len() != 90 {
		t.Fatalf("expected that nothing is moved, found %d", n)
	}
	for _, want := range []int{12, 8, 10, 20, 40, 0} {
		limit := 100
		if want == 12 {
			limit = want
		}
		if n := Zip(from, &to, limit, all); n != want {
			t.Fatalf("expected %d instances, found %d", want, n)
		}
	}
	if a.Len() != 10 || b.Len() != 0 || to.Len() != 90 || to.Bytes() != 90*(4+3+4+5) {
		t.Fatalf("found %d, %d and %d instances of %d bytes", a.Len(), b.Len(), to.Len(), to.Bytes())
	}
	to.Permute(permutations["three"], nil)
	a.Release()
	seen := make([]bool, 90)
	for to.Len() > 0 {
		one := takeOne(t, &to)
		i := binary.NativeEndian.Uint32(one.Slots[0].Data)
		seen[i] = true
		if len(one.Slots) != 4 || binary.NativeEndian.Uint32(one.Slots[2].Data) != i || len(one.Slots[1].Data) != 3 || len(one.Slots[3].Data) != 5 ||
			one.Slots[3].Data[0] != byte(i) || one.Pass != 5 || one.From.String() != fmt.Sprintf("3, record %d", i) {
			t.Errorf("instance %d: found %d slots of pass %d from %v", i, len(one.Slots), one.Pass, one.From.String())
		}
		one.Release()
	}
	if slices.Contains(seen, false) {
		t.Error("expected each instance once")
	}
}

// A Block that is shortened keeps its first instances.
func TestAShortenedBlock(t *testing.T) {
	released(t)
	pool := poolFor(t)
	b := numbersBlock(t, pool, "a", 3, 7, 30)
	b.Shorten(9)
	var c Chunk
	c.AddBlock(b)
	if got := texts(t, &c); len(got) != 9 || got[8][:len("0a, record 15")] != "0a, record 15" {
		t.Errorf("found %q", got)
	}
}

// takeOne takes the next instance, which is undamaged.
func takeOne(t *testing.T, c *Chunk) *pyfeed.Tuple {
	t.Helper()
	one, err := c.TakeOne()
	if err != nil {
		t.Fatal(err)
	}
	return one
}

// Tuples and instances of Blocks may follow one another in any order, also a tuple first.
func TestCopySlotOfTuplesBetweenBlocks(t *testing.T) {
	released(t)
	pool := poolFor(t)
	const wide, n = 100, 6
	for first := range 2 {
		var c, one Chunk
		for k := range n {
			block := numbersBlock(t, pool, "a", wide, k, k+1)
			if k%2 == first {
				one.AddBlock(block)
				c.Add(takeOne(t, &one))
			} else {
				c.AddBlock(block)
			}
		}
		found := make([]byte, n*wide)
		if err := c.CopySlot(found, 1, wide, 0, n); err != nil {
			t.Fatal(err)
		}
		for k := range n {
			if got := found[k*wide:][:wide]; got[0] != byte(k) || got[wide-4] != byte(k) {
				t.Errorf("instance %d: expected its number, found % x", k, got)
			}
		}
		c.Release()
	}
}
