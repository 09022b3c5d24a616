package decorators

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// The producer is slow, so the run always waits, with a reader that reads ahead between them.
func TestASlowProducerIsSeen(t *testing.T) {
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells})
	reader, err := NewDoubleBufferReader(ofQueue(q), []pyfeed.Place{pyfeed.CPUPlace()}, 2)
	h, d := asReader[*doubleBufferReader](t, reader, err)
	ahead := d.prefetcher
	asleep := func() bool {
		ahead.mu.Lock()
		defer ahead.mu.Unlock()
		return ahead.consumers.Len() == 1 && q.Info().WaitingConsumers == 1
	}

	r := readertest.StartTrace(t)
	end := make(chan error)
	consumed := 0
	go func() { end <- readertest.Loop(h, func() { consumed++ }) }()
	var slow int64 // time in which the run certainly slept, and only because there was no data
	const n = 20
	for i := range int64(n) {
		readertest.Until(asleep)
		from := trace.Now()
		for trace.Now() < from+200_000 {
			runtime.Gosched()
		}
		slow += trace.Now() - from
		readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, i, i))
	}
	readertest.Until(asleep)
	q.Close(pyfeed.PassCurrent)
	if err := <-end; err != nil || consumed != n {
		t.Fatalf("consumed %d, %v", consumed, err)
	}
	r.Stop()

	s := r.Summary()
	if s.Runs != 1 || readertest.Part(s, "producer") < float64(slow)/1e9 || readertest.Part(s, "producer") > s.ProducerSeconds {
		t.Errorf("expected a producer part between %v s and %v s, found %+v", float64(slow)/1e9, s.ProducerSeconds, s.Parts)
	}
	if o := readertest.Recorded(s, "waits for a push", "producer", "waits for a push"); o.Count != n+1 {
		t.Errorf("waits for a push: %+v", o)
	}
	if o := readertest.Recorded(s, "waits for double_buffer", "wait", "waits for double_buffer"); o.Count != n+1 {
		t.Errorf("waits for double_buffer: %+v", o)
	}
	if o := readertest.Recorded(s, "double_buffer", "read", "double_buffer"); o.Count != n+1 {
		t.Errorf("reads of double_buffer: %+v", o)
	}
	if o := readertest.Recorded(s, "callers", "copy", "push"); o.Count != n || o.Bytes != n*16 {
		t.Errorf("pushes: %+v", o)
	}
	if s.FullSeconds != 0 {
		t.Errorf("expected no waits for room, found %v s", s.FullSeconds)
	}
}

// The consumer is slow, so the producer and the reader always wait.
func TestASlowConsumerIsSeen(t *testing.T) {
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 1, Slots: readertest.Cells})
	reader, err := NewDoubleBufferReader(ofQueue(q), []pyfeed.Place{pyfeed.CPUPlace()}, 1)
	h, d := asReader[*doubleBufferReader](t, reader, err)
	ahead := d.prefetcher
	r := readertest.StartTrace(t)
	const n = 20
	failed := make(chan error)
	go func() {
		defer close(failed)
		for i := range int64(n) {
			if err := q.Push(background, pyfeed.PassCurrent, []pyfeed.LoDTensor{readertest.Numbers(pyfeed.Dims{2}, i, i)}); err != nil {
				failed <- err
				return
			}
		}
		q.Close(pyfeed.PassCurrent)
	}()
	var slow int64
	left := n
	err = readertest.Loop(h, func() {
		// One tuple is ready, one is in the queue, and one waits to be pushed, except at the end.
		if left--; left < 3 {
			return
		}
		readertest.Until(func() bool {
			ahead.mu.Lock()
			defer ahead.mu.Unlock()
			return q.Info().WaitingProducers == 1 && len(ahead.queue) == 1
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
	if readertest.Part(s, "compute") < float64(slow)/1e9 || s.FullSeconds < float64(slow)/1e9 {
		t.Errorf("consumed for at least %v s: found %v s of waits for room, %+v", float64(slow)/1e9, s.FullSeconds, s.Parts)
	}
	if o := readertest.Recorded(s, "waits for room in a queue", "full", "waits for room in a queue"); o.Seconds < float64(slow)/1e9 {
		t.Errorf("waits for room: %+v", o)
	}
	if o := readertest.Recorded(s, "double_buffer", "full", "no room"); o.Count == 0 {
		t.Errorf("waits of double_buffer: %+v", o)
	}
}

// A batch that a run reads itself is recorded on the run's track; one that is read ahead, on the track of the reading
// thread.
func TestBatchesAreCopiedOnTheirCallersTrack(t *testing.T) {
	for _, ahead := range []string{"", "a consumer", "a thread"} { // who reads; "": no double_buffer
		for _, grows := range []bool{false, true} { // slots are concatenated instead of stacked
			slots, dims := readertest.Cells, pyfeed.Dims{2}
			if grows {
				slots = []pyfeed.Slot{{DType: pyfeed.Int64, Dims: pyfeed.Dims{-1}}}
			}
			q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 9, Slots: slots})
			batches, err := NewBatchReader(ofQueue(q), 4, false, false)
			h := readertest.Hold(t, batches, err)
			track := "run"
			var p *prefetcher
			if ahead != "" {
				reader, err := NewDoubleBufferReader(h.Retain(), []pyfeed.Place{pyfeed.CPUPlace()}, 2)
				top, d := asReader[*doubleBufferReader](t, reader, err)
				h, p = top, d.prefetcher
			}
			if ahead == "a consumer" {
				p.readTime, p.pauseTime = 0, 0 // cheap reads, and short pauses: reading ahead does not pay
			}
			if ahead == "a thread" {
				p.direct = nil
				track = "double_buffer"
			}
			for i := range int64(8) {
				readertest.Push(t, q, readertest.Numbers(dims, i, i))
			}
			q.Close(pyfeed.PassCurrent)
			r := readertest.StartTrace(t)
			if err := readertest.Loop(h, func() {}); err != nil {
				t.Fatal(err)
			}
			r.Stop()
			s := r.Summary()
			if o := readertest.Recorded(s, track, "copy", "batch"); o.Count == 0 || o.Bytes != 8*16 {
				t.Errorf("ahead %q, grows %v: expected copies of 128 bytes on %q, found %+v", ahead, grows, track, s.Operators)
			}
			if s.Copies.Bytes != 8*16 || ahead == "" && readertest.Part(s, "copy") != s.Copies.Seconds {
				t.Errorf("ahead %q, grows %v: %+v, %+v", ahead, grows, s.Copies, s.Parts)
			}
		}
	}
}

// A slow function of map counts as a slow producer. The capacity is one tuple, so one of two workers waits for the
// other.
func TestWorkersOfMapAreProducers(t *testing.T) {
	q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Cells})
	reader, err := NewMapReader(ofQueue(q), nil, 1, true, nil)
	h, m := asReader[*mapReader](t, reader, err)
	w := WorkersOf(h)
	const n = 6
	for i := range int64(n) {
		readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, i, i))
	}
	q.Close(pyfeed.PassCurrent)
	r := readertest.StartTrace(t)
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
				readertest.Until(func() bool {
					m.mu.Lock()
					defer m.mu.Unlock()
					return m.consumers.Len() == 1 && m.fullWorkers.Len() == 1
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
	err = readertest.Loop(h, func() {})
	cancel()
	workers.Wait()
	if err != nil {
		t.Fatal(err)
	}
	r.Stop()
	s := r.Summary()
	took := float64(slow.Load()) / 1e9
	if o := readertest.Recorded(s, "map", "make", "map"); o.Count != n || o.Seconds < took || readertest.Part(s, "producer") < took {
		t.Errorf("made for at least %v s: %+v, %+v", took, o, s.Parts)
	}
	const crowded = "a worker of map waits for room"
	if o := readertest.Recorded(s, crowded, "full", crowded); o.Count < n || o.Seconds < took {
		t.Errorf("the other worker waited for at least %v s: %+v", took, o)
	}
	if s.ProducerSeconds != 0 {
		t.Errorf("expected no waits for pushes, found %v s", s.ProducerSeconds)
	}
}
