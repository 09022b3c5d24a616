package jsonl

import (
	"bytes"
	"fmt"
	"io"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// maxRecord is the largest size of a line, in bytes: a file without line ends must not be read into memory as a whole.
const maxRecord = 256 << 20

// Open opens a file for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, record.OptionsFrom[Options](c).Compression, c, begin)
}

func begin(file *storage.File, c *record.Config) (record.Records, error) {
	r := &records{file: file, pool: c.Pool, arena: memory.NewArena(c.Pool), maxRecord: maxRecord}
	r.interrupt = file.Interrupt()
	if err := r.begin(c); err != nil {
		return nil, err
	}
	return r, nil
}

// records reads a file. Numbers are stored in memory of the arena. Text is a view of the file unless it has escapes.
type records struct {
	table
	parser
	file        *storage.File
	pool        *memory.Pool
	arena       *memory.Arena
	first       int64 // offset of the first record, or of blank lines before it
	record      int64 // number of the next record
	blankLines  int64 // blank lines before the position
	maxRecord   int   // largest size of a record
	err         error // the error that ended reading
	fileFailed  bool  // err is about the file, so there is nothing to read after it
	approximate bool  // record is approximate: Seek was given such a number

	rowBuffer *memory.Buffer // the memory of row
	blocks    blocks
	copied    bool           // the line is in last
	last      *memory.Buffer // a copy of the last line, which has no end in the file; nil: not needed yet
	lastLine  []byte         // the same with an end
	offsets   record.Offsets
}

func (r *records) begin(c *record.Config) error {
	o := record.OptionsFrom[Options](c)
	if err := r.file.BeginText(); err != nil {
		return err
	}
	r.first = r.file.Offset()
	if c.Slots != nil {
		if end, err := r.atEnd(); end || err != nil {
			r.err, r.slots, r.slotNames = io.EOF, c.Slots, c.Names // no slots are inferred for an empty file
			return err
		}
	}
	if err := r.plan(c, o, r.readSample); err != nil {
		if e, is := err.(*pyfeed.Error); is {
			if e.At == nil {
				e.At = &pyfeed.Location{Offset: -1, Record: -1}
			}
			e.At.File = r.file.Path()
		}
		return err
	}
	return nil
}

// peek returns the data from the position on, and whether that is the rest of the file.
func (r *records) peek(n int) (b []byte, end bool, err error) {
	return r.file.PeekText(n, r.maxRecord)
}

// grow returns how many bytes to request when b, which begins at the position, ends within a line.
func (r *records) grow(b []byte, err error) (int, error) {
	if err != nil {
		r.fileFailed = err != storage.ErrInterrupted
		return 0, err
	}
	if len(b) >= r.maxRecord {
		return 0, r.corrupt(0, "expected a line of at most %d bytes, found no end of it", r.maxRecord)
	}
	return min(2*len(b)+1, r.maxRecord), nil
}

// corrupt makes an error about the line, at an offset from the position.
func (r *records) corrupt(at int, format string, args ...any) *pyfeed.Error {
	e := r.file.Corrupt(r.file.Offset()+int64(at), r.record, format, args...)
	if !r.approximate {
		e.Text = "line " + strconv.FormatInt(r.record+r.blankLines+1, 10) + ": " + e.Text
	}
	return e
}

// leadingSpace returns the length of the white space that b begins with, and the number of its lines, which are blank.
func leadingSpace(b []byte) (n int, lines int64) {
	for n < len(b) {
		switch b[n] {
		case '\n':
			lines++
		case ' ', '\t', '\r':
		default:
			return n, lines
		}
		n++
	}
	return n, lines
}

// skipBlanks moves the position behind blank lines and other white space, and returns the rest of b.
func (r *records) skipBlanks(b []byte) []byte {
	if len(b) > 0 && b[0] > ' ' {
		return b
	}
	n, lines := leadingSpace(b)
	r.blankLines += lines
	r.file.Skip(n)
	return b[n:]
}

// atEnd skips blank lines and reports whether the file ends after them.
func (r *records) atEnd() (bool, error) {
	for {
		b, end, err := r.peek(1)
		b = r.skipBlanks(b)
		if len(b) > 0 || end {
			return len(b) == 0, nil
		}
		if _, err = r.grow(b, err); err != nil {
			return false, err
		}
	}
}

// complete returns b up to the end of its last line, or else b with an end if it is the last line of the file. It
// returns nil if there is neither.
func (r *records) complete(b []byte, end bool) ([]byte, error) {
	r.copied = false
	if k := bytes.LastIndexByte(b, '\n'); k >= 0 {
		return b[:k+1], nil
	}
	if !end || len(b) == 0 {
		return nil, nil
	}
	if r.last == nil {
		buffer, err := r.pool.Get(len(b) + 1)
		if err != nil {
			return nil, err
		}
		line := buffer.Bytes()[:len(b)+1]
		if err := r.file.Interrupt().Copy(line, b); err != nil {
			buffer.Release()
			return nil, err
		}
		line[len(b)] = '\n'
		r.last, r.lastLine = buffer, line
	}
	r.copied = true
	return r.lastLine[len(r.lastLine)-1-len(b):], nil
}

func (r *records) Describe() ([]pyfeed.Slot, []string, error) { return r.slots, r.slotNames, nil }

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	n, err := r.read(out)
	r.blocks.continues = false
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
	begin := r.file.Offset()
	for want := 1; ; {
		b, end, failure := r.peek(want)
		if n == 0 && len(b) > 0 {
			r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
		}
		b = r.skipBlanks(b)
		if len(b) == 0 && end {
			return n, io.EOF
		}
		lines, err := r.complete(b, end)
		if err != nil {
			return n, err
		}
		for len(lines) > 0 {
			if n == len(out) || n > 0 && r.file.Offset()-begin >= memory.WindowSize {
				return n, nil
			}
			size, err := r.readLine(lines)
			if err == nil {
				err = r.makeTuple(out[n])
			}
			if err != nil {
				return n, err
			}
			lines = r.pass(lines, size)
			if n++; r.blocks.continues {
				return n, nil
			}
		}
		if n > 0 && failure == nil {
			return n, nil
		}
		if want, err = r.grow(b, failure); err != nil {
			return n, err
		}
	}
}

// readLine parses the line at the beginning of b, and returns its size with its end.
func (r *records) readLine(b []byte) (size int, err error) {
	if r.row == nil && r.rowSize > 0 {
		if r.row, r.rowBuffer, err = r.arena.Get(r.rowSize); err != nil {
			return 0, err
		}
	}
	size = r.parse(b, 0, r.root)
	if size < 0 {
		return 0, r.fault(b)
	}
	if c := r.finish(r.columns); c != nil {
		return 0, r.lacks(c)
	}
	return size, nil
}

// fault returns the error about the line at the beginning of b that parse has found. It is damage, with two exceptions,
// where the line is valid and skipping it would lose data: the dtype was inferred and the value is a number of another
// dtype, or null is in a list.
func (r *records) fault(b []byte) error {
	if r.problem == "" {
		return storage.ErrInterrupted
	}
	e := r.corrupt(r.at, "%s", r.problem)
	c := r.mismatch
	if c == nil {
		return e
	}
	form := r.form
	if form == nothing {
		e.Text += ": only a value that is null as a whole has a default; the dtype \"json\" takes any list"
		return r.reclassify(b, e, pyfeed.Invalid, c)
	}
	if c.inferred && form.isNumber() && c.kind != number.Text && c.kind != number.Boolean {
		d := "float64"
		if form == large {
			d = "uint64"
		}
		e.Text += "; the dtype is that of the first MiB: " + c.hint(d, false)
		return r.reclassify(b, e, pyfeed.Type, c)
	}
	return e
}

// reclassify makes an error about a column one of another kind than damage, if the line at the beginning of b is valid.
func (r *records) reclassify(b []byte, e *pyfeed.Error, kind pyfeed.Kind, c *column) error {
	valid, err := r.isValid(b)
	if err != nil {
		return err
	}
	if valid {
		e.Kind, e.Slot = kind, c.slot
	}
	return e
}

// lacks returns the error about the next line, in which a column has no value and no default. The line is valid.
func (r *records) lacks(c *column) error {
	found := "null or none: the option default gives the value of such records"
	if c.defaultFrom != "" {
		found = fmt.Sprintf("null or none, which stands for %q", c.defaultFrom)
	}
	e := r.corrupt(0, "%v: expected %s, found %s", c, c.expected(number.NotNumber), found)
	e.Kind, e.Slot = pyfeed.Invalid, c.slot
	return e
}

// isValid reports whether the line at the beginning of b is a JSON value.
func (r *records) isValid(b []byte) (bool, error) {
	r.depth, r.pollAt = 0, storage.PollEvery
	p := r.value(b, 0)
	if p < 0 && r.problem == "" {
		return false, storage.ErrInterrupted
	}
	return p >= 0 && b[space(b, p)] == '\n', nil
}

// pass moves the position behind a line of lines, and behind blank lines after it. It returns the lines after these.
func (r *records) pass(lines []byte, size int) []byte {
	if r.copied {
		r.file.Skip(size - 1) // the file does not have the end of the line
	} else {
		r.file.Skip(size)
	}
	r.record++
	return r.skipBlanks(lines[size:])
}

// makeTuple makes t an instance of what was parsed. The position is that of its line. After an error, t is empty.
func (r *records) makeTuple(t *pyfeed.Tuple) error {
	if len(t.Slots) != len(r.outputs) {
		t.Resize(len(r.outputs))
	}
	views := 0
	for i := range r.outputs {
		c, err := r.outputs[i].column, error(nil)
		switch {
		case c == nil:
		case c.levels > 0:
			err = r.makeList(&t.Slots[i], c)
		case c.text.escaped || c.text.given:
			err = r.copyText(&t.Slots[i], &c.text)
		default:
			views++
		}
		if err != nil {
			for k := range t.Slots {
				t.Slots[k].Drop()
			}
			return err
		}
	}
	var from *memory.Buffer
	if views > 0 && r.copied {
		from = r.last
		from.Retain(views)
	} else if views > 0 {
		from = r.file.Hold(views)
	}
	if r.rowBuffer != nil {
		r.rowBuffer.Retain(r.numbers - 1)
	}
	for i := range r.outputs {
		o, slot := &r.outputs[i], &t.Slots[i]
		switch c := o.column; {
		case c == nil:
			slot.DType = o.slot.DType
			_ = slot.SetDims(o.slot.Dims) // cannot fail: the rank was checked
			slot.Hold(r.row[o.at:o.at+o.size:o.at+o.size], r.rowBuffer)
		case c.levels == 0 && !c.text.escaped && !c.text.given:
			r.offsets.Sequence(slot, len(c.text.data))
			slot.Hold(c.text.data, from)
			slot.ReadOnly = true
		}
	}
	r.blocks.observe(t.Size() - r.rowSize)
	r.row, r.rowBuffer = nil, nil
	return nil
}

// copyText makes a slot of text that is not used in place.
func (r *records) copyText(slot *pyfeed.LoDTensor, text *content) error {
	to, b, err := r.arena.Get(len(text.data))
	if err != nil {
		return err
	}
	n := len(to)
	if text.escaped {
		n, err = unescape(to, text.data, r.interrupt)
	} else {
		err = r.interrupt.Copy(to, text.data)
	}
	if err != nil {
		b.Release()
		return err
	}
	r.offsets.Sequence(slot, n)
	slot.Hold(to[:n:n], b)
	return nil
}

// makeList makes a slot of a list of any length.
func (r *records) makeList(slot *pyfeed.LoDTensor, c *column) error {
	rows, size := len(c.values)/max(c.count, 1), len(c.values)*c.size
	if c.kind == number.Text {
		rows, size = len(c.bytes), len(c.bytes)
	}
	to, b, err := r.arena.Get(size)
	if err != nil {
		return err
	}
	if c.kind == number.Text {
		err = r.interrupt.Copy(to, c.bytes)
	} else {
		err = r.narrow(to, c.values, c.size)
	}
	if err != nil {
		b.Release()
		return err
	}
	slot.DType = c.dtype
	var dims [pyfeed.MaxRank]int64
	dims[0] = int64(rows)
	_ = slot.SetDims(dims[:1+copy(dims[1:], c.fixed)]) // cannot fail: the rank was checked
	outer := r.offsets.Get(2)
	outer[1] = c.n
	slot.LoD = append(slot.LoD[:0], outer)
	for _, ends := range c.ends {
		level := r.offsets.Get(1 + len(ends))
		copy(level[1:], ends)
		slot.LoD = append(slot.LoD, level)
	}
	slot.InHeap = true
	slot.Hold(to, b)
	return nil
}

// Position implements record.Seeker. It is the offset of the line, or of blank lines before it, and the number of blank
// lines before that.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.file.Offset(), Inner: r.blankLines}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, number int64, exact bool) error {
	if p.Offset < r.first || p.Inner < 0 || p.Inner > p.Offset {
		return record.BadPosition(r.file.Path(), p, "the offset of a line, and the number of blank lines before it")
	}
	if err := r.file.SeekTo(p.Offset); err != nil {
		return err
	}
	r.record, r.blankLines, r.approximate = number, p.Inner, !exact
	r.err, r.fileFailed = nil, false
	return nil
}

// Resync skips the damaged line.
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
	err := r.file.SkipLine()
	if err == storage.ErrInterrupted {
		return err
	}
	r.fileFailed = err != nil
	r.record++
	r.err = err
	return err
}

// Number implements record.Numberer. Every line that is not blank is a record, also a damaged one.
func (r *records) Number() (int64, bool) { return r.record, !r.approximate }

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.file.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.file.CheckUnchanged() }

// Close closes the file.
func (r *records) Close() {
	if r.rowBuffer != nil {
		r.rowBuffer.Release()
		r.row, r.rowBuffer = nil, nil
	}
	if r.last != nil {
		r.last.Release()
		r.last = nil
	}
	r.blocks.release()
	r.arena.Close()
	r.file.Close()
	r.err = io.EOF
}
