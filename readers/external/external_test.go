package external_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/external"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

var detached = context.Background()

var registered atomic.Int32

// A thread of the caller reads the files of a format.
func TestFormat(t *testing.T) {
	scope := readertest.Scope(t)
	suffix := fmt.Sprintf(".external%d", registered.Add(1)) // formats are never removed, so each run needs a new suffix
	f, err := external.Register(suffix[1:], []string{suffix}, []byte(`[{"name": "x", "dtype": "int64", "dims": [2]}]`))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "a"+suffix)
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ops.Create(scope, "open_files", "files", nil, fmt.Appendf(nil, `{"filenames": [%q], "options": {"from": 5}}`, name)); err != nil {
		t.Fatal(err)
	}
	h, err := readers.FindHolder(scope, "files")
	if err != nil {
		t.Fatal(err)
	}
	defer h.Drop()
	mine := &pyfeed.ProducerError{Message: "mine"}
	serve := func(n int, last error) {
		p, err := f.NextRequest(detached)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Queue.Drop()
		if p.Path != name || string(p.Options) != `{"from": 5}` {
			t.Errorf("found %s %s", p.Path, p.Options)
		}
		for i := range n {
			if err := p.Queue.Push(detached, pyfeed.PassCurrent, []pyfeed.LoDTensor{readertest.Numbers(pyfeed.Dims{2}, int64(i), 0)}); err != nil {
				readertest.Expect(t, err, pyfeed.Closed, "")
				return
			}
		}
		if last != nil {
			_ = p.Queue.Fail(pyfeed.PassCurrent, last)
		} else {
			p.Queue.Close(pyfeed.PassCurrent)
		}
	}
	read := func() (n int, err error) {
		for {
			tuple, err := h.ReadNext(detached)
			if err != nil {
				return n, err
			}
			tuple.Release()
			n++
		}
	}
	go serve(200, nil)
	if n, err := read(); n != 200 || err != io.EOF {
		t.Errorf("expected 200 and the end, found %d and %v", n, err)
	}
	if err := h.ReInit(); err != nil {
		t.Fatal(err)
	}
	go serve(5, mine)
	n, err := read()
	if failed, is := err.(*pyfeed.ProducerError); n != 5 || !is || failed.Message != mine.Message || failed.At.Record != 5 {
		t.Errorf("expected 5 and the failure, found %d and %v", n, err)
	}
	// Reset while a thread reads the file, and while none does.
	for _, n := range []int{1000, 0} {
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		if n > 0 {
			go func() {
				defer close(ended)
				serve(n, nil)
			}()
			if tuple, err := h.ReadNext(detached); err != nil {
				t.Error(err)
			} else {
				tuple.Release()
			}
		} else {
			close(ended)
			if _, err := h.ReadNext(wait.NonBlocking); err != wait.ErrWouldBlock {
				t.Errorf("expected to wait, found %v", err)
			}
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
		<-ended
	}
	f.Drop()
	_, err = read()
	readertest.Expect(t, err, pyfeed.State, "expected a thread that reads its files")
}
