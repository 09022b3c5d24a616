package readers

import (
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Lot is instances on their way from one reader to the next: tuples, or numbers of Rows, which become tuples only where
// somebody wants to see them. It holds a reference for each. One caller at a time.
type Lot struct {
	items  []item
	front  int // of items: the next
	rows   []portion
	tuples []*pyfeed.Tuple // nil: it has gone
	bytes  int             // of data that came in since it was empty
	cycle  uint32          // a number for each time it was emptied
	to     *Lot            // where the last were moved

	offsets Offsets // of tuples that are made
}

// item is an instance, in eight bytes, since these are what a shuffle moves.
type item struct {
	of     uint32 // in rows, or alone
	number uint32 // among those, or in tuples
}

const alone = ^uint32(0)

// portion is Rows of which there are some.
type portion struct {
	*Rows
	pass  int64
	loose int  // references to their memory, while some are let go of
	gone  bool // all of them were let go of, and so may be their memory
	// Which of the rows they are where the last of them were moved, in which cycle of that.
	at, cycle uint32
}

// Len is how many there are.
func (l *Lot) Len() int { return len(l.items) - l.front }

// Add adds a tuple, which it owns from now on.
func (l *Lot) Add(t *pyfeed.Tuple) {
	l.items = append(l.items, item{alone, uint32(len(l.tuples))})
	l.tuples = append(l.tuples, t)
	l.bytes += t.Size()
}

// AddRows adds all of them, and takes their references over.
func (l *Lot) AddRows(r *Rows) {
	of, begin := uint32(len(l.rows)), len(l.items)
	l.rows = append(l.rows, portion{Rows: r})
	l.items = slices.Grow(l.items, r.count)[:begin+r.count]
	for k := range l.items[begin:] {
		l.items[begin+k] = item{of, uint32(k)}
	}
	l.bytes += r.total()
}

// room is space for tuples behind those that are there, for added.
func (l *Lot) room(n int) []*pyfeed.Tuple {
	l.tuples = slices.Grow(l.tuples, n)
	return l.tuples[len(l.tuples):][:n]
}

// added adds the first n tuples of what room answered.
func (l *Lot) added(n int) {
	begin := len(l.tuples)
	l.tuples = l.tuples[:begin+n]
	for k, t := range l.tuples[begin:] {
		l.items = append(l.items, item{alone, uint32(begin + k)})
		l.bytes += t.Size()
	}
}

// move moves the next n, or all if there are fewer, behind those of to, and answers how many.
func (l *Lot) move(to *Lot, n int) int {
	n = min(n, l.Len())
	begin := len(to.items)
	to.items = slices.Grow(to.items, n)[:begin+n]
	l.moveTo(to, to.items[begin:], 1)
	return n
}

// interleave moves the next n of each of them behind those of to, the first of each before the second of any.
func interleave(from []*Lot, to *Lot, n int) {
	begin := len(to.items)
	to.items = slices.Grow(to.items, n*len(from))[:begin+n*len(from)]
	for i, l := range from {
		l.moveTo(to, to.items[begin+i:], len(from))
	}
}

// moveTo moves the next to places in to, from the first on, that many apart.
func (l *Lot) moveTo(to *Lot, places []item, apart int) {
	if l.to != to {
		l.to = to
		for i := range l.rows {
			l.rows[i].cycle = 0
		}
	}
	to.cycle = max(to.cycle, 1)
	n := 0
	for i := 0; i < len(places); i += apart {
		it := l.items[l.front+n]
		n++
		if it.of == alone {
			t := l.tuples[it.number]
			l.tuples[it.number] = nil
			places[i] = item{alone, uint32(len(to.tuples))}
			to.tuples = append(to.tuples, t)
			to.bytes += t.Size()
			continue
		}
		p := &l.rows[it.of]
		if p.cycle != to.cycle {
			p.cycle, p.at = to.cycle, uint32(len(to.rows))
			to.rows = append(to.rows, portion{Rows: p.Rows, pass: p.pass})
		}
		places[i] = item{p.at, it.number}
		to.bytes += p.bytes(int(it.number))
	}
	l.forward(n)
}

// Take takes tuples of the next into out, as many as there are and fit, and answers how many. They are the caller's.
func (l *Lot) Take(out []*pyfeed.Tuple) int {
	n := min(len(out), l.Len())
	for k, it := range l.items[l.front:][:n] {
		if it.of == alone {
			out[k], l.tuples[it.number] = l.tuples[it.number], nil
			continue
		}
		p := &l.rows[it.of]
		t := pyfeed.NewTuple(0)
		p.fill(t, int(it.number), &l.offsets)
		t.Pass, t.From = p.pass, p.origin(int(it.number))
		out[k] = t
	}
	l.forward(n)
	return n
}

// one takes the next, of which there MUST be one.
func (l *Lot) one() *pyfeed.Tuple {
	var out [1]*pyfeed.Tuple
	l.Take(out[:])
	return out[0]
}

// forward goes on behind the next n, which were taken.
func (l *Lot) forward(n int) {
	if l.front += n; l.front == len(l.items) {
		l.empty()
	}
}

// empty leaves nothing but room, once all is taken or let go of.
func (l *Lot) empty() {
	clear(l.rows)
	l.items, l.rows, l.tuples, l.front, l.bytes = l.items[:0], l.rows[:0], l.tuples[:0], 0, 0
	l.cycle++
}

// drop lets go of all there is.
func (l *Lot) drop() {
	for _, it := range l.items[l.front:] {
		if it.of != alone {
			l.rows[it.of].loose++
		}
	}
	l.release()
	if len(l.tuples) > 0 {
		left := l.tuples[:0]
		for _, t := range l.tuples {
			if t != nil {
				left = append(left, t)
			}
		}
		pyfeed.ReleaseAll(left)
		clear(l.tuples)
	}
	l.empty()
}

// release lets go of references to the memory of Rows.
func (l *Lot) release() {
	for i := range l.rows {
		if p := &l.rows[i]; p.loose > 0 {
			p.buffer.ReleaseMany(p.loose)
			p.loose = 0
		}
	}
}

// mark is how far a Lot has come.
type mark struct{ items, rows, tuples int }

func (l *Lot) mark() mark { return mark{len(l.items), len(l.rows), len(l.tuples)} }

// since says that all that came since is of a pass.
func (l *Lot) since(m mark, pass int64) {
	for i := range l.rows[m.rows:] {
		l.rows[m.rows+i].pass = pass
	}
	for _, t := range l.tuples[m.tuples:] {
		if t != nil {
			t.Pass = pass
		}
	}
}

// keep lets go of what came since, but for what it is told to keep, and answers how many that are.
func (l *Lot) keep(m mark, keep func() bool) int {
	for i := range l.rows[m.rows:] {
		l.rows[m.rows+i].gone = true
	}
	kept := l.items[:m.items]
	for _, it := range l.items[m.items:] {
		switch {
		case keep():
			kept = append(kept, it)
			if it.of != alone {
				l.rows[it.of].gone = false
			}
		case it.of == alone:
			t := l.tuples[it.number]
			l.tuples[it.number] = nil
			l.bytes -= t.Size()
			t.Release()
		default:
			p := &l.rows[it.of]
			l.bytes -= p.bytes(int(it.number))
			p.loose++
		}
	}
	l.items = kept
	l.release()
	return len(kept) - m.items
}

// like is what the k-th looks like, and its pass. It stays the Lot's.
func (l *Lot) like(k int) (*pyfeed.Tuple, int64) {
	it := l.items[l.front+k]
	if it.of == alone {
		t := l.tuples[it.number]
		return t, t.Pass
	}
	p := &l.rows[it.of]
	return &p.first, p.pass
}

// origin is that of the k-th.
func (l *Lot) origin(k int) pyfeed.Origin {
	it := l.items[l.front+k]
	if it.of == alone {
		return l.tuples[it.number].From
	}
	return l.rows[it.of].origin(int(it.number))
}

// sequences says whether all are sequences of bytes without tuples.
func (l *Lot) sequences() bool {
	for i := range l.rows {
		if l.rows[i].spans == nil {
			return false
		}
	}
	return len(l.tuples) == 0
}

// intact is an error if a file has shrunk that some of the Rows lie in.
func (l *Lot) intact() error {
	for i := range l.rows {
		if p := &l.rows[i]; !p.gone {
			if err := p.intact(); err != nil {
				return err
			}
		}
	}
	return nil
}
