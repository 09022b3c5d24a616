package arrow

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// A folder that the method save_to_disk of Hugging Face's datasets has written: state.json lists its files in order. That
// of a DatasetDict has a folder for each split, which dataset_dict.json lists.
const (
	stateName  = "state.json"
	splitsName = "dataset_dict.json"
	maxState   = 64 << 20 // bytes of such a file
)

// datasetFiles returns the files of such a folder, in their order. is: the folder is one.
func datasetFiles(dir string) (files []string, is bool, err error) {
	var splits struct {
		Splits []string `json:"splits"`
	}
	if is, err = readJSON(filepath.Join(dir, splitsName), &splits); is || err != nil {
		if err == nil {
			err = pyfeed.Errorf(pyfeed.Invalid, "%s: expected the folder of one dataset, found that of several splits, %s: give the folder of a split, such as %q",
				dir, strings.Join(splits.Splits, ", "), filepath.Join(dir, strings.Join(splits.Splits[:min(1, len(splits.Splits))], "")))
		}
		return nil, true, err
	}
	path := filepath.Join(dir, stateName)
	var state struct {
		Files       []struct{ Filename string } `json:"_data_files"`
		Indices     []json.RawMessage           `json:"_indices_data_files"`
		IndicesFile []json.RawMessage           `json:"_indices_files"`
	}
	if is, err = readJSON(path, &state); !is || err != nil {
		return nil, is, err
	}
	invalid := func(format string, args ...any) ([]string, bool, error) {
		e := pyfeed.Errorf(pyfeed.Invalid, format, args...)
		e.At = &pyfeed.Location{File: path, Offset: -1, Record: -1}
		return nil, true, e
	}
	if state.Files == nil {
		return nil, false, nil // of another program
	}
	if len(state.Indices)+len(state.IndicesFile) > 0 {
		return invalid("_indices_data_files: expected a dataset whose rows are in their order, found one with indices of rows: call flatten_indices() before save_to_disk")
	}
	if len(state.Files) == 0 {
		return invalid("_data_files: expected at least 1 file, found none")
	}
	for _, f := range state.Files {
		name := f.Filename
		if name == "" || name != filepath.Base(name) || name == ".." || name == "." {
			return invalid("_data_files: expected the names of files in the folder, found %q", shorten(name))
		}
		files = append(files, filepath.Join(dir, name))
	}
	return files, true, nil
}

// readJSON reads a file, and returns whether there is one.
func readJSON(path string, into any) (is bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return false, nil
	}
	at := &pyfeed.Location{File: path, Offset: -1, Record: -1}
	if err != nil {
		return false, &pyfeed.Error{Kind: pyfeed.IO, Slot: -1, Text: err.(*os.PathError).Err.Error(), Cause: err, At: at}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxState+1))
	if err == nil && len(text) > maxState {
		err = errors.New("more than 64 MiB")
	}
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return false, &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, Text: "expected a JSON object, found " + err.Error(), At: at}
	}
	return true, nil
}
