package readers

import (
	"context"
	"io"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

func record(t *testing.T) *trace.Recording {
	t.Helper()
	r, err := trace.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// recorded is what was recorded under a name.
func recorded(s trace.Summary, track, category, name string) trace.Operator {
	for _, o := range s.Operators {
		if o.Track == track && o.Category == category && o.Name == name {
			return o
		}
	}
	return trace.Operator{}
}

func part(s trace.Summary, name string) float64 {
	for _, p := range s.Parts {
		if p.Name == name {
			return p.Seconds
		}
	}
	return 0
}

// loop reads all there is as a run does, and records it as one.
func loop(h *ReaderHolder, consume func()) error {
	track := trace.NewTrack("run")
	defer track.Done()
	ctx := &wait.Traced{Context: background, Track: track}
	begun := trace.Now()
	defer func() { trace.Since(track, trace.Run, "run", begun) }()
	for {
		start := trace.Now()
		tuple, err := h.ReadNext(ctx.Never())
		if err == wait.ErrWouldBlock {
			slept := trace.Now()
			tuple, err = h.ReadNext(ctx)
			trace.Since(track, trace.Wait, "read", slept)
		}
		trace.Since(track, trace.Read, "read", start)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		tuple.Release()
		start = trace.Now()
		consume()
		trace.Since(track, trace.Compute, "consume", start)
	}
}

// until waits for something that another goroutine is about to do.
func until(happened func() bool) {
	for !happened() {
		runtime.Gosched()
	}
}

// A producer that always lets the run wait, with a reader that reads ahead between them.
func TestASlowProducerIsSeen(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: 4, Slots: cells})
	h := create(t, scope, "create_double_buffer_reader", "ready", []string{"reader"}, "")
	ahead := h.reader.(*DoubleBufferReader).pump
	asleep := func() bool {
		ahead.mu.Lock()
		defer ahead.mu.Unlock()
		return ahead.consumers.Len() == 1 && q.Info().WaitingConsumers == 1
	}

	r := record(t)
	end := make(chan error)
	consumed := 0
	go func() { end <- loop(h, func() { consumed++ }) }()
	var slow int64 // the time in which the run slept for sure, and all for want of data
	const n = 20
	for i := range int64(n) {
		until(asleep)
		from := trace.Now()
		for trace.Now() < from+200_000 {
			runtime.Gosched()
		}
		slow += trace.Now() - from
		push(t, q, numbers(pyfeed.Dims{2}, i, i))
	}
	until(asleep)
	q.Close(0)
	if err := <-end; err != nil || consumed != n {
		t.Fatalf("consumed %d, %v", consumed, err)
	}
	r.Stop()

	s := r.Summary()
	if s.Runs != 1 || part(s, "producer") < float64(slow)/1e9 || part(s, "producer") > s.ProducerSeconds {
		t.Errorf("slept for at least %v s, and %v s of the queue's: %+v", float64(slow)/1e9, s.ProducerSeconds, s.Parts)
	}
	if o := recorded(s, "waits for a push", "producer", "waits for a push"); o.Count != n+1 {
		t.Errorf("waits for a push: %+v", o)
	}
	if o := recorded(s, "waits for double_buffer", "wait", "waits for double_buffer"); o.Count != n+1 {
		t.Errorf("waits for double_buffer: %+v", o)
	}
	if o := recorded(s, "double_buffer", "read", "double_buffer"); o.Count != n+1 {
		t.Errorf("reads of double_buffer: %+v", o)
	}
	if o := recorded(s, "callers", "copy", "push"); o.Count != n || o.Bytes != n*16 {
		t.Errorf("pushes: %+v", o)
	}
	if s.FullSeconds != 0 {
		t.Errorf("%v s for want of room", s.FullSeconds)
	}
}

// A consumer that always lets producer and reader wait.
func TestASlowConsumerIsSeen(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: 1, Slots: cells})
	h := create(t, scope, "create_double_buffer_reader", "ready", []string{"reader"}, `{"depth": 1}`)
	ahead := h.reader.(*DoubleBufferReader).pump
	r := record(t)
	const n = 20
	failed := make(chan error)
	go func() {
		defer close(failed)
		for i := range int64(n) {
			if err := q.Push(background, 0, []pyfeed.LoDTensor{numbers(pyfeed.Dims{2}, i, i)}); err != nil {
				failed <- err
				return
			}
		}
		q.Close(0)
	}()
	var slow int64
	left := n
	err := loop(h, func() {
		// With what is ready, in the queue and waits to be pushed there are three more, except at the end.
		if left--; left < 3 {
			return
		}
		until(func() bool {
			ahead.mu.Lock()
			defer ahead.mu.Unlock()
			return q.Info().WaitingProducers == 1 && len(ahead.chunks) == 1
		})
		from := trace.Now()
		for trace.Now() < from+100_000 {
			runtime.Gosched()
		}
		slow += trace.Now() - from
	})
	if err == nil {
		err = <-failed
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Stop()
	s := r.Summary()
	if part(s, "compute") < float64(slow)/1e9 || s.FullSeconds < float64(slow)/1e9 {
		t.Errorf("consumed for at least %v s: %v s for want of room, %+v", float64(slow)/1e9, s.FullSeconds, s.Parts)
	}
	if o := recorded(s, "waits for room in a queue", "full", "waits for room in a queue"); o.Seconds < float64(slow)/1e9 {
		t.Errorf("waits for room: %+v", o)
	}
	if o := recorded(s, "double_buffer", "full", "no room"); o.Count == 0 {
		t.Errorf("waits of double_buffer: %+v", o)
	}
}

// What a run reads itself is on its own track; what is read ahead, on that of the thread that does.
func TestBatchesAreCopiedOnTheirCallersTrack(t *testing.T) {
	for _, ahead := range []string{"", "a consumer", "a thread"} { // who reads, where there is a double_buffer
		for _, grows := range []bool{false, true} { // joined instead of stacked
			slots, dims := cells, pyfeed.Dims{2}
			if grows {
				slots = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{-1}}}
			}
			scope, q := feed(t, pyfeed.Options{Capacity: 9, Slots: slots})
			h := create(t, scope, "create_batch_reader", "batches", []string{"reader"}, `{"batch_size": 4}`)
			track := "run"
			if ahead != "" {
				h = create(t, scope, "create_double_buffer_reader", "ready", []string{"batches"}, "")
			}
			if ahead == "a consumer" {
				p := h.reader.(*DoubleBufferReader).pump
				p.cost, p.away = 0, 0 // known to be cheap, and asked for so soon again that reading ahead does not pay
			}
			if ahead == "a thread" {
				h.reader.(*DoubleBufferReader).pump.direct = nil
				track = "double_buffer"
			}
			for i := range int64(8) {
				push(t, q, numbers(dims, i, i))
			}
			q.Close(0)
			r := record(t)
			if err := loop(h, func() {}); err != nil {
				t.Fatal(err)
			}
			r.Stop()
			s := r.Summary()
			if o := recorded(s, track, "copy", "batch"); o.Count == 0 || o.Bytes != 8*16 {
				t.Errorf("ahead %q, grows %v: expected copies of 128 bytes on %q, found %+v", ahead, grows, track, s.Operators)
			}
			if s.Copies.Bytes != 8*16 || ahead == "" && part(s, "copy") != s.Copies.Seconds {
				t.Errorf("ahead %q, grows %v: %+v, %+v", ahead, grows, s.Copies, s.Parts)
			}
		}
	}
}

// Files are read on tracks of the threads that read them, under their names.
func TestFilesAreRecordedByName(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 300, 10)
	r := record(t)
	drained(t, create(t, scope, "open_files", "files", nil, openIDs(names, `, "thread_num": 2`)))
	drained(t, create(t, scope, "create_shuffle_reader", "shuffled", []string{"files"}, `{"buffer_size": 100}`))
	drained(t, create(t, scope, "create_file_reader", "one", nil, openIDs(names[:1], "")))
	r.Stop()
	s := r.Summary()
	for _, name := range names {
		if o := recorded(s, "open_files", "read", filepath.Base(name)); o.Count == 0 {
			t.Errorf("%s: found %+v", name, s.Operators)
		}
	}
	if o := recorded(s, "callers", "read", filepath.Base(names[0])); o.Count == 0 {
		t.Errorf("read by its caller: found %+v", s.Operators)
	}
	if o := recorded(s, "shuffle", "read", "shuffle"); o.Count == 0 {
		t.Errorf("shuffle: found %+v", s.Operators)
	}
	if s.Runs != 0 {
		t.Errorf("%d runs", s.Runs)
	}
}

// A slow function of map is a slow producer. Of two workers with room for one, the other waits for it.
func TestWorkersOfMapAreProducers(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: 9, Slots: cells})
	h := create(t, scope, "create_map_reader", "map", []string{"reader"}, `{"capacity": 1}`)
	w := h.Workers()
	const n = 6
	for i := range int64(n) {
		push(t, q, numbers(pyfeed.Dims{2}, i, i))
	}
	q.Close(0)
	r := record(t)
	var slow atomic.Int64
	ctx, cancel := context.WithCancel(background)
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			for {
				in, ticket, err := w.Take(ctx)
				if err != nil {
					return
				}
				until(func() bool {
					w.mu.Lock()
					defer w.mu.Unlock()
					return w.consumers.Len() == 1 && w.crowded.Len() == 1
				})
				from := trace.Now()
				for trace.Now() < from+100_000 {
					runtime.Gosched()
				}
				slow.Add(trace.Now() - from)
				if err := w.Give(ticket, in); err != nil {
					t.Error(err)
				}
			}
		})
	}
	err := loop(h, func() {})
	cancel()
	workers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	r.Stop()
	s := r.Summary()
	took := float64(slow.Load()) / 1e9
	if o := recorded(s, "map", "make", "map"); o.Count != n || o.Seconds < took || part(s, "producer") < took {
		t.Errorf("made for at least %v s: %+v, %+v", took, o, s.Parts)
	}
	const crowded = "a worker of map waits for room"
	if o := recorded(s, crowded, "full", crowded); o.Count < n || o.Seconds < took {
		t.Errorf("the other worker waited for at least %v s: %+v", took, o)
	}
	if s.ProducerSeconds != 0 {
		t.Errorf("%v s in want of pushes", s.ProducerSeconds)
	}
}
