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
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// maxRecord is the largest size of a record, in bytes: an unclosed quote must not read a whole file into memory.
const maxRecord = 256 << 20

// ReadBlock makes instances in blocks of blockBytes. If fewer than minRows fit into one, Read makes them.
const (
	blockBytes = 64 << 10
	minRows    = 16
)

func (f format) open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsFrom[Options](c).Compression, c, f.records)
}

func (f format) records(file *storage.File, c *record.Config) (record.Records, error) {
	r := &records{file: file, arena: memory.NewArena(c.Pool), maxRecord: maxRecord, table: table{tag: f.tag, width: -1}}
	if err := r.begin(f, c); err != nil {
		return nil, err
	}
	return r, nil
}

// records reads a file. Numbers are stored in memory of the arena. Text is a view of the file unless it has doubled
// quotes.
type records struct {
	table
	dialect
	file        *storage.File
	arena       *memory.Arena
	first       int64 // offset of the first record, or of blank lines and comments before it
	record      int64 // number of the next record; -1: the header
	lines       int64 // lines before the position, until the first record is read
	maxRecord   int   // largest size of a record
	err         error // the error that ended reading
	fileFailed  bool  // err is about the file, so there is nothing to read after it
	skipping    bool  // Resync was interrupted while it searched for the end of a line
	approximate bool  // record is approximate: the number of records in skipped lines is not known

	rowBytes    []byte         // the numbers of the current instance, in memory of arena; nil: none yet
	rowBuffer   *memory.Buffer // the memory of rowBytes
	block       []byte         // space for further instances of ReadBlock, in memory of arena; nil: none
	blockBuffer *memory.Buffer // the memory of block
	spans       []span         // the texts of the current instance
	offsets     record.Offsets
	fault       error // the error that parse has found
}

// span is the position of a field.
type span struct {
	data            []byte
	hasDoubledQuote bool // the field has doubled quotes
}

// status is the result of parsing.
type status uint8

const (
	done    status = iota
	more           // the data ends within the record
	invalid        // fault has the error
)

func (r *records) begin(f format, c *record.Config) (err error) {
	o := record.OptionsFrom[Options](c)
	if r.dialect, err = f.dialect(o); err != nil {
		return err
	}
	if err := r.file.BeginText(); err != nil {
		return err
	}
	if o.Header == nil || *o.Header {
		if err := r.header(o); err != nil {
			return err
		}
	}
	r.first = r.file.Offset()
	var looked sample
	known := false
	look := func() (sample, error) {
		var err error
		if !known {
			looked, err = r.readSample()
			known = err == nil
		}
		return looked, err
	}
	if c.Slots != nil {
		if end, err := r.atEnd(); end || err != nil {
			r.err, r.slots, r.slotNames = io.EOF, c.Slots, c.Names // no slots are inferred for an empty file
			return err
		}
	}
	if r.names == nil && (c.Slots == nil || len(o.Columns) > 0) {
		fields, _, err := r.peekFields()
		if err != nil {
			return err
		}
		if fields == nil {
			return pyfeed.Errorf(pyfeed.Invalid, "%s: %s: expected a record to infer the columns from, found none: give slots", r.file.Path(), r.tag)
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

// header reads the names of the columns.
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
			"set \"header\" to false if the line is a record, to true if it has names", At: &pyfeed.Location{File: r.file.Path(), Offset: r.file.Offset(), Record: -1}}
	}
	r.width = len(fields)
	r.pass(n)
	r.record = 0
	return nil
}

// peek returns the data from the position on, and whether that is the rest of the file.
func (r *records) peek(n int) (b []byte, end bool, err error) {
	return r.file.PeekText(n, r.maxRecord)
}

// grow returns how many bytes to request when b, which begins at the position, ends within a record.
func (r *records) grow(b []byte, err error) (int, error) {
	if err != nil {
		r.fileFailed = err != storage.ErrInterrupted
		return 0, err
	}
	if len(b) >= r.maxRecord {
		return 0, r.file.Corrupt(r.file.Offset(), r.record, "expected a record of at most %d bytes, found no end of it: a quote may be missing", r.maxRecord)
	}
	return min(2*len(b)+1, r.maxRecord), nil
}

// pass is file.Skip before the first record is read. It counts lines.
func (r *records) pass(n int) {
	b, _ := r.file.Peek(n) // in memory already
	r.lines += int64(bytes.Count(b[:n], []byte{'\n'}))
	r.file.Skip(n)
}

// atEnd skips blank lines and reports whether the file ends after them.
func (r *records) atEnd() (bool, error) {
	for want := 1; ; {
		b, end, err := r.peek(want)
		n, s := r.isBlank(b, end)
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

// peekFields returns copies of the fields of the next record, and the record's length, without reading it. nil: there
// is none.
func (r *records) peekFields() (fields [][]byte, n int, err error) {
	if end, err := r.atEnd(); end || err != nil {
		return nil, 0, err
	}
	for want := 1; ; {
		b, end, err := r.peek(want)
		fields, p := [][]byte{}, 0
		for {
			f, s := r.field(b, p, end)
			if s == invalid {
				return nil, 0, r.fault
			}
			if s == more {
				break
			}
			if len(fields) == columns.Max {
				return nil, 0, r.file.Corrupt(r.file.Offset(), r.record, "expected at most %d columns, found more", columns.Max)
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

func (r *records) Describe() ([]pyfeed.Slot, []string, error) { return r.slots, r.slotNames, nil }

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	n, err := r.read(out)
	if err != nil && r.file.CheckTruncated() != nil {
		err = r.file.CheckTruncated()
	}
	r.err = err
	if n > 0 {
		err = nil
	}
	return n, err
}

// read is Read, but may return an error together with tuples.
func (r *records) read(out []*pyfeed.Tuple) (n int, err error) {
	took := 0
	for want := 1; ; {
		b, end, failed := r.peek(want)
		if n == 0 && len(b) > 0 {
			r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
		}
		for {
			k, s := r.isBlank(b, end)
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
				if r.row > 0 && r.rowBuffer == nil {
					if r.rowBytes, r.rowBuffer, err = r.arena.Get(r.row); err != nil {
						return n, err
					}
				}
				k, s = r.parse(b, end)
			} else {
				s = more
			}
			if s == invalid {
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
		if n > 0 && failed == nil && len(b) < r.maxRecord {
			return n, nil
		}
		if want, err = r.grow(b, failed); err != nil {
			return n, err
		}
	}
}

// ReadBlock implements record.BlockReader for instances without text. Read returns the errors about records.
func (r *records) ReadBlock(limit int) *record.Block {
	stride := (r.row + 7) &^ 7 // aligned for the widest element
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(r.textSlots) > 0 || stride == 0 || stride > blockBytes/minRows {
		return nil
	}
	b, end, err := r.peek(1)
	if err != nil || len(b) == 0 {
		return nil
	}
	r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
	if len(r.block) < minRows*stride {
		r.releaseBlock()
		if r.block, r.blockBuffer, err = r.arena.Get(blockBytes); err != nil {
			return nil
		}
	}
	limit = min(limit, len(r.block)/stride)
	line, n := r.rowBytes, 0
	for took := 0; n < limit && took < memory.WindowSize; n++ {
		k, s := r.isBlank(b, end)
		r.file.Skip(k)
		b = b[k:]
		took += k
		if s != done || len(b) == 0 {
			break
		}
		r.rowBytes = r.block[n*stride:]
		if k, s = r.parse(b, end); s != done {
			break
		}
		r.file.Skip(k)
		b = b[k:]
		took += k
		r.record++
	}
	r.rowBytes = line
	if n == 0 {
		return nil
	}
	slots := make([]pyfeed.LoDTensor, len(r.outputs))
	for i := range r.outputs {
		o, slot := &r.outputs[i], &slots[i]
		slot.DType, slot.Data = o.dtype, r.block[o.at:o.at+o.size:n*stride]
		_ = slot.SetDims(o.dims) // cannot fail: the rank was checked
	}
	r.block = r.block[n*stride:]
	r.blockBuffer.Retain(n)
	return record.NewBlock(slots, stride, n, r.blockBuffer)
}

func (r *records) releaseBlock() {
	if r.blockBuffer != nil {
		r.blockBuffer.Release()
		r.block, r.blockBuffer = nil, nil
	}
}

// isBlank returns the length of the blank lines and comments at the beginning of b.
func (r *records) isBlank(b []byte, end bool) (n int, s status) {
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

// parse parses the record at the beginning of b into rowBytes and spans. The record is n bytes long.
func (r *records) parse(b []byte, end bool) (n int, s status) {
	p := 0
	for k := range r.runs {
		run := &r.runs[k]
		for i := run.first; ; i++ {
			if i, p = run.plain(b, p, i, r.rowBytes, r.delimiter); i == run.end {
				break
			}
			if p, s = r.parseGeneral(b, p, i, end); s != done {
				return 0, s
			}
		}
	}
	return p, done
}

// parseGeneral parses a field that is not plain, or may not be. The next field begins at next.
func (r *records) parseGeneral(b []byte, p, i int, end bool) (next int, s status) {
	c, line, last := &r.columns[i], r.rowBytes, len(r.columns)-1
	q := p
	switch c.kind {
	case number.Integer:
		v, negative, at := number.ScanInteger(b, p)
		switch {
		case !negative && v <= c.above:
			record.PutElement(line[c.at:], c.size, v)
			q = at
		case negative && v <= c.below:
			record.PutElement(line[c.at:], c.size, -v)
			q = at
		}
	case number.Float64:
		v, at := number.ScanFloat64(b, p)
		binary.NativeEndian.PutUint64(line[c.at:], math.Float64bits(v))
		q = at
	case number.Float32:
		v, at := number.ScanFloat32(b, p)
		binary.NativeEndian.PutUint32(line[c.at:], math.Float32bits(v))
		q = at
	case number.Half:
		if v, at := number.ScanFloat64(b, p); at > p {
			if h, ok := record.Halve(v, c.dtype); ok {
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
	return r.parseField(b, p, i, end)
}

// parseField parses the field of column i that begins at p, in any form. The next field begins at next.
func (r *records) parseField(b []byte, p, i int, end bool) (next int, s status) {
	c := &r.columns[i]
	f, s := r.field(b, p, end)
	if s != done {
		return 0, s
	}
	switch c.kind {
	case number.None:
	case number.Text:
		r.spans[c.at] = f.span(b)
	default:
		content := f.span(b)
		if content.hasDoubledQuote { // a number does not contain quotes
			unquoted, err := r.unquote(nil, content)
			if err != nil {
				r.fault = err
				return 0, invalid
			}
			return 0, r.badNumber(p, c, number.NotNumber, unquoted, quoteField(unquoted))
		}
		bits, flaw := c.missing, number.OK
		if len(content.data) == 0 || len(number.Trim(content.data)) == 0 {
			if c.unrepresentable != "" {
				return 0, r.noValue(p, c, "an empty field, which stands for "+strconv.Quote(c.unrepresentable), formOf([]byte(c.unrepresentable)))
			}
			if !c.hasMissing {
				return 0, r.noValue(p, c, "an empty field: the option missing gives the value of empty fields", nothing)
			}
		} else if bits, flaw = number.Parse(content.data, c.dtype, c.kind); flaw != number.OK {
			return 0, r.badNumber(p, c, flaw, content.data, quoteField(content.data))
		}
		record.PutElement(r.rowBytes[c.at:], c.size, bits)
	}
	if last := i == len(r.columns)-1; f.last != last {
		if f.last {
			return 0, r.setFault(f.to, "expected %d columns, found %d", len(r.columns), i+1)
		}
		return 0, r.setFault(f.next, "expected %d columns, found more", len(r.columns))
	}
	return f.next, done
}

// setFault sets fault to an error about the record, at an offset from the position.
func (r *records) setFault(at int, format string, args ...any) status {
	r.fault = r.file.Corrupt(r.file.Offset()+int64(at), r.record, format, args...)
	return invalid
}

// badNumber sets fault to an error about a field of a column of numbers, whose content does not fit. quoted is the
// field as the error shows it. The error is damage, with one exception: if the dtype was inferred and another dtype
// fits the field, the record is valid, and skipping it would lose data.
func (r *records) badNumber(at int, c *column, f number.Fault, content []byte, quoted string) status {
	s := r.setFault(at, "%v: expected %s, found %s", c, number.Expected(c.dtype, f), quoted)
	is := formOf(content)
	if r.hintAt(c, is) && is != words {
		r.valid(pyfeed.Type, c)
	}
	return s
}

// noValue sets fault to an error about an empty field of a column of numbers, for which there is no default, or one of a
// form that the dtype cannot represent. The record is no damage: skipping it would lose its other fields.
func (r *records) noValue(at int, c *column, found string, is form) status {
	s := r.setFault(at, "%v: expected %s, found %s", c, number.Expected(c.dtype, number.NotNumber), found)
	kind := pyfeed.Invalid
	if is != nothing && r.hintAt(c, is) && is != words {
		kind = pyfeed.Type
	}
	r.valid(kind, c)
	return s
}

// hintAt adds to fault how to give the dtype of a column, and reports whether it did: if the dtype was inferred, and a
// field of a form needs another one.
func (r *records) hintAt(c *column, is form) bool {
	fits := is.dtype()
	if !c.inferred || fits == c.dtype {
		return false
	}
	if is == negative { // the column has integers that only uint64 can represent
		fits = pyfeed.Float64
	}
	r.fault.(*pyfeed.Error).Text += "; the dtype is that of the first MiB: " + r.dtypeHint(c.number, fits)
	return true
}

// valid makes fault, which is an error about a field of a column, one of another kind than damage, unless the number of
// fields or the quotes of the record are damaged too.
func (r *records) valid(kind pyfeed.Kind, c *column) {
	e := r.fault.(*pyfeed.Error)
	_, fields, err := r.extent() // which may set fault
	if fields == len(r.columns) && err == nil {
		e.Kind, e.Slot = kind, c.slot
	}
	r.fault = e
	if err == storage.ErrInterrupted {
		r.fault = err
	}
}

// field is the position of a field, without its quotes.
type field struct {
	from, to        int
	next            int  // where the next field begins, of this record or of the next record
	last            bool // it is the last field of its record
	hasDoubledQuote bool
}

func (f *field) span(b []byte) span { return span{b[f.from:f.to:f.to], f.hasDoubledQuote} }

// field finds the end of the field that begins at p.
func (r *records) field(b []byte, p int, end bool) (f field, s status) {
	if p < len(b) && b[p] == r.quote && r.quote != 0 {
		return r.quoted(b, p, end)
	}
	q := p
	for { // long fields in pieces, to poll in between
		part := b[:min(len(b), q+storage.PollEvery)]
		if q = r.endOfField(part, q); q < len(part) || q == len(b) {
			break
		}
		if r.fault = r.file.Poll(); r.fault != nil {
			return f, invalid
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
	for next := q + storage.PollEvery; ; {
		if q > next {
			if r.fault = r.file.Poll(); r.fault != nil {
				return f, invalid
			}
			next = q + storage.PollEvery
		}
		k := bytes.IndexByte(b[q:], r.quote)
		if k < 0 {
			if !end {
				return f, more
			}
			return f, r.setFault(p, "expected a closing quote, found the end of the file")
		}
		q += k
		if q+1 == len(b) && !end {
			return f, more
		}
		if q+1 == len(b) || b[q+1] != r.quote {
			break
		}
		f.hasDoubledQuote = true
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
		return f, r.setFault(q, "expected %q or the end of the line after a closing quote, found %q", r.delimiter, b[q])
	}
	return f, done
}

// endOfField returns the position of the first delimiter or line end at or after p, or the end of b. It compares eight
// bytes at once: a matching byte becomes zero, and the lowest zero byte is found exactly, since borrows only spread
// upwards.
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

// unquote appends the content of a field. The only error is storage.ErrInterrupted.
func (r *records) unquote(to []byte, from span) ([]byte, error) {
	data := from.data
	for next := len(data) - storage.PollEvery; from.hasDoubledQuote; {
		k := bytes.IndexByte(data, r.quote)
		if k < 0 {
			break
		}
		if len(data) < next {
			if err := r.file.Poll(); err != nil {
				return nil, err
			}
			next = len(data) - storage.PollEvery
		}
		to = append(to, data[:k+1]...)
		data = data[k+2:]
	}
	return append(to, data...), nil
}

// fill makes t an instance of rowBytes and spans. The position is that of its record.
func (r *records) fill(t *pyfeed.Tuple) error {
	if len(t.Slots) != len(r.outputs) {
		t.Resize(len(r.outputs))
	}
	views := 0
	for i := range r.spans {
		s := &r.spans[i]
		if !s.hasDoubledQuote {
			views++
			continue
		}
		// Before any slot refers to memory, since this may fail.
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
			if s := &r.spans[i]; !s.hasDoubledQuote {
				slot := &t.Slots[r.textSlots[i]]
				slot.Hold(s.data, b)
				slot.ReadOnly = true
			}
		}
	}
	if r.rowBuffer != nil {
		r.rowBuffer.Retain(r.numbers - 1)
	}
	for i := range r.outputs {
		o, slot := &r.outputs[i], &t.Slots[i]
		if o.text {
			r.offsets.Sequence(slot, len(slot.Data))
			continue
		}
		slot.DType = o.dtype
		_ = slot.SetDims(o.dims) // cannot fail: the rank was checked
		slot.Hold(r.rowBytes[o.at:o.at+o.size:o.at+o.size], r.rowBuffer)
	}
	r.rowBytes, r.rowBuffer = nil, nil
	return nil
}

// Position implements record.Seeker. It is the offset of the record, or of blank lines and comments before it.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.file.Offset()}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, number int64, exact bool) error {
	if p.Offset < r.first || p.Inner != 0 {
		return record.BadPosition(r.file.Path(), p, "the offset of a record behind the names of the columns")
	}
	if err := r.file.SeekTo(p.Offset); err != nil {
		return err
	}
	r.record, r.approximate = number, !exact
	r.err, r.fileFailed, r.skipping = nil, false, false
	return nil
}

// Resync skips the damaged record, or only its first line if the end of the record cannot be found.
func (r *records) Resync() error {
	if r.err == nil || r.err == io.EOF {
		return r.err
	}
	if shrunk := r.file.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	if r.fileFailed {
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
	case r.fileFailed: // after this error, nothing can be read
	default:
		r.approximate = true
		err = r.file.SkipLine()
		if r.skipping = err == storage.ErrInterrupted; r.skipping {
			return err
		}
		r.fileFailed = err != nil
	}
	r.record++
	r.err = err
	return err
}

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.record, !r.approximate }

// extent returns the length of the record at the position, and the number of its fields. It returns an error if the
// quotes of the record are invalid, or if it is too long.
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
		case invalid:
			return 0, fields, r.fault
		}
		if want, err = r.grow(b, failed); err != nil {
			return 0, fields, err
		}
	}
}

func (r *records) CheckTruncated() error { return r.file.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.file.CheckUnchanged() }

func (r *records) Close() {
	if r.rowBuffer != nil {
		r.rowBuffer.Release()
		r.rowBytes, r.rowBuffer = nil, nil
	}
	r.releaseBlock()
	r.arena.Close()
	r.file.Close()
	r.err = io.EOF
}
