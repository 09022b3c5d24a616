package all_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// A release writes its states once: go test ./readers/all -run StatesOfEarlierReleases -write-states VERSION
var writeStates = flag.String("write-states", "", "write the states of this release to testdata/states")

// savedChains are chains by the names of their states. Names of files are those in testdata/states/data.
var savedChains = map[string]struct {
	steps int
	links []link
}{
	"npy":      {20, []link{{"open_files", map[string]any{"filenames": "*.npy"}}}},
	"npz":      {20, []link{{"open_files", map[string]any{"filenames": "*.npz"}}}},
	"recordio": {20, []link{{"open_files", map[string]any{"filenames": "*.recordio"}}}},
	"csv":      {20, []link{{"open_files", map[string]any{"filenames": "*.csv"}}}},
	"zstd":     {20, []link{{"open_files", map[string]any{"filenames": "*.csv.zst"}}}},
	"tar":      {20, []link{{"open_files", map[string]any{"filenames": "*.tar"}}}},
	"tfrecord": {20, []link{{"open_files", map[string]any{"filenames": "*.tfrecord"}}}},
	"raw":      {20, []link{{"open_files", map[string]any{"filenames": "*.raw", "slots": []any{map[string]any{"dtype": "int64", "dims": []int{1}}}}}}},
	"one file": {7, []link{{"create_file_reader", map[string]any{"filenames": "0.recordio"}}}},
	"random":   {20, []link{{"create_random_data_generator", map[string]any{"slots": []any{map[string]any{"dtype": "int64", "dims": []int{1}}}, "high": 1000, "count": 50, "seed": 7}}}},
	"range":    {70, []link{{"create_range_reader", map[string]any{"count": 50, "shuffle": 7, "virtual_shards": 12, "rank": 1, "world": 2}}}},
	"all decorators": {9, []link{
		{"open_files", map[string]any{"filenames": "*.recordio", "interleave": 2, "shuffle_files": 3}},
		{"create_shard_reader", map[string]any{"rank": 1, "world": 2}},
		{"create_shuffle_reader", map[string]any{"buffer_size": 6, "seed": 5}},
		{"create_batch_reader", map[string]any{"batch_size": 3}},
		{"create_multi_pass_reader", map[string]any{"pass_num": 3}},
		{"create_double_buffer_reader", nil},
	}},
	"second pass": {45, []link{{"open_files", map[string]any{"filenames": "*.npy"}}, {"create_shuffle_reader", map[string]any{"buffer_size": 8, "seed": 1}}}},
}

// savedState is a file of a state.
type savedState struct {
	State json.RawMessage `json:"state"`
	Next  []string        `json:"next"` // the tuples and ends of passes that followed
}

// The states in testdata/states/VERSION were written by that release. They load for ever, and the same tuples follow.
func TestStatesOfEarlierReleases(t *testing.T) {
	anchorsOften(t)
	dir := t.TempDir()
	sources, err := filepath.Glob("testdata/states/data/*")
	if err != nil || len(sources) == 0 {
		t.Fatalf("no data: %v", err)
	}
	changed := time.Unix(1_700_000_000, 0) // states have the time of a file's last change, which a checkout does not keep
	for _, source := range sources {
		data, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.Base(source))
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, changed, changed); err != nil {
			t.Fatal(err)
		}
	}
	chain := func(name string) readertest.Chain {
		links := slices.Clone(savedChains[name].links)
		if pattern, is := links[0].attributes["filenames"].(string); is {
			links[0].attributes = with(links[0].attributes, "filenames", []string{filepath.Join(dir, pattern)})
		}
		return chainOf(t, links...)
	}
	if *writeStates != "" {
		folder := filepath.Join("testdata/states", *writeStates)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		for name, c := range savedChains {
			top, end := chain(name)(0)
			readertest.Steps(t, top, c.steps)
			s := savedState{State: readertest.Save(t, top)}
			s.Next = readertest.Steps(t, top, 12)
			end()
			data, err := json.MarshalIndent(s, "", " ")
			if err == nil {
				err = os.WriteFile(filepath.Join(folder, name+".json"), append(data, '\n'), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	paths, err := filepath.Glob("testdata/states/*/*.json")
	if err != nil || len(paths) < len(savedChains) {
		t.Fatalf("expected %d states or more, found %d, %v", len(savedChains), len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		t.Run(filepath.Base(filepath.Dir(path))+"/"+name, func(t *testing.T) {
			var s savedState
			data, err := os.ReadFile(path)
			if err == nil {
				err = json.Unmarshal(data, &s)
			}
			if err != nil {
				t.Fatal(err)
			}
			top, end := chain(name[:len(name)-len(".json")])(1)
			defer end()
			if err := top.SetState(s.State, true); err != nil {
				t.Fatal(err)
			}
			if found := readertest.Steps(t, top, len(s.Next)); !slices.Equal(found, s.Next) {
				t.Errorf("expected %q\nfound %q", s.Next, found)
			}
		})
	}
}
