package arrow

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// reading is a column that is read: its arrays in the current batch, and the value of its nulls.
type reading struct {
	*column
	slotNumber int
	stop       *storage.Interrupt
	value      []byte // of a null: an element, or a byte string
	hasValue   bool
	wrong      *columns.Value // the value that the dtype cannot represent; nil: none

	// In the current batch:
	lists      []*array   // of the levels
	limits     []int      // elements in all lists of each level
	levelMasks [][]bitmap // of the levels
	nulls      []bitmap   // of the elements
	elements   *array
	dictionary *dictionary // of the leaf; nil: it is not encoded
	direct     bool        // the elements can be used as they lie in the file
}

// bitmap is a mask whose array has nulls. Element i of the column is null if bit i/div is not set.
type bitmap struct {
	bits []byte
	div  int
	all  bool // all are null
}

// isNull reports whether one of the bitmaps says that element i is null.
func isNull(masks []bitmap, i int) bool {
	for k := range masks {
		m := &masks[k]
		j := i
		if m.div != 1 {
			j = i / m.div
		}
		if m.all || m.bits[j>>3]>>(j&7)&1 == 0 {
			return true
		}
	}
	return false
}

// nullError is the error of an element without a value. It is no damage: skipping the row would lose its other values.
type nullError struct{ c *reading }

func (e nullError) Error() string {
	if e.c.wrong != nil {
		return fmt.Sprintf("%v: expected a value, found null, for which %v cannot represent the default %q", e.c.column, e.c.dtype, *e.c.wrong)
	}
	return fmt.Sprintf("%v: expected a value, found null: the option default gives one", e.c.column)
}

// read returns the reading of a column of a slot. missing is the value of nulls; own: the column's own, which it has to
// be able to represent.
func (r *records) read(slot int, c *column, missing *columns.Value, own bool) (*reading, error) {
	out := &reading{column: c, slotNumber: slot, stop: r.f.Interrupt()}
	if missing == nil {
		return out, nil
	}
	if c.text {
		out.value, out.hasValue = []byte(*missing), true
		return out, nil
	}
	element, err := parseElement(string(*missing), c)
	if err != nil && own {
		return nil, fmt.Errorf("%v: default: %w", c, err)
	}
	out.value, out.hasValue = element, err == nil
	if err != nil {
		out.wrong = missing
	}
	return out, nil
}

// parseElement returns the bytes of an element of a column.
func parseElement(text string, c *column) ([]byte, error) {
	element, ok := number.Element(text, c.dtype)
	if !ok {
		return nil, fmt.Errorf("expected a value of %v, found %q", c.dtype, text)
	}
	return slices.Repeat(element, c.size/len(element)), nil // several bytes of a fixed_size_binary
}

// begin prepares the column for a batch. After storage.ErrInterrupted, the next call goes on.
func (c *reading) begin(b *batch, r *records) error {
	bitmaps := func(to []bitmap, masks []mask) ([]bitmap, error) {
		to = to[:0]
		for _, m := range masks {
			a, err := b.load(m.f, r)
			if err != nil {
				return to, err
			}
			if a.allNull || len(a.validity.data) > 0 {
				to = append(to, bitmap{a.validity.data, m.div, a.allNull})
			}
		}
		return to, nil
	}
	n, err := int(b.header.rows), error(nil)
	c.lists, c.limits = c.lists[:0], c.limits[:0]
	for len(c.levelMasks) < len(c.levels) {
		c.levelMasks = append(c.levelMasks, nil)
	}
	enough := func(masks []mask) error {
		for _, m := range masks {
			if found := b.header.nodes[m.f.node].length; m.div > 0 && found < int64(n/m.div) {
				return pyfeed.Errorf(pyfeed.Corrupt, "%v: expected %d elements in its %v, found %d", c.column, n/m.div, m.f, found)
			}
		}
		return nil
	}
	for i, l := range c.levels {
		if err = enough(l.masks); err != nil {
			return err
		}
		if c.levelMasks[i], err = bitmaps(c.levelMasks[i], l.masks); err != nil {
			return err
		}
		a, err := b.load(l.list, r)
		if err != nil {
			return err
		}
		c.lists = append(c.lists, a)
		n = int(min(max(b.header.nodes[l.list.children[0].node].length, 0), 1<<48))
		c.limits = append(c.limits, n)
	}
	if c.count > 0 && n > 1<<56/c.count {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected fewer elements, found %d lists of %d", n, c.count)
	}
	n *= c.count
	if err = enough(c.masks); err != nil {
		return err
	}
	if c.nulls, err = bitmaps(c.nulls, c.masks); err != nil {
		return err
	}
	if c.elements, err = b.load(c.leaf, r); err != nil {
		return err
	}
	c.dictionary = nil
	if c.leaf.encoded {
		if c.dictionary, err = r.dictionaryOf(c.leaf, r.current); err != nil {
			return err
		}
	}
	f := c.leaf
	c.direct = !c.text && c.size > 0 && len(c.nulls) == 0 && c.dictionary == nil && f.kind != typeBool && f.kind != typeDecimal && f.kind != typeNull
	return nil
}

// interval are the elements first to end-1.
type interval struct{ first, end int }

// bounds returns the elements of list j.
func (a *array) bounds(f *field, j int) (first, end int) {
	if a.length == 0 || len(a.offsets.data) == 0 {
		return 0, 0
	}
	if f.isWide() {
		first = int(binary.LittleEndian.Uint64(a.offsets.data[8*j:]))
		end = int(binary.LittleEndian.Uint64(a.offsets.data[8*j+8:]))
		return first, end
	}
	first = int(int32(binary.LittleEndian.Uint32(a.offsets.data[4*j:])))
	end = int(int32(binary.LittleEndian.Uint32(a.offsets.data[4*j+4:])))
	return first, end
}

// expand returns the elements of a row, as intervals of elements of the innermost list, and the ragged offsets of each
// level that is not exact. Their storage is reused.
func (c *reading) expand(row int, s *scratch) error {
	s.intervals = append(s.intervals[:0], interval{row, row + 1})
	s.used = 0
	for k := range c.levels {
		l, a, masks := &c.levels[k], c.lists[k], c.levelMasks[k]
		limit := c.limits[k]
		from := s.intervals
		s.spare = s.spare[:0]
		offsets := s.level()
		total := 0
		for _, in := range from {
			for j := in.first; j < in.end; j++ {
				first, end := 0, 0
				if len(masks) > 0 && isNull(masks, j) {
					if !c.hasValue && c.wrong == nil { // with a default, a null list is empty, whatever the default is
						return nullError{c}
					}
				} else if first, end = a.bounds(l.list, j); first < 0 || end < first || end > limit {
					return pyfeed.Errorf(pyfeed.Corrupt, "%v: expected offsets from 0 to %d that do not decrease, found %d and %d", c.column, limit, first, end)
				}
				if l.exact >= 0 && int64(end-first) != l.exact {
					return pyfeed.Errorf(pyfeed.Shape, "%v: expected lists of %d elements, found one of %d", c.column, l.exact, end-first)
				}
				total += end - first
				if l.exact < 0 {
					*offsets = append(*offsets, int64(total))
				}
				if last := len(s.spare) - 1; last >= 0 && s.spare[last].end == first {
					s.spare[last].end = end
				} else if end > first {
					s.spare = append(s.spare, interval{first, end})
				}
			}
		}
		if l.exact >= 0 {
			s.used--
		}
		s.intervals, s.spare = s.spare, from
	}
	return nil
}

// scratch has the elements of a row.
type scratch struct {
	intervals, spare []interval
	lod              [pyfeed.MaxRank][]int64
	used             int // levels of lod
}

func (s *scratch) level() *[]int64 {
	l := &s.lod[min(s.used, len(s.lod)-1)]
	*l = append((*l)[:0], 0)
	s.used++
	return l
}

// total returns the number of elements.
func (s *scratch) total() (n int) {
	for _, in := range s.intervals {
		n += in.end - in.first
	}
	return n
}

// copy copies the elements first to end-1 of the leaf into rows that lie stride bytes apart, per of them in each row. It
// returns how many complete rows were copied before an error.
func (c *reading) copy(to []byte, first, end, per, stride int) (rows int, err error) {
	size := c.size
	if size == 0 || per == 0 {
		return (end - first) / max(per, 1), nil
	}
	a, f := c.elements, c.leaf
	if c.direct {
		record.Spread(to, a.data.data[first*size:end*size], stride, per*size)
		return (end - first) / per, nil
	}
	for i, polled := first, first; i < end; {
		if i-polled > storage.PollEvery {
			if err := c.stop.Poll(); err != nil {
				return rows, err
			}
			polled = i
		}
		row := to[rows*stride:]
		for k := range per {
			into := row[k*size : k*size+size]
			if len(c.nulls) > 0 && isNull(c.nulls, i) {
				if !c.hasValue {
					return rows, nullError{c}
				}
				copy(into, c.value)
				i++
				continue
			}
			j, from, leaf := i, a, f
			if c.dictionary != nil {
				if from, leaf, j, err = c.lookUp(i); err != nil {
					return rows, err
				}
				if from == nil {
					copy(into, c.value)
					i++
					continue
				}
			}
			switch leaf.kind {
			case typeBool:
				into[0] = from.data.data[j>>3] >> (j & 7) & 1
			case typeDecimal:
				binary.NativeEndian.PutUint64(into, math.Float64bits(decimal(from.data.data[j*leaf.width:][:leaf.width], leaf.size)))
			default:
				copy(into, from.data.data[j*size:j*size+size])
			}
			i++
		}
		rows++
	}
	return rows, nil
}

// decimal returns the nearest float64 of an integer of size bytes times 10^-scale.
func decimal(data []byte, scale int) float64 {
	var b [32]byte
	negative := data[len(data)-1]&0x80 != 0
	for i := range data {
		d := data[len(data)-1-i]
		if negative {
			d = ^d
		}
		b[i] = d
	}
	v := new(big.Int).SetBytes(b[:len(data)])
	if negative {
		v.Add(v, big.NewInt(1)).Neg(v)
	}
	if scale == 0 || v.Sign() == 0 {
		f, _ := new(big.Float).SetInt(v).Float64()
		return f
	}
	power := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(scale, -scale))), nil)
	if scale < 0 {
		f, _ := new(big.Float).SetInt(v.Mul(v, power)).Float64()
		return f
	}
	f, _ := new(big.Rat).SetFrac(v, power).Float64()
	return f
}

// lookUp returns the array of the dictionary that has the value of element i, and the value's number in it. No array: the
// value is null, and the column has a value for that.
func (c *reading) lookUp(i int) (*array, *field, int, error) {
	data, d := c.elements.offsets.data, c.dictionary
	index, _ := record.Integer(c.leaf.index, data[i*c.leaf.index.Size():])
	if index < 0 || index >= int64(d.length) {
		return nil, nil, 0, pyfeed.Errorf(pyfeed.Corrupt, "%v: expected an index of a dictionary of %d values, found %d", c.column, d.length, index)
	}
	part := &d.parts[0]
	for k := 1; int(index) >= part.end; k++ {
		part = &d.parts[k]
	}
	j := int(index) - part.first
	if len(part.nulls) > 0 && isNull(part.nulls, j) {
		if !c.hasValue {
			return nil, nil, 0, nullError{c}
		}
		return nil, nil, 0, nil
	}
	return part.values, part.field, j, nil
}

// bytes returns byte string i, and the region and the offset in it where it is. No region: it is the value of nulls.
func (c *reading) bytes(i int) (data []byte, in *region, at int, err error) {
	if len(c.nulls) > 0 && isNull(c.nulls, i) {
		if !c.hasValue {
			return nil, nil, 0, nullError{c}
		}
		return c.value, nil, 0, nil
	}
	a, f := c.elements, c.leaf
	if c.dictionary != nil {
		if a, f, i, err = c.lookUp(i); err != nil {
			return nil, nil, 0, err
		}
		if a == nil {
			return c.value, nil, 0, nil
		}
	}
	if f.width == viewSize {
		v := a.data.data[i*viewSize:][:viewSize]
		n := int(int32(binary.LittleEndian.Uint32(v)))
		if n >= 0 && n <= 12 {
			return v[4 : 4+n : 4+n], &a.data, i*viewSize + 4, nil
		}
		number, at := int(int32(binary.LittleEndian.Uint32(v[8:]))), int(int32(binary.LittleEndian.Uint32(v[12:])))
		if n < 0 || number < 0 || number >= len(a.variadic) || at < 0 || n > len(a.variadic[number].data)-at {
			return nil, nil, 0, pyfeed.Errorf(pyfeed.Corrupt, "%v: expected a view of one of %d buffers, found %d bytes at %d of number %d",
				c.column, len(a.variadic), n, at, number)
		}
		in = &a.variadic[number]
		return in.data[at : at+n : at+n], in, at, nil
	}
	first, end := a.bounds(f, i)
	if first < 0 || end < first || end > len(a.data.data) {
		return nil, nil, 0, pyfeed.Errorf(pyfeed.Corrupt, "%v: expected offsets from 0 to %d that do not decrease, found %d and %d",
			c.column, len(a.data.data), first, end)
	}
	return a.data.data[first:end:end], &a.data, first, nil
}

// dictionary has the values of a column that is encoded by a dictionary.
type dictionary struct {
	parts  []dictionaryPart // of the dictionary, and of the deltas that add values to it
	length int
}

// dictionaryPart has the values first to end-1.
type dictionaryPart struct {
	first, end int
	batch      *batch
	field      *field
	values     *array
	nulls      []bitmap
}

func (d *dictionary) release() {
	for i := range d.parts {
		d.parts[i].batch.release()
	}
	d.parts = nil
}

// holdBytes returns a reference to the memory of a byte string that bytes has returned; for the value of nulls, a copy.
func (r *records) holdBytes(data []byte, in *region, at int) ([]byte, *memory.Buffer, error) {
	if in != nil && (in.offset >= 0 || in.memory != nil) && !r.copies {
		b, _ := in.hold(r.f, at, 0, 1)
		return data, b, nil
	}
	to, b, err := r.arena.Get(len(data))
	if err != nil {
		return nil, nil, err
	}
	copy(to, data)
	return to, b, nil
}
