package all_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/internal/limits"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/files"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/state"
)

// link is a reader of a chain: an operator and its attributes, to which those that differ between attempts are added.
type link struct {
	op         string
	attributes map[string]any
}

// chainOf makes a chain of links. Readers of files have another number of threads in each attempt.
func chainOf(t testing.TB, links ...link) readertest.Chain {
	return func(attempt int) (*readers.ReaderHolder, func()) {
		scope := pyfeed.NewScope(nil)
		var below []string
		for i, l := range links {
			attributes := map[string]any{}
			for name, value := range l.attributes {
				attributes[name] = value
			}
			if l.op == "open_files" {
				attributes["num_threads"] = []int{2, 1, 8, 3, 5}[attempt%5]
			}
			encoded, err := json.Marshal(attributes)
			if err != nil {
				t.Fatal(err)
			}
			name, ofFiles := fmt.Sprint("reader", i), l.op == "open_files"
			inputs := below
			if below = []string{name}; ofFiles { // a zip may follow
				below, inputs = append(inputs, name), nil
			}
			if err := ops.Create(scope, l.op, name, inputs, encoded); err != nil {
				t.Fatalf("%s %s: %v", l.op, encoded, err)
			}
		}
		h, err := readers.FindHolder(scope, below[0])
		if err != nil {
			t.Fatal(err)
		}
		return h, func() { h.Drop(); scope.Drop() }
	}
}

// store writes files of so many instances of one number each, which counts on from file to file.
func store(t testing.TB, dir, suffix string, counts ...int) (names []string) {
	number := int64(0)
	for i, count := range counts {
		name := filepath.Join(dir, fmt.Sprintf("%03d%s", i, suffix))
		w, err := files.CreateWriter(name, "", []byte(`{"names": ["npy"]}`))
		if err != nil {
			t.Fatal(err)
		}
		for range count {
			tuple := pyfeed.NewTuple(1)
			tuple.Slots[0] = readertest.Numbers(pyfeed.Dims{1}, number)
			if err := w.Write(tuple); err != nil {
				t.Fatal(err)
			}
			number++
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// formatsOfNumbers are suffixes of files whose instances are single numbers, and the options to read them.
var formatsOfNumbers = map[string]map[string]any{
	".npy":         {},
	".npy.gz":      {},
	".npz":         {},
	".recordio":    {},
	".recordio.sz": {},
	".raw":         {"slots": []any{map[string]any{"dtype": "int64", "dims": []int{1}}}},
	".csv":         {},
	".csv.zst":     {},
	".tar":         {},
	".tar.gz":      {},
}

func with(attributes map[string]any, more ...any) map[string]any {
	out := map[string]any{}
	for name, value := range attributes {
		out[name] = value
	}
	for i := 0; i < len(more); i += 2 {
		out[more[i].(string)] = more[i+1]
	}
	return out
}

// anchorsOften makes readers of files take anchors often.
func anchorsOften(t *testing.T) {
	instances, bytes := limits.AnchorInstances, limits.AnchorBytes
	limits.AnchorInstances, limits.AnchorBytes = 5, 40
	t.Cleanup(func() { limits.AnchorInstances, limits.AnchorBytes = instances, bytes })
}

// Every format goes on at every step, with several files at a time and by itself.
func TestFormatsResumeAtEveryStep(t *testing.T) {
	anchorsOften(t)
	steps := 100 // more than a pass
	counts := []int{7, 1, 30, 12, 1, 1, 1, 1, 1, 1, 1, 25, 3}
	if testing.Short() {
		steps, counts = 34, []int{7, 1, 13, 1, 1, 1, 4}
	}
	for suffix, options := range formatsOfNumbers {
		t.Run(suffix, func(t *testing.T) {
			steps := steps
			if testing.Short() && strings.Count(suffix, ".") > 1 {
				steps = 15 // a compressed file is decompressed from its beginning at each step
			}
			names := store(t, t.TempDir(), suffix, counts...)
			files := link{"open_files", with(options, "filenames", names, "interleave", 3)}
			readertest.Resumes(t, steps, chainOf(t, files))
			alone := link{"create_file_reader", with(options, "filenames", names[2:3])}
			readertest.Resumes(t, steps*7/10, chainOf(t, alone))
		})
	}
}

// A chain of up to six readers goes on at every step.
func TestChainsResumeAtEveryStep(t *testing.T) {
	chains, steps := 60, 120
	counts := []int{7, 1, 60, 12, 1, 1, 1, 1, 1, 1, 1, 25, 3, 40, 9}
	if testing.Short() { // each step reads all that follow, twice
		chains, steps, counts = 10, 36, []int{7, 1, 13, 1, 1, 1, 5, 9}
	}
	anchorsOften(t)
	dir := t.TempDir()
	names := store(t, dir, ".recordio", counts...)
	for seed := range chains {
		random := rand.New(rand.NewPCG(uint64(seed), 0))
		source := link{"open_files", map[string]any{"filenames": names, "interleave": 1 + random.IntN(5)}}
		switch random.IntN(5) {
		case 0:
			source.attributes["shuffle_files"] = seed
		case 1:
			source = link{"create_random_data_generator", map[string]any{"slots": []any{map[string]any{"dtype": "int64", "dims": []int{1}}},
				"high": 1000, "count": 100 + random.IntN(80), "seed": seed}}
		case 2:
			source = link{"create_range_reader", map[string]any{"count": 100 + random.IntN(80), "shuffle": seed}}
		}
		links := []link{source}
		for range random.IntN(5) {
			links = append(links, []link{
				{"create_shuffle_reader", map[string]any{"buffer_size": 1 + random.IntN(60), "seed": seed}},
				{"create_batch_reader", map[string]any{"batch_size": 1 + random.IntN(4), "drop_last": random.IntN(2) == 0}},
				{"create_multi_pass_reader", map[string]any{"pass_num": 1 + random.IntN(3)}},
				{"create_shard_reader", map[string]any{"rank": random.IntN(2), "world": 2}},
				{"create_shard_reader", map[string]any{"rank": random.IntN(3), "world": 3, "even": readertest.Evens[random.IntN(3)]}},
				{"create_double_buffer_reader", map[string]any{"depth": 1 + random.IntN(3)}},
			}[random.IntN(6)])
			if last := links[len(links)-1]; last.op == "create_batch_reader" && random.IntN(2) == 0 {
				world := last.attributes["batch_size"].(int)
				links = append(links, link{"create_split_batches_reader", map[string]any{"rank": random.IntN(world), "world": world,
					"even": readertest.Evens[random.IntN(3)]}})
			}
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			defer func() {
				if t.Failed() {
					t.Logf("chain %+v", links)
				}
			}()
			readertest.Resumes(t, steps, chainOf(t, links...))
		})
	}
}

// Chains go on at every step in the middle of a block that a shuffle has copied, and of joined Blocks.
func TestChainsOfBlocksResumeAtEveryStep(t *testing.T) {
	anchorsOften(t)
	dir := t.TempDir()
	names := store(t, dir, ".npy", 7, 90, 1, 40)
	other := store(t, t.TempDir(), ".npy", 30, 108)
	steps := 50
	if testing.Short() {
		steps = 30
	}
	for _, db := range []bool{false, true} {
		for _, zipped := range []bool{false, true} {
			t.Run(fmt.Sprint(db, zipped), func(t *testing.T) {
				chain := []link{{"open_files", attributes("filenames", names, "interleave", 2)}}
				if zipped {
					chain = append(chain, link{"open_files", attributes("filenames", other, "interleave", 2)}, link{"create_zip_reader", nil})
				}
				chain = append(chain, link{"create_shuffle_reader", attributes("buffer_size", 44, "seed", 3)}, link{"create_batch_reader", attributes("batch_size", 8)})
				if db {
					chain = append(chain, link{"create_double_buffer_reader", attributes("depth", 3)})
				}
				readertest.Resumes(t, steps, chainOf(t, chain...))
			})
		}
	}
}

// Taking a state, of eight files that are being read.
func BenchmarkState(b *testing.B) {
	names := store(b, b.TempDir(), ".recordio", 400, 400, 400, 400, 400, 400, 400, 400, 400, 400)
	top, end := chainOf(b, link{"open_files", map[string]any{"filenames": names}}, link{"create_shuffle_reader", map[string]any{"buffer_size": 1000}},
		link{"create_batch_reader", map[string]any{"batch_size": 32}}, link{"create_double_buffer_reader", nil})(0)
	defer end()
	for range 40 {
		tuple, err := top.ReadNext(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		tuple.Release()
	}
	for b.Loop() {
		if _, err := top.State(); err != nil {
			b.Fatal(err)
		}
	}
}

// A state with wrong content and a right checksum is refused, or the reader delivers something and comes to an end. It
// never panics, and never reads for ever.
func TestHostileStates(t *testing.T) {
	anchorsOften(t)
	dir := t.TempDir()
	names := store(t, dir, ".recordio", 7, 1, 30, 12, 1, 25)
	arrays := store(t, t.TempDir(), ".npy", 20, 9, 31)
	chains := [][]link{
		{{"open_files", map[string]any{"filenames": names, "interleave": 3}}, {"create_shuffle_reader", map[string]any{"buffer_size": 9}}, {"create_batch_reader", map[string]any{"batch_size": 3}}},
		{{"create_file_reader", map[string]any{"filenames": names[2:3]}}, {"create_shard_reader", map[string]any{"rank": 1, "world": 2}}},
		{{"open_files", map[string]any{"filenames": arrays, "shuffle_files": 1}}, {"create_multi_pass_reader", map[string]any{"pass_num": 3}}, {"create_double_buffer_reader", nil}},
		{{"create_random_data_generator", map[string]any{"slots": []any{map[string]any{"dtype": "int64", "dims": []int{1}}}, "high": 9, "count": 50}}},
		{{"open_files", map[string]any{"filenames": arrays}}, {"create_shard_reader", map[string]any{"rank": 2, "world": 7, "even": "repeat"}},
			{"create_batch_reader", map[string]any{"batch_size": 2}}, {"create_split_batches_reader", map[string]any{"rank": 1, "world": 2}}},
	}
	rounds := 4000
	if testing.Short() {
		rounds = 200
	}
	random := rand.New(rand.NewPCG(7, 0))
	hostile := []string{"-1", "0", "1", "7", "4096", "1099511627776", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "1e9", "0.5", `"x"`, "null", "[]", "{}", "true"}
	digits := regexp.MustCompile(`-?[0-9]+`)
	accepted := 0
	for round := range rounds {
		links := chains[round%len(chains)]
		top, end := chainOf(t, links...)(0)
		readertest.Steps(t, top, random.IntN(60))
		s, err := state.Decode(readertest.Save(t, top))
		if err != nil {
			t.Fatal(err)
		}
		end()
		for range 1 + random.IntN(2) {
			r := &s.Readers[random.IntN(len(s.Readers))]
			switch k := random.IntN(6); {
			case k == 0:
				s.N = []int64{0, 1, 59, 5000, 1 << 40, math.MaxInt64}[random.IntN(6)]
			case k == 1:
				s.Pass = []uint64{0, 1, 3, 1 << 40, math.MaxUint64}[random.IntN(5)]
			case k == 2:
				s.Readers = append(s.Readers, *r)
			case r.At != nil: // a number in it, or in its text
				places := digits.FindAllIndex(r.At, -1)
				if len(places) == 0 {
					continue
				}
				at := places[random.IntN(len(places))]
				r.At = slices.Concat(r.At[:at[0]:at[0]], []byte(hostile[random.IntN(len(hostile))]), r.At[at[1]:])
				if !json.Valid(r.At) {
					r.At = json.RawMessage("{}")
				}
			}
		}
		top, end = chainOf(t, links...)(1)
		if err := top.SetState(s.Encode(), random.IntN(2) == 0); err == nil {
			accepted++
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond) // n may be far behind the end
			for range 200 {
				tuple, err := top.ReadNext(ctx)
				if err == nil {
					tuple.Release()
					continue
				}
				var e *pyfeed.Error
				if errors.As(err, &e) && e.Kind == pyfeed.Fault {
					t.Errorf("round %d: state %s: %v", round, s.Encode(), err)
				}
				break
			}
			cancel()
		} else if kind := formattest.Kind(err); kind != pyfeed.Invalid && kind != pyfeed.State && kind != pyfeed.IO {
			t.Errorf("round %d: state %s: %v", round, s.Encode(), err)
		}
		end()
	}
	if accepted == 0 || accepted == rounds {
		t.Errorf("%d of %d were accepted", accepted, rounds)
	}
}
