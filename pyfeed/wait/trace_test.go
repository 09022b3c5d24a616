package wait

import (
	"context"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/trace"
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

func TestWaitsAreRecorded(t *testing.T) {
	g, silent := newGate(), newGate()
	g.list.Named("waits for a token", trace.Producer)
	pass := func(gates ...*gate) {
		done := make(chan error)
		for _, g := range gates {
			go func() {
				_, err := Do(context.Background(), g.try)
				done <- err
			}()
			g.waiting(1)
			g.open(1)
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	pass(g)
	r := record(t)
	const before = 3
	for range before {
		pass(g, silent)
	}
	// Two callers wait at the same time, and one of them gives up.
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		_, err := Do(ctx, g.try)
		done <- err
	}()
	g.waiting(1)
	cancel()
	<-done
	r.Stop()
	pass(g)
	s := r.Summary()
	if len(s.Operators) != 1 {
		t.Fatalf("wrong operators: %+v", s.Operators)
	}
	o := s.Operators[0]
	if o.Track != "waits for a token" || o.Name != o.Track || o.Category != "producer" || o.Count != before+1 || o.Seconds <= 0 {
		t.Errorf("wrong operator: %+v", o)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if waited := g.list.Waited().Seconds(); s.ProducerSeconds > waited {
		t.Errorf("recorded %v s, of %v waited", s.ProducerSeconds, waited)
	}
}

// The caller's track is available to all functions it calls, blocking or not.
func TestTrackOf(t *testing.T) {
	if TrackOf(context.Background()) != 0 || TrackOf(NonBlocking) != 0 {
		t.Error("expected no track in a context without one")
	}
	g := newGate()
	var tracks []trace.Track
	try := func(ctx context.Context) (int, error) {
		tracks = append(tracks, TrackOf(ctx))
		return g.try(ctx)
	}
	base, cancel := context.WithCancel(context.Background())
	ctx := &Traced{Context: base, Track: 7}
	done := make(chan error)
	go func() {
		_, err := Do(ctx, try)
		done <- err
	}()
	g.waiting(1)
	g.open(1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx.Track = 8 // as if another recording had begun
	if _, err := Do(ctx.NonBlocking(), try); err != ErrWouldBlock {
		t.Errorf("a caller that does not wait: expected ErrWouldBlock, found %v", err)
	}
	if want := []trace.Track{7, 7, 7, 8}; len(tracks) != 4 || tracks[0] != 7 || tracks[1] != 7 || tracks[2] != 7 || tracks[3] != 8 {
		t.Errorf("expected %v, found %v", want, tracks)
	}
	cancel()
	if _, err := Do(ctx, try); err != context.Canceled {
		t.Errorf("a cancelled context: expected context.Canceled, found %v", err)
	}
	tracks = tracks[:0]
	g.open(1)
	if _, err := Do(context.Background(), try); err != nil || tracks[0] != 0 {
		t.Errorf("a caller without a track: found track %v, %v", tracks, err)
	}
}
