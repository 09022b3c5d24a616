package parquet

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math/bits"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// The types of pages.
const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// pageHeader describes a page.
type pageHeader struct {
	kind         int32
	uncompressed int32 // size, with levels
	compressed   int32
	crc          uint32
	hasCRC       bool
	values       int32 // with nulls
	encoding     encoding
	levels       [2]encoding // of repetition and definition levels
	levelSizes   [2]int32    // of version 2, where they precede the values and are not compressed
	rows         int32       // of version 2; -1: not known
	plain        bool        // version 2: the values are not compressed
	size         int         // of the header itself
}

func parsePageHeader(data []byte) (h pageHeader, r thriftReader) {
	r = thriftReader{data: data}
	h = pageHeader{kind: -1, uncompressed: -1, compressed: -1, values: -1, rows: -1, encoding: -1}
	r.fields(func(id int, kind byte) {
		switch id {
		case 1:
			h.kind = r.i32(kind)
		case 2:
			h.uncompressed = r.i32(kind)
		case 3:
			h.compressed = r.i32(kind)
		case 4:
			h.crc, h.hasCRC = uint32(r.i32(kind)), true
		case 5, 7: // of data, or of a dictionary
			data := id == 5
			r.structure(kind, func(id int, kind byte) {
				switch {
				case id == 1:
					h.values = r.i32(kind)
				case id == 2:
					h.encoding = encoding(r.i32(kind))
				case id == 3 && data:
					h.levels[1] = encoding(r.i32(kind))
				case id == 4 && data:
					h.levels[0] = encoding(r.i32(kind))
				default:
					r.skip(kind)
				}
			})
		case 8: // of data, version 2
			h.levels = [2]encoding{runLength, runLength}
			r.structure(kind, func(id int, kind byte) {
				switch id {
				case 1:
					h.values = r.i32(kind)
				case 3:
					h.rows = r.i32(kind)
				case 4:
					h.encoding = encoding(r.i32(kind))
				case 5:
					h.levelSizes[1] = r.i32(kind)
				case 6:
					h.levelSizes[0] = r.i32(kind)
				case 7:
					h.plain = kind == thriftFalse
					r.skip(kind)
				default:
					r.skip(kind)
				}
			})
		default:
			r.skip(kind)
		}
	})
	h.size = r.at
	return h, r
}

// chunk reads the pages of a column in a row group, in order. One goroutine at a time uses it.
type chunk struct {
	*column
	in       *input
	pool     *memory.Pool
	meta     *columnMeta
	group    int          // number of the row group
	first    int64        // row of the file that the row group begins with
	rows     int64        // of the row group
	readSize int          // bytes that are read at a time, if the file is not mapped
	poll     func() error // ends long work
	err      error        // the error at the end, after which nothing is decoded

	at   int64 // of the next page
	end  int64 // behind the last page, as far as that is known
	stop int64 // no page ends behind it

	block   *memory.Buffer // bytes of a file that is read
	blockAt int64
	have    []byte // of block

	header pageHeader
	pageAt int64 // of the current page
	page   *memory.Buffer
	left   int // levels of the current page that are not decoded yet
	seen   int64

	dictionary *dictionary
	rep, def   hybrid
	fixed      fixedValues
	strings    byteValues
	made       *prefixBytes
	converts   bool // fixed returns values that have to be converted
	plainBits  plainBits
	plain      plainFixed
	byDict     dictionaryFixed
	dictBytes  dictionaryBytes
	plainText  plainBytes

	row       int64 // of the row group, that is decoded next
	numToSkip int64 // rows before the one that is wanted
	skipping  bool  // the rows that are decoded are dropped
	scratch   []byte
	levels    []uint8
	lists     listState
}

// dictionary has the values of a dictionary page, in the form of the column's output.
type dictionary struct {
	buffer *memory.Buffer
	fixed  []byte
	spans  []record.Span
	base   []byte
}

// failure returns an error about the page.
func (c *chunk) failure(kind pyfeed.Kind, format string, args ...any) *pyfeed.Error {
	return c.in.file.Errorf(kind, c.pageAt, "%v, row group %d: %s", c.leaf, c.group, fmt.Sprintf(format, args...))
}

// corrupt returns an error about damage of the page.
func (c *chunk) corrupt(format string, args ...any) error {
	return c.failure(pyfeed.Corrupt, format, args...)
}

// bytes returns n bytes of the file at an offset, or fewer if the pages end before. They are valid until the next call.
func (c *chunk) bytes(offset int64, n int) ([]byte, error) {
	n = int(min(int64(n), c.stop-offset))
	if c.in.data != nil {
		return c.in.data[offset : offset+int64(n)], nil
	}
	if from := offset - c.blockAt; c.block != nil && from >= 0 && from+int64(n) <= int64(len(c.have)) {
		return c.have[from:][:n], nil
	}
	size := int(min(int64(max(n, c.readSize)), max(c.end, offset+int64(n))-offset))
	b, err := c.pool.Get(size)
	if err != nil {
		return nil, err
	}
	c.dropBlock()
	c.block, c.blockAt, c.have = b, offset, b.Bytes()[:size]
	for done := 0; done < size; {
		k := min(size-done, storage.PollEvery)
		err := c.poll()
		if err == nil {
			err = c.in.readInto(c.have[done:done+k], offset+int64(done))
		}
		if err != nil {
			c.dropBlock()
			return nil, err
		}
		done += k
	}
	return c.have[:n], nil
}

func (c *chunk) dropBlock() {
	if c.block != nil {
		c.block.Release()
		c.block, c.have = nil, nil
	}
}

// close releases all memory.
func (c *chunk) close() {
	c.dropBlock()
	c.dropPage()
	c.lists.drop()
	if c.dictionary != nil {
		c.dictionary.buffer.Release()
		c.dictionary = nil
	}
}

func (c *chunk) dropPage() {
	if c.made != nil {
		c.made.release()
		c.made = nil
	}
	if c.page != nil {
		c.page.Release()
		c.page = nil
	}
}

// maxHeader is the largest size of a page header, in bytes. It has statistics, which may be long strings.
const maxHeader = 16 << 20

// readHeader reads the header of the next page.
func (c *chunk) readHeader() error {
	c.pageAt = c.at
	for want := 512; ; want *= 8 {
		data, err := c.bytes(c.at, want)
		if err != nil {
			return err
		}
		h, r := parsePageHeader(data)
		if r.err == nil {
			c.header = h
			return c.checkHeader()
		}
		if !r.short() || len(data) < want || want > maxHeader {
			return c.corrupt("expected the header of a page: %v", r.err)
		}
	}
}

func (c *chunk) checkHeader() error {
	h := &c.header
	room := c.stop - c.at - int64(h.size)
	switch {
	case h.compressed < 0 || h.uncompressed < 0:
		return c.corrupt("expected the sizes of a page, found %d and %d", h.compressed, h.uncompressed)
	case int64(h.compressed) > room:
		return c.corrupt("expected a page of at most %d bytes, found a size of %d", room, h.compressed)
	case h.kind == pageIndex:
	case h.kind != pageData && h.kind != pageDataV2 && h.kind != pageDictionary:
		return c.corrupt("expected a page of type 0 to 3, found %d", h.kind)
	case h.values < 0:
		return c.corrupt("expected the number of values of a page, found %d", h.values)
	case h.kind != pageDictionary && int64(h.values) > c.meta.values-c.seen:
		return c.corrupt("expected a page of at most %d values, found %d", c.meta.values-c.seen, h.values)
	case h.levelSizes[0] < 0 || h.levelSizes[1] < 0 || int64(h.levelSizes[0])+int64(h.levelSizes[1]) > int64(min(h.compressed, h.uncompressed)):
		return c.corrupt("expected levels within a page of %d bytes, found %d and %d", h.compressed, h.levelSizes[0], h.levelSizes[1])
	}
	return nil
}

// nextPage goes to the next page of data that has values. It returns false behind the last one. If skip returns true for
// the header of a page of which it knows the number of rows, the page is not decoded.
func (c *chunk) nextPage(skip func(h *pageHeader) bool) (bool, error) {
	for {
		if c.seen == c.meta.values {
			return false, nil
		}
		if err := c.poll(); err != nil {
			return false, err
		}
		if err := c.readHeader(); err != nil {
			return false, err
		}
		h := &c.header
		body := c.at + int64(h.size)
		switch h.kind {
		case pageDictionary:
			if err := c.readDictionary(body); err != nil {
				return false, err
			}
		case pageData, pageDataV2:
			if skip == nil || !skip(h) {
				if err := c.readPage(body); err != nil {
					return false, err
				}
				c.at = body + int64(h.compressed)
				c.seen += int64(h.values)
				if c.left = int(h.values); c.left > 0 {
					return true, nil
				}
				continue
			}
			c.seen += int64(h.values)
		}
		c.at = body + int64(h.compressed)
	}
}

// body returns the bytes of the page, after a check against its checksum.
func (c *chunk) body(offset int64) ([]byte, error) {
	data, err := c.bytes(offset, int(c.header.compressed))
	if err != nil {
		return nil, err
	}
	if len(data) < int(c.header.compressed) {
		return nil, c.corrupt("expected %d bytes of a page, found %d", c.header.compressed, len(data))
	}
	if c.header.hasCRC {
		sum := uint32(0)
		for rest := data; len(rest) > 0; {
			part := rest[:min(len(rest), storage.PollEvery)]
			sum = crc32.Update(sum, crc32.IEEETable, part)
			if rest = rest[len(part):]; len(rest) > 0 {
				if err := c.poll(); err != nil {
					return nil, err
				}
			}
		}
		if sum != c.header.crc {
			return nil, c.corrupt("expected a page with the checksum %#08x, found %#08x", c.header.crc, sum)
		}
	}
	return data, nil
}

// inflate decompresses data that has size bytes then. The first of the results is a view of the second one, or of data
// if that is not compressed and keep is not set.
func (c *chunk) inflate(data []byte, size int, compressed, keep bool) ([]byte, *memory.Buffer, error) {
	if !compressed && len(data) != size {
		return nil, nil, c.corrupt("expected %d bytes that are not compressed, found %d", size, len(data))
	}
	if !compressed && !keep {
		return data, nil, nil
	}
	// The size may be wrong. Memory for all of it is only allocated if the compressed data justifies that.
	room := size
	if compressed {
		room = min(size, max(1<<20, 64*len(data)))
	}
	for {
		b, err := c.pool.Get(max(room, 1))
		if err != nil {
			return nil, nil, err
		}
		to := b.Bytes()[:room]
		switch {
		case !compressed:
			err = copyPolling(to, data, c.poll)
		case size == 0 && len(data) == 0: // a page of nulls
		default:
			err = decompress(c.meta.codec, to, data, c.poll)
		}
		if err == nil {
			return to, b, nil
		}
		b.Release()
		switch {
		case err == storage.ErrInterrupted:
			return nil, nil, err
		case (err == errRoom || err == errLZ4) && room < size:
			room = min(size, 8*room)
		default:
			return nil, nil, c.corrupt("decompressing %s: %v", codecName(c.meta.codec), err)
		}
	}
}

func copyPolling(to, from []byte, poll func() error) error {
	for len(from) > storage.PollEvery {
		copy(to, from[:storage.PollEvery])
		to, from = to[storage.PollEvery:], from[storage.PollEvery:]
		if err := poll(); err != nil {
			return err
		}
	}
	copy(to, from)
	return nil
}

// readDictionary reads a dictionary, and converts its values.
func (c *chunk) readDictionary(offset int64) error {
	h := &c.header
	if c.dictionary != nil {
		return c.corrupt("expected one dictionary, found another")
	}
	if h.encoding != plain && h.encoding != plainDictionary {
		return c.corrupt("expected a dictionary with the encoding PLAIN, found %v", h.encoding)
	}
	data, err := c.body(offset)
	if err != nil {
		return err
	}
	data, b, err := c.inflate(data, int(h.uncompressed), c.meta.codec != codecNone, true)
	if err != nil {
		return err
	}
	d := &dictionary{buffer: b}
	if err := c.fillDictionary(d, data, int(h.values)); err != nil {
		d.buffer.Release()
		return c.failedIn("dictionary", err)
	}
	c.dictionary = d
	return nil
}

func (c *chunk) fillDictionary(d *dictionary, data []byte, count int) error {
	size := c.physicalSize
	switch {
	case c.leaf.typ == typeBoolean:
		return fmt.Errorf("expected none for booleans, found one")
	case c.text || c.leaf.typ == typeByteArray:
		if least := size + 4; size == 0 && count > len(data)/least || size > 0 && count > len(data)/size {
			return errValuesEnd
		}
		from := byteValues(&plainBytes{memoryOf: memoryOf{data: data}})
		if size > 0 {
			from = &plainStrings{memoryOf: memoryOf{data: data}, size: size}
		}
		spans := make([]record.Span, count)
		for rest := spans; len(rest) > 0; {
			k := min(len(rest), 1<<16)
			if err := from.next(rest[:k]); err != nil {
				return err
			}
			rest = rest[k:]
			if err := c.poll(); err != nil {
				return err
			}
		}
		if c.text {
			d.base, d.spans = data, spans
			return nil
		}
		return c.convertDictionary(d, count, func(i int) []byte { return data[spans[i].At:][:spans[i].Size] })
	case count > len(data)/size:
		return errValuesEnd
	case c.convert == nil:
		d.fixed = data[:count*size]
		return nil
	}
	return c.convertDictionary(d, count, func(i int) []byte { return data[i*size:][:size] })
}

// convertDictionary replaces the memory of a dictionary by that of its converted values.
func (c *chunk) convertDictionary(d *dictionary, count int, value func(i int) []byte) error {
	b, err := c.pool.Get(max(count*c.size, 1))
	if err != nil {
		return err
	}
	for i := range count {
		if err := c.convert(b.Bytes()[i*c.size:][:c.size], value(i)); err != nil {
			b.Release()
			e := c.failure(pyfeed.Type, "dictionary: %v", err)
			e.Slot = c.slot
			return e
		}
	}
	d.buffer.Release()
	d.buffer, d.fixed = b, b.Bytes()[:count*c.size]
	return nil
}

// readPage reads a page of data and prepares to decode its levels and values.
func (c *chunk) readPage(offset int64) error {
	h := &c.header
	c.dropPage()
	data, err := c.body(offset)
	if err != nil {
		return err
	}
	var levels [2][]byte
	size := int(h.uncompressed)
	compressed := c.meta.codec != codecNone
	if h.kind == pageDataV2 {
		for i, n := range h.levelSizes {
			levels[i], data = data[:n], data[n:]
			size -= int(n)
		}
		compressed = compressed && !h.plain
	}
	keep := c.text || c.in.data == nil // what chunk.bytes has returned is only valid until the next call
	data, b, err := c.inflate(data, size, compressed, keep)
	if err != nil {
		return err
	}
	c.page = b
	if h.kind == pageDataV2 && c.in.data == nil {
		for i := range levels { // they are in memory that the next call of chunk.bytes may release
			levels[i] = append([]byte(nil), levels[i]...)
		}
	}
	most := [2]int{c.leaf.maxRep, c.leaf.maxDef}
	for i, decoder := range []*hybrid{&c.rep, &c.def} {
		if most[i] == 0 {
			continue
		}
		if h.kind == pageData {
			if h.levels[i] != runLength {
				return c.corrupt("expected levels with the encoding RLE, found %v", h.levels[i])
			}
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return c.corrupt("expected levels, found a page of %d bytes", len(data))
			}
			n := int(binary.LittleEndian.Uint32(data))
			levels[i], data = data[4:4+n], data[4+n:]
		}
		decoder.begin(levels[i], bits.Len(uint(most[i])))
	}
	if err := c.beginValues(data); err != nil {
		return c.failed(err)
	}
	return nil
}

// beginValues prepares to decode the values of a page.
func (c *chunk) beginValues(data []byte) error {
	h := &c.header
	c.fixed, c.strings = nil, nil
	c.converts = c.convert != nil
	isBytes := c.leaf.typ == typeByteArray || c.leaf.typ == typeFixed
	page := memoryOf{data, c.page}
	size := c.physicalSize
	unfit := func() error { return c.unsupported("the encoding %v of %v", h.encoding, c.leaf.typ) }
	switch h.encoding {
	case plain:
		switch {
		case c.leaf.typ == typeBoolean:
			c.plainBits = plainBits{data: data}
			c.fixed = &c.plainBits
		case c.leaf.typ == typeByteArray:
			c.plainText = plainBytes{memoryOf: page}
			c.strings = &c.plainText
		case c.text:
			c.strings = &plainStrings{memoryOf: page, size: size}
		default:
			c.plain = plainFixed{data, size}
			c.fixed = &c.plain
		}
	case plainDictionary, rleDictionary:
		d := c.dictionary
		if d == nil {
			return fmt.Errorf("expected a dictionary before the page, found none")
		}
		width := 0
		if len(data) > 0 { // a page of nulls may have no data
			width, data = int(data[0]), data[1:]
		}
		if width > 32 {
			return fmt.Errorf("expected indices of at most 32 bits, found %d", width)
		}
		if d.spans != nil || c.text {
			c.dictBytes.memoryOf, c.dictBytes.values = memoryOf{d.base, d.buffer}, d.spans
			c.dictBytes.begin(data, width)
			c.strings = &c.dictBytes
		} else {
			c.byDict.values, c.byDict.size, c.converts = d.fixed, c.size, false
			c.byDict.begin(data, width)
			c.fixed = &c.byDict
		}
	case runLength:
		if c.leaf.typ != typeBoolean {
			return unfit()
		}
		if h.kind == pageData || len(data) >= 4 {
			if len(data) < 4 || uint64(binary.LittleEndian.Uint32(data)) > uint64(len(data)-4) {
				return errValuesEnd
			}
			data = data[4:][:binary.LittleEndian.Uint32(data)]
		}
		b := new(rleBits)
		b.begin(data, 1)
		c.fixed = b
	case deltaBinary:
		if c.leaf.typ != typeInt32 && c.leaf.typ != typeInt64 {
			return unfit()
		}
		d := &deltaFixed{size: size}
		c.fixed = d
		if len(data) > 0 {
			return d.begin(data, int(h.values))
		}
	case deltaLength:
		if c.leaf.typ != typeByteArray {
			return unfit()
		}
		l := &lengthBytes{memoryOf: page}
		c.strings = l
		if len(data) > 0 {
			return l.begin(int(h.values))
		}
	case deltaBytes:
		if !isBytes {
			return unfit()
		}
		p := &prefixBytes{pool: c.pool}
		c.strings, c.made = p, p
		if !c.text && c.leaf.typ == typeFixed {
			c.strings, c.fixed = nil, &fixedOfBytes{from: p, size: size}
		}
		if len(data) > 0 {
			return p.begin(data, int(h.values))
		}
	case byteStreamSplit:
		if size == 0 || c.text {
			return unfit()
		}
		c.fixed = &splitFixed{data: data, size: size, count: len(data) / size}
	default:
		return unfit()
	}
	return nil
}

// unsupported returns an error about something in the file that cannot be read.
func (c *chunk) unsupported(format string, args ...any) error {
	return c.failure(pyfeed.Unsupported, "expected a column that can be read, found "+format, args...)
}
