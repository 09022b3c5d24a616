package readers

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// stack is a batch whose instances are written into it as they come, while they are in the processor's cache, and
// let go of. That takes slots that are stacked. A large batch grows with its tuples: each of its slots has memory of its own,
// whose pages move to where there is room for more.
type stack struct {
	batch *pyfeed.Tuple // nil before the first tuple
	pool  *memory.Pool  // of a batch that grows; else nil
	most  int           // tuples of such a batch
	n     int           // tuples in it
	bytes int           // of those
	bad   error         // why there will be no batch of them
}

// mostStacked bounds what is allocated before it is known how many tuples there are.
const mostStacked = 64 << 20

// takes says whether the instances of a batch that begins with those of l go into the stack.
func (s *stack) takes(l *Lot, size int, pool *memory.Pool) bool {
	if s.batch != nil || s.bad != nil {
		return true
	}
	first, _ := l.like(0)
	if fit := mostStacked / (1 + first.Size()); size > fit {
		if pool.Pinned() {
			return false // its pages do not move
		}
		s.pool, s.most = pool, size
		s.bad = s.begin(l, max(fit, 1))
		if s.bad == nil {
			s.bad = s.extend(max(fit, 1))
		}
		return true
	}
	if s.bad = s.begin(l, size); s.bad == nil {
		s.bad = s.batch.Allocate(pool)
	}
	return true
}

// extend makes the batch one of n rows, with those that are in it.
func (s *stack) extend(n int) error {
	for i := range s.batch.Slots {
		if err := s.batch.Slots[i].Extend(n, s.n, s.pool); err != nil {
			return err
		}
	}
	return nil
}

// reserve has room for n tuples more, if the batch grows.
func (s *stack) reserve(n int) error {
	if s.pool == nil || s.n+n <= int(s.batch.Slots[0].Dims()[0]) {
		return nil
	}
	return s.extend(min(max(2*s.n, s.n+n), s.most))
}

// begin is a batch of so many instances that look as the first of l, without memory.
func (s *stack) begin(l *Lot, size int) error {
	first, pass := l.like(0)
	s.batch = pyfeed.NewTuple(len(first.Slots))
	s.batch.Pass, s.batch.From = pass, l.origin(0)
	for i := range first.Slots {
		from, to := &first.Slots[i], &s.batch.Slots[i]
		to.DType, to.Place = from.DType, from.Place
		if err := s.setRows(i, from.Dims(), size); err != nil {
			return err
		}
	}
	return nil
}

// setRows makes the i-th slot one of n rows.
func (s *stack) setRows(i int, row pyfeed.Dims, n int) error {
	var room [pyfeed.MaxRank]int64
	to := &s.batch.Slots[i]
	err := to.SetDims(append(append(room[:0], int64(n)), row...))
	if err == nil {
		_, err = to.Measure()
	}
	if err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
	}
	return nil
}

// add writes instances behind those that are there. They stay l's; the caller is on the track.
func (s *stack) add(l *Lot, track trace.Track) {
	start, n, bytes := trace.Begin(), l.Len(), l.bytes
	if s.bad == nil {
		s.bad = s.fits(l)
	}
	if s.bad == nil {
		s.bad = s.reserve(n)
	}
	if s.bad == nil {
		s.bad = cmp.Or(share(n, bytes, func(first, end int) error { return s.write(l, first, end) }), l.intact())
	}
	trace.CopySince(track, "batch", start, bytes)
	s.n, s.bytes = s.n+n, s.bytes+bytes
}

// fits is an error about the first instance that does not look like the others.
func (s *stack) fits(l *Lot) error {
	alike := true
	for i := range l.rows {
		alike = alike && s.unlike(&l.rows[i].first) < 0
	}
	for _, t := range l.tuples {
		alike = alike && (t == nil || s.unlike(t) < 0)
	}
	for k := 0; !alike && k < l.Len(); k++ {
		t, _ := l.like(k)
		if i := s.unlike(t); i >= 0 {
			to := &s.batch.Slots[i]
			return mismatched(i, s.n+k, &t.Slots[i], to.DType, to.Dims()[1:], l.origin(k))
		}
	}
	return nil
}

// unlike is the first slot that is not as in the batch, or -1.
func (s *stack) unlike(t *pyfeed.Tuple) int {
	for i := range t.Slots {
		from, to := &t.Slots[i], &s.batch.Slots[i]
		if from.DType != to.DType || !slices.Equal(from.Dims(), to.Dims()[1:]) {
			return i
		}
	}
	return -1
}

// write copies some of the instances to their rows.
func (s *stack) write(l *Lot, first, end int) error {
	for i := range s.batch.Slots {
		to := s.batch.Slots[i].Data
		size := len(to) / int(s.batch.Slots[i].Dims()[0])
		to = to[(s.n+first)*size:]
		for items := l.items[first:end]; len(items) > 0; {
			n := l.writeRows(to, i, size, items)
			if n == 0 {
				n = 1
				if it := items[0]; it.of != alone {
					pyfeed.Copy(to, l.rows[it.of].data(i, int(it.number)))
				} else {
					from := &l.tuples[it.number].Slots[i]
					pyfeed.Copy(to, from.Data)
					if err := from.Intact(i); err != nil {
						return err
					}
				}
			}
			to, items = to[n*size:], items[n:]
		}
	}
	return nil
}

// small is up to how many bytes are copied without a look at whether that is to be done in pieces.
const small = 64 << 10

// writeRows copies a slot, of a small size, of those at the front that lie at equal distances, and answers how many. What
// small rows cost is not their bytes but the instructions between, so that there are no checks: all that is known of
// them was checked by NewRows and fits.
func (l *Lot) writeRows(to []byte, slot, size int, items []item) int {
	if size > small {
		return 0
	}
	rows, at := l.rows, unsafe.Pointer(unsafe.SliceData(to[:len(items)*size]))
	for k, it := range items {
		if it.of == alone || rows[it.of].spans != nil {
			return k
		}
		copy(unsafe.Slice((*byte)(at), size), unsafe.Slice(rows[it.of].place(slot, int(it.number)), size))
		at = unsafe.Add(at, size)
	}
	return len(items)
}

// finish is the batch, which is the caller's then.
func (s *stack) finish() (*pyfeed.Tuple, error) {
	if s.bad != nil {
		err := s.bad
		s.drop()
		return nil, err
	}
	if s.pool != nil {
		if s.bad = s.extend(s.n); s.bad != nil { // cuts it to what is there
			return s.finish()
		}
	}
	for i := range s.batch.Slots {
		to := &s.batch.Slots[i]
		size := len(to.Data) / int(to.Dims()[0])
		if err := s.setRows(i, to.Dims()[1:], s.n); err != nil {
			s.bad = err
			return s.finish()
		}
		to.Data = to.Data[:s.n*size]
	}
	batch := s.batch
	batch.From = batch.From.Batch(s.n)
	*s = stack{}
	return batch, nil
}

func (s *stack) drop() {
	if s.batch != nil {
		s.batch.Release()
	}
	*s = stack{}
}
