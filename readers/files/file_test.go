package files

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Reads files that have a damaged number, and a file that is cut short.
func TestDamageIsRaisedInItsPlaceUntilReset(t *testing.T) {
	counted(t)
	names, files := readertest.WriteIDs(t, 30, 30)
	readertest.DamageID(t, names[1], 80, -5)
	h, _ := openMany(t, readertest.OpenIDs(names, `, "interleave": 1`))
	for range 2 {
		got, err := readertest.Drain(h)
		if want := slices.Concat(files[0], files[1][:10]); !slices.Equal(got, want) {
			t.Errorf("expected %v, found %v", want, got)
		}
		readertest.Expect(t, err, pyfeed.Corrupt, "found -5")
		var e *pyfeed.Error
		if errors.As(err, &e); e.At == nil || *e.At != (pyfeed.Location{File: names[1], Offset: 80, Record: 10}) {
			t.Errorf("expected the place in the file, found %v", e.At)
		}
		if _, again := h.ReadNext(background); again == nil || again.Error() != err.Error() {
			t.Errorf("expected the same error again, found %v", again)
		}
		if err := h.ReInit(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSkippedDamageIsCountedAndNamed(t *testing.T) {
	counted(t)
	names, files := readertest.WriteIDs(t, 30, 30)
	readertest.DamageID(t, names[1], 80, -5)
	readertest.DamageID(t, names[1], 88, -6)
	h, _ := openMany(t, readertest.OpenIDs(names, `, "interleave": 1, "on_corrupt": "skip"`))
	want := slices.Concat(files[0], files[1][:10], files[1][12:])
	if got := readertest.Drained(t, h); !slices.Equal(got, want) {
		t.Errorf("expected %v, found %v", want, got)
	}
	s := h.Stats()
	if s.Extra["corrupt"] != int64(2) {
		t.Errorf("expected 2 places, found %v", s.Extra["corrupt"])
	}
	if got := s.Extra["ledger"].([]damageEntry); got[1] != (damageEntry{names[1], 88, 11, false, "expected a number from 0 on, found -6", 1}) {
		t.Errorf("found %+v", got)
	}
}

func TestInstancesThatDoNotFitAreRefusedByPlace(t *testing.T) {
	counted(t)
	names, _ := readertest.WriteIDs(t, 3)
	slots := `[{"dtype": "int64", "dims": []}, {"dtype": "float32", "dims": [-1], "lod_levels": 1}]`
	h, _ := openMany(t, fmt.Sprintf(`{"filenames": [%q], "slots": %s}`, names[0], slots))
	_, err := h.ReadNext(background)
	readertest.Expect(t, err, pyfeed.Type, "slot 1: dtype: expected float32, found int64")
	var e *pyfeed.Error
	if errors.As(err, &e); e.At == nil || e.At.File != names[0] || e.At.Record != 0 || e.Slot != 1 {
		t.Errorf("expected file, record and slot, found %+v", e)
	}
}

// A read that goes on in a goroutine returns what it would have returned in the caller's thread.
func TestALongReadGoesOnBesideItsCaller(t *testing.T) {
	name := filepath.Join(t.TempDir(), "a.described")
	data := make([]byte, 3000*8)
	for i := range 3000 {
		binary.NativeEndian.PutUint64(data[8*i:], uint64(i))
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	h, r := openOne(counted(t), fmt.Sprintf(`{"filenames": [%q], "storage": {"io": "read", "compression": "none"}}`, name))
	r.(*fileReader).overTime = func() bool { return true }
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

// damagedRecords has three records, of which the second is damaged. Its first Resync is interrupted.
type damagedRecords struct {
	at       int
	searches int
}

func (h *damagedRecords) Read(out []*pyfeed.Tuple) (int, error) {
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

func (h *damagedRecords) Resync() error {
	if h.searches++; h.searches == 1 {
		return storage.ErrInterrupted
	}
	h.at++
	return nil
}

func (*damagedRecords) CheckTruncated() error { return nil }
func (*damagedRecords) CheckUnchanged() error { return nil }
func (*damagedRecords) Close()                {}

// The records that are skipped after a file was reopened are neither delivered nor counted as damage, wherever the
// skipping was interrupted.
func TestPassingAgainIsInterrupted(t *testing.T) {
	spec, err := pyfeed.NewSpec([]pyfeed.Slot{{DType: pyfeed.Uint8}})
	if err != nil {
		t.Fatal(err)
	}
	h := new(damagedRecords)
	f := &file{fileSet: &fileSet{skip: true, spec: spec}, records: h, numToSkip: 2}
	if err := f.skipAgain(); err != storage.ErrInterrupted {
		t.Fatalf("expected it to be interrupted, found %v", err)
	}
	err = f.skipAgain()
	if f.numToSkip != 0 || h.at != 2 || h.searches != 2 || err != nil {
		t.Errorf("expected the record after the damage after 2 searches, found record %d after %d, %d to be skipped, %v", h.at, h.searches, f.numToSkip, err)
	}
	pyfeed.ReleaseAll(f.spare)
}
