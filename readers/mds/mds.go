// Package mds reads and writes shards of MosaicML's streaming library (MDS). An instance is a sample.
//
// The layout, version 2, all numbers little-endian: the number of samples (uint32); the offset of each sample and of the
// end of the file (uint32 each); a JSON object with the names, encodings and sizes of the columns; the samples. A sample
// has the size (uint32) of each column whose size is not fixed, and then the data of all columns.
//
// A data set is a folder with shards and a file index.json, which lists them.
package mds

import (
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are the options of the format.
type Options struct {
	// Columns describes the slots. nil: each column of the file is a slot.
	Columns columns.List `json:"columns"`
	// Encodings are those of columns that are written, by the names of slots. The encodings of other slots are those of
	// their dtypes.
	Encodings map[string]string `json:"encodings"`
	// UpdateIndex adds a shard that is written to the file index.json in its folder.
	UpdateIndex bool `json:"update_index"`
	// Compression is "none", "gzip", "zlib", "zstd" or "snappy" (framed). "": for writing, that of the file's suffix
	// (.gz, .zst, .zstd, .zlib, .sz); for reading, it is detected by the first bytes of the file.
	Compression string `json:"compression"`
}

func init() {
	record.MustRegister(record.Format{
		Tag:         "mds",
		Suffixes:    []string{".mds", ".mds.zstd", ".mds.snappy", ".mds.br", ".mds.bz2"},
		Options:     func() any { return new(Options) },
		Open:        Open,
		Create:      Create,
		Folder:      Folder,
		NamesChoose: true,
	})
}
