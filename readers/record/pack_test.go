package record

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// columnSlots lays out n instances with a slot of each size in data, column by column. Every byte depends on the instance
// and the slot.
func columnSlots(t *testing.T, data []byte, sizes []int, n, first int) []pyfeed.LoDTensor {
	t.Helper()
	slots, at := make([]pyfeed.LoDTensor, len(sizes)), 0
	for i, size := range sizes {
		column := data[at : at+n*size]
		for k := range n {
			for j := range size {
				column[k*size+j] = byte(31*(first+k) + 7*i + j)
			}
		}
		slots[i] = pyfeed.LoDTensor{DType: pyfeed.Uint8, ReadOnly: true, Data: column[:size:len(column)]}
		if size == 8 {
			slots[i].DType = pyfeed.Int64
		} else if err := slots[i].SetDims(pyfeed.Dims{int64(size)}); err != nil {
			t.Fatal(err)
		}
		at += n * size
	}
	return slots
}

func total(sizes []int) (sum int) {
	for _, size := range sizes {
		sum += size
	}
	return sum
}

// columnBlock makes a Block of the instances first to end-1, in columns.
func columnBlock(t *testing.T, pool *memory.Pool, sizes []int, first, end int) *Block {
	t.Helper()
	n := end - first
	b, err := pool.Get(n * total(sizes))
	if err != nil {
		t.Fatal(err)
	}
	b.Retain(n - 1)
	block := NewColumnBlock(columnSlots(t, b.Bytes(), sizes, n, first), n, b)
	name := "f"
	block.SetOrigin(pyfeed.Origin{File: &name, Record: int64(first)})
	return block
}

func TestPackedRowsAreTheInstances(t *testing.T) {
	for _, sizes := range [][]int{{4, 8}, {1, 4, 8, 3}, {8, 1}, {64, 64}, {120, 1, 2}} {
		t.Run(fmt.Sprint(sizes), func(t *testing.T) {
			released(t)
			pool := poolFor(t)
			fill := func(c *Chunk) {
				since := c.Checkpoint()
				c.AddBlock(columnBlock(t, pool, sizes, 0, 3))
				c.AddBlock(columnBlock(t, pool, sizes, 3, 2000)) // more than is copied at once
				c.SetPass(since, 4)
			}
			var plain, packed Chunk
			fill(&plain)
			fill(&packed)
			packed.PackRows(1, pool)
			if !packed.blocks[0].inColumns() || packed.blocks[1].inColumns() || packed.Bytes() != plain.Bytes() {
				t.Fatal("expected that only the Block behind the first is packed")
			}
			first, stride := &packed.blocks[1].first, packed.blocks[1].places[0].stride
			for i := range first.Slots {
				for k := range 2 {
					if at := packed.blocks[1].address(i, k); uintptr(at)%uintptr(first.Slots[i].DType.Size()) != 0 {
						t.Errorf("slot %d of instance %d: expected an aligned address, found %v", i, k, at)
					}
				}
			}
			if least := total(sizes); stride < least || stride > least+2*8 {
				t.Errorf("expected rows of %d bytes, and alignment, found %d", least, stride)
			}
			plain.Permute(permutations["one"], nil)
			packed.Permute(permutations["one"], nil)
			if want, got := texts(t, &plain), texts(t, &packed); !slices.Equal(got, want) {
				t.Errorf("expected %q, found %q", want, got)
			}
		})
	}
}

// Instances of one slot, of large slots, in rows, or of variable size stay where they are.
func TestWhatIsNotPacked(t *testing.T) {
	released(t)
	pool := poolFor(t)
	spans, err := pool.Get(100)
	if err != nil {
		t.Fatal(err)
	}
	clear(spans.Bytes())
	spans.Retain(49)
	for name, b := range map[string]*Block{
		"one slot":     columnBlock(t, pool, []int{4}, 0, 40),
		"large slots":  columnBlock(t, pool, []int{60, 69}, 0, 40),
		"one instance": columnBlock(t, pool, []int{4, 4}, 0, 1),
		"rows":         numbersBlock(t, pool, "a", 4, 0, 40),
		"spans":        NewSpanBlock(spans.Bytes(), make([]Span, 50), spans),
	} {
		var c Chunk
		c.AddBlock(b)
		c.PackRows(0, pool)
		if c.blocks[0].Block != b {
			t.Errorf("%s: expected the Block as it is", name)
		}
		c.Release()
	}
}

func TestInstancesOfATornFileAreNotPacked(t *testing.T) {
	released(t)
	pool := poolFor(t)
	path := filepath.Join(t.TempDir(), "shrinks")
	const n = 2000
	sizes := []int{4, 8}
	data := make([]byte, n*total(sizes))
	columnSlots(t, data, sizes, n, 0)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := pool.Map(path, int(f.Fd()), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	slots := make([]pyfeed.LoDTensor, 2)
	slots[0] = pyfeed.LoDTensor{DType: pyfeed.Int32, Data: m.Bytes()[: 4 : n*4]}
	slots[1] = pyfeed.LoDTensor{DType: pyfeed.Int64, Data: m.Bytes()[n*4 : n*4+8]}
	var c Chunk
	defer c.Release()
	block := NewColumnBlock(slots, n, m.Window(0, n))
	c.AddBlock(block)
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	c.PackRows(0, pool)
	if c.blocks[0].Block != block {
		t.Error("expected the instances in the file")
	}
	if e, is := c.CheckTruncated().(*pyfeed.Error); !is || e.Kind != pyfeed.Corrupt {
		t.Errorf("expected an error of the file, found %v", e)
	}
}

// CopySlot copies instances that follow one another at once, and others one by one.
func TestSlotsInColumnsAreCopied(t *testing.T) {
	released(t)
	pool := poolFor(t)
	sizes := []int{1, 4, 8, 100}
	var c Chunk
	defer c.Release()
	const n = 60
	c.AddBlock(columnBlock(t, pool, sizes, 0, 20))
	c.AddBlock(columnBlock(t, pool, sizes, 20, 40))
	c.Add(takeOne(t, &Chunk{items: []item{{0, 0}}, blocks: []blockRef{{Block: columnBlock(t, pool, sizes, 40, 41)}}}))
	c.AddBlock(columnBlock(t, pool, sizes, 41, n))
	numbers := make([]int, n)
	for i := range numbers {
		numbers[i] = i
	}
	swap := func(a, b int) {
		c.items[a], c.items[b] = c.items[b], c.items[a]
		numbers[a], numbers[b] = numbers[b], numbers[a]
	}
	for _, with := range [][2]int{{0, 0}, {5, 5}, {7, 30}, {8, 31}, {19, 40}, {58, 59}} {
		swap(with[0], with[1])
		data := make([]byte, n*total(sizes))
		columnSlots(t, data, sizes, n, 0)
		at := 0
		for slot, size := range sizes {
			for first := range 10 {
				got, want := make([]byte, (n-first)*size), []byte(nil)
				if err := c.CopySlot(got, slot, size, first, n); err != nil {
					t.Fatal(err)
				}
				for _, k := range numbers[first:] {
					want = append(want, data[at+k*size:][:size]...)
				}
				if !bytes.Equal(got, want) {
					t.Fatalf("slot %d from instance %d on: expected %x, found %x", slot, first, want, got)
				}
			}
			at += n * size
		}
	}
}
