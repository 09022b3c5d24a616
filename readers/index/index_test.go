package index

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// listed are Records at given positions, without data. A negative Offset is damage.
type listed struct {
	at   []record.Position
	next int
}

func (r *listed) Position() (record.Position, bool) {
	if r.next == len(r.at) {
		return record.Position{}, true
	}
	return r.at[r.next], r.at[r.next].Offset >= 0
}

func (r *listed) Read(out []*pyfeed.Tuple) (int, error) {
	switch {
	case r.next == len(r.at):
		return 0, io.EOF
	case r.at[r.next].Offset < 0:
		return 0, pyfeed.Errorf(pyfeed.Corrupt, "damage")
	}
	r.next++
	return 1, nil
}

// Resync, as that of some formats, leaves Read at the damage if nothing follows.
func (r *listed) Resync() error {
	if r.next == len(r.at)-1 {
		return io.EOF
	}
	r.next++
	return nil
}

func (r *listed) Seek(record.Position, int64, bool) error { return errors.ErrUnsupported }
func (r *listed) CheckTruncated() error                   { return nil }
func (r *listed) CheckUnchanged() error                   { return nil }
func (r *listed) Close()                                  {}
func source(skip bool, at ...record.Position) Source {
	return Source{Slots: 1, SkipDamage: skip, Open: func() (record.Records, error) { return &listed{at: at}, nil },
		Locate: func(err error, _ int64) error { return err }}
}

func TestPositionsAreAsTheyWereRead(t *testing.T) {
	key := Key{1 << 50, 1 << 60, 5}
	for name, at := range map[string][]record.Position{
		"none":                  nil,
		"one word":              {{Offset: 0}, {Offset: 17}, {Offset: 1 << 40}},
		"two words, from later": {{Offset: 0}, {Offset: 17}, {Offset: 17, Inner: 3}, {Offset: 20}},
		"damage":                {{Offset: 4}, {Offset: -1}, {Offset: 9}, {Offset: -1}},
	} {
		path := filepath.Join(t.TempDir(), "x")
		if err := Build(context.Background(), path, key, source(true, at...)); err != nil {
			t.Fatal(err)
		}
		x, err := Load(path, key)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var good []record.Position
		for _, p := range at {
			if p.Offset >= 0 {
				good = append(good, p)
			}
		}
		if x.Count() != int64(len(good)) || x.Damaged() != int64(len(at)-len(good)) {
			t.Errorf("%s: found %d records and %d damaged places", name, x.Count(), x.Damaged())
		}
		for i, want := range good {
			if found, err := x.Position(int64(i)); err != nil || found != want {
				t.Errorf("%s: record %d: expected %v, found %v, %v", name, i, want, found, err)
			}
		}
		x.Close()
		for _, other := range []Key{{4, 1 << 60, 5}, {1 << 50, 1, 5}, {1 << 50, 1 << 60, 6}} {
			if _, err := Load(path, other); err != ErrOther {
				t.Errorf("%s: found %v", name, err)
			}
		}
	}
}

// A large index is mapped. If it is cut off meanwhile, that is an error, not a fault of the process.
func TestAnIndexThatIsCutOff(t *testing.T) {
	var at []record.Position
	for i := range int64(20_000) {
		at = append(at, record.Position{Offset: i})
	}
	path, key := filepath.Join(t.TempDir(), "x"), Key{Size: 20_000}
	if err := Build(context.Background(), path, key, source(false, at...)); err != nil {
		t.Fatal(err)
	}
	x, err := Load(path, key)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if p, err := x.Position(19_999); err != nil || p.Offset != 19_999 {
		t.Errorf("found %v, %v", p, err)
	}
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
	_, err = x.Position(19_999)
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.At.File != path {
		t.Errorf("found %v", err)
	}
}

// A small index is damaged if its sum is wrong, a large one if its positions do not increase.
func TestDamagedPositions(t *testing.T) {
	for _, n := range []int64{3, 20_000} {
		var at []record.Position
		for i := range n {
			at = append(at, record.Position{Offset: 10 * i})
		}
		path, key := filepath.Join(t.TempDir(), "x"), Key{Size: 10 * n}
		if err := Build(context.Background(), path, key, source(false, at...)); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		data[headerSize+8] ^= 0x80 // the position of record 1
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		x, err := Load(path, key)
		if err == nil {
			_, err = x.Position(1)
			x.Close()
		}
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Kind != pyfeed.Corrupt || e.At.File != path {
			t.Errorf("%d records: found %v", n, err)
		}
	}
}

func TestNoIndexIsLeftBehindByAnError(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	err := Build(context.Background(), path, Key{}, source(false, record.Position{}, record.Position{Offset: -1}))
	if err == nil || err.Error() != "damage" {
		t.Errorf("found %v", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(io.ErrClosedPipe)
	if err := Build(ctx, path, Key{}, source(false, record.Position{})); err != io.ErrClosedPipe {
		t.Errorf("found %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := Load(path, Key{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found %v", err)
	}
}

func TestPaths(t *testing.T) {
	if found := Path("data/a.csv", ""); found != "data/.a.csv.pfindex" {
		t.Errorf("found %s", found)
	}
	one, other := Path("/data/1/a.csv", "/x"), Path("/data/2/a.csv", "/x")
	if one == other || !strings.HasPrefix(one, "/x/.a.csv-") || !strings.HasSuffix(one, ".pfindex") {
		t.Errorf("found %s and %s", one, other)
	}
	long := strings.Repeat("x", 250)
	if found := filepath.Base(Path(long, "")); len(found) > 225 || found == filepath.Base(Path(long+"y", "")) {
		t.Errorf("found %s", found)
	}
	t.Chdir("/tmp")
	if relative, absolute := Path("a.csv", "/x"), Path("/tmp/a.csv", "/x"); relative != absolute {
		t.Errorf("found %s and %s", relative, absolute)
	}
}

// Whatever is in a file, Load returns an index whose positions can be read, or an error.
func FuzzLoad(f *testing.F) {
	key := Key{3, 4, 5}
	path := filepath.Join(f.TempDir(), "seed")
	for _, at := range [][]record.Position{nil, {{Offset: 1}, {Offset: 2}}, {{Offset: 1, Inner: 2}}} {
		if err := Build(context.Background(), path, key, source(true, at...)); err != nil {
			f.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o666); err != nil {
			t.Fatal(err)
		}
		x, err := Load(path, key)
		var e *pyfeed.Error
		switch {
		case err == nil:
			for i := range x.Count() {
				_, _ = x.Position(i)
			}
			x.Close()
		case err != ErrOther && (!errors.As(err, &e) || e.Kind != pyfeed.Corrupt):
			t.Errorf("found %v", err)
		}
	})
}
