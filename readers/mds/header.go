package mds

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// description is the JSON object of a shard. Members that are not here do not matter for reading.
type description struct {
	Version   int      `json:"version"`
	Format    string   `json:"format"`
	Names     []string `json:"column_names"`
	Encodings []string `json:"column_encodings"`
	Sizes     []*int64 `json:"column_sizes"` // in bytes; null: each sample has a size
}

// maxDescription bounds the JSON object, in bytes.
const maxDescription = 64 << 20

// header is the part of a shard before its samples.
type header struct {
	count   int64
	offsets []byte // of the samples and of the end, as they are stored
	columns []column
	begin   int64 // of the first sample
	fixed   int64 // bytes of the columns with a fixed size
	varying int   // number of the other columns
}

// column is a column of the file.
type column struct {
	name     string
	encoding encoding
	size     int64 // in bytes; -1: each sample has a size
}

// offset returns where a sample begins; of the number of all samples, where the last one ends.
func (h *header) offset(sample int64) int64 {
	return int64(binary.LittleEndian.Uint32(h.offsets[4*sample:]))
}

// at returns the position of the offset of a sample.
func (h *header) at(sample int64) int64 { return 4 + 4*sample }

// readHeader reads the header. The position of the file is then at the first sample.
func readHeader(f *storage.File) (*header, error) {
	peek := func(n int64, what string) ([]byte, error) {
		if size := f.Size(); size >= 0 && n > size {
			return nil, f.Corrupt(f.Offset(), -1, "expected %s, %d bytes, found %d and the end of the file", what, n, size-f.Offset())
		}
		b, err := f.Peek(int(n))
		if err == nil && int64(len(b)) < n {
			err = f.Corrupt(f.Offset(), -1, "expected %s, %d bytes, found %d and the end of the file", what, n, len(b))
		}
		return b, err
	}
	b, err := peek(8, "a number of samples and an offset")
	if err != nil {
		return nil, err
	}
	h := &header{count: int64(binary.LittleEndian.Uint32(b))}
	table := 4 + 4*(h.count+1)
	if b, err = peek(table, "the offsets of samples"); err != nil {
		return nil, err
	}
	h.offsets = append([]byte(nil), b[4:table]...)
	h.begin = h.offset(0)
	if h.begin < table || h.begin-table > maxDescription {
		return nil, f.Corrupt(h.at(0), -1, "expected the first sample behind %d bytes of offsets and a description of at most %d, found it at byte %d",
			table, maxDescription, h.begin)
	}
	if b, err = peek(h.begin, "a description of the columns"); err != nil {
		return nil, err
	}
	var d description
	if err := json.Unmarshal(b[table:h.begin], &d); err != nil {
		return nil, f.Corrupt(table, -1, "expected a description of the columns as JSON, found %.40q: %v", b[table:h.begin], err)
	}
	if err := h.describe(f, table, &d); err != nil {
		return nil, err
	}
	return h, f.SeekTo(h.begin)
}

// describe takes over the description of the columns, which is at an offset of the file.
func (h *header) describe(f *storage.File, at int64, d *description) error {
	switch {
	case d.Format != "mds":
		return f.Corrupt(at, -1, "expected the format \"mds\", found %.40q", d.Format)
	case d.Version != 2:
		return f.Corrupt(at, -1, "expected version 2, found %d", d.Version)
	case len(d.Names) != len(d.Encodings) || len(d.Names) != len(d.Sizes):
		return f.Corrupt(at, -1, "expected a name, an encoding and a size for each column, found %d, %d and %d", len(d.Names), len(d.Encodings), len(d.Sizes))
	case len(d.Names) == 0 || len(d.Names) > columns.Max:
		return f.Corrupt(at, -1, "expected 1 to %d columns, found %d", columns.Max, len(d.Names))
	}
	for i, name := range d.Names {
		c := column{name: name, encoding: encodingOf(d.Encodings[i]), size: -1}
		natural := c.encoding.size()
		if size := d.Sizes[i]; size != nil {
			if c.size = *size; c.size < 1 || c.size > 1<<32 {
				return f.Corrupt(at, -1, "column %q: expected a size of at least 1, found %d", name, c.size)
			}
			h.fixed += c.size
		} else {
			h.varying++
		}
		if c.encoding.known && natural != c.size {
			return f.Corrupt(at, -1, "column %q: expected the size of %q, %s, found %s", name, d.Encodings[i], sizeText(natural), sizeText(c.size))
		}
		h.columns = append(h.columns, c)
	}
	return nil
}

func sizeText(size int64) string {
	if size < 0 {
		return "none"
	}
	return fmt.Sprintf("%d bytes", size)
}
