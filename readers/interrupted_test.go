package readers

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// vast is a format that finds damage wherever it looks, searches for the next record without end, and looks at its Interrupt
// meanwhile. In a file that begins with "describe" it searches before it says what instances look like.
type vast struct {
	f        *storage.File
	searches chan struct{} // is told when a search has begun
	describe bool
}

var searched = make(chan struct{}, 1<<10)

func init() {
	MustRegister(Format{Tag: "vast", Suffixes: []string{".vast"}, Open: func(path string, c *Config) (Records, error) {
		f, err := storage.Open(path, c.Storage, c.Pool)
		if err != nil {
			return nil, err
		}
		b, err := f.Peek(1)
		if err != nil {
			return nil, err
		}
		return &vast{f, searched, string(b) == "describe"}, nil
	}})
}

func (v *vast) search() error {
	v.searches <- struct{}{}
	for {
		if err := v.f.Look(); err != nil {
			return err
		}
	}
}

func (v *vast) Read([]*pyfeed.Tuple) (int, error) { return 0, v.f.Corrupt(0, 0, "damaged") }
func (v *vast) Resync() error                     { return v.search() }
func (v *vast) Intact() error                     { return nil }
func (*vast) Unchanged() error                    { return nil }
func (v *vast) Close()                            { v.f.Close() }
func (v *vast) Describe() ([]pyfeed.Slot, []string, error) {
	if v.describe {
		return nil, nil, v.search()
	}
	return []pyfeed.Slot{{DType: pyfeed.Uint8}}, nil, nil
}

// vastFile is one, and what opens it.
func vastFile(t *testing.T, content string) (attributes []byte) {
	t.Helper()
	for len(searched) > 0 {
		<-searched
	}
	name := filepath.Join(t.TempDir(), "a.vast")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"filenames": [%q], "on_corrupt": "skip"}`, name)
}

// A reader in the caller's thread, or in threads of its own, alone or below others.
func TestASearchEndsWithItsReader(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		for _, chain := range []string{"", "create_batch_reader", "create_shuffle_reader", "create_double_buffer_reader"} {
			for _, reset := range []bool{false, true} {
				t.Run(fmt.Sprint(op, " ", chain, " reset ", reset), func(t *testing.T) {
					scope := counted(t)
					h := create(t, scope, op, "file", nil, string(vastFile(t, "x")))
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
					<-searched
					if op == "create_file_reader" {
						<-searched // by the goroutine: the caller does not stay in it
					}
					if reset {
						if err := h.ReInit(); err != nil {
							t.Error(err)
						}
						if err := <-done; !isCancelled(err) {
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

func isCancelled(err error) bool {
	var e *pyfeed.Error
	return errors.As(err, &e) && e.Kind == pyfeed.Cancelled
}

// What takes long to say what its instances look like is opened by a goroutine, which ends with the opening.
func TestASearchForSlotsEndsWithItsOpening(t *testing.T) {
	for _, op := range []string{"open_files", "create_file_reader"} {
		attributes, scope := vastFile(t, "describe"), counted(t)
		if err := CreateNow(scope, op, "reader", nil, attributes); err != wait.ErrWouldBlock {
			t.Fatalf("found %v", err)
		}
		<-searched
		o := Open(scope, op, attributes)
		<-searched
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := o.Wait(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("found %v", err)
		}
		o.cancel()
		if _, err := o.Wait(context.Background()); !errors.Is(err, context.Canceled) { // it has ended
			t.Errorf("found %v", err)
		}
		o.Stop()
	}
}

// A read that goes on in a goroutine answers what it would have answered.
func TestALongReadGoesOnBesideItsCaller(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.told")
	data := make([]byte, 3000*8)
	for i := range 3000 {
		binary.NativeEndian.PutUint64(data[8*i:], uint64(i))
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	h := create(t, counted(t), "create_file_reader", "file", nil, fmt.Sprintf(`{"filenames": [%q], "storage": {"io": "read", "compression": "none"}}`, name))
	h.reader.(*FileReader).over = func() bool { return true }
	for range 2 {
		n := 0
		for ; ; n++ {
			tuple, err := h.ReadNext(context.Background())
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if found := binary.NativeEndian.Uint64(tuple.Slots[0].Data); found != uint64(n) {
				t.Fatalf("record %d: found %d", n, found)
			}
			tuple.Release()
		}
		if n != 3000 {
			t.Errorf("expected 3000 records, found %d", n)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

// holed are three records of which the second is damaged. The first search behind it is interrupted.
type holed struct {
	at       int
	searches int
}

func (h *holed) Read(out []*pyfeed.Tuple) (int, error) {
	switch h.at {
	case 1:
		return 0, &pyfeed.Error{Kind: pyfeed.Corrupt, Slot: -1, Text: "damaged"}
	case 3:
		return 0, io.EOF
	}
	out[0].Resize(0)
	h.at++
	return 1, nil
}

func (h *holed) Resync() error {
	if h.searches++; h.searches == 1 {
		return storage.ErrInterrupted
	}
	h.at++
	return nil
}

func (*holed) Intact() error    { return nil }
func (*holed) Unchanged() error { return nil }
func (*holed) Close()           {}

// What a file that is opened again passes is no record and no damage of its own, wherever that was interrupted.
func TestPassingAgainIsInterrupted(t *testing.T) {
	spec, err := pyfeed.NewSpec([]pyfeed.Slot{{DType: pyfeed.Uint8}})
	if err != nil {
		t.Fatal(err)
	}
	h := new(holed)
	f := &file{files: &files{skip: true, spec: spec}, records: h, again: 2}
	if err := f.passAgain(); err != storage.ErrInterrupted {
		t.Fatalf("expected it to be interrupted, found %v", err)
	}
	err = f.passAgain()
	if f.again != 0 || h.at != 2 || h.searches != 2 || err != nil {
		t.Errorf("expected the record behind the damage after 2 searches, found record %d after %d, %d to be passed, %v", h.at, h.searches, f.again, err)
	}
	pyfeed.ReleaseAll(f.spare)
}
