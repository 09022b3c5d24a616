package readers

import (
	"context"
	"encoding/json"
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
	"github.com/pyfeed/pyfeed/readers/storage"
)

// told is the format "ids" where the file tells what its instances look like: once something is there.
type told struct{ *ids }

func init() {
	MustRegister(Format{Tag: "told", Suffixes: []string{".told"}, Open: func(path string, c *Config) (Records, error) {
		f, err := storage.Open(path, c.Storage, c.Pool)
		if err != nil {
			return nil, err
		}
		return told{&ids{f: f, arena: memory.NewArena(c.Pool)}}, nil
	}})
}

func (r told) Describe() ([]pyfeed.Slot, []string, error) {
	if _, err := r.f.Peek(1); err != nil {
		return nil, nil, err
	}
	var slots []SlotAttributes
	if err := json.Unmarshal([]byte(idSlots), &slots); err != nil {
		return nil, nil, err
	}
	return slotsOf(slots)
}

// pipe is one that has to tell its slots, the attributes that open it, and a scope for its reader.
func pipe(t *testing.T) (name string, attributes []byte, scope *pyfeed.Scope) {
	t.Helper()
	before := memory.Count()
	name = filepath.Join(t.TempDir(), "pipe.told")
	if err := syscall.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	scope = pyfeed.NewScope(nil)
	t.Cleanup(func() {
		scope.Drop()
		after := memory.Count()
		for end := time.Now().Add(10 * time.Second); after != before && time.Now().Before(end); after = memory.Count() {
			time.Sleep(time.Millisecond) // an opening that was stopped closes its file in its own time
		}
		if after != before {
			t.Errorf("counts: %+v before, %+v after", before, after)
		}
	})
	return name, fmt.Appendf(nil, `{"filenames": [%q]}`, name), scope
}

func TestAPipeIsNotWaitedFor(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		_, attributes, scope := pipe(t)
		if err := CreateNow(scope, op, "reader", nil, attributes); err != wait.ErrWouldBlock {
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
		o := Open(scope, op, attributes)
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
		r := NewHolder(made)
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

// Whether it waits still, or has just come to its end.
func TestAnOpeningIsStopped(t *testing.T) {
	for _, written := range []bool{false, true} {
		t.Run(fmt.Sprint("written ", written), func(t *testing.T) { isStopped(t, written) })
	}
}

func isStopped(t *testing.T, written bool) {
	name, attributes, scope := pipe(t)
	o := Open(scope, "open_files", attributes)
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
	for err == nil { // until nobody reads any more
		_, err = w.Write(make([]byte, 8))
	}
	if !errors.Is(err, syscall.EPIPE) {
		t.Error(err)
	}
	w.Close()
}
