package tar

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// slot returns a tensor of values or of text.
func slot(values any, dims ...int64) pyfeed.LoDTensor {
	if text, is := values.(string); is {
		return formattest.Text(text)
	}
	return formattest.TensorOf(values, dims...)
}

func write(t *testing.T, path string, c *record.Config, tuples ...[]pyfeed.LoDTensor) error {
	t.Helper()
	var all []*pyfeed.Tuple
	for _, slots := range tuples {
		all = append(all, formattest.Tuple(slots...))
	}
	return tested.Write(t, path, c, all...)
}

func TestWrites(t *testing.T) {
	dir := t.TempDir()
	pool := formattest.Pool(t)
	names := []string{"cls", "jpg", "json", "npy", "score", "txt"}
	c := &record.Config{Options: &Options{Fields: append(fields("cls", "jpg", "json", "npy"), Field{Name: "score", Kind: "float"}, Field{Name: "txt"})}, Pool: pool}
	tuples := [][]pyfeed.LoDTensor{
		{slot(int64(3)), slot("\xff\xd8"), slot(1.5), slot([]int16{1, -2, 3, 4}, 2, 2), slot(float32(0.1)), slot("text")},
		{slot(int64(-4)), slot(strings.Repeat("x", 5000)), slot(1e21), slot([]int16{5}, 1, 1), slot(float32(math.Inf(1))), slot("")},
	}
	want := []string{`int64 3 | "\xff\xd8" | float64 1.5 | int16 [1 -2 3 4]dims[2 2] | float64 0.1 | "text"`,
		fmt.Sprintf(`int64 -4 | %q | float64 1e+21 | int16 [5]dims[1 1] | float64 +Inf | ""`, strings.Repeat("x", 5000))}
	sums := map[string][32]byte{}
	for _, name := range []string{"a.tar", "again.tar", "a.tar.gz", "a.tgz", "a.tar.zst"} {
		path := filepath.Join(dir, name)
		if err := write(t, path, c, tuples...); err != nil {
			t.Fatal(err)
		}
		data, _ := os.ReadFile(path)
		sums[name] = sha256.Sum256(data)
		magic := map[string]string{".tar": "000000000.cls", ".gz": "\x1f\x8b", ".tgz": "\x1f\x8b", ".zst": "\x28\xb5\x2f\xfd"}[filepath.Ext(name)]
		if !strings.HasPrefix(string(data), magic) || filepath.Ext(name) == ".tar" && len(data)%recordSize != 0 {
			t.Errorf("%s: found %q, %d bytes", name, data[:16], len(data))
		}
		r, err := Open(path, c)
		if err != nil {
			t.Fatal(err)
		}
		_, found, err := r.(*records).Describe()
		if err != nil || !reflect.DeepEqual(found, names) {
			t.Errorf("%s: names %q, %v", name, found, err)
		}
		rows, errs := drain(t, r.(*records), false)
		r.Close()
		expect(t, name, rows, want...)
		expectErrors(t, name, errs)
	}
	if sums["a.tar"] != sums["again.tar"] || sums["a.tar.gz"] != sums["a.tgz"] {
		t.Error("expected the same bytes for the same data")
	}
	if err := write(t, filepath.Join(dir, "named.gz.tar"), &record.Config{Options: &Options{Compression: "gzip"}, Names: []string{"txt"}, Pool: pool},
		[]pyfeed.LoDTensor{slot("a")}); err != nil {
		t.Error(err)
	}
	if data, _ := os.ReadFile(filepath.Join(dir, "named.gz.tar")); !bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		t.Errorf("expected gzip, found %q", data)
	}
}

// The header is that of Python's tarfile in format USTAR, for a member without an owner.
func TestGolden(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := write(t, path, &record.Config{Names: []string{"cls"}}, []pyfeed.LoDTensor{slot(int64(12))}); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	want := make([]byte, recordSize)
	copy(want, "000000000.cls")
	copy(want[100:], "0000644\x000000000\x000000000\x0000000000002\x0000000000000\x00007377\x00 0")
	copy(want[257:], "ustar\x0000")
	copy(want[512:], "12")
	if !bytes.Equal(data, want) {
		t.Errorf("expected\n%q\nfound\n%q", want[:520], data[:520])
	}
}

func TestEveryNumberWritten(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		value any
		kind  string
		want  string
	}{
		{true, "int", "1"}, {false, "json", "false"}, {true, "json", "true"}, {int8(-128), "int", "-128"}, {int16(-32768), "int", "-32768"}, {int32(math.MinInt32), "json", "-2147483648"},
		{int64(math.MinInt64), "int", "-9223372036854775808"}, {uint8(255), "int", "255"}, {uint16(65535), "int", "65535"}, {uint32(math.MaxUint32), "int", "4294967295"},
		{uint64(math.MaxUint64), "int", "18446744073709551615"}, {float32(0.1), "json", "0.1"}, {0.1, "float", "0.1"}, {math.MaxFloat64, "json", "1.7976931348623157e+308"},
		{math.Copysign(0, -1), "float", "-0"}, {math.NaN(), "float", "NaN"}, {math.Inf(-1), "float", "-Inf"}, {float32(math.SmallestNonzeroFloat32), "float", "1e-45"},
	} {
		s := slot(c.value)
		o := &Options{Fields: []Field{{Name: "x", Kind: c.kind, DType: s.DType.String()}}}
		path := filepath.Join(dir, "a.tar")
		if err := write(t, path, &record.Config{Options: o}, []pyfeed.LoDTensor{s}); err != nil {
			t.Errorf("%v: %v", c, err)
			continue
		}
		data, _ := os.ReadFile(path)
		if found := string(text(data[512:1024])); found != c.want {
			t.Errorf("%v: expected %s, found %s", c, c.want, found)
		}
		rows, errs := read(t, data, *o, false)
		expect(t, c.want, rows, row(formattest.Tuple(s)))
		expectErrors(t, c.want, errs)
	}
}

func TestKeysWritten(t *testing.T) {
	deep := strings.Repeat("d/", 70) + strings.Repeat("n", 90) // fits into prefix and name
	long := strings.Repeat("directory", 20) + "/n"             // does not fit
	longer := strings.Repeat("n", 996)                         // the digits of the length make the record longer
	keys := []string{"a", "./a", "x.y/a", "ünï/ç", "a b", deep, long, longer, "\xff", strings.Repeat("n", 96), strings.Repeat("n", 97), "__x", "__x__y", "__m__"}
	c := &record.Config{Names: []string{"__key__", "txt"}}
	var tuples [][]pyfeed.LoDTensor
	var want []string
	for _, key := range keys {
		tuples = append(tuples, []pyfeed.LoDTensor{slot(key), slot("t" + key)})
		want = append(want, fmt.Sprintf("%q | %q", key, "t"+key))
	}
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := write(t, path, c, tuples...); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	rows, errs := read(t, data, Options{Fields: fields("__key__", "txt")}, false)
	expect(t, "keys", rows, want...)
	expectErrors(t, "keys", errs)
	if !bytes.Contains(data, []byte("./PaxHeader\x00")) && !bytes.Contains(data, []byte("././@PaxHeader\x00")) {
		t.Error("expected a pax header")
	}
	for _, key := range []string{"", "a.b", "dir/", "dir/.a", "/a", "a\x00b", "__meta__/a"} {
		err := write(t, filepath.Join(t.TempDir(), "a.tar"), c, []pyfeed.LoDTensor{slot(key), slot("")})
		if err == nil || !strings.Contains(err.Error(), "slot 0: key: expected a name without dots") {
			t.Errorf("%q: found %v", key, err)
		}
	}
	err := write(t, filepath.Join(t.TempDir(), "a.tar"), c, tuples[0], tuples[0])
	if err == nil || !strings.Contains(err.Error(), `expected another than that of the tuple before, found "a"`) {
		t.Errorf("found %v", err)
	}
}

func TestWriterRefuses(t *testing.T) {
	lodOf := func(s pyfeed.LoDTensor, lod ...int64) pyfeed.LoDTensor { s.LoD = pyfeed.LoD{lod}; return s }
	short := slot([]int16{1, 2}, 3)
	for name, c := range map[string]struct {
		c      record.Config
		tuples [][]pyfeed.LoDTensor
		want   string
		kind   pyfeed.Kind
	}{
		"no names":      {record.Config{}, [][]pyfeed.LoDTensor{{slot("a")}}, "expected a name for each", pyfeed.Invalid},
		"an empty name": {record.Config{Names: []string{"jpg", ""}}, nil, "expected a name for each", pyfeed.Invalid},
		"key only":      {record.Config{Names: []string{"__key__"}}, nil, "found the key only", pyfeed.Invalid},
		"a path":        {record.Config{Options: &Options{Fields: []Field{{Name: "json", Path: []string{"a"}}}}}, nil, "path: expected none for writing", pyfeed.Invalid},
		"one extension": {record.Config{Options: &Options{Fields: []Field{{Name: "json"}, {Name: "json", Path: []string{}}}}}, nil, "same", pyfeed.Invalid},
		"slots":         {record.Config{Names: []string{"jpg"}}, [][]pyfeed.LoDTensor{{slot("a"), slot("b")}}, "slots: expected 1, found 2", pyfeed.Slots},
		"bytes":         {record.Config{Names: []string{"jpg"}}, [][]pyfeed.LoDTensor{{slot(1.5)}}, "slot 0: dtype: expected uint8 for .jpg, whose members are bytes, found float64", pyfeed.Type},
		"rank":          {record.Config{Names: []string{"jpg"}}, [][]pyfeed.LoDTensor{{slot([]byte("abcd"), 2, 2)}}, "rank: expected 1 for .jpg", pyfeed.Shape},
		"a number":      {record.Config{Names: []string{"cls"}}, [][]pyfeed.LoDTensor{{slot([]int16{1, 2}, 2)}}, "slot 0: expected one number for .cls, found dims [2]", pyfeed.Shape},
		"an integer":    {record.Config{Names: []string{"cls"}}, [][]pyfeed.LoDTensor{{slot(1.5)}}, "dtype: expected int64 for .cls, found float64", pyfeed.Type},
		"another":       {record.Config{Names: []string{"cls"}}, [][]pyfeed.LoDTensor{{slot(int8(1))}, {slot(int16(1))}}, "dtype: expected int8 for .cls, found int16", pyfeed.Type},
		"another array": {record.Config{Names: []string{"npy"}}, [][]pyfeed.LoDTensor{{slot(int8(1))}, {slot(int16(1))}}, "dtype: expected int8, as in the first tuple, found int16", pyfeed.Type},
		"sequences":     {record.Config{Names: []string{"npy"}}, [][]pyfeed.LoDTensor{{lodOf(slot([]int16{1, 2}, 2), 0, 1, 2)}}, "expected that of one sequence, found [[0 1 2]]", pyfeed.Shape},
		"no JSON":       {record.Config{Names: []string{"json"}}, [][]pyfeed.LoDTensor{{slot(math.NaN())}}, "expected a number that JSON has, found NaN", pyfeed.Invalid},
		"too short":     {record.Config{Names: []string{"npy"}}, [][]pyfeed.LoDTensor{{short}}, "expected 6 bytes, found 4", pyfeed.Shape},
		"as slots say": {record.Config{Names: []string{"npy"}, Slots: []pyfeed.Slot{{DType: pyfeed.Int16, Dims: pyfeed.Dims{3}}}}, [][]pyfeed.LoDTensor{{slot([]int16{1, 2}, 2)}},
			"dimension 0: expected 3, found 2", pyfeed.Shape},
	} {
		c.c.Pool = nil
		path := filepath.Join(t.TempDir(), "a.tar")
		err := write(t, path, &c.c, c.tuples...)
		var e *pyfeed.Error
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &e) || e.Kind != c.kind {
			t.Errorf("%s: expected %q of kind %d, found %v", name, c.want, c.kind, err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s: a file was left behind", name)
		}
	}
	// A single sequence is written like any other array.
	path := filepath.Join(t.TempDir(), "a.tar")
	if err := write(t, path, &record.Config{Names: []string{"npy"}}, []pyfeed.LoDTensor{lodOf(slot([]int16{1, 2}, 2), 0, 2)}); err != nil {
		t.Error(err)
	}
	if err := write(t, filepath.Join(t.TempDir(), "empty.tar"), &record.Config{Names: []string{"npy"}}); err != nil {
		t.Error(err)
	}
}

func TestAbort(t *testing.T) {
	tested.Abort(t, &record.Config{Names: []string{"txt"}}, formattest.Tuple(formattest.Text("a")))
}

// A size that does not fit into a header is written to a pax header before it.
func TestLargeSizes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	sink, err := storage.Create(path, "none")
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{FileWriter: record.FileWriter{Sink: sink}, name: []byte("a.x")}
	if err := w.header(1 << 33); err != nil {
		t.Fatal(err)
	}
	if err := sink.Commit(); err != nil {
		t.Fatal(err)
	}
	data, _ := os.ReadFile(path)
	if string(text(data[512:])) != "19 size=8589934592\n" || string(data[1024+124:1024+136]) != "00000000000\x00" {
		t.Errorf("found %q", data)
	}
	_, errs := read(t, append(data, "begin"...), Options{Fields: fields("x")}, true)
	expectErrors(t, "cut", errs, "expected a member of 8589934592 bytes, found 5 before the end of the file")
}
