package csv

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
)

var (
	no            = false
	noHeader      = &Options{Header: &no}
	duplicateText = []pyfeed.Slot{record.BytesSlot, record.BytesSlot}
	mustNotQuote  = ""
)

func numberSlot(d pyfeed.DType, dims ...int64) pyfeed.Slot { return pyfeed.Slot{DType: d, Dims: dims} }

var tested = formattest.Format{Suffix: ".csv", Open: Open, Begin: commas.records, Create: Create}

// numbers formats the numbers of a slot as in a file.
func numbers(s *pyfeed.LoDTensor) string {
	var all []byte
	for data := s.Data; len(data) > 0; data = data[s.DType.Size():] {
		all = append(number.Append(all, data, s.DType), ' ')
	}
	return string(all)
}

func described(slots []pyfeed.Slot, names []string) string {
	var all []string
	for i, s := range slots {
		name := ""
		if i < len(names) {
			name = names[i]
		}
		all = append(all, fmt.Sprintf("%s:%v%v/%d", name, s.DType, s.Dims, s.LoDLevels))
	}
	return strings.Join(all, " ")
}

func TestRead(t *testing.T) {
	for _, c := range []struct {
		name, data, options string
		slots               []pyfeed.Slot
		names               []string
		described           string
		want                []string
	}{
		{"inferred", "id,x,name,ok,big\n1,2.5,a b,true,18446744073709551615\n-2,nan,,FALSE,0\n", "", nil, nil,
			"id:int64[]/0 x:float64[]/0 name:uint8[-1]/1 ok:bool[]/0 big:uint64[]/0",
			[]string{`1 2.5 "a b" true 18446744073709551615`, `-2 NaN "" false 0`}},
		{"quotes", "a,b\n\"x,y\",\"1\"\n\"li\nne\",\"\"\"q\"\"\"\n\"\",\"\"\n\"\"\"\",5\" disk\n", "", duplicateText, nil, ":uint8[-1]/1 :uint8[-1]/1",
			[]string{`"x,y" "1"`, `"li\nne" "\"q\""`, `"" ""`, `"\"" "5\" disk"`}},
		{"CRLF, mark, blank lines, no last line end", "\xef\xbb\xbfa,b\r\n\r\n\r\n1,x\r\n\r\n2,\"y\"\r\n\n3,z", "", nil, nil, "a:int64[]/0 b:uint8[-1]/1",
			[]string{`1 "x"`, `2 "y"`, `3 "z"`}},
		{"numbers at line ends", "1.5\r\n2\r\n3\n4", `{"header": false}`, []pyfeed.Slot{numberSlot(pyfeed.Float32)}, nil, ":float32[]/0", []string{"1.5", "2", "3", "4"}},
		{"carriage return at the end", "1,\"a\"\r\n2,\"b\"\r", `{"header": false}`, nil, nil, ":int64[]/0 :uint8[-1]/1", []string{`1 "a"`, `2 "b"`}},
		{"carriage return within", "a\rb,1\n", `{"header": false}`, nil, nil, ":uint8[-1]/1 :int64[]/0", []string{`"a\rb" 1`}},
		{"blanks", " 1 ,\t2.5, true ,\"3\",\" 4 \"\n", `{"header": false}`, nil, nil, ":int64[]/0 :float64[]/0 :bool[]/0 :int64[]/0 :int64[]/0", []string{"1 2.5 true 3 4"}},
		{"comments", "# one\n#two,\"\na,b\n#x\n1,2\n# last, 1\n3,#4\n#", `{"comment": "#"}`, []pyfeed.Slot{numberSlot(pyfeed.Int8), record.BytesSlot}, nil, ":int8[]/0 :uint8[-1]/1",
			[]string{`1 "2"`, `3 "#4"`}},
		{"header is data", "1,2\n3,4\n", `{"header": false}`, nil, nil, ":int64[]/0 :int64[]/0", []string{"1 2", "3 4"}},
		{"header of numbers", "1,2\n3,4\n", `{"header": true}`, nil, nil, "1:int64[]/0 2:int64[]/0", []string{"3 4"}},
		{"delimiter and quote", "a;b\n'x;''y';1,5\n", `{"delimiter": ";", "quote": "'"}`, duplicateText, nil, ":uint8[-1]/1 :uint8[-1]/1", []string{`"x;'y" "1,5"`}},
		{"no quote", "a,b\n\"x\",\"\"\n", `{"quote": ""}`, duplicateText, nil, ":uint8[-1]/1 :uint8[-1]/1", []string{`"\"x\"" "\"\""`}},
		{"slots in order", "7,1,2,3,4\n8,5,6,7,8\n", `{"header": false}`, []pyfeed.Slot{numberSlot(pyfeed.Uint8), numberSlot(pyfeed.Float32, 2, 2)}, nil,
			":uint8[]/0 :float32[2 2]/0", []string{"7 [1 2 3 4]dims[2 2]", "8 [5 6 7 8]dims[2 2]"}},
		{"slots by name", "a,b,c\n1,2,3\n", "", []pyfeed.Slot{numberSlot(pyfeed.Int32), numberSlot(pyfeed.Float64)}, []string{"c", "a"}, "c:int32[]/0 a:float64[]/0", []string{"3 1"}},
		{"slots with names of their own", "a,b\n1,2\n", "", []pyfeed.Slot{numberSlot(pyfeed.Int32), numberSlot(pyfeed.Int8)}, []string{"x", "y"}, "x:int32[]/0 y:int8[]/0", []string{"1 2"}},
		{"open dtype", "a\n1.5\n2\n", "", []pyfeed.Slot{numberSlot(pyfeed.Any, 1)}, nil, ":float64[1]/0", []string{"[1.5]", "[2]"}},
		{"columns by range and name", "x1,x2,x3,y,z\n1,2,3,4,hi\n", `{"columns": [{"columns": "y", "dtype": "int8"}, {"name": "x", "columns": "x1:x3", "dtype": "float32"}, {"columns": "z"}]}`, nil, nil,
			"y:int8[]/0 x:float32[3]/0 z:uint8[-1]/1", []string{`4 [1 2 3] "hi"`}},
		{"columns by number", "1,2,3,4\n5,6,7,8\n", `{"header": false, "columns": [{"columns": -1}, {"name": "m", "columns": [0, "1:2"]}]}`, nil, nil,
			":int64[]/0 m:int64[3]/0", []string{"4 [1 2 3]", "8 [5 6 7]"}},
		{"columns and dims", "p0,p1,p2,p3,l\n1,2,3,4,5\n", `{"columns": [{"name": "p", "columns": ":p3", "dims": [2, 2], "dtype": "uint8"}]}`, nil, nil, "p:uint8[2 2]/0", []string{"[1 2 3 4]dims[2 2]"}},
		{"columns and slots", "a,b,c\n1,2,3\n", `{"columns": [{"columns": ["c", "a"]}]}`, []pyfeed.Slot{numberSlot(pyfeed.Int16, 2)}, []string{"v"}, "v:int16[2]/0", []string{"[3 1]"}},
		{"one column of a list", "a,b\n1,2\n", `{"columns": [{"columns": ["a"]}]}`, nil, nil, ":int64[1]/0", []string{"[1]"}},
		{"integers and floats together", "a,b\n1,2.5\n", `{"columns": [{"columns": ["a", "b"]}]}`, nil, nil, ":float64[2]/0", []string{"[1 2.5]"}},
		{"dtypes", "a,b,c\n1,2,3\n", `{"dtypes": {"a": "float32", "2": "bytes"}}`, nil, nil, "a:float32[]/0 b:int64[]/0 c:uint8[-1]/1", []string{`1 2 "3"`}},
		{"missing", "a,b,c\n1,,x\n,2.5,\n\" \",\"\",\n", `{"missing": "nan"}`, []pyfeed.Slot{numberSlot(pyfeed.Float32), numberSlot(pyfeed.Float64), record.BytesSlot}, nil,
			":float32[]/0 :float64[]/0 :uint8[-1]/1", []string{`1 NaN "x"`, `NaN 2.5 ""`, `NaN NaN ""`}},
		{"missing in the first record", "a,b\n,1\n2,\n", `{"missing": -1}`, nil, nil, "a:int64[]/0 b:int64[]/0", []string{"-1 1", "2 -1"}},
		{"header in quotes", "\"a,1\",\"b\"\"\n\"\n1,2\n", "", nil, nil, "a,1:int64[]/0 b\"\n:int64[]/0", []string{"1 2"}},
		{"equal names", "a,a\n1,2\n", "", nil, nil, "a:int64[]/0 a:int64[]/0", []string{"1 2"}},
		{"equal names again", "a,a\n1,2\n", "", []pyfeed.Slot{numberSlot(pyfeed.Int8), numberSlot(pyfeed.Int8)}, []string{"a", "a"}, "a:int8[]/0 a:int8[]/0", []string{"1 2"}},
		{"a name with a colon", "a:b,c\n1,2\n", `{"columns": [{"columns": "a:b"}, {"columns": "c:c"}]}`, nil, nil, "a:b:int64[]/0 :int64[1]/0", []string{"1 [2]"}},
		{"no records", "a,b\n", "", []pyfeed.Slot{numberSlot(pyfeed.Any), record.BytesSlot}, nil, ":any[]/0 :uint8[-1]/1", nil},
		{"nothing", "", `{"header": false}`, []pyfeed.Slot{record.BytesSlot}, nil, ":uint8[-1]/1", nil},
		{"every dtype", "1,-2,-3,-4,-5,6,7,8,9,0.1,0.1,0.1,0.1\n", `{"header": false}`, everyDType(), nil,
			":bool[]/0 :int8[]/0 :int16[]/0 :int32[]/0 :int64[]/0 :uint8[]/0 :uint16[]/0 :uint32[]/0 :uint64[]/0 :float16[]/0 :bfloat16[]/0 :float32[]/0 :float64[]/0",
			[]string{"true -2 -3 -4 -5 6 7 8 9 662e cd3d 0.1 0.1"}},
		{"an empty vector", "a\nx\n", "", []pyfeed.Slot{numberSlot(pyfeed.Float32, 0), record.BytesSlot}, nil, ":float32[0]/0 :uint8[-1]/1", []string{`[] "x"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, many := range []int{1, 2, 100} {
				config := record.Config{Slots: c.slots, Names: c.names}
				if c.options != "" {
					config.Options = formattest.Options[Options](t, c.options)
				}
				tested.EachWay(t, []byte(c.data), config, func(t *testing.T, r record.Records, err error) {
					if err != nil {
						t.Fatal(err)
					}
					slots, names, err := r.(record.Describer).Describe()
					if err != nil || described(slots, names) != c.described {
						t.Errorf("expected %s, found %s, %v", c.described, described(slots, names), err)
					}
					got, err := formattest.Lines(t, r, many)
					if err != io.EOF || !slices.Equal(got, c.want) {
						t.Errorf("expected %q, found %q, %v", c.want, got, err)
					}
				})
			}
		})
	}
}

func everyDType() (slots []pyfeed.Slot) {
	for d := pyfeed.Bool; d < pyfeed.Complex64; d++ {
		slots = append(slots, numberSlot(d))
	}
	return slots
}

func TestTabs(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := formattest.Format{Begin: tabs.records}.Memory([]byte("a\tb\n1,5\t\"x\ty\"\n"), &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := formattest.Lines(t, r, 1); err != io.EOF || !slices.Equal(got, []string{`"1,5" "x\ty"`}) {
			t.Errorf("%q %v", got, err)
		}
	})
}

// Each damaged record is an error with its position; the records before and after it are read. An empty field without a
// default is an error too, but no damage, unless the record is damaged otherwise.
func TestDamage(t *testing.T) {
	numbers := []pyfeed.Slot{numberSlot(pyfeed.Uint8), numberSlot(pyfeed.Float32)}
	for _, c := range []struct {
		name, line string
		slots      []pyfeed.Slot
		offset     int64 // in the line
		text       string
		lost       int // lines after it that are lost
	}{
		{"range", "300,1\n", numbers, 0, `column "a": expected a number of uint8, 0 to 255, found "300"`, 0},
		{"negative", "-1,1\n", numbers, 0, `column "a": expected a number of uint8, 0 to 255, found "-1"`, 0},
		{"no integer", "1.5,1\n", numbers, 0, `column "a": expected a number of uint8, found "1.5"`, 0},
		{"no number", "1,abc\n", numbers, 2, `column "b": expected a number of float32, found "abc"`, 0},
		{"quoted", "1,\"ab\"\"c\"\n", numbers, 2, `column "b": expected a number of float32, found "ab\"c"`, 0},
		{"long", "1," + strings.Repeat("x", 50) + "\n", numbers, 2, `column "b": expected a number of float32, found "` + strings.Repeat("x", 40) + `" and 10 bytes more`, 0},
		{"too large", "1,1e39\n", numbers, 2, `column "b": expected a number of float32, at most 3.4028e+38 in size, found "1e39"`, 0},
		{"empty", "1,\n", numbers, 2, `column "b": expected a number of float32, found an empty field: the option missing gives the value of empty fields`, 0},
		{"blank", " ,1\n", numbers, 0, `column "a": expected a number of uint8, found an empty field: the option missing gives the value of empty fields`, 0},
		{"empty and too many", ",1,2\n", numbers, 0, `column "a": expected a number of uint8, found an empty field: the option missing gives the value of empty fields`, 0},
		{"too few", "1\n", numbers, 1, "expected 2 columns, found 1", 0},
		{"too many", "1,2,3\r\n", numbers, 4, "expected 2 columns, found more", 0},
		{"behind quotes", "\"a\"b,1\n", duplicateText, 3, `expected ',' or the end of the line after a closing quote, found 'b'`, 0},
		{"lines in quotes", "1,\"x\n\ny\",3\n", duplicateText, 9, "expected 2 columns, found more", 0},
		{"bool", "2,1\n", []pyfeed.Slot{numberSlot(pyfeed.Bool), numberSlot(pyfeed.Int8)}, 0, `column "a": expected a bool, true, false, 0 or 1, found "2"`, 0},
		{"zeros", "\x00\x00\x00\n", numbers, 0, `column "a": expected a number of uint8, found "\x00\x00\x00"`, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			const head, good = "a,b\n", "1,1\n"
			data := head + good + good + c.line + good + c.line
			want := []string{}
			for range 2 {
				want = append(want, map[bool]string{true: `"1" "1"`, false: "1 1"}[c.slots[0].LoDLevels > 0])
			}
			if c.slots[0].DType == pyfeed.Bool {
				want = []string{"true 1", "true 1"}
			}
			tested.EachWay(t, []byte(data), record.Config{Slots: c.slots}, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				for i, at := range []int{len(head) + 2*len(good), len(head) + 3*len(good) + len(c.line)} {
					got, err := formattest.Lines(t, r, 10)
					if want := want[:2-i]; !slices.Equal(got, want) {
						t.Fatalf("expected %q, found %q", want, got)
					}
					kind, slot := pyfeed.Corrupt, -1
					if c.name == "empty" || c.name == "blank" {
						kind, slot = pyfeed.Invalid, int(c.offset/2)
					}
					var e *pyfeed.Error
					if !errors.As(err, &e) || e.Kind != kind || e.Slot != slot || e.Text != c.text {
						t.Fatalf("expected %q, found %+v", c.text, e)
					}
					if e.At.Offset != int64(at)+c.offset || e.At.Record != int64(2+2*i) || !strings.HasSuffix(e.At.File, ".csv") && !strings.HasSuffix(e.At.File, ".gz") {
						t.Fatalf("expected byte %d of record %d, found %v", int64(at)+c.offset, 2+2*i, e.At)
					}
					if err := r.Resync(); err != nil {
						t.Fatal(err)
					}
				}
				if got, err := formattest.Lines(t, r, 10); err != io.EOF || got != nil {
					t.Fatalf("%q %v", got, err)
				}
			})
		})
	}
}

func TestUnclosedQuote(t *testing.T) {
	tested.EachWay(t, []byte("a,b\n1,2\n3,\"4\n5,6\n7,8"), record.Config{Slots: duplicateText}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		got, err := formattest.Lines(t, r, 10)
		var e *pyfeed.Error
		if !errors.As(err, &e) || e.Text != "expected a closing quote, found the end of the file" || e.At.Offset != 10 || e.At.Record != 1 || len(got) != 1 {
			t.Fatalf("%q %v", got, err)
		}
		if err := r.Resync(); err != nil {
			t.Fatal(err)
		}
		if got, err := formattest.Lines(t, r, 10); err != io.EOF || !slices.Equal(got, []string{`"5" "6"`, `"7" "8"`}) {
			t.Fatalf("%q %v", got, err)
		}
	})
	tested.EachWay(t, []byte("a,b\n1,\"2"), record.Config{Slots: duplicateText}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if got, err := formattest.Lines(t, r, 10); formattest.Kind(err) != pyfeed.Corrupt || got != nil {
			t.Fatalf("%q %v", got, err)
		}
		if err := r.Resync(); err != io.EOF {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]*pyfeed.Tuple, 1)); err != io.EOF {
			t.Fatal(err)
		}
	})
}

// A file that is cut off in a damaged record is an error too, not the end.
func TestCutOffAfterDamage(t *testing.T) {
	for _, options := range []string{`{"dtypes": {"a": "int64", "b": "bytes"}}`, `{"dtypes": {"a": "int64", "b": "bytes"}, "quote": ""}`} {
		for _, quote := range []string{"", `"bad" quote`} {
			c := record.Config{Options: formattest.Options[Options](t, options)}
			tested.CutOff(t, "a,b\n1,2\nx,"+quote, c, nil, `expected a number of int64, found "x"`)
		}
	}
}

func TestTooLongARecord(t *testing.T) {
	data := "1,2\n3,\"" + strings.Repeat("x", 100) + "\n" + strings.Repeat("y", 50) + "\n5,6\n"
	for _, limit := range []int{20, 60, 105} {
		tested.EachWay(t, []byte(data), record.Config{Slots: duplicateText, Options: noHeader}, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			r.(*records).maxRecord = limit
			got, err := formattest.Lines(t, r, 10)
			if want := fmt.Sprintf("expected a record of at most %d bytes, found no end of it: a quote may be missing", limit); len(got) != 1 || err == nil || !strings.HasSuffix(err.Error(), want) {
				t.Fatalf("expected %q, found %q %v", want, got, err)
			}
			if err := r.Resync(); err != nil {
				t.Fatal(err)
			}
			got, err = formattest.Lines(t, r, 10)
			if formattest.Kind(err) != pyfeed.Corrupt || got != nil {
				t.Fatalf("%q %v", got, err)
			}
			if err := r.Resync(); err != nil {
				t.Fatal(err)
			}
			got, err = formattest.Lines(t, r, 10)
			if err != io.EOF || !slices.Equal(got, []string{`"5" "6"`}) {
				t.Fatalf("%q %v", got, err)
			}
		})
	}
}

// For a file that is cut anywhere, or that has any byte changed, reading returns records or errors with positions, and
// Resync comes to an end.
func TestEveryByte(t *testing.T) {
	data := "id,x,name\r\n1,2.5,a\r\n22,-3e5,\"b\"\"c\nd\"\n\n333,nan,\"e,f\"\n4,5.25,last"
	config := record.Config{Slots: []pyfeed.Slot{numberSlot(pyfeed.Int16), numberSlot(pyfeed.Float64), record.BytesSlot}}
	whole := []string{`1 2.5 "a"`, `22 -300000 "b\"c\nd"`, `333 NaN "e,f"`, `4 5.25 "last"`}
	survive := func(t *testing.T, r record.Records, err error, least int) {
		if err != nil {
			if formattest.Kind(err) != pyfeed.Corrupt && formattest.Kind(err) != pyfeed.Invalid {
				t.Fatal(err)
			}
			return
		}
		got, err := formattest.Lines(t, r, 2)
		if len(got) < least || !slices.Equal(got[:least], whole[:least]) {
			t.Fatalf("expected %q and more, found %q", whole[:least], got)
		}
		for tries := 0; err != io.EOF; tries++ {
			if formattest.Kind(err) != pyfeed.Corrupt || tries > len(data) {
				t.Fatalf("%d: %v", tries, err)
			}
			if err = r.Resync(); err == nil {
				_, err = formattest.Lines(t, r, 2)
			}
		}
	}
	before := func(at int) int { // complete records that end before at
		n := 0
		for _, end := range []int{20, 38, 53} {
			if at >= end {
				n++
			}
		}
		return n
	}
	step := 1
	if testing.Short() {
		step = 3
	}
	for cut := 0; cut < len(data); cut += step {
		tested.EachWay(t, []byte(data[:cut]), config, func(t *testing.T, r record.Records, err error) { survive(t, r, err, before(cut)) })
	}
	for at := range data {
		for bit := range 8 {
			bad := []byte(data)
			bad[at] ^= 1 << bit
			formattest.WithPool(t, func(pool *memory.Pool) {
				c := config
				c.Pool, c.Storage.Compression = pool, "none"
				r, err := tested.Memory(bad, &c)
				if err == nil {
					defer r.Close()
				}
				survive(t, r, err, before(at))
			})
		}
	}
}

func TestBrokenCompression(t *testing.T) {
	var text strings.Builder
	text.WriteString("a,b\n")
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 40000 {
		fmt.Fprintf(&text, "%d,%d\n", i, rng.Uint32())
	}
	data := formattest.Gzip([]byte(text.String()))
	formattest.WithPool(t, func(pool *memory.Pool) {
		path := formattest.File(t, "a.csv.gz", data[:len(data)/2])
		r, err := commas.open(path, &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		last := ""
		n, err := formattest.Drain(t, r, 100, func(i int, tuple *pyfeed.Tuple) {
			if i == 9999 {
				last = formattest.FormatTuple(tuple)
			}
		})
		if formattest.Kind(err) != pyfeed.Corrupt || !strings.Contains(err.Error(), "expected more compressed data") {
			t.Fatal(err)
		}
		if n < 10000 || !strings.HasPrefix(last, "9999 ") {
			t.Fatalf("%d records", n)
		}
		if err := r.Resync(); err != io.EOF {
			t.Fatal(err)
		}
		if _, err := r.Read(make([]*pyfeed.Tuple, 1)); err != io.EOF {
			t.Fatal(err)
		}
	})
}

func TestRefused(t *testing.T) {
	for _, c := range []struct {
		data, options string
		slots         []pyfeed.Slot
		kind          pyfeed.Kind
		text          string
	}{
		{"", "", nil, pyfeed.Corrupt, "expected a line of columns' names, found the end of the file"},
		{"\n\n", "", []pyfeed.Slot{record.BytesSlot}, pyfeed.Corrupt, "expected a line of columns' names, found the end of the file"},
		{"", `{"header": false}`, nil, pyfeed.Invalid, "expected a record to infer the columns from, found none: give slots"},
		{"a,b\n", "", nil, pyfeed.Invalid, "slot 0: csv: expected a record to infer dtypes from, found none: give slots or dtypes"},
		{"1,2\n3,4\n", "", nil, pyfeed.Invalid, `expected columns' names in the first line, found numbers: set "header" to false if the line is a record, to true if it has names`},
		{"\xff\xfea\x00", "", nil, pyfeed.Corrupt, "expected text in UTF-8, found UTF-16"},
		{"a,\"b\n", "", nil, pyfeed.Corrupt, "expected a closing quote, found the end of the file"},
		{"a,b\n1,\"2\n", "", nil, pyfeed.Corrupt, "expected a closing quote, found the end of the file"},
		{"a,b\n1,\n", "", nil, pyfeed.Invalid, `slot 1: csv: expected a value in column "b" within the first MiB, to infer its dtype from, found empty fields; ` + advice("b", "bytes")},
		{"a,b\n1\n", "", nil, pyfeed.Invalid, "slot 0: csv: expected 2 columns in the first record, found 1"},
		{"a\n1\n", "", []pyfeed.Slot{numberSlot(pyfeed.Int8, 2)}, pyfeed.Invalid, "csv: slots: expected as many elements as there are columns, 1, found 2: the option columns can select some columns"},
		{"a\n1\n", "", []pyfeed.Slot{numberSlot(pyfeed.Int8, -1)}, pyfeed.Invalid, "slot 0: csv: dims: expected sizes without -1 for numbers, found [-1]; text is uint8 of dims [-1] with 1 LoD level"},
		{"a\n1\n", "", []pyfeed.Slot{numberSlot(pyfeed.Int8, 1<<40, 1<<40)}, pyfeed.Invalid, "slot 0: csv: dims: expected at most 1048576 elements, found dims [1099511627776 1099511627776]"},
		{"a\n1\n", "", []pyfeed.Slot{numberSlot(pyfeed.Complex64)}, pyfeed.Invalid, "slot 0: csv: dtype: expected real numbers, bool or bytes, found complex64"},
		{"a\n1\n", "", []pyfeed.Slot{{DType: pyfeed.Float32, Dims: pyfeed.Dims{-1}, LoDLevels: 1}}, pyfeed.Invalid, "slot 0: csv: expected numbers, or text: uint8 of dims [-1] with 1 LoD level, found float32 of dims [-1] with 1"},
		{"a\nx\n", "", []pyfeed.Slot{numberSlot(pyfeed.Any)}, pyfeed.Invalid, `slot 0: csv: expected numbers, found "x" in column "a", line 2; ` + advice("a", "bytes")},
		{"a,b\n1,x\n", `{"columns": [{"columns": "a:b"}]}`, nil, pyfeed.Invalid, `slot 0: csv: expected numbers, found "x" in column "b", line 2; ` + advice("b", "bytes")},
		{"a,b\n1,2\n", `{"columns": [{"columns": "c"}]}`, nil, pyfeed.Invalid, `slot 0: csv: columns: expected the name or number of a column, found "c"; there are "a", "b"`},
		{"label,b\n1,2\n", `{"columns": [{"columns": "Lable"}]}`, nil, pyfeed.Invalid, `found "Lable"; there are "label", "b": did you mean "label"?`},
		{"a,b\n1,2\n", `{"columns": [{"columns": 2}]}`, nil, pyfeed.Invalid, "slot 0: csv: columns: expected the number of a column, -2 to 1, found 2"},
		{"a,b\n1,2\n", `{"columns": [{"columns": "b:a"}]}`, nil, pyfeed.Invalid, `slot 0: csv: columns: expected a first and a last column, found "b:a", where the last comes before the first`},
		{"a,b\n1,2\n", `{"columns": [{"columns": []}]}`, nil, pyfeed.Invalid, "slot 0: csv: columns: expected at least 1 column, found none"},
		{"a,b\n1,2\n", `{"columns": [{"columns": "a"}, {"columns": "a:b"}]}`, nil, pyfeed.Invalid, `slot 1: csv: columns: expected columns that no other slot has, found column "a", which slot 0 has`},
		{"a,a\n1,2\n", `{"columns": [{"columns": "a"}]}`, nil, pyfeed.Invalid, `slot 0: csv: columns: expected one column "a", found several: use its number`},
		{"a,b\n1,2\n", `{"columns": [{"columns": "a", "dtype": "int"}]}`, nil, pyfeed.Invalid, `slot 0: csv: dtype: expected bytes or the name of a dtype, found "int"`},
		{"a,b\n1,2\n", `{"columns": [{"columns": "a:b", "dtype": "bytes"}]}`, nil, pyfeed.Invalid, "slot 0: csv: expected 1 column of text, found 2"},
		{"a,b\n1,x\n", `{"columns": [{"columns": "b", "dtype": "bytes", "default": "?"}]}`, nil, pyfeed.Invalid, `slot 0: csv: default: expected "" for text, found "?": an empty field is an empty text`},
		{"a,b\n1,x\n", `{"columns": [{"columns": "b", "dtype": "bytes", "dims": [1]}]}`, nil, pyfeed.Invalid, "slot 0: csv: dims: expected [-1], as text has, found [1]"},
		{"a,b\n1,x\n", `{"columns": [{"columns": "b", "default": "?"}]}`, nil, pyfeed.Invalid, `slot 0: csv: default: expected "" for text, found "?": an empty field is an empty text`},
		{"a,b\n1,2\n", `{"columns": [{"columns": "b", "dtype": "int8", "default": "nan"}]}`, nil, pyfeed.Invalid, `slot 0: csv: default: expected a number of int8, found "nan"`},
		{"a,b\n1,2\n", `{"columns": [{"columns": "b", "default": "?"}]}`, nil, pyfeed.Invalid, `slot 0: csv: default: expected a number of int64, found "?"`},
		{"a,b\n1,2\n", `{"columns": [{"columns": "a:b", "dims": [3]}]}`, nil, pyfeed.Invalid, "slot 0: csv: dims: expected as many elements as there are columns, 2, found dims [3]"},
		{"a,b\n1,2\n", `{"columns": [{"columns": "a"}]}`, duplicateText, pyfeed.Invalid, "csv: columns: expected 2, as there are slots, found 1"},
		{"a,b\n1,2\n", `{"dtypes": {"c": "int8"}}`, nil, pyfeed.Invalid, `csv: dtypes: expected the name or number of a column, found "c"; there are "a", "b"`},
		{"a,b\n1,2\n", `{"dtypes": {"a": "int8"}}`, duplicateText, pyfeed.Invalid, "slot 0: csv: dtype: expected bytes, as the slot says, found int8"},
		{"a\n1\n", `{"dtypes": {"a": "int8"}}`, []pyfeed.Slot{numberSlot(pyfeed.Int16)}, pyfeed.Invalid, "slot 0: csv: dtype: expected int16, as the slot says, found int8"},
		{"a\n1\n", `{"delimiter": "::"}`, nil, pyfeed.Invalid, `delimiter: expected one ASCII character that is no letter, no digit and none of +-., found "::"`},
		{"a\n1\n", `{"delimiter": "."}`, nil, pyfeed.Invalid, `delimiter: expected one ASCII character that is no letter, no digit and none of +-., found "."`},
		{"a\n1\n", `{"comment": "\n"}`, nil, pyfeed.Invalid, `comment: expected one ASCII character that is no letter, no digit and none of +-., found "\n"`},
		{"a\n1\n", `{"quote": ","}`, nil, pyfeed.Invalid, `csv: expected delimiter, quote and comment to differ, found ',', ',' and '\x00'`},
		{strings.Repeat("a,", columns.MaxSlots) + "a\n1\n", "", nil, pyfeed.Invalid, "csv: expected at most 4096 columns where each is a slot, found 4097: give slots or columns"},
	} {
		config := record.Config{Slots: c.slots}
		if c.options != "" {
			config.Options = formattest.Options[Options](t, c.options)
		}
		tested.EachWay(t, []byte(c.data), config, func(t *testing.T, _ record.Records, err error) {
			if formattest.Kind(err) != c.kind || !strings.HasSuffix(err.Error(), c.text) {
				t.Errorf("expected %q, found %v", c.text, err)
			}
		})
	}
	_, err := tested.Memory([]byte(strings.Repeat(",", columns.Max)+"\n1\n"), &record.Config{Pool: formattest.Pool(t)})
	formattest.Expect(t, err, pyfeed.Corrupt, "expected at most 1048576 columns, found more")
	for _, text := range []string{`{"columns": [{"columns": null}]}`, `{"columns": [{"columns": [1.5]}]}`, `{"columns": [{"columns": {}}]}`, `{"missing": [1]}`, `{"missing": true}`} {
		if err := json.Unmarshal([]byte(text), new(Options)); err == nil {
			t.Errorf("%s: expected an error", text)
		}
	}
}

// A default that is what an empty field of text is anyway lets one description of columns serve several formats.
func TestDefaultOfText(t *testing.T) {
	config := record.Config{Options: formattest.Options[Options](t, `{"columns": [{"columns": "b", "default": ""}]}`)}
	tested.EachWay(t, []byte("a,b\n1,x\n2,\n"), config, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		if got, err := formattest.Lines(t, r, 3); strings.Join(got, " ") != `"x" ""` || err != io.EOF {
			t.Errorf(`expected "x" "", found %v, %v`, got, err)
		}
	})
}

func TestWrite(t *testing.T) {
	half := binary.NativeEndian.AppendUint16(nil, 0x2e66)
	for _, c := range []struct {
		name, options string
		names         []string
		tuples        []*pyfeed.Tuple
		want          string
	}{
		{"numbers", "", []string{"a", "", "c"}, []*pyfeed.Tuple{formattest.Tuple(formattest.TensorOf(int8(-1)), formattest.TensorOf(true), formattest.TensorOf([]uint8{1, 2}))}, "a,slot1,c_0,c_1\n-1,true,1,2\n"},
		{"floats", `{"header": false}`, nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Tensor(pyfeed.Float16, nil, half), formattest.TensorOf(float32(0.1)), formattest.TensorOf(1e21))}, "0.1,0.1,1e+21\n"},
		{"text", "", []string{"a", "b,c"}, []*pyfeed.Tuple{
			formattest.Tuple(formattest.Text("plain"), formattest.Text("with,comma")), formattest.Tuple(formattest.Text(""), formattest.Text("q\"q")),
			formattest.Tuple(formattest.Text("a\nb"), formattest.Text("a\rb")), formattest.Tuple(formattest.Text(" é"), formattest.Text("\"")),
		}, "a,\"b,c\"\nplain,\"with,comma\"\n,\"q\"\"q\"\n\"a\nb\",\"a\rb\"\n é,\"\"\"\"\n"},
		{"one empty text", `{"header": false}`, nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("")), formattest.Tuple(formattest.Text("x")), formattest.Tuple(formattest.Text(" "))}, "\"\"\nx\n\" \"\n"},
		{"comments", `{"header": false, "comment": "#"}`, nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("#x"), formattest.Text("#y"))}, "\"#x\",#y\n"},
		{"mark", `{"header": false}`, nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("\xef\xbb\xbfx")), formattest.Tuple(formattest.Text("\xef\xbb\xbfx"))}, "\"\xef\xbb\xbfx\"\n\xef\xbb\xbfx\n"},
		{"delimiter and quote", `{"header": false, "delimiter": ";", "quote": "'"}`, nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("a,b"), formattest.Text("c;d"), formattest.Text("'"))}, "a,b;'c;d';''''\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "a.csv")
			config := record.Config{Names: c.names}
			if c.options != "" {
				config.Options = formattest.Options[Options](t, c.options)
			}
			if err := tested.Write(t, path, &config, c.tuples...); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != c.want {
				t.Errorf("expected %q, found %q", c.want, got)
			}
		})
	}
}

func TestWriterRefuses(t *testing.T) {
	one := formattest.TensorOf(uint8(1))
	two := formattest.Text("ab")
	two.LoD = pyfeed.LoD{{0, 1, 2}}
	sequence := formattest.Tensor(pyfeed.Int8, pyfeed.Dims{1}, []byte{1}, []int64{0, 1})
	for _, c := range []struct {
		options string
		slots   []pyfeed.Slot
		tuples  []*pyfeed.Tuple
		text    string
	}{
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(one), formattest.Tuple(one, one)}, "slots: expected 1, found 2"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(one), formattest.Tuple(formattest.TensorOf(int8(1)))}, "slot 0: dtype: expected uint8, found int8"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(one), formattest.Tuple(formattest.Text("x"))}, "slot 0: shape: expected [], found [1]"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Zeros(pyfeed.Complex64))}, "slot 0: csv: dtype: expected real numbers, bool, or text, found complex64"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(sequence)}, "slot 0: csv: expected numbers, or text: uint8 of dims [-1] with 1 LoD level, found int8 of dims [-1] with 1"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(two)}, "slot 0: csv: expected one text, that of an instance, found 2"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Zeros(pyfeed.Uint8, 0))}, "csv: expected instances of 1 to 1048576 elements, a column each, found 0"},
		{"", nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Tensor(pyfeed.Uint16, nil, []byte{1}))}, "slot 0: expected 2 bytes of data, found 1"},
		{`{"quote": ""}`, nil, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("fine")), formattest.Tuple(formattest.Text("a,b"))}, `slot 0: csv: expected text that needs no quotes, because the option quote is empty, found "a,b"`},
		{"", []pyfeed.Slot{numberSlot(pyfeed.Any)}, []*pyfeed.Tuple{formattest.Tuple(formattest.Text("x"))}, "slot 0: shape: expected [], found [1]"},
	} {
		config := record.Config{Slots: c.slots}
		if c.options != "" {
			config.Options = formattest.Options[Options](t, c.options)
		}
		err := tested.Write(t, filepath.Join(t.TempDir(), "a.csv"), &config, c.tuples...)
		if err == nil || err.Error() != c.text {
			t.Errorf("expected %q, found %v", c.text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "a.csv")
	for _, o := range []string{`{"columns": [{"columns": 0}]}`, `{"missing": 0}`, `{"dtypes": {"a": "int8"}}`, `{"delimiter": "x"}`} {
		if _, err := commas.create(path, &record.Config{Options: formattest.Options[Options](t, o)}); formattest.Kind(err) != pyfeed.Invalid {
			t.Errorf("%s: %v", o, err)
		}
	}
	c := record.Config{Slots: duplicateText, Names: []string{"a", "b"}}
	if err := tested.Write(t, path, &c); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "a,b\n" {
		t.Errorf("no tuples: %q", got)
	}
	tested.Abort(t, &c, formattest.Tuple(formattest.Text(""), formattest.Text("")))
}

// The data that is written is read with the same bits, except the payload of NaNs.
func TestRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	alphabet := []string{"a", "b", ",", "\"", "\n", "\r", "\r\n", " ", "\t", "#", ";", "é", "\x00", "\xff", "\"\"", "1", "-"}
	records := 300
	if testing.Short() {
		records = 60
	}
	for _, o := range []*Options{{}, {Header: &no}, {Delimiter: ";", Comment: "#"}, {Delimiter: " "}, {Delimiter: "\t", Quote: pointer("'")}} {
		for _, compression := range []string{"none", "gzip", "zstd"} {
			formattest.WithPool(t, func(pool *memory.Pool) {
				slots := append(everyDType(), record.BytesSlot, numberSlot(pyfeed.Float64, 2, 3), record.BytesSlot, numberSlot(pyfeed.BFloat16, 4))
				path := filepath.Join(t.TempDir(), "a.csv")
				c := record.Config{Options: o, Pool: pool}
				c.Storage.Compression = compression
				var all []*pyfeed.Tuple
				for range records {
					var tensors []pyfeed.LoDTensor
					for _, s := range slots {
						if s.LoDLevels > 0 {
							var b strings.Builder
							for range rng.IntN(6) {
								b.WriteString(alphabet[rng.IntN(len(alphabet))])
							}
							tensors = append(tensors, formattest.Text(b.String()))
							continue
						}
						x := formattest.Zeros(s.DType, s.Dims...)
						for k := range x.Data {
							x.Data[k] = byte(rng.Uint32())
							if s.DType == pyfeed.Bool {
								x.Data[k] &= 1
							}
						}
						tensors = append(tensors, x)
					}
					all = append(all, formattest.Tuple(tensors...))
				}
				if err := tested.Write(t, path, &c, all...); err != nil {
					t.Fatal(err)
				}
				c.Slots, c.Storage.Compression = slots, ""
				r, err := commas.open(path, &c)
				if err != nil {
					t.Fatal(err)
				}
				defer r.Close()
				n, err := formattest.Drain(t, r, 17, func(i int, tuple *pyfeed.Tuple) {
					for j := range slots {
						was, is := &all[i].Slots[j], &tuple.Slots[j]
						if is.DType != was.DType || !slices.Equal(is.Dims(), was.Dims()) || !equal(is, was) {
							t.Fatalf("record %d, slot %d, %v: expected %s, found %s", i, j, was.DType, formattest.FormatTensor(was), formattest.FormatTensor(is))
						}
					}
				})
				if err != io.EOF {
					t.Fatal(err)
				}
				if n != len(all) {
					t.Fatalf("expected %d records, found %d", len(all), n)
				}
			})
		}
	}
}

func pointer(s string) *string { return &s }

func equal(a, b *pyfeed.LoDTensor) bool {
	if bytes.Equal(a.Data, b.Data) {
		return true
	}
	return len(a.LoD) == 0 && numbers(a) == numbers(b) && strings.Contains(numbers(a), "nan")
}

// Records end before, at and after the end of a block, and are larger than a block.
func TestBlocks(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	var data strings.Builder
	var want []string
	data.WriteString("n,s\n")
	most, long := 20000, 5<<19
	if testing.Short() {
		most, long = 12000, 5<<18
	}
	for i := range 200 {
		n := rng.IntN(most)
		if i == 100 {
			n = long
		}
		s := strings.Repeat(string(rune('a'+i%26)), n)
		if i%3 == 0 {
			s += "\""
		}
		fmt.Fprintf(&data, "%d,\"%s\"\n", i, strings.ReplaceAll(s, "\"", "\"\""))
		want = append(want, s)
	}
	tested.EachWay(t, []byte(data.String()), record.Config{}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		n, err := formattest.Drain(t, r, 64, func(i int, tuple *pyfeed.Tuple) {
			if s := tuple.Slots; i >= len(want) || binary.NativeEndian.Uint64(s[0].Data) != uint64(i) || string(s[1].Data) != want[i] {
				t.Fatalf("record %d: found %.100s", i, formattest.FormatTuple(tuple))
			}
		})
		if err != io.EOF || n != len(want) {
			t.Fatalf("%d records of %d, %v", n, len(want), err)
		}
	})
}

func TestTuplesOutliveTheFile(t *testing.T) {
	var data strings.Builder
	data.WriteString("n,s,q\n")
	for i := range 40000 {
		fmt.Fprintf(&data, "%d,text %d,\"quoted \"\"%d\"\"\"\n", i, i, i)
	}
	formattest.WithPool(t, func(pool *memory.Pool) {
		r, err := commas.open(formattest.File(t, "a.csv", []byte(data.String())), &record.Config{Pool: pool})
		if err != nil {
			t.Fatal(err)
		}
		all := formattest.ReadAll(t, r, 100)
		if len(all) != 40000 {
			t.Fatal(len(all))
		}
		for i, x := range all {
			s := x.Slots
			number := strconv.Itoa(i)
			if binary.NativeEndian.Uint64(s[0].Data) != uint64(i) || string(s[1].Data) != "text "+number || string(s[2].Data) != "quoted \""+number+"\"" {
				t.Fatalf("record %d: found %s", i, formattest.FormatTuple(x))
			}
			if s[0].InHeap || !s[1].InHeap || !s[1].ReadOnly || s[2].ReadOnly {
				t.Fatalf("record %d: %+v", i, s)
			}
		}
		pyfeed.ReleaseAll(all)
	})
}

func TestShrinkingFile(t *testing.T) {
	formattest.WithPool(t, func(pool *memory.Pool) {
		path := formattest.File(t, "a.csv", bytes.Repeat([]byte("1,"+strings.Repeat(" ", 60)+"2\n"), 1<<15))
		c := record.Config{Slots: []pyfeed.Slot{numberSlot(pyfeed.Int8), numberSlot(pyfeed.Int8)}, Pool: pool, Options: noHeader}
		c.Storage.IO = "map"
		r, err := commas.open(path, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if err := os.Truncate(path, 1<<19); err != nil {
			t.Fatal(err)
		}
		n, err := formattest.Drain(t, r, 256, nil)
		if n < 1<<13 || formattest.Kind(err) != pyfeed.Corrupt || !strings.Contains(err.Error(), "the file shrank while it was read") {
			t.Fatalf("%d records: %v", n, err)
		}
		if err := r.Resync(); formattest.Kind(err) != pyfeed.Corrupt {
			t.Fatal(err)
		}
	})
}

func TestNoAllocationPerRecord(t *testing.T) {
	var lines strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&lines, "%d,0.%d,text,\"a\"\"b\"\n", i, i)
	}
	data := "a,b,c,d\n" + strings.Repeat(lines.String(), 50)
	for _, io := range []string{"map", "read"} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := record.Config{Pool: pool}
			c.Storage.IO = io
			if n := tested.Allocations(t, formattest.File(t, "a.csv", []byte(data)), &c, 100); n > 8 {
				t.Errorf("expected a few allocations for 256 records, found %v", n)
			}
		})
	}
}

func TestCompression(t *testing.T) {
	c := record.Config{Slots: []pyfeed.Slot{numberSlot(pyfeed.Uint8, 100)}}
	say := func(c *record.Config, compression string) { c.Options = &Options{Compression: compression} }
	tested.Compressions(t, c, say, formattest.Tuple(formattest.Zeros(pyfeed.Uint8, 100)), "none", "gzip", "zlib", "zstd", "snappy")
}

func FuzzCSV(f *testing.F) {
	for _, data := range []string{
		"a,b,c\n1,2.5,x\n-3,4e5,\"y\"\n", "a,b\r\n\"x,\"\"y\",1\r\n\r\n\"\n\",2", "1,2\n3,4\n", "a\n\"unclosed\n1\n2", "\xef\xbb\xbfx\n1\n",
		"#c\na,b\n1,\n,2\n", "a,b\n1\n1,2,3\n300,x\n", "\"\",\"\"\"\"\n", "a\n1\r", ",,,\n,,,\n", "\x1f\x8b\x08",
	} {
		for mode := range uint8(8) {
			f.Add([]byte(data), mode)
		}
	}
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, mode uint8) {
		defer formattest.CheckLeaks(t)()
		c := record.Config{Pool: pool, Options: &Options{}}
		c.Storage.Compression = "none"
		o := c.Options.(*Options)
		if mode&1 != 0 {
			o.Header = &no
		}
		if mode&2 != 0 {
			c.Slots = []pyfeed.Slot{numberSlot(pyfeed.Int8), record.BytesSlot, numberSlot(pyfeed.Float32, 2)}
		}
		if mode&4 != 0 {
			nan := columns.Value("nan")
			o.Missing, o.Comment = &nan, "#"
		}
		if mode&8 != 0 {
			o.Quote = &mustNotQuote
		}
		r, err := tested.Memory(data, &c)
		switch {
		case err == nil:
			if mode&16 != 0 {
				r.(*records).maxRecord = 16 // bytes of a record
			}
			slots, _, err := r.(record.Describer).Describe()
			if err != nil {
				t.Fatal(err)
			}
			spec, err := pyfeed.NewSpec(slots)
			if err != nil {
				t.Fatal(err)
			}
			for tries := 0; err != io.EOF; tries++ {
				if tries > len(data)+1 {
					t.Fatal("Resync makes no progress")
				}
				_, err = formattest.Drain(t, r, 3, func(_ int, tuple *pyfeed.Tuple) {
					if err := spec.Check(tuple); err != nil {
						t.Fatal(err)
					}
				})
				if formattest.Kind(err) == pyfeed.Type && r.(*records).maxRecord == 16 { // part of a record that the sample had whole
					break
				}
				if err != io.EOF {
					if k := formattest.Kind(err); k != pyfeed.Corrupt && !(k == pyfeed.Invalid && strings.Contains(err.Error(), "found an empty field")) {
						t.Fatal(err)
					}
					err = r.Resync()
				}
			}
			r.Close()
		case formattest.Kind(err) != pyfeed.Corrupt && formattest.Kind(err) != pyfeed.Invalid && formattest.Kind(err) != pyfeed.Type:
			t.Fatal(err)
		}
	})
}

func benchmark(b *testing.B, line func(*rand.Rand) string, c record.Config, total int) {
	rng := rand.New(rand.NewPCG(1, 1))
	var data []byte
	for len(data) < total {
		data = append(append(data, line(rng)...), '\n')
	}
	c.Options = noHeader
	tested.Benchmark(b, formattest.File(b, "a.csv", data), c, nil)
}

func repeat(n int, f func(*rand.Rand) string) func(*rand.Rand) string {
	return func(rng *rand.Rand) string {
		all := make([]string, n)
		for i := range all {
			all[i] = f(rng)
		}
		return strings.Join(all, ",")
	}
}

func BenchmarkRead(b *testing.B) {
	pixel := func(rng *rand.Rand) string { return strconv.Itoa(rng.IntN(256)) }
	short := func(rng *rand.Rand) string { return fmt.Sprintf("%.4f", rng.NormFloat64()) }
	long := func(rng *rand.Rand) string { return strconv.FormatFloat(rng.NormFloat64(), 'g', -1, 64) }
	vector := func(d pyfeed.DType, n int64) record.Config {
		return record.Config{Slots: []pyfeed.Slot{numberSlot(d, n)}}
	}
	b.Run("100B/ints", func(b *testing.B) { benchmark(b, repeat(28, pixel), vector(pyfeed.Uint8, 28), 64<<20) })
	b.Run("100B/floats", func(b *testing.B) { benchmark(b, repeat(14, short), vector(pyfeed.Float32, 14), 64<<20) })
	fixed := func(rng *rand.Rand) string { return fmt.Sprintf("%.6f", float64(rng.IntN(256))/256) }
	b.Run("180B/fixed", func(b *testing.B) { benchmark(b, repeat(20, fixed), vector(pyfeed.Float32, 20), 64<<20) })
	b.Run("100B/doubles", func(b *testing.B) { benchmark(b, repeat(5, long), vector(pyfeed.Float64, 5), 64<<20) })
	b.Run("100B/text", func(b *testing.B) {
		benchmark(b, func(rng *rand.Rand) string {
			return strconv.Itoa(rng.IntN(1000)) + ",\"" + strings.Repeat("lorem ipsum ", 4) + "\"," + strings.Repeat("dolor sit ", 4)
		}, record.Config{}, 64<<20)
	})
	b.Run("MNIST", func(b *testing.B) { benchmark(b, repeat(785, pixel), vector(pyfeed.Uint8, 785), 64<<20) })
	b.Run("1MiB/floats", func(b *testing.B) { benchmark(b, repeat(150000, short), vector(pyfeed.Float32, 150000), 64<<20) })
	b.Run("1MiB/text", func(b *testing.B) {
		text := strings.Repeat("lorem ipsum, ", 1<<20/13)
		benchmark(b, func(*rand.Rand) string { return "\"" + text + "\"" }, record.Config{Slots: []pyfeed.Slot{record.BytesSlot}}, 256<<20)
	})
}
