package all_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/files"
)

// Slots without names have the same names in all formats with columns, which are those of readers.
func TestNamesOfUnnamedSlots(t *testing.T) {
	for _, format := range []string{"arrow", "csv", "tsv", "jsonl", "parquet", "mds"} {
		t.Run(format, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a."+format)
			w, err := files.CreateWriter(path, "", nil)
			if err == nil {
				err = w.SetNames([]string{"x", ""})
			}
			if err != nil {
				t.Fatal(err)
			}
			one := pyfeed.Tuple{Slots: make([]pyfeed.LoDTensor, 3)}
			for i := range one.Slots {
				one.Slots[i].DType, one.Slots[i].Data = pyfeed.Int64, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0}
			}
			if err = w.Write(&one); err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			spec := build(t, fmt.Sprintf(`"filenames": [%q]`, path), nil).Spec()
			for i, name := range []string{"x", "slot1", "slot2"} {
				if found := spec.Slot(i).Name; found != name {
					t.Errorf("slot %d: expected the name %q, found %q", i, name, found)
				}
			}
		})
	}
}

// Names that are not UTF-8 are refused where a format stores them as text. csv stores any bytes.
func TestNamesThatAreNotUTF8(t *testing.T) {
	for _, format := range []string{"arrow", "jsonl", "parquet", "mds"} {
		dir := t.TempDir()
		w, err := files.CreateWriter(filepath.Join(dir, "a."+format), "", nil)
		if err == nil {
			err = w.SetNames([]string{"x", "y\xff"})
		}
		if err != nil {
			t.Fatal(err)
		}
		one := pyfeed.Tuple{Slots: make([]pyfeed.LoDTensor, 2)}
		for i := range one.Slots {
			one.Slots[i].DType, one.Slots[i].Data = pyfeed.Int8, []byte{0}
		}
		e, is := w.Write(&one).(*pyfeed.Error)
		if !is || e.Kind != pyfeed.Invalid || e.Slot != 1 || !strings.Contains(e.Text, format+`: names: expected UTF-8, found "y\xff"`) {
			t.Errorf("%s: expected an error about the name of slot 1, found %+v", format, e)
		}
		w.Abort()
		if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
			t.Errorf("%s: expected no file, found %v, %v", format, left, err)
		}
	}
}

// The formats that store names take those that a writer gets before its first tuple.
func TestNamesBeforeTheFirstTuple(t *testing.T) {
	for _, format := range []string{"arrow", "csv", "jsonl", "npz", "tar", "tfrecord"} {
		t.Run(format, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a."+format)
			w, err := files.CreateWriter(path, "", nil)
			if err == nil {
				err = w.SetNames([]string{"npy", "b.npy"})
			}
			if err != nil {
				t.Fatal(err)
			}
			one := pyfeed.Tuple{Slots: make([]pyfeed.LoDTensor, 2)}
			for i := range one.Slots {
				one.Slots[i].DType, one.Slots[i].Data = pyfeed.Int64, []byte{byte(i), 0, 0, 0, 0, 0, 0, 0}
			}
			if err = w.Write(&one); err != nil {
				t.Fatal(err)
			}
			refused, is := w.SetNames([]string{"x", "y"}).(*pyfeed.Error)
			if !is || refused.Kind != pyfeed.State {
				t.Errorf("after a tuple: expected an error of kind State, found %v", refused)
			}
			if err = w.Close(); err != nil {
				t.Fatal(err)
			}
			options := ""
			if format == "tfrecord" {
				options = `, "options": {"features": [{"name": "npy", "dtype": "int64"}, {"name": "b.npy", "dtype": "int64"}]}`
			}
			spec := build(t, fmt.Sprintf(`"filenames": [%q]%s`, path, options), nil).Spec()
			for i, name := range []string{"npy", "b.npy"} {
				if found := spec.Slot(i).Name; found != name {
					t.Errorf("slot %d: expected the name %q, found %q", i, name, found)
				}
			}
		})
	}
}
