package arrow

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

var tested = formattest.Format{Suffix: ".arrow", Open: Open, Begin: open}

// expected returns the rows of the files in testdata, which make.py has written there.
func expected(t testing.TB) map[string][]string {
	t.Helper()
	var all map[string][]string
	text, err := os.ReadFile("testdata/expected.json")
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// one is a default that all dtypes can represent.
var one = columns.Value("1")

// Files that other programs wrote have the values that those programs read.
func TestFilesOfOtherPrograms(t *testing.T) {
	for name, rows := range expected(t) {
		if name == "dataset" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := record.Config{}
			if name == "nulls.arrow" {
				c.Options = &Options{Default: &one}
			}
			for _, many := range []int{1, 2, 3, 100, 101} {
				t.Run(fmt.Sprint(many), func(t *testing.T) {
					tested.EachWay(t, read(t, name), c, func(t *testing.T, r record.Records, err error) {
						if err != nil {
							t.Fatal(err)
						}
						got, err := formattest.Lines(t, r, many)
						if err != io.EOF {
							t.Error(err)
						}
						formattest.ExpectTexts(t, got, rows...)
					})
				})
			}
		})
	}
}

// Reading goes on exactly from each position, however the file is read.
func TestSeeks(t *testing.T) {
	for _, name := range []string{"numbers.arrow", "numbers.arrows", "texts.arrow", "word.arrow", "lists.arrow", "lists.arrows", "zstd.arrow",
		"delta.arrow", "replaced.arrows"} {
		t.Run(name, func(t *testing.T) {
			if n := tested.Seeks(t, read(t, name), record.Config{}); n < 3 {
				t.Errorf("expected at least 3 positions, found %d", n)
			}
		})
	}
	t.Run("damaged", func(t *testing.T) {
		data := read(t, "numbers.arrows")
		at := bytes.LastIndex(data, []byte{0xff, 0xff, 0xff, 0xff, 0x88}) // the last record batch
		if at < 0 {
			at = bytes.LastIndex(data[:len(data)-8], []byte{0xff, 0xff, 0xff, 0xff})
		}
		data[at+8] ^= 0x7f
		tested.Seeks(t, data, record.Config{})
	})
}

// Reading can be interrupted at any poll. The next call goes on.
func TestInterrupted(t *testing.T) {
	for _, name := range []string{"lists.arrows", "zstd.arrow", "delta.arrow", "replaced.arrows"} {
		if n := tested.Interrupted(t, read(t, name), record.Config{}); n < 2 {
			t.Errorf("%s: expected at least 2 polls, found %d", name, n)
		}
	}
}

// The search for a message behind damage can be interrupted at any poll, also where it reads what looks like a message.
func TestInterruptedSearch(t *testing.T) {
	const n = 1 << 14
	values := make([]uint64, n)
	values[n/2] = 600_000<<32 | continuation // like the prefix of a message of that size
	slots := []pyfeed.Slot{{DType: pyfeed.Uint64, Dims: pyfeed.Dims{n}}}
	path := filepath.Join(t.TempDir(), "a.arrows")
	w, err := Create(path, &record.Config{Slots: slots, Options: &Options{BatchRecords: 1}})
	if err != nil {
		t.Fatal(err)
	}
	for range 12 { // more than what is read at a time
		if err := w.Write(formattest.Tuple(formattest.TensorOf(values, n))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	batch := bytes.Index(data[8*n:], binary.LittleEndian.AppendUint32(nil, continuation)) + 8*n // the second one
	for batch%8 > 0 || binary.LittleEndian.Uint32(data[batch+4:]) > 1<<10 {
		batch += 4
		batch += bytes.Index(data[batch:], binary.LittleEndian.AppendUint32(nil, continuation))
	}
	binary.LittleEndian.PutUint32(data[batch+4:], 1<<30)
	if polls := tested.Interrupted(t, data, record.Config{}); polls < 20 {
		t.Errorf("expected at least 20 polls, found %d", polls)
	}
}

// A folder of Hugging Face has the files of its state.json, in their order.
func TestDataset(t *testing.T) {
	files, is, err := datasetFiles("testdata/dataset")
	if !is || err != nil {
		t.Fatal(is, err)
	}
	formattest.ExpectTexts(t, files, "testdata/dataset/data-00000-of-00002.arrow", "testdata/dataset/data-00001-of-00002.arrow")
	formattest.WithPool(t, func(pool *memory.Pool) {
		var rows []string
		for _, file := range files {
			r, err := Open(file, &record.Config{Pool: pool})
			if err != nil {
				t.Fatal(err)
			}
			got, err := formattest.Lines(t, r, 3)
			if err != io.EOF {
				t.Error(err)
			}
			rows = append(rows, got...)
			r.Close()
		}
		formattest.ExpectTexts(t, rows, expected(t)["dataset"]...)
	})
}

func TestDatasetFolders(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"dataset_dict.json", `{"splits": ["train", "test"]}`, "found that of several splits, train, test: give the folder of a split"},
		{"state.json", `{"_data_files": [{"filename": "../a.arrow"}]}`, `expected the names of files in the folder, found "../a.arrow"`},
		{"state.json", `{"_data_files": []}`, "expected at least 1 file, found none"},
		{"state.json", `{"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "b.arrow"}]}`, "call flatten_indices()"},
		{"state.json", `{`, "expected a JSON object"},
		{"state.json", `{"x": 1}`, ""},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, c.name), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		files, is, err := datasetFiles(dir)
		formattest.ExpectError(t, err, c.want)
		if c.want == "" && is || len(files) > 0 {
			t.Errorf("%s: found %v, %v", c.text, files, is)
		}
	}
}

// Single rows are copied: other rows of their windows are not held.
func TestSingleRows(t *testing.T) {
	for name, all := range expected(t) {
		if name == "dataset" || name == "nulls.arrow" {
			continue
		}
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := &record.Config{Pool: pool}
			c.Storage.Block = 4096
			c.Storage.IO = "read"
			r, err := Open(formattest.File(t, "a.arrow", read(t, name)), c)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			for i := range all {
				at := (i*7 + 3) % len(all)
				if err := r.(record.Seeker).Seek(record.Position{Offset: int64(at)}, int64(at), true); err != nil {
					t.Fatal(err)
				}
				out := []*pyfeed.Tuple{pyfeed.NewTuple(0)}
				if n, err := r.Read(out); n != 1 || err != nil {
					t.Fatalf("%s, row %d: found %d, %v", name, at, n, err)
				}
				if found := formattest.FormatTuple(out[0]); found != all[at] {
					t.Errorf("%s, row %d: expected %s, found %s", name, at, all[at], found)
				}
				out[0].Release()
			}
		})
	}
}
