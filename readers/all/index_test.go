package all_test

import (
	"archive/zip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// indexed are the formats of numbers whose files are not compressed.
func indexed() map[string]map[string]any {
	all := maps.Clone(formatsOfNumbers)
	maps.DeleteFunc(all, func(suffix string, _ map[string]any) bool { return strings.Count(suffix, ".") > 1 })
	return all
}

// openIndexed opens files in a scope of its own.
func openIndexed(t *testing.T, attributes map[string]any) (*readers.ReaderHolder, error) {
	t.Helper()
	return makeReader(t, "open_files", attributes)
}

// makeReader runs an operator that reads no other reader.
func makeReader(t *testing.T, op string, attributes map[string]any) (*readers.ReaderHolder, error) {
	t.Helper()
	encoded, err := json.Marshal(attributes)
	if err != nil {
		t.Fatal(err)
	}
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	if err := ops.Create(scope, op, "r", nil, encoded); err != nil {
		return nil, err
	}
	h, err := readers.FindHolder(scope, "r")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Drop)
	return h, nil
}

// passOf returns the numbers of the rest of a pass.
func passOf(t *testing.T, h *readers.ReaderHolder) (all []int64) {
	t.Helper()
	for {
		tuple, err := h.ReadNext(context.Background())
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("after %d: %v", len(all), err)
		}
		all = append(all, numberOf(tuple))
		tuple.Release()
	}
}

// numberOf returns the number of a tuple of a file that store wrote.
func numberOf(tuple *pyfeed.Tuple) int64 {
	return int64(binary.NativeEndian.Uint64(tuple.Slots[0].Data))
}

func upTo(n int64) (all []int64) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

// unequal returns numbers of records of files, which are 925 together.
func unequal(suffix string) []int {
	counts := []int{7, 1, 0, 300, 12, 1, 1, 0, 600, 3, 0}
	if slices.Contains([]string{".npy", ".npz", ".csv"}, suffix) { // store writes no such files without records
		counts = slices.DeleteFunc(counts, func(n int) bool { return n == 0 })
	}
	return counts
}

// Every record is delivered once in each pass, in another order, which no number of threads changes.
func TestShuffleOfAllRecords(t *testing.T) {
	var orders []string
	for suffix, options := range indexed() {
		t.Run(suffix, func(t *testing.T) {
			names := store(t, t.TempDir(), suffix, unequal(suffix)...)
			var passes [2][]int64
			for _, threads := range []int{1, 2, 7} {
				for _, io := range []string{"auto", "map", "read"} {
					h, err := openIndexed(t, with(options, "filenames", names, "shuffle_records", 5, "num_threads", threads, "storage", map[string]any{"io": io}))
					if err != nil {
						t.Fatal(err)
					}
					if n := h.Length(); n != 925 {
						t.Errorf("expected 925 records, found %d", n)
					}
					for pass := range passes {
						found := passOf(t, h)
						if passes[pass] == nil {
							passes[pass] = found
						}
						if !slices.Equal(found, passes[pass]) {
							t.Errorf("%d threads: pass %d has another order", threads, pass)
						}
						if err := h.ReInit(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			for pass := range passes {
				if sorted := slices.Sorted(slices.Values(passes[pass])); !slices.Equal(sorted, upTo(925)) {
					t.Errorf("pass %d: expected each of 925 numbers once, found %d numbers", pass, len(sorted))
				}
			}
			if slices.Equal(passes[0], passes[1]) {
				t.Error("two passes have the same order")
			}
			orders = append(orders, fmt.Sprint(passes))
		})
	}
	if slices.Sort(orders); len(slices.Compact(orders)) != 1 {
		t.Errorf("expected the same order for all formats, found %d orders", len(slices.Compact(orders)))
	}
}

// A pass goes on at every step, and several chains above it.
func TestShuffleOfAllRecordsResumes(t *testing.T) {
	steps := 60
	names := store(t, t.TempDir(), ".recordio", 7, 1, 13, 1, 20, 4)
	files := link{"open_files", map[string]any{"filenames": names, "shuffle_records": 3}}
	readertest.Resumes(t, steps, chainOf(t, files))
	batch := link{"create_batch_reader", map[string]any{"batch_size": 4, "drop_last": true}}
	readertest.Resumes(t, steps, chainOf(t, files, batch, link{"create_split_batches_reader", map[string]any{"rank": 1, "world": 2}},
		link{"create_double_buffer_reader", map[string]any{"depth": 2}}))
	readertest.Resumes(t, steps, chainOf(t, files, link{"create_multi_pass_reader", map[string]any{"pass_num": 2}}, batch))
}

// Any record can be read by its number, by several threads, while the reader is read in order.
func TestRecordsByNumber(t *testing.T) {
	for suffix, options := range indexed() {
		t.Run(suffix, func(t *testing.T) {
			names := store(t, t.TempDir(), suffix, unequal(suffix)...)
			h, err := openIndexed(t, with(options, "filenames", names, "index", true, "interleave", 3, "shuffle_files", 1))
			if err != nil {
				t.Fatal(err)
			}
			var threads sync.WaitGroup
			for seed := range uint64(3) {
				threads.Go(func() {
					random := rand.New(rand.NewPCG(seed, 0))
					for range 200 {
						i := random.Int64N(925)
						tuple, err := h.At(context.Background(), i)
						if err != nil {
							t.Error(err)
							return
						}
						if n := numberOf(tuple); n != i {
							t.Errorf("record %d: found %d", i, n)
						}
						tuple.Release()
					}
				})
			}
			if sorted := slices.Sorted(slices.Values(passOf(t, h))); !slices.Equal(sorted, upTo(925)) {
				t.Errorf("expected each of 925 numbers once, found %d numbers", len(sorted))
			}
			threads.Wait()
			for _, i := range []int64{-1, 925, 1 << 62} {
				_, err := h.At(context.Background(), i)
				readertest.Expect(t, err, pyfeed.Invalid, fmt.Sprintf("index: expected the number of one of 925 records, found %d", i))
			}
		})
	}
}

func TestReadersWithoutRecordsByNumber(t *testing.T) {
	names := store(t, t.TempDir(), ".csv", 3)
	h, err := openIndexed(t, map[string]any{"filenames": names})
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.At(context.Background(), 0)
	readertest.Expect(t, err, pyfeed.Unsupported, "the reader open_files has no records by number: expected one of open_files with index=True")
	b, end := chainOf(t, link{"open_files", map[string]any{"filenames": names, "index": true}}, link{"create_batch_reader", map[string]any{"batch_size": 2}})(0)
	defer end()
	if n := b.Length(); n != 2 {
		t.Errorf("expected 2 batches, found %d", n)
	}
	_, err = b.At(context.Background(), 0)
	readertest.Expect(t, err, pyfeed.Unsupported, "has no records by number")
}

// Indexes beside the files, or in a directory, are made once, and again after a change of the file or of themselves.
func TestIndexesAreMadeWhenNeeded(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	names := store(t, dir, ".csv", 30, 4)
	beside := filepath.Join(dir, ".000.csv.pfindex")
	count := func(attributes map[string]any) int64 {
		t.Helper()
		h, err := openIndexed(t, with(attributes, "filenames", names))
		if err != nil {
			t.Fatal(err)
		}
		if all := passOf(t, h); int64(len(all)) != h.Length() {
			t.Errorf("expected %d records, found %d", h.Length(), len(all))
		}
		return h.Length()
	}
	madeAt := func(path string) os.FileInfo {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	index := map[string]any{"index": true}
	if n := count(index); n != 34 {
		t.Fatalf("expected 34 records, found %d", n)
	}
	first := madeAt(beside)
	count(map[string]any{"shuffle_records": 1})
	if again := madeAt(beside); !os.SameFile(first, again) {
		t.Error("the index was made again")
	}

	f, err := os.OpenFile(names[0], os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("77\n"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if n := count(index); n != 35 {
		t.Errorf("after a change of the file: expected 35 records, found %d", n)
	}
	second := madeAt(beside)
	if os.SameFile(first, second) {
		t.Error("the index was not made again")
	}

	data, err := os.ReadFile(beside)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string][]byte{"empty": nil, "cut off": data[:70], "another count": slices.Concat(data[:48], []byte{1}, data[49:]),
		"no index": []byte(strings.Repeat("x", 100)), "longer": append(slices.Clone(data), 0)} {
		if err := os.WriteFile(beside, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		if n := count(index); n != 35 {
			t.Errorf("%s: expected 35 records, found %d", name, n)
		}
		if again, err := os.ReadFile(beside); err != nil || !slices.Equal(again, data) {
			t.Errorf("%s: the index was not made again", name)
		}
	}

	if n := count(map[string]any{"index_dir": other}); n != 35 {
		t.Errorf("expected 35 records, found %d", n)
	}
	found, err := filepath.Glob(filepath.Join(other, ".00*.csv-*.pfindex"))
	if err != nil || len(found) != 2 {
		t.Errorf("expected 2 indexes in the directory, found %v", found)
	}
	left, err := filepath.Glob(filepath.Join(dir, ".*.partial"))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if all, err := openIndexed(t, map[string]any{"filenames": []string{dir}}); err != nil || len(passOf(t, all)) != 35 {
		t.Errorf("a directory with indexes: %v", err)
	}
}

// Several processes may make the same index at the same time.
func TestIndexesMadeAtTheSameTime(t *testing.T) {
	names := store(t, t.TempDir(), ".recordio", 300, 400)
	var threads sync.WaitGroup
	for range 8 {
		threads.Go(func() {
			encoded, _ := json.Marshal(map[string]any{"filenames": names, "index": true, "num_threads": 2})
			scope := pyfeed.NewScope(nil)
			defer scope.Drop()
			if err := ops.Create(scope, "open_files", "r", nil, encoded); err != nil {
				t.Error(err)
				return
			}
			h, err := readers.FindHolder(scope, "r")
			if err != nil {
				t.Error(err)
				return
			}
			defer h.Drop()
			if n := h.Length(); n != 700 {
				t.Errorf("expected 700 records, found %d", n)
			}
		})
	}
	threads.Wait()
}

func TestDamageAndIndexes(t *testing.T) {
	dir := t.TempDir()
	names := store(t, dir, ".csv", 5, 5)
	if err := os.WriteFile(names[0], []byte("npy\n0\n1\nx\n3\n4\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	slots := []any{map[string]any{"dtype": "int64", "dims": []int{1}, "name": "npy"}}
	attributes := map[string]any{"filenames": names, "slots": slots, "index": true}
	_, err := openIndexed(t, attributes)
	readertest.Expect(t, err, pyfeed.Corrupt, `column "npy": expected a number of int64, found "x"`)
	h, err := openIndexed(t, with(attributes, "on_corrupt", "skip", "shuffle_records", 1))
	if err != nil {
		t.Fatal(err)
	}
	if all := slices.Sorted(slices.Values(passOf(t, h))); !slices.Equal(all, []int64{0, 1, 3, 4, 5, 6, 7, 8, 9}) {
		t.Errorf("found %d", all)
	}
	_, err = openIndexed(t, attributes)
	readertest.Expect(t, err, pyfeed.Corrupt, "index: expected no damage, found 1 damaged places when the index was made: ")
}

// A file that was replaced or changed since the reader was made is an error at its first record, not other records.
func TestAFileThatIsAnotherThanWasCounted(t *testing.T) {
	for _, suffix := range []string{".csv", ".npy"} {
		for name, change := range map[string]func(path, other string) error{
			"replaced":  func(path, other string) error { return os.Rename(other, path) },
			"rewritten": func(path, other string) error { data, _ := os.ReadFile(other); return os.WriteFile(path, data, 0o666) },
			"touched":   func(path, _ string) error { return os.Chtimes(path, time.Time{}, time.Unix(1, 0)) },
		} {
			dir := t.TempDir()
			names, other := store(t, dir, suffix, 30), store(t, t.TempDir(), suffix, 31)
			h, err := openIndexed(t, map[string]any{"filenames": names, "shuffle_records": 1})
			if err != nil {
				t.Fatal(err)
			}
			if all := passOf(t, h); len(all) != 30 {
				t.Fatalf("%s: found %d records", suffix, len(all))
			}
			if err := change(names[0], other[0]); err != nil {
				t.Fatal(err)
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
			_, err = h.ReadNext(context.Background())
			readertest.Expect(t, err, pyfeed.State, "the file has changed since its records were counted: expected ")
			_, err = h.At(context.Background(), 3)
			readertest.Expect(t, err, pyfeed.State, "the file has changed since its records were counted: expected ")
			if t.Failed() {
				t.Fatalf("%s, %s", suffix, name)
			}
		}
	}
}

// The index of one dtype is not that of another, in which other records are damaged. Options that are defaults do not matter.
func TestWhatAnIndexIsMadeFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(path, []byte("a\n1\n2.5\n3\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	open := func(dtype string, more ...any) *readers.ReaderHolder {
		t.Helper()
		slots := []any{map[string]any{"dtype": dtype, "dims": []int{1}, "name": "a"}}
		h, err := openIndexed(t, with(map[string]any{"filenames": []string{path}, "slots": slots, "index": true, "on_corrupt": "skip"}, more...))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if n := open("int64").Length(); n != 2 {
		t.Errorf("expected 2 records, found %d", n)
	}
	if n := open("float64").Length(); n != 3 {
		t.Errorf("expected 3 records, found %d", n)
	}
	beside := filepath.Join(filepath.Dir(path), ".a.csv.pfindex")
	before, err := os.Stat(beside)
	if err != nil {
		t.Fatal(err)
	}
	open("float64", "options", map[string]any{"delimiter": ",", "quote": `"`, "comment": ""}, "storage", map[string]any{"compression": "none"})
	if after, err := os.Stat(beside); err != nil || !os.SameFile(before, after) {
		t.Errorf("the index was made again: %v", err)
	}
}

// Truncated arrays have the number of records of their header. The records that are there can be read.
func TestRecordsOfATruncatedArray(t *testing.T) {
	names := store(t, t.TempDir(), ".npy", 50_000)
	if err := os.Truncate(names[0], 300_000); err != nil {
		t.Fatal(err)
	}
	h, err := openIndexed(t, map[string]any{"filenames": names, "index": true})
	if err != nil {
		t.Fatal(err)
	}
	tuple, err := h.At(context.Background(), 5)
	if err != nil {
		t.Fatal(err)
	}
	tuple.Release()
	_, err = h.At(context.Background(), 49_999)
	readertest.Expect(t, err, pyfeed.Corrupt, "expected ")
}

// Readers keep fewer files open than the process may open, and close some if there are no descriptors left.
func TestFewDescriptors(t *testing.T) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	counts := make([]int, 120)
	for i := range counts {
		counts[i] = 13_000 // larger than files that are read at once
	}
	names := store(t, t.TempDir(), ".npy", counts...)
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = uint64(len(open) + 40)
	var all []*readers.ReaderHolder
	for range 2 {
		h, err := openIndexed(t, map[string]any{"filenames": names, "shuffle_records": 1, "num_threads": 4})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)
	for range 3000 {
		for _, h := range all {
			tuple, err := h.ReadNext(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			tuple.Release()
		}
	}
}

// A file that changes while it is read, after the index was made, is an error.
func TestAFileThatChangesUnderItsIndex(t *testing.T) {
	names := store(t, t.TempDir(), ".csv", 2000)
	h, err := openIndexed(t, map[string]any{"filenames": names, "shuffle_records": 1, "num_threads": 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(names[0], []byte("npy\n1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	for {
		tuple, err := h.ReadNext(context.Background())
		if err != nil {
			if err == io.EOF {
				t.Error("expected an error, found the end")
			}
			break
		}
		tuple.Release()
	}
	_, err = h.At(context.Background(), 1999)
	if err == nil {
		t.Error("expected an error, found a record")
	}
}

// inflated writes an npz file whose array is compressed.
func inflated(t *testing.T, dir string) []string {
	t.Helper()
	path := filepath.Join(dir, "inflated.npz")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z := zip.NewWriter(f)
	w, err := z.Create("x.npy")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(store(t, t.TempDir(), ".npy", 10)[0])
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return []string{path}
}

func TestWhatCannotHaveAnIndex(t *testing.T) {
	dir := t.TempDir()
	packed := store(t, dir, ".csv.gz", 5)
	names := store(t, dir, ".csv", 5)
	for _, test := range []struct {
		attributes map[string]any
		kind       pyfeed.Kind
		text       string
	}{
		{map[string]any{"filenames": packed, "index": true}, pyfeed.Unsupported, "index: expected a file that is not compressed, found one that is: records in it can only be read in order"},
		{map[string]any{"filenames": inflated(t, dir), "index": true}, pyfeed.Unsupported, "index: expected arrays that are not compressed, found some that are: each thread would keep all of them in memory"},
		{map[string]any{"filenames": names, "shuffle_records": 1, "shuffle_files": 2}, pyfeed.Invalid, "shuffle_files: expected none with shuffle_records, which permutes the records of all files, found 2"},
		{map[string]any{"filenames": names, "shuffle_records": 1, "verify_first": true}, pyfeed.Invalid, "verify_first: expected false with shuffle_records and virtual_shards, found true"},
		{map[string]any{"filenames": names, "index_dir": filepath.Join(dir, "missing")}, pyfeed.IO, "no such file or directory: index_dir must be a directory that exists"},
	} {
		_, err := openIndexed(t, test.attributes)
		readertest.Expect(t, err, test.kind, test.text)
	}
	scope := readertest.Scope(t)
	encoded, _ := json.Marshal(map[string]any{"filenames": names, "index": true})
	err := ops.Create(scope, "create_file_reader", "r", nil, encoded)
	readertest.Expect(t, err, pyfeed.Invalid, "create_file_reader: expected no index, found one of index, index_dir, shuffle_records and virtual_shards: open_files has them")
}

// States of readers with another seed, without the permutation, or with another number of records are refused.
func TestStatesOfAShuffleOfAllRecords(t *testing.T) {
	dir := t.TempDir()
	names := store(t, dir, ".npy", 10, 20)
	open := func(more ...any) *readers.ReaderHolder {
		t.Helper()
		h, err := openIndexed(t, with(map[string]any{"filenames": names}, more...))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open("shuffle_records", 1)
	want := passOf(t, h)
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	readertest.Steps(t, h, 7)
	state := readertest.Save(t, h)
	if len(state) > 400 {
		t.Errorf("expected a state of at most 400 bytes, found %d: %s", len(state), state)
	}
	next := passOf(t, h)
	for _, threads := range []int{1, 3} {
		again := open("shuffle_records", 1, "num_threads", threads)
		if err := again.SetState(state, true); err != nil {
			t.Fatal(err)
		}
		if found := passOf(t, again); !slices.Equal(found, next) {
			t.Errorf("expected %d, found %d", next, found)
		}
	}
	if slices.Equal(want[7:], next) {
		t.Error("the state began pass 0")
	}
	for _, test := range []struct {
		more []any
		text string
	}{
		{[]any{"shuffle_records", 2}, `open_files: shuffle_records: expected "1", as when it was saved, found "2"`},
		{[]any{"index", true}, `the state is of another chain: open_files: `},
	} {
		err := open(test.more...).SetState(state, true)
		readertest.Expect(t, err, pyfeed.State, test.text)
	}
	store(t, dir, ".npy", 10, 21)
	err := open("shuffle_records", 1).SetState(state, true)
	readertest.Expect(t, err, pyfeed.State, "open_files: num_records: expected 30, as when it was saved, found 31")
}

// A reset, or the end of the reader, ends threads that wait for room.
func TestAResetOfRecordsByNumber(t *testing.T) {
	names := store(t, t.TempDir(), ".npy", 30_000)
	for name, test := range map[string]struct {
		attributes map[string]any
		want       []int64 // sorted, of the pass behind 20 resets
	}{
		"all records":    {map[string]any{"shuffle_records": 1}, upTo(30_000)},
		"virtual shards": {map[string]any{"virtual_shards": 6, "rank": 1, "world": 2}, slices.Sorted(slices.Values(everyOf(shardsOf(30_000, 6, "drop", 20), 1, 2)))},
	} {
		t.Run(name, func(t *testing.T) {
			readertest.Counted(t)
			h, err := openIndexed(t, with(test.attributes, "filenames", names, "num_threads", 2))
			if err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				readertest.Steps(t, h, 1+i*50)
				if err := h.ReInit(); err != nil {
					t.Fatal(err)
				}
			}
			if found := slices.Sorted(slices.Values(passOf(t, h))); !slices.Equal(found, test.want) {
				t.Errorf("expected %d records, found %d", len(test.want), len(found))
			}
		})
	}
}
