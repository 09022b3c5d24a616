package decorators

import (
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
)

// A reset wakes all callers, whatever they wait for.
func TestResetWhileAReadWaits(t *testing.T) {
	decorate := map[string]func(*readers.ReaderHolder) (readers.Reader, error){
		"double_buffer": func(h *readers.ReaderHolder) (readers.Reader, error) {
			return NewDoubleBufferReader(h, []pyfeed.Place{pyfeed.CPUPlace()}, 2)
		},
		"shuffle":    func(h *readers.ReaderHolder) (readers.Reader, error) { return NewShuffleReader(h, 3, 0) },
		"map":        func(h *readers.ReaderHolder) (readers.Reader, error) { return NewMapReader(h, nil, 16, true, nil) },
		"batch":      func(h *readers.ReaderHolder) (readers.Reader, error) { return NewBatchReader(h, 3, false, false) },
		"multi_pass": func(h *readers.ReaderHolder) (readers.Reader, error) { return NewMultiPassReader(h, 2) },
		"shard":      func(h *readers.ReaderHolder) (readers.Reader, error) { return NewShardReader(h, 0, 1, "") },
		"even shard": func(h *readers.ReaderHolder) (readers.Reader, error) {
			return NewShardReader(h, 1, 2, readers.EvenRepeat)
		},
		"split_batches": func(h *readers.ReaderHolder) (readers.Reader, error) {
			batches, err := NewBatchReader(h, 2, false, false)
			if err != nil {
				return nil, err
			}
			return NewSplitBatchesReader(readers.NewHolder(batches), 1, 2, readers.EvenDrop)
		},
	}
	for name, decorate := range decorate {
		t.Run(name, func(t *testing.T) {
			q := readertest.Queue(t, pyfeed.QueueOptions{Capacity: 4, Slots: readertest.Cells, Restartable: true})
			reader, err := decorate(ofQueue(q))
			h := readertest.Hold(t, reader, err)
			waits := make(chan error)
			go func() {
				_, err := h.ReadNext(background)
				waits <- err
			}()
			m, isMap := reader.(*mapReader)
			for q.Info().WaitingConsumers == 0 && !isMap || q.Info().Pass == pyfeed.PassNone && !isMap {
				select {
				case err := <-waits:
					t.Fatalf("expected to wait, found %v", err)
				default:
				}
			}
			if isMap { // map waits for a worker
				readertest.Entered(&m.consumers, &m.mu, 1)
			}
			readertest.Expect(t, readertest.ResetUntilEnd(t, h, waits), pyfeed.Cancelled, "reset")
		})
	}
}
