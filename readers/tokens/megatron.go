package tokens

import (
	"encoding/binary"
	"math"
	"sort"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// megatron is the index of the tokens of Megatron-LM: a file .idx beside the file .bin with the tokens. Its parts are
//   - the magic bytes, a version (uint64, 1), a code of the dtype (uint8), the number of sequences and the number of
//     entries of the last part (uint64 each)
//   - for each sequence, its number of tokens (int32)
//   - for each sequence, its offset in the file .bin, in bytes (int64)
//   - the numbers of the sequences with which documents begin, and the number of sequences (int64)
//   - perhaps, for each sequence, a mode (int8), which is ignored
//
// A document has one or several sequences. Megatron-LM writes the sequences one behind the other.
type megatron struct {
	file      *storage.File
	data      []byte // of the whole file
	dtype     pyfeed.DType
	sequences int64
	documents int64
	// before is the number of windows before each step-th document, and of all windows. nil: it was not counted.
	before []int64
}

const (
	megatronMagic  = "MMIDIDX\x00\x00"
	megatronHeader = 34 // bytes
	step           = 64 // documents between two entries of before
)

// megatronTypes are the dtypes by their codes.
var megatronTypes = map[byte]pyfeed.DType{1: pyfeed.Uint8, 2: pyfeed.Int8, 3: pyfeed.Int16, 4: pyfeed.Int32, 5: pyfeed.Int64, 8: pyfeed.Uint16}

// megatronNames are the dtypes of codes that tokens do not have.
var megatronNames = map[byte]string{6: "float64 or float32", 7: "float32 or float64"}

func megatronCode(d pyfeed.DType) (byte, bool) {
	for code, dtype := range megatronTypes {
		if dtype == d {
			return code, true
		}
	}
	return 0, false
}

// megatronPaths returns the files of a name that ends in .idx or .bin, or of the name without either.
func megatronPaths(path string) (index, data string) {
	prefix := strings.TrimSuffix(path, ".bin")
	if prefix == path {
		prefix = strings.TrimSuffix(path, ".idx")
	}
	return prefix + ".idx", prefix + ".bin"
}

// openMegatron opens the index. open is that of the file that was named.
func openMegatron(path string, c *record.Config, named bool) (*megatron, error) {
	o := c.Storage
	o.Compression = "none"
	if o.Block > 0 { // few numbers of the index are read for each window
		o.Block, o.IO = 0, "auto"
	}
	if !named {
		o.Opened = nil
	}
	f, err := storage.Open(path, o, c.Pool)
	if err != nil {
		return nil, err
	}
	m := &megatron{file: f}
	if err = m.readHeader(); err != nil {
		if f.Interrupt().MayExplain(err) {
			err = storage.ErrInterrupted
		}
		if shrunk := f.CheckTruncated(); shrunk != nil {
			err = shrunk
		}
		f.Close()
		return nil, err
	}
	return m, nil
}

func (m *megatron) readHeader() error {
	f := m.file
	head, err := f.Peek(megatronHeader)
	switch {
	case err != nil:
		return err
	case len(head) < megatronHeader:
		return f.Corrupt(0, -1, "expected a header of %d bytes, found %d", megatronHeader, len(head))
	case string(head[:9]) != megatronMagic:
		return f.Corrupt(0, -1, "expected %q, with which an index of Megatron-LM begins, found %.9q", megatronMagic, head[:9])
	}
	if version := binary.LittleEndian.Uint64(head[9:]); version != 1 {
		return f.Corrupt(9, -1, "expected version 1, found %d", version)
	}
	code := head[17]
	dtype, known := megatronTypes[code]
	if name := megatronNames[code]; name != "" {
		return pyfeed.Errorf(pyfeed.Unsupported, "%s: dtype: expected that of tokens, an integer dtype, found %s (code %d)", f.Path(), name, code)
	}
	if !known {
		return f.Corrupt(17, -1, "expected the code of a dtype, 1 to 8, found %d", code)
	}
	sequences, entries := binary.LittleEndian.Uint64(head[18:]), binary.LittleEndian.Uint64(head[26:])
	size := f.Size()
	if size < 0 || size > math.MaxInt { // cannot happen: the file is regular and not compressed
		return pyfeed.Errorf(pyfeed.Unsupported, "%s: expected a regular file", f.Path())
	}
	left := uint64(size - megatronHeader)
	if sequences > left/12 || entries > (left-12*sequences)/8 || left != 12*sequences+8*entries && left != 13*sequences+8*entries {
		return f.Corrupt(18, -1, "expected a file of %d bytes and 12 for each sequence and 8 for each document, found %d bytes for %d sequences and %d documents",
			megatronHeader, size, sequences, entries)
	}
	if entries == 0 {
		return f.Corrupt(26, -1, "expected at least 1 entry about documents, found none")
	}
	if m.data, err = f.Peek(int(size)); err != nil {
		return err
	}
	if int64(len(m.data)) < size {
		return f.Corrupt(int64(len(m.data)), -1, "expected %d bytes, found %d and the end of the file", size, len(m.data))
	}
	m.dtype, m.sequences, m.documents = dtype, int64(sequences), int64(entries)-1
	if first := m.document(0); first != 0 {
		return f.Corrupt(m.documentAt(0), -1, "expected the first document to begin with sequence 0, found %d", first)
	}
	if last := m.document(m.documents); last != m.sequences {
		return f.Corrupt(m.documentAt(m.documents), -1, "expected the number of all %d sequences, found %d", sequences, last)
	}
	return nil
}

// tokens returns the number of all tokens. size is that of the file with the tokens, which has to end with the last
// sequence.
func (m *megatron) tokens(size int64) (int64, error) {
	item, end := int64(m.dtype.Size()), int64(0)
	if m.sequences > 0 {
		last := m.sequences - 1
		begin, n := m.pointer(last), m.size(last)
		if begin < 0 || begin > size || n < 0 || n > (size-begin)/item {
			return 0, m.file.Corrupt(m.pointerAt(last), -1, "expected the last sequence within the %d bytes of tokens, found %d tokens at byte %d", size, n, begin)
		}
		end = begin + n*item
	}
	if end != size || end%item != 0 {
		return 0, m.file.Corrupt(megatronHeader, -1, "expected sequences up to the end of the tokens, byte %d, found byte %d", size, end)
	}
	return size / item, nil
}

func (m *megatron) size(sequence int64) int64 {
	return int64(int32(binary.LittleEndian.Uint32(m.data[megatronHeader+4*sequence:])))
}

func (m *megatron) pointerAt(sequence int64) int64 {
	return megatronHeader + 4*m.sequences + 8*sequence
}

func (m *megatron) pointer(sequence int64) int64 {
	return int64(binary.LittleEndian.Uint64(m.data[m.pointerAt(sequence):]))
}

func (m *megatron) documentAt(i int64) int64 { return megatronHeader + 12*m.sequences + 8*i }

// document returns the first sequence of a document; that of the last but one is the number of all sequences.
func (m *megatron) document(i int64) int64 {
	return int64(binary.LittleEndian.Uint64(m.data[m.documentAt(i):]))
}

// countWindows checks all numbers, and counts the windows within documents. Then span and find can be called.
func (m *megatron) countWindows(w *windows) error {
	m.before = make([]int64, 0, m.documents/step+2)
	count, sequence, offset, item, since := int64(0), int64(0), int64(0), int64(m.dtype.Size()), 0
	for d := range m.documents {
		if d%step == 0 {
			m.before = append(m.before, count)
		}
		end := m.document(d + 1)
		if end < sequence || end > m.sequences {
			return m.file.Corrupt(m.documentAt(d+1), -1, "expected the number of a sequence, %d to %d, found %d", sequence, m.sequences, end)
		}
		begin := offset
		for ; sequence < end; sequence++ {
			n, at := m.size(sequence), m.pointer(sequence)
			switch {
			case n < 0:
				return m.file.Corrupt(megatronHeader+4*sequence, -1, "sequence %d: expected a number of tokens, found %d", sequence, n)
			case at != offset:
				return m.file.Corrupt(m.pointerAt(sequence), -1, "sequence %d: expected it behind the one before, at byte %d, found byte %d", sequence, offset, at)
			}
			offset += n * item
			if since += 12; since >= storage.PollEvery {
				since = 0
				if err := m.file.Poll(); err != nil {
					return err
				}
			}
		}
		count += w.count((offset - begin) / item)
		if since += 8; since >= storage.PollEvery {
			since = 0
			if err := m.file.Poll(); err != nil {
				return err
			}
		}
	}
	m.before = append(m.before, count)
	return nil
}

// span is a document, or all tokens of a file.
type span struct {
	number int64 // of the document
	first  int64 // its first token
	tokens int64 // -1: not known yet
}

// document returns the tokens of a document.
func (m *megatron) span(d int64) span {
	item, end := int64(m.dtype.Size()), m.document(d+1)
	s := span{number: d, first: m.tokenAt(m.document(d))}
	if end > 0 {
		s.tokens = m.pointer(end-1)/item + m.size(end-1) - s.first
	}
	return s
}

// tokenAt returns the first token of a sequence; of the last but one, the number of all tokens.
func (m *megatron) tokenAt(sequence int64) int64 {
	switch {
	case sequence < m.sequences:
		return m.pointer(sequence) / int64(m.dtype.Size())
	case sequence == 0:
		return 0
	}
	return m.pointer(sequence-1)/int64(m.dtype.Size()) + m.size(sequence-1)
}

// windows returns the number of windows in all documents.
func (m *megatron) windows() int64 { return m.before[len(m.before)-1] }

// find returns the document with a window, and the window's number in it. Behind the last window, it returns the number
// of documents.
func (m *megatron) find(w *windows, window int64) (s span, number int64) {
	i := sort.Search(len(m.before), func(i int) bool { return m.before[i] > window }) - 1
	d := int64(i) * step
	if i == len(m.before)-1 {
		return span{number: m.documents}, 0
	}
	for number = window - m.before[i]; d < m.documents; d++ {
		s = m.span(d)
		n := w.count(s.tokens)
		if number < n {
			return s, number
		}
		number -= n
	}
	return span{number: m.documents}, 0
}
