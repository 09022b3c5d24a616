package readertest

import (
	"context"
	"io"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed/trace"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
)

// StartTrace starts a recording, which ends with the test.
func StartTrace(t *testing.T) *trace.Recording {
	t.Helper()
	r, err := trace.Start(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

// Recorded returns what was recorded on a track, in a category and under a name.
func Recorded(s trace.Summary, track, category, name string) trace.Operator {
	for _, o := range s.Operators {
		if o.Track == track && o.Category == category && o.Name == name {
			return o
		}
	}
	return trace.Operator{}
}

// Part returns the time of a part of the summary, in seconds.
func Part(s trace.Summary, name string) float64 {
	for _, p := range s.Parts {
		if p.Name == name {
			return p.Seconds
		}
	}
	return 0
}

// Loop reads to the end like a run of a program, and records spans like one.
func Loop(h *readers.ReaderHolder, consume func()) error {
	track := new(trace.Lane).Track("run")
	defer track.Done()
	ctx := &wait.Traced{Context: context.Background(), Track: track}
	begun := trace.Now()
	defer func() { trace.Since(track, trace.Run, "run", begun) }()
	for {
		start := trace.Now()
		tuple, err := h.ReadNext(ctx.NonBlocking())
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
