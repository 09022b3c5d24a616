package readers

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// counted fails a test that does not give all its memory back.
func counted(t *testing.T) *pyfeed.Scope {
	t.Helper()
	return countedAfter(t, new(sync.WaitGroup))
}

// countedAfter is counted where others hold memory too, until what is in the scope has gone: they are waited for.
func countedAfter(t *testing.T, others *sync.WaitGroup) *pyfeed.Scope {
	t.Helper()
	before := memory.Count()
	scope := pyfeed.NewScope(nil)
	t.Cleanup(func() {
		scope.Drop()
		others.Wait()
		if after := memory.Count(); after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
	return scope
}

// create runs an operator and answers the reader it made.
func create(t *testing.T, scope *pyfeed.Scope, op, out string, ins []string, attributes string) *ReaderHolder {
	t.Helper()
	if err := Create(scope, op, out, ins, []byte(attributes)); err != nil {
		t.Fatal(err)
	}
	return reader(t, scope, out)
}

func openIDs(names []string, more string) string {
	quoted, _ := json.Marshal(names)
	return fmt.Sprintf(`{"filenames": %s, "slots": %s%s}`, quoted, idSlots, more)
}

// drain reads to the end: the ids in their order, and what came after them.
func drain(h *ReaderHolder) (all []int64, err error) {
	for {
		tuple, err := h.ReadNext(background)
		if err != nil {
			return all, err
		}
		got, err := found(tuple)
		tuple.Release()
		if err != nil {
			return all, err
		}
		all = append(all, got...)
	}
}

func drained(t *testing.T, h *ReaderHolder) []int64 {
	t.Helper()
	all, err := drain(h)
	if err != io.EOF {
		t.Fatal(err)
	}
	return all
}

func TestOrderedFilesComeTheSameForAnyNumberOfThreads(t *testing.T) {
	scope := counted(t)
	names, files := writeIDs(t, 1000, 3, 0, 700, 1, 1500, 0, 0, 90, 300, 12)
	var want []int64
	for _, tuple := range interleaved(files, 8)(0) {
		want = append(want, tuple...)
	}
	for _, threads := range []int{1, 2, 8} {
		h := create(t, scope, "open_files", fmt.Sprint("files", threads), nil, openIDs(names, fmt.Sprintf(`, "thread_num": %d`, threads)))
		for range 2 {
			if got := drained(t, h); !slices.Equal(got, want) {
				t.Fatalf("%d threads: expected %d ids as interleaved, found %d", threads, len(want), len(got))
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestUnorderedFilesComeWhole(t *testing.T) {
	scope := counted(t)
	names, files := writeIDs(t, 1000, 3, 0, 700, 1, 1500)
	h := create(t, scope, "open_files", "files", nil, openIDs(names, `, "ordered": false, "thread_num": 3`))
	got := drained(t, h)
	for _, in := range files { // each file's own order is kept
		var of []int64
		for _, id := range got {
			if len(in) > 0 && id >= in[0] && id <= in[len(in)-1] {
				of = append(of, id)
			}
		}
		if !slices.Equal(of, in) {
			t.Errorf("expected %d ids of a file in their order, found %d", len(in), len(of))
		}
	}
	if want := len(slices.Concat(files...)); len(got) != want {
		t.Errorf("expected %d ids, found %d", want, len(got))
	}
}

func TestManyThreadsReadEachTupleOnce(t *testing.T) {
	scope := counted(t)
	names, files := writeIDs(t, 5000, 4000, 1)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	create(t, scope, "create_shuffle_reader", "shuffled", []string{"files"}, `{"buffer_size": 500}`)
	h := create(t, scope, "create_double_buffer_reader", "top", []string{"shuffled"}, `{"depth": 3}`)
	var mu sync.Mutex
	var all []int64
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			got, err := drain(h)
			if err != io.EOF {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, got...)
		})
	}
	group.Wait()
	slices.Sort(all)
	if want := slices.Concat(files...); !slices.Equal(all, want) {
		t.Errorf("expected each of %d ids once, found %d", len(want), len(all))
	}
}

// What is read of files with a damaged number in one of them, and of one that is cut short.
func TestDamageIsRaisedInItsPlaceUntilReset(t *testing.T) {
	scope := counted(t)
	names, files := writeIDs(t, 30, 30)
	damage(t, names[1], 80, -5)
	h := create(t, scope, "open_files", "files", nil, openIDs(names, `, "interleave": 1`))
	for range 2 {
		got, err := drain(h)
		if want := slices.Concat(files[0], files[1][:10]); !slices.Equal(got, want) {
			t.Errorf("expected %v, found %v", want, got)
		}
		expect(t, err, pyfeed.Corrupt, "found -5")
		var e *pyfeed.Error
		if errors.As(err, &e); e.At == nil || *e.At != (pyfeed.Location{File: names[1], Offset: 80, Record: 10}) {
			t.Errorf("expected the place in the file, found %v", e.At)
		}
		if _, again := h.ReadNext(background); again == nil || again.Error() != err.Error() {
			t.Errorf("expected the error again, found %v", again)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func damage(t *testing.T, name string, offset int64, id int64) {
	t.Helper()
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err = f.WriteAt(binary.NativeEndian.AppendUint64(nil, uint64(id)), offset); err != nil {
		t.Fatal(err)
	}
}

func TestSkippedDamageIsCountedAndNamed(t *testing.T) {
	scope := counted(t)
	names, files := writeIDs(t, 30, 30)
	damage(t, names[1], 80, -5)
	damage(t, names[1], 88, -6)
	h := create(t, scope, "open_files", "files", nil, openIDs(names, `, "interleave": 1, "on_corrupt": "skip"`))
	want := slices.Concat(files[0], files[1][:10], files[1][12:])
	if got := drained(t, h); !slices.Equal(got, want) {
		t.Errorf("expected %v, found %v", want, got)
	}
	s := h.Stats()
	if s.Extra["corrupt"] != int64(2) {
		t.Errorf("expected 2 places, found %v", s.Extra["corrupt"])
	}
	if got := s.Extra["ledger"].([]damaged); got[1] != (damaged{names[1], 88, 11, false, "expected a number from 0 on, found -6"}) {
		t.Errorf("found %+v", got)
	}
}

func TestABatchBeforeDamageIsDelivered(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 10)
	damage(t, names[0], 40, -1)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	h := create(t, scope, "create_batch_reader", "batches", []string{"files"}, `{"batch_size": 4}`)
	got, err := drain(h)
	if !slices.Equal(got, []int64{0, 1, 2, 3, 4}) {
		t.Errorf("found %v", got)
	}
	expect(t, err, pyfeed.Corrupt, "found -1")
}

func TestInstancesThatDoNotFitAreRefusedByPlace(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 3)
	slots := `[{"dtype": "int64", "dims": []}, {"dtype": "float32", "dims": [-1], "lod_levels": 1}]`
	h := create(t, scope, "open_files", "files", nil, fmt.Sprintf(`{"filenames": [%q], "slots": %s}`, names[0], slots))
	_, err := h.ReadNext(background)
	expect(t, err, pyfeed.Type, "slot 1: dtype: expected float32, found int64")
	var e *pyfeed.Error
	if errors.As(err, &e); e.At == nil || e.At.File != names[0] || e.At.Record != 0 || e.Slot != 1 {
		t.Errorf("expected file, record and slot, found %+v", e)
	}
}

func TestOnlySoManyFilesAreOpen(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, slices.Repeat([]int{2000}, 40)...)
	for _, ordered := range []bool{true, false} {
		h := create(t, scope, "open_files", "files", nil, openIDs(names, fmt.Sprintf(`, "thread_num": 2, "interleave": 3, "ordered": %v`, ordered)))
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		if opened := h.Stats().Extra["opened"].(int); opened > 4 {
			t.Errorf("ordered %v: expected the files of the lanes and one more, found %d", ordered, opened)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNothingIsReadBeforeTheFirstRead(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 100)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	create(t, scope, "create_shuffle_reader", "s", []string{"files"}, `{"buffer_size": 10}`)
	create(t, scope, "create_double_buffer_reader", "d", []string{"s"}, ``)
	h := reader(t, scope, "files")
	if s := h.Stats(); s.Tuples != 0 || s.Extra["opened"] != 0 {
		t.Errorf("found %+v", s)
	}
}

func TestShuffleHasOneOrderOnEveryMachine(t *testing.T) {
	tuples := make([]*pyfeed.Tuple, 12)
	numbers := map[*pyfeed.Tuple]int{}
	order := func(seed, pass, block uint64) (got []int) {
		for i := range tuples {
			tuples[i] = &pyfeed.Tuple{}
			numbers[tuples[i]] = i
		}
		permute(tuples, seed, pass, block, nil)
		for _, t := range tuples {
			got = append(got, numbers[t])
		}
		return got
	}
	for _, c := range []struct {
		seed, pass, block uint64
		want              string
	}{
		{0, 0, 0, "[7 8 11 4 0 5 10 6 3 1 9 2]"}, {1, 0, 0, "[5 1 3 6 4 0 2 8 11 9 7 10]"}, {1, 1, 0, "[6 9 1 10 3 11 7 4 0 5 2 8]"}, {1, 0, 1, "[11 1 4 3 2 6 7 0 10 8 5 9]"},
	} {
		if got := fmt.Sprint(order(c.seed, c.pass, c.block)); got != c.want {
			t.Errorf("seed %d, pass %d, block %d: expected %s, found %s", c.seed, c.pass, c.block, c.want, got)
		}
	}
}

func TestAMultiPassThatIsEmptySaysSo(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 0)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	h := create(t, scope, "create_multi_pass_reader", "passes", []string{"files"}, `{"pass_num": 3}`)
	_, err := h.ReadNext(background)
	expect(t, err, pyfeed.State, "pass 0 had no tuples")
}

func TestThePassOfATupleGoesWithIt(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 4)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	create(t, scope, "create_multi_pass_reader", "passes", []string{"files"}, `{"pass_num": 3}`)
	mapped := create(t, scope, "create_map_reader", "mapped", []string{"passes"}, `{}`)
	go func() {
		for w := mapped.Workers(); ; {
			tuple, ticket, err := w.Take(background)
			if err != nil {
				return
			}
			tuple.Pass = 0 // what a worker makes has none
			if err := w.Give(ticket, tuple); err != nil {
				t.Error(err)
			}
		}
	}()
	create(t, scope, "create_batch_reader", "batches", []string{"mapped"}, `{"batch_size": 2}`)
	h := create(t, scope, "create_double_buffer_reader", "top", []string{"batches"}, `{"depth": 5}`)
	for i := range 6 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		if tuple.Pass != int64(i/2) || h.Stats().PassID != int64(i/2) {
			t.Errorf("batch %d: expected pass %d, found %d and %d", i, i/2, tuple.Pass, h.Stats().PassID)
		}
		tuple.Release()
	}
}

func TestZipEndsWithTheShortestOrRefuses(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 7, 10)
	create(t, scope, "open_files", "a", nil, openIDs(names[:1], ""))
	create(t, scope, "open_files", "b", nil, openIDs(names[1:], ""))
	h := create(t, scope, "create_zip_reader", "zip", []string{"a", "b"}, "")
	for range 2 {
		for i := range int64(7) {
			tuple, err := h.ReadNext(background)
			if err != nil {
				t.Fatal(err)
			}
			second := binary.NativeEndian.Uint64(tuple.Slots[2].Data)
			if got, err := found(tuple); err != nil || got[0] != i || second != uint64(7+i) || len(tuple.Slots) != 4 {
				t.Errorf("tuple %d: found %v and %d, %v", i, got, second, err)
			}
			tuple.Release()
		}
		if _, err := h.ReadNext(background); err != io.EOF {
			t.Errorf("expected the end, found %v", err)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	create(t, scope, "open_files", "a2", nil, openIDs(names[:1], ""))
	create(t, scope, "open_files", "b2", nil, openIDs(names[1:], ""))
	strict := create(t, scope, "create_zip_reader", "strict", []string{"a2", "b2"}, `{"strict": true}`)
	got, err := drain(strict)
	if len(got) != 7 {
		t.Errorf("expected 7 tuples before, found %d", len(got))
	}
	expect(t, err, pyfeed.State, "found an end of readers [0] and more tuples of [1]")
	err = Create(scope, "create_zip_reader", "one", []string{"a"}, nil)
	expect(t, err, pyfeed.Invalid, "expected 2 or more, found 1")
}

// A reset wakes those who wait, in whatever they wait.
func TestResetWhileAReadWaits(t *testing.T) {
	for _, op := range []string{"create_double_buffer_reader", "create_shuffle_reader", "create_map_reader", "create_batch_reader", "create_multi_pass_reader", "create_shard_reader"} {
		t.Run(op, func(t *testing.T) {
			scope, q := feed(t, pyfeed.Options{Capacity: 4, Slots: cells, Restartable: true})
			attributes := map[string]string{"create_shuffle_reader": `{"buffer_size": 3}`, "create_batch_reader": `{"batch_size": 3}`,
				"create_multi_pass_reader": `{"pass_num": 2}`, "create_shard_reader": `{"rank": 0, "world": 1}`}[op]
			h := create(t, scope, op, "top", []string{"reader"}, attributes)
			waits := make(chan error)
			go func() {
				_, err := h.ReadNext(background)
				waits <- err
			}()
			for q.Info().WaitingConsumers == 0 && op != "create_map_reader" || q.Info().Pass == 0 && op != "create_map_reader" {
				select {
				case err := <-waits:
					t.Fatalf("expected to wait, found %v", err)
				default:
				}
			}
			if op == "create_map_reader" { // which waits for a worker
				m := h.reader.(*MapReader)
				for waiting := 0; waiting == 0; {
					m.mu.Lock()
					waiting = m.consumers.Len()
					m.mu.Unlock()
				}
			}
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
			expect(t, <-waits, pyfeed.Cancelled, "reset")
		})
	}
}

func TestAContextEndsAWait(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: 4, Slots: cells})
	h := create(t, scope, "create_double_buffer_reader", "top", []string{"reader"}, "")
	ctx, cancel := context.WithCancelCause(background)
	waits := make(chan error)
	go func() {
		_, err := h.ReadNext(ctx)
		waits <- err
	}()
	for q.Info().WaitingConsumers == 0 {
	}
	mine := errors.New("mine")
	cancel(mine)
	if err := <-waits; err != mine {
		t.Errorf("expected the cause, found %v", err)
	}
	push(t, q, numbers(pyfeed.Dims{2}, 1, 2))
	if got := next(t, h); got != "[2] [] [1 2]" {
		t.Errorf("found %s", got)
	}
}

func TestWhatReadsAheadWithoutEndStops(t *testing.T) {
	for op, attributes := range map[string]string{
		"create_double_buffer_reader": `{"depth": 3}`,
		"create_shuffle_reader":       `{"buffer_size": 100}`,
		"create_map_reader":           `{}`,
	} {
		var workers sync.WaitGroup
		scope := countedAfter(t, &workers)
		create(t, scope, "create_random_data_generator", "random", nil, `{"slots": [{"dtype": "uint8", "dims": []}]}`)
		h := create(t, scope, op, "top", []string{"random"}, attributes)
		if w := h.Workers(); w != nil {
			workers.Go(func() {
				for {
					tuple, ticket, err := w.Take(background)
					if err != nil {
						return
					}
					_ = w.Give(ticket, tuple)
				}
			})
		}
		for range 3 {
			tuple, err := h.ReadNext(background)
			if err != nil {
				t.Fatal(err)
			}
			tuple.Release()
			if err := h.ReInit(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestMapDeliversAFailureInItsPlace(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 10)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	if err := Create(scope, "create_map_reader", "map", []string{"files"}, []byte(`{"capacity": 4}`)); err != nil {
		t.Fatal(err)
	}
	h, err := find(scope, "map")
	if err != nil {
		t.Fatal(err)
	}
	w := h.Workers()
	mine := errors.New("mine")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			tuple, ticket, err := w.Take(background)
			if err != nil {
				expect(t, err, pyfeed.Closed, "is gone")
				return
			}
			if all, _ := found(tuple); all[0] == 3 {
				tuple.Release()
				w.Fail(ticket, mine)
			} else if err := w.Give(ticket, tuple); err != nil {
				t.Error(err)
			}
		}
	}()
	for range 3 {
		got, err := drain(h)
		if !slices.Equal(got, []int64{0, 1, 2}) || err != mine {
			t.Errorf("found %v, then %v", got, err)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := scope.Erase("map"); err != nil {
		t.Fatal(err)
	}
	h.Drop()
	<-done
}

func TestAMapRefusesWhatDoesNotFit(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 1)
	create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	h := create(t, scope, "create_map_reader", "map", []string{"files"}, `{"slots": [{"dtype": "int64", "dims": [3]}]}`)
	go func() { _, _ = h.HasNext(background) }()
	w := h.Workers()
	tuple, ticket, err := w.Take(background)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, w.Give(ticket, tuple), pyfeed.Slots, "expected 1, found 2")
	tuple.Release()
	w.Fail(ticket, errors.New("mine"))
}

func TestNamesOfFilesAndFormats(t *testing.T) {
	scope := counted(t)
	dir := t.TempDir()
	for _, name := range []string{"b.ids", "a.ids", "c.ids.gz", ".hidden.ids", "tagged", "other.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		names  []string
		format string
		want   string
	}{
		{[]string{"a.ids", "b.ids"}, "", "a.ids b.ids"},
		{[]string{"b.ids", "a.ids"}, "", "b.ids a.ids"},
		{[]string{"*.ids"}, "", "a.ids b.ids"},
		{[]string{"*.ids*"}, "", "a.ids b.ids c.ids.gz"},
		{[]string{"ids:tagged"}, "", "tagged"},
		{[]string{"ids:t*"}, "", "tagged"},
		{[]string{"tagged"}, "ids", "tagged"},
		{[]string{"ids:tagged"}, "ids", "tagged"},
		{[]string{"."}, "ids", "a.ids b.ids c.ids.gz other.txt tagged"},
	} {
		var names []string
		for _, n := range c.names {
			tag, rest, tagged := strings.Cut(n, ":")
			if !tagged {
				tag, rest = "", n
			} else {
				tag += ":"
			}
			names = append(names, tag+filepath.Join(dir, rest))
		}
		sources, err := list(background, names, c.format)
		var got []string
		for _, s := range sources {
			got = append(got, filepath.Base(s.path))
		}
		if err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("%v as %q: expected %s, found %v, %v", c.names, c.format, c.want, got, err)
		}
	}
	open := func(attributes string) error { return Create(scope, "open_files", "x", nil, []byte(attributes)) }
	in := func(name string) string { return `{"filenames": ["` + filepath.Join(dir, name) + `"]}` }
	expect(t, open(in("other.txt")), pyfeed.Invalid, "the formats are cut, ids")
	expect(t, open(in(".")), pyfeed.Invalid, "other.txt: expected a name with the prefix or suffix")
	expect(t, open(in("none*.ids")), pyfeed.Invalid, "expected files that match, found none")
	expect(t, open(`{"filenames": []}`), pyfeed.Invalid, "expected at least 1")
	expect(t, open(`{"filenames": ["x"], "interleave": "2"}`), pyfeed.Invalid, "attributes: interleave: expected integer, found string")
	expect(t, open(`{"filenames": {"x": 1}}`), pyfeed.Invalid, "attributes: filenames: expected array, found object")
	expect(t, open(`{"filename": "x"}`), pyfeed.Invalid, `unknown field "filename"; there are filenames, format, slots, thread_num`)
	expect(t, open(in("a.ids")), pyfeed.Invalid, `format "ids" does not say what its instances look like: give slots`)
	expect(t, open(`{"filenames": ["x"], "format": "none"}`), pyfeed.Invalid, "expected one of cut, ids")
	expect(t, open(`{"filenames": ["x"], "format": "none"}`), pyfeed.Invalid, `found "none"`)
	err := open(in("missing.ids"))
	expect(t, err, pyfeed.IO, "no such file")
	if !errors.Is(err, syscall.ENOENT) {
		t.Errorf("expected ENOENT in the chain of %v", err)
	}
	expect(t, Register(Format{Tag: "ids", Open: openNothing}), pyfeed.State, `there is a format "ids" already`)
	expect(t, Register(Format{Tag: "ids2", Suffixes: []string{".ids"}, Open: openNothing}), pyfeed.State, `the suffix .ids is that of format "ids"`)
	expect(t, Register(Format{Tag: "a:b", Open: openNothing}), pyfeed.Invalid, "expected a tag without any of")
	expect(t, Create(scope, "create_nothing", "x", nil, nil), pyfeed.NotFound, "create_batch_reader, create_double_buffer_reader")
}

func expand(path string) ([]string, error) { return (&lister{ctx: background}).expand(path) }

func TestNamesThatLeadNowhere(t *testing.T) {
	dir := t.TempDir()
	real := filepath.Join(dir, "real")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub.ids", "a.ids"), 0o755), os.Mkdir(real, 0o755),
		os.WriteFile(filepath.Join(real, "a.ids"), nil, 0o644), os.WriteFile(filepath.Join(real, ".b.ids"), nil, 0o644),
		os.Symlink(filepath.Join(real, "a.ids"), filepath.Join(dir, "link.ids")), os.Symlink(real, filepath.Join(dir, "linked")),
		syscall.Mkfifo(filepath.Join(real, "pipe.ids"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for pattern, want := range map[string]string{
		"*.ids":        "link.ids",
		"":             "link.ids",
		"real":         "real/a.ids",
		"real/*":       "real/a.ids real/pipe.ids",
		"real/.*":      "real/.b.ids",
		"*/a.ids":      "linked/a.ids real/a.ids",
		"*/[a]*.ids":   "linked/a.ids real/a.ids",
		"linked/?.ids": "linked/a.ids",
		"link.ids/*":   "",
		"none/*":       "",
		"*/":           "",
	} {
		found, err := expand(filepath.Join(dir, "") + "/" + pattern)
		for i, path := range found {
			found[i], _ = filepath.Rel(dir, path)
		}
		if got := strings.Join(found, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: expected %q, found %q, %v", pattern, want, got, err)
		}
	}
	if err := os.Symlink("nowhere", filepath.Join(real, "c.ids")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{real, filepath.Join(real, "*.ids"), filepath.Join(dir, "*", "c*")} {
		_, err := expand(name)
		expect(t, err, pyfeed.IO, "no such file")
		if at := new(pyfeed.Error); !errors.As(err, &at) || filepath.Base(at.At.File) != "c.ids" {
			t.Errorf("expected c.ids to be named, found %v", err)
		}
	}
	if found, err := expand(filepath.Join(real, "[ab]*")); err != nil || len(found) != 1 {
		t.Errorf("expected links that do not match to be left alone, found %v, %v", found, err)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	_, err := expand(filepath.Join(dir, "g*", "x*"))
	expect(t, err, pyfeed.IO, "no such file or directory, among what "+filepath.Join(dir, "g*", "x*"))
	_, err = expand(filepath.Join(dir, "[", "x*"))
	expect(t, err, pyfeed.Invalid, "not a glob")
}

func TestWhatAGlobMatches(t *testing.T) {
	names := []string{"", "a", "ab", "b", "aab", "abb", "a.b", ".a", "*", "a*b", "[a]", "\\*", "ä", "aä", "\xff", "a\xffb", "a/b"}
	patterns := append(slices.Clone(names), "a*", "*a", "*b*", "a*a", "aa*ab", "**", "?", "a?b", "[ab]*", `\**`, "*[", "*.b", "ä*", "*\xff")
	for _, pattern := range patterns {
		if _, bad := filepath.Match(pattern, ""); bad != nil {
			continue // they are refused before
		}
		for _, name := range names[:len(names)-1] { // no name in a directory has a slash
			if want, _ := filepath.Match(pattern, name); matcher(pattern)(name) != want {
				t.Errorf("%q: %q: expected %v", pattern, name, want)
			}
		}
	}
}

func formatOfName(name string) *Format {
	path, f := prefixed(name)
	return cmp.Or(f, bySuffix(path))
}

func TestTheFormatOfAName(t *testing.T) {
	for name, want := range map[string]string{
		"a.ids": "ids", "dir.told/a-b.c.ids": "ids", "a.ids.gz": "ids", "a.ids.gz.zst": "ids", "told:a.ids": "told", "cut:a": "cut",
		"ids": "", ".ids": "", ".ids.gz": "", "a.ids.txt": "", "a.ids.gz.txt": "", "a.gz": "", "a.": "", "": "", "x:a.cut": "cut", "a.ids/b": "",
	} {
		f := formatOfName(name)
		if got := f; (got == nil) != (want == "") || got != nil && got.Tag != want {
			t.Errorf("%q: expected %q, found %v", name, want, got)
		}
	}
	longer := Format{Tag: "longer", Suffixes: []string{"-more.ids"}, Open: openNothing}
	if registry.formats["longer"] == nil { // with -count there is one already
		MustRegister(longer)
	}
	for name, want := range map[string]string{"a-more.ids": "longer", "a.more.ids": "ids", "-more.ids": "ids", "a-more.ids.gz": "longer"} {
		if f := formatOfName(name); f == nil || f.Tag != want {
			t.Errorf("%q: expected %q, found %v", name, want, f)
		}
	}
}

func TestFilesOfSeveralFormatsWithTheSameSlots(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 3)
	other := filepath.Join(t.TempDir(), "x.cut")
	if err := os.WriteFile(other, []byte("abcdef"), 0o600); err != nil {
		t.Fatal(err)
	}
	h := create(t, scope, "open_files", "files", nil,
		fmt.Sprintf(`{"filenames": [%q, "cut:%s"], "slots": [{"dtype": "uint8", "dims": [2]}]}`, other, other))
	n := 0
	for {
		tuple, err := h.ReadNext(background)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		tuple.Release()
		n++
	}
	if n != 6 {
		t.Errorf("expected 6 instances, found %d", n)
	}
	expect(t, Create(scope, "open_files", "x", nil, []byte(fmt.Sprintf(`{"filenames": [%q, %q], "options": {"raw": {}}}`, names[0], other))),
		pyfeed.Invalid, `expected those of formats ids, cut by tag, found "raw"`)
}

func openNothing(string, *Config) (Records, error) { return nil, io.EOF }

func TestRandomDataIsTheSameEverywhere(t *testing.T) {
	scope := counted(t)
	h := create(t, scope, "create_random_data_generator", "random", nil,
		`{"slots": [{"dtype": "int64", "dims": [3]}], "low": -2, "high": 100, "seed": 7, "count": 2}`)
	for range 2 {
		for _, want := range []string{"[3] [] [72 49 62]", "[3] [] [1 20 58]", "EOF"} {
			if got := next(t, h); got != want {
				t.Errorf("expected %s, found %s", want, got)
			}
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRandomDataOfEveryDTypeIsInItsRange(t *testing.T) {
	scope := counted(t)
	for d := pyfeed.Bool; d.Valid(); d++ {
		h := create(t, scope, "create_random_data_generator", "random", nil,
			fmt.Sprintf(`{"slots": [{"dtype": %q, "dims": [1000]}], "low": 0, "high": 1, "count": 1}`, d))
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(tuple.Slots[0].Data); n != 1000*d.Size() {
			t.Errorf("%v: found %d bytes", d, n)
		}
		if d == pyfeed.Bool || d == pyfeed.Uint8 || d == pyfeed.Int8 {
			ones := 0
			for _, b := range tuple.Slots[0].Data {
				if b > 1 {
					t.Fatalf("%v: found %d", d, b)
				}
				ones += int(b)
			}
			if ones < 400 || ones > 600 {
				t.Errorf("%v: expected about 500 ones, found %d", d, ones)
			}
		}
		tuple.Release()
	}
	expect(t, Create(scope, "create_random_data_generator", "x", nil, []byte(`{"slots": [{"dtype": "uint8", "dims": [1]}], "high": 256}`)),
		pyfeed.Invalid, "expected a range within 0 to 255 for uint8")
	expect(t, Create(scope, "create_random_data_generator", "x", nil, []byte(`{"slots": [{"dtype": "uint8", "dims": [-1]}]}`)),
		pyfeed.Shape, "expected a size, found -1")
}

var producedFormats atomic.Int32

// A thread of a caller that reads the files of a format.
func TestProducedFormat(t *testing.T) {
	scope := counted(t)
	suffix := fmt.Sprintf(".produced%d", producedFormats.Add(1)) // formats stay for good
	f, err := RegisterProduced(suffix[1:], []string{suffix}, []byte(`[{"name": "x", "dtype": "int64", "dims": [2]}]`))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "a"+suffix)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	h := create(t, scope, "open_files", "files", nil, fmt.Sprintf(`{"filenames": [%q], "options": {"from": 5}}`, name))
	mine := &pyfeed.ProducerError{Message: "mine"}
	serve := func(n int, last error) {
		p, err := f.Wait(background)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Queue.Drop()
		if p.Path != name || string(p.Options) != `{"from": 5}` {
			t.Errorf("found %s %s", p.Path, p.Options)
		}
		for i := range n {
			if err := p.Queue.Push(background, 0, []pyfeed.LoDTensor{numbers(pyfeed.Dims{2}, int64(i), 0)}); err != nil {
				expect(t, err, pyfeed.Closed, "")
				return
			}
		}
		if last != nil {
			_ = p.Queue.Fail(0, last)
		} else {
			p.Queue.Close(0)
		}
	}
	read := func() (n int, err error) {
		for {
			tuple, err := h.ReadNext(background)
			if err != nil {
				return n, err
			}
			tuple.Release()
			n++
		}
	}
	go serve(200, nil)
	if n, err := read(); n != 200 || err != io.EOF {
		t.Errorf("expected 200 and the end, found %d and %v", n, err)
	}
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	go serve(5, mine)
	n, err := read()
	if failed, is := err.(*pyfeed.ProducerError); n != 5 || !is || failed.Message != mine.Message || failed.At.Record != 5 {
		t.Errorf("expected 5 and the failure, found %d and %v", n, err)
	}
	// A reset while the file is being read, and while nobody reads it.
	for _, n := range []int{1000, 0} {
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		if n > 0 {
			go func() {
				defer close(ended)
				serve(n, nil)
			}()
			if tuple, err := h.ReadNext(background); err != nil {
				t.Error(err)
			} else {
				tuple.Release()
			}
		} else {
			close(ended)
			if _, err := h.ReadNext(wait.Never); err != wait.ErrWouldBlock {
				t.Errorf("expected to wait, found %v", err)
			}
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		<-ended
	}
	f.Drop()
	_, err = read()
	expect(t, err, pyfeed.State, "expected a thread that reads its files")
}
