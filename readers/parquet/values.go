package parquet

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
)

// encoding is how the values of a page are stored.
type encoding int32

const (
	plain           encoding = 0
	plainDictionary encoding = 2
	runLength       encoding = 3
	bitPacked       encoding = 4
	deltaBinary     encoding = 5
	deltaLength     encoding = 6
	deltaBytes      encoding = 7
	rleDictionary   encoding = 8
	byteStreamSplit encoding = 9
)

var encodingNames = []string{plain: "PLAIN", plainDictionary: "PLAIN_DICTIONARY", runLength: "RLE", bitPacked: "BIT_PACKED",
	deltaBinary: "DELTA_BINARY_PACKED", deltaLength: "DELTA_LENGTH_BYTE_ARRAY", deltaBytes: "DELTA_BYTE_ARRAY",
	rleDictionary: "RLE_DICTIONARY", byteStreamSplit: "BYTE_STREAM_SPLIT"}

func (e encoding) String() string { return nameOf("encoding", encodingNames, int32(e)) }

// fixedValues decodes the values of a page that have one size.
type fixedValues interface {
	// next stores the next n values in to, stride bytes apart.
	next(to []byte, stride, n int) error
}

// byteValues decodes the values of a page that are byte strings.
type byteValues interface {
	// next sets spans of the next values.
	next(to []record.Span) error
	// base returns the memory that the spans refer to. The caller gets no reference to it.
	base() ([]byte, *memory.Buffer)
}

// plainFixed are values that lie one behind the other.
type plainFixed struct {
	data []byte
	size int
}

func (p *plainFixed) next(to []byte, stride, n int) error {
	if len(p.data) < n*p.size {
		return errValuesEnd
	}
	record.Spread(to, p.data[:n*p.size], stride, p.size)
	p.data = p.data[n*p.size:]
	return nil
}

// plainBits are booleans of one bit.
type plainBits struct {
	data []byte
	bit  int
}

func (p *plainBits) next(to []byte, stride, n int) error {
	if p.bit+n > 8*len(p.data) {
		return errValuesEnd
	}
	for i := range n {
		to[i*stride] = p.data[p.bit>>3] >> (p.bit & 7) & 1
		p.bit++
	}
	return nil
}

// rleBits are booleans in runs.
type rleBits struct {
	hybrid
	room [256]uint8
}

func (p *rleBits) next(to []byte, stride, n int) error {
	for done := 0; done < n; {
		k := min(n-done, len(p.room))
		if _, err := p.levels(p.room[:k], 1); err != nil {
			return err
		}
		for i, v := range p.room[:k] {
			to[(done+i)*stride] = v
		}
		done += k
	}
	return nil
}

// dictionaryFixed are indices of values of a dictionary.
type dictionaryFixed struct {
	hybrid
	values []byte
	size   int
	room   [1024]uint32
}

func (d *dictionaryFixed) next(to []byte, stride, n int) error {
	count := uint32(len(d.values) / d.size)
	for done := 0; done < n; {
		k := min(n-done, len(d.room))
		all := d.room[:k]
		if err := d.indices(all); err != nil {
			return err
		}
		if d.width >= 32 || count>>d.width == 0 { // else all indices of this width are valid
			most := uint32(0)
			for _, i := range all {
				most = max(most, i)
			}
			if most >= count {
				return indexError(most, count)
			}
		}
		out := to[done*stride:]
		_ = out[(k-1)*stride+d.size-1]
		t, f := unsafe.Pointer(unsafe.SliceData(out)), unsafe.Pointer(unsafe.SliceData(d.values))
		switch d.size {
		case 4:
			for j, i := range all {
				*(*[4]byte)(unsafe.Add(t, j*stride)) = *(*[4]byte)(unsafe.Add(f, int(i)*4))
			}
		case 8:
			for j, i := range all {
				*(*[8]byte)(unsafe.Add(t, j*stride)) = *(*[8]byte)(unsafe.Add(f, int(i)*8))
			}
		default:
			for j, i := range all {
				copy(out[j*stride:][:d.size], d.values[int(i)*d.size:])
			}
		}
		done += k
	}
	return nil
}

func indexError(found, count uint32) error {
	return fmt.Errorf("expected an index of a dictionary of %d values, found %d", count, found)
}

// deltaFixed are integers that are stored as differences.
type deltaFixed struct {
	delta
	size int
	room [256]int64
}

func (d *deltaFixed) next(to []byte, stride, n int) error {
	for done := 0; done < n; {
		k := min(n-done, len(d.room))
		if err := d.delta.next(d.room[:k]); err != nil {
			return err
		}
		for i, v := range d.room[:k] {
			out := to[(done+i)*stride:]
			if d.size == 4 {
				binary.LittleEndian.PutUint32(out, uint32(v))
			} else {
				binary.LittleEndian.PutUint64(out, uint64(v))
			}
		}
		done += k
	}
	return nil
}

// splitFixed are values whose first bytes come first, then their second bytes, and so on.
type splitFixed struct {
	data        []byte
	size, count int // of the values
	at          int // number of the next value
}

func (s *splitFixed) next(to []byte, stride, n int) error {
	if s.at+n > s.count {
		return errValuesEnd
	}
	for b := range s.size {
		from := s.data[b*s.count+s.at:][:n]
		for i, v := range from {
			to[i*stride+b] = v
		}
	}
	s.at += n
	return nil
}

// fixedOfBytes are byte strings that all have one size.
type fixedOfBytes struct {
	from byteValues
	size int
	room [256]record.Span
}

func (f *fixedOfBytes) next(to []byte, stride, n int) error {
	for done := 0; done < n; {
		k := min(n-done, len(f.room))
		if err := f.from.next(f.room[:k]); err != nil {
			return err
		}
		base, _ := f.from.base()
		for i, s := range f.room[:k] {
			if int(s.Size) != f.size {
				return fmt.Errorf("expected values of %d bytes, found one of %d", f.size, s.Size)
			}
			copy(to[(done+i)*stride:][:f.size], base[s.At:])
		}
		done += k
	}
	return nil
}

// memoryOf is the memory that the spans of byteValues refer to.
type memoryOf struct {
	data   []byte
	buffer *memory.Buffer
}

func (m *memoryOf) base() ([]byte, *memory.Buffer) { return m.data, m.buffer }

// plainBytes are byte strings, each behind its size.
type plainBytes struct {
	memoryOf
	at int
}

func (p *plainBytes) next(to []record.Span) error {
	at := p.at
	for i := range to {
		if len(p.data)-at < 4 {
			return errValuesEnd
		}
		size := binary.LittleEndian.Uint32(p.data[at:])
		at += 4
		if uint64(size) > uint64(len(p.data)-at) {
			return errValuesEnd
		}
		to[i] = record.Span{At: uint32(at), Size: size}
		at += int(size)
	}
	p.at = at
	return nil
}

// plainStrings are byte strings of one size.
type plainStrings struct {
	memoryOf
	at, size int
}

func (p *plainStrings) next(to []record.Span) error {
	if len(p.data)-p.at < len(to)*p.size {
		return errValuesEnd
	}
	for i := range to {
		to[i] = record.Span{At: uint32(p.at), Size: uint32(p.size)}
		p.at += p.size
	}
	return nil
}

// dictionaryBytes are indices of byte strings of a dictionary.
type dictionaryBytes struct {
	memoryOf
	hybrid
	values []record.Span
	room   [256]uint32
}

func (d *dictionaryBytes) next(to []record.Span) error {
	for len(to) > 0 {
		k := min(len(to), len(d.room))
		if err := d.indices(d.room[:k]); err != nil {
			return err
		}
		for i, index := range d.room[:k] {
			if int(index) >= len(d.values) {
				return indexError(index, uint32(len(d.values)))
			}
			to[i] = d.values[index]
		}
		to = to[k:]
	}
	return nil
}

// lengthBytes are byte strings behind the differences of their sizes.
type lengthBytes struct {
	memoryOf
	sizes delta
	at    int
	room  [256]int64
}

// begin finds the first byte string.
func (l *lengthBytes) begin(count int) (err error) {
	if err = l.sizes.begin(l.data, count); err == nil {
		skipped := l.sizes
		l.at, err = skipped.all()
	}
	return err
}

func (l *lengthBytes) next(to []record.Span) error {
	for len(to) > 0 {
		k := min(len(to), len(l.room))
		if err := l.sizes.next(l.room[:k]); err != nil {
			return err
		}
		for i, size := range l.room[:k] {
			if size < 0 || size > int64(len(l.data)-l.at) {
				return errValuesEnd
			}
			to[i] = record.Span{At: uint32(l.at), Size: uint32(size)}
			l.at += int(size)
		}
		to = to[k:]
	}
	return nil
}

// prefixBytes are byte strings of which the beginning is that of the one before. Each is made in memory of its own.
type prefixBytes struct {
	pool     *memory.Pool
	prefixes delta
	suffixes lengthBytes
	last     []byte
	made     memoryOf // of the last call of next
	sizes    [256]int64
	spans    [256]record.Span
}

// maxMade is the most memory, in bytes, for the byte strings that one call makes, unless one alone is larger.
const maxMade = 4 << 20

func (p *prefixBytes) begin(data []byte, count int) error {
	if err := p.prefixes.begin(data, count); err != nil {
		return err
	}
	skipped := p.prefixes
	at, err := skipped.all()
	if err != nil {
		return err
	}
	p.suffixes.data = data[at:]
	return p.suffixes.begin(count)
}

func (p *prefixBytes) release() {
	if p.made.buffer != nil {
		p.made.buffer.Release()
		p.made = memoryOf{}
	}
}

func (p *prefixBytes) base() ([]byte, *memory.Buffer) { return p.made.data, p.made.buffer }

// next makes all byte strings in one buffer.
func (p *prefixBytes) next(to []record.Span) error {
	p.release()
	if len(to) > len(p.sizes) {
		return fmt.Errorf("expected to make at most %d values at once, found %d", len(p.sizes), len(to))
	}
	sizes, suffixes := p.sizes[:len(to)], p.spans[:len(to)]
	if err := p.prefixes.next(sizes); err != nil {
		return err
	}
	if err := p.suffixes.next(suffixes); err != nil {
		return err
	}
	total, before := 0, int64(len(p.last))
	for i, prefix := range sizes {
		if prefix < 0 || prefix > before {
			return fmt.Errorf("expected a prefix of at most %d bytes, found %d", before, prefix)
		}
		before = prefix + int64(suffixes[i].Size)
		if total += int(before); total > 1<<31 {
			return fmt.Errorf("expected values of at most %d bytes together, found more", 1<<31)
		}
	}
	b, err := p.pool.Get(max(total, 1))
	if err != nil {
		return err
	}
	out := b.Bytes()[:0]
	last := p.last
	for i, prefix := range sizes {
		at := len(out)
		out = append(out, last[:prefix]...)
		out = append(out, p.suffixes.data[suffixes[i].At:][:suffixes[i].Size]...)
		last = out[at:]
		to[i] = record.Span{At: uint32(at), Size: uint32(len(last))}
	}
	p.last = append(p.last[:0:cap(p.last)], last...)
	p.made = memoryOf{out, b}
	return nil
}
