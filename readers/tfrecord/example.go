package tfrecord

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// examples fills slots from tf.train.Example messages.
type examples struct {
	*plan
	scratch
	offsets record.Offsets
	arena   *memory.Arena
	single  entries // features, of an Example or of the context of a SequenceExample
	listed  entries // feature lists
	wide    []int64 // values that are read as int64 and then converted to a smaller type
	counts  []int   // of the values of each step
	pattern pattern
}

// entries are those of a map of the current record.
type entries struct {
	*names
	found []foundFeature // by key
	order []int          // the keys of the entries of the last record; mostly the next record has the same
}

// foundFeature is a Feature or FeatureList message of the current record.
type foundFeature struct {
	feature []byte
	present bool
	copied  bool // feature is a copy, not a view of the file
}

// elementsPerPoll is how many numbers are converted or compared between two polls.
const elementsPerPoll = 1 << 18

func newExamples(p *plan, pool *memory.Pool, stop *storage.Interrupt) *examples {
	return &examples{plan: p, scratch: scratch{interrupt: stop}, arena: memory.NewArena(pool),
		single: entries{names: &p.keys, found: make([]foundFeature, len(p.keys.all))},
		listed: entries{names: &p.lists, found: make([]foundFeature, len(p.lists.all))}}
}

func (e *examples) close() { e.arena.Close() }

// fill fills the slots of a tuple from a record in the buffer in. It returns how many references to in the slots took,
// which the caller MUST add, also after an error. After an interruption, the caller fills the tuple again.
func (e *examples) fill(t *pyfeed.Tuple, record []byte, in *memory.Buffer) (views int, err error) {
	e.stopped = false
	if views, err = e.fillSlots(t, record, in); e.stopped {
		err = storage.ErrInterrupted
	}
	return views, err
}

func (e *examples) fillSlots(t *pyfeed.Tuple, record []byte, in *memory.Buffer) (views int, err error) {
	switch at, sequence := e.find(record); {
	case sequence: // an error that is not skipped as damage, since the record is valid
		return 0, &pyfeed.Error{Kind: pyfeed.Type, Slot: -1,
			Text: "expected a tf.train.Example, found a tf.train.SequenceExample: give its features their \"part\", \"context\" or \"feature_lists\", " +
				"or read its records as bytes, without features"}
	case at >= 0:
		return 0, &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1,
			Text: fmt.Sprintf("expected a %s, found no field at byte %d of its %d", e.message(), at, len(record))}
	}
	if len(t.Slots) != len(e.columns) {
		t.Resize(len(e.columns))
	}
	for i := range e.columns {
		held, err := e.fillSlot(&t.Slots[i], &e.columns[i], record, in)
		if held {
			views++
		}
		if err != nil {
			return views, err
		}
	}
	return views, nil
}

// message is the name of the message that records have.
func (p *plan) message() string {
	if p.sequence {
		return "tf.train.SequenceExample"
	}
	return "tf.train.Example"
}

// find notes the positions of the features, the last one of each name. faultOffset is the position where the record is
// not the message, or -1. sequence reports that it is a SequenceExample, but an Example is expected.
func (e *examples) find(record []byte) (faultOffset int, sequence bool) {
	clear(e.single.found)
	clear(e.listed.found)
	e.joined = e.joined[:0]
	nth := [3]int{}
	for at := 0; at < len(record); {
		number, features, size := field(record[at:])
		if size < 0 || !e.poll(size) {
			return at, false
		}
		of := &e.single
		if number == featureLists {
			if !e.sequence {
				return -1, true
			}
			of = &e.listed
		}
		for len(features) > 0 && (number == 1 || number == featureLists) {
			inner, entry, n := field(features)
			if n < 0 || inner == 1 && !e.noteEntry(of, entry, nth[number]) || !e.poll(n) {
				return at, false
			}
			features = features[n:]
			nth[number]++
		}
		at += size
	}
	return -1, false
}

// noteEntry notes an entry of a map of features or feature lists.
func (e *examples) noteEntry(of *entries, entry []byte, nth int) (ok bool) {
	first, key, n := field(entry)
	second, value, m := field(entry[max(n, 0):])
	copied := false
	if first != 1 || second != 2 || n+m != len(entry) {
		if key, value, copied, ok = e.parseGeneralEntry(entry); !ok {
			return false
		}
	}
	k, there := 0, false
	if nth < len(of.order) {
		k = of.order[nth]
		there = k >= 0 && of.all[k] == string(key)
	}
	if !there {
		if k, there = of.index[string(key)]; !there {
			k = -1
		}
		if nth < len(of.order) {
			of.order[nth] = k
		} else if nth == len(of.order) && nth < 1<<16 {
			of.order = append(of.order, k)
		}
	}
	if there {
		of.found[k] = foundFeature{value, true, copied}
	}
	return true
}

// parseGeneralEntry parses an entry that is not one key followed by one value. It returns the last key, and all values
// merged.
func (e *examples) parseGeneralEntry(entry []byte) (key, value []byte, copied, ok bool) {
	for b := entry; len(b) > 0; {
		number, v, n := field(b)
		if n < 0 || !e.poll(n) {
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

// values returns the list that a Feature holds, and the bytes of the list's message.
func (e *examples) values(f *foundFeature) (l list, b []byte, copied, ok bool) {
	number, b, size := field(f.feature)
	if size == len(f.feature) && number >= 1 && number <= 3 {
		return list(number), b, f.copied, true
	}
	number, b, copied, ok = e.last(f.feature, 1, 3)
	return list(number), b, copied || f.copied, ok
}

// fillSlot fills a slot from a record that find accepted. held reports whether it took a reference to the buffer in.
func (e *examples) fillSlot(s *pyfeed.LoDTensor, c *column, record []byte, in *memory.Buffer) (held bool, err error) {
	if c.steps {
		return false, e.fillSteps(s, c, record)
	}
	l, b, copied, ok := none, []byte(nil), false, true
	if f := &e.single.found[c.key]; f.present {
		l, b, copied, ok = e.values(f)
	}
	if l == none && ok && c.fallback != nil {
		l, b, copied, ok = e.values(&foundFeature{c.fallback, true, true})
	}
	switch {
	case !ok:
		return false, c.broken(c.Name)
	case l == none && c.fixed:
		return false, e.missing(c, record)
	case l != none && l != c.list:
		return false, pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: expected %s, found %v: use the dtype %s", c.Name, c.wantedList(), l, l.dtypes())
	}
	s.DType = c.slot.DType
	var n int // number of values; of a raw feature, number of bytes
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

// missing is the error for a fixed feature that the record lacks, or that has no list.
func (e *examples) missing(c *column, data []byte) error {
	if !c.steps && e.single.found[c.key].present {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %s, found a message Feature without a list", c.Name, c.wanted())
	}
	advice := record.Suggest(c.Name, func(yield func(string) bool) {
		for name := range e.recordNames(c, data) {
			if _, requested := e.entries(c).index[name]; !requested && !yield(name) {
				return
			}
		}
	})
	switch {
	case advice != "":
	case c.steps:
		advice = `: give "allow_missing": true if it is optional`
	case c.Raw: // which has no default
		advice = `: use "kind": "variable" if it is optional`
	default:
		advice = `: give "default" if it is optional`
	}
	where := "example"
	if c.steps {
		where = "feature lists"
	} else if e.sequence {
		where = "context"
	}
	return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: not in the %s, %s%s", c.Name, where, e.describeNames(c, data), advice)
}

// entries returns those that the column is in.
func (e *examples) entries(c *column) *entries {
	if c.steps {
		return &e.listed
	}
	return &e.single
}

// describeNames lists the first names beside that of a column in a record that find accepted, in alphabetical order.
func (e *examples) describeNames(c *column, data []byte) string {
	const limit = 20
	var names []string
	more := false
	for key := range e.recordNames(c, data) {
		name := fmt.Sprintf("%.100q", key)
		if i, there := slices.BinarySearch(names, name); !there {
			names = slices.Insert(names, i, name)
		}
		if len(names) > limit {
			names, more = names[:limit], true
		}
	}
	switch {
	case len(names) == 0:
		return "which has no features"
	case more:
		return "whose features are " + strings.Join(names, ", ") + " and others"
	}
	return "whose features are " + strings.Join(names, ", ")
}

// recordNames yields the names of the features, or feature lists, beside a column in a record that find accepted.
func (e *examples) recordNames(c *column, data []byte) iter.Seq[string] {
	wanted := protowire.Number(1)
	if c.steps {
		wanted = featureLists
	}
	return func(yield func(string) bool) {
		for rest := data; len(rest) > 0 && e.poll(0); {
			number, features, size := field(rest)
			for number == wanted && len(features) > 0 && e.poll(0) {
				inner, entry, n := field(features)
				if inner == 1 {
					key, _, _, _ := e.parseGeneralEntry(entry)
					if !yield(string(key)) {
						return
					}
				}
				e.sincePoll += n
				features = features[n:]
			}
			e.sincePoll += size
			rest = rest[size:]
		}
	}
}

// wanted describes the values of a fixed feature, or of a row of another feature.
func (c *column) wanted() string {
	of := c.list.String()
	if c.list == byteStrings && !c.Raw {
		of = "byte strings"
	}
	if c.count == 1 {
		of = strings.TrimSuffix(of, "s")
	}
	if c.Raw {
		of += ", " + c.DType
	}
	return fmt.Sprintf("%d %s, shape %v", c.count, of, c.Shape)
}

// wantedList describes the list that a feature holds, with the dtype if that is converted from the list's.
func (c *column) wantedList() string {
	switch d := c.slot.DType; {
	case c.list == floats && d != pyfeed.Float32, c.list == ints && d != pyfeed.Int64:
		return fmt.Sprintf("%v (for dtype %v)", c.list, d)
	}
	return c.list.String()
}

func (c *column) broken(name string) error {
	return pyfeed.SlotErrorf(pyfeed.Corrupt, c.number, "feature %q: expected a message Feature, found bytes that cannot be parsed as one", name)
}

// check returns an error if a fixed feature does not have n values.
func (c *column) check(n int) error {
	if c.fixed && n != c.count {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %s, found %d%s", c.Name, c.wanted(), n, c.suggestShape(n))
	}
	return nil
}

// suggestShape says which shape n values need, or n bytes of a raw feature, if the Feature has at most one dimension.
func (c *column) suggestShape(n int) string {
	size := 1
	if c.Raw {
		size = c.slot.DType.Size()
	}
	switch {
	case len(c.Shape) > 1 || n < 2*size || n%size != 0:
		return ""
	case c.Raw:
		return fmt.Sprintf(`: use "shape": [%d]`, n/size)
	}
	return fmt.Sprintf(`: use "shape": [%d], or "kind": "variable"`, n)
}

// checkBytes is check for n byte strings that have size bytes together. If there is one where more are expected, it may
// be the memory of an array.
func (c *column) checkBytes(n, size int) error {
	if !c.fixed || n != 1 || c.count <= 1 {
		return c.check(n)
	}
	advice := ""
	dtypes := map[int]string{1: "uint8", 2: "int16", 4: "float32", 8: "float64"} // an example of each size
	if dtype := dtypes[size/c.count]; size%c.count == 0 && dtype != "" {
		advice = fmt.Sprintf(`: for the memory of an array, use its dtype, such as %q, and "raw": true`, dtype)
	}
	return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %s, found 1, of %d bytes%s", c.Name, c.wanted(), size, advice)
}

// view makes the slot a view of data, or of a copy if data is not in the file's memory.
func (e *examples) view(s *pyfeed.LoDTensor, data []byte, copied bool, in *memory.Buffer) (held bool, err error) {
	if !copied {
		s.ReadOnly = true
		s.Hold(data, in)
		return true, nil
	}
	to, b, err := e.arena.Get(len(data))
	if err == nil {
		s.Hold(to, b)
		e.copyBytes(to, data)
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
	narrow := to[n*size-4*n:] // read as float32 into the end of to, and widened from there
	s.Hold(to, buffer)
	if !e.copyFloats(narrow, b) {
		return 0, false, c.broken(c.Name)
	}
	if size == 8 && !e.widen(to, narrow) {
		return 0, false, c.broken(c.Name)
	}
	return n, false, nil
}

// widen converts float32s, which may lie at the end of to, to float64s.
func (e *examples) widen(to, narrow []byte) (ok bool) {
	for i := range len(narrow) / 4 {
		if i%elementsPerPoll == elementsPerPoll-1 && !e.pollNow() {
			return false
		}
		f := math.Float32frombits(binary.LittleEndian.Uint32(narrow[4*i:]))
		binary.LittleEndian.PutUint64(to[8*i:], math.Float64bits(float64(f)))
	}
	return true
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
	return n, e.narrow(c, data, wide)
}

// narrow converts int64s to the dtype of the column.
func (e *examples) narrow(c *column, data []byte, wide []int64) error {
	for i, v := range wide {
		if i%elementsPerPoll == elementsPerPoll-1 && !e.pollNow() {
			return c.broken(c.Name)
		}
		if v < c.low || v > c.high {
			return pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: value %d: expected a value that fits into %v, found %d", c.Name, i, c.slot.DType, v)
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
	return nil
}

// narrow stores the low bits, which are the same for signed and unsigned types.
func narrow[T uint8 | uint16 | uint32 | uint64](to []byte, from []int64) {
	out := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(to))), len(from))
	for i, v := range from {
		out[i] = T(v)
	}
}

// fillBytes fills the slot with the concatenated values of bytes, whose lengths are a level of the LoD (level of
// detail).
func (e *examples) fillBytes(s *pyfeed.LoDTensor, c *column, b []byte, copied bool, in *memory.Buffer) (held bool, err error) {
	n, total, ok := e.countBytes(b)
	if !ok {
		return false, c.broken(c.Name)
	}
	if err = c.checkBytes(n, total); err != nil {
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
		if e.stopped || n > 1 && !e.copyBytes(to[at:], v) {
			return held, c.broken(c.Name)
		}
		at += len(v)
		level[i+1] = int64(at)
	}
	s.LoD = append(s.LoD, level)
	c.dims[0] = int64(total)
	return held, s.SetDims(c.dims[:1])
}

// divide makes the LoD levels of an instance with that many rows: one for all rows, and those that the partitions of a
// ragged feature give.
func (e *examples) divide(s *pyfeed.LoDTensor, c *column, rows int64) error {
	s.LoD, s.InHeap = s.LoD[:0], true
	all := e.offsets.Get(2)
	s.LoD = append(s.LoD, all)
	above := &all[1] // the last offset of the level above: how many sequences the level below has
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
				c.Name, *above, e.keys.all[c.rows[i-1]], sequences, e.keys.all[key])
		}
		s.LoD = append(s.LoD, level)
		above = &level[sequences]
	}
	if len(c.rows) == 0 {
		*above = rows
	} else if *above != rows {
		return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected %d rows as feature %q says, found %d",
			c.Name, *above, e.keys.all[c.rows[len(c.rows)-1]], rows)
	}
	return nil
}

// splits returns a level of offsets, from a feature that has the offsets or their differences.
func (e *examples) splits(c *column, key int, splits bool) ([]int64, error) {
	name := e.keys.all[key]
	var b []byte
	if f := &e.single.found[key]; f.present {
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
		level := e.offsets.Get(max(n, 1)) // no values stand for no rows
		if !e.readInts(level[:n], b) {
			return nil, c.broken(name)
		}
		for i, v := range level {
			if i%elementsPerPoll == elementsPerPoll-1 && !e.pollNow() {
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
		if i%elementsPerPoll == 0 && !e.pollNow() {
			return nil, c.broken(name)
		}
		if level[i] < 0 || level[i] > math.MaxInt64-level[i-1] {
			return nil, pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: value %d: expected the length of a row, found %d", name, i-1, level[i])
		}
		level[i] += level[i-1]
	}
	return level, nil
}
