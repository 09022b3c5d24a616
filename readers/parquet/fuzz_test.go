package parquet

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
)

// fuzzed is a pool that all runs share, to reuse memory.
var fuzzed = memory.NewPool(memory.File)

// FuzzRecords reads any bytes. Reading must not panic, and every tuple must have the size that its dims say.
func FuzzRecords(f *testing.F) {
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		defer formattest.CheckLeaks(t)()
		for _, options := range []string{"{}", `{"default": -1}`} {
			c := with(t, options)
			c.Pool = fuzzed
			_ = readDamaged(t, data, &c) // any error is fine
		}
	})
}
