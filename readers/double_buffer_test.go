package readers

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

// idleStager is a way to a device whose copies begin when it is told.
type idleStager struct {
	pyfeed.Stager
	mu    sync.Mutex
	ready wait.List
	begun bool
}

func (s *idleStager) Put(_ context.Context, t *pyfeed.Tuple) (*pyfeed.Tuple, error) { return t, nil }
func (s *idleStager) Err() error                                                    { return nil }
func (s *idleStager) Close()                                                        {}

func (s *idleStager) Next(ctx context.Context, _ *pyfeed.Tuple) error {
	_, err := wait.Do(ctx, func(ctx context.Context) (struct{}, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.begun {
			return struct{}{}, s.ready.Enter(ctx)
		}
		return struct{}{}, nil
	})
	return err
}

func (s *idleStager) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	s.ready.All()
}

// Two consumers sleep when a tuple comes. The one that is woken for it waits for its copy, and gives up: it is the other's.
func TestAConsumerThatGoesAwayLeavesItsCopy(t *testing.T) {
	scope, q := feed(t, pyfeed.Options{Capacity: 9, Slots: cells})
	h := create(t, scope, "create_double_buffer_reader", "ready", []string{"reader"}, "")
	r := h.reader.(*DoubleBufferReader)
	s := new(idleStager)
	s.ready.Init(&s.mu)
	r.stagers, r.read, r.pump.direct = []pyfeed.Stager{s}, single(r.take), nil
	waiting := func(l *wait.List, mu *sync.Mutex, n int) {
		until(func() bool {
			mu.Lock()
			defer mu.Unlock()
			return l.Len() >= n
		})
	}
	soon, cancel := context.WithTimeout(background, time.Minute) // forever, to those who wait
	defer cancel()
	first, leave := context.WithCancel(soon)
	ends := []chan error{make(chan error), make(chan error)}
	for i, ctx := range []context.Context{first, soon} {
		go func() {
			tuple, err := h.ReadNext(ctx)
			if err == nil {
				tuple.Release()
			}
			ends[i] <- err
		}()
		waiting(&r.pump.consumers, &r.pump.mu, i+1)
	}
	push(t, q, numbers(pyfeed.Dims{2}, 0, 0))
	waiting(&s.ready, &s.mu, 1)
	leave()
	if err := <-ends[0]; err != context.Canceled {
		t.Errorf("expected that the first has gone away, found %v", err)
	}
	s.begin()
	if err := <-ends[1]; err != nil {
		t.Error(err)
	}
}
