// Package parquet reads and writes Parquet files, which have the rows of a table in row groups, column by column. The
// format is specified at https://github.com/apache/parquet-format. A row is an instance. Each column is a slot, or
// several columns of numbers make one slot.
//
// Pages are decoded here, directly into the memory of instances, with checks of everything that a damaged file can get
// wrong. Several row groups are decoded at the same time, and delivered in their order.
package parquet

import (
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options are the options of the format.
type Options struct {
	// Columns selects the columns of each slot; only these are read. Without it, slots with names take the columns of
	// these names; other slots take the columns in order; without slots, each column is a slot. The columns in a struct
	// have names such as "a.b"; those of a map are "m.key" and "m.value". Columns, Default and Where are only for reading.
	Columns columns.List `json:"columns"`
	// Default is the value of nulls: a number or its text; in a column of byte strings, the text. A null list is empty
	// then. nil: a null is an error.
	Default *columns.Value `json:"default"`
	// Where leaves out the row groups whose statistics show that no row meets all of the conditions. Other row groups
	// are read completely, with the rows that do not meet them.
	Where []Condition `json:"where"`
	// Compression of the pages that are written: "snappy" or "", "zstd", "gzip" or "none".
	Compression string `json:"compression"`
	// RowGroupRecords is the number of rows of each row group that is written. 0: 131,072, or fewer if they have more
	// than 64 MiB.
	RowGroupRecords int `json:"row_group_records"`
}

func init() {
	record.MustRegister(record.Format{
		Tag:         "parquet",
		Suffixes:    []string{".parquet", ".parq", ".pq"},
		NamesChoose: true,
		Options:     func() any { return new(Options) },
		Defaults:    map[string]any{"compression": "snappy"},
		Open:        Open,
		Create:      Create,
	})
}

// Open opens a file for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}
