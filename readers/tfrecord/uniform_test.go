package tfrecord

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// placed are features that are used where they lie; the records of alike have them in another order, and one more between.
const placed = `{"features": [{"name": "b", "dtype": "float32", "shape": [2, 1]}, {"name": "a", "dtype": "uint16", "raw": true, "shape": [3]},
	{"name": "c", "dtype": "float32"}]}`

func alike(i int, other float32) string {
	raw := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint16(nil, uint16(i)), math.Float32bits(float32(i)))
	return example(entry("a", strs(string(raw))), entry("other", floatList(other)), entry("b", floatList(float32(i), -float32(i))), entry("c", floatList(7)))
}

// placedCase is a file to be read by placed.
type placedCase struct {
	name    string
	data    []byte
	records int
}

// read reads to the end and goes on behind damage, by Read or also as Rows. It answers how many came as Rows.
func (c placedCase) read(t *testing.T, r record.Records, many int, rows bool) (all []string, asRows int) {
	t.Helper()
	slots, _, err := r.(record.Describer).Describe()
	if err != nil {
		t.Fatal(err)
	}
	spec, out := specOf(t, slots), make([]*pyfeed.Tuple, many)
	for len(all) < 10*c.records {
		pyfeed.NewTuples(out, len(slots))
		n, err := 0, error(nil)
		if rows {
			n, err = formattest.ReadBlock(r, out)
			asRows += n
		}
		if n == 0 {
			n, err = r.Read(out)
		}
		for _, tuple := range out[:n] {
			mergeSplits(t, tuple, spec)
			for i := range tuple.Slots {
				if !tuple.Slots[i].ReadOnly && i != 2 { // of which some cases have pieces, which are copied
					t.Errorf("%s: slot %d is no view", c.name, i)
				}
			}
			all = append(all, formattest.FormatTuple(tuple))
		}
		pyfeed.ReleaseAll(out)
		if err == nil {
			continue
		}
		if err == io.EOF || r.Resync() == io.EOF {
			return append(all, err.Error()), asRows
		}
		all = append(all, err.Error())
	}
	t.Fatalf("%s: more than there is", c.name)
	return nil, 0
}

// Records that differ in values alone come as Rows. What is otherwise among them, or damaged, is what Read says of it.
func TestUniformRecordsAgreeWithGeneralOnes(t *testing.T) {
	const records, one = 100, 41
	others := map[string]string{
		"values":         alike(1000, 1),
		"an unused one":  alike(one, 2),
		"a name":         example(entry("A", strs("abcdef")), entry("other", floatList(1)), entry("b", floatList(1, 2)), entry("c", floatList(7))),
		"an order":       example(entry("b", floatList(1, 2)), entry("other", floatList(1)), entry("a", strs("abcdef")), entry("c", floatList(7))),
		"a name twice":   example(entry("a", strs("abcdef")), entry("b", floatList(3, 3)), entry("b", floatList(1, 2)), entry("c", floatList(7))),
		"a size":         example(entry("a", strs("abcdef")), entry("other", floatList(1)), entry("b", floatList(1, 2, 3)), entry("c", floatList(7))),
		"more":           alike(one, 1) + example(entry("new", floatList(1))),
		"pieces":         example(entry("a", strs("abcdef")), entry("other", floatList(1)), entry("b", floatList(1, 2)), entry("c", sub(2), floatList(7))),
		"no example":     "\xff",
		"nothing":        "",
		"nothing common": string(bytes.Repeat([]byte{1}, len(alike(0, 1)))),
	}
	build := func(change func(i int, record []byte) []byte) (data []byte) {
		for i := range records {
			data = append(data, change(i, appendRecord(nil, []byte(alike(i, 1))))...)
		}
		return data
	}
	cases := []placedCase{{"all", build(func(_ int, r []byte) []byte { return r }), records}}
	for name, other := range others {
		for _, at := range []int{0, one, records - 1} {
			cases = append(cases, placedCase{fmt.Sprint(name, " at ", at), build(func(i int, r []byte) []byte {
				if i == at {
					return appendRecord(nil, []byte(other))
				}
				return r
			}), records})
		}
	}
	for k := range appendRecord(nil, []byte(alike(one, 1))) {
		if testing.Short() && k%3 > 0 {
			continue
		}
		cases = append(cases, placedCase{fmt.Sprintf("byte %d is damaged", k), build(func(i int, r []byte) []byte {
			if i == one {
				r[k] ^= 4
			}
			return r
		}), records}, placedCase{fmt.Sprintf("cut off at byte %d", k), cases[0].data[:one*len(cases[0].data)/records+k], records})
	}
	for i, c := range cases {
		config := config(t, placed)
		want, _ := c.read(t, inMemory(t, config, c.data), 10, false)
		for k, many := range []int{1, 7, 64, 200} {
			if testing.Short() && strings.Contains(c.name, "byte ") && (i/2+k)%4 > 0 {
				continue
			}
			found, asRows := c.read(t, inMemory(t, config, c.data), many, true)
			if !slices.Equal(found, want) {
				t.Errorf("%s, %d at a time: expected\n%.1000q\nfound\n%.1000q", c.name, many, want, found)
			}
			if c.name == "all" && asRows <= records-minUniform {
				t.Errorf("%d at a time: expected all but the last few as rows, found %d", many, asRows)
			}
		}
	}
	want, _ := cases[0].read(t, inMemory(t, config(t, placed), cases[0].data), 1, false)
	if want[one] != "[41 -41]dims[2 1] [41 0 16932] 7" || len(want) != records+1 {
		t.Errorf("found %q of %d", want[one], len(want))
	}
}

// Rows end where a window, a block or the file does, and outlive it.
func TestUniformRecordsOfALargeFile(t *testing.T) {
	const records = 40_000
	var data []byte
	for i := range records {
		data = appendRecord(data, []byte(alike(i, 1)))
	}
	if len(data) < 3*memory.WindowSize {
		t.Fatal("the file is not large")
	}
	for way, path := range map[string]string{
		"map": formattest.File(t, "a.tfrecord", data), "read": formattest.File(t, "a.tfrecord", data),
		"auto": formattest.File(t, "a.tfrecord.gz", formattest.Gzip(data)),
	} {
		c := config(t, placed)
		c.Storage.IO = way
		r, err := Open(path, c)
		if err != nil {
			t.Fatal(err)
		}
		var all []*pyfeed.Tuple
		asRows := 0
		for err == nil {
			out := make([]*pyfeed.Tuple, 1000)
			pyfeed.NewTuples(out, 3)
			n, _ := formattest.ReadBlock(r, out)
			if asRows += n; n == 0 {
				n, err = r.Read(out)
			}
			all = append(all, out[:n]...)
			pyfeed.ReleaseAll(out[n:])
		}
		r.Close()
		if err != io.EOF || len(all) != records || asRows < records*9/10 {
			t.Errorf("%s: expected %d, most as rows, found %d, %d of them so: %v", way, records, len(all), asRows, err)
		}
		for i, tuple := range all {
			s := &tuple.Slots[0]
			want := math.Float32bits(float32(i))
			if !slices.Equal(s.Dims(), pyfeed.Dims{2, 1}) || binary.NativeEndian.Uint32(s.Data) != want || binary.NativeEndian.Uint32(s.Data[4:]) != want^1<<31 {
				t.Fatalf("%s, record %d: found %s", way, i, formattest.FormatTuple(tuple))
			}
		}
		pyfeed.ReleaseAll(all)
	}
}

// Records that are no two alike, or too large for it to matter, are not looked at twice, but for a few.
func TestUniformPathBacksOff(t *testing.T) {
	var data []byte
	for i := range 2 * uniformRetryDistance {
		data = appendRecord(data, []byte(alike(i, float32(i))))
	}
	r := inMemory(t, config(t, placed), data)
	out := make([]*pyfeed.Tuple, 100)
	if rows := r.ReadBlock(100); rows != nil || r.examples.pattern.retryAt != uniformRetryDistance {
		t.Fatalf("found %v, to be tried again from %d on", rows, r.examples.pattern.retryAt)
	}
	pattern := bytes.Clone(r.examples.pattern.record)
	for r.record < uniformRetryDistance {
		if rows := r.ReadBlock(100); rows != nil || !bytes.Equal(r.examples.pattern.record, pattern) {
			t.Fatalf("tried again at %d", r.record)
		}
		pyfeed.NewTuples(out, 3)
		if _, err := r.Read(out[:uniformRetryDistance/8]); err != nil {
			t.Fatal(err)
		}
		pyfeed.ReleaseAll(out)
	}
	if rows := r.ReadBlock(100); rows != nil || bytes.Equal(r.examples.pattern.record, pattern) {
		t.Fatalf("expected no rows and another try, found %v", rows)
	}
}

// FuzzUniform is about any record between some that are alike, and one byte changed in it.
func FuzzUniform(f *testing.F) {
	f.Add([]byte(alike(3, 1)), uint16(40))
	f.Add([]byte(alike(3, 2)), uint16(0))
	f.Add([]byte(example(entry("a", strs("abcdef")), entry("b", floatList(1, 2)), entry("b", floatList(3, 4)), entry("c", floatList(7)))), uint16(30))
	c := &record.Config{Options: formattest.Options[Options](f, placed), Pool: memory.NewPool(memory.File)}
	f.Cleanup(c.Pool.Close)
	p, err := newPlan(c.Options.(*Options).Features)
	if err != nil {
		f.Fatal(err)
	}
	slots, _ := p.describe()
	spec, out := specOf(f, slots), make([]*pyfeed.Tuple, 3)
	pyfeed.NewTuples(out, len(slots))
	f.Fuzz(func(t *testing.T, data []byte, at uint16) {
		defer formattest.CheckLeaks(t)()
		changed := bytes.Clone(data)
		if len(data) > 0 {
			changed[int(at)%len(data)] ^= 1 << (at % 8)
		}
		all := file(string(data), string(data), string(changed), string(data), alike(1, 1), alike(2, 1), string(data), string(changed), string(changed))
		tuples := drain(t, c, spec, out, all, record.Records.Read)
		if rows := drain(t, c, spec, out, all, formattest.Read); !slices.Equal(rows, tuples) {
			t.Errorf("expected %.1000q, found as rows %.1000q", tuples, rows)
		}
	})
}

// What is not used where it lies, or not of one size, does not come as Rows.
func TestOtherFeaturesHaveNoBlocks(t *testing.T) {
	record := example(entry("f", floatList(1, 2)), entry("i", intList(3)), entry("s", strs("ab")), entry("none", floatList()))
	for features, want := range map[string]string{
		`{"name": "f", "kind": "variable", "dtype": "float32"}`:                                            "[1 2]",
		`{"name": "f", "dtype": "float64", "shape": [2]}`:                                                  "[1 2]",
		`{"name": "f", "dtype": "float32", "shape": [2]}, {"name": "i", "dtype": "int64"}`:                 "[1 2] 3",
		`{"name": "s", "dtype": "bytes"}`:                                                                  `"ab"`,
		`{"name": "s", "dtype": "uint8", "raw": true, "kind": "variable"}`:                                 `"ab"`,
		`{"name": "none", "dtype": "float32", "shape": [0]}`:                                               "[]",
		`{"name": "g", "dtype": "float32", "default": 5}, {"name": "f", "dtype": "float32", "shape": [2]}`: "5 [1 2]",
	} {
		c := config(t, `{"features": [`+features+`]}`)
		data := file(slices.Repeat([]string{record}, 20)...)
		if rows := inMemory(t, c, data).ReadBlock(20); rows != nil {
			t.Errorf("%s: found rows", features)
		}
		seen, err := all(t, inMemory(t, c, data), 20)
		if err != nil {
			t.Error(err)
		}
		formattest.ExpectTexts(t, seen, slices.Repeat([]string{want}, 20)...)
	}
}
