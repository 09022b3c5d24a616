package tfrecord

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// examples makes slots of tf.train.Example messages.
type examples struct {
	*plan
	scratch
	offsets record.Offsets
	arena   *memory.Arena
	found   []found // by key
	order   []int   // the keys of the entries of the last record: mostly those of the next one
	wide    []int64 // values on their way to a narrower type
	pattern pattern
}

// found is a message Feature of the record at hand.
type found struct {
	feature []byte
	there   bool
	copied  bool // and does not lie in the file
}

// elementsPerLook is how many numbers are widened, narrowed or compared between two looks at the interrupt.
const elementsPerLook = 1 << 18

func newExamples(p *plan, pool *memory.Pool, stop *storage.Interrupt) *examples {
	return &examples{plan: p, scratch: scratch{stop: stop}, arena: memory.NewArena(pool), found: make([]found, len(p.keys))}
}

// pattern is a record with its header, and what others have in common with it that are parsed as it was, for they differ in
// values alone that are used where they lie. So others need not be parsed.
type pattern struct {
	record []byte
	common []record.Span // of it: all but the values
	values []record.Span // by slot
	again  int64         // record from which on others are compared with it, or it is made anew
}

// fits says whether b begins with such a record, whose data verifies.
func (p *pattern) fits(b []byte) bool {
	n := len(p.record)
	if n == 0 || len(b) < n+footerSize {
		return false
	}
	for _, s := range p.common {
		if !bytes.Equal(b[s.At:s.At+s.Size], p.record[s.At:s.At+s.Size]) {
			return false
		}
	}
	return crc(b[headerSize:n]) == binary.LittleEndian.Uint32(b[n:])
}

// learn makes the pattern that of a record with its header, which lies in the buffer in and has been verified. false: there
// is none, since it is no record of the features, or has some that do not lie there.
func (e *examples) learn(data []byte, in *memory.Buffer) bool {
	p := &e.pattern
	p.record, p.common, p.values = p.record[:0], p.common[:0], p.values[:0]
	t := pyfeed.NewTuple(len(e.columns))
	defer t.Release()
	views, err := e.fill(t, data[headerSize:], in)
	in.Retain(views)
	if err != nil || views < len(e.columns) || len(data) > math.MaxUint32 {
		return false
	}
	begin := uintptr(unsafe.Pointer(unsafe.SliceData(data)))
	for i := range t.Slots {
		value := t.Slots[i].Data
		p.values = append(p.values, record.Span{At: uint32(uintptr(unsafe.Pointer(unsafe.SliceData(value))) - begin), Size: uint32(len(value))})
	}
	at := uint32(0)
	for _, v := range slices.SortedFunc(slices.Values(p.values), func(a, b record.Span) int { return cmp.Compare(a.At, b.At) }) {
		p.common = append(p.common, record.Span{At: at, Size: v.At - at})
		at = v.At + v.Size
	}
	p.common = append(p.common, record.Span{At: at, Size: uint32(len(data)) - at})
	p.record = append(p.record, data...)
	return true
}

func (e *examples) close() { e.arena.Close() }

// fill makes the slots of a tuple from a record, which lies in the buffer in. It answers how many references to
// that the slots took, which the caller MUST add, after an error too. Interrupted, it is to be made again.
func (e *examples) fill(t *pyfeed.Tuple, record []byte, in *memory.Buffer) (views int, err error) {
	e.stopped = false
	if views, err = e.fillSlots(t, record, in); e.stopped {
		err = storage.ErrInterrupted
	}
	return views, err
}

func (e *examples) fillSlots(t *pyfeed.Tuple, record []byte, in *memory.Buffer) (views int, err error) {
	switch at, sequence := e.find(record); {
	case sequence: // whole, so that it is never skipped as damage
		return 0, &pyfeed.Error{Kind: pyfeed.Type, Slot: -1,
			Text: "expected a tf.train.Example, found a tf.train.SequenceExample: read its records as bytes, without features"}
	case at >= 0:
		return 0, &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1,
			Text: fmt.Sprintf("expected a tf.train.Example, found no field at byte %d of its %d", at, len(record))}
	}
	if len(t.Slots) != len(e.columns) {
		t.Resize(len(e.columns))
	}
	for i := range e.columns {
		held, err := e.fillSlot(&t.Slots[i], &e.columns[i], in)
		if held {
			views++
		}
		if err != nil {
			return views, err
		}
	}
	return views, nil
}

// find notes where the features are, the last of each name. bad is -1, or where the record is no Example. sequence
// says that it is a SequenceExample.
func (e *examples) find(record []byte) (bad int, sequence bool) {
	clear(e.found)
	e.joined = e.joined[:0]
	nth := 0
	for at := 0; at < len(record); {
		number, features, size := field(record[at:])
		if size < 0 || !e.goOn(size) {
			return at, false
		}
		if number == featureLists {
			return -1, true
		}
		for len(features) > 0 && number == 1 {
			inner, entry, n := field(features)
			if n < 0 || inner == 1 && !e.note(entry, nth) || !e.goOn(n) {
				return at, false
			}
			features = features[n:]
			nth++
		}
		at += size
	}
	return -1, false
}

// note notes an entry of the map of features.
func (e *examples) note(entry []byte, nth int) (ok bool) {
	first, key, n := field(entry)
	second, value, m := field(entry[max(n, 0):])
	copied := false
	if first != 1 || second != 2 || n+m != len(entry) {
		if key, value, copied, ok = e.rareEntry(entry); !ok {
			return false
		}
	}
	k, there := 0, false
	if nth < len(e.order) {
		k = e.order[nth]
		there = k >= 0 && e.keys[k] == string(key)
	}
	if !there {
		if k, there = e.index[string(key)]; !there {
			k = -1
		}
		if nth < len(e.order) {
			e.order[nth] = k
		} else if nth == len(e.order) && nth < 1<<16 {
			e.order = append(e.order, k)
		}
	}
	if there {
		e.found[k] = found{value, true, copied}
	}
	return true
}

// rareEntry is an entry that is not one key and one value: the last key, and all values merged.
func (e *examples) rareEntry(entry []byte) (key, value []byte, copied, ok bool) {
	for b := entry; len(b) > 0; {
		number, v, n := field(b)
		if n < 0 || !e.goOn(n) {
			return nil, nil, false, false
		}
		if number == 1 {
			key = v
		}
		b = b[n:]
	}
	_, value, copied, ok = e.last(entry, 2, 2)
	return key, value, copied, ok
}

// values is the list that a Feature holds, and the bytes of its message.
func (e *examples) values(f *found) (l list, b []byte, copied, ok bool) {
	number, b, size := field(f.feature)
	if size == len(f.feature) && number >= 1 && number <= 3 {
		return list(number), b, f.copied, true
	}
	number, b, copied, ok = e.last(f.feature, 1, 3)
	return list(number), b, copied || f.copied, ok
}

// fillSlot answers whether the slot took a reference to the buffer in.
func (e *examples) fillSlot(s *pyfeed.LoDTensor, c *column, in *memory.Buffer) (held bool, err error) {
	l, b, copied, ok := none, []byte(nil), false, true
	if f := &e.found[c.key]; f.there {
		l, b, copied, ok = e.values(f)
	}
	if l == none && ok && c.fallback != nil {
		l, b, copied, ok = e.values(&found{c.fallback, true, true})
	}
	switch {
	case !ok:
		return false, c.broken(c.Name)
	case l == none && c.fixed:
		return false, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %s, found none in the example", c.Name, c.wanted())
	case l != none && l != c.list:
		return false, pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: expected %v, found %v", c.Name, c.list, l)
	}
	s.DType = c.slot.DType
	var n int // values, of raw ones bytes
	switch {
	case c.Raw:
		n, held, err = e.fillRaw(s, c, b, copied, in)
	case c.list == byteStrings:
		return e.fillBytes(s, c, b, copied, in)
	case c.list == floats:
		n, held, err = e.fillFloats(s, c, b, copied, in)
	default:
		n, err = e.fillInts(s, c, b)
	}
	if err != nil {
		return held, err
	}
	if c.fixed {
		return held, s.SetDims(c.dims[:len(c.slot.Dims)])
	}
	if n%c.inner != 0 {
		return held, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected rows of %s, found %d", c.Name, c.wanted(), n)
	}
	c.dims[0] = int64(n / c.inner)
	if err = e.divide(s, c, c.dims[0]); err != nil {
		return held, err
	}
	return held, s.SetDims(c.dims[:len(c.slot.Dims)])
}

// wanted is how many values make a fixed feature, or a row of any other.
func (c *column) wanted() string {
	of := c.list.String()
	if c.Raw {
		of = "bytes, " + c.DType
	}
	return fmt.Sprintf("%d %s, shape %v", c.count, of, c.Shape)
}

func (c *column) broken(name string) error {
	return pyfeed.SlotErrorf(pyfeed.Corrupt, c.number, "feature %q: expected a message Feature, found bytes that are none", name)
}

// check says whether there are as many values as a fixed feature has.
func (c *column) check(n int) error {
	if c.fixed && n != c.count {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %s, found %d", c.Name, c.wanted(), n)
	}
	return nil
}

// view makes the slot one of data as it lies, or of a copy if it does not lie in the file.
func (e *examples) view(s *pyfeed.LoDTensor, data []byte, copied bool, in *memory.Buffer) (held bool, err error) {
	if !copied {
		s.ReadOnly = true
		s.Hold(data, in)
		return true, nil
	}
	to, b, err := e.arena.Get(len(data))
	if err == nil {
		s.Hold(to, b)
		if e.stop.Copy(to, data) != nil {
			e.stopped = true
		}
	}
	return false, err
}

func (e *examples) fillRaw(s *pyfeed.LoDTensor, c *column, b []byte, copied bool, in *memory.Buffer) (n int, held bool, err error) {
	values, total, ok := e.countBytes(b)
	if !ok {
		return 0, false, c.broken(c.Name)
	}
	if values > 1 || values == 0 && c.fixed {
		return 0, false, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected 1 value of raw bytes, found %d", c.Name, values)
	}
	if err = c.check(total); err != nil || values == 0 {
		return 0, false, err
	}
	data, _ := e.nextBytes(b)
	held, err = e.view(s, data, copied, in)
	return total, held, err
}

func (e *examples) fillFloats(s *pyfeed.LoDTensor, c *column, b []byte, copied bool, in *memory.Buffer) (n int, held bool, err error) {
	n, data, ok := e.countFloats(b)
	if !ok {
		return 0, false, c.broken(c.Name)
	}
	if err = c.check(n); err != nil {
		return 0, false, err
	}
	if data != nil && c.slot.DType == pyfeed.Float32 {
		held, err = e.view(s, data, copied, in)
		return n, held, err
	}
	size := c.slot.DType.Size()
	to, buffer, err := e.arena.Get(n * size)
	if err != nil {
		return 0, false, err
	}
	narrow := to[n*size-4*n:] // float32 behind the room that they leave, and widened from there
	s.Hold(to, buffer)
	if !e.copyFloats(narrow, b) {
		return 0, false, c.broken(c.Name)
	}
	if size == 8 {
		for i := range n {
			if i%elementsPerLook == elementsPerLook-1 && !e.look() {
				return 0, false, c.broken(c.Name)
			}
			f := math.Float32frombits(binary.LittleEndian.Uint32(narrow[4*i:]))
			binary.LittleEndian.PutUint64(to[8*i:], math.Float64bits(float64(f)))
		}
	}
	return n, false, nil
}

func (e *examples) fillInts(s *pyfeed.LoDTensor, c *column, b []byte) (n int, err error) {
	n, ok := e.countInts(b)
	if !ok {
		return 0, c.broken(c.Name)
	}
	if err = c.check(n); err != nil {
		return 0, err
	}
	data, buffer, err := e.arena.Get(n * c.slot.DType.Size())
	if err != nil {
		return 0, err
	}
	s.Hold(data, buffer)
	if c.slot.DType == pyfeed.Int64 {
		if !e.readInts(unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(data))), n), b) {
			return 0, c.broken(c.Name)
		}
		return n, nil
	}
	if cap(e.wide) < n {
		e.wide = make([]int64, n)
	}
	wide := e.wide[:n]
	if !e.readInts(wide, b) {
		return 0, c.broken(c.Name)
	}
	for i, v := range wide {
		if i%elementsPerLook == elementsPerLook-1 && !e.look() {
			return 0, c.broken(c.Name)
		}
		if v < c.low || v > c.high {
			return 0, pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: value %d: expected %v, found %d", c.Name, i, c.slot.DType, v)
		}
	}
	switch c.slot.DType.Size() {
	case 1:
		narrow[uint8](data, wide)
	case 2:
		narrow[uint16](data, wide)
	case 4:
		narrow[uint32](data, wide)
	case 8:
		narrow[uint64](data, wide)
	}
	return n, nil
}

// narrow takes the low bits, which are the same of signed and unsigned types.
func narrow[T uint8 | uint16 | uint32 | uint64](to []byte, from []int64) {
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(to))), len(from))
	for i, v := range from {
		out[i] = T(v)
	}
}

// fillBytes makes the slot of values of bytes, one behind the other, divided by a level of their own.
func (e *examples) fillBytes(s *pyfeed.LoDTensor, c *column, b []byte, copied bool, in *memory.Buffer) (held bool, err error) {
	n, total, ok := e.countBytes(b)
	if !ok {
		return false, c.broken(c.Name)
	}
	if err = c.check(n); err != nil {
		return false, err
	}
	if n == 1 {
		data, _ := e.nextBytes(b)
		if held, err = e.view(s, data, copied, in); err != nil {
			return false, err
		}
	}
	if c.slot.LoDLevels == 1 {
		level := e.offsets.Get(2)
		level[1] = int64(total)
		s.LoD = append(s.LoD[:0], level)
		s.InHeap = true
		return held, s.SetDims(level[1:])
	}
	if err = e.divide(s, c, int64(n)); err != nil {
		return held, err
	}
	level := e.offsets.Get(n + 1)
	var to []byte
	if n > 1 {
		var buffer *memory.Buffer
		if to, buffer, err = e.arena.Get(total); err != nil {
			return held, err
		}
		s.Hold(to, buffer)
	}
	at := 0
	for i := range n {
		var v []byte
		v, b = e.nextBytes(b)
		if e.stopped {
			return held, c.broken(c.Name)
		}
		if n > 1 {
			copy(to[at:], v)
		}
		at += len(v)
		level[i+1] = int64(at)
	}
	s.LoD = append(s.LoD, level)
	c.dims[0] = int64(total)
	return held, s.SetDims(c.dims[:1])
}

// divide makes the levels of an instance of that many rows: of all of them, and those that the other features
// of a ragged one tell.
func (e *examples) divide(s *pyfeed.LoDTensor, c *column, rows int64) error {
	s.LoD, s.InHeap = s.LoD[:0], true
	all := e.offsets.Get(2)
	s.LoD = append(s.LoD, all)
	above := &all[1] // the last offset of the level above: the number of sequences below
	for i, key := range c.rows {
		level, err := e.splits(c, key, len(c.RowSplits) > 0)
		if err != nil {
			return err
		}
		sequences := int64(len(level) - 1)
		if i == 0 {
			*above = sequences
		} else if *above != sequences {
			return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %d rows as feature %q says, found %d in %q",
				c.Name, *above, e.keys[c.rows[i-1]], sequences, e.keys[key])
		}
		s.LoD = append(s.LoD, level)
		above = &level[sequences]
	}
	if len(c.rows) == 0 {
		*above = rows
	} else if *above != rows {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %d rows as feature %q says, found %d",
			c.Name, *above, e.keys[c.rows[len(c.rows)-1]], rows)
	}
	return nil
}

// splits is a level of offsets, from a feature that has them or their differences.
func (e *examples) splits(c *column, key int, splits bool) ([]int64, error) {
	name := e.keys[key]
	var b []byte
	if f := &e.found[key]; f.there {
		l, v, _, ok := e.values(f)
		if !ok {
			return nil, c.broken(name)
		}
		if l != none && l != ints {
			return nil, pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: expected %v, found %v", name, ints, l)
		}
		b = v
	}
	n, ok := e.countInts(b)
	if !ok {
		return nil, c.broken(name)
	}
	if splits {
		level := e.offsets.Get(max(n, 1)) // none is no rows
		if !e.readInts(level[:n], b) {
			return nil, c.broken(name)
		}
		for i, v := range level {
			if i%elementsPerLook == elementsPerLook-1 && !e.look() {
				return nil, c.broken(name)
			}
			if i == 0 && v != 0 || i > 0 && v < level[i-1] {
				return nil, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: value %d: expected splits that begin with 0 and never decrease, found %d",
					name, i, v)
			}
		}
		return level, nil
	}
	level := e.offsets.Get(n + 1)
	if !e.readInts(level[1:], b) {
		return nil, c.broken(name)
	}
	for i := 1; i < len(level); i++ {
		if i%elementsPerLook == 0 && !e.look() {
			return nil, c.broken(name)
		}
		if level[i] < 0 || level[i] > math.MaxInt64-level[i-1] {
			return nil, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: value %d: expected the length of a row, found %d", name, i-1, level[i])
		}
		level[i] += level[i-1]
	}
	return level, nil
}
