// Package csv reads and writes text tables: fields between commas or tabs, one record on each line, quoted as in RFC
// 4180. A record is an instance. Each column is a slot of numbers or text, or several columns of numbers make one slot.
//
// Lines end with "\n" or "\r\n"; the last line may have no end. Blank lines and a byte order mark are skipped. A quoted
// field may contain delimiters, line ends, and doubled quotes. Blanks and tabs around numbers are skipped; in text they
// are kept. A quote is special only at the beginning of a field.
//
// A file that is cut off between two records, or within its last field, cannot be distinguished from a complete one.
package csv

import (
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are the options of the format.
type Options struct {
	// Delimiter is one ASCII character. "": a comma for csv, a tab for tsv.
	Delimiter string `json:"delimiter"`
	// Quote is one ASCII character, or "" for no quotes. nil: the double quote.
	Quote *string `json:"quote"`
	// Comment is one ASCII character: lines that begin with it are skipped. "": there are no comments.
	Comment string `json:"comment"`
	// Header says whether the first line has the columns' names. nil: it has, but a line with only numbers is an error,
	// because it is more likely a record.
	Header *bool `json:"header"`
	// Columns selects the columns of each slot. Without it, slots with names of columns take those columns; other slots
	// take the columns in order, as many as they have elements; without slots, each column is a slot. Columns, DTypes
	// and Missing are only for reading.
	Columns columns.List `json:"columns"`
	// DTypes gives dtypes of columns, by name or number from 0, for which neither slots nor Columns give one. A dtype
	// is that of a number, or "bytes" for text. Other dtypes are inferred from the first MiB: int64, or uint64 for
	// integers beyond that; float64; bool for true and false; bytes for everything else.
	DTypes map[string]string `json:"dtypes"`
	// Missing is the value of an empty field of numbers, such as "nan" or 0. nil: an empty field is an error.
	Missing *columns.Value `json:"missing"`
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy". "": for writing, that of the file's suffix (.gz,
	// .zlib, .zst, .sz); for reading, it is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

func init() {
	for _, f := range []format{commas, tabs} {
		record.MustRegister(record.Format{
			Tag:         f.tag,
			NamesChoose: true,
			Suffixes:    []string{"." + f.tag},
			Options:     func() any { return new(Options) },
			Defaults:    map[string]any{"delimiter": string(f.delimiter), "quote": `"`, "comment": ""},
			Open:        f.open,
			Create:      f.create,
		})
	}
}

// Open opens a file for reading, after its header. The delimiter is a comma unless the Options give another.
func Open(path string, c *record.Config) (record.Records, error) { return commas.open(path, c) }

// Create creates a file for writing. The delimiter is a comma unless the Options give another.
func Create(path string, c *record.Config) (record.Writer, error) { return commas.create(path, c) }

// format is csv or tsv.
type format struct {
	tag       string
	delimiter byte
}

var commas, tabs = format{"csv", ','}, format{"tsv", '\t'}

// dialect has the special characters of a file.
type dialect struct {
	delimiter      byte
	quote, comment byte // 0: none
}

func (f format) dialect(o *Options) (d dialect, err error) {
	d = dialect{delimiter: f.delimiter, quote: '"'}
	if o.Delimiter != "" {
		if d.delimiter, err = character("delimiter", o.Delimiter); err != nil {
			return d, err
		}
	}
	if o.Quote != nil {
		d.quote = 0
		if *o.Quote != "" {
			if d.quote, err = character("quote", *o.Quote); err != nil {
				return d, err
			}
		}
	}
	if o.Comment != "" {
		if d.comment, err = character("comment", o.Comment); err != nil {
			return d, err
		}
	}
	if d.delimiter == d.quote || d.delimiter == d.comment || d.quote == d.comment && d.quote != 0 {
		return d, pyfeed.Errorf(pyfeed.Invalid, "%s: expected delimiter, quote and comment to differ, found %q, %q and %q",
			f.tag, d.delimiter, d.quote, d.comment)
	}
	return d, nil
}

// character returns the character that an option gives. It must not be part of a number or of a line end.
func character(option, s string) (byte, error) {
	if len(s) == 1 && (s[0] > ' ' && s[0] < 0x7f || s[0] == ' ' || s[0] == '\t' || s[0] == 0x1f || s[0] == 0x1e) &&
		!strings.ContainsAny(s, "+-.0123456789") && (s[0]|0x20 < 'a' || s[0]|0x20 > 'z') {
		return s[0], nil
	}
	return 0, pyfeed.Errorf(pyfeed.Invalid, "%s: expected one ASCII character that is no letter, no digit and none of +-., found %q", option, s)
}
