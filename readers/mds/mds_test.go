package mds

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

var tested = formattest.Format{Suffix: ".mds", Open: Open, Begin: begin, Create: Create}

// col is a column of a shard that a test makes, with the data of each sample.
type col struct {
	name, encoding string
	size           int // 0: each sample has a size
	data           []string
}

// describeAs returns the JSON object of a shard.
func describeAs(cols []col) string {
	d := map[string]any{"version": 2, "format": "mds"}
	var names, encodings []string
	var sizes []any
	for _, c := range cols {
		names, encodings = append(names, c.name), append(encodings, c.encoding)
		if c.size > 0 {
			sizes = append(sizes, c.size)
		} else {
			sizes = append(sizes, nil)
		}
	}
	d["column_names"], d["column_encodings"], d["column_sizes"] = names, encodings, sizes
	text, _ := json.Marshal(d)
	return string(text)
}

// shardOf makes a shard.
func shardOf(cols ...col) []byte {
	var samples []string
	for i := range cols[0].data {
		var head []byte
		body := ""
		for _, c := range cols {
			if c.size == 0 {
				head = binary.LittleEndian.AppendUint32(head, uint32(len(c.data[i])))
			}
			body += c.data[i]
		}
		samples = append(samples, string(head)+body)
	}
	return assemble(describeAs(cols), samples)
}

func assemble(text string, samples []string) []byte {
	data := binary.LittleEndian.AppendUint32(nil, uint32(len(samples)))
	at := 4 + 4*(len(samples)+1) + len(text)
	for _, s := range samples {
		data = binary.LittleEndian.AppendUint32(data, uint32(at))
		at += len(s)
	}
	data = binary.LittleEndian.AppendUint32(data, uint32(at))
	return append(append(data, text...), strings.Join(samples, "")...)
}

func words(n int) (all []string) {
	for i := range n {
		all = append(all, strings.Repeat(string(rune('a'+i%26)), i%7))
	}
	return all
}

func numbers(n, size int) (all []string) {
	for i := range n {
		b := binary.LittleEndian.AppendUint64(nil, uint64(i*0x01020304))
		all = append(all, string(b[:size]))
	}
	return all
}

// mixed is a shard of n samples with columns of several kinds.
func mixed(n int) []byte {
	var arrays, digits []string
	for i := range n {
		arrays = append(arrays, "\x04"+string(rune(i%5))+strings.Repeat("\x01\x00\x02\x00", i%5))
		digits = append(digits, fmt.Sprint(i*i))
	}
	return shardOf(col{"a", "ndarray:uint32", 0, arrays}, col{"n", "int32", 4, numbers(n, 4)}, col{"s", "str", 0, words(n)}, col{"d", "str_int", 0, digits})
}

func TestSamples(t *testing.T) {
	for _, many := range []int{1, 4, 33, 256} {
		tested.EachWay(t, mixed(100), record.Config{}, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if n := r.(record.Counted).Count(); n != 100 {
				t.Errorf("expected 100 samples, found %d", n)
			}
			slots, names, err := r.(record.Describer).Describe()
			if err != nil || fmt.Sprint(names) != "[a n s d]" || fmt.Sprint(slots) != "[uint32[-1] lod 1 int32[] uint8[-1] lod 1 int64[]]" {
				t.Fatalf("%v %v %v", slots, names, err)
			}
			n, err := formattest.Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
				a := slices.Repeat([]uint32{0x00020001}, i%5)
				want := fmt.Sprintf("%v %d %q %d", a, i*0x01020304, words(i + 1)[i], i*i)
				if got := formattest.FormatTuple(tuple); got != want {
					t.Errorf("sample %d: expected %s, found %s", i, want, got)
				}
			})
			if n != 100 || err != io.EOF || r.Resync() != io.EOF {
				t.Errorf("expected 100 samples, found %d, %v", n, err)
			}
		})
	}
}

// Blocks have the same values as tuples, in files of many windows.
func TestBlocks(t *testing.T) {
	const n = 60_000
	wide := numbers(n, 8)
	fixed := shardOf(col{"x", "ndarray:uint16:2,4", 16, slices.Repeat([]string{"0123456789abcdef"}, n)}, col{"y", "int64", 8, wide},
		col{"z", "uint8", 1, numbers(n, 1)})
	text := shardOf(col{"n", "int64", 8, numbers(n, 8)}, col{"s", "str", 0, words(n)}, col{"t", "bytes", 0, words(n)})
	for _, many := range []int{4, 255, 256} {
		for _, names := range [][]string{nil, {"z", "x"}, {"y"}} {
			c := config(names...)
			tested.EachWay(t, fixed, c, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got, err := formattest.Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
					for j, name := range names {
						want := map[string]string{"x": "0123456789abcdef", "y": wide[i], "z": wide[i][:1]}[name]
						if string(tuple.Slots[j].Data) != want {
							t.Fatalf("sample %d, %s: expected %q, found %q", i, name, want, tuple.Slots[j].Data)
						}
					}
				})
				if got != n || err != io.EOF {
					t.Fatal(got, err)
				}
			})
		}
		tested.EachWay(t, text, config("s"), func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			got, err := formattest.Drain(t, r, many, func(i int, tuple *pyfeed.Tuple) {
				if want := strings.Repeat(string(rune('a'+i%26)), i%7); string(tuple.Slots[0].Data) != want {
					t.Fatalf("sample %d: expected %q, found %q", i, want, tuple.Slots[0].Data)
				}
			})
			if got != n || err != io.EOF {
				t.Fatal(got, err)
			}
		})
	}
	formattest.WithPool(t, func(pool *memory.Pool) {
		for _, c := range []record.Config{config("y"), config("z", "x")} {
			c.Pool = pool
			r, err := tested.Memory(fixed, &c)
			if err != nil {
				t.Fatal(err)
			}
			out := make([]*pyfeed.Tuple, 20)
			pyfeed.NewTuples(out, 1)
			if got, err := formattest.ReadBlock(r, out); got != 20 || err != nil {
				t.Errorf("expected a block of 20, found %d, %v", got, err)
			}
			pyfeed.ReleaseAll(out)
			r.Close()
		}
	})
}

func config(names ...string) record.Config {
	if names == nil {
		return record.Config{}
	}
	o := &Options{}
	for _, name := range names {
		o.Columns = append(o.Columns, columns.Column{Columns: columns.Select{Items: []any{name}, Single: true}})
	}
	return record.Config{Options: o}
}

func TestEncodings(t *testing.T) {
	for _, c := range []struct{ encoding, data, want string }{
		{"int", "\xff\xff\xff\xff\xff\xff\xff\xff", "-1"},
		{"uint64", "\xff\xff\xff\xff\xff\xff\xff\xff", "18446744073709551615"},
		{"int8", "\xff", "-1"}, {"uint8", "\xff", "255"}, {"int16", "\xfe\xff", "-2"}, {"uint16", "\x01\x02", "513"}, {"int32", "\x01\x00\x00\x80", "-2147483647"},
		{"float32", "\x00\x00\x80\x3f", "1"}, {"float64", "\x00\x00\x00\x00\x00\x00\x00\xc0", "-2"},
		{"str_int", "-9223372036854775808", "-9223372036854775808"}, {"str_float", "1e-05", "1e-05"}, {"str_float", "-inf", "-Inf"}, {"str_float", "1e999", "+Inf"},
		{"str_decimal", "1.10", `"1.10"`}, {"bytes", "\x00\xff", `"\x00\xff"`}, {"json", "[1]", `"[1]"`}, {"pil", "xyz", `"xyz"`}, {"list[png]", "", `""`},
		{"ndarray:uint8:2,3", "abcdef", "[97 98 99 100 101 102]"}, {"ndarray:uint8", "\x08\x02\x03abcdef", "[97 98 99 100 101 102]"},
		{"ndarray", "\x11\x05\x02\x00\x01\x00\x02\x00", "[1 2]"}, {"ndarray", "\x21\x06\x02\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00", "[1 2]"},
		{"ndarray", "\x09\x07\x02\x00\x00\x00\x00\x00\x00\x00ab", "[97 98]"},
	} {
		e := encodingOf(c.encoding)
		size := max(e.size(), 0)
		tested.EachWay(t, shardOf(col{"x", c.encoding, int(size), []string{c.data, c.data}}), record.Config{}, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			all, err := formattest.Lines(t, r, 3)
			for i, s := range all {
				all[i], _, _ = strings.Cut(s, "(")
			}
			if err != io.EOF || len(all) != 2 || !strings.HasPrefix(all[0], c.want) || all[1] != all[0] {
				t.Errorf("%s: expected %s twice, found %q, %v", c.encoding, c.want, all, err)
			}
		})
	}
	for _, name := range []string{"", "ndarray:", "ndarray:bool", "ndarray:uint8:", "ndarray:uint8:0", "ndarray:uint8:-1", "ndarray:uint8:2,x", "ndarray::2",
		"ndarray:float64:4294967296,4294967296", "ndarray:int8:1,1,1,1,1,1,1,1,1", "any", "bool", "bfloat16", "complex64", "list[pkl]", "int:8"} {
		if e := encodingOf(name); e.known || e.kind != foreign {
			t.Errorf("%q: expected no known encoding, found %+v", name, e)
		}
	}
}

func TestBadValues(t *testing.T) {
	for _, c := range []struct {
		encoding, data string
		kind           pyfeed.Kind
		text           string
	}{
		{"str_int", "1.5", pyfeed.Corrupt, `column "x": expected the digits of int64, found "1.5"`},
		{"str_int", "", pyfeed.Corrupt, `column "x": expected the digits of int64, found ""`},
		{"str_int", "9223372036854775808", pyfeed.Type, `expected the digits of int64, found "9223372036854775808": choose dtype "bytes"`},
		{"str_float", "one", pyfeed.Corrupt, `column "x": expected the digits of float64, found "one"`},
		{"ndarray:uint8", "", pyfeed.Corrupt, `column "x": expected an array, found the end after 0 bytes`},
		{"ndarray:uint8", "\x08\x02", pyfeed.Corrupt, `column "x": expected an array, found the end after 2 bytes`},
		{"ndarray:uint8", "\x04\x02a", pyfeed.Corrupt, `column "x": expected an array of dims [2] of uint8, found 1 bytes`},
		{"ndarray:uint8", "\x28\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01a", pyfeed.Corrupt, `expected an array of at most 8 dimensions, found 10`},
		{"ndarray:uint8", "\x07\xff\xff\xff\xff\xff\xff\xff\xffa", pyfeed.Corrupt, `expected dimensions that memory can hold, found 18446744073709551615`},
		{"ndarray:int64", "\x0b\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7fa", pyfeed.Corrupt, `expected an array of dims [9223372036854775807 9223372036854775807] of int64, found 1 bytes`},
		{"ndarray", "\x07\x04\x01a", pyfeed.Corrupt, `column "x": expected the code of a dtype, found 7`},
	} {
		data := shardOf(col{"n", "uint8", 1, []string{"a", "b", "c"}}, col{"x", c.encoding, 0, []string{c.data, c.data, c.data}})
		tested.EachWay(t, data, record.Config{}, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				n, err := formattest.Drain(t, r, 2, nil)
				e := formattest.Expect(t, err, c.kind, c.text)
				if n != 0 || e.At.Record != int64(i) || e.At.Offset <= 0 {
					t.Errorf("%s: expected damage in sample %d, found %d samples and %v", c.encoding, i, n, err)
				}
				if err := r.Resync(); err != nil {
					t.Fatal(err)
				}
				if number, exact := r.(record.Numberer).Number(); number != int64(i+1) || !exact {
					t.Errorf("expected sample %d, found %d, exact: %v", i+1, number, exact)
				}
			}
			if _, err := formattest.Drain(t, r, 2, nil); err != io.EOF {
				t.Errorf("expected the end, found %v", err)
			}
		})
	}
}

// With whichever byte changed, and wherever the file is cut, samples are right or there is an error. All others follow.
func TestDamage(t *testing.T) {
	data := shardOf(col{"n", "int32", 4, numbers(6, 4)}, col{"s", "str", 0, words(6)})
	begin := int(binary.LittleEndian.Uint32(data[4:]))
	table := 4 + 4*7
	var want []string
	for i := range 6 {
		want = append(want, fmt.Sprintf("%d %q", i*0x01020304, words(6)[i]))
	}
	read := func(data []byte) (all []string, errs []error) {
		formattest.WithPool(t, func(pool *memory.Pool) {
			r, err := tested.Memory(data, &record.Config{Pool: pool})
			if err != nil {
				errs = append(errs, err)
				return
			}
			defer r.Close()
			for err != io.EOF {
				_, err = formattest.Drain(t, r, 4, func(_ int, tuple *pyfeed.Tuple) { all = append(all, formattest.FormatTuple(tuple)) })
				if err != io.EOF {
					errs = append(errs, err)
					if r.Resync() == io.EOF {
						return
					}
				}
			}
		})
		return all, errs
	}
	if all, errs := read(data); !slices.Equal(all, want) || errs != nil {
		t.Fatal(all, errs)
	}
	for at := range data {
		for bit := range 8 {
			bad := slices.Clone(data)
			bad[at] ^= 1 << bit
			all, errs := read(bad)
			for _, err := range errs {
				if k := formattest.Kind(err); k != pyfeed.Corrupt && k != pyfeed.Unsupported {
					t.Errorf("byte %d, bit %d: %v", at, bit, err)
				}
			}
			switch {
			case at >= 8 && at < table && (len(errs) == 0 || len(all) < 4): // an offset is that of at most two samples
				t.Errorf("byte %d, bit %d: %q %v", at, bit, all, errs)
			case at >= begin && len(all)+len(errs) != 6:
				t.Errorf("byte %d, bit %d: %q %v", at, bit, all, errs)
			case at < table && slices.ContainsFunc(all, func(s string) bool { return !slices.Contains(want, s) }):
				t.Errorf("byte %d, bit %d: %q", at, bit, all)
			}
		}
		all, errs := read(data[:at])
		if len(errs) != 1 || formattest.Kind(errs[0]) != pyfeed.Corrupt || !slices.Equal(all, want[:len(all)]) {
			t.Errorf("cut at %d: %q %v", at, all, errs)
		}
	}
	all, errs := read(append(slices.Clone(data), 0))
	if !slices.Equal(all, want) || len(errs) != 1 || !strings.Contains(errs[0].Error(), "record 6: expected the end of the file after 6 samples, found more bytes") {
		t.Errorf("longer: %q %v", all, errs)
	}
}

func TestAdversarialHeaders(t *testing.T) {
	one := []col{{"x", "uint8", 1, nil}}
	for _, c := range []struct {
		data []byte
		text string
	}{
		{nil, "expected a number of samples and an offset, 8 bytes, found 0 and the end of the file"},
		{[]byte("\xff\xff\xff\xff\x10\x00\x00\x00"), "expected the offsets of samples, 17179869188 bytes, found 8 and the end of the file"},
		{[]byte("\x00\x00\x00\x00\x07\x00\x00\x00{}"), "expected the first sample behind 8 bytes of offsets and a description of at most 67108864, found it at byte 7"},
		{[]byte("\x00\x00\x00\x00\xff\xff\xff\xff{}"), "expected the first sample behind 8 bytes of offsets and a description of at most 67108864, found it at byte 4294967295"},
		{[]byte("\x00\x00\x00\x00\xff\xff\x00\x00{}"), "expected a description of the columns, 65535 bytes, found 10 and the end of the file"},
		{assemble("{", nil), `expected a description of the columns as JSON, found "{"`},
		{assemble("{}", nil), `expected the format "mds", found ""`},
		{assemble(`{"format": "mds", "version": 1}`, nil), "expected version 2, found 1"},
		{assemble(`{"format": "mds", "version": 2, "column_names": ["x"]}`, nil), "expected a name, an encoding and a size for each column, found 1, 0 and 0"},
		{assemble(`{"format": "mds", "version": 2}`, nil), "expected 1 to 1048576 columns, found 0"},
		{assemble(strings.Replace(describeAs(one), "[1]", "[0]", 1), nil), `column "x": expected a size of at least 1, found 0`},
		{assemble(strings.Replace(describeAs(one), "[1]", "[2]", 1), nil), `column "x": expected the size of "uint8", 1 bytes, found 2 bytes`},
		{assemble(strings.Replace(describeAs(one), "[1]", "[null]", 1), nil), `column "x": expected the size of "uint8", 1 bytes, found none`},
		{assemble(strings.Replace(describeAs(one), "uint8", "str", 1), nil), `column "x": expected the size of "str", none, found 1 bytes`},
	} {
		tested.EachWay(t, c.data, record.Config{}, func(t *testing.T, _ record.Records, err error) {
			e := formattest.Expect(t, err, pyfeed.Corrupt, "expected ")
			if !strings.HasPrefix(e.Text, c.text) && !strings.Contains(c.text, "and the end of the file") {
				t.Errorf("expected %q, found %q", c.text, e.Text)
			}
		})
	}
	tested.EachWay(t, shardOf(one...), record.Config{}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if n, err := formattest.Drain(t, r, 2, nil); n != 0 || err != io.EOF {
			t.Errorf("expected no samples, found %d, %v", n, err)
		}
	})
}

func TestColumns(t *testing.T) {
	data := shardOf(col{"a", "ndarray:uint8", 0, []string{"\x04\x02ab", "\x04\x02cd"}}, col{"n", "int16", 2, []string{"\x01\x00", "\x02\x00"}},
		col{"p", "pkl", 0, []string{"evil", "worse"}}, col{"q", "new", 0, []string{"1", "2"}}, col{"d", "str_decimal", 0, []string{"1.0", "2"}})
	for _, c := range []struct {
		columns string
		kind    pyfeed.Kind
		text    string // of the first sample, or of the error
	}{
		{`["n"]`, 0, "1"},
		{`["d", "n"]`, 0, `"1.0" 1`},
		{`[{"columns": "p", "dtype": "bytes"}, {"columns": 3, "dtype": "bytes"}]`, 0, `"evil" "1"`},
		{`[{"columns": "a", "dims": [2]}, 1]`, 0, "[97 98] 1"},
		{`[{"columns": "n", "dtype": "bytes"}]`, 0, `"\x01\x00"`},
		{`["p"]`, pyfeed.Unsupported, `columns: column "p": expected data, found pickled objects of Python, which may run any code: choose other columns, or dtype "bytes"`},
		{`["q"]`, pyfeed.Unsupported, `columns: column "q": expected a known encoding, found "new": choose other columns, or dtype "bytes"`},
		{`["x"]`, pyfeed.Invalid, `columns: expected the name or number of a column, found "x"; there are "a", "n", "p", "q", "d"`},
		{`["a:n"]`, pyfeed.Invalid, `columns: expected one column for each slot, found 2`},
		{`[{"columns": "n", "dtype": "int32"}]`, pyfeed.Type, `columns: column "n": dtype: expected int16, as the file says, or bytes, found int32`},
		{`[{"columns": "n", "dims": [1]}]`, pyfeed.Shape, `columns: column "n": dims: expected [], as the file says, found [1]`},
		{`[{"columns": "n", "default": 0}]`, pyfeed.Invalid, `columns: column "n": default: expected none, because each sample has each column, found "0"`},
		{`null`, pyfeed.Unsupported, `columns: column "p": expected data, found pickled objects`},
	} {
		o := new(Options)
		if err := json.Unmarshal([]byte(`{"columns": `+c.columns+`}`), o); err != nil {
			t.Fatal(err)
		}
		tested.EachWay(t, data, record.Config{Options: o}, func(t *testing.T, r record.Records, err error) {
			if c.kind != 0 {
				formattest.Expect(t, err, c.kind, c.text)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			all, err := formattest.Lines(t, r, 1)
			if err != io.EOF || len(all) != 2 || all[0] != c.text {
				t.Errorf("%s: expected %s, found %q, %v", c.columns, c.text, all, err)
			}
		})
	}
	slots := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Int16}}, Names: []string{"n"}}
	tested.EachWay(t, data, slots, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if all, err := formattest.Lines(t, r, 2); err != io.EOF || fmt.Sprint(all) != "[1 2]" {
			t.Errorf("found %q, %v", all, err)
		}
	})
}

// Reading goes on from every position, also behind damage.
func TestSeeks(t *testing.T) {
	n := 60
	if testing.Short() {
		n = 30
	}
	data := mixed(n)
	damaged := slices.Clone(data)
	for _, sample := range []int{3, 4, n / 2} {
		damaged[binary.LittleEndian.Uint32(data[4+4*sample:])] ^= 0x40
	}
	for _, c := range []record.Config{{}, config("s"), config("n", "d")} {
		for _, data := range [][]byte{data, damaged, data[:len(data)-3], append(slices.Clone(data), 1)} {
			if n := tested.Seeks(t, data, c); n < 5 {
				t.Errorf("found %d positions", n)
			}
		}
	}
}

// Reading can be interrupted at any poll.
func TestInterrupted(t *testing.T) {
	long := []string{strings.Repeat("x", 90_000), "", strings.Repeat("y", 70_000)}
	data := shardOf(col{"s", "str", 0, long}, col{"a", "ndarray:uint8:3", 3, []string{"abc", "def", "ghi"}})
	if n := tested.Interrupted(t, data, record.Config{}); n < 5 {
		t.Errorf("found %d polls", n)
	}
}

func TestNoAllocationPerRecord(t *testing.T) {
	data := shardOf(col{"n", "int64", 8, numbers(50_000, 8)}, col{"x", "ndarray:uint16:2,4", 16, slices.Repeat([]string{"0123456789abcdef"}, 50_000)})
	c := record.Config{Pool: formattest.Pool(t)}
	if n := tested.Allocations(t, formattest.File(t, "a.mds", data), &c, 100); n > 12 {
		t.Errorf("expected a few allocations for 256 samples, found %v", n)
	}
}

func TestWriter(t *testing.T) {
	slots := []pyfeed.Slot{{Name: "b", DType: pyfeed.Uint8, Dims: pyfeed.Dims{-1}, LoDLevels: 1}, {Name: "i", DType: pyfeed.Int64}, {Name: "f", DType: pyfeed.Float16},
		{Name: "x", DType: pyfeed.Float32, Dims: pyfeed.Dims{2, 1}}, {Name: "l", DType: pyfeed.Int32, Dims: pyfeed.Dims{-1, 2}, LoDLevels: 1}}
	rows := func(i int) *pyfeed.Tuple {
		ragged := formattest.TensorOf(make([]int32, 2*(i+1)), int64(i+1), 2)
		ragged.LoD = [][]int64{{0, int64(i + 1)}}
		return formattest.Tuple(formattest.Text(fmt.Sprint("row ", i)), formattest.TensorOf(int64(-i)), formattest.Tensor(pyfeed.Float16, nil, []byte{byte(i), 0}),
			formattest.TensorOf([]float32{float32(i), 2}, 2, 1), ragged)
	}
	for _, given := range []bool{true, false} {
		for _, suffix := range []string{".mds", ".mds.gz", ".mds.zstd", ".mds.zst"} {
			formattest.WithPool(t, func(pool *memory.Pool) {
				path := filepath.Join(t.TempDir(), "a"+suffix)
				c := record.Config{Pool: pool, Names: []string{"b", "i", "f", "x", "l"}}
				if given {
					c.Slots, c.Names = slots, nil
				}
				if err := tested.Write(t, path, &c, rows(0), rows(1), rows(300)); err != nil {
					t.Fatal(err)
				}
				r, err := Open(path, &record.Config{Pool: pool})
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				found, names, err := r.(record.Describer).Describe()
				if err != nil || fmt.Sprint(names) != "[b i f x l]" || fmt.Sprint(found) != "[uint8[-1] lod 1 int64[] float16[] float32[2 1] int32[-1 2] lod 1]" {
					t.Errorf("found %v %v %v", found, names, err)
				}
				all, err := formattest.Lines(t, r, 2)
				want := []string{formattest.FormatTuple(rows(0)), formattest.FormatTuple(rows(1)), formattest.FormatTuple(rows(300))}
				if err != io.EOF || !slices.Equal(all, want) {
					t.Errorf("expected %.300q, found %.300q, %v", want, all, err)
				}
			})
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		c     record.Config
		tuple *pyfeed.Tuple
		text  string
	}{
		{"a.mds", record.Config{}, formattest.Tuple(formattest.Zeros(pyfeed.Bool)), "slot 0: mds: dtype: expected an integer dtype, float16, float32 or float64, found bool"},
		{"a.mds", record.Config{}, formattest.Tuple(formattest.Zeros(pyfeed.Int8, 2, 0)), "slot 0: mds: expected arrays with elements, found dims [2 0]"},
		{"a.mds", record.Config{}, formattest.Tuple(formattest.Tensor(pyfeed.Int32, pyfeed.Dims{0}, nil, []int64{0, 0})), "slot 0: mds: expected arrays with elements, found dims [0]"},
		{"a.mds", record.Config{Names: []string{"x", "x"}}, formattest.Tuple(formattest.Text("a"), formattest.Text("b")), `slot 1: mds: expected slots with different names, found "x" again`},
		{"a.mds", record.Config{Options: &Options{Encodings: map[string]string{"slot0": "int8"}}}, formattest.Tuple(formattest.Text("a")), `slot 0: mds: expected an encoding for uint8 of dims [-1], found "int8"`},
		{"a.mds", record.Config{Options: &Options{Encodings: map[string]string{"z": "int8"}}}, formattest.Tuple(formattest.Text("a")), `mds: encodings: expected the names of slots, found "z"`},
		{"a.mds", record.Config{}, nil, "mds: slots: expected at least 1, found none: give shapes for a shard without samples"},
		{"a.mds.br", record.Config{}, nil, "mds: compression: expected none, gzip, zlib, zstd or framed snappy (.sz) for writing, found br"},
		{"a.mds.zstd", record.Config{Options: &Options{Compression: "gzip"}}, nil, "compression: expected zstd, as the suffix .zstd of "},
	} {
		var tuples []*pyfeed.Tuple
		if c.tuple != nil {
			tuples = append(tuples, c.tuple)
		}
		config := c.c
		formattest.ExpectError(t, tested.Write(t, filepath.Join(t.TempDir(), c.name), &config, tuples...), c.text)
	}
	tested.Abort(t, &record.Config{}, formattest.Tuple(formattest.Text("a")))
	w := &writer{columns: []column{{name: "x", encoding: encodingOf("bytes"), size: -1}}, total: math.MaxUint32 - maxDescription - 9, options: &Options{}}
	formattest.Expect(t, w.encode(formattest.Tuple(formattest.Text("a"))), pyfeed.TooLarge, "expected a shard of less than 4 GiB")
}

func TestCompression(t *testing.T) {
	say := func(c *record.Config, compression string) { c.Options = &Options{Compression: compression} }
	tested.Compressions(t, record.Config{}, say, formattest.Tuple(formattest.Text("words")), "none", "gzip", "zlib", "zstd", "snappy")
	for _, suffix := range []string{"br/shard.00000.mds.br", "bz2/shard.00000.mds.bz2"} {
		_, err := Open(filepath.Join("testdata", suffix), &record.Config{})
		formattest.Expect(t, err, pyfeed.Unsupported, "expected a shard compressed by zstd, gzip or snappy, or not, found the suffix ")
	}
	packed, err := os.ReadFile("testdata/snappy/shard.00000.mds.snappy")
	if err != nil {
		t.Fatal(err)
	}
	for at := range len(packed) + 1 {
		for _, bad := range [][]byte{packed[:at], append(slices.Clone(packed[:at]), append([]byte{0xff}, packed[min(at+1, len(packed)):]...)...)} {
			if bytes.Equal(bad, packed) {
				continue
			}
			formattest.WithPool(t, func(pool *memory.Pool) {
				r, err := Open(formattest.File(t, "a.mds.snappy", bad), &record.Config{Pool: pool})
				if err == nil {
					_, err = formattest.Drain(t, r, 3, nil)
					r.Close()
				}
				if k := formattest.Kind(err); err != io.EOF && k != pyfeed.Corrupt && k != pyfeed.Unsupported {
					t.Errorf("changed at %d: %v", at, err)
				}
			})
		}
	}
	_, err = Open(formattest.File(t, "a.mds.snappy", []byte("\xff\xff\xff\xff\x0fabc")), &record.Config{Pool: formattest.Pool(t)})
	formattest.Expect(t, err, pyfeed.Corrupt, "expected a block of snappy: found 8 bytes for 4294967295")
}

func TestHashes(t *testing.T) {
	data := make([]byte, 300)
	for i := range data {
		data[i] = byte(i * 7)
	}
	for _, c := range []struct {
		n             int
		xxh32, xxh64s string
	}{{0, "02cc5d05", "ef46db3751d8e999"}, {1, "cf65b03e", "e934a84adb052768"}, {3, "14744175", "9ff70a635a6209ab"}, {4, "c8f60fc5", "ae5acdc00a55ac41"}, {8, "6edeeb34", "87116b3365b924eb"}, {15, "8807d6b2", "02c53ab1e360882f"}, {16, "b59b7e13", "ed1dd2fac0a31fbc"}, {17, "20dd4529", "758409c57cd5d0a2"}, {31, "dc5b7443", "0f187c62b1e722b7"}, {32, "d7f70f45", "91b0cb0931a8c629"}, {33, "e5b60f32", "931b043cf8d65b94"}, {47, "1c7dac3f", "980974feb2a7370d"}, {64, "b9258763", "bf3052e3445775d0"}, {100, "aa19e8b7", "8e2272c08247d5db"}, {300, "4db99917", "240b95edf72f18e0"}} {
		for _, piece := range []int{1, 7, 31, 33, 300} {
			short, long := hashes["xxh32"](), hashes["xxh64"]()
			for rest := data[:c.n]; len(rest) > 0; {
				k := min(piece, len(rest))
				_, _ = short.Write(rest[:k])
				_, _ = long.Write(rest[:k])
				rest = rest[k:]
			}
			if a, b := hex.EncodeToString(short.Sum(nil)), hex.EncodeToString(long.Sum(nil)); a != c.xxh32 || b != c.xxh64s {
				t.Errorf("%d bytes: expected %s and %s, found %s and %s", c.n, c.xxh32, c.xxh64s, a, b)
			}
		}
	}
}

func verify(t *testing.T, path string) (err error) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, opened := Open(path, &record.Config{Pool: pool})
		if err = opened; err == nil {
			err = r.(record.Verifier).Verify()
			r.Close()
		}
	})
	return err
}

func TestVerify(t *testing.T) {
	for _, name := range []string{"plain", "zstd", "gz", "snappy", "fixed"} {
		files, ok, err := Folder(filepath.Join("testdata", name))
		if !ok || err != nil || len(files) == 0 {
			t.Fatal(files, ok, err)
		}
		dir := t.TempDir()
		index, _ := os.ReadFile(filepath.Join("testdata", name, indexName))
		for _, file := range files {
			formattest.ExpectError(t, verify(t, file), "")
			data, _ := os.ReadFile(file)
			data[len(data)-6] ^= 1
			path := filepath.Join(dir, filepath.Base(file))
			if err := os.WriteFile(path, data, 0o666); err != nil {
				t.Fatal(err)
			}
			formattest.ExpectError(t, os.WriteFile(filepath.Join(dir, indexName), index, 0o666), "")
			if err := verify(t, path); name != "fixed" && formattest.Kind(err) != pyfeed.Corrupt {
				t.Errorf("%s: expected damage, found %v", file, err)
			}
		}
	}
	formattest.Expect(t, verify(t, "testdata/xxh3/shard.00000.mds"), pyfeed.Unsupported, `shard.00000.mds: index.json: shard 0: expected one of the hashes md5, sha1, sha224, sha256, sha384, sha512, xxh32 and xxh64, found ["xxh3_64"]`)
	dir := t.TempDir()
	data := shardOf(col{"x", "uint8", 1, []string{"a", "b"}})
	path := filepath.Join(dir, "s.mds")
	formattest.ExpectError(t, os.WriteFile(path, data, 0o666), "")
	formattest.ExpectError(t, verify(t, path), "")
	for i, c := range []struct {
		samples, bytes int
		hash, text     string
	}{
		{2, len(data), "", ""},
		{3, len(data), "", "expected 3 samples, as index.json says, found 2"},
		{2, len(data) + 1, "", fmt.Sprintf("expected %d bytes, as index.json says, found %d", len(data)+1, len(data))},
		{2, len(data), "00", "sha1: expected 00, as index.json says, found "},
	} {
		hashes := "{}"
		if c.hash != "" {
			hashes = fmt.Sprintf(`{"sha1": %q, "other": "1"}`, c.hash)
		}
		index := fmt.Sprintf(`{"version": 2, "shards": [{"format": "mds", "samples": %d, "raw_data": {"basename": "s.mds", "bytes": %d, "hashes": %s}}]%*s}`,
			c.samples, c.bytes, hashes, i, "")
		formattest.ExpectError(t, os.WriteFile(filepath.Join(dir, indexName), []byte(index), 0o666), "")
		formattest.ExpectError(t, verify(t, path), c.text)
	}
}

func TestFolder(t *testing.T) {
	dir := t.TempDir()
	const good = `{"format": "mds", "raw_data": {"basename": "a"}}`
	for _, c := range []struct {
		index, files, text string
	}{
		{`{"version": 2, "shards": [{"format": "mds", "raw_data": {"basename": "b.mds"}}, {"format": "mds", "raw_data": {"basename": "sub/a"}, "zip_data": {"basename": "a.zstd"}}]}`,
			"[b.mds a.zstd]", ""},
		{`{"shards": []}`, "", ""}, {`[]`, "", ""}, {`{"shards": [{"format": "csv"}]}`, "", ""}, {`{"chunks": []}`, "", ""}, {`{"shards": 3}`, "", ""},
		{`{"shards": [{"format": 3}]}`, "", ""}, {`{"version": "x", "shards": [3]}`, "", ""},
		{`{"version": 2, "shards": [{"format": "mds", `, "", `index.json: expected an index as JSON, found "{\"version\": 2, \"shards\": [{\"format\": \"md": unexpected end of JSON input`},
		{``, "", `index.json: expected an index as JSON, found "": unexpected end of JSON input`},
		{`{"version": 3, "shards": [{"format": "mds", "raw_data": {}}]}`, "", "index.json: expected version 2, found 3"},
		{`{"version": "2", "shards": [{"format": "mds", "raw_data": {}}]}`, "", "index.json: version: expected integer, found string"},
		{`{"version": 2, "shards": [{"format": "mds"}]}`, "", `index.json: shard 0: raw_data: expected the file of the shard, found none`},
		{`{"version": 2, "shards": [` + good + `, {"format": "csv"}]}`, "", `index.json: shard 1: format: expected "mds", found "csv"`},
		{`{"version": 2, "shards": [` + good + `, 3]}`, "", `index.json: shard 1: expected object, found number`},
		{`{"version": 2, "shards": [{"format": "mds", "raw_data": {"basename": "../x"}}]}`, "", `index.json: shard 0: raw_data.basename: expected the name of a file in the folder, found "../x"`},
		{`{"version": 2, "shards": [` + good + `, {"format": "mds", "raw_data": {"basename": "a"}, "zip_data": {"basename": "/a"}}]}`, "", `shard 1: zip_data.basename: expected the name of a file in the folder, found "/a"`},
		{`{"version": 2, "shards": [{"format": "mds", "raw_data": {"basename": 3}}]}`, "", "index.json: shard 0: raw_data.basename: expected string, found number"},
		{`{"version": 2, "shards": [{"format": "mds", "samples": -3, "raw_data": {"basename": "a"}}]}`, "", "index.json: shard 0: samples: expected at least 0, found -3"},
		{`{"version": 2, "shards": [{"format": "mds", "samples": 1e99, "raw_data": {"basename": "a"}}]}`, "", "index.json: shard 0: samples: expected integer, found number 1e99"},
		{`{"version": 2, "shards": [{"format": "mds", "raw_data": {"basename": "a", "bytes": -1}}]}`, "", "index.json: shard 0: raw_data.bytes: expected at least 0, found -1"},
	} {
		formattest.ExpectError(t, os.WriteFile(filepath.Join(dir, indexName), []byte(c.index), 0o666), "")
		for _, path := range []string{dir, filepath.Join(dir, indexName)} {
			files, ok, err := Folder(path)
			formattest.ExpectError(t, err, c.text)
			if found := strings.ReplaceAll(fmt.Sprint(files), dir+"/", ""); ok != (c.files != "") || ok && found != c.files {
				t.Errorf("%s: expected %s, found %s", c.index, c.files, found)
			}
		}
	}
	if files, ok, err := Folder("testdata/plain/shard.00000.mds"); ok || err != nil || files != nil {
		t.Errorf("expected no data set, found %v %v %v", files, ok, err)
	}
	if files, ok, err := Folder(t.TempDir()); ok || err != nil || files != nil {
		t.Errorf("expected no data set, found %v %v %v", files, ok, err)
	}
}

func TestUpdateIndex(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b.mds", "a.mds.zstd", "b.mds", "c.mds.gz"} {
		c := record.Config{Options: &Options{UpdateIndex: true}}
		w, err := Create(filepath.Join(dir, name), &c)
		if err != nil {
			t.Fatal(err)
		}
		formattest.ExpectError(t, w.Write(formattest.Tuple(formattest.Text(name))), "")
		formattest.ExpectError(t, w.Close(), "")
	}
	files, ok, err := Folder(dir)
	if !ok || err != nil || strings.ReplaceAll(fmt.Sprint(files), dir+"/", "") != "[a.mds.zstd b.mds c.mds.gz]" {
		t.Fatal(files, ok, err)
	}
	for _, file := range files {
		formattest.ExpectError(t, verify(t, file), "")
	}
	var index struct {
		Shards []struct {
			Compression *string
			Raw         struct{ Basename string } `json:"raw_data"`
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil || json.Unmarshal(data, &index) != nil {
		t.Fatal(err, string(data))
	}
	var found []string
	for _, s := range index.Shards {
		compression := "null"
		if s.Compression != nil {
			compression = *s.Compression
		}
		found = append(found, s.Raw.Basename+" "+compression)
	}
	if want := []string{"a.mds zstd", "b.mds null", "c.mds gz"}; !slices.Equal(found, want) {
		t.Errorf("expected %q, found %q", want, found)
	}
	formattest.ExpectError(t, os.WriteFile(filepath.Join(dir, indexName), []byte("{}"), 0o666), "")
	c := record.Config{Options: &Options{UpdateIndex: true}}
	w, err := Create(filepath.Join(dir, "d.mds"), &c)
	if err != nil {
		t.Fatal(err)
	}
	formattest.ExpectError(t, w.Write(formattest.Tuple(formattest.Text("x"))), "")
	formattest.Expect(t, w.Close(), pyfeed.State, "update_index: expected no index, or one of a data set in this format, found another file")
}

// A description of a few bytes for each column does not make as many slots.
func TestTooManySlots(t *testing.T) {
	cols := make([]col, columns.MaxSlots+1)
	for i := range cols {
		cols[i] = col{fmt.Sprint("c", i), "uint8", 1, []string{"a", "b"}}
	}
	tested.EachWay(t, shardOf(cols...), record.Config{}, func(t *testing.T, _ record.Records, err error) {
		formattest.Expect(t, err, pyfeed.Invalid, "columns: expected at most 4096 where each is a slot, found 4097: give columns")
	})
	tested.EachWay(t, shardOf(cols...), config("c4096"), func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if lines, err := formattest.Lines(t, r, 2); err != io.EOF || !slices.Equal(lines, []string{"97", "98"}) {
			t.Errorf("found %q, %v", lines, err)
		}
	})
}

// A shard whose compression the index cannot describe is refused before it is written.
func TestUpdateIndexRefuses(t *testing.T) {
	for _, c := range []struct {
		name, compression string
		kind              pyfeed.Kind
		text              string
	}{
		{"a.mds.zlib", "", pyfeed.Unsupported, "mds: update_index: expected a shard compressed by gzip or zstd, or not, because MosaicML's index has no other compression that can be written, found zlib for "},
		{"a.mds.sz", "", pyfeed.Unsupported, "found snappy for "},
		{"a.mds", "zlib", pyfeed.Unsupported, "found zlib for "},
		{"a.mds", "gzip", pyfeed.Invalid, "mds: update_index: expected the suffix .gz for gzip, .zst or .zstd for zstd, and no such suffix for none, found compression gzip for "},
		{"a.mds.gz", "none", pyfeed.Invalid, "found compression none for "},
		{"a.mds.gz", "zstd", pyfeed.Invalid, "found compression zstd for "},
	} {
		dir := t.TempDir()
		_, err := Create(filepath.Join(dir, c.name), &record.Config{Options: &Options{UpdateIndex: true, Compression: c.compression}})
		formattest.Expect(t, err, c.kind, c.text)
		if entries, err := os.ReadDir(dir); len(entries) > 0 || err != nil {
			t.Errorf("%s: expected no file, found %v, %v", c.name, entries, err)
		}
	}
}

func FuzzMDS(f *testing.F) {
	f.Add(mixed(5), uint8(0))
	f.Add(mixed(5), uint8(1))
	f.Add(shardOf(col{"x", "uint8", 1, []string{"a", "b"}}), uint8(2))
	for _, name := range []string{"plain/shard.00000.mds", "pkl/shard.00000.mds", "zstd/shard.00000.mds.zstd", "fixed/shard.00000.mds"} {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, uint8(3))
	}
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, how uint8) {
		defer formattest.CheckLeaks(t)()
		c := record.Config{Options: &Options{}}
		if how%4 == 1 {
			c = config("s")
		}
		c.Pool = pool
		r, err := tested.Memory(data, &c)
		if err != nil {
			switch formattest.Kind(err) {
			case pyfeed.Corrupt, pyfeed.Unsupported, pyfeed.Invalid:
				return
			}
			t.Fatal(err)
		}
		defer r.Close()
		if how%2 == 1 {
			_, _, _ = r.(record.Describer).Describe()
			_ = r.Resync()
		}
		total := int64(0)
		for range 100 {
			n, err := formattest.Drain(t, r, 17, nil)
			if total += int64(n); err == io.EOF {
				break
			}
			if k := formattest.Kind(err); k != pyfeed.Corrupt && k != pyfeed.Type {
				t.Fatal(err)
			}
			if r.Resync() == io.EOF {
				break
			}
		}
		if total > r.(record.Counted).Count() {
			t.Fatalf("%d samples of %d", total, r.(record.Counted).Count())
		}
	})
}

func BenchmarkRead(b *testing.B) {
	b.Run("text", func(b *testing.B) {
		tested.Benchmark(b, formattest.File(b, "a.mds", shardOf(col{"n", "int64", 8, numbers(50_000, 8)}, col{"s", "str", 0, words(50_000)})), record.Config{}, nil)
	})
}
