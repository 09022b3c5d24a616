package readers

import (
	"context"
	"errors"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// broken are Records with a fault in them.
type broken struct{}

func (broken) Read([]*pyfeed.Tuple) (int, error) { panic("mine") }
func (broken) Resync() error                     { return nil }
func (broken) Intact() error                     { return nil }
func (broken) Unchanged() error                  { return nil }
func (broken) Close()                            {}

// A panic in a thread that reads is the reader's error, for good, and not the end of the process.
func TestAFaultInAThreadThatReads(t *testing.T) {
	scope := counted(t)
	names, _ := writeIDs(t, 1)
	h := create(t, scope, "open_files", "files", nil, openIDs(names, ""))
	m := h.reader.(*MultipleReader)
	faulty := *m.sources[0].format
	faulty.Open = func(string, *Config) (Records, error) { return broken{}, nil }
	m.sources[0].format = &faulty
	for range 2 {
		_, err := h.ReadNext(background)
		expect(t, err, pyfeed.Fault, "mine")
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAFaultInAThreadThatReadsAhead(t *testing.T) {
	p := newPump("mine", 1, func(context.Context, *chunk) error { panic("mine") })
	reader := ahead{read: p.take}
	for range 2 {
		_, err := NewHolder(&faultReader{reader, p}).ReadNext(background)
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.Fault {
			t.Errorf("expected a fault, found %v", err)
		}
		p.stop()
	}
}

type faultReader struct {
	ahead
	pump *pump
}

func (*faultReader) ReInit(uint64) error { return nil }
func (*faultReader) Spec() *pyfeed.Spec  { return nil }
func (*faultReader) Describe(*Stats)     {}
func (r *faultReader) Close()            { r.pump.stop() }
