package all_test

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// A null without a default is an error about its slot and record in all formats with columns. It is no damage: with
// on_corrupt="skip", its record is not skipped, which would lose its other values.
func TestNullsAreNoDamage(t *testing.T) {
	for name, c := range map[string]struct {
		text          string // of the file, or else testdata
		columns       []any
		before, total int // records before the null, and all of them
	}{
		"a.csv":                             {"s,x\nfirst,1\nsecond,\nthird,3\n", []any{"s", "x"}, 1, 3},
		"a.tsv":                             {"s\tx\nfirst\t1\nsecond\t\nthird\t3\n", []any{"s", "x"}, 1, 3},
		"a.jsonl":                           {`{"s": "first", "x": 1}` + "\n" + `{"s": "second", "x": null}` + "\n" + `{"s": "third"}` + "\n", []any{"s", "x"}, 1, 3},
		"../parquet/testdata/nulls.parquet": {"", []any{"s", "n"}, 1, 4},
		"../arrow/testdata/nulls.arrow":     {"", []any{"s", "n"}, 1, 4},
	} {
		t.Run(filepath.Base(name), func(t *testing.T) {
			readertest.Counted(t)
			path := name
			if c.text != "" {
				path = filepath.Join(t.TempDir(), name)
				if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			read := func(options map[string]any, attempt int) (n int, err error) {
				h, end := chainOf(t, link{"open_files", attributes("filenames", []string{path}, "on_corrupt", "skip", "options", options)})(attempt)
				defer end()
				for {
					tuple, err := h.ReadNext(context.Background())
					if err != nil {
						return n, err
					}
					tuple.Release()
					n++
				}
			}
			for attempt := range 3 {
				n, err := read(attributes("columns", c.columns), attempt)
				e, is := err.(*pyfeed.Error)
				if n != c.before || !is || e.Kind != pyfeed.Invalid || e.Slot != 1 {
					t.Fatalf("expected %d records and an error about slot 1, found %d and %+v", c.before, n, err)
				}
				if e.At.Record != int64(c.before) || e.At.File != path || e.At.Offset < 0 || !strings.Contains(e.Text, "the option ") {
					t.Errorf("expected the file, byte and record %d, and advice, found %v", c.before, err)
				}
				var all []any
				for i, value := range []any{"", -1} {
					all = append(all, map[string]any{"columns": c.columns[i], "default": value})
				}
				if n, err = read(attributes("columns", all), attempt); n != c.total || err != io.EOF {
					t.Errorf("with defaults: expected %d records, found %d, %v", c.total, n, err)
				}
			}
		})
	}
}
