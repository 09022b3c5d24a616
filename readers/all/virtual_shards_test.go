package all_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// shardsOf returns what a job reads of records with the numbers from 0 to n-1, in their order, by its definition: the
// virtual shards are runs of records, of which the first ones have one more, and one record of each comes in turn. That one
// record is another one in each pass if it is left out.
func shardsOf(n, total int, even string, pass int) (all []int64) {
	var starts []int
	for v := range total + 1 {
		starts = append(starts, v*(n/total)+min(v, n%total))
	}
	whole := n / total
	leftOut := whole - pass%(whole+1)
	for k := range whole {
		for v := range total {
			number := starts[v] + k
			if v < n%total && even == "drop" && k >= leftOut {
				number++
			}
			all = append(all, int64(number))
		}
	}
	for v := range total {
		switch left := n % total; {
		case left == 0 || even == "drop":
		case v < left:
			all = append(all, int64(starts[v+1]-1))
		case even == "repeat" && whole > 0:
			all = append(all, int64(starts[v+1]-1))
		case even == "repeat":
			all = append(all, int64(starts[v%left]))
		default:
			all = append(all, 0)
		}
	}
	return all
}

// everyOf returns every world-th number from the rank-th on.
func everyOf(all []int64, rank, world int) (own []int64) {
	for i := rank; i < len(all); i += world {
		own = append(own, all[i])
	}
	return own
}

// The order of a job follows from the number of records alone, for all formats, threads and numbers of processes.
func TestVirtualShards(t *testing.T) {
	for suffix, options := range indexed() {
		t.Run(suffix, func(t *testing.T) {
			names := store(t, t.TempDir(), suffix, unequal(suffix)...)
			passes := 3
			if testing.Short() {
				passes = 2
			}
			for i, test := range []struct {
				total, world, threads int
				even, io              string
			}{
				{48, 3, 2, "drop", "auto"}, {2000, 4, 3, "repeat", "read"}, {4, 4, 7, "pad", "map"},
				{1, 1, 1, "drop", "auto"}, {4, 1, 2, "repeat", "read"}, {48, 8, 1, "repeat", "auto"}, {925, 5, 2, "drop", "map"},
				{3000, 3, 3, "pad", "auto"},
			} {
				if testing.Short() && i > 2 {
					break
				}
				for _, rank := range slices.Compact([]int{0, test.world - 1}) {
					h, err := openIndexed(t, with(options, "filenames", names, "virtual_shards", test.total, "rank", rank, "world", test.world,
						"even", test.even, "num_threads", test.threads, "storage", map[string]any{"io": test.io}))
					if err != nil {
						t.Fatal(err)
					}
					for pass := range passes {
						want := everyOf(shardsOf(925, test.total, test.even, pass), rank, test.world)
						if found := passOf(t, h); !slices.Equal(found, want) || h.Length() != int64(len(want)) {
							t.Errorf("%+v, rank %d, pass %d: expected %d records, found %d, and length %d", test, rank, pass, len(want), len(found), h.Length())
						}
						if err := h.ReInit(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// A permutation of all records, or of files, is divided too: all processes together read each record once.
func TestVirtualShardsInRandomOrder(t *testing.T) {
	names := store(t, t.TempDir(), ".recordio", unequal(".recordio")...)
	for _, seed := range []string{"shuffle_records", "shuffle_files"} {
		var passes [2][]int64
		for _, world := range []int{1, 5, 25} {
			for pass := range passes {
				job := make([]int64, 925)
				for rank := range world {
					h, err := openIndexed(t, map[string]any{"filenames": names, "virtual_shards": 25, "rank": rank, "world": world, seed: 4})
					if err != nil {
						t.Fatal(err)
					}
					if err := h.Begin(uint64(pass)); err != nil {
						t.Fatal(err)
					}
					for i, number := range passOf(t, h) {
						job[rank+i*world] = number
					}
				}
				if passes[pass] == nil {
					passes[pass] = job
				}
				if !slices.Equal(job, passes[pass]) {
					t.Errorf("%s: %d processes have another order in pass %d", seed, world, pass)
				}
			}
		}
		for _, pass := range passes {
			if sorted := slices.Sorted(slices.Values(pass)); !slices.Equal(sorted, upTo(925)) {
				t.Errorf("%s: expected each of 925 records once", seed)
			}
		}
		if slices.Equal(passes[0], passes[1]) {
			t.Errorf("%s: two passes have the same order", seed)
		}
	}
}

// A pass goes on at every step, and several chains above it.
func TestVirtualShardsResume(t *testing.T) {
	steps := 60
	names := store(t, t.TempDir(), ".recordio", 7, 1, 13, 1, 20, 4)
	files := link{"open_files", map[string]any{"filenames": names, "virtual_shards": 6, "rank": 1, "world": 2, "shuffle_files": 1}}
	shuffle := link{"create_shuffle_reader", map[string]any{"buffer_size": 6, "seed": 1}}
	batch := link{"create_batch_reader", map[string]any{"batch_size": 4}}
	readertest.Resumes(t, steps, chainOf(t, files))
	readertest.Resumes(t, steps, chainOf(t, files, shuffle, batch, link{"create_double_buffer_reader", map[string]any{"depth": 2}}))
	readertest.Resumes(t, steps, chainOf(t, files, link{"create_multi_pass_reader", map[string]any{"pass_num": 2}}, shuffle, batch))
}

// Damage since the index was made is an error in the place of the record, behind all records before it in the order.
func TestDamageInAVirtualShard(t *testing.T) {
	names := store(t, t.TempDir(), ".csv", 500, 500)
	slots := []any{map[string]any{"dtype": "int64", "dims": []int{1}, "name": "npy"}}
	attributes := map[string]any{"filenames": names, "slots": slots, "virtual_shards": 10, "world": 2}
	if _, err := openIndexed(t, attributes); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(names[0])
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("\n250"))+1] = 'x' // record 250 is in virtual shard 2, which is the second one of rank 0
	if err := os.WriteFile(names[0], data, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(names[0], info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	whole := everyOf(shardsOf(1000, 10, "drop", 0), 0, 2)
	for _, threads := range []int{1, 3} {
		h, err := openIndexed(t, with(attributes, "num_threads", threads))
		if err != nil {
			t.Fatal(err)
		}
		for i, number := range whole[:slices.Index(whole, 250)] {
			tuple, err := h.ReadNext(context.Background())
			if err != nil {
				t.Fatalf("after %d: %v", i, err)
			}
			if found := numberOf(tuple); found != number {
				t.Fatalf("tuple %d: expected %d, found %d", i, number, found)
			}
			tuple.Release()
		}
		_, err = h.ReadNext(context.Background())
		readertest.Expect(t, err, pyfeed.Corrupt, `expected a number of int64, found "x50"`)
		if e := err.(*pyfeed.Error); e.At == nil || e.At.File != names[0] || e.At.Record != 250 {
			t.Errorf("expected record 250 of %s, found %v", names[0], e.At)
		}
	}
}

// Readers with more virtual shards than files that may be open close some.
func TestVirtualShardsOfManyFiles(t *testing.T) {
	counts := make([]int, 700)
	for i := range counts {
		counts[i] = 3
	}
	names := store(t, t.TempDir(), ".npy", counts...)
	h, err := openIndexed(t, map[string]any{"filenames": names, "virtual_shards": 600, "num_threads": 4, "storage": map[string]any{"io": "map"}})
	if err != nil {
		t.Fatal(err)
	}
	if found, want := passOf(t, h), shardsOf(2100, 600, "drop", 0); !slices.Equal(found, want) {
		t.Errorf("expected %d records, found %d", len(want), len(found))
	}
}

func TestVirtualShardsThatAreRefused(t *testing.T) {
	names := store(t, t.TempDir(), ".npy", 10)
	for _, test := range []struct {
		more []any
		text string
	}{
		{[]any{"virtual_shards", -1}, "virtual_shards: expected 1 to 65536, found -1"},
		{[]any{"rank", 1}, "rank: expected 0 of world 1 without virtual_shards, found 1 of world 1"},
		{[]any{"virtual_shards", 4, "rank", -1}, "rank: expected 0 to world - 1, found -1, and world 1"},
		{[]any{"virtual_shards", 4, "world", 3}, "world: expected a number that divides virtual_shards 4, found 3: give virtual_shards 12 in all processes, from the beginning of the job"},
		{[]any{"virtual_shards", 11}, "virtual_shards: expected at most the number of records, 10, found 11: give fewer, or even=\"repeat\" or \"pad\""},
		{[]any{"virtual_shards", 4, "even", ""}, `open_files: even: expected "drop", "repeat" or "pad", found ""`},
	} {
		_, err := openIndexed(t, with(map[string]any{"filenames": names}, test.more...))
		readertest.Expect(t, err, pyfeed.Invalid, test.text)
		if t.Failed() {
			t.Fatal(fmt.Sprint(test.more))
		}
	}
}
