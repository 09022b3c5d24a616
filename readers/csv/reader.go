package csv

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"math/bits"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// mostRecord bounds a record, in bytes: a quote that nobody closes must not bring a whole file into memory.
const mostRecord = 256 << 20

// ReadBlock makes instances in pieces of so many bytes, and Read those of which fewer than leastRows fit in.
const (
	rowsPiece = 64 << 10
	leastRows = 16
)

func (f format) open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsOf[Options](c).Compression, c, f.records)
}

func (f format) records(file *storage.File, c *record.Config) (record.Records, error) {
	r := &records{file: file, arena: memory.NewArena(c.Pool), most: mostRecord, table: table{tag: f.tag, width: -1}}
	if err := r.begin(f, c); err != nil {
		return nil, err
	}
	return r, nil
}

// records reads. Numbers are made in memory of their own, text is used where it lies unless it has doubled quotes.
type records struct {
	table
	dialect
	file     *storage.File
	arena    *memory.Arena
	record   int64 // number of the next; -1: the header
	lines    int64 // before the position, as long as no record was read
	most     int   // bytes of a record
	err      error // why reading goes no further
	broken   bool  // err is that of the file, behind which there is nothing
	skipping bool  // Resync was interrupted in looking for the end of a line
	guess    bool  // the number is approximate: lines were skipped, of which records is not known

	line    []byte         // the numbers of an instance that is being read: of arena, if not nil
	buffer  *memory.Buffer // that line lies in
	room    []byte         // for more of ReadBlock: of arena, if not nil
	rooms   *memory.Buffer // that room lies in
	spans   []span         // its texts
	offsets record.Offsets
	fault   error // what parse found wrong
}

// span is a field where it lies.
type span struct {
	data    []byte
	doubled bool // there are doubled quotes in it
}

// status is how far parsing came.
type status uint8

const (
	done status = iota
	more        // the data ends too soon
	bad         // fault says why
)

func (r *records) begin(f format, c *record.Config) (err error) {
	o := record.OptionsOf[Options](c)
	if r.dialect, err = f.dialect(o); err != nil {
		return err
	}
	b, err := r.file.Peek(3)
	if err != nil && len(b) < 3 {
		return err
	}
	if bytes.HasPrefix(b, []byte("\xef\xbb\xbf")) {
		r.file.Skip(3)
	} else if bytes.HasPrefix(b, []byte("\xff\xfe")) || bytes.HasPrefix(b, []byte("\xfe\xff")) {
		return r.file.Corrupt(0, -1, "expected text in UTF-8, found UTF-16")
	}
	if o.Header == nil || *o.Header {
		if err := r.header(o); err != nil {
			return err
		}
	}
	var looked sample
	known := false
	look := func() (sample, error) {
		var err error
		if !known {
			looked, err = r.look()
			known = err == nil
		}
		return looked, err
	}
	if c.Slots != nil {
		if end, err := r.atEnd(); end || err != nil {
			r.err, r.slots, r.called = io.EOF, c.Slots, c.Names // nothing has to be told of no records
			return err
		}
	}
	if r.names == nil && (c.Slots == nil || len(o.Columns) > 0) {
		fields, _, err := r.peekFields()
		if err != nil {
			return err
		}
		if fields == nil {
			return pyfeed.Errorf(pyfeed.Invalid, "%s: %s: expected a record to tell the columns by, found none: say slots", r.file.Path(), r.tag)
		}
		r.width = len(fields)
	}
	if err := r.plan(c, o, look); err != nil {
		if e, is := err.(*pyfeed.Error); is {
			if e.At == nil {
				e.At = &pyfeed.Location{Offset: -1, Record: -1}
			}
			e.At.File = r.file.Path()
		}
		return err
	}
	r.spans = make([]span, len(r.textSlots))
	return nil
}

// header reads the columns' names.
func (r *records) header(o *Options) error {
	r.record = -1
	fields, n, err := r.peekFields()
	if err != nil {
		return err
	}
	if fields == nil {
		return r.file.Corrupt(r.file.Offset(), -1, "expected a line of columns' names, found the end of the file")
	}
	numbers := o.Header == nil
	for _, f := range fields {
		r.names = append(r.names, string(f))
		numbers = numbers && formOf(f).number()
	}
	if numbers {
		return &pyfeed.Error{Kind: pyfeed.Invalid, Slot: -1, Text: "expected columns' names in the first line, found numbers: " +
			"say \"header\": false if that is a record, true if not", At: &pyfeed.Location{File: r.file.Path(), Offset: r.file.Offset(), Record: -1}}
	}
	r.width = len(fields)
	r.pass(n)
	r.record = 0
	return nil
}

// peek is the data from the position on, and whether it is all there is.
func (r *records) peek(n int) (b []byte, end bool, err error) {
	b, err = r.file.Peek(n)
	end = err == nil && (r.file.Mapped() || len(b) < n)
	if most := min(max(n, storage.LookEvery), r.most); len(b) > most {
		b, end = b[:most], false
	}
	if err == nil {
		err = r.file.Look()
	}
	return b, end, err
}

// grow is how much to ask for where b, which begins at the position, ends too soon.
func (r *records) grow(b []byte, err error) (int, error) {
	if err != nil {
		r.broken = err != storage.ErrInterrupted
		return 0, err
	}
	if len(b) >= r.most {
		return 0, r.file.Corrupt(r.file.Offset(), r.record, "expected a record of at most %d bytes, found no end of it: a quote may be missing", r.most)
	}
	return min(2*len(b)+1, r.most), nil
}

// pass is file.Skip, before the first record is read.
func (r *records) pass(n int) {
	b, _ := r.file.Peek(n) // which was shown
	r.lines += int64(bytes.Count(b[:n], []byte{'\n'}))
	r.file.Skip(n)
}

// atEnd skips blank lines and says whether there is nothing else.
func (r *records) atEnd() (bool, error) {
	for want := 1; ; {
		b, end, err := r.peek(want)
		n, s := r.blank(b, end)
		r.pass(n)
		if b = b[n:]; len(b) == 0 && end {
			return true, nil
		}
		switch {
		case s == done && len(b) > 0:
			return false, nil
		case n > 0:
			want = 1
		default:
			if want, err = r.grow(b, err); err != nil {
				return false, err
			}
		}
	}
}

// peekFields are those of the next record, which stays the next, copied, and its length. nil: there is none.
func (r *records) peekFields() (fields [][]byte, n int, err error) {
	if end, err := r.atEnd(); end || err != nil {
		return nil, 0, err
	}
	for want := 1; ; {
		b, end, err := r.peek(want)
		fields, p := [][]byte{}, 0
		for {
			f, s := r.field(b, p, end)
			if s == bad {
				return nil, 0, r.fault
			}
			if s == more {
				break
			}
			if len(fields) == mostColumns {
				return nil, 0, r.file.Corrupt(r.file.Offset(), r.record, "expected at most %d columns, found more", mostColumns)
			}
			content, err := r.unquote(nil, f.span(b))
			if err != nil {
				return nil, 0, err
			}
			fields = append(fields, content)
			p = f.next
			if f.last {
				return fields, p, nil
			}
		}
		if want, err = r.grow(b, err); err != nil {
			return nil, 0, err
		}
	}
}

func (r *records) Describe() ([]pyfeed.Slot, []string, error) { return r.slots, r.called, nil }

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	n, err := r.read(out)
	if err != nil && r.file.Intact() != nil {
		err = r.file.Intact()
	}
	r.err = err
	if n > 0 {
		err = nil
	}
	return n, err
}

// read answers an error too where it answers tuples.
func (r *records) read(out []*pyfeed.Tuple) (n int, err error) {
	took := 0
	for want := 1; ; {
		b, end, failed := r.peek(want)
		if n == 0 && len(b) > 0 {
			r.file.Hold(1).Release() // so that the windows of a mapped file move along
		}
		for {
			k, s := r.blank(b, end)
			r.file.Skip(k)
			b = b[k:]
			took += k
			if len(b) == 0 && end {
				return n, io.EOF
			}
			if s == done && len(b) > 0 {
				if n == len(out) || took >= memory.WindowSize && n > 0 {
					return n, nil
				}
				if r.row > 0 && r.buffer == nil {
					if r.line, r.buffer, err = r.arena.Get(r.row); err != nil {
						return n, err
					}
				}
				k, s = r.parse(b, end)
			} else {
				s = more
			}
			if s == bad {
				return n, r.fault
			}
			if s == more {
				break
			}
			if err := r.fill(out[n]); err != nil {
				return n, err
			}
			r.file.Skip(k)
			b = b[k:]
			took += k
			n++
			r.record++
		}
		if n > 0 && failed == nil && len(b) < r.most {
			return n, nil
		}
		if want, err = r.grow(b, failed); err != nil {
			return n, err
		}
	}
}

// ReadBlock is Rowed's: of instances without text. Whatever is the matter with a record, Read has to tell.
func (r *records) ReadBlock(most int) *record.Block {
	stride := (r.row + 7) &^ 7 // the widest element
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(r.textSlots) > 0 || stride == 0 || stride > rowsPiece/leastRows {
		return nil
	}
	b, end, err := r.peek(1)
	if err != nil || len(b) == 0 {
		return nil
	}
	r.file.Hold(1).Release() // so that the windows of a mapped file move along
	if len(r.room) < leastRows*stride {
		r.dropRoom()
		if r.room, r.rooms, err = r.arena.Get(rowsPiece); err != nil {
			return nil
		}
	}
	most = min(most, len(r.room)/stride)
	line, n := r.line, 0
	for took := 0; n < most && took < memory.WindowSize; n++ {
		k, s := r.blank(b, end)
		r.file.Skip(k)
		b = b[k:]
		took += k
		if s != done || len(b) == 0 {
			break
		}
		r.line = r.room[n*stride:]
		if k, s = r.parse(b, end); s != done {
			break
		}
		r.file.Skip(k)
		b = b[k:]
		took += k
		r.record++
	}
	r.line = line
	if n == 0 {
		return nil
	}
	slots := make([]pyfeed.LoDTensor, len(r.outputs))
	for i := range r.outputs {
		o, slot := &r.outputs[i], &slots[i]
		slot.DType, slot.Data = o.dtype, r.room[o.at:o.at+o.size:n*stride]
		_ = slot.SetDims(o.dims) // whose rank was checked
	}
	r.room = r.room[n*stride:]
	r.rooms.Retain(n)
	return record.NewBlock(slots, stride, n, r.rooms)
}

func (r *records) dropRoom() {
	if r.rooms != nil {
		r.rooms.Release()
		r.room, r.rooms = nil, nil
	}
}

// blank is the length of the blank lines and comments that b begins with.
func (r *records) blank(b []byte, end bool) (n int, s status) {
	for n < len(b) {
		switch c := b[n]; {
		case c == '\n':
			n++
		case c == '\r':
			switch {
			case n+1 < len(b) && b[n+1] == '\n':
				n += 2
			case n+1 < len(b):
				return n, done
			case end:
				n++
			default:
				return n, more
			}
		case c == r.comment && c != 0:
			k := bytes.IndexByte(b[n:], '\n')
			switch {
			case k >= 0:
				n += k + 1
			case end:
				n = len(b)
			default:
				return n, more
			}
		default:
			return n, done
		}
	}
	return n, done
}

// parse reads the record that b begins with into line and spans. It is n bytes long.
func (r *records) parse(b []byte, end bool) (n int, s status) {
	p := 0
	for k := range r.runs {
		run := &r.runs[k]
		for i := run.first; ; i++ {
			if i, p = run.plain(b, p, i, r.line, r.delimiter); i == run.behind {
				break
			}
			if p, s = r.other(b, p, i, end); s != done {
				return 0, s
			}
		}
	}
	return p, done
}

// other reads a field that is not plain, or not known to be. The next begins at next.
func (r *records) other(b []byte, p, i int, end bool) (next int, s status) {
	c, line, last := &r.columns[i], r.line, len(r.columns)-1
	q := p
	switch c.kind {
	case integer:
		v, negative, at := scanInteger(b, p)
		switch {
		case !negative && v <= c.above:
			record.PutElement(line[c.at:], c.size, v)
			q = at
		case negative && v <= c.below:
			record.PutElement(line[c.at:], c.size, -v)
			q = at
		}
	case float64s:
		v, at := scanFloat64(b, p)
		binary.NativeEndian.PutUint64(line[c.at:], math.Float64bits(v))
		q = at
	case float32s:
		v, at := scanFloat32(b, p)
		binary.NativeEndian.PutUint32(line[c.at:], math.Float32bits(v))
		q = at
	case halves:
		if v, at := scanFloat64(b, p); at > p {
			if h, ok := halve(v, c.dtype); ok {
				binary.NativeEndian.PutUint16(line[c.at:], h)
				q = at
			}
		}
	}
	if q > p && q < len(b) {
		t := b[q]
		if t == r.delimiter && i < last {
			return q + 1, done
		}
		if i == last {
			if t == '\n' {
				return q + 1, done
			}
			if t == '\r' && q+1 < len(b) && b[q+1] == '\n' {
				return q + 2, done
			}
		}
	}
	return r.take(b, p, i, end)
}

// take reads the field of column i that begins at p, in any form. The next begins at next.
func (r *records) take(b []byte, p, i int, end bool) (next int, s status) {
	c := &r.columns[i]
	f, s := r.field(b, p, end)
	if s != done {
		return 0, s
	}
	switch c.kind {
	case skipped:
	case text:
		r.spans[c.at] = f.span(b)
	default:
		content := f.span(b)
		if content.doubled { // no number has quotes in it
			unquoted, err := r.unquote(nil, content)
			if err != nil {
				r.fault = err
				return 0, bad
			}
			return 0, r.misfit(p, c, noNumber, unquoted, shown(unquoted))
		}
		bits, flaw := c.missing, none
		if len(content.data) == 0 || len(trim(content.data)) == 0 {
			if c.unfit != "" {
				return 0, r.misfit(p, c, noNumber, []byte(c.unfit), "an empty field, which stands for "+strconv.Quote(c.unfit))
			}
			if !c.hasMissing {
				return 0, r.refuse(p, "%v: expected %s, found an empty field: the option missing says what to take for it", c, wanted(c.dtype, noNumber))
			}
		} else if bits, flaw = parseNumber(content.data, c.dtype, c.kind); flaw != none {
			return 0, r.misfit(p, c, flaw, content.data, shown(content.data))
		}
		record.PutElement(r.line[c.at:], c.size, bits)
	}
	if last := i == len(r.columns)-1; f.last != last {
		if f.last {
			return 0, r.refuse(f.to, "expected %d columns, found %d", len(r.columns), i+1)
		}
		return 0, r.refuse(f.next, "expected %d columns, found more", len(r.columns))
	}
	return f.next, done
}

// refuse is for what is wrong with the record, at an offset in the data from the position on.
func (r *records) refuse(at int, format string, args ...any) status {
	r.fault = r.file.Corrupt(r.file.Offset()+int64(at), r.record, format, args...)
	return bad
}

// misfit is for content, shown as an error shows its field, that does not fit its column, of numbers. It is damage, unless the dtype was inferred and another
// holds the field: then the record is whole, and to skip it would lose what is right.
func (r *records) misfit(at int, c *column, f flaw, content []byte, shown string) status {
	s := r.refuse(at, "%v: expected %s, found %s", c, wanted(c.dtype, f), shown)
	is := formOf(content)
	fits := is.dtype()
	if !c.inferred || fits == c.dtype {
		return s
	}
	if is == negative { // and the column has integers that only uint64 holds
		fits = pyfeed.Float64
	}
	e := r.fault.(*pyfeed.Error)
	e.Text += "; the dtype is that of the first MiB: " + r.advice(c.number, fits)
	if _, fields, err := r.extent(); is != words && fields == len(r.columns) && err == nil {
		e.Kind, e.Slot = pyfeed.Type, c.slot
	}
	r.fault = e
	return s
}

// field is where one lies, without its quotes.
type field struct {
	from, to int
	next     int  // where the next begins, of this record or the next
	last     bool // of its record
	doubled  bool
}

func (f *field) span(b []byte) span { return span{b[f.from:f.to:f.to], f.doubled} }

// field finds the end of the field that begins at p.
func (r *records) field(b []byte, p int, end bool) (f field, s status) {
	if p < len(b) && b[p] == r.quote && r.quote != 0 {
		return r.quoted(b, p, end)
	}
	q := p
	for { // long fields a piece at a time
		part := b[:min(len(b), q+storage.LookEvery)]
		if q = r.endOfField(part, q); q < len(part) || q == len(b) {
			break
		}
		if r.fault = r.file.Look(); r.fault != nil {
			return f, bad
		}
	}
	f = field{from: p, to: q, next: q + 1}
	switch {
	case q == len(b):
		if !end {
			return f, more
		}
		f.next, f.last = q, true
	case b[q] == '\n':
		f.last = true
	default:
		return f, done
	}
	if f.to > p && b[f.to-1] == '\r' {
		f.to--
	}
	return f, done
}

func (r *records) quoted(b []byte, p int, end bool) (f field, s status) {
	f.from = p + 1
	q := p + 1
	for next := q + storage.LookEvery; ; {
		if q > next {
			if r.fault = r.file.Look(); r.fault != nil {
				return f, bad
			}
			next = q + storage.LookEvery
		}
		k := bytes.IndexByte(b[q:], r.quote)
		if k < 0 {
			if !end {
				return f, more
			}
			return f, r.refuse(p, "expected a closing quote, found the end of the file")
		}
		q += k
		if q+1 == len(b) && !end {
			return f, more
		}
		if q+1 == len(b) || b[q+1] != r.quote {
			break
		}
		f.doubled = true
		q += 2
	}
	f.to = q
	q++
	switch {
	case q == len(b):
		f.next, f.last = q, true
	case b[q] == r.delimiter:
		f.next = q + 1
	case b[q] == '\n':
		f.next, f.last = q+1, true
	case b[q] == '\r' && q+1 == len(b) && !end:
		return f, more
	case b[q] == '\r' && (q+1 == len(b) || b[q+1] == '\n'):
		f.next, f.last = min(q+2, len(b)), true
	default:
		return f, r.refuse(q, "expected %q or the end of the line behind a closing quote, found %q", r.delimiter, b[q])
	}
	return f, done
}

// endOfField is where the first delimiter or line end from p on is, or the end of b. Eight bytes at a time are
// looked at: a byte that is wanted becomes zero, and only below a zero can a borrow not have come from.
func (r *records) endOfField(b []byte, p int) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	delimiters := uint64(r.delimiter) * ones
	for p+8 <= len(b) {
		w := binary.LittleEndian.Uint64(b[p:])
		d, l := w^delimiters, w^('\n'*ones)
		if found := ((d-ones)&^d | (l-ones)&^l) & highs; found != 0 {
			return p + bits.TrailingZeros64(found)/8
		}
		p += 8
	}
	for p < len(b) && b[p] != r.delimiter && b[p] != '\n' {
		p++
	}
	return p
}

// unquote appends a field's content. The error is storage.ErrInterrupted.
func (r *records) unquote(to []byte, from span) ([]byte, error) {
	data := from.data
	for next := len(data) - storage.LookEvery; from.doubled; {
		k := bytes.IndexByte(data, r.quote)
		if k < 0 {
			break
		}
		if len(data) < next {
			if err := r.file.Look(); err != nil {
				return nil, err
			}
			next = len(data) - storage.LookEvery
		}
		to = append(to, data[:k+1]...)
		data = data[k+2:]
	}
	return append(to, data...), nil
}

// fill makes an instance of line and spans. The position is that of its record.
func (r *records) fill(t *pyfeed.Tuple) error {
	if len(t.Slots) != len(r.outputs) {
		t.Resize(len(r.outputs))
	}
	views := 0
	for i := range r.spans {
		s := &r.spans[i]
		if !s.doubled {
			views++
			continue
		}
		// Before anything refers to anything: this may fail.
		got, b, err := r.arena.Get(len(s.data))
		if err != nil {
			return err
		}
		content, err := r.unquote(got[:0], *s)
		if err != nil {
			b.Release()
			return err
		}
		t.Slots[r.textSlots[i]].Hold(content, b)
	}
	if views > 0 {
		b := r.file.Hold(views)
		for i := range r.spans {
			if s := &r.spans[i]; !s.doubled {
				slot := &t.Slots[r.textSlots[i]]
				slot.Hold(s.data, b)
				slot.ReadOnly = true
			}
		}
	}
	if r.buffer != nil {
		r.buffer.Retain(r.numbers - 1)
	}
	for i := range r.outputs {
		o, slot := &r.outputs[i], &t.Slots[i]
		if o.text {
			r.offsets.Sequence(slot, len(slot.Data))
			continue
		}
		slot.DType = o.dtype
		_ = slot.SetDims(o.dims) // whose rank was checked
		slot.Hold(r.line[o.at:o.at+o.size:o.at+o.size], r.buffer)
	}
	r.line, r.buffer = nil, nil
	return nil
}

// Resync goes on behind the record that is wrong, or behind its first line if that is not how it ends.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF {
		return r.err
	}
	if shrunk := r.file.Intact(); shrunk != nil {
		return shrunk
	}
	if r.broken {
		r.err = io.EOF
		return r.err
	}
	var n int
	var err error
	if !r.skipping {
		n, _, err = r.extent()
	}
	switch {
	case err == storage.ErrInterrupted:
		return err
	case err == nil && !r.skipping:
		r.file.Skip(n)
	case r.broken:
		err = io.EOF
	default:
		r.guess = true
		err = r.skipLine()
		if r.skipping = err == storage.ErrInterrupted; r.skipping {
			return err
		}
	}
	r.record++
	r.err = err
	return err
}

// Number is Numbered's.
func (r *records) Number() (int64, bool) { return r.record, !r.guess }

// extent is the length of the record at the position, and the number of its fields. It has none if its quotes are wrong, or
// if it is too long.
func (r *records) extent() (n, fields int, err error) {
	for want := 1; ; {
		b, end, failed := r.peek(want)
		p, s := 0, done
		fields = 0
		for last := false; s == done && !last; {
			var f field
			if f, s = r.field(b, p, end); s == done {
				p, last, fields = f.next, f.last, fields+1
			}
		}
		switch s {
		case done:
			return p, fields, nil
		case bad:
			return 0, fields, r.fault
		}
		if want, err = r.grow(b, failed); err != nil {
			return 0, fields, err
		}
	}
}

// skipLine goes behind the next line end. Interrupted, it goes on where it was.
func (r *records) skipLine() error {
	for {
		b, err := r.file.Peek(1)
		if err == nil {
			err = r.file.Look()
		}
		if err == storage.ErrInterrupted {
			return err
		}
		b = b[:min(len(b), storage.LookEvery)]
		if len(b) == 0 {
			r.broken = err != nil
			return io.EOF
		}
		if k := bytes.IndexByte(b, '\n'); k >= 0 {
			r.file.Skip(k + 1)
			return nil
		}
		r.file.Skip(len(b))
	}
}

func (r *records) Intact() error { return r.file.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.file.Unchanged() }

func (r *records) Close() {
	if r.buffer != nil {
		r.buffer.Release()
		r.line, r.buffer = nil, nil
	}
	r.dropRoom()
	r.arena.Close()
	r.file.Close()
	r.err = io.EOF
}
