package parquet

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// pageBytes is about the size of the values of a page that is written, in bytes.
const pageBytes = 1 << 20

// compressor compresses pages.
type compressor struct {
	codec int32
	out   []byte
	zstd  *zstd.Encoder
	gzip  *gzip.Writer
}

func newCompressor(name string) (*compressor, error) {
	c := &compressor{}
	switch name {
	case "", "snappy":
		c.codec = codecSnappy
	case "zstd":
		c.codec = codecZstd
		var err error
		if c.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
			return nil, err
		}
	case "gzip":
		c.codec, c.gzip = codecGzip, gzip.NewWriter(nil)
	case "none":
		c.codec = codecNone
	default:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "compression: expected snappy, zstd, gzip or none, found %q", name)
	}
	return c, nil
}

// compress returns compressed data, which is valid until the next call.
func (c *compressor) compress(data []byte) ([]byte, error) {
	switch c.codec {
	case codecSnappy:
		c.out = s2.EncodeSnappy(c.out[:cap(c.out)], data)
	case codecZstd:
		c.out = c.zstd.EncodeAll(data, c.out[:0])
	case codecGzip:
		b := bytes.NewBuffer(c.out[:0])
		c.gzip.Reset(b)
		_, err := c.gzip.Write(data)
		if err == nil {
			err = c.gzip.Close()
		}
		c.out = b.Bytes()
		return c.out, err
	default:
		return data, nil
	}
	return c.out, nil
}

// bounds are the least and the greatest of some numbers. NaN is neither.
type bounds struct {
	known    bool
	min, max [8]byte
}

// add notes elements.
func (b *bounds) add(d pyfeed.DType, data []byte) {
	size := d.Size()
	switch {
	case isInteger(d):
		for ; len(data) > 0; data = data[size:] {
			v, _ := record.Integer(d, data)
			low, high := int64(binary.LittleEndian.Uint64(b.min[:])), int64(binary.LittleEndian.Uint64(b.max[:]))
			less, more := v < low, v > high
			if d == pyfeed.Uint64 {
				less, more = uint64(v) < uint64(low), uint64(v) > uint64(high)
			}
			if !b.known || less {
				binary.LittleEndian.PutUint64(b.min[:], uint64(v))
			}
			if !b.known || more {
				binary.LittleEndian.PutUint64(b.max[:], uint64(v))
			}
			b.known = true
		}
	case isFloat(d):
		for ; len(data) > 0; data = data[size:] {
			v := float(d, data)
			if v != v {
				continue
			}
			low, high := math.Float64frombits(binary.LittleEndian.Uint64(b.min[:])), math.Float64frombits(binary.LittleEndian.Uint64(b.max[:]))
			if !b.known || v < low {
				binary.LittleEndian.PutUint64(b.min[:], math.Float64bits(v))
			}
			if !b.known || v > high {
				binary.LittleEndian.PutUint64(b.max[:], math.Float64bits(v))
			}
			b.known = true
		}
	}
}

// statistics returns the bounds in the stored form. A zero may be -0 as the least, and +0 as the greatest.
func (b *bounds) statistics(c *columnWriter) (s statistics) {
	if !b.known || c.text {
		return s
	}
	low, high := b.min[:], b.max[:]
	if isFloat(c.dtype) {
		least, greatest := math.Float64frombits(binary.LittleEndian.Uint64(low)), math.Float64frombits(binary.LittleEndian.Uint64(high))
		if least == 0 {
			least = math.Copysign(0, -1)
		}
		if greatest == 0 {
			greatest = 0
		}
		if c.dtype == pyfeed.Float32 {
			s.min = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(least)))
			s.max = binary.LittleEndian.AppendUint32(nil, math.Float32bits(float32(greatest)))
			return s
		}
		s.min = binary.LittleEndian.AppendUint64(nil, math.Float64bits(least))
		s.max = binary.LittleEndian.AppendUint64(nil, math.Float64bits(greatest))
		return s
	}
	s.min, s.max = bytes.Clone(low[:c.size]), bytes.Clone(high[:c.size])
	return s
}

// flush writes the values as the pages of a row group, and returns their description.
func (c *columnWriter) flush(to *storage.Sink, codec *compressor) (m columnMeta, err error) {
	m = columnMeta{typ: c.typ, codec: codec.codec, data: to.Offset(), statistics: c.bounds.statistics(c)}
	m.values = c.entries
	lists := c.lists() > 0
	if lists {
		m.values = int64(len(c.rep))
	}
	all := c.values
	for done, first := 0, true; first || len(c.values) > 0 || lists && done < len(c.rep); first = false {
		entries, values, size := c.page(done)
		var body []byte
		if lists {
			most := c.lists()
			body = appendLevels(body, c.rep[done:done+entries], most)
			body = appendLevels(body, c.def[done:done+entries], most)
		}
		if c.typ == typeBoolean {
			body = appendBits(body, c.values[:size])
		} else {
			body = append(body, c.values[:size]...)
		}
		c.values = c.values[size:]
		done += entries
		c.entries -= int64(values)
		if err := writePage(to, codec, body, entries, &m); err != nil {
			return m, err
		}
	}
	c.values, c.rep, c.def, c.entries, c.bounds = all[:0], c.rep[:0], c.def[:0], 0, bounds{}
	return m, nil
}

// page returns how many levels and values the next page has, from a level on, and the size of the values. A page ends
// before a row.
func (c *columnWriter) page(from int) (entries, values, size int) {
	lists := c.lists() > 0
	deepest := uint8(c.lists())
	for {
		if lists {
			if from+entries == len(c.rep) || size >= pageBytes && c.rep[from+entries] == 0 {
				return entries, values, size
			}
			entries++
			if c.def[from+entries-1] < deepest {
				continue
			}
		} else {
			if size == len(c.values) || size >= pageBytes {
				return entries, values, size
			}
			entries++
		}
		values++
		if c.text {
			size += 4 + int(binary.LittleEndian.Uint32(c.values[size:]))
		} else {
			size += c.size
		}
	}
}

// writePage writes a page of data, version 1.
func writePage(to *storage.Sink, codec *compressor, body []byte, values int, m *columnMeta) error {
	packed, err := codec.compress(body)
	if err != nil {
		return err
	}
	if len(body) > math.MaxInt32 || len(packed) > math.MaxInt32 {
		return pyfeed.Errorf(pyfeed.TooLarge, "parquet: expected rows of less than 2 GiB in a column, found %d bytes", len(body))
	}
	t := &thriftWriter{}
	t.begin()
	t.i32(1, pageData)
	t.i32(2, len(body))
	t.i32(3, len(packed))
	t.i32(4, int(int32(crc32.ChecksumIEEE(packed))))
	t.structure(5, func() {
		t.i32(1, values)
		t.i32(2, int(plain))
		t.i32(3, int(runLength))
		t.i32(4, int(runLength))
	})
	t.end()
	if _, err := to.Write(t.data); err != nil {
		return err
	}
	m.uncompressed += int64(len(t.data) + len(body))
	m.compressed += int64(len(t.data) + len(packed))
	_, err = to.Write(packed)
	return err
}

// appendLevels appends levels, of which none is greater than most, behind their size.
func appendLevels(to []byte, levels []uint8, most int) []byte {
	at := len(to)
	to = append(to, 0, 0, 0, 0)
	width := 0
	for n := most; n > 0; n >>= 1 {
		width++
	}
	for len(levels) > 0 {
		run := 1
		for run < len(levels) && levels[run] == levels[0] {
			run++
		}
		if run >= 8 || run == len(levels) {
			to = binary.AppendUvarint(to, uint64(run)<<1)
			to = append(to, levels[0])
			levels = levels[run:]
			continue
		}
		// Groups of eight values, up to a longer run of one value.
		n := 0
		for n < len(levels) {
			n = min(n+8, len(levels))
			same := 0
			for n+same < len(levels) && same < 8 && levels[n+same] == levels[n] {
				same++
			}
			if same == 8 {
				break
			}
		}
		groups := (n + 7) / 8
		to = binary.AppendUvarint(to, uint64(groups)<<1|1)
		bits, have := uint64(0), 0
		for i := range groups * 8 {
			if i < n {
				bits |= uint64(levels[i]) << have
			}
			for have += width; have >= 8; have -= 8 {
				to = append(to, byte(bits))
				bits >>= 8
			}
		}
		levels = levels[n:]
	}
	binary.LittleEndian.PutUint32(to[at:], uint32(len(to)-at-4))
	return to
}

// appendBits appends booleans of one bit.
func appendBits(to, values []byte) []byte {
	for len(values) > 0 {
		b := byte(0)
		for i, v := range values[:min(8, len(values))] {
			b |= v << i
		}
		to = append(to, b)
		values = values[min(8, len(values)):]
	}
	return to
}
