package decorators

import (
	"context"
	"errors"
	"hash/crc32"
	"sync"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// idleStager is a stager whose copies begin when the test calls begin.
type idleStager struct {
	pyfeed.Stager
	mu    sync.Mutex
	ready wait.List
	begun bool
	err   error // of each copy
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
		return struct{}{}, s.err
	})
	return err
}

func (s *idleStager) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = true
	s.ready.WakeAll()
}

// sleepers starts consumers of a double_buffer above a queue, one for each context, and waits until they sleep. ends
// receives their errors.
func sleepers(t *testing.T, all ...context.Context) (q *pyfeed.Consumer, s *idleStager, ends []chan error) {
	q = readertest.Queue(t, pyfeed.QueueOptions{Capacity: 9, Slots: readertest.Cells})
	reader, err := NewDoubleBufferReader(ofQueue(q), []pyfeed.Place{pyfeed.CPUPlace()}, 2)
	h, r := asReader[*doubleBufferReader](t, reader, err)
	s = new(idleStager)
	s.ready.Init(&s.mu)
	r.stagers, r.Read, r.prefetcher.direct = []pyfeed.Stager{s}, readers.FromFunc(r.take), nil
	for i, ctx := range all {
		end := make(chan error)
		ends = append(ends, end)
		go func() {
			tuple, err := h.ReadNext(ctx)
			if err == nil {
				tuple.Release()
			}
			end <- err
		}()
		readertest.Entered(&r.prefetcher.consumers, &r.prefetcher.mu, i+1)
	}
	return q, s, ends
}

// Two consumers sleep when a tuple arrives. The first is woken, waits for the tuple's copy, and gives up. The second
// gets the tuple.
func TestAConsumerThatGoesAwayLeavesItsCopy(t *testing.T) {
	soon, cancel := context.WithTimeout(background, time.Minute) // longer than any wait of the test
	defer cancel()
	first, leave := context.WithCancel(soon)
	q, s, ends := sleepers(t, first, soon)
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 0, 0))
	readertest.Entered(&s.ready, &s.mu, 1)
	leave()
	if err := <-ends[0]; err != context.Canceled {
		t.Errorf("expected that the first consumer was cancelled, found %v", err)
	}
	s.begin()
	if err := <-ends[1]; err != nil {
		t.Error(err)
	}
}

// When a copy fails, all consumers get its error: no further tuples are delivered.
func TestAFailedCopyIsEachConsumersEnd(t *testing.T) {
	soon, cancel := context.WithTimeout(background, time.Minute) // longer than any wait of the test
	defer cancel()
	q, s, ends := sleepers(t, soon, soon, soon)
	s.err = errors.New("mine")
	s.begin()
	readertest.Push(t, q, readertest.Numbers(pyfeed.Dims{2}, 0, 0))
	for _, end := range ends {
		if err := <-end; err != s.err {
			t.Errorf("expected the error of the copy, found %v", err)
		}
	}
}

// A reset while a damaged record is copied to a device ends the goroutine with the error about the record, and with no
// other: an error of kind Fault would stay for the passes that follow.
func TestDamageDuringAReset(t *testing.T) {
	readertest.Counted(t)
	pool := memory.NewPool(memory.File)
	defer pool.Close()
	checksum := record.Checksum{Table: crc32.IEEETable, Piece: 1 << 10,
		Stored:   func([]byte, record.Span) uint32 { return 0 },
		Describe: func(_, _, _ uint32) string { return "damaged" }}
	ctx, reset := context.WithCancel(background)
	below := new(faultReader)
	below.prefetcher = newPrefetcher("none", 1, nil)
	below.Read = func(_ context.Context, c *record.Chunk, _ int) (int, error) {
		buffer, err := pool.Get(64 << 10)
		if err != nil {
			return 0, err
		}
		b := record.NewSpanBlock(buffer.Bytes(), []record.Span{{At: 0, Size: 64 << 10}}, buffer)
		b.VerifyLate(&checksum, 0)
		c.AddBlock(b)
		reset()
		return 1, nil
	}
	reader, err := NewDoubleBufferReader(readers.NewHolder(below), []pyfeed.Place{pyfeed.CPUPlace()}, 2)
	_, r := asReader[*doubleBufferReader](t, reader, err)
	r.stagers = []pyfeed.Stager{new(idleStager)}
	var p prefetched
	if err := r.fill(ctx, &p); !pyfeed.IsKind(err, pyfeed.Corrupt) || p.Len() > 0 {
		t.Errorf("expected the error about the record and no tuple, found %v and %d", err, p.Len())
	}
}
