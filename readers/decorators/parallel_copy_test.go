package decorators

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

func withCopiers(t *testing.T, n int) {
	before := copiers
	copiers = n
	t.Cleanup(func() { copiers = before })
}

func TestWorkIsCopiedInParallel(t *testing.T) {
	for _, c := range []struct{ copiers, n, bytes, calls int }{
		{1, 10, 100 * copyPiece, 1},
		{4, 10, 2*copyPiece - 1, 1},
		{4, 10, 2 * copyPiece, 2},
		{2, 10, 7 * copyPiece, 7},
		{4, 10, 100 * copyPiece, 10},
		{4, 1, 100 * copyPiece, 1},
		{4, 1000, 900 * copyPiece, maxPieces},
	} {
		withCopiers(t, c.copiers)
		var mu sync.Mutex
		var done []int
		calls := 0
		err := parallelCopy(c.n, c.bytes, func(first, end int) error {
			mu.Lock()
			defer mu.Unlock()
			calls++
			for i := first; i < end; i++ {
				done = append(done, i)
			}
			return nil
		})
		slices.Sort(done)
		if len(done) != c.n || done[0] != 0 || len(slices.Compact(done)) != c.n || calls != c.calls || err != nil {
			t.Errorf("%+v: found %v in %d calls, %v", c, done, calls, err)
		}
	}
}

// Copiers work in parallel, and the caller does not wait for copiers that take no piece.
func TestCopiersWorkTogether(t *testing.T) {
	withCopiers(t, 3)
	var together sync.WaitGroup
	together.Add(3)
	err := parallelCopy(3, 3*copyPiece, func(int, int) error {
		together.Done()
		together.Wait() // returns only if all three work at the same time
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestErrorsOfParallelCopies(t *testing.T) {
	withCopiers(t, 4)
	err := parallelCopy(8, 100*copyPiece, func(part, _ int) error {
		if part == 7 || part == 2 || part == 5 {
			return fmt.Errorf("part %d", part)
		}
		return nil
	})
	if err == nil || err.Error() != "part 2" {
		t.Errorf("expected the error of the first part, found %v", err)
	}
	for _, faults := range []int{1, 2, 100} { // in whichever threads take those pieces
		var begun atomic.Int64
		err := parallelCopy(8, 100*copyPiece, func(int, int) error {
			if begun.Add(1) <= int64(faults) {
				panic("out of order")
			}
			return nil
		})
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.Fault || !strings.Contains(e.Text, "a thread that copies: out of order") {
			t.Errorf("%d faults: found %v", faults, err)
		}
	}
}

// Stacked and joined batches of large tuples are the same as if one thread had made them.
func TestLargeBatches(t *testing.T) {
	const wide = copyPiece / 8 / 3
	for _, copiers := range []int{1, 3, 4} {
		withCopiers(t, copiers)
		for _, joined := range []bool{false, true} {
			slots := []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{wide}}}
			if joined {
				slots = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{-1}}}
			}
			q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 100, Slots: slots})
			r, err := NewBatchReader(ofQueue(q), 20, false, false)
			h := readertest.Hold(t, r, err)
			var expected []byte
			for i := range int64(30) {
				values := make([]int64, wide)
				if joined {
					values = make([]int64, wide+int(i%5)*1000)
				}
				for k := range values {
					values[k] = i<<32 + int64(k)
				}
				numbers := readertest.Numbers(pyfeed.Dims{int64(len(values))}, values...)
				expected = append(expected, numbers.Data...)
				readertest.Push(t, q, numbers)
			}
			q.Close(pyfeed.PassCurrent)
			var got []byte
			for {
				batch, err := h.ReadNext(background)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, batch.Slots[0].Data...)
				batch.Release()
			}
			if !bytes.Equal(got, expected) {
				t.Errorf("%d copiers, joined %v: expected %d bytes, found %d bytes that differ", copiers, joined, len(expected), len(got))
			}
		}
	}
}

// The error gives the number in the batch of the tuple that does not fit, whichever thread finds it.
func TestALargeTupleThatDoesNotFit(t *testing.T) {
	withCopiers(t, 4)
	const wide = copyPiece / 8
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	var batch stackedBatch
	var chunk record.Chunk
	for i := range 8 {
		n := int64(wide)
		if i == 5 {
			n--
		}
		chunk.Add(&pyfeed.Tuple{Slots: []pyfeed.LoDTensor{readertest.Numbers(pyfeed.Dims{n}, make([]int64, n)...)}})
	}
	batch.takes(&chunk, chunk.Len(), pool)
	batch.add(&chunk, 0)
	_, err := batch.finish()
	readertest.Expect(t, err, pyfeed.Shape, fmt.Sprintf("tuple 5 of a batch: expected int64 [%d] as in tuple 0, found int64 [%d]", wide, wide-1))
}

// The first batch of more than maxAllocated grows with its tuples. Later batches up to that size are allocated at once.
func TestALargeBatchGrowsOnce(t *testing.T) {
	const rows, wide = 5, maxAllocated / 4 / 8
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	var batch stackedBatch
	all := make([]*pyfeed.Tuple, rows) // the last two have zeros
	for k := range all {
		s := pyfeed.LoDTensor{DType: pyfeed.Int64, Data: make([]byte, 8*wide)}
		_ = s.SetDims(pyfeed.Dims{wide})
		if k < rows-2 {
			s.Data[8] = byte(k + 1)
		}
		all[k] = &pyfeed.Tuple{Slots: []pyfeed.LoDTensor{s}}
	}
	for i, want := range []struct {
		size  int
		grows bool
	}{{rows, true}, {rows, false}, {rows - 2, false}, {2 * rows, true}, {rows, false}} {
		var chunk record.Chunk
		for k := range rows - 2 {
			chunk.Add(all[k])
		}
		batch.takes(&chunk, want.size, pool)
		if grows := batch.pool != nil; grows != want.grows {
			t.Errorf("batch %d of %d tuples: expected that it grows: %v, found %v", i, want.size, want.grows, grows)
		}
		batch.add(&chunk, 0)
		if want.size == rows {
			last := record.Chunk{}
			for _, zeros := range all[rows-2:] {
				last.Add(zeros)
			}
			batch.add(&last, 0)
		}
		whole, err := batch.finish()
		if err != nil {
			t.Fatal(err)
		}
		for k := range rows - 2 {
			if found := whole.Slots[0].Data[k*wide*8+8]; found != byte(k+1) {
				t.Errorf("batch %d: row %d: expected %d, found %d", i, k, k+1, found)
			}
		}
		whole.Release()
	}
}
