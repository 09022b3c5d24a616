package files

import (
	"context"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// opensAs makes a reader of a file of ids that is verified first. Each time the file is opened, open gets how often it
// was.
func opensAs(t *testing.T, op, name string, open func(times int, records record.Records) (record.Records, error)) *readers.ReaderHolder {
	t.Helper()
	attributes := readertest.OpenIDs([]string{name}, `, "verify_first": true`)
	var h *readers.ReaderHolder
	var s *record.FileRef
	if op == "open_files" {
		many, r := openMany(counted(t), attributes)
		h, s = many, &r.schedule.refs[0]
	} else {
		one, r := openOne(counted(t), attributes)
		h, s = one, &r.(*fileReader).ref
	}
	format, times := *s.Format, 0
	original := format.Open
	format.Open = func(path string, c *record.Config) (record.Records, error) {
		times++
		records, err := original(path, c)
		if err != nil {
			return nil, err
		}
		return open(times, records)
	}
	s.Format = &format
	return h
}

// endless has ids that begin again at their end, and reports when it has come to an end.
type endless struct {
	*readertest.IDs
	again chan struct{}
}

func (r endless) Read(out []*pyfeed.Tuple) (int, error) {
	n, err := r.IDs.Read(out)
	if err == io.EOF {
		select {
		case r.again <- struct{}{}:
		default:
		}
		return n, r.File.Rewind()
	}
	return n, err
}

func (r endless) AtEnd() bool { return false }

// blockingIDs reports that it waits, and waits until it is interrupted.
type blockingIDs struct {
	*readertest.IDs
	waits, stop chan struct{}
}

func (r blockingIDs) Read([]*pyfeed.Tuple) (int, error) {
	r.waits <- struct{}{}
	<-r.stop
	return 0, pyfeed.Errorf(pyfeed.Cancelled, "interrupted")
}

func (r blockingIDs) Interrupt() { close(r.stop) }

// A file may have any length, and its format may wait: a reset ends both kinds of read.
func TestAResetEndsAVerification(t *testing.T) {
	names, _ := readertest.WriteIDs(t, 100)
	reached := make(chan struct{}, 1)
	goesOn := func(_ int, r record.Records) (record.Records, error) {
		return endless{r.(*readertest.IDs), reached}, nil
	}
	waits := func(_ int, r record.Records) (record.Records, error) {
		return blockingIDs{r.(*readertest.IDs), reached, make(chan struct{})}, nil
	}
	for _, c := range []struct {
		op   string
		open func(int, record.Records) (record.Records, error)
	}{{"open_files", goesOn}, {"open_files", waits}, {"create_file_reader", goesOn}} {
		h := opensAs(t, c.op, names[0], c.open)
		for range 2 {
			ctx, cancel := context.WithCancel(background)
			ended := make(chan error)
			go func() {
				_, err := h.ReadNext(ctx)
				ended <- err
			}()
			<-reached
			cancel()
			if err := <-ended; err == nil {
				t.Error("got a tuple of a file that was not verified")
			}
			if err := h.ReInit(); err != nil { // the threads have ended when it returns
				t.Fatal(err)
			}
			select {
			case <-reached:
			default:
			}
		}
	}
}

// A file that changed after its verification is not delivered.
func TestAFileThatChangesBehindItsVerification(t *testing.T) {
	names, all := readertest.WriteIDs(t, 100)
	before, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	h := opensAs(t, "open_files", names[0], func(times int, r record.Records) (record.Records, error) {
		opened = times
		if times == 2 {
			return r, os.WriteFile(names[0], before[:400], 0o600)
		}
		return r, nil
	})
	_, err = h.ReadNext(background)
	readertest.Expect(t, err, pyfeed.Corrupt, "verify_first: expected the file that was verified, of 800 bytes")
	if at := err.(*pyfeed.Error).At; at.Record != 0 || at.File != names[0] {
		t.Errorf("found %+v", at)
	}
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	if got := readertest.Drained(t, h); !slices.Equal(got, all[0][:50]) || opened != 4 {
		t.Errorf("found %v, opened %d times", got, opened)
	}
}
