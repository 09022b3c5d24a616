package ops_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/decorators"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// Each tuple has its record, whatever readers are between it and its file. Ids are unique, so each can be looked up.
func TestTuplesKnowTheirRecords(t *testing.T) {
	names, files := readertest.WriteIDs(t, 100, 1, 0, 40, 7)
	type place struct {
		file   string
		record int64
	}
	of := map[int64]place{}
	for i, ids := range files {
		for k, id := range ids {
			of[id] = place{names[i], int64(k)}
		}
	}
	for _, op := range []string{`, "num_threads": 1`, `, "num_threads": 3, "ordered": false`, `, "interleave": 2`} {
		scope := readertest.Scope(t)
		create(t, scope, "open_files", "files", nil, readertest.OpenIDs(names, op))
		create(t, scope, "create_shuffle_reader", "shuffled", []string{"files"}, `{"buffer_size": 64}`)
		create(t, scope, "create_multi_pass_reader", "passes", []string{"shuffled"}, `{"pass_num": 2}`)
		create(t, scope, "create_random_data_generator", "none", nil, `{"slots": [{"dtype": "uint8", "dims": []}]}`)
		create(t, scope, "create_double_buffer_reader", "ahead", []string{"passes"}, "")
		h := create(t, scope, "create_zip_reader", "both", []string{"ahead", "none"}, "")
		n := 0
		for ; ; n++ {
			tuple, err := h.ReadNext(background)
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			ids, err := readertest.IDsOf(tuple)
			if err != nil {
				t.Fatal(err)
			}
			want := of[ids[0]]
			if from := tuple.From; from.File == nil || (place{*from.File, from.Record}) != want || from.Count != 0 {
				t.Fatalf("id %d: expected %v, found %v", ids[0], want, from.String())
			}
			tuple.Release()
		}
		if n != 2*148 {
			t.Errorf("found %d tuples", n)
		}
	}
}

// Files of one record each are read in groups, and batches are copied in several ways. Each batch names its first
// record.
func TestBatchesAndBundlesKnowTheirRecords(t *testing.T) {
	var cards [][]byte
	for i := range int64(200) {
		cards = append(cards, readertest.Card('a', i))
	}
	paths := readertest.WriteCards(t, cards)
	scope := readertest.Scope(t)
	create(t, scope, "open_files", "cards", nil, readertest.OpenCards(paths, `, "num_threads": 1`))
	h := create(t, scope, "create_batch_reader", "batches", []string{"cards"}, `{"batch_size": 30}`)
	for i := 0; i < 200; i += 30 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("a batch of %d that begins with %s, record 0", min(30, 200-i), paths[i])
		if from := tuple.From.String(); from != want {
			t.Errorf("expected %q, found %q", want, from)
		}
		tuple.Release()
	}

	names, _ := readertest.WriteIDs(t, 50)
	create(t, scope, "create_file_reader", "ids", nil, readertest.OpenIDs(names, ""))
	h = create(t, scope, "create_batch_reader", "joined", []string{"ids"}, `{"batch_size": 20}`)
	for i := 0; i < 50; i += 20 {
		tuple, err := h.ReadNext(background)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("a batch of %d that begins with %s, record %d", min(20, 50-i), names[0], i)
		if from := tuple.From.String(); from != want {
			t.Errorf("expected %q, found %q", want, from)
		}
		tuple.Release()
	}
}

// A map over a map names the tuple that the map below took.
func TestMapErrorsNameTheTuple(t *testing.T) {
	names, _ := readertest.WriteIDs(t, 10)
	var workers sync.WaitGroup // they may hold a tuple when the test ends
	scope := readertest.ScopeAfter(t, &workers)
	create(t, scope, "create_file_reader", "files", nil, readertest.OpenIDs(names, ""))
	below := create(t, scope, "create_map_reader", "below", []string{"files"}, "")
	h := create(t, scope, "create_map_reader", "above", []string{"below"}, "")
	work := func(h *readers.ReaderHolder, result func(*pyfeed.Tuple, uint64)) {
		workers.Go(func() {
			for {
				tuple, ticket, err := decorators.WorkersOf(h).Take(context.Background())
				if err != nil {
					return
				}
				result(tuple, ticket)
			}
		})
	}
	work(below, func(tuple *pyfeed.Tuple, ticket uint64) { _ = decorators.WorkersOf(below).Give(ticket, tuple) })
	cause := &pyfeed.ProducerError{Type: "E", Message: "boom"}
	work(h, func(tuple *pyfeed.Tuple, ticket uint64) {
		if tuple.From.Record == 4 {
			tuple.Release()
			decorators.WorkersOf(h).Fail(ticket, cause)
			return
		}
		_ = decorators.WorkersOf(h).Give(ticket, tuple)
	})
	for pass := range 2 {
		ids, err := readertest.Drain(h)
		var failed *pyfeed.ProducerError
		if !slices.Equal(ids, []int64{0, 1, 2, 3}) || !errors.As(err, &failed) {
			t.Fatalf("found %v, %v", ids, err)
		}
		want := fmt.Sprintf("map: tuple 4 of pass %d (%s, record 4): the function failed: E: boom", pass, names[0])
		if err.Error() != want || *failed.At != (pyfeed.Location{File: names[0], Offset: -1, Record: 4}) {
			t.Errorf("expected %q, found %q at %v", want, err, failed.At)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
	if cause.Place != "" || cause.At != nil {
		t.Error("the worker's error was changed")
	}
}

// Above a multi_pass reader, the number of a tuple in an error is its number in the pass of that reader.
func TestAnErrorOfMapCountsInThePassOfTheReaderBelow(t *testing.T) {
	names, _ := readertest.WriteIDs(t, 3)
	var workers sync.WaitGroup
	scope := readertest.ScopeAfter(t, &workers)
	create(t, scope, "create_file_reader", "files", nil, readertest.OpenIDs(names, ""))
	create(t, scope, "create_multi_pass_reader", "passes", []string{"files"}, `{"pass_num": 3}`)
	h := create(t, scope, "create_map_reader", "above", []string{"passes"}, "")
	workers.Go(func() {
		for {
			tuple, ticket, err := decorators.WorkersOf(h).Take(background)
			switch {
			case err != nil:
				return
			case tuple.Pass == 1 && tuple.From.Record == 1:
				tuple.Release()
				decorators.WorkersOf(h).Fail(ticket, &pyfeed.ProducerError{Type: "E", Message: "boom"})
			default:
				_ = decorators.WorkersOf(h).Give(ticket, tuple)
			}
		}
	})
	want := fmt.Sprintf("map: tuple 1 of pass 1 (%s, record 1): the function failed: E: boom", names[0])
	for range 2 {
		ids, err := readertest.Drain(h)
		if !slices.Equal(ids, []int64{0, 1, 2, 0}) || err == nil || err.Error() != want {
			t.Errorf("expected %q, found %v, %v", want, ids, err)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOrigins(t *testing.T) {
	name := "x.npy"
	for _, test := range []struct {
		from pyfeed.Origin
		want string
	}{
		{pyfeed.Origin{}, ""},
		{pyfeed.Origin{}.Batch(7), "a batch of 7"},
		{pyfeed.Origin{File: &name, Record: 3}, "x.npy, record 3"},
		{pyfeed.Origin{File: &name, Record: 3, Approximate: true}, "x.npy, about record 3"},
		{pyfeed.Origin{File: &name, Record: 3}.Batch(2), "a batch of 2 that begins with x.npy, record 3"},
	} {
		if found := test.from.String(); found != test.want {
			t.Errorf("expected %q, found %q", test.want, found)
		}
		if at := test.from.Location(); (at == nil) != (test.from.File == nil) || at != nil && cmp.Or(at.Offset, at.Record) != -1 {
			t.Errorf("%q: found %+v", test.want, at)
		}
	}
}
