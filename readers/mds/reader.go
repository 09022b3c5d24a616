package mds

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/klauspost/compress/s2"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open opens a shard for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	compression := record.OptionsFrom[Options](c).Compression
	for _, suffix := range []string{".br", ".bz2"} {
		if strings.HasSuffix(path, suffix) {
			return nil, &pyfeed.Error{Kind: pyfeed.Unsupported, Slot: -1, At: &pyfeed.Location{File: path, Offset: -1, Record: -1},
				Text: fmt.Sprintf("expected a shard compressed by zstd, gzip or snappy, or not, found the suffix %s", suffix)}
		}
	}
	if strings.HasSuffix(path, ".snappy") && compression == "" && (c.Storage.Compression == "" || c.Storage.Compression == "auto") {
		return openSnappy(path, c)
	}
	return record.OpenRecords(path, compression, c, begin)
}

// openSnappy opens a shard that is one block of snappy, without framing. It is decompressed completely.
func openSnappy(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "none", c, func(f *storage.File, c *record.Config) (record.Records, error) {
		size := f.Size()
		if size < 0 || size > math.MaxUint32 {
			return nil, f.Corrupt(0, -1, "expected a block of snappy of less than 4 GiB, found %d bytes", size)
		}
		packed, err := f.Peek(int(size))
		if err != nil {
			return nil, err
		}
		n, err := s2.DecodedLen(packed)
		if err == nil && n > 22*len(packed)+64 { // a copy of 64 bytes takes 3
			err = fmt.Errorf("found %d bytes for %d", len(packed), n)
		}
		var data []byte
		if err == nil {
			data, err = s2.Decode(nil, packed)
		}
		if err != nil {
			return nil, &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, At: &pyfeed.Location{File: path, Offset: 0, Record: -1},
				Text: "decompressing: expected a block of snappy: " + err.Error(), Cause: storage.ErrBadCompression}
		}
		if err = f.CheckTruncated(); err != nil {
			return nil, err
		}
		o := c.Storage
		o.Compression = "none"
		inner, err := storage.New(path, data, o, c.Pool)
		if err != nil {
			return nil, err
		}
		r, err := record.BeginRecords(inner, c, begin)
		if err != nil {
			return nil, err
		}
		r.(*records).stored = f
		return r, nil
	})
}

func begin(f *storage.File, c *record.Config) (record.Records, error) {
	h, err := readHeader(f)
	if err != nil {
		return nil, err
	}
	r := &records{header: h, file: f, arena: memory.NewArena(c.Pool)}
	if r.fields, err = fieldsOf(f.Path(), h, c); err != nil {
		return nil, err
	}
	for i := range r.fields {
		if k := r.fields[i].kind; k != integer && k != float && !r.reversed(i) {
			r.views++
		}
	}
	r.bounds = make([]int64, len(h.columns)+1)
	return r, nil
}

// records reads a shard. Slots are views of the file, apart from numbers that are stored as digits.
type records struct {
	*header
	fields []field
	file   *storage.File
	stored *storage.File // the compressed file that file was decompressed from; nil: file is the file
	arena  *memory.Arena
	record int64   // number of the next sample
	views  int     // number of fields that are views
	bounds []int64 // where the columns of a sample begin, and its end
	parsed parsed
	level  record.Offsets
	err    error // the last error of Read, until Resync
	ended  bool  // the file has no data behind the damage
	verification
}

// reversed reports whether the elements of a field are not in the machine's byte order.
func (r *records) reversed(i int) bool {
	k := r.fields[i].kind
	return record.BigEndian && (k == number || k == array)
}

// Count implements record.Counted.
func (r *records) Count() int64 { return r.count }

// Deflated implements record.Deflated.
func (r *records) Deflated() bool { return r.stored != nil }

// Number implements record.Numberer.
func (r *records) Number() (int64, bool) { return r.record, true }

// sample returns the data of the next sample, and sets bounds. The position of the file is then at its beginning.
func (r *records) sample() ([]byte, error) {
	begin, end := r.offset(r.record), r.offset(r.record+1)
	limit, last := r.file.Size(), r.offset(r.count)
	if limit < 0 {
		limit = last
	}
	// If the last offset lies behind the end of the file, the file was cut, and the offsets may be right.
	if begin < r.begin || end < begin || begin > limit || end > limit && last <= limit {
		return nil, r.file.Corrupt(r.at(r.record), r.record, "expected the offsets of sample %d of %d, found bytes %d to %d", r.record+1, r.count, begin, end)
	}
	least := r.fixed + 4*int64(r.varying)
	if end-begin < least || r.varying == 0 && end-begin != least {
		return nil, r.file.Corrupt(r.at(r.record), r.record, "expected a sample of %d bytes, found bytes %d to %d", least, begin, end)
	}
	if r.file.Offset() != begin {
		if err := r.file.SeekTo(begin); err != nil {
			r.ended = err != storage.ErrInterrupted
			return nil, r.readError(err)
		}
	}
	size := int(end - begin)
	data, err := r.file.Peek(size)
	if err != nil {
		return nil, r.readError(err)
	}
	if len(data) < size {
		r.ended = true
		return nil, r.readError(r.file.Corrupt(begin, r.record, "expected %d bytes, sample %d of %d, found %d and the end of the file",
			size, r.record+1, r.count, len(data)))
	}
	data = data[:size:size]
	at, next := int64(0), 4*int64(r.varying)
	for i := range r.columns {
		r.bounds[i] = next
		n := r.columns[i].size
		if n < 0 {
			n = int64(binary.LittleEndian.Uint32(data[at:]))
			at += 4
		}
		next += n
		if next > int64(size) {
			break
		}
	}
	if r.bounds[len(r.columns)] = next; next != int64(size) {
		return nil, r.file.Corrupt(begin, r.record, "expected columns of %d bytes together, the size of the sample, found %d", size, next)
	}
	return data, nil
}

func (r *records) readError(err error) error {
	if shrunk := r.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	return err
}

// Describe implements record.Describer. The first sample tells the dtypes and dims that the description does not have.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	slots, names := make([]pyfeed.Slot, len(r.fields)), make([]string, len(r.fields))
	for i := range r.fields {
		f := &r.fields[i]
		slots[i], names[i] = f.slot, f.slot.Name
		if f.kind != array || f.slot.Dims != nil && f.slot.DType != pyfeed.Any {
			continue
		}
		if r.count == 0 {
			if f.ragged {
				slots[i].Dims = pyfeed.Dims{-1}
			}
			continue
		}
		data, err := r.sample()
		if err == nil {
			err = r.columnError(f, r.columns[f.column].encoding.parse(r.part(f, data), &r.parsed))
		}
		if err != nil {
			if err != storage.ErrInterrupted {
				r.err = err
			}
			return nil, nil, err
		}
		slots[i].DType = r.parsed.dtype
		if f.slot.Dims == nil {
			slots[i].Dims = append(pyfeed.Dims{}, r.parsed.dims()...)
			if f.ragged && r.parsed.rank > 0 {
				slots[i].Dims[0] = -1
			} else {
				slots[i].LoDLevels = 0
			}
		}
	}
	return slots, names, nil
}

// part returns the data of a field.
func (r *records) part(f *field, data []byte) []byte {
	begin, end := r.bounds[f.column], r.bounds[f.column+1]
	return data[begin:end:end]
}

// columnError returns damage in a column of the next sample, or nil.
func (r *records) columnError(f *field, err error) error {
	if err == nil {
		return nil
	}
	return r.file.Corrupt(r.offset(r.record)+r.bounds[f.column], r.record, "column %q: %v", r.columns[f.column].name, err)
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	if r.err = record.ClearInterrupt(r.err); r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	n := 0
	for n < len(out) && r.record < r.count {
		if n > 0 && !r.file.InMemory() && !r.follows() {
			return n, nil // the next Read reads more data
		}
		data, err := r.sample()
		if err == nil {
			err = r.fill(out[n], data)
		}
		if err != nil {
			if n > 0 { // the next Read returns it again
				return n, nil
			}
			r.err = err
			return 0, err
		}
		r.file.Skip(len(data))
		r.record++
		n++
	}
	if n == 0 {
		r.err = r.endError()
		return 0, r.err
	}
	return n, nil
}

// follows reports whether the next sample begins at the position and is in memory.
func (r *records) follows() bool {
	begin, end := r.offset(r.record), r.offset(r.record+1)
	b, err := r.file.Peek(0)
	return err == nil && begin == r.file.Offset() && end >= begin && end-begin <= int64(len(b))
}

// fill makes a tuple of a sample, or returns an error and leaves no references in the tuple.
func (r *records) fill(t *pyfeed.Tuple, data []byte) error {
	if len(t.Slots) != len(r.fields) {
		t.Resize(len(r.fields))
	}
	if r.views == 0 {
		r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
	}
	for i := range r.fields {
		f := &r.fields[i]
		if err := r.value(f, &t.Slots[i], r.part(f, data)); err != nil {
			for j := range t.Slots[:i] {
				t.Slots[j].Drop()
			}
			return err
		}
	}
	return nil
}

// value makes a slot of the data of a column.
func (r *records) value(f *field, s *pyfeed.LoDTensor, data []byte) error {
	switch f.kind {
	case opaque:
		r.level.Sequence(s, len(data))
		r.view(s, data)
		return nil
	case number:
		s.DType = f.slot.DType
		_ = s.SetDims(nil) // cannot fail: there are no dimensions
		return r.elements(s, data)
	case array:
		p := &r.parsed
		if err := r.columnError(f, r.columns[f.column].encoding.parse(data, p)); err != nil {
			return err
		}
		s.DType = p.dtype
		_ = s.SetDims(p.dims()) // cannot fail: the rank was checked
		if f.ragged && p.rank > 0 {
			level := r.level.Get(2)
			level[1] = p.shape[0]
			s.LoD, s.InHeap = append(s.LoD[:0], level), true
		}
		return r.elements(s, data[p.begin:])
	}
	var bits uint64
	var err error
	if f.kind == integer {
		var v int64
		v, err = strconv.ParseInt(string(data), 10, 64)
		bits = uint64(v)
	} else {
		var v float64
		v, err = strconv.ParseFloat(string(data), 64)
		bits = math.Float64bits(v)
	}
	if err != nil {
		e := r.columnError(f, fmt.Errorf("expected the digits of %v, found %.40q", f.slot.DType, data)).(*pyfeed.Error)
		if errors.Is(err, strconv.ErrRange) && f.kind == integer {
			e.Kind, e.Text = pyfeed.Type, e.Text+": choose dtype \"bytes\""
		} else if errors.Is(err, strconv.ErrRange) { // as in Python, it is infinite
			e = nil
		}
		if e != nil {
			return e
		}
	}
	to, b, err := r.arena.Get(8)
	if err != nil {
		return err
	}
	record.PutElement(to, 8, bits)
	s.DType = f.slot.DType
	_ = s.SetDims(nil) // cannot fail: there are no dimensions
	s.Hold(to, b)
	return nil
}

// view makes the data of a slot a view of the file.
func (r *records) view(s *pyfeed.LoDTensor, data []byte) {
	s.Hold(data, r.file.Hold(1))
	s.ReadOnly = true
}

// elements sets the data of a slot to numbers, which are a view of the file where their byte order is the machine's.
func (r *records) elements(s *pyfeed.LoDTensor, data []byte) error {
	if !record.BigEndian || s.DType.Size() == 1 {
		r.view(s, data)
		return nil
	}
	to, b, err := r.arena.Get(len(data))
	if err != nil {
		return err
	}
	if err = record.CopyReversed(r.file.Interrupt(), s.DType, to, data); err != nil {
		b.Release()
		return err
	}
	s.Hold(to, b)
	return nil
}

// endError returns io.EOF, or an error if there are bytes behind the last sample.
func (r *records) endError() error {
	end := r.offset(r.count)
	if err := r.file.SeekTo(end); err != nil {
		return r.readError(err)
	}
	switch rest, err := r.file.Peek(1); {
	case err != nil:
		return r.readError(err)
	case len(rest) > 0:
		return r.readError(r.file.Corrupt(end, r.record, "expected the end of the file after %d samples, found more bytes", r.count))
	}
	if err := r.CheckTruncated(); err != nil {
		return err
	}
	return io.EOF
}

// Resync continues with the next sample. If the file has ended, there is none.
func (r *records) Resync() error {
	switch {
	case r.err == nil || r.err == io.EOF:
	case r.ended || r.record >= r.count:
		r.err = io.EOF
	default:
		r.record++
		r.err = nil
	}
	return r.err
}

// Position implements record.Seeker. It is the number of the sample.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.record}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	if p.Offset < 0 || p.Offset > r.count || p.Inner != 0 {
		return record.BadPosition(r.file.Path(), p, fmt.Sprintf("the number of one of %d samples", r.count))
	}
	r.record, r.err, r.ended = p.Offset, nil, false
	return nil
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error {
	if r.stored != nil {
		return r.stored.CheckTruncated()
	}
	return r.file.CheckTruncated()
}

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error {
	if r.stored != nil {
		return r.stored.CheckUnchanged()
	}
	return r.file.CheckUnchanged()
}

func (r *records) Close() {
	r.arena.Close()
	r.file.Close()
	if r.stored != nil {
		r.stored.Close()
	}
	r.verification.close()
	r.err = io.EOF
}
