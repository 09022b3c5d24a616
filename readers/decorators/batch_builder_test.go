package decorators

import (
	"fmt"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// textsBlock makes a Block of n instances with a text and a label of size bytes.
func textsBlock(t *testing.T, pool *memory.Pool, first, n, size int, dtype pyfeed.DType) *record.Block {
	t.Helper()
	b, err := pool.Get(n * (size + 1000))
	if err != nil {
		t.Fatal(err)
	}
	clear(b.Bytes())
	var spans []record.Span
	used := n * size
	for k := range n {
		b.Bytes()[k*size] = byte(first + k)
		text := strings.Repeat(fmt.Sprint(first+k, " "), (first+k)%100)
		spans = append(spans, record.Span{At: uint32(used), Size: uint32(copy(b.Bytes()[used:], text))})
		used += len(text)
	}
	defer b.Release()
	slots := make([]pyfeed.LoDTensor, 2)
	slots[1].DType, slots[1].Data = dtype, b.Bytes()[:size:n*size]
	return record.NewTextBlock(slots, []record.Text{{Spans: spans, Base: b.Bytes(), Buffer: b}, {}}, size, n, b)
}

// Batches of Blocks with text are those of the same tuples, on any number of threads, and also with tuples between Blocks.
func TestBatchesOfTextBlocks(t *testing.T) {
	readertest.Counted(t)
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 1, Slots: []pyfeed.Slot{record.BytesSlot, {DType: pyfeed.Any, Dims: pyfeed.Dims{}}}})
	reader, err := NewBatchReader(ofQueue(q), 3000, false, false)
	_, r := asReader[*batchReader](t, reader, err)
	build := func(blocks []*record.Block, tuple func(i int) bool) string {
		var c record.Chunk
		for _, b := range blocks {
			c.AddBlock(b)
		}
		b := r.newBuilder()
		for i := 0; c.Len() > 0; i++ {
			if !tuple(i) {
				c.MoveTo(&b.chunk, 1)
				continue
			}
			one, err := c.TakeOne()
			if err != nil {
				t.Fatal(err)
			}
			b.chunk.Add(one)
		}
		batch, err := b.build(0)
		if err != nil {
			return err.Error()
		}
		defer batch.Release()
		text, labels := &batch.Slots[0], &batch.Slots[1]
		return fmt.Sprint(text.DType, text.Dims(), text.LoD, labels.DType, labels.Dims(), labels.LoD, batch.From.String(), string(text.Data), labels.Data)
	}
	never, always := func(int) bool { return false }, func(int) bool { return true }
	for _, copiers := range []int{1, 3} {
		withCopiers(t, copiers)
		for name, blocks := range map[string]func() []*record.Block{
			"one":   func() []*record.Block { return []*record.Block{textsBlock(t, pool, 1, 5, 8, pyfeed.Int64)} },
			"empty": func() []*record.Block { return []*record.Block{textsBlock(t, pool, 100, 1, 4, pyfeed.Float32)} },
			"many": func() []*record.Block {
				return []*record.Block{textsBlock(t, pool, 0, 2900, 8, pyfeed.Int64), textsBlock(t, pool, 7, 10, 8, pyfeed.Int64), textsBlock(t, pool, 70, 50, 8, pyfeed.Int64)}
			},
			"other dtypes": func() []*record.Block {
				return []*record.Block{textsBlock(t, pool, 0, 3, 8, pyfeed.Int64), textsBlock(t, pool, 3, 4, 8, pyfeed.Float64)}
			},
		} {
			want := build(blocks(), always)
			if strings.Contains(want, "expected") != (name == "other dtypes") {
				t.Errorf("%s: found %.200s", name, want)
			}
			for _, tuple := range []func(int) bool{never, func(i int) bool { return i%5 == 3 }, func(i int) bool { return i == 0 }} {
				if got := build(blocks(), tuple); got != want {
					t.Errorf("%s, %d copiers: expected %.300s, found %.300s", name, copiers, want, got)
				}
			}
		}
	}
}
