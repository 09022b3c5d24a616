package parquet

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sort"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// listBudget is about how much memory the lists that a column's run has take, for all columns together, in bytes.
const listBudget = 1 << 20

// firstRows is how many rows are decoded together at first, so that the first of them come soon. It is doubled each time.
const firstRows = 64

// records reads a file. The rows of the row groups that are read are numbered from 0.
type records struct {
	table
	file   *storage.File
	in     *input
	meta   *fileMeta
	end    int64 // of all pages
	pool   *memory.Pool
	groups []rowGroup
	count  int64 // rows of all groups
	single bool  // rows are read here and there
	block  int   // bytes that are read at a time, if the file is not mapped

	next    int64 // number of the next row
	group   int   // index in groups of the next row
	reader  *groupReader
	slab    *slab // rows that are decoded
	at      int   // of them, that comes next
	ahead   pipeline
	err     error // the error at the end
	offsets record.Offsets
}

// rowGroup is a row group that is read.
type rowGroup struct {
	number int
	first  int64 // number of its first row
	row    int64 // of the file, that it begins with
	rows   int64
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	refuse := func(text string) error { return f.Errorf(pyfeed.Unsupported, -1, "parquet: %s", text) }
	switch {
	case record.BigEndian:
		return nil, refuse("expected a machine that stores the low byte of a number first, found another")
	case f.IsCompressed():
		return nil, refuse("expected a file that is not compressed as a whole, found one that is: decompress it first; its pages are compressed already")
	case f.Size() < 0:
		return nil, refuse("expected a file of known size, found a pipe or a device: the footer at its end has to be read first")
	}
	r := &records{file: f, pool: c.Pool, single: c.Storage.Block > 0, block: c.Storage.Block}
	r.in = &input{file: f, size: f.Size()}
	if f.InMemory() && f.Size() > 0 {
		data, err := f.Peek(int(f.Size()))
		if err != nil {
			return nil, err
		}
		r.in.data = data
	}
	if err := r.begin(c); err != nil {
		var e *pyfeed.Error
		if errors.As(err, &e) && e.At == nil {
			e.At = &pyfeed.Location{File: f.Path(), Offset: -1, Record: -1}
		}
		return nil, err
	}
	return r, nil
}

func (r *records) begin(c *record.Config) (err error) {
	if r.meta, r.end, err = readFooter(r.in); err != nil {
		return err
	}
	if r.leaves, err = leavesOf(r.meta.schema); err != nil {
		return r.file.Corrupt(r.end, -1, "footer: %v", err)
	}
	o := record.OptionsFrom[Options](c)
	if o.Compression != "" || o.RowGroupRecords != 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "parquet: compression and row_group_records are for writing")
	}
	if err := r.plan(c, o, readSlots(r.meta.slots)); err != nil {
		return err
	}
	filter, err := r.newFilter(o.Where)
	if err != nil {
		return err
	}
	row := int64(0)
	for i := range r.meta.groups {
		g := &r.meta.groups[i]
		if err := r.checkGroup(i, g); err != nil {
			return err
		}
		if g.rows > 0 && filter.keeps(g) {
			r.groups = append(r.groups, rowGroup{i, r.count, row, g.rows})
			r.count += g.rows
		}
		row += g.rows
	}
	r.ahead.begin(r)
	return nil
}

// checkGroup returns an error if the columns of a row group cannot be read.
func (r *records) checkGroup(number int, g *groupMeta) error {
	if len(g.columns) != len(r.leaves) {
		return r.file.Corrupt(r.end, -1, "footer: row group %d: expected %d columns, found %d", number, len(r.leaves), len(g.columns))
	}
	for i := range r.columns {
		l := r.columns[i].leaf
		m := &g.columns[l.number]
		unsupported := func(format string, args ...any) error {
			return r.file.Errorf(pyfeed.Unsupported, -1, "%v, row group %d: expected %s", l, number, fmt.Sprintf(format, args...))
		}
		switch {
		case m.encrypted:
			return unsupported("a column that is not encrypted, found an encrypted one")
		case m.external != "":
			return unsupported("pages in the same file, found some in %q", m.external)
		case m.typ != l.typ:
			return r.file.Corrupt(r.end, -1, "footer: %v, row group %d: expected %v, as in the schema, found %v", l, number, l.typ, m.typ)
		case !supported(m.codec):
			return unsupported("a codec that can be read, found %s", codecName(m.codec))
		case m.start() > r.end || m.values > 0 && m.start() < int64(len(magic)):
			return r.file.Corrupt(r.end, -1, "footer: %v, row group %d: expected pages before offset %d, found them at %d", l, number, r.end, m.start())
		case l.maxRep == 0 && m.values != g.rows || l.maxRep > 0 && m.values < g.rows:
			return r.file.Corrupt(r.end, -1, "footer: %v, row group %d: expected a value for each of %d rows, found %d", l, number, g.rows, m.values)
		}
	}
	return nil
}

// newReader returns a reader of the rows of a group, from one of them on. poll ends long work.
func (r *records) newReader(g rowGroup, from int64, poll func() error) *groupReader {
	out := &groupReader{table: &r.table, pool: r.pool, left: g.rows - from, rows: maxTileRows, limit: maxTileRows,
		budget: max(64<<10, listBudget/max(1, r.ragged)), chunks: make([]*chunk, len(r.columns)), parts: make([]part, len(r.columns))}
	if r.row > 0 {
		out.rows = max(1, min(maxTileRows, tileBytes/r.row))
	}
	meta := &r.meta.groups[g.number]
	for i := range r.columns {
		c := &r.columns[i]
		m := &meta.columns[c.leaf.number]
		size := 1 << 20
		if r.block > 0 {
			size = r.block
		}
		out.chunks[i] = &chunk{column: c, in: r.in, pool: r.pool, meta: m, group: g.number, first: g.row, rows: g.rows, readSize: size,
			poll: poll, at: m.start(), end: min(r.end, m.start()+min(m.compressed, r.end)), stop: r.end, numToSkip: from}
	}
	return out
}

// Describe implements record.Describer.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) { return r.slots, r.slotNames, nil }

// Count implements record.Counted.
func (r *records) Count() int64 { return r.count }

// AtEnd implements record.EndReporter.
func (r *records) AtEnd() bool { return r.err == nil && r.next == r.count }

// fill makes sure that slab has a row that was not returned.
func (r *records) fill() error {
	if r.slab != nil && r.at < r.slab.n {
		return nil
	}
	r.dropSlab()
	for {
		if r.group == len(r.groups) {
			return io.EOF
		}
		s, err := r.nextSlab()
		if err != nil {
			return r.located(err)
		}
		if s != nil {
			r.slab, r.at = s, 0
			return nil
		}
		r.endGroup()
	}
}

// nextSlab decodes the next rows of the group. It returns nil behind its last row.
func (r *records) nextSlab() (*slab, error) {
	g := r.groups[r.group]
	if r.reader == nil {
		if s, taken, err := r.ahead.take(r); taken {
			return s, err
		}
		r.reader = r.newReader(g, r.next-g.first, r.file.Poll)
		if r.group == 0 || r.next > g.first {
			r.reader.limit = firstRows
		}
	}
	return r.reader.decode()
}

// endGroup goes to the next group.
func (r *records) endGroup() {
	g := r.groups[r.group]
	r.dropReader()
	r.dropPages(g)
	r.group++
	r.next = g.first + g.rows
}

// dropPages returns the pages of a mapped file that have the columns of a group to the system.
func (r *records) dropPages(g rowGroup) {
	if !r.file.IsMapped() {
		return
	}
	for i := range r.columns {
		m := &r.meta.groups[g.number].columns[r.columns[i].leaf.number]
		for at, end := m.start(), min(r.end, m.start()+m.compressed); at < end; at += memory.WindowSize {
			r.file.HoldAt(at, 1).Release()
		}
	}
}

func (r *records) dropReader() {
	if r.reader != nil {
		r.reader.close()
		r.reader = nil
	}
}

func (r *records) dropSlab() {
	if r.slab != nil {
		r.slab.release()
		r.slab = nil
	}
}

// located adds the number of the next row to an error that has a place in the file.
func (r *records) located(err error) error {
	var e *pyfeed.Error
	if errors.As(err, &e) && e.At != nil && e.At.Record < 0 {
		located, at := *e, *e.At
		at.Record = r.next
		located.At = &at
		return &located
	}
	return err
}

// Read implements record.Records.
func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	if err := r.fill(); err != nil {
		if shrunk := r.file.CheckTruncated(); shrunk != nil && err != storage.ErrInterrupted {
			err = shrunk
		}
		r.err = err
		return 0, err
	}
	n := min(len(out), r.slab.n-r.at)
	if r.slab.tile != nil {
		r.slab.tile.Retain(n * (len(r.outputs) - r.ragged))
	}
	for k, t := range out[:n] {
		if len(t.Slots) != len(r.outputs) {
			t.Resize(len(r.outputs))
		}
		r.materialize(t, r.at+k)
	}
	r.take(n)
	return n, nil
}

// take notes that n rows of the slab were returned.
func (r *records) take(n int) {
	r.at += n
	r.next += int64(n)
	if r.at == r.slab.n {
		r.dropSlab()
	}
}

// materialize makes t the k-th row of the slab. The tuple takes over references to the tile.
func (r *records) materialize(t *pyfeed.Tuple, k int) {
	for i := range r.outputs {
		o, slot := &r.outputs[i], &t.Slots[i]
		switch o.kind {
		case fixedOutput, vectorOutput:
			at := r.slab.room*o.at + k*o.size
			slot.DType = o.slot.DType
			_ = slot.SetDims(o.slot.Dims) // cannot fail: the rank was checked
			slot.Hold(r.slab.tile.Bytes()[at:at+o.size:at+o.size], r.slab.tile)
		case bytesOutput:
			p := &r.slab.parts[o.column]
			texts := p.run.(*textRun)
			span := texts.spans[p.from+k]
			texts.buffer.Retain(1)
			r.offsets.Sequence(slot, int(span.Size))
			slot.Hold(texts.base[span.At:][:span.Size:span.Size], texts.buffer)
			slot.ReadOnly = true
		default:
			r.list(slot, o, k)
		}
	}
}

// list makes a slot the list of the k-th row of the slab.
func (r *records) list(slot *pyfeed.LoDTensor, o *output, k int) {
	p := &r.slab.parts[o.column]
	lists := p.run.(*listRun)
	from, end := int64(p.from+k), int64(p.from+k+1)
	slot.DType, slot.LoD, slot.InHeap = o.slot.DType, slot.LoD[:0], true
	for _, all := range lists.offsets {
		level := r.offsets.Get(int(end-from) + 1)
		base := all[from]
		for i := range level {
			level[i] = all[from+int64(i)] - base
		}
		slot.LoD = append(slot.LoD, level)
		from, end = base, all[end]
	}
	var room [pyfeed.MaxRank]int64
	dims := append(room[:0], o.slot.Dims...)
	dims[0] = end - from
	_ = slot.SetDims(dims) // cannot fail: the rank was checked
	size := int64(r.columns[o.column].size)
	if lists.buffer == nil { // no list of the run has elements
		return
	}
	lists.buffer.Retain(1)
	slot.Hold(lists.data[from*size:end*size:end*size], lists.buffer)
}

// ReadBlock implements record.BlockReader for rows without lists of any length. Read returns the errors.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || limit == 0 || r.hasLists() || r.fill() != nil {
		return nil
	}
	n := min(limit, r.slab.n-r.at)
	var b *record.Block
	if len(r.outputs) == 1 && r.ragged == 1 {
		t := r.text(&r.outputs[0], n)
		t.Buffer.Retain(n)
		b = record.NewSpanBlock(t.Base, t.Spans, t.Buffer)
	} else {
		b = r.columnBlock(n)
	}
	r.take(n)
	return b
}

// hasLists reports whether a slot has lists of any length.
func (r *records) hasLists() bool {
	return slices.ContainsFunc(r.outputs, func(o output) bool { return o.kind == listOutput })
}

// text returns the byte strings of a slot of the next n rows.
func (r *records) text(o *output, n int) record.Text {
	p := &r.slab.parts[o.column]
	run := p.run.(*textRun)
	return record.Text{Spans: run.spans[p.from+r.at:][:n:n], Base: run.base, Buffer: run.buffer}
}

// columnBlock returns the next n rows, which have numbers, or several slots.
func (r *records) columnBlock(n int) *record.Block {
	tile := r.slab.tile
	slots, texts := make([]pyfeed.LoDTensor, len(r.outputs)), []record.Text(nil)
	if r.ragged > 0 {
		texts = make([]record.Text, len(r.outputs))
	}
	for i := range r.outputs {
		o := &r.outputs[i]
		if o.kind == bytesOutput {
			texts[i], slots[i].ReadOnly = r.text(o, n), true
			continue
		}
		at := r.slab.room*o.at + r.at*o.size
		slots[i].DType, slots[i].Data = o.slot.DType, tile.Bytes()[at:at+o.size:at+n*o.size]
		_ = slots[i].SetDims(o.slot.Dims) // cannot fail: the rank was checked
	}
	if texts != nil {
		return record.NewTextBlock(slots, texts, 0, n, tile)
	}
	tile.Retain(n)
	return record.NewColumnBlock(slots, n, tile)
}

// Resync skips the rest of the row group.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF {
		return r.err
	}
	if shrunk := r.file.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	r.ahead.drop(r.group)
	r.endGroup()
	r.err = nil
	if r.group == len(r.groups) {
		r.err = io.EOF
	}
	return r.err
}

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.next, true }

// Position implements record.Seeker. It is the number of the row, among the rows of the row groups that are read.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.next}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	if p.Offset < 0 || p.Offset > r.count || p.Inner != 0 {
		return record.BadPosition(r.file.Path(), p, fmt.Sprintf("the number of one of %d rows", r.count))
	}
	r.err = nil
	step := p.Offset - r.next
	if step == 0 {
		return nil
	}
	if r.slab != nil && step >= -int64(r.at) && step < int64(r.slab.n-r.at) {
		r.at += int(step)
		r.next = p.Offset
		return nil
	}
	decoded := r.next // the row behind those that the reader has decoded
	if r.slab != nil {
		decoded += int64(r.slab.n - r.at)
	}
	r.dropSlab()
	r.ahead.stop()
	group := sort.Search(len(r.groups), func(i int) bool { return r.groups[i].first+r.groups[i].rows > p.Offset })
	if r.reader != nil && group == r.group && p.Offset >= decoded && r.reader.skip(p.Offset-decoded) {
		r.next = p.Offset
		return nil
	}
	r.dropReader()
	r.next, r.group = p.Offset, group
	return nil
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.file.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.file.CheckUnchanged() }

// Close implements record.Records.
func (r *records) Close() {
	r.ahead.stop()
	r.dropReader()
	r.dropSlab()
	r.file.Close()
	r.err = io.EOF
}

// numDecoders is how many row groups are decoded at the same time at most, by all readers of the process together.
func numDecoders() int { return runtime.GOMAXPROCS(0) }
