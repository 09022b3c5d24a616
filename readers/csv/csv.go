// Package csv reads and writes tables of text: fields between commas, or tabs, and a record a line, quoted as in
// RFC 4180. A record is an instance; its columns are numbers or text, one slot each or gathered into vectors.
//
// Lines end with "\n" or "\r\n", the last one perhaps with neither. Blank lines are skipped, a byte order mark too.
// A quoted field may hold delimiters, line ends, and quotes, doubled. Around numbers, blanks and tabs are skipped;
// in text everything counts. Only a quote that a field begins with is one.
//
// A file cut off between two records cannot be told from a whole one, nor one cut off within its last field.
package csv

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are what a file of text can be told.
type Options struct {
	// Delimiter is one ASCII character; "": a comma for csv, a tab for tsv.
	Delimiter string `json:"delimiter"`
	// Quote is one ASCII character, or "" for none; nil: the double quote.
	Quote *string `json:"quote"`
	// Comment is one ASCII character: lines that begin with it are skipped. "": none are.
	Comment string `json:"comment"`
	// Header says whether the first line holds the columns' names. nil: it does, but one of numbers only is
	// refused, because it is more likely to be a record.
	Header *bool `json:"header"`
	// Columns are which columns make which slot. Without them, slots that are named like columns take those;
	// other slots take the columns in order, each as many as it has elements; without slots, each column is one.
	// For reading only, as the next two.
	Columns []Columns `json:"columns"`
	// DTypes are those of columns that neither slots nor Columns give one: by name, or number from 0. Each is
	// "bytes", for text, or a number's. The others are told by the first MiB: int64, uint64 if that is too
	// small, float64, bool for true and false, bytes for all else.
	DTypes map[string]string `json:"dtypes"`
	// Missing is what an empty field of numbers stands for, such as "nan" or 0. nil: it is an error.
	Missing *Value `json:"missing"`
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy". "" writes as the file's name says (.gz, .zlib, .zst,
	// .sz), and reads by what the file begins with.
	Compression string `json:"compression"`
}

// Columns make one slot.
type Columns struct {
	// Name of the slot; "": that of the column, if it is one.
	Name string `json:"name"`
	// Columns it takes.
	Columns Select `json:"columns"`
	// DType is "bytes", for text, or a number's; "": the first MiB tells.
	DType string `json:"dtype"`
	// Dims of an instance, of as many elements as there are columns; nil: none for one column by itself, else
	// one dimension.
	Dims pyfeed.Dims `json:"dims"`
}

// A Select names columns. In JSON it is one of these or a list of them: a name; a number, from 0, or from -1
// backwards; a range "first:last" of names or numbers, both included, either left out for the first or the last
// column there is.
type Select struct {
	Items []any // string or int
	One   bool  // it was no list
}

// UnmarshalJSON is for encoding/json.
func (s *Select) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
	} else {
		list, s.One = []json.RawMessage{text}, true
	}
	for _, item := range list {
		var name string
		var number int
		if json.Unmarshal(item, &name) == nil && string(item) != "null" {
			s.Items = append(s.Items, name)
		} else if json.Unmarshal(item, &number) == nil && string(item) != "null" {
			s.Items = append(s.Items, number)
		} else {
			return pyfeed.Errorf(pyfeed.Invalid, "columns: expected names or numbers of columns, found %s", item)
		}
	}
	return nil
}

// A Value is a number or its text.
type Value string

// UnmarshalJSON is for encoding/json.
func (v *Value) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) == nil {
		*v = Value(s)
		return nil
	}
	var n json.Number
	if json.Unmarshal(text, &n) == nil {
		*v = Value(n)
		return nil
	}
	return pyfeed.Errorf(pyfeed.Invalid, "missing: expected a number or its text, found %s", text)
}

func init() {
	for _, f := range []format{commas, tabs} {
		record.MustRegister(record.Format{
			Tag:      f.tag,
			Suffixes: []string{"." + f.tag},
			Options:  func() any { return new(Options) },
			Open:     f.open,
			Create:   f.create,
		})
	}
}

// Open begins to read a file behind its header. Its delimiter is a comma, unless the Options say another.
func Open(path string, c *record.Config) (record.Records, error) { return commas.open(path, c) }

// Create begins to write a file. Its delimiter is a comma, unless the Options say another.
func Create(path string, c *record.Config) (record.Writer, error) { return commas.create(path, c) }

// format is one of the two.
type format struct {
	tag       string
	delimiter byte
}

var commas, tabs = format{"csv", ','}, format{"tsv", '\t'}

// dialect is what the characters of a file mean.
type dialect struct {
	delimiter      byte
	quote, comment byte // 0: there is none
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

// character is the one of an option: none that a number may hold, and no line's end.
func character(option, s string) (byte, error) {
	if len(s) == 1 && (s[0] > ' ' && s[0] < 0x7f || s[0] == ' ' || s[0] == '\t' || s[0] == 0x1f || s[0] == 0x1e) &&
		!strings.ContainsAny(s, "+-.0123456789") && (s[0]|0x20 < 'a' || s[0]|0x20 > 'z') {
		return s[0], nil
	}
	return 0, pyfeed.Errorf(pyfeed.Invalid, "%s: expected one ASCII character that is no letter, no digit and none of +-., found %q", option, s)
}
