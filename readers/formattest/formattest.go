// Package formattest helps to test file formats: it reads files in every way that is supported, writes them as a caller
// would, and makes tensors from Go's values. Only tests import it.
package formattest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A Format is the format under test. Create is nil in tests that only read.
type Format struct {
	Suffix string // of its files
	Open   func(path string, c *record.Config) (record.Records, error)
	Begin  record.BeginFunc
	Create func(path string, c *record.Config) (record.Writer, error)
	// NotCompressed: files that are compressed as a whole are refused.
	NotCompressed bool
}

// Memory opens a file with the content data, called "a" with the suffix, in memory.
func (f Format) Memory(data []byte, c *record.Config) (record.Records, error) {
	file, err := storage.New("a"+f.Suffix, data, c.Storage, c.Pool)
	if err != nil {
		return nil, err
	}
	return record.BeginRecords(file, c, f.Begin)
}

// EachWay opens a file in each way that a file can be read, calls test, and closes the file. The Config has no pool.
func (f Format) EachWay(t *testing.T, data []byte, c record.Config, test func(t *testing.T, r record.Records, err error)) {
	t.Helper()
	for _, way := range []string{"auto", "map", "read", "gzip", "memory"} {
		if way == "auto" && len(data) > 1<<20 || way == "gzip" && f.NotCompressed { // auto would be the same as map
			continue
		}
		t.Run(way, func(t *testing.T) {
			WithPool(t, func(pool *memory.Pool) {
				c := c
				c.Pool = pool
				var r record.Records
				var err error
				switch way {
				case "memory":
					r, err = f.Memory(data, &c)
				case "gzip":
					r, err = f.Open(File(t, "a"+f.Suffix+".gz", Gzip(data)), &c)
				default:
					c.Storage.IO = way
					r, err = f.Open(File(t, "a"+f.Suffix, data), &c)
				}
				if err == nil {
					defer r.Close()
				}
				test(t, r, err)
			})
		})
	}
}

// ReadBlock fills the front of out with the next instances of a Block of r, and returns how many: 0 if r returns no
// Block. An error says that the instance behind them is damaged, which the Block has found.
func ReadBlock(r record.Records, out []*pyfeed.Tuple) (int, error) {
	reader, is := r.(record.BlockReader)
	if !is {
		return 0, nil
	}
	block := reader.ReadBlock(len(out))
	if block == nil {
		return 0, nil
	}
	var chunk record.Chunk
	defer chunk.Release()
	chunk.AddBlock(block)
	pyfeed.ReleaseAll(out[:chunk.Len()])
	return chunk.Take(out)
}

// Read reads the next instances of a Block if r returns one, else calls r.Read.
func Read(r record.Records, out []*pyfeed.Tuple) (int, error) {
	if n, err := ReadBlock(r, out); n > 0 || err != nil {
		return n, err
	}
	return r.Read(out)
}

// Drain reads many tuples at a time until an error, and returns the number of tuples and the error. It calls see,
// unless that is nil, for each tuple. If many is odd, it reads Blocks where r returns them. The size of the data of
// each tuple MUST match its dtype and dims, and further reads MUST return the same error.
func Drain(t testing.TB, r record.Records, many int, see func(i int, t *pyfeed.Tuple)) (n int, err error) {
	t.Helper()
	out := make([]*pyfeed.Tuple, many)
	for err == nil {
		pyfeed.NewTuples(out, 1)
		ending, can := r.(record.EndReporter)
		ended := can && ending.AtEnd()
		var k int
		read := r.Read
		if many%2 == 1 {
			read = func(out []*pyfeed.Tuple) (int, error) { return Read(r, out) }
		}
		k, err = read(out)
		if ended && err != io.EOF {
			t.Fatalf("AtEnd returned true, but Read returned %d instances and %v", k, err)
		}
		if (k == 0) == (err == nil) {
			t.Fatalf("Read returned %d instances and %v", k, err)
		}
		for i, tuple := range out {
			for j := range tuple.Slots {
				s := &tuple.Slots[j]
				if i > k && s.Data != nil { // instance k may have been written in part
					t.Fatalf("Read returned %d instances, but slot %d of instance %d holds data", k, j, i)
				}
				if size, wrong := s.Measure(); i < k && (wrong != nil || size != len(s.Data)) {
					t.Fatalf("instance %d, slot %d: %v %v with %d bytes: expected %d, %v", n+i, j, s.DType, s.Dims(), len(s.Data), size, wrong)
				}
				if wrong := s.CheckLoD(); i < k && wrong != nil {
					t.Fatalf("instance %d, slot %d: %v", n+i, j, wrong)
				}
			}
			if i < k && see != nil {
				see(n+i, tuple)
			}
		}
		n += k
		pyfeed.ReleaseAll(out)
	}
	if k, again := r.Read(make([]*pyfeed.Tuple, 1)); k != 0 || again != err {
		t.Fatalf("expected %v again, found %d and %v", err, k, again)
	}
	return n, err
}

// ReadAll reads to the end, many tuples at a time, and closes the file, which the tuples outlive. The caller releases
// them.
func ReadAll(t testing.TB, r record.Records, many int) (all []*pyfeed.Tuple) {
	t.Helper()
	defer r.Close()
	for {
		out := make([]*pyfeed.Tuple, many)
		pyfeed.NewTuples(out, 1)
		n, err := r.Read(out)
		all = append(all, out[:n]...)
		pyfeed.ReleaseAll(out[n:])
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Lines reads like Drain and formats each instance as a line. Each MUST match the slots that r describes.
func Lines(t testing.TB, r record.Records, many int) (all []string, err error) {
	t.Helper()
	slots, _, err := r.(record.Describer).Describe()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := pyfeed.NewSpec(slots)
	if err != nil {
		t.Fatal(err)
	}
	_, err = Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
		if err := spec.Check(tuple); err != nil {
			t.Fatalf("instance %d: %v", i, err)
		}
		all = append(all, FormatTuple(tuple))
	})
	return all, err
}

// Write writes a file of tuples. It returns the error of Create, of the first Write that fails, or of Close. The file
// MUST NOT exist before Close, no file may remain after an error, and a closed Writer MUST stay closed.
func (f Format) Write(t testing.TB, path string, c *record.Config, tuples ...*pyfeed.Tuple) error {
	t.Helper()
	before := names(t, filepath.Dir(path))
	w, err := f.Create(path, c)
	if err == nil {
		for _, tuple := range tuples {
			if err = w.Write(tuple); err != nil {
				break
			}
		}
		if _, missing := os.Stat(path); missing == nil && !slices.Contains(before, filepath.Base(path)) {
			t.Error("there is a file before Close")
		}
		closed := w.Close()
		if err != nil && closed != err {
			t.Errorf("Close after an error: expected %v, found %v", err, closed)
		}
		if err = closed; err == nil {
			w.Abort()
			for _, again := range []error{w.Close(), w.Write(new(pyfeed.Tuple))} {
				if Kind(again) != pyfeed.State || !strings.HasSuffix(again.Error(), "expected an open writer, found one that is closed") {
					t.Errorf("expected a closed writer to return an error, found %v", again)
				}
			}
			before = append(before, filepath.Base(path))
		}
	}
	for _, name := range names(t, filepath.Dir(path)) {
		if !slices.Contains(before, name) {
			t.Errorf("%s was left behind", name)
		}
	}
	return err
}

func names(t testing.TB, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// Abort creates a file, writes a tuple, and aborts. No file may remain, and the Writer MUST stay closed.
func (f Format) Abort(t testing.TB, c *record.Config, tuple *pyfeed.Tuple) {
	t.Helper()
	dir := t.TempDir()
	w, err := f.Create(filepath.Join(dir, "a"+f.Suffix), c)
	if err == nil {
		err = w.Write(tuple)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.Abort()
	w.Abort()
	for _, closed := range []error{w.Write(tuple), w.Close()} {
		if Kind(closed) != pyfeed.State {
			t.Errorf("expected an aborted writer to return an error, found %v", closed)
		}
	}
	if left := names(t, dir); len(left) > 0 {
		t.Errorf("%v was left behind", left)
	}
}

// magics are the first bytes of compressed files, by suffix.
var magics = map[string]struct{ compression, magic string }{
	"": {"none", ""}, ".gz": {"gzip", "\x1f\x8b"}, ".zlib": {"zlib", "\x78"}, ".zst": {"zstd", "\x28\xb5\x2f\xfd"}, ".sz": {"snappy", "\xff\x06\x00\x00sNaPpY"},
}

// Compressions writes and reads files of ten tuples with each of the compressions, which the file's suffix gives. If
// say is not nil, it sets a compression in a Config, for files without such a suffix. An unknown compression, and one
// that contradicts the suffix, MUST return an error.
func (f Format) Compressions(t *testing.T, c record.Config, say func(c *record.Config, compression string), tuple *pyfeed.Tuple, compressions ...string) {
	t.Helper()
	if say != nil {
		c := c
		say(&c, "rar")
		path := File(t, "a", nil)
		_, created := f.Create(path, &c)
		_, opened := f.Open(path, &c)
		for _, err := range []error{created, opened} {
			if Kind(err) != pyfeed.Invalid || !strings.Contains(err.Error(), `compression: expected `) {
				t.Errorf("compression rar: found %v", err)
			}
		}
	}
	for end, named := range magics {
		for _, requested := range append(compressions, "") {
			if requested == "" && !slices.Contains(compressions, named.compression) || requested != "" && say == nil {
				continue
			}
			WithPool(t, func(pool *memory.Pool) {
				c := c
				c.Pool = pool
				if requested != "" {
					say(&c, requested)
				}
				path := filepath.Join(t.TempDir(), "a"+f.Suffix+end)
				if end != "" && requested != "" && requested != named.compression {
					if _, err := f.Create(path, &c); Kind(err) != pyfeed.Invalid {
						t.Errorf("%s, said %q: found %v", end, requested, err)
					}
					return
				}
				if err := f.Write(t, path, &c, slices.Repeat([]*pyfeed.Tuple{tuple}, 10)...); err != nil {
					t.Fatalf("%s, said %q: %v", end, requested, err)
				}
				data, err := os.ReadFile(path)
				want := named.magic
				for _, other := range magics {
					if requested == other.compression {
						want = other.magic
					}
				}
				if err != nil || !bytes.HasPrefix(data, []byte(want)) {
					t.Errorf("%s, said %q: expected %q, found %.10q, %v", end, requested, want, data, err)
				}
				r, err := f.Open(path, &c)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				n, err := Drain(t, r, 3, func(_ int, found *pyfeed.Tuple) {
					for i := range found.Slots {
						if !bytes.Equal(found.Slots[i].Data, tuple.Slots[i].Data) {
							t.Errorf("%s, said %q, slot %d: expected %x, found %x", end, requested, i, tuple.Slots[i].Data, found.Slots[i].Data)
						}
					}
				})
				if n != 10 || err != io.EOF {
					t.Errorf("%s, said %q: expected 10 instances, found %d, %v", end, requested, n, err)
				}
			})
		}
	}
}

// Allocations returns the number of Go allocations for reading 256 instances, on average of times reads. The file MUST
// have enough instances.
func (f Format) Allocations(t testing.TB, path string, c *record.Config, times int) float64 {
	t.Helper()
	r, err := f.Open(path, c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out := make([]*pyfeed.Tuple, 256)
	slots := numSlots(t, r, c)
	return testing.AllocsPerRun(times, func() {
		pyfeed.NewTuples(out, slots)
		if n, err := r.Read(out); err != nil || n < 2 {
			t.Fatal(n, err)
		}
		pyfeed.ReleaseAll(out)
	})
}

// numSlots returns how many slots an instance has.
func numSlots(t testing.TB, r record.Records, c *record.Config) int {
	t.Helper()
	slots := c.Slots
	if d, is := r.(record.Describer); is {
		var err error
		if slots, _, err = d.Describe(); err != nil {
			t.Fatal(err)
		}
	}
	return len(slots)
}

// Benchmark reads a file again and again, 256 instances at a time like a fileReader. It calls use, unless that is nil,
// for each instance. One operation is one file.
func (f Format) Benchmark(b *testing.B, path string, c record.Config, use func(t *pyfeed.Tuple)) {
	b.Helper()
	c.Pool = memory.NewPool(memory.File)
	defer c.Pool.Close()
	info, err := os.Stat(path)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	b.ReportAllocs()
	out := make([]*pyfeed.Tuple, 256)
	instances := 0
	for b.Loop() {
		r, err := f.Open(path, &c)
		if err != nil {
			b.Fatal(err)
		}
		for slots := numSlots(b, r, &c); err == nil; {
			pyfeed.NewTuples(out, slots)
			var n int
			n, err = r.Read(out)
			instances += n
			for _, tuple := range out[:n] {
				if use != nil {
					use(tuple)
				}
			}
			pyfeed.ReleaseAll(out)
		}
		if err != io.EOF {
			b.Fatal(err)
		}
		r.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(instances), "ns/instance")
}

// File makes a file in a new folder and returns its path.
func File(t testing.TB, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Gzip compresses data.
func Gzip(data []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(data) // cannot fail: it writes to memory
	_ = w.Close()
	return b.Bytes()
}

// Kind returns the kind of a *pyfeed.Error, else 0.
func Kind(err error) pyfeed.Kind {
	var e *pyfeed.Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return 0
}

// Expect stops the test if err is not of that kind, or does not contain text.
func Expect(t testing.TB, err error, kind pyfeed.Kind, text string) *pyfeed.Error {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(err.Error(), text) {
		t.Fatalf("expected an error of kind %d with %q, found %v", kind, text, err)
	}
	return e
}

// ExpectError fails the test if err does not contain text; if text is "", err has to be nil.
func ExpectError(t testing.TB, err error, text string) {
	t.Helper()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text)) {
		t.Errorf("expected an error %q, found %v", text, err)
	}
}

// ExpectTexts fails the test if found and expected differ. It formats both with %q.
func ExpectTexts(t testing.TB, found []string, expected ...string) {
	t.Helper()
	if !slices.Equal(found, expected) {
		t.Errorf("expected\n%s\nfound\n%s", list(expected), list(found))
	}
}

func list(all []string) string { return fmt.Sprintf("%.1000q", all) }
