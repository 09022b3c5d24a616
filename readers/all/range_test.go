package all_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/permutation"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

func rangeOf(t *testing.T, attributes map[string]any) *readers.ReaderHolder {
	t.Helper()
	h, err := makeReader(t, "create_range_reader", attributes)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// rangeNumbers returns the numbers of a pass of a job by its definition: place k*total + shard is tuple k of a virtual shard.
func rangeNumbers(count, total int, even string, order func(uint64) uint64) (all []int64) {
	for k := range (count + total - 1) / total {
		for shard := range total {
			switch place := k*total + shard; {
			case (k+1)*total > count && even == "drop":
			case place < count:
				all = append(all, int64(order(uint64(place))))
			case even == "pad":
				all = append(all, -1)
			case k > 0: // the last one of the virtual shard again
				all = append(all, int64(order(uint64(place-total))))
			default: // the virtual shard has none
				all = append(all, int64(order(uint64(shard%count))))
			}
		}
	}
	return all
}

func TestRange(t *testing.T) {
	for _, count := range []int{0, 1, 9, 10, 100, 1001} {
		for _, shuffle := range []bool{false, true} {
			for _, total := range []int{0, 1, 6, 12} {
				for _, even := range readertest.Evens {
					attributes := map[string]any{"count": count}
					if total > 0 {
						attributes["virtual_shards"], attributes["even"] = total, even
					}
					if shuffle {
						attributes["shuffle"] = 7
					}
					if total > count && count > 0 && even == "drop" {
						continue // refused
					}
					for _, world := range []int{1, 2, 3} {
						if max(total, 1)%world > 0 {
							continue
						}
						for rank := range world {
							if total > 0 {
								attributes["rank"], attributes["world"] = rank, world
							}
							h := rangeOf(t, attributes)
							for pass := range 3 {
								order := func(i uint64) uint64 { return i }
								if shuffle {
									order = permutation.NewFeistel(uint64(count), 7, uint64(pass)).At
								}
								want := everyOf(rangeNumbers(count, max(total, 1), even, order), rank, world)
								if found := passOf(t, h); !slices.Equal(found, want) || h.Length() != int64(len(want)) {
									t.Fatalf("%v, pass %d: expected %v, found %v, and length %d", attributes, pass, want, found, h.Length())
								}
								if err := h.ReInit(); err != nil {
									t.Fatal(err)
								}
							}
						}
					}
				}
			}
		}
	}
}

// The state of any process of a job can be loaded by all processes of a job of another size.
func TestARangeResumesWithAnotherWorld(t *testing.T) {
	attributes := func(rank, world int) map[string]any {
		return map[string]any{"count": 103, "shuffle": 3, "virtual_shards": 12, "rank": rank, "world": world, "even": "repeat"}
	}
	want := rangeNumbers(103, 12, "repeat", permutation.NewFeistel(103, 3, 1).At)
	before := rangeOf(t, attributes(1, 2))
	if err := before.Begin(1); err != nil {
		t.Fatal(err)
	}
	for range 12 {
		nextNumbers(t, before)
	}
	saved := readertest.Save(t, before)
	for rank := range 3 {
		h := rangeOf(t, attributes(rank, 3))
		if err := h.SetState(saved, true); err != nil {
			t.Fatal(err)
		}
		if found := passOf(t, h); !slices.Equal(found, everyOf(want[24:], rank, 3)) {
			t.Errorf("rank %d: expected %v, found %v", rank, everyOf(want[24:], rank, 3), found)
		}
	}
	other := rangeOf(t, map[string]any{"count": 103, "shuffle": 4, "virtual_shards": 12, "even": "repeat"})
	readertest.Expect(t, other.SetState(saved, true), pyfeed.State, "shuffle")
	shorter := rangeOf(t, map[string]any{"count": 10, "shuffle": 3, "virtual_shards": 12, "even": "repeat"})
	readertest.Expect(t, shorter.SetState(saved, true), pyfeed.State, "count")
	readertest.Expect(t, shorter.SetState(saved, false), pyfeed.State, "expected 12 more tuples")
}

// Without virtual shards, at most world - 1 numbers are left out, and a job of any size goes on with a state.
func TestARangeWithoutVirtualShards(t *testing.T) {
	attributes := func(rank, world int) map[string]any {
		return map[string]any{"count": 103, "shuffle": 3, "rank": rank, "world": world}
	}
	want := rangeNumbers(103, 1, "drop", permutation.NewFeistel(103, 3, 0).At)
	before := rangeOf(t, attributes(1, 2))
	for range 30 {
		nextNumbers(t, before)
	}
	saved := readertest.Save(t, before)
	for rank := range 4 {
		h := rangeOf(t, attributes(rank, 4))
		if err := h.SetState(saved, true); err != nil {
			t.Fatal(err)
		}
		if found := passOf(t, h); !slices.Equal(found, everyOf(want[60:100], rank, 4)) {
			t.Errorf("rank %d: expected %v, found %v", rank, everyOf(want[60:100], rank, 4), found)
		}
	}
	// A pass of a job of 2 ends behind 102 numbers, and one of a job of 5 behind 100. Both go on with the next pass.
	ended := rangeOf(t, attributes(1, 2))
	if _, err := ended.BeginLoop(); err != nil {
		t.Fatal(err)
	}
	passOf(t, ended)
	saved = readertest.Save(t, ended)
	want = rangeNumbers(103, 1, "drop", permutation.NewFeistel(103, 3, 1).At)
	for _, world := range []int{1, 2, 5} {
		h := rangeOf(t, attributes(0, world))
		if err := h.SetState(saved, true); err != nil {
			t.Fatal(err)
		}
		if _, err := h.BeginLoop(); err != nil {
			t.Fatal(err)
		}
		expected := everyOf(want[:103-103%world], 0, world)
		if found := passOf(t, h); !slices.Equal(found, expected) {
			t.Errorf("world %d: expected %v, found %v", world, expected, found)
		}
	}
}

func TestRangesThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		attributes map[string]any
		part       string
	}{
		{map[string]any{}, "count: expected at least 0, found -1"},
		{map[string]any{"count": 5, "rank": 1}, "rank: expected 0 of world 1 without virtual_shards"},
		{map[string]any{"count": 5, "rank": 2, "world": 2}, "rank: expected 0 to world - 1, found 2, and world 2"},
		{map[string]any{"count": 5, "virtual_shards": 4, "world": 3}, "world: expected a number that divides virtual_shards 4, found 3"},
		{map[string]any{"count": 5, "virtual_shards": 4, "even": "odd"}, "even: expected"},
		{map[string]any{"count": 5, "world": -2}, "rank: expected 0 of world 1 without virtual_shards, found 0 of world -2"},
		{map[string]any{"count": 5, "world": 6}, "world: expected at most the number of records, 5, found 6"},
		{map[string]any{"count": 5, "virtual_shards": 6}, "virtual_shards: expected at most the number of records, 5, found 6"},
	} {
		t.Run(fmt.Sprint(c.attributes), func(t *testing.T) {
			_, err := makeReader(t, "create_range_reader", c.attributes)
			readertest.Expect(t, err, pyfeed.Invalid, c.part)
		})
	}
}
