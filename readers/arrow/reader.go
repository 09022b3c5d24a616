package arrow

import (
	"errors"
	"fmt"
	"io"
	"math"
	"sort"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// records reads the rows of a file.
type records struct {
	f       *storage.File
	pool    *memory.Pool
	arena   *memory.Arena
	schema  *schema
	end     int64 // offset of the footer; 0: a stream
	index   index
	head    batchHeader // of the entry that is added to the index
	outputs []output

	numbers  int  // of slots without lists
	texts    int  // of slots of byte strings, one for each row
	rowBytes int  // the size of these slots in a row
	empty    bool // instances have no data

	// copies: single rows are read here and there, and copied. A view would hold a window of the mapped file, which takes
	// some calls of the system.
	copies bool

	current int   // number of the entry that is read
	batch   batch // of that entry, if loaded
	loaded  bool
	begun   int // columns that are prepared for the batch
	row     int // the next row in the batch
	single  bool

	dictionaries map[int64]*loadedDictionary // by id

	record      int64    // number of the next row
	approximate bool     // record is only approximate
	err         error    // the error that ended reading
	behind      skipping // what Resync skips

	scratch scratch
	offsets record.Offsets
}

// skipping is what Resync skips.
type skipping int

const (
	skipRow   skipping = iota // the next row
	skipBatch                 // the rest of the batch
	skipAll                   // the rest of the file
)

type loadedDictionary struct {
	dictionary
	last int // number of its last dictionaryEntry
	base int // number of its first dictionaryEntry
}

func newRecords(f *storage.File, c *record.Config) *records {
	return &records{f: f, pool: c.Pool, arena: memory.NewArena(c.Pool), dictionaries: make(map[int64]*loadedDictionary)}
}

// Slots without lists are copied to memory of the arena, one slot of all rows after the other, in blocks of blockBytes.
// Larger ones are read row by row.
const (
	blockBytes = 64 << 10
	minRows    = 16
)

// prepare decides how rows are made.
func (r *records) prepare() {
	fixed := 0
	r.empty = true
	for i := range r.outputs {
		o := &r.outputs[i]
		if o.lists {
			r.empty = false
			if o.isText() {
				r.texts++
			}
			continue
		}
		fixed++
		r.empty = r.empty && o.size == 0
		o.at = r.rowBytes
		r.rowBytes += (o.size + 7) &^ 7 // the widest element
		if r.rowBytes > maxWidth {
			r.rowBytes = maxWidth
		}
	}
	r.numbers = fixed
	r.single = len(r.outputs) == 1 && len(r.outputs[0].columns) == 1
}

// Describe returns the slots that the schema describes.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	slots, names, named := make([]pyfeed.Slot, len(r.outputs)), make([]string, len(r.outputs)), false
	for i := range r.outputs {
		slots[i], names[i] = r.outputs[i].slot, r.outputs[i].name
		named = named || names[i] != ""
	}
	if !named {
		names = nil
	}
	return slots, names, nil
}

// Count implements record.Counted. The number is known for files that are in memory or mapped.
func (r *records) Count() int64 {
	if r.index.stream || !r.index.ended {
		return -1
	}
	for i := range r.index.entries {
		if r.index.entries[i].err != nil {
			return -1
		}
	}
	return r.index.rows
}

// ready makes the batch of the next row current. The error is io.EOF at the end.
func (r *records) ready() error {
	for {
		for r.current >= len(r.index.entries) {
			if r.index.ended {
				return io.EOF
			}
			if err := r.extend(); err != nil {
				return err
			}
		}
		e := &r.index.entries[r.current]
		if e.err != nil {
			r.behind = skipBatch
			return e.err
		}
		if int64(r.row) < e.rows {
			return r.load(e)
		}
		r.nextBatch()
	}
}

// nextBatch goes to the next entry.
func (r *records) nextBatch() {
	r.drop()
	r.current++
	r.row = 0
}

// drop releases the batch.
func (r *records) drop() {
	r.batch.release()
	r.loaded, r.begun = false, 0
}

// load loads the arrays of the batch that are read.
func (r *records) load(e *entry) error {
	if r.loaded && r.begun == math.MaxInt {
		return nil
	}
	err := r.loadOnce(e)
	if err == nil || err == storage.ErrInterrupted {
		return err
	}
	r.behind = skipBatch
	if torn := r.f.CheckTruncated(); torn != nil {
		return torn
	}
	var known *pyfeed.Error
	if errors.As(err, &known) && known.At == nil {
		located := *known
		located.Text = fmt.Sprintf("batch %d: %s", r.current, known.Text)
		located.At = &pyfeed.Location{File: r.f.Path(), Offset: e.offset, Record: -1}
		err = &located
	}
	if err == errMetadata {
		err = r.f.Corrupt(e.offset, -1, "batch %d: %v", r.current, err)
	}
	return err
}

func (r *records) loadOnce(e *entry) error {
	if !r.loaded {
		if err := r.open(&r.batch, e.offset, e.metadata, e.body, nil, nil); err != nil {
			return err
		}
		err := r.batch.begin(r.schema)
		if err == nil && r.batch.header.rows != e.rows { // the file was written to
			err = pyfeed.Errorf(pyfeed.Corrupt, "expected %d rows, as before, found %d", e.rows, r.batch.header.rows)
		}
		if err == nil && r.empty && e.rows > int64(maxEmpty) {
			err = pyfeed.Errorf(pyfeed.Corrupt, "expected at most %d rows without data, found %d", maxEmpty, e.rows)
		}
		if err != nil {
			r.batch.release()
			return err
		}
		r.loaded = true
	}
	k := 0
	for i := range r.outputs {
		for _, c := range r.outputs[i].columns {
			if k++; k <= r.begun {
				continue
			}
			if err := c.begin(&r.batch, r); err != nil {
				return err
			}
			r.begun++
		}
	}
	r.begun = math.MaxInt
	return nil
}

// open reads a message with a record batch into b: that of kept, which lies in held, or else of the file.
func (r *records) open(b *batch, offset, metadata, body int64, kept []byte, held *memory.Buffer) error {
	data := kept
	var err error
	if kept == nil {
		want := metadata + body
		if r.f.InMemory() {
			want = 1
		}
		if data, err = r.at(offset, want); err != nil {
			return err
		}
	}
	if int64(len(data)) < metadata+body {
		return r.short(offset, metadata+body, int64(len(data)))
	}
	m, err := r.parseAgain(data[:metadata])
	if err != nil {
		return err
	}
	t := m.header
	if m.kind == dictionaryMessage {
		var is bool
		if t, is = t.sub(1); !is {
			return errMetadata
		}
	}
	if err := b.header.parse(t); err != nil {
		return err
	}
	b.body, b.offset = data[metadata:metadata+body:metadata+body], offset+metadata
	switch b.mapped = r.f.IsMapped(); {
	case b.mapped:
	case kept != nil:
		held.Retain(1)
		b.memory = held
	default:
		b.memory = r.f.Hold(1)
	}
	return nil
}

// dictionaryOf returns the dictionary of a field for the record batch of an entry.
func (r *records) dictionaryOf(f *field, at int) (*dictionary, error) {
	base, last := -1, -1
	for i := range r.index.dictionaries {
		d := &r.index.dictionaries[i]
		if d.id != f.dictionary || d.before > at {
			continue
		}
		if last = i; !d.delta || base < 0 {
			base = i
		}
	}
	if base < 0 {
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "expected dictionary %d, of column %q, before the record batch, found none", f.dictionary, shorten(f.name))
	}
	l := r.dictionaries[f.dictionary]
	if l != nil && (l.base != base || l.last > last) {
		l.release()
		l = nil
	}
	if l == nil {
		l = &loadedDictionary{base: base, last: base - 1}
		r.dictionaries[f.dictionary] = l
	}
	for i := l.last + 1; i <= last; i++ {
		d := &r.index.dictionaries[i]
		if d.id == f.dictionary {
			if err := r.loadDictionary(l, d, f); err != nil {
				if err == storage.ErrInterrupted {
					return nil, err
				}
				return nil, r.fault(d.offset, err)
			}
		}
		l.last = i
	}
	if found := l.parts[0].field; !found.sameType(f) { // the file was damaged: the values were loaded for another column
		return nil, pyfeed.Errorf(pyfeed.Corrupt, "expected values of the type of column %q in dictionary %d, found those of column %q, which has another type",
			shorten(f.name), f.dictionary, shorten(found.name))
	}
	return &l.dictionary, nil
}

// loadDictionary adds the values of a dictionary.
func (r *records) loadDictionary(l *loadedDictionary, d *dictionaryEntry, f *field) (err error) {
	s := f.values(version5)
	b := new(batch)
	defer func() {
		if err != nil {
			b.release()
		}
	}()
	if err = r.open(b, d.offset, d.metadata, d.body, d.kept, d.memory); err != nil {
		return err
	}
	if err = b.begin(s); err != nil {
		return err
	}
	part := dictionaryPart{first: l.length, batch: b, field: s.fields[0]}
	if part.values, err = b.load(part.field, r); err != nil {
		return err
	}
	if int64(part.values.length) < b.header.rows || b.header.rows > math.MaxInt32 {
		return pyfeed.Errorf(pyfeed.Corrupt, "expected %d values of a dictionary, found %d", b.header.rows, part.values.length)
	}
	if a := part.values; a.allNull || len(a.validity.data) > 0 {
		part.nulls = []bitmap{{a.validity.data, 1, a.allNull}}
	}
	l.length += int(b.header.rows)
	part.end = l.length
	l.parts = append(l.parts, part)
	return nil
}

// rowError completes an error about the row that is k rows behind the next.
func (r *records) rowError(err error, k int) error {
	if err == storage.ErrInterrupted {
		return err
	}
	if torn := r.f.CheckTruncated(); torn != nil {
		r.behind = skipAll
		return torn
	}
	kind, slot, text := pyfeed.Corrupt, -1, err.Error()
	var null nullError
	var known *pyfeed.Error
	switch {
	case errors.As(err, &null):
		kind, slot = pyfeed.Invalid, null.c.slotNumber
	case errors.As(err, &known):
		if known.At != nil {
			return known
		}
		kind, slot, text = known.Kind, known.Slot, known.Text
	}
	e := r.f.Corrupt(r.index.entries[r.current].offset, r.record+int64(k), "row %d of batch %d: %s", r.row+k, r.current, text)
	e.Kind, e.Slot = kind, slot
	r.behind = skipRow
	return e
}

// Read implements record.Records.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	if err := r.ready(); err != nil {
		r.err = err
		return 0, r.err
	}
	n := int(min(int64(len(out)), r.index.entries[r.current].rows-int64(r.row)))
	out = out[:n]
	for _, t := range out {
		if len(t.Slots) != len(r.outputs) {
			t.Resize(len(r.outputs))
		}
	}
	whole, err := r.fill(out)
	for _, t := range out[whole:] {
		for i := range t.Slots {
			t.Slots[i].Drop()
		}
	}
	if err != nil && whole == 0 {
		r.err = r.rowError(err, 0)
		return 0, r.err
	}
	r.advance(whole)
	return whole, nil
}

// advance goes on by n rows.
func (r *records) advance(n int) {
	r.row += n
	r.record += int64(n)
}

// fill fills all slots, each of many tuples at a time, and returns how many tuples have all slots. If that is 0, there is
// an error.
func (r *records) fill(out []*pyfeed.Tuple) (whole int, err error) {
	whole = len(out)
	copied := r.numbers > 0 && r.numbersAreCopied()
	if copied {
		whole = min(whole, blockBytes/r.rowBytes)
		got, err := r.copyNumbers(out[:whole])
		if whole = got; whole == 0 {
			return 0, err
		}
	}
	for i := range r.outputs {
		o := &r.outputs[i]
		var got int
		switch {
		case !o.lists && copied:
			continue
		case !o.lists:
			got, err = r.fillNumbers(out[:whole], i)
		case o.isText():
			got, err = r.fillBytes(out[:whole], i)
		default:
			got, err = r.fillLists(out[:whole], i)
		}
		if whole = min(whole, got); whole == 0 {
			return 0, err
		}
	}
	return whole, nil
}

// numbersAreCopied reports whether slots without lists are copied: small ones, unless there is only one, which can be used
// as it lies in the file.
func (r *records) numbersAreCopied() bool {
	if r.rowBytes == 0 || r.rowBytes > blockBytes/minRows {
		return false
	}
	return r.copies || !(r.single && r.outputs[0].columns[0].direct && len(r.outputs[0].columns[0].levels) == 0)
}

// copySlots copies the slots without lists of n rows to memory, and returns how many rows were copied before an error. The
// slot of output o begins at n*o.at, and takes o.size bytes in each row.
func (r *records) copySlots(to []byte, n int) (rows int, err error) {
	rows = n
	for i := range r.outputs {
		o := &r.outputs[i]
		if o.lists || o.size == 0 { // lists of a size of 0 have nothing to copy
			continue
		}
		at := n * o.at
		for _, c := range o.columns {
			got, failed := r.copyColumn(c, to[at:], r.row, rows, o.size)
			if got < rows {
				rows, err = got, failed
			}
			at += o.size / len(o.columns)
		}
	}
	return rows, err
}

// copyColumn copies a column of n rows, to positions that are stride bytes apart.
func (r *records) copyColumn(c *reading, to []byte, row, n, stride int) (rows int, err error) {
	if len(c.levels) == 0 {
		return c.copy(to, row*c.count, (row+n)*c.count, c.count, stride)
	}
	for k := range n {
		if err := c.expand(row+k, &r.scratch); err != nil {
			return k, err
		}
		into := to[k*stride:]
		for _, in := range r.scratch.intervals {
			first, end := in.first*c.count, in.end*c.count
			if _, err := c.copy(into, first, end, end-first, (end-first)*c.size); err != nil {
				return k, err
			}
			into = into[(end-first)*c.size:]
		}
	}
	return n, nil
}

// copyNumbers makes the slots without lists views of copies.
func (r *records) copyNumbers(out []*pyfeed.Tuple) (int, error) {
	data, b, err := r.arena.Get(len(out) * r.rowBytes)
	if err != nil {
		return 0, err
	}
	n, err := r.copySlots(data, len(out))
	b.Retain(n * r.numbers)
	b.Release()
	for i := range r.outputs {
		o := &r.outputs[i]
		if o.lists {
			continue
		}
		at := len(out) * o.at
		for _, t := range out[:n] {
			o.number(&t.Slots[i], data[at:at+o.size:at+o.size], b)
			at += o.size
		}
	}
	return n, err
}

// number makes a slot without lists.
func (o *output) number(s *pyfeed.LoDTensor, data []byte, b *memory.Buffer) {
	s.DType = o.slot.DType
	_ = s.SetDims(o.slot.Dims) // cannot fail: the rank was checked
	s.Hold(data, b)
}

// fillNumbers makes a slot without lists of each tuple: a view, or a copy.
func (r *records) fillNumbers(out []*pyfeed.Tuple, slot int) (int, error) {
	o := &r.outputs[slot]
	for k := 0; k < len(out); {
		if data, in, at := r.view(o, r.row+k); data != nil {
			n := 1
			if len(o.columns[0].levels) == 0 {
				n = len(out) - k
			}
			b, n := in.hold(r.f, at, o.size, n)
			for i := range n {
				s := &out[k+i].Slots[slot]
				o.number(s, in.data[at:at+o.size:at+o.size], b)
				s.ReadOnly = true
				at += o.size
			}
			k += n
			continue
		}
		if limit := r.maxCopied(); o.size > limit {
			return k, tooLarge(o.columns[0], limit)
		}
		to, b, err := r.arena.Get(o.size)
		if err != nil {
			return k, err
		}
		at := to
		for _, c := range o.columns {
			if _, err := r.copyColumn(c, at, r.row+k, 1, o.size); err != nil {
				b.Release()
				return k, err
			}
			at = at[o.size/len(o.columns):]
		}
		o.number(&out[k].Slots[slot], to, b)
		if k++; k*o.size > storage.PollEvery {
			return k, nil
		}
	}
	return len(out), nil
}

// view returns the data of a slot without lists, and where it is; nil: it has to be copied, or cannot be read.
func (r *records) view(o *output, row int) ([]byte, *region, int) {
	c := o.columns[0]
	if len(o.columns) > 1 || !c.direct || o.size == 0 || r.copies {
		return nil, nil, 0
	}
	first := row
	if len(c.levels) > 0 {
		if c.expand(row, &r.scratch) != nil || len(r.scratch.intervals) != 1 {
			return nil, nil, 0
		}
		first = r.scratch.intervals[0].first
	}
	at := first * c.count * c.size
	return c.elements.data.data[at : at+o.size], &c.elements.data, at
}

// fillBytes makes a slot of byte strings.
func (r *records) fillBytes(out []*pyfeed.Tuple, slot int) (int, error) {
	c := r.outputs[slot].columns[0]
	for k, t := range out {
		data, in, at, err := c.bytes(r.row + k)
		if err != nil {
			return k, r.explain(c, r.row+k, err)
		}
		data, b, err := r.holdBytes(data, in, at)
		if err != nil {
			return k, err
		}
		s := &t.Slots[slot]
		r.offsets.Sequence(s, len(data))
		s.Hold(data, b)
		s.ReadOnly = true
	}
	return len(out), nil
}

// explain completes the error about the bytes of a feature such as an image, which may be in a file of their own.
func (r *records) explain(c *reading, row int, err error) error {
	var null nullError
	if c.media == "" || !errors.As(err, &null) || len(c.levels) > 0 {
		return err
	}
	a, failed := r.batch.load(c.path, r)
	if failed != nil {
		return err
	}
	path := reading{column: &column{name: c.name + ".path", number: c.number, leaf: c.path}, elements: a}
	if len(a.validity.data) > 0 {
		path.nulls = []bitmap{{a.validity.data, 1, false}}
	}
	name, _, _, failed := path.bytes(row)
	if failed != nil {
		return err
	}
	e := pyfeed.Errorf(pyfeed.Invalid, "%v: expected the bytes of an %s, found none: they are in the file %q; save the dataset with them, "+
		"as datasets does when it embeds external files", c.column, c.media, shorten(string(name)))
	e.Slot = c.slotNumber
	return e
}

// fillLists makes a slot of lists.
func (r *records) fillLists(out []*pyfeed.Tuple, slot int) (int, error) {
	o := &r.outputs[slot]
	c, copied := o.columns[0], 0
	var room [pyfeed.MaxRank]int64
	for k, t := range out {
		s := &r.scratch
		if err := c.expand(r.row+k, s); err != nil {
			return k, err
		}
		var data []byte
		var b *memory.Buffer
		var err error
		readOnly := false
		if c.text {
			data, b, err = r.joinBytes(c, s)
		} else if size := c.count * c.size; c.direct && len(s.intervals) == 1 && size > 0 && !r.copies {
			at, n := s.intervals[0].first*size, s.total()*size
			data, readOnly = c.elements.data.data[at:at+n:at+n], true
			b, _ = c.elements.data.hold(r.f, at, 0, 1)
		} else {
			if limit := r.maxCopied(); size > 0 && s.total() > limit/size {
				return k, tooLarge(c, limit)
			}
			data, b, err = r.arena.Get(s.total() * size)
			into := data
			for _, in := range s.intervals {
				if err == nil {
					first, end := in.first*c.count, in.end*c.count
					_, err = c.copy(into, first, end, end-first, (end-first)*c.size)
					into = into[(end-first)*c.size:]
				}
			}
			if err != nil && b != nil {
				b.Release()
			}
			copied += len(data)
		}
		if err != nil {
			return k, err
		}
		to := &t.Slots[slot]
		to.DType = o.slot.DType
		to.LoD = to.LoD[:0]
		for i := range s.used {
			level := r.offsets.Get(len(s.lod[i]))
			copy(level, s.lod[i])
			to.LoD = append(to.LoD, level)
		}
		dims := append(room[:0], o.slot.Dims...)
		last := to.LoD[len(to.LoD)-1]
		dims[0] = last[len(last)-1]
		_ = to.SetDims(dims) // cannot fail: the rank was checked
		to.InHeap, to.ReadOnly = true, readOnly
		to.Hold(data, b)
		if copied > storage.PollEvery {
			return k + 1, nil
		}
	}
	return len(out), nil
}

// maxCopied limits the bytes that are copied for a slot of a row. Many indices or views may refer to the same bytes, so a
// small file could need any amount of memory.
func (r *records) maxCopied() int { return 64<<20 + 64*len(r.batch.body) }

func tooLarge(c *reading, limit int) error {
	return pyfeed.Errorf(pyfeed.TooLarge, "%v: expected at most %d bytes in a row, 64 times those of its batch, found more", c.column, limit)
}

// joinBytes returns the byte strings of a row after one another, and adds the level of their offsets.
func (r *records) joinBytes(c *reading, s *scratch) ([]byte, *memory.Buffer, error) {
	offsets := s.level()
	total := 0
	limit := r.maxCopied()
	for _, in := range s.intervals {
		for i := in.first; i < in.end; i++ {
			data, _, _, err := c.bytes(i)
			if err != nil {
				return nil, nil, err
			}
			if total += len(data); total > limit {
				return nil, nil, tooLarge(c, limit)
			}
			*offsets = append(*offsets, int64(total))
		}
	}
	to, b, err := r.arena.Get(total)
	if err != nil {
		return nil, nil, err
	}
	at := 0
	for _, in := range s.intervals {
		for i := in.first; i < in.end; i++ {
			data, _, _, _ := c.bytes(i) // the loop before has checked it
			at += copy(to[at:], data)
		}
	}
	return to, b, nil
}

// ReadBlock implements record.BlockReader for rows of numbers and byte strings, without lists. Read returns the errors.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || limit == 0 || r.copies {
		return nil
	}
	if r.ready() != nil {
		return nil
	}
	n := int(min(int64(limit), r.index.entries[r.current].rows-int64(r.row)))
	switch {
	case r.numbers == len(r.outputs):
		if b := r.viewBlock(n); b != nil {
			return b
		}
		return r.copiedBlock(n)
	case r.numbers+r.texts < len(r.outputs):
		return nil
	case len(r.outputs) == 1:
		return r.bytesBlock(n)
	}
	return r.textBlock(n)
}

// viewBlock returns rows that are used as they lie in the file, column by column.
func (r *records) viewBlock(n int) *record.Block {
	for i := range r.outputs {
		o := &r.outputs[i]
		c := o.columns[0]
		if len(o.columns) > 1 || len(c.levels) > 0 || !c.direct || o.size == 0 {
			return nil
		}
		// The rows hold the memory of the first column only.
		if first := &r.outputs[0].columns[0].elements.data; i > 0 && (c.elements.data.offset < 0) != (first.offset < 0) || i > 0 && first.offset < 0 && first.memory != c.elements.data.memory {
			return nil
		}
	}
	slots := make([]pyfeed.LoDTensor, len(r.outputs))
	var b *memory.Buffer
	for i := range r.outputs {
		o := &r.outputs[i]
		in, size := &o.columns[0].elements.data, o.size
		if i == 0 {
			b, n = in.hold(r.f, r.row*size, size, n)
		} else if in.offset >= 0 { // so that the pages before are released
			held, _ := in.hold(r.f, r.row*size, size, 1)
			held.Release()
		}
		s := &slots[i]
		s.DType, s.ReadOnly, s.Data = o.slot.DType, true, in.data[r.row*size:(r.row+1)*size:(r.row+n)*size]
		_ = s.SetDims(o.slot.Dims) // cannot fail: the rank was checked
	}
	r.advance(n)
	return record.NewColumnBlock(slots, n, b)
}

// copiedBlock returns rows that are copied to memory, column by column.
func (r *records) copiedBlock(n int) *record.Block {
	if r.rowBytes == 0 || r.rowBytes > blockBytes/minRows {
		return nil
	}
	slots := make([]pyfeed.LoDTensor, len(r.outputs))
	n, b := r.copyColumns(slots, min(n, blockBytes/r.rowBytes))
	if n == 0 {
		return nil
	}
	b.Retain(n - 1)
	r.advance(n)
	return record.NewColumnBlock(slots, n, b)
}

// copyColumns copies the slots without lists of at most n rows to memory, column by column, and makes them those of slots.
// It returns how many rows it has copied, and a reference to the memory if there are any.
func (r *records) copyColumns(slots []pyfeed.LoDTensor, n int) (int, *memory.Buffer) {
	to, b, err := r.arena.Get(n * r.rowBytes)
	if err != nil {
		return 0, nil
	}
	copied, _ := r.copySlots(to, n)
	if copied == 0 {
		b.Release()
		return 0, nil
	}
	for i := range r.outputs {
		o, s := &r.outputs[i], &slots[i]
		if o.lists {
			continue
		}
		at := n * o.at
		s.DType, s.Data = o.slot.DType, to[at:at+o.size:at+copied*o.size]
		_ = s.SetDims(o.slot.Dims) // cannot fail: the rank was checked
	}
	return copied, b
}

// isText reports whether a slot is a byte string for each row.
func (o *output) isText() bool { return o.columns[0].text && len(o.columns[0].levels) == 0 }

// bytesBlock returns byte strings that lie in one buffer.
func (r *records) bytesBlock(n int) *record.Block {
	t := r.textOf(r.outputs[0].columns[0], n)
	if len(t.Spans) == 0 {
		return nil
	}
	t.Buffer.Retain(len(t.Spans) - 1)
	r.advance(len(t.Spans))
	return record.NewSpanBlock(t.Base, t.Spans, t.Buffer)
}

// textBlock returns rows of numbers, which are copied, and byte strings. Where nulls or other buffers would make a Block of
// a few rows, it returns nil.
func (r *records) textBlock(n int) *record.Block {
	least := min(n, record.MinBlock)
	if r.rowBytes > blockBytes/minRows {
		return nil
	}
	if r.rowBytes > 0 {
		n = min(n, blockBytes/r.rowBytes)
	}
	slots, texts := make([]pyfeed.LoDTensor, len(r.outputs)), make([]record.Text, len(r.outputs))
	defer func() {
		for i := range texts {
			if texts[i].Buffer != nil {
				texts[i].Buffer.Release()
			}
		}
	}()
	for i := range r.outputs {
		if o := &r.outputs[i]; o.lists {
			texts[i], slots[i].ReadOnly = r.textOf(o.columns[0], n), true
			if n = len(texts[i].Spans); n < least {
				return nil
			}
		}
	}
	var b *memory.Buffer
	if r.numbers > 0 {
		if n, b = r.copyColumns(slots, n); b != nil {
			defer b.Release()
		}
		if n < least {
			return nil
		}
	}
	for i := range texts {
		if texts[i].Spans != nil {
			texts[i].Spans = texts[i].Spans[:n]
		}
	}
	r.advance(n)
	return record.NewTextBlock(slots, texts, 0, n, b)
}

// textOf returns the byte strings of a column in the next rows, at most n, that lie in one buffer, and a reference to the
// buffer. There are no spans if Read has to make the first one.
func (r *records) textOf(c *reading, n int) record.Text {
	if c.leaf.width == viewSize || c.dictionary != nil {
		return record.Text{}
	}
	in := &c.elements.data
	if in.offset < 0 && in.memory == nil {
		return record.Text{}
	}
	begin, _ := c.elements.bounds(c.leaf, r.row)
	if begin < 0 || begin > len(in.data) {
		return record.Text{}
	}
	spans := make([]record.Span, 0, n)
	limit := len(in.data)
	if in.offset >= 0 { // all begin in the same window
		limit = min(limit, int((in.offset+int64(begin))/memory.WindowSize+1)*memory.WindowSize-int(in.offset)-1)
	}
	for len(spans) < n {
		data, from, at, err := c.bytes(r.row + len(spans))
		if err != nil || from != in || at < begin || at > limit && len(spans) > 0 || int64(at-begin)+int64(len(data)) > math.MaxUint32 {
			break
		}
		spans = append(spans, record.Span{At: uint32(at - begin), Size: uint32(len(data))})
	}
	if len(spans) == 0 {
		return record.Text{}
	}
	b, _ := in.hold(r.f, begin, 0, 1)
	return record.Text{Spans: spans, Base: in.data[begin:], Buffer: b}
}

// Resync implements record.Records.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF {
		return r.err
	}
	if torn := r.f.CheckTruncated(); torn != nil {
		return torn
	}
	switch {
	case r.behind == skipAll || r.current >= len(r.index.entries):
		r.err = io.EOF
		return r.err
	case r.behind == skipRow:
		r.advance(1)
	default:
		e := &r.index.entries[r.current]
		if e.err != nil {
			r.record++
			r.approximate = true
		} else {
			r.record += e.rows - int64(r.row)
		}
		r.nextBatch()
	}
	r.behind, r.err = skipRow, nil
	err := r.ready()
	if err == storage.ErrInterrupted || err == nil {
		return nil
	}
	if err == io.EOF {
		r.err = err
		return err
	}
	return nil // the next Read returns it
}

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.record, !r.approximate }

// Position implements record.Seeker. It is the number of the row, where damage counts as no rows, and how many damaged
// places were skipped there.
func (r *records) Position() (record.Position, bool) {
	p := record.Position{Offset: r.index.rows}
	x := &r.index
	if r.current < len(x.entries) {
		p.Offset = x.entries[r.current].first + int64(r.row)
	}
	for i := min(r.current, len(x.entries)) - 1; i >= 0 && r.row == 0 && x.entries[i].first == p.Offset; i-- {
		if x.entries[i].err != nil {
			p.Inner++
		}
	}
	return p, r.err == nil || r.err == io.EOF
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, number int64, exact bool) error {
	bad := func() error {
		return record.BadPosition(r.f.Path(), p, fmt.Sprintf("the number of one of %d rows", r.index.rows))
	}
	if p.Offset < 0 || p.Inner < 0 || p.Offset > maxRows {
		return bad()
	}
	x := &r.index
	// What comes behind the position is not looked at: if it is damaged, Read returns the error.
	for !x.ended && (x.rows < p.Offset || x.rows == p.Offset && x.damagedAt(p.Offset) < p.Inner) {
		if err := r.extend(); err != nil {
			return err
		}
	}
	if p.Offset > x.rows {
		return bad()
	}
	// The first entry that begins at the position or has its row. Behind it may be empty batches, and damage.
	at := sort.Search(len(x.entries), func(i int) bool {
		e := &x.entries[i]
		return e.first >= p.Offset || e.first+e.rows > p.Offset
	})
	for ; p.Inner > 0; p.Inner-- {
		for at < len(x.entries) && x.entries[at].err == nil && x.entries[at].rows == 0 {
			at++
		}
		if at == len(x.entries) || x.entries[at].err == nil {
			return bad()
		}
		at++
	}
	if at != r.current {
		r.drop()
	}
	r.current, r.row = at, 0
	if at < len(x.entries) {
		r.row = int(p.Offset - x.entries[at].first)
	}
	r.record, r.approximate, r.err, r.behind = number, !exact, nil, skipRow
	return nil
}

// damagedAt returns how many of the last entries are damage behind a number of rows.
func (x *index) damagedAt(rows int64) (n int64) {
	for i := len(x.entries) - 1; i >= 0 && x.entries[i].first == rows; i-- {
		if x.entries[i].err != nil {
			n++
		}
	}
	return n
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.f.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.f.CheckUnchanged() }

// AtEnd implements record.EndReporter.
func (r *records) AtEnd() bool {
	if r.err != nil || !r.index.ended {
		return false
	}
	for i := r.current; i < len(r.index.entries); i++ {
		e := &r.index.entries[i]
		left := e.rows
		if i == r.current {
			left -= int64(r.row)
		}
		if e.err != nil || left > 0 {
			return false
		}
	}
	return true
}

func (r *records) release() {
	r.drop()
	for _, d := range r.dictionaries {
		d.release()
	}
	clear(r.dictionaries)
	for i := range r.index.dictionaries {
		if d := &r.index.dictionaries[i]; d.memory != nil {
			d.memory.Release()
			d.kept, d.memory = nil, nil
		}
	}
	r.arena.Close()
}

// Close closes the file.
func (r *records) Close() {
	r.release()
	r.f.Close()
	r.err = io.EOF
}
