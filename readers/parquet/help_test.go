package parquet

import (
	"testing"

	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

var tested = formattest.Format{Suffix: ".parquet", Open: Open, Begin: open, Create: Create, NotCompressed: true}

// with returns a Config with options.
func with(t testing.TB, options string) record.Config {
	return record.Config{Options: formattest.Options[Options](t, options)}
}

// value returns a value of an option.
func value(text string) *columns.Value { return (*columns.Value)(&text) }
