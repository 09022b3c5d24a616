package arrow

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// options parses options as attributes have them.
func options(t testing.TB, text string) *Options {
	t.Helper()
	var o Options
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	return &o
}

// rows reads a file of testdata with options. It returns the rows, and the error of opening or reading; io.EOF is none.
func rows(t testing.TB, data []byte, c record.Config) (all []string, slots []pyfeed.Slot, err error) {
	t.Helper()
	formattest.WithPool(t, func(pool *memory.Pool) {
		c.Pool = pool
		var r record.Records
		if r, err = tested.Memory(data, &c); err != nil {
			return
		}
		defer r.Close()
		slots, _, _ = r.(record.Describer).Describe()
		if all, err = formattest.Lines(t, r, 2); err == io.EOF {
			err = nil
		}
	})
	return all, slots, err
}

// Columns of other types are refused by name, and the columns around them are read.
func TestRefusedColumns(t *testing.T) {
	data := read(t, "refused.arrow")
	for column, reason := range map[string]string{
		"dense": "union", "sparse": "union", "runs": "run_end_encoded", "interval": "interval", "deep": "lists nested more than 2 deep",
		"deep_words": "lists of lists of byte strings", "list_view": "list_view", "fixed_words": "byte strings in a fixed_size_list",
		"fixed_lists": "lists in a fixed_size_list", "null_lists": "nulls in lists", "dictionary": "a dictionary of values of type list",
	} {
		_, _, err := rows(t, data, record.Config{Options: options(t, fmt.Sprintf(`{"columns": [%q]}`, column))})
		formattest.Expect(t, err, pyfeed.Unsupported, fmt.Sprintf("column %q: expected numbers, byte strings, or lists of them, found %s: ", column, reason))
	}
	got, _, err := rows(t, data, record.Config{Options: options(t, `{"columns": ["last", "views", "first"]}`)})
	formattest.ExpectError(t, err, "")
	formattest.ExpectTexts(t, got, `1 "a view of more than twelve bytes" 1`, `2 "b" 2`)
}

// The option columns selects, names, joins and shapes columns.
func TestColumns(t *testing.T) {
	lists, numbers, nulls := read(t, "lists.arrow"), read(t, "numbers.arrow"), read(t, "nulls.arrow")
	for _, c := range []struct {
		data          []byte
		options       string
		slots         []pyfeed.Slot
		first, failed string
	}{
		{numbers, `{"columns": ["i4", 0, -1]}`, nil, "0 0 true", ""},
		{numbers, `{"columns": [{"name": "x", "columns": ["f4", "f8"]}]}`, nil, "", "expected columns of numbers with one dtype and dims to make one slot, found column \"f4\" and column \"f8\""},
		{nulls, `{"columns": [{"columns": "n", "default": -1}, {"columns": "f", "default": "nan"}, {"columns": "s", "default": ""}]}`, nil, `1 0.5 "a"`, ""},
		{nulls, `{"columns": [{"columns": "n", "default": 1.5}]}`, nil, "", `column "n": default: expected a value of int32, found "1.5"`},
		{nulls, `{"columns": ["n"]}`, nil, "1", `row 1 of batch 0: column "n": expected a value, found null: the option default gives one`},
		{nulls, `{"columns": ["l"]}`, nil, "", `row 0 of batch 0: column "l": expected a value, found null`},
		{nulls, `{"columns": ["none"]}`, nil, "", `row 0 of batch 0: column "none": expected a value, found null`},
		{nulls, `{"columns": ["b"], "default": "x"}`, nil, "true", `column "b": expected a value, found null, for which bool cannot represent the default "x"`},
		{nulls, `{"columns": ["l"], "default": "x"}`, nil, "", `column "l": expected a value, found null, for which int64 cannot represent the default "x"`},
		{nulls, `{"columns": ["n"], "default": "x"}`, nil, "1", `column "n": expected a value, found null, for which int32 cannot represent the default "x"`},
		{lists, `{"columns": [{"columns": "fixed", "dims": [3, 2]}]}`, nil, "[0 1 2 0 0 0]dims[3 2]", ""},
		{lists, `{"columns": [{"columns": "fixed", "dims": [5]}]}`, nil, "", `dims: expected [2 3], or as many elements, as column "fixed" has, found [5]`},
		{lists, `{"columns": [{"columns": "ints", "dims": [3]}]}`, nil, "[1 2 3]", `row 1 of batch 0: column "ints": expected lists of 3 elements, found one of 0`},
		{lists, `{"columns": ["point.name.text", "point.x"]}`, nil, `"n0" 0`, ""},
		{lists, `{"columns": ["point.name.text", "point.name.text"]}`, nil, "", `expected columns that no other slot has, found column "point.name.text" twice`},
		{lists, `{"columns": ["point.z"]}`, nil, "", `did you mean "point.x"?`},
		{lists, `{"columns": [{"columns": "point.x", "dtype": "float32"}]}`, nil, "", `dtype: expected int64, as column "point.x" has, found float32: numbers are not converted`},
		{lists, `{"columns": [{"columns": "point.name.text", "dtype": "bytes"}]}`, nil, `"n0"`, ""},
		{lists, `{"columns": ["ints"]}`, []pyfeed.Slot{record.BytesSlot, record.BytesSlot}, "", "columns: expected 2, as there are slots, found 1"},
		{numbers, `{}`, []pyfeed.Slot{{DType: pyfeed.Int8}}, "", "slots: expected 12, as there are columns, found 1"},
		{numbers, `{"columns": [{"name": "pair", "columns": ["i4"]}]}`, nil, "[0]", ""},
	} {
		got, _, err := rows(t, c.data, record.Config{Options: options(t, c.options), Slots: c.slots})
		formattest.ExpectError(t, err, c.failed)
		if first := strings.Join(got[:min(1, len(got))], ""); first != c.first {
			t.Errorf("%s: expected %q, found %q", c.options, c.first, first)
		}
	}
}

// A null without a default is an error about its slot and record, and no damage. With a default, a null list is empty,
// whatever the default is.
func TestNulls(t *testing.T) {
	tested.EachWay(t, read(t, "nulls.arrow"), record.Config{Options: options(t, `{"columns": ["s", "l"], "default": "x"}`)}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		_, err = formattest.Lines(t, r, 2)
		e := formattest.Expect(t, err, pyfeed.Invalid, `row 0 of batch 0: column "l": expected a value, found null, for which int64 cannot represent the default "x"`)
		if e.Slot != 1 || e.At.Record != 0 {
			t.Errorf("expected slot 1 of record 0, found %+v", e)
		}
		if err := r.Resync(); err != nil {
			t.Fatal(err)
		}
		lines, err := formattest.Lines(t, r, 2)
		if err != io.EOF {
			t.Error(err)
		}
		formattest.ExpectTexts(t, lines, `"b" []`, `"x" [2]`, `"d" []`)
	})
	tested.EachWay(t, read(t, "nulls.arrow"), record.Config{Options: options(t, `{"columns": ["b", "n"]}`)}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		lines, err := formattest.Lines(t, r, 2)
		formattest.ExpectTexts(t, lines, "true 1")
		e := formattest.Expect(t, err, pyfeed.Invalid, `row 1 of batch 0: column "b": expected a value, found null: the option default gives one`)
		if e.Slot != 0 || e.At.Record != 1 || e.At.Offset <= 0 {
			t.Errorf("expected slot 0 of record 1, found %+v", e)
		}
	})
}

// An image without bytes, as datasets of files have, is an error that names its file, and no damage.
func TestImageInAFileOfItsOwn(t *testing.T) {
	tested.EachWay(t, read(t, "images.arrow"), record.Config{Options: options(t, `{"columns": ["label", "image"]}`)}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		lines, err := formattest.Lines(t, r, 2)
		formattest.ExpectTexts(t, lines, `0 "png0"`)
		e := formattest.Expect(t, err, pyfeed.Invalid, `row 1 of batch 0: column "image": expected the bytes of an Image, found none: they are in the file "images/1.png"; save the dataset with them`)
		if e.Slot != 1 || e.At.Record != 1 {
			t.Errorf("expected slot 1 of record 1, found %+v", e)
		}
	})
}

// Slots with names of columns take those columns, as the slots that were inferred from another file do.
func TestSlotsByName(t *testing.T) {
	c := record.Config{Slots: []pyfeed.Slot{{DType: pyfeed.Float64}, {DType: pyfeed.Any}}, Names: []string{"f8", "i1"}}
	got, slots, err := rows(t, read(t, "numbers.arrow"), c)
	formattest.ExpectError(t, err, "")
	if len(got) != 11 || got[1] != "3 3" || slots[1].DType != pyfeed.Int8 {
		t.Errorf("found %q, %+v", got, slots)
	}
	c.Names[1] = "j1"
	_, _, err = rows(t, read(t, "numbers.arrow"), c)
	formattest.ExpectError(t, err, `expected the name or number of a column, found "j1"`)
}

// What ends the search for a message behind damage is an error too, not the end.
func TestEndsAfterDamage(t *testing.T) {
	stream := read(t, "numbers.arrows")
	schema := 8 + int(binary.LittleEndian.Uint32(stream[4:]))
	tested.CutOff(t, string(stream[:schema]), record.Config{}, nil, "expected an Arrow file, or the length of a message of a stream, found ")
	damaged := append(append([]byte{}, stream[:schema]...), make([]byte, 8)...) // no length of a message
	for i := range 8 {
		damaged[schema+i] = 'x'
	}
	ended := "expected the end of the file after the end of the stream, found more: only one stream is read"
	for text, data := range map[string][]byte{
		ended: append(append(append([]byte{}, damaged...), "\xff\xff\xff\xff\x00\x00\x00\x00"...), stream...),
		"found the schema of another stream: only one stream is read": append(append([]byte{}, damaged...), stream...),
	} {
		tested.EachWay(t, data, record.Config{}, func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range []string{"expected an Arrow file, or the length of a message of a stream, found ", text} {
				n, err := formattest.Drain(t, r, 3, nil)
				if e := formattest.Expect(t, err, pyfeed.Corrupt, want); n != 0 || e.At.Offset < int64(schema) {
					t.Errorf("found %d rows and %v", n, err)
				}
				if err = r.Resync(); err != nil && err != io.EOF {
					t.Fatal(err)
				}
			}
			if n, err := formattest.Drain(t, r, 3, nil); n != 0 || err != io.EOF {
				t.Errorf("expected the end, found %d rows and %v", n, err)
			}
		})
	}
}

// Damage has its place, and the rows behind it follow.
func TestDamage(t *testing.T) {
	number := func(data []byte, at int, v uint32) []byte {
		data = append([]byte{}, data...)
		binary.LittleEndian.PutUint32(data[at:], v)
		return data
	}
	file, stream := read(t, "numbers.arrow"), read(t, "numbers.arrows")
	text := read(t, "word.arrow")
	offsets := strings.Index(string(text), "\x00\x00\x00\x00\x01\x00\x00\x00\x01\x00\x00\x00\x04\x00\x00\x00") // of "a", "", "bcd"
	for name, c := range map[string]struct {
		data        []byte
		want        string
		before, all int
	}{
		"empty":          {nil, "byte 0: expected an Arrow file or stream, found an empty file", 0, 0},
		"other":          {[]byte("PAR1 and more bytes"), "byte 0: expected an Arrow file, or the length of a message of a stream, found 827474256", 0, 0},
		"feather":        {[]byte("FEA1 and more bytes"), "found a Feather file of version 1", 0, 0},
		"end":            {file[:len(file)-1], "expected the end of an Arrow file, \"ARROW1\"", 0, 0},
		"footer size":    {number(file, len(file)-10, 1<<30), "expected the size of a footer in a file", 0, 0},
		"footer":         {number(file, len(file)-10, 8), "expected metadata with offsets inside of it", 0, 0},
		"cut stream":     {stream[:len(stream)-200], "expected a ", 4, 4},
		"cut in schema":  {stream[:100], "byte 0: expected a", 0, 0},
		"more":           {append(append([]byte{}, stream...), stream...), "expected the end of the file after the end of the stream, found more", 11, 11},
		"text offset":    {number(text, offsets+8, 77), `row 1 of batch 0: column "utf8": expected offsets from 0 to 4 that do not decrease, found 1 and 77`, 1, 5},
		"text decreases": {number(text, offsets+8, 0), `row 1 of batch 0: column "utf8": expected offsets from 0 to 4 that do not decrease, found 1 and 0`, 1, 6},
	} {
		t.Run(name, func(t *testing.T) {
			tested.EachWay(t, c.data, record.Config{}, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					formattest.ExpectError(t, err, c.want)
					if c.before > 0 {
						t.Error("expected rows before the damage, found none")
					}
					return
				}
				n, err := formattest.Drain(t, r, 3, nil)
				formattest.ExpectError(t, err, c.want)
				if n != c.before {
					t.Errorf("expected %d rows before the damage, found %d", c.before, n)
				}
				for err != io.EOF {
					if err = r.Resync(); err == nil {
						var more int
						more, err = formattest.Drain(t, r, 3, nil)
						n += more
					}
				}
				if n != c.all {
					t.Errorf("expected %d rows in all, found %d", c.all, n)
				}
			})
		})
	}
}

// A default of float16 is rounded once, as numpy.float64(x).astype("float16") does.
func TestHalf(t *testing.T) {
	c := &column{dtype: pyfeed.Float16, size: 2}
	for text, want := range map[string]uint16{"0": 0, "-0": 0x8000, "1": 0x3c00, "-2": 0xc000, "65504": 0x7bff, "65519.99": 0x7bff, "1e-8": 0, "6e-8": 1,
		"2.9802322e-08": 0, "3e-8": 1, "6.1e-05": 0x03ff, "0.1": 0x2e66, "1.00146484375": 0x3c02, "inf": 0x7c00, "nan": 0x7e00,
		"1.00048828125": 0x3c00, "1.00048828126": 0x3c01, "1.0014648": 0x3c01} { // a tie, and numbers whose nearest float32 is a tie
		element, err := parseElement(text, c)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if got := binary.NativeEndian.Uint16(element); got != want {
			t.Errorf("%s: expected %04x, found %04x", text, want, got)
		}
	}
	if _, err := parseElement("65520", c); err == nil {
		t.Error("65520: expected an error, found none")
	}
}

// A column whose dictionary has values of another type, since its number was damaged, is refused: the bytes of text are no
// numbers.
func TestADictionaryOfAnotherType(t *testing.T) {
	data := read(t, "dictionary.arrow")
	found := ""
	for at := 0; at+8 <= len(data); at += 4 {
		if binary.LittleEndian.Uint64(data[at:]) != 1 { // may be the number of the dictionary of n, in the footer
			continue
		}
		damaged := slices.Clone(data)
		binary.LittleEndian.PutUint64(damaged[at:], 0) // that of s
		if _, _, err := rows(t, damaged, record.Config{}); err != nil {
			found += err.Error() + "\n"
		}
	}
	const want = `expected values of the type of column "n" in dictionary 0, found those of column "s", which has another type`
	if !strings.Contains(found, want) {
		t.Errorf("expected %q, found %s", want, found)
	}
}
