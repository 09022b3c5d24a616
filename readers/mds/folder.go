package mds

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// indexName is the name of the file that lists the shards of a folder.
const indexName = "index.json"

// storedFile is a file of a shard, as the index describes it.
type storedFile struct {
	Basename string            `json:"basename"`
	Bytes    int64             `json:"bytes"`
	Hashes   map[string]string `json:"hashes"`
}

// shard is an entry of the index.
type shard struct {
	Format  string      `json:"format"`
	Samples int64       `json:"samples"`
	Raw     *storedFile `json:"raw_data"`
	Zip     *storedFile `json:"zip_data"`
}

// cached is the index that was read last, since all shards of a folder are verified with the same one.
var cached struct {
	mu      sync.Mutex
	path    string
	size    int64
	changed time.Time
	shards  []shard
}

// readIndex returns the shards in the index of a folder. It returns nil if there is no index, or one of another format.
func readIndex(dir string) ([]shard, error) {
	path := filepath.Join(dir, indexName)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || err == nil && !info.Mode().IsRegular() {
		return nil, nil
	}
	if err != nil {
		return nil, indexError(pyfeed.IO, path, err.Error(), err)
	}
	cached.mu.Lock()
	defer cached.mu.Unlock()
	if cached.path == path && cached.size == info.Size() && cached.changed.Equal(info.ModTime()) {
		return cached.shards, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, indexError(pyfeed.IO, path, err.Error(), err)
	}
	shards, _, err := parseIndex(path, data)
	if shards == nil || err != nil {
		return nil, err
	}
	cached.path, cached.size, cached.changed, cached.shards = path, info.Size(), info.ModTime(), shards
	return shards, nil
}

// parseIndex returns the shards in an index, and their entries as JSON. It returns nil for an index of another format.
func parseIndex(path string, data []byte) (shards []shard, entries []json.RawMessage, err error) {
	corrupt := func(format string, args ...any) ([]shard, []json.RawMessage, error) {
		return nil, nil, indexError(pyfeed.Corrupt, path, fmt.Sprintf(format, args...), nil)
	}
	var file struct {
		Version int               `json:"version"`
		Shards  []json.RawMessage `json:"shards"`
	}
	// A value of another type is left out, and the values behind it are decoded.
	wrong := json.Unmarshal(data, &file)
	if wrong != nil && !json.Valid(data) {
		return corrupt("expected an index as JSON, found %.40q: %s", data, record.TextOfJSONError(wrong))
	}
	var first shard
	if len(file.Shards) > 0 {
		_ = json.Unmarshal(file.Shards[0], &first) // the loop below returns the error
	}
	switch {
	case first.Format != "mds":
		return nil, nil, nil
	case wrong != nil:
		return corrupt("%s", record.TextOfJSONError(wrong))
	case file.Version != 2:
		return nil, nil, indexError(pyfeed.Unsupported, path, fmt.Sprintf("expected version 2, found %d", file.Version), nil)
	}
	shards = make([]shard, len(file.Shards))
	for i, entry := range file.Shards {
		s := &shards[i]
		if err := json.Unmarshal(entry, s); err != nil {
			return corrupt("shard %d: %s", i, record.TextOfJSONError(err))
		}
		if err := s.check(); err != nil {
			return corrupt("shard %d: %v", i, err)
		}
	}
	return shards, file.Shards, nil
}

// check returns an error about an entry that is not valid.
func (s *shard) check() error {
	switch {
	case s.Format != "mds":
		return fmt.Errorf("format: expected \"mds\", found %.40q", s.Format)
	case s.Samples < 0:
		return fmt.Errorf("samples: expected at least 0, found %d", s.Samples)
	case s.Raw == nil:
		return errors.New("raw_data: expected the file of the shard, found none")
	}
	for i, f := range []*storedFile{s.Raw, s.Zip} {
		name := []string{"raw_data", "zip_data"}[i]
		switch {
		case f == nil:
		case !filepath.IsLocal(f.Basename):
			return fmt.Errorf("%s.basename: expected the name of a file in the folder, found %.100q", name, f.Basename)
		case f.Bytes < 0:
			return fmt.Errorf("%s.bytes: expected at least 0, found %d", name, f.Bytes)
		}
	}
	return nil
}

func indexError(kind pyfeed.Kind, path, text string, cause error) error {
	var p *fs.PathError
	if errors.As(cause, &p) {
		text = p.Err.Error()
	}
	return &pyfeed.Error{Kind: kind, Slot: -1, Text: text, Cause: cause, At: &pyfeed.Location{File: path, Offset: -1, Record: -1}}
}

// Folder returns the shards of a data set, in the order of its index. A path to the index stands for its folder. ok is
// false if the folder is no data set of this format. If a shard is stored as it is and compressed, the former is read.
func Folder(dir string) (files []string, ok bool, err error) {
	if filepath.Base(dir) == indexName {
		dir = filepath.Dir(dir)
	}
	shards, err := readIndex(dir)
	if shards == nil || err != nil {
		return nil, false, err
	}
	for _, s := range shards {
		path := filepath.Join(dir, s.Raw.Basename)
		if s.Zip != nil {
			if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
				path = filepath.Join(dir, s.Zip.Basename)
			}
		}
		files = append(files, path)
	}
	return files, true, nil
}

// rawShards returns the entries of an index as JSON, by the names of their files. There are none if there is no index.
func rawShards(path string) (map[string]json.RawMessage, error) {
	byName := make(map[string]json.RawMessage)
	cached.mu.Lock()
	cached.shards, cached.path = nil, "" // two shards may be written within one tick of the file system's clock
	cached.mu.Unlock()
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return byName, nil
	}
	if err != nil {
		return nil, indexError(pyfeed.IO, path, err.Error(), err)
	}
	shards, entries, err := parseIndex(path, data)
	if err != nil {
		return nil, err
	}
	if shards == nil {
		return nil, indexError(pyfeed.State, path, "update_index: expected no index, or one of a data set in this format, found another file", nil)
	}
	for i, s := range shards {
		byName[s.Raw.Basename] = entries[i]
	}
	return byName, nil
}

// sizeOf returns the size of a file, in bytes.
func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, indexError(pyfeed.IO, path, err.Error(), err)
	}
	return info.Size(), nil
}
