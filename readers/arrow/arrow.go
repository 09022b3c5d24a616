// Package arrow reads and writes Arrow's IPC files and streams, which Feather version 2, polars and Hugging Face datasets
// use too. The format is specified at https://arrow.apache.org/docs/format/Columnar.html.
//
// A row is an instance, and each column a slot. Columns of numbers are views of the mapped file, without a copy, if they
// are the only slot. Structs are divided into their fields. Lists have ragged offsets (LoD, level of detail).
//
// The files have no checksums: altered numbers cannot be found. A stream that is cut off between two messages, and lacks
// the optional marker of its end, cannot be distinguished from a complete one.
package arrow

import (
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Options of the format.
type Options struct {
	// Columns selects the columns of each slot; without it, slots with names of columns take those columns, and
	// without slots, each column is a slot. Other columns are not read.
	Columns columns.List `json:"columns"`
	// Default is the value of nulls in all columns whose item in Columns has none. nil: a null is an error.
	Default *columns.Value `json:"default"`
	// BatchRecords is how many records a batch has that is written; 0: 8192, or as many as have 16 MiB.
	BatchRecords int `json:"batch_records"`
	// Compression of the buffers that are written: "none" or "", "lz4" or "zstd". Reading finds it in the file.
	Compression string `json:"compression"`
}

// Check implements record.OptionsChecker.
func (o *Options) Check() error {
	if _, err := codecOf(o.Compression); err != nil {
		return err
	}
	if o.BatchRecords < 0 || o.BatchRecords > 1<<30 {
		return pyfeed.Errorf(pyfeed.Invalid, "arrow: batch_records: expected 1 to %d, found %d", 1<<30, o.BatchRecords)
	}
	return nil
}

func init() {
	record.MustRegister(record.Format{Tag: "arrow", Suffixes: []string{".arrow", ".arrows", ".feather", ".ipc"}, Options: func() any { return new(Options) },
		NamesChoose: true, Whole: true, Folder: datasetFiles, Open: Open, Create: Create})
}

// Open opens a file or a stream for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	r, err := record.OpenRecords(path, "", c, open)
	if err == nil && c.Storage.Block > 0 && !r.(*records).f.InMemory() { // single rows are read here and there
		r.Close()
		mapped := *c
		mapped.Storage.IO, mapped.Storage.Block = "map", 0
		r, err = record.OpenRecords(path, "", &mapped, open)
	}
	if err == nil {
		r.(*records).copies = c.Storage.Block > 0
	}
	return r, err
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	r := newRecords(f, c)
	if record.BigEndian {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "arrow: expected a machine that stores the low byte of a number first, found another")
	}
	err := r.begin()
	if err == nil {
		if err = r.plan(c, record.OptionsFrom[Options](c)); err != nil {
			e := err.(*pyfeed.Error)
			e.Text = "arrow: " + e.Text
			e.At = &pyfeed.Location{File: f.Path(), Offset: -1, Record: -1}
		}
	}
	if err != nil {
		r.release()
		return nil, err
	}
	r.prepare()
	return r, nil
}
