package arrow

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Any bytes are read without a panic and without leaks: the tuples match the slots, damage is skipped up to an end, and
// a position leads to the same rows.
func FuzzArrow(f *testing.F) {
	files, err := filepath.Glob("testdata/*.arrow*")
	if err != nil || len(files) == 0 {
		f.Fatal(err)
	}
	for _, name := range append(files, "testdata/polars.ipc") {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint8(0))
		f.Add(data, uint8(3))
	}
	maxEmpty = 1000
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, mode uint8) {
		defer formattest.CheckLeaks(t)()
		c := record.Config{Pool: pool, Options: &Options{}}
		c.Storage.Compression = "none"
		if mode&1 != 0 {
			c.Options.(*Options).Default = &one
		}
		r, err := tested.Memory(data, &c)
		if err != nil {
			located(t, err)
			return
		}
		defer r.Close()
		slots, _, err := r.(record.Describer).Describe()
		if err != nil {
			t.Fatal(err)
		}
		spec, err := pyfeed.NewSpec(slots)
		if err != nil {
			t.Fatal(err)
		}
		var rows []string
		var place record.Position
		from, number := -1, int64(0)
		for errs := 0; errs < 200 && len(rows) < 2000; errs++ {
			if p, known := r.(record.Seeker).Position(); known && errs == 1 {
				place, from = p, len(rows)
				number, _ = r.(record.Numberer).Number()
			}
			_, err = formattest.Drain(t, r, 7+int(mode&2), func(_ int, tuple *pyfeed.Tuple) {
				if err := spec.Check(tuple); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, formattest.FormatTuple(tuple))
			})
			if err == io.EOF {
				break
			}
			located(t, err)
			if formattest.Kind(err) != pyfeed.Corrupt || r.Resync() != nil {
				break
			}
		}
		if from < 0 {
			return
		}
		if err := r.(record.Seeker).Seek(place, number, true); err != nil {
			t.Fatalf("seek to %+v: %v", place, err)
		}
		out := make([]*pyfeed.Tuple, 1)
		pyfeed.NewTuples(out, len(slots))
		if n, _ := r.Read(out); n == 1 && from < len(rows) && formattest.FormatTuple(out[0]) != rows[from] {
			t.Errorf("at %+v: expected %.100q, found %.100q", place, rows[from], formattest.FormatTuple(out[0]))
		}
		pyfeed.ReleaseAll(out)
	})
}

// located fails the test unless err has a file, or is about the arguments.
func located(t *testing.T, err error) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.At == nil || e.At.File == "" && !strings.Contains(e.Text, "compression") {
		t.Fatalf("expected an error with its file, found %v", err)
	}
	if err == storage.ErrInterrupted {
		t.Fatal(err)
	}
}

// The metadata parser reads any bytes without a panic, and visits no more tables than fit into them.
func FuzzMetadata(f *testing.F) {
	files, err := filepath.Glob("testdata/*.arrow*")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		if len(data) > 16 {
			f.Add(data[16:])
			f.Add(data[8:])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, err := parseMessage(data); err == nil {
			var h batchHeader
			_ = h.parse(m.header)
			if s, err := parseSchema(m.header, m.version); err == nil {
				if fields := s.count.nodes; fields > len(data) {
					t.Errorf("expected fewer fields than the %d bytes, found %d", len(data), fields)
				}
				columnsOf(s)
			}
		}
		_, _ = parseFooter(data)
	})
}
