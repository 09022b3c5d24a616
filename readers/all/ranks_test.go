package all_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// job is a number of ranks that each read a part of the same chain.
type job struct {
	ranks []*readers.ReaderHolder
	close []func()
}

func (j *job) end() {
	for _, close := range j.close {
		close()
	}
}

// jobOf makes a job whose ranks have split_batches above the links, and a double_buffer above that. attempt as for a
// Chain.
func jobOf(t *testing.T, links []link, world int, even string, attempt int) *job {
	j := new(job)
	for rank := range world {
		above := slices.Concat(links, []link{
			{"create_split_batches_reader", map[string]any{"rank": rank, "world": world, "even": even}},
			{"create_double_buffer_reader", map[string]any{"depth": 1 + rank%3}},
		})
		h, end := chainOf(t, above...)(attempt + rank)
		j.ranks, j.close = append(j.ranks, h), append(j.close, end)
	}
	return j
}

// nextNumbers reads a tuple of numbers; nil: the pass has ended.
func nextNumbers(t *testing.T, h *readers.ReaderHolder) (all []int64) {
	t.Helper()
	tuple, err := h.ReadNext(context.Background())
	if err == io.EOF {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer tuple.Release()
	for data := tuple.Slots[0].Data; len(data) > 0; data = data[8:] {
		all = append(all, int64(binary.NativeEndian.Uint64(data)))
	}
	return all
}

// Jobs of any number of ranks see the same batches, and go on as jobs of any other number, at any step, from the state of
// any rank.
func TestJobsOfAnyNumberOfRanksSeeTheSameBatches(t *testing.T) {
	anchorsOften(t)
	names := store(t, t.TempDir(), ".recordio", 33, 1, 60, 12, 7, 0, 45)
	worlds := []int{1, 2, 3, 4, 6, 8}
	rounds := 40
	if testing.Short() {
		rounds = 8
	}
	for seed := range rounds {
		random := rand.New(rand.NewPCG(uint64(seed), 3))
		even := readertest.Evens[seed%3]
		links := []link{
			{"open_files", map[string]any{"filenames": names, "interleave": 1 + random.IntN(5), "shuffle_files": seed}},
			{"create_shuffle_reader", map[string]any{"buffer_size": 1 + random.IntN(50), "seed": seed}},
			{"create_batch_reader", map[string]any{"batch_size": 24, "drop_last": seed%5 == 4}},
		}
		if passes := random.IntN(3); passes > 0 {
			links = slices.Insert(links, 2, link{"create_multi_pass_reader", map[string]any{"pass_num": passes}})
		}
		t.Run(fmt.Sprint(seed, even), func(t *testing.T) {
			whole, end := chainOf(t, links...)(0)
			defer end()
			j := jobOf(t, links, worlds[random.IntN(len(worlds))], even, seed)
			defer func() { j.end() }()
			for step := range 60 {
				if random.IntN(4) == 0 { // all processes are killed
					saved := readertest.Save(t, j.ranks[random.IntN(len(j.ranks))])
					j.end()
					j = jobOf(t, links, worlds[random.IntN(len(worlds))], even, seed+step)
					for _, h := range j.ranks {
						if err := h.SetState(saved, true); err != nil {
							t.Fatal(err)
						}
					}
				}
				batch, world := nextNumbers(t, whole), len(j.ranks)
				if batch != nil && len(readertest.PartOf(batch, 0, 0, world, even)) == 0 { // left out by all
					batch = nextNumbers(t, whole)
				}
				for rank, h := range j.ranks {
					expected := []int64(nil)
					if batch != nil {
						expected = readertest.PartOf(batch, 0, rank, world, even)
					}
					if found := nextNumbers(t, h); !slices.Equal(found, expected) {
						t.Fatalf("step %d: rank %d of %d: expected %v, found %v", step, rank, world, expected, found)
					}
				}
				if batch == nil {
					for _, h := range append(slices.Clone(j.ranks), whole) {
						if err := h.ReInit(); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
		})
	}
}

// With even, all parts of shard have the same number of tuples.
func TestEvenShards(t *testing.T) {
	names := store(t, t.TempDir(), ".npy", 5, 1, 9, 2)
	for count := range 18 {
		for world := 1; world < 9; world++ {
			for _, even := range readertest.Evens {
				for rank := range world {
					source := link{"create_random_data_generator", map[string]any{"slots": []any{map[string]any{"dtype": "int64", "dims": []int{1}}}, "high": 1 << 40, "count": count}}
					if count == 17 {
						source = link{"open_files", map[string]any{"filenames": names, "interleave": 2}}
					}
					shard := link{"create_shard_reader", map[string]any{"rank": rank, "world": world, "even": even}}
					whole, endWhole := chainOf(t, source)(0)
					part, endPart := chainOf(t, source, shard)(rank)
					expected := []int64(nil)
					var group []int64
					for n := range count {
						group = append(group, nextNumbers(t, whole)...)
						if len(group) == world || n == count-1 {
							expected = append(expected, readertest.PartOf(group, 0, rank, world, even)...)
							group = nil
						}
					}
					found := []int64(nil)
					for tuple := nextNumbers(t, part); tuple != nil; tuple = nextNumbers(t, part) {
						found = append(found, tuple...)
					}
					if !slices.Equal(found, expected) || part.Length() != int64(len(expected)) {
						t.Fatalf("%d tuples, %s, rank %d of %d: expected %v, found %v, and length %d", count, even, rank, world, expected, found, part.Length())
					}
					endWhole()
					endPart()
				}
			}
		}
	}
}
