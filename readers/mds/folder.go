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

// shardIndex is the content of index.json.
type shardIndex struct {
	Version int     `json:"version"`
	Shards  []shard `json:"shards"`
}

// cached is the index that was read last, since all shards of a folder are verified with the same one.
var cached struct {
	mu      sync.Mutex
	path    string
	size    int64
	changed time.Time
	index   *shardIndex
}

// readIndex reads the index of a folder. It returns nil if there is none, or if it is of another format.
func readIndex(dir string) (*shardIndex, error) {
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
		return cached.index, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, indexError(pyfeed.IO, path, err.Error(), err)
	}
	var any struct {
		Shards []struct {
			Format string `json:"format"`
		} `json:"shards"`
	}
	if json.Unmarshal(data, &any) != nil || len(any.Shards) == 0 || any.Shards[0].Format != "mds" {
		return nil, nil
	}
	x := new(shardIndex)
	if err = json.Unmarshal(data, x); err != nil {
		return nil, indexError(pyfeed.Corrupt, path, "expected the shards of a data set: "+err.Error(), nil)
	}
	if x.Version != 2 {
		return nil, indexError(pyfeed.Unsupported, path, fmt.Sprintf("expected version 2, found %d", x.Version), nil)
	}
	for i := range x.Shards {
		s := &x.Shards[i]
		if s.Format != "mds" || s.Raw == nil {
			return nil, indexError(pyfeed.Corrupt, path, fmt.Sprintf("shard %d: expected the format \"mds\" and raw_data, found %.40q", i, s.Format), nil)
		}
		for _, f := range []*storedFile{s.Raw, s.Zip} {
			if f != nil && !filepath.IsLocal(f.Basename) {
				return nil, indexError(pyfeed.Corrupt, path, fmt.Sprintf("shard %d: expected the name of a file in the folder, found %.100q", i, f.Basename), nil)
			}
		}
	}
	cached.path, cached.size, cached.changed, cached.index = path, info.Size(), info.ModTime(), x
	return x, nil
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
	x, err := readIndex(dir)
	if x == nil || err != nil {
		return nil, false, err
	}
	for _, s := range x.Shards {
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
	shards := make(map[string]json.RawMessage)
	cached.mu.Lock()
	cached.index, cached.path = nil, "" // two shards may be written within one tick of the file system's clock
	cached.mu.Unlock()
	x, err := readIndex(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return shards, nil
	}
	if err != nil {
		return nil, indexError(pyfeed.IO, path, err.Error(), err)
	}
	var entries struct {
		Shards []json.RawMessage `json:"shards"`
	}
	if x == nil || json.Unmarshal(data, &entries) != nil || len(entries.Shards) != len(x.Shards) {
		return nil, indexError(pyfeed.State, path, "update_index: expected no index, or one of a data set in this format, found another file", nil)
	}
	for i, s := range x.Shards {
		shards[s.Raw.Basename] = entries.Shards[i]
	}
	return shards, nil
}

// sizeOf returns the size of a file, in bytes.
func sizeOf(path string) (int64, error) {
	info, err := os.Stat(path)
	if err != nil {
		return 0, indexError(pyfeed.IO, path, err.Error(), err)
	}
	return info.Size(), nil
}
