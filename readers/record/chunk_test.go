package record

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// After a shard has released instances, their file may be unmapped before the batch of the kept instances is made.
func TestAChunkDoesNotCheckFilesThatItHasReleased(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shrinks")
	size := 2 * os.Getpagesize()
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	m, err := pool.Map(path, int(f.Fd()), int64(size))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()

	spans := []Span{{0, 1}, {uint32(size) - 1, 1}}
	var c Chunk
	defer c.Release()
	add := func(keep bool) {
		before := c.Checkpoint()
		c.AddBlock(NewSpanBlock(m.Bytes(), spans, m.Window(0, len(spans))))
		if kept := c.Filter(before, func() bool { return keep }); kept != 0 != keep {
			t.Fatalf("expected all or none to be kept, found %d", kept)
		}
	}
	add(false)
	if err := os.Truncate(path, 1); err != nil {
		t.Fatal(err)
	}
	if last := m.Bytes()[size-1]; last != 0 || m.TornAt(unsafe.Pointer(&m.Bytes()[size-1]), 1) == nil {
		t.Fatalf("expected a zero in place of the lost byte, found %d", last)
	}
	if err := c.CheckTruncated(); err != nil {
		t.Errorf("all released: expected no error, found %v", err)
	}
	add(true)
	e, is := c.CheckTruncated().(*pyfeed.Error)
	if !is || e.Kind != pyfeed.Corrupt {
		t.Errorf("some kept: expected an error of the file, found %v", e)
	}
}

// The batch has instances at equal distances, tuples between them, and slots below and above the size that is copied in
// one piece.
func TestBlocksAndTuplesAreCopiedInTheirOrder(t *testing.T) {
	sizes := []int{3, maxSmallSlot, maxSmallSlot + 1, 0, 2 << 20}
	stride, n, before := 0, 5, memory.Count()
	for _, size := range sizes {
		stride += size + 1 // an unused byte between slots
	}
	pool := memory.NewPool(memory.Batch)
	defer pool.Close()
	b, err := pool.Get(n * stride)
	if err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	for i := range data {
		data[i] = byte(i * 7 / 5)
	}
	slots, at := make([]pyfeed.LoDTensor, len(sizes)), 0
	for i, size := range sizes {
		slots[i].DType, slots[i].Data = pyfeed.Uint8, data[at:at+size]
		if err := slots[i].SetDims(pyfeed.Dims{int64(size)}); err != nil {
			t.Fatal(err)
		}
		at += size + 1
	}
	b.Retain(n - 1)
	var c Chunk
	c.AddBlock(NewBlock(slots, stride, n, b))
	order := []int{3, 0, 4, 1, 2}
	for k, of := range order {
		c.items[k].index = uint32(of)
	}
	for _, k := range []int{1, 2, 4} { // these instances become tuples
		it := c.items[k]
		made := pyfeed.NewTuple(0)
		if err := c.blocks[it.block].Materialize(made, int(it.index), &c.offsets); err != nil {
			t.Fatal(err)
		}
		c.items[k] = item{tupleItem, uint32(len(c.tuples))}
		c.tuples = append(c.tuples, made)
	}
	for i, size := range sizes {
		found := make([]byte, n*size)
		if err := c.CopySlot(found, i, size, 0, n); err != nil {
			t.Fatal(err)
		}
		var want []byte
		for _, of := range order {
			begin := of * stride
			for _, size := range sizes[:i] {
				begin += size + 1
			}
			for j := range sizes[i] {
				want = append(want, byte((begin+j)*7/5))
			}
		}
		if !bytes.Equal(found, want) {
			t.Errorf("slot %d, of %d bytes: expected the data of rows %v", i, sizes[i], order)
		}
	}
	c.Release()
	if after := memory.Count(); after.Live != before.Live {
		t.Errorf("memory was not released: %v before, %v after", before.Live, after.Live)
	}
}

func TestABlockIsNeverOutsideItsMemory(t *testing.T) {
	for _, c := range []struct{ stride, n, capacity int }{{4, 2, 7}, {-1, 2, 8}, {1 << 62, 3, 8}, {4, 1 << 40, 1 << 10}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%d rows of 4 bytes, %d apart, in %d: expected a panic", c.n, c.stride, c.capacity)
				}
			}()
			NewBlock([]pyfeed.LoDTensor{{DType: pyfeed.Uint8, Data: make([]byte, 4, c.capacity)}}, c.stride, c.n, nil)
		}()
	}
}

// Slots without names get the names slot0, slot1, …
func TestSlotNames(t *testing.T) {
	w := FileWriter{Names: []string{"x", ""}}
	for i, want := range []string{"x", "slot1", "slot2"} {
		if name := w.SlotName(i); name != want {
			t.Errorf("slot %d: expected the name %q, found %q", i, want, name)
		}
	}
}
