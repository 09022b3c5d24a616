package tokens

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Open opens a file for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	o := record.OptionsFrom[Options](c)
	layout := cmp.Or(o.Layout, "auto")
	switch {
	case layout == "megatron", layout == "auto" && strings.HasSuffix(path, ".idx"):
		return openPair(path, o, c)
	case layout == "auto" && strings.HasSuffix(path, ".bin"):
		if index, _ := megatronPaths(path); beginsMegatron(index) {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "expected tokens without an index, found those of Megatron-LM, with the index %s: "+
				"give the name of the index, or layout \"headerless\"", index)
		}
	}
	return record.OpenRecords(path, o.Compression, c, begin)
}

// beginsMegatron reports whether there is an index of Megatron-LM with that name.
func beginsMegatron(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var head [len(megatronMagic)]byte
	n, _ := io.ReadFull(f, head[:])
	return string(head[:n]) == megatronMagic
}

// openPair opens the two files of Megatron-LM.
func openPair(path string, o *Options, c *record.Config) (record.Records, error) {
	for _, compression := range []string{o.Compression, c.Storage.Compression} {
		if compression != "" && compression != "auto" && compression != "none" {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none for tokens of Megatron-LM, found %q", compression)
		}
	}
	index, data := megatronPaths(path)
	m, err := openMegatron(index, c, path == index)
	if err != nil {
		return nil, err
	}
	config := *c
	if path == index {
		config.Storage.Opened = nil
	}
	r, err := record.OpenRecords(data, "none", &config, func(f *storage.File, c *record.Config) (record.Records, error) {
		return m.begin(f, c)
	})
	if err != nil {
		if shrunk := m.file.CheckTruncated(); shrunk != nil {
			err = shrunk
		}
		m.file.Close()
		return nil, err
	}
	return r, nil
}

// begin begins to read the tokens of an index.
func (m *megatron) begin(f *storage.File, c *record.Config) (record.Records, error) {
	r, err := newRecords(f, c, m.dtype)
	if err != nil {
		return nil, err
	}
	if f.Size() < 0 {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "%s: expected a regular file, beside the index of Megatron-LM", f.Path())
	}
	if r.total, err = m.tokens(f.Size()); err != nil {
		return nil, err
	}
	if o := record.OptionsFrom[Options](c); o.Documents == "within" || o.Documents == "whole" {
		if err = m.countWindows(&r.windows); err != nil {
			return nil, err
		}
		r.count = m.windows()
	} else {
		r.count = r.windows.count(r.total)
	}
	r.index = m
	return r, r.locate(0)
}

// The headers of llm.c: the magic number, the version, and the dtype of the tokens.
var headers = []struct {
	magic, version uint32
	dtype          pyfeed.DType
}{{20240520, 1, pyfeed.Uint16}, {20240801, 7, pyfeed.Uint32}}

const llmHeader = 256 * 4 // bytes

// begin begins to read a file without an index.
func begin(f *storage.File, c *record.Config) (record.Records, error) {
	o := record.OptionsFrom[Options](c)
	if o.Documents == "within" || o.Documents == "whole" {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: documents: expected \"across\", because only an index of Megatron-LM tells where documents begin, found %q",
			f.Path(), o.Documents)
	}
	dtype, count := pyfeed.Any, int64(-1)
	if layout := cmp.Or(o.Layout, "auto"); layout != "headerless" {
		head, err := f.Peek(llmHeader)
		if err != nil {
			return nil, err
		}
		if len(head) >= 12 {
			for _, h := range headers {
				if binary.LittleEndian.Uint32(head) == h.magic && binary.LittleEndian.Uint32(head[4:]) == h.version {
					dtype, count = h.dtype, int64(binary.LittleEndian.Uint32(head[8:]))
				}
			}
		}
		switch {
		case dtype == pyfeed.Any && layout == "llm.c":
			return nil, f.Corrupt(0, -1, "expected the magic number and version of llm.c, 20240520 and 1 or 20240801 and 7, found % x", head[:min(len(head), 8)])
		case dtype != pyfeed.Any && len(head) < llmHeader:
			return nil, f.Corrupt(0, -1, "expected a header of %d bytes, found %d", llmHeader, len(head))
		}
	}
	r, err := newRecords(f, c, dtype)
	if err != nil {
		return nil, err
	}
	r.total = count
	if count >= 0 {
		r.begin = llmHeader
	} else if size := f.Size(); size >= 0 {
		r.total, r.extra = size/int64(r.item), int(size%int64(r.item))
	}
	if r.count = -1; r.total >= 0 {
		r.count = r.windows.count(r.total)
	}
	return r, r.locate(0)
}

// records reads windows. They are views of the file, unless they are converted into memory of the arena.
type records struct {
	windows
	file   *storage.File // with the tokens
	index  *megatron     // nil: there is none
	arena  *memory.Arena
	dtype  pyfeed.DType // of the tokens in the file
	out    pyfeed.DType // of the slots
	item   int          // bytes of a token in the file
	begin  int64        // offset of the first token, in bytes
	total  int64        // number of tokens; -1: not known yet
	extra  int          // bytes at the end of the file that are not a token
	count  int64        // number of windows; -1: not known yet
	record int64        // number of the next window
	span   span         // the tokens that windows are made of: a document, or all
	window int64        // number of the next window in span
	dims   pyfeed.Dims  // of a window of the full length
	level  record.Offsets
	err    error // the error at the end
}

func newRecords(f *storage.File, c *record.Config, stored pyfeed.DType) (*records, error) {
	o := record.OptionsFrom[Options](c)
	r := &records{file: f, arena: memory.NewArena(c.Pool)}
	var err error
	if r.windows, err = newWindows(o); err != nil {
		return nil, err
	}
	if r.dtype, err = o.dtype(stored); err == nil {
		r.out, err = o.output(r.dtype)
	}
	if err != nil {
		e := err.(*pyfeed.Error)
		e.Text = "tokens: " + e.Text
		e.At = &pyfeed.Location{File: f.Path(), Offset: -1, Record: -1}
		return nil, e
	}
	r.dims = pyfeed.Dims{r.length}
	if r.item = r.dtype.Size(); r.length > int64(math.MaxInt/16) {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "tokens: length: expected windows that memory can hold, found %d tokens", r.length)
	}
	return r, nil
}

// converts reports whether tokens are copied.
func (r *records) converts() bool { return r.out != r.dtype || record.BigEndian && r.item > 1 }

// withinDocuments reports whether windows are made of one document each.
func (r *records) withinDocuments() bool { return r.index != nil && r.index.before != nil }

// Describe implements record.Describer.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	slot := pyfeed.Slot{DType: r.out, Dims: pyfeed.Dims{r.length}}
	if r.ragged() {
		slot.Dims[0], slot.LoDLevels = -1, 1
	}
	if !r.targets {
		return []pyfeed.Slot{slot}, []string{"tokens"}, nil
	}
	return []pyfeed.Slot{slot, {DType: slot.DType, Dims: pyfeed.Dims{slot.Dims[0]}, LoDLevels: slot.LoDLevels}}, []string{"tokens", "targets"}, nil
}

// Count implements record.Counted.
func (r *records) Count() int64 { return r.count }

// locate goes to a window.
func (r *records) locate(window int64) error {
	r.record, r.err = window, nil
	if r.withinDocuments() {
		r.span, r.window = r.index.find(&r.windows, window)
	} else {
		r.span, r.window = span{tokens: r.total}, window
	}
	return nil
}

// next returns the data of the next windows, at least one and at most limit, that begin in the same memory: n windows,
// stride apart, of so many tokens each. The position of the file is at the first. There may be more data. At the end,
// the error is io.EOF.
func (r *records) next(limit int) (data []byte, n int, tokens int64, err error) {
	for {
		s := &r.span
		if r.withinDocuments() && s.number == r.index.documents {
			return nil, 0, 0, io.EOF
		}
		tokens = r.need
		if s.tokens >= 0 {
			if tokens = r.tokensAt(r.window, s.tokens); tokens == 0 && !(r.whole && r.window == 0) || r.whole && r.window > 0 {
				if !r.withinDocuments() {
					return nil, 0, 0, io.EOF
				}
				if r.window = 0; s.number+1 == r.index.documents {
					*s = span{number: r.index.documents}
				} else {
					*s = r.index.span(s.number + 1)
				}
				continue
			}
		}
		start := r.start(r.window)
		if known, err := r.seek(start); err != nil || !known {
			if err != nil {
				return nil, 0, 0, err
			}
			continue
		}
		size := int(tokens) * r.item
		if data, err = r.file.Peek(size); err != nil {
			return nil, 0, 0, r.readError(err)
		}
		if len(data) < size {
			if s.tokens >= 0 {
				return nil, 0, 0, r.readError(r.file.Corrupt(r.file.Offset(), r.record, "expected %d bytes, window %d of %d, found %d and the end of the file",
					size, r.record+1, r.count, len(data)))
			}
			r.ended(start, len(data))
			continue
		}
		n = 1
		if tokens == r.need && !r.whole && limit > 1 {
			stride := int64(r.item) * r.stride
			n = int(min(int64(limit), int64(len(data)-size)/stride+1))
			if s.tokens >= 0 {
				n = int(min(int64(n), r.full(s.tokens)-r.window))
			}
			if r.file.IsMapped() && stride < memory.WindowSize {
				n = storage.InWindow(r.file.Offset(), int(stride), n)
			} else if r.file.IsMapped() {
				n = 1
			}
		}
		return data, n, tokens, nil
	}
}

// seek moves the position of the file to a token of the span. It returns false if the file ends before, which was not
// known.
func (r *records) seek(start int64) (bool, error) {
	offset := r.begin + (r.span.first+start)*int64(r.item)
	if r.file.Offset() == offset {
		return true, nil
	}
	err := r.file.SeekTo(offset)
	if err == nil {
		return true, nil
	}
	if e, is := err.(*pyfeed.Error); !is || e.Kind != pyfeed.Corrupt || r.span.tokens >= 0 {
		return false, r.readError(err)
	}
	rest, behind := r.file.Peek(1) // an error of the compressed data comes again; there is none at the end of the data
	if behind != nil {
		return false, r.readError(behind)
	}
	at := r.file.Offset() - r.begin
	if len(rest) > 0 || at < 0 || at >= offset-r.begin {
		return false, r.readError(err)
	}
	r.span.tokens = at / int64(r.item)
	r.extra = int(at % int64(r.item))
	return false, nil
}

// ended notes that the file ends with so many bytes from a token of the span on.
func (r *records) ended(start int64, left int) {
	r.span.tokens, r.extra = start+int64(left/r.item), left%r.item
}

// readError returns the error why a window cannot be read.
func (r *records) readError(err error) error {
	if shrunk := r.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	return err
}

// endError returns io.EOF, or an error if there are bytes that are not tokens, or more tokens than the header says.
func (r *records) endError() error {
	if shrunk := r.CheckTruncated(); shrunk != nil {
		return shrunk
	}
	if r.index != nil {
		return io.EOF
	}
	if r.begin == 0 {
		if r.extra == 0 {
			return io.EOF
		}
		return r.file.Corrupt(r.span.tokens*int64(r.item), r.record, "expected tokens of %d bytes, found %d bytes at the end of the file", r.item, r.extra)
	}
	end := r.begin + r.total*int64(r.item)
	if err := r.file.SeekTo(end); err != nil {
		return r.readError(err)
	}
	switch rest, err := r.file.Peek(1); {
	case err != nil:
		return r.readError(err)
	case len(rest) > 0:
		return r.file.Corrupt(end, r.record, "expected the end of the file after %d tokens, as the header says, found more bytes", r.total)
	}
	return io.EOF
}

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	filled := 0
	for filled < len(out) {
		data, n, tokens, err := r.next(len(out) - filled)
		if err == nil {
			n, err = r.fill(out[filled:filled+n], data, tokens)
			filled += n
			r.record += int64(n)
			r.window += int64(n)
		}
		if err != nil {
			if filled > 0 { // the next Read returns the error again
				return filled, nil
			}
			if err == io.EOF {
				err = r.endError()
			}
			r.err = err
			return 0, err
		}
		if !r.file.InMemory() {
			break // more windows may need a wait
		}
	}
	return filled, nil
}

// fill makes tuples of windows. It returns how many it made before an error.
func (r *records) fill(out []*pyfeed.Tuple, data []byte, tokens int64) (int, error) {
	slots, shift := 1, 0
	if r.targets {
		slots, shift = 2, 1
	}
	stride, size := int(r.stride)*r.item, int(tokens)*r.item
	length := int(tokens) - shift // of a slot
	var buffer *memory.Buffer
	copies := r.converts()
	switch {
	case size == 0:
	case copies:
		r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
	default:
		buffer = r.file.Hold(len(out) * slots)
	}
	for i, t := range out {
		if len(t.Slots) != slots {
			t.Resize(slots)
		}
		from := data[:0]
		if size > 0 {
			from = data[i*stride : i*stride+size : i*stride+size]
		}
		b := buffer
		if copies && size > 0 {
			to, got, err := r.arena.Get(int(tokens) * r.out.Size())
			if err != nil {
				return i, err
			}
			if err = widen(r.file.Interrupt(), to, r.out, from, r.dtype); err != nil {
				got.Release()
				return i, err
			}
			got.Retain(slots - 1)
			from, b = to, got
		}
		item := r.out.Size()
		for j := range t.Slots {
			s := &t.Slots[j]
			if r.shape(s, length); length == 0 {
				continue
			}
			s.Hold(from[j*item:(j+length)*item:(j+length)*item], b)
			s.ReadOnly = !copies || slots > 1
		}
	}
	return len(out), nil
}

// shape gives a slot its dtype, dims and ragged offsets, without data.
func (r *records) shape(s *pyfeed.LoDTensor, length int) {
	s.DType = r.out
	level := r.dims
	if r.ragged() {
		level = r.level.Get(2)
		level[1] = int64(length)
		s.LoD = append(s.LoD[:0], level)
		s.InHeap = true
		level = level[1:]
	}
	_ = s.SetDims(level) // cannot fail: there is one dimension
}

// maxConverted is the number of bytes that ReadBlock converts at a time.
const maxConverted = 1 << 20

// ReadBlock implements record.BlockReader for windows of one length. If they overlap, the bytes of a Block do too.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || limit < record.MinBlock || r.ragged() {
		return nil
	}
	copies := r.converts()
	if copies {
		most := maxConverted/int64(r.out.Size()) - r.need
		if r.stride > r.need || most/r.stride < record.MinBlock {
			return nil
		}
		limit = int(min(int64(limit), most/r.stride))
	}
	data, n, tokens, err := r.next(limit)
	if err != nil || n < record.MinBlock { // Read returns the error
		return nil
	}
	var buffer *memory.Buffer
	span := (n-1)*int(r.stride)*r.item + int(tokens)*r.item
	if data = data[:span]; copies {
		r.file.Hold(1).Release() // unmaps the windows of a mapped file before the position
		to, b, err := r.arena.Get(span / r.item * r.out.Size())
		if err != nil {
			return nil
		}
		if err = widen(r.file.Interrupt(), to, r.out, data, r.dtype); err != nil {
			b.Release()
			return nil
		}
		b.Retain(n - 1)
		data, buffer = to, b
	} else {
		buffer = r.file.Hold(n)
	}
	item, length := r.out.Size(), int(r.length)
	slots := make([]pyfeed.LoDTensor, 1, 2)
	if r.targets {
		slots = slots[:2]
	}
	for j := range slots {
		r.shape(&slots[j], length)
		slots[j].Data, slots[j].ReadOnly = data[j*item:(j+length)*item:len(data)], true
	}
	block := record.NewBlock(slots, int(r.stride)*item, n, buffer)
	r.record += int64(n)
	r.window += int64(n)
	return block
}

// Resync ends the file: only its end can be damaged.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Position implements record.Seeker. It is the number of the window.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.record}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	if p.Offset < 0 || r.count >= 0 && p.Offset > r.count || !r.fits(p.Offset) || p.Inner != 0 {
		expected := "the number of a window"
		if r.count >= 0 {
			expected = fmt.Sprintf("the number of one of %d windows", r.count)
		}
		return record.BadPosition(r.file.Path(), p, expected)
	}
	return r.locate(p.Offset)
}

// CheckTruncated checks both files.
func (r *records) CheckTruncated() error {
	if err := r.file.CheckTruncated(); err != nil || r.index == nil {
		return err
	}
	return r.index.file.CheckTruncated()
}

// CheckUnchanged calls that of both Files.
func (r *records) CheckUnchanged() error {
	if err := r.file.CheckUnchanged(); err != nil || r.index == nil {
		return err
	}
	return r.index.file.CheckUnchanged()
}

func (r *records) Close() {
	r.arena.Close()
	r.file.Close()
	if r.index != nil {
		r.index.file.Close()
	}
	r.err = io.EOF
}
