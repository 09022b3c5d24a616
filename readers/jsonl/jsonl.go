// Package jsonl reads and writes JSON Lines (https://jsonlines.org, also called NDJSON): each line is a JSON value, as
// RFC 8259 defines it, and a record. Values in it are selected by their paths and become slots of numbers, text or
// lists.
//
// The whole of each line is checked, also the values that are not selected. Only this is stricter than RFC 8259: a line
// is UTF-8, escapes of surrogates come in pairs, and arrays and objects are nested 1024 deep at most. A selected name
// that an object has twice is damage too.
//
// Lines end with "\n" or "\r\n"; the last line may have no end. Blank lines and a byte order mark are skipped. A file
// that is cut off between two lines cannot be distinguished from a complete one.
package jsonl

import (
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are the options of the format.
type Options struct {
	// Columns selects the value of each slot. The name of a column is the path of a value: names and indexes with dots
	// between them, such as "a.b.0", or a JSON pointer (RFC 6901), such as "/a/b/0", for names that have dots or that
	// begin with a slash. Without Columns, each name of the objects of the first MiB is a slot; with names of slots,
	// these are the names. Columns, DTypes and Default are only for reading.
	Columns columns.List `json:"columns"`
	// DTypes gives dtypes of values by their paths, for which neither slots nor Columns give one. A dtype is that of
	// numbers, "bytes" for text, or "json" for the JSON text of any value. Other dtypes are inferred from the first MiB:
	// int64, or uint64 for integers beyond that; float64; bool; bytes for strings.
	DTypes map[string]string `json:"dtypes"`
	// Default is the value where a record has null or nothing, such as "nan" or 0; for a list, its JSON text. nil: that
	// is an error.
	Default *columns.Value `json:"default"`
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy". "": for writing, that of the file's suffix (.gz,
	// .zlib, .zst, .sz); for reading, it is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

const tag = "jsonl"

func init() {
	record.MustRegister(record.Format{
		Tag:         tag,
		NamesChoose: true,
		Suffixes:    []string{".jsonl", ".ndjson"},
		Options:     func() any { return new(Options) },
		Open:        Open,
		Create:      Create,
	})
}
