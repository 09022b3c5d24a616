package ops_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

// pipe makes a pipe whose slots have to be inferred, the attributes that open it, and a scope for its reader.
func pipe(t *testing.T) (name string, attributes []byte, scope *pyfeed.Scope) {
	t.Helper()
	before := memory.Count()
	name = filepath.Join(t.TempDir(), "pipe.described")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	scope = pyfeed.NewScope(nil)
	t.Cleanup(func() {
		scope.Drop()
		after := memory.Count()
		for end := time.Now().Add(10 * time.Second); after != before && time.Now().Before(end); after = memory.Count() {
			time.Sleep(time.Millisecond) // a stopped Opening closes its file in its goroutine
		}
		if after != before {
			t.Errorf("memory was not released: counts %+v before, %+v after", before, after)
		}
	})
	return name, fmt.Appendf(nil, `{"filenames": [%q]}`, name), scope
}

func TestAPipeIsNotWaitedFor(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		_, attributes, scope := pipe(t)
		if err := ops.CreateNow(scope, op, "reader", nil, attributes); err != wait.ErrWouldBlock {
			t.Errorf("%s: found %v", op, err)
		}
		if _, err := scope.FindVar("reader"); err == nil {
			t.Errorf("%s: there is a variable", op)
		}
	}
}

func TestAnOpeningEnds(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		name, attributes, scope := pipe(t)
		o := ops.Open(scope, op, attributes)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := o.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: found %v", op, err)
		}
		w, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 2*8)); err != nil {
			t.Fatal(err)
		}
		w.Close()
		made, err := o.Wait(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		o.Stop()
		r := readers.NewHolder(made)
		n := 0
		for {
			tuple, err := r.ReadNext(context.Background())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			tuple.Release()
			n++
		}
		if n != 2 {
			t.Errorf("%s: expected 2 records, found %d", op, n)
		}
		r.Drop()
	}
}

// An Opening is stopped while it waits, or after its end.
func TestAnOpeningIsStopped(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", written), func(t *testing.T) { isStopped(t, written) })
	}
}

func isStopped(t *testing.T, written bool) {
	name, attributes, scope := pipe(t)
	o := ops.Open(scope, "open_files", attributes)
	w, err := os.OpenFile(name, os.O_WRONLY, 0) // waits for the opening
	if err != nil {
		t.Fatal(err)
	}
	if written {
		if _, err := w.Write(make([]byte, 8)); err != nil {
			t.Fatal(err)
		}
	}
	o.Stop()
	for err == nil { // until the read end is closed
		_, err = w.Write(make([]byte, 8))
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	w.Close()
}

// A search for the next record runs in the caller's thread or in a reader's own threads, alone or below other readers.
func TestASearchEndsWithItsReader(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		for _, chain := range []string{"", "create_batch_reader", "create_shuffle_reader", "create_double_buffer_reader"} {
			for _, reset := range []bool{false, true} {
				t.Run(fmt.Sprint(op, " ", chain, " reset ", reset), func(t *testing.T) {
					scope := readertest.Scope(t)
					h := create(t, scope, op, "file", nil, string(readertest.VastFile(t, "x")))
					if chain != "" {
						attributes := map[string]string{"create_batch_reader": `{"batch_size": 2}`, "create_shuffle_reader": `{"buffer_size": 2}`}[chain]
						h = create(t, scope, chain, "chain", []string{"file"}, attributes)
					}
					ctx, cancel := context.WithCancel(context.Background())
					done := make(chan error, 1)
					go func() {
						_, err := h.ReadNext(ctx)
						done <- err
					}()
					<-readertest.Searched
					if op == "create_file_reader" {
						<-readertest.Searched // in the goroutine, since the caller's thread does not stay in it
					}
					if reset {
						if err := readertest.ResetUntilEnd(t, h, done); !readertest.IsCancelled(err) {
							t.Errorf("found %v", err)
						}
						cancel()
						return
					}
					cancel()
					if err := <-done; !errors.Is(err, context.Canceled) {
						t.Errorf("found %v", err)
					}
				})
			}
		}
	}
}

// If it takes long to infer the slots, a goroutine opens the file. It ends with the Opening.
func TestASearchForSlotsEndsWithItsOpening(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		attributes, before, scope := readertest.VastFile(t, "describe"), memory.Count(), pyfeed.NewScope(nil)
		if err := ops.CreateNow(scope, op, "reader", nil, attributes); err != wait.ErrWouldBlock {
			t.Fatalf("found %v", err)
		}
		<-readertest.Searched
		o := ops.Open(scope, op, attributes)
		<-readertest.Searched
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := o.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("found %v", err)
		}
		o.Stop()
		scope.Drop()
		readertest.Until(func() bool { return memory.Count() == before })
	}
}
