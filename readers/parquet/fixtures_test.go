package parquet

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

const fixtureRows = 60

// fixtureRow returns the values of a row of the files that testdata/make.py writes, by column.
func fixtureRow(i int, timeUnit int64) map[string]string {
	row := map[string]string{
		"i": fmt.Sprint(i*i - 50), "f": fmt.Sprint(float64(i) / 4), "s": fmt.Sprintf("%q", strings.Repeat(fmt.Sprintf("row %d", i%7), i%3)),
		"n": fmt.Sprint(i), "b": fmt.Sprint(i%3 == 0), "t": fmt.Sprint(1_000_003 * int64(i) * timeUnit),
	}
	if i%5 == 0 {
		row["n"] = "-1"
	}
	count := func(n int) (all []int) {
		for k := range n {
			all = append(all, k)
		}
		return all
	}
	row["l"] = strings.Replace(fmt.Sprint(count(i%4)), "<nil>", "", 1)
	texts, ends := "", []int{0}
	if i%6 != 5 {
		for k := range i % 3 {
			texts += strings.Repeat("x", k)
			ends = append(ends, len(texts))
		}
	}
	row["ls"] = fmt.Sprintf("%qlod[%v]", texts, ends)
	numbers, ends := []int{}, []int{0}
	for k := range i % 4 {
		numbers = append(numbers, count(k)...)
		ends = append(ends, len(numbers))
	}
	row["ll"] = fmt.Sprintf("%vlod[%v]", numbers, ends)
	return row
}

// The files of other programs have the values that the programs were given.
func TestFilesOfOtherPrograms(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.parquet")
	if err != nil || len(paths) < 15 {
		t.Fatalf("found %d files, %v", len(paths), err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if name == "types.parquet" || name == "nulls.parquet" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			unit := int64(1)
			if name == "pyarrow_spark.parquet" || name == "spark_legacy.parquet" { // times of 96 bits are in nanoseconds
				unit = 1000
			}
			tested.EachWay(t, data, with(t, `{"default": -1, "columns": [0, 1, 2, 3, 4, 5]}`), func(t *testing.T, r record.Records, err error) {
				check(t, r, err, []string{"i", "f", "s", "n", "b", "t"}, unit)
			})
			names := columnNames(t, data)
			tested.EachWay(t, data, with(t, `{"default": -1}`), func(t *testing.T, r record.Records, err error) {
				check(t, r, err, names, unit)
			})
		})
	}
}

func columnNames(t *testing.T, data []byte) (names []string) {
	t.Helper()
	c := with(t, "")
	formattest.WithPool(t, func(pool *memory.Pool) {
		c.Pool = pool
		r, err := tested.Memory(data, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		_, names, _ = r.(record.Describer).Describe()
	})
	return names
}

func check(t *testing.T, r record.Records, err error, names []string, unit int64) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	if n := r.(record.Counted).Count(); n != fixtureRows {
		t.Errorf("expected %d rows, found %d", fixtureRows, n)
	}
	lines, err := formattest.Lines(t, r, 7)
	if err != io.EOF || len(lines) != fixtureRows {
		t.Fatalf("expected %d rows, found %d, %v", fixtureRows, len(lines), err)
	}
	for i, line := range lines {
		row := fixtureRow(i, unit)
		var want []string
		for _, name := range names {
			want = append(want, row[name])
		}
		if expected := strings.Join(want, " "); line != expected {
			t.Fatalf("row %d: expected\n%s\nfound\n%s", i, expected, line)
		}
	}
}

// Each kind of column has the dtype and the values that the documentation says.
func TestTypes(t *testing.T) {
	data, err := os.ReadFile("testdata/types.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ options, slots, row3 string }{
		{`["d32"]`, "float64[]", "-4.1"},
		{`["d64"]`, "float64[]", "-4.1"},
		{`["d128"]`, "float64[]", "-4.1"},
		{`[{"columns": "d64", "dtype": "int64"}]`, "int64[]", "-41"},
		{`[{"columns": "d128", "dtype": "int64"}]`, "int64[]", "-41"},
		{`[{"columns": "d128", "dtype": "float32"}]`, "float32[]", "-4.1"},
		{`["date"]`, "int32[]", "3"},
		{`["time"]`, "int64[]", "3000009"},
		{`["u8"]`, "uint8[]", "3"},
		{`["i16"]`, "int16[]", "-3"},
		{`["u64"]`, "uint64[]", "18446744073709551612"},
		{`["f16"]`, "float16[]", "003a"},
		{`["fixed"]`, "uint8[4]", "[48 48 48 51]"},
		{`[{"columns": "fixed", "dtype": "bytes"}]`, "uint8[-1] lod 1", `"0003"`},
		{`["st.x"]`, "int64[]", "3"},
		{`["st.y.z"]`, "uint8[-1] lod 1", `"z3"`},
		{`[{"columns": "st.y.z", "dims": [-1]}]`, "uint8[-1] lod 1", `"z3"`},
		{`[{"columns": "v", "dims": [-1]}]`, "float32[-1] lod 1", "[3 4 5]"},
		{`["m.key"]`, "uint8[-1] lod 2", `""lod[[0]]`},
		{`["m.value"]`, "int64[-1] lod 1", "[]"},
		{`["v"]`, "float32[-1] lod 1", "[3 4 5]"},
		{`[{"columns": "v", "dims": [3]}]`, "float32[3]", "[3 4 5]"},
		{`[{"columns": "v", "dims": [1, 3], "dtype": "float64"}]`, "float64[1 3]", "[3 4 5]dims[1 3]"},
		{`[{"columns": ["u8", "i16"], "dtype": "int32"}]`, "int32[2]", "[3 -3]"},
		{`[{"columns": "d32:d128", "dims": [3, 1]}]`, "float64[3 1]", "[-4.1 -4.1 -4.1]dims[3 1]"},
	} {
		tested.EachWay(t, data, with(t, `{"default": -1, "columns": `+c.options+`}`), func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatalf("%s: %v", c.options, err)
			}
			slots, _, _ := r.(record.Describer).Describe()
			lines, err := formattest.Lines(t, r, 16)
			if len(lines) != fixtureRows || err != io.EOF {
				t.Fatalf("%s: %d rows, %v", c.options, len(lines), err)
			}
			if found := slots[0].String(); found != c.slots || lines[3] != c.row3 {
				t.Errorf("%s: expected %s and %s, found %s and %s", c.options, c.slots, c.row3, found, lines[3])
			}
		})
	}
}

// What cannot be read as it is asked for is an error that says so.
func TestRefusedOptions(t *testing.T) {
	data, err := os.ReadFile("testdata/types.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for options, want := range map[string]string{
		`{"columns": ["d23"]}`:                                               `found "d23"`,
		`{"columns": [{"columns": "u64", "dtype": "nothing"}]}`:              "expected bytes or the name of a dtype",
		`{"columns": [{"columns": "f16", "dtype": "int32"}]}`:                "expected one that FIXED_LEN_BYTE_ARRAY can be converted to, found int32",
		`{"columns": [{"columns": "u8", "dtype": "bytes"}]}`:                 "expected a column of byte strings for bytes",
		`{"columns": [["u8", "st.y.z"]]}`:                                    "expected columns of one kind",
		`{"columns": [["u8", "i16"]]}`:                                       "expected columns of one dtype",
		`{"columns": [["m.key", "m.value"]]}`:                                "expected one column of lists or byte strings, found 2",
		`{"columns": [{"columns": "v", "dims": [0]}]}`:                       "expected at least 1 element",
		`{"columns": [{"columns": ["u8"], "dims": [2]}]}`:                    "expected 1 elements",
		`{"columns": [{"columns": "st.y.z", "dtype": "int8"}]}`:              `dtype: expected bytes, as column "st.y.z" has, found int8: byte strings are not converted`,
		`{"columns": [{"columns": "st.y.z", "dims": [2]}]}`:                  `slot 0: parquet: dims: expected [-1], as BYTE_ARRAY in column "st.y.z" has, found [2]`,
		`{"columns": [{"columns": "m.key", "dims": [3]}]}`:                   `dims: expected [-1], as list of BYTE_ARRAY in column "m.key" has, found [3]`,
		`{"columns": [{"columns": "v", "dims": [-1, 3]}]}`:                   `dims: expected [-1], as list of FLOAT in column "v" has, found [-1 3]`,
		`{"columns": [{"columns": "fixed", "dtype": "bytes", "dims": [4]}]}`: `dims: expected [-1], as FIXED_LEN_BYTE_ARRAY in column "fixed" has, found [4]`,
		`{"columns": [{"columns": "u8", "default": "nan"}]}`:                 `slot 0: parquet: column "u8": default: expected a value of uint8, found "nan"`,
		`{"columns": [{"columns": "u8", "default": -1}]}`:                    `default: expected a value of uint8, found "-1"`,
		`{"columns": [{"columns": "v", "default": "x"}]}`:                    `column "v": default: expected a value of float32, found "x"`,
		`{"where": [["v", ">", 1]]}`:                                         "expected a column of numbers",
		`{"where": [["u8", ">", "x"]]}`:                                      "expected values like those",
		`{"compression": "zstd"}`:                                            "are for writing",
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := with(t, options)
			c.Pool = pool
			r, err := tested.Memory(data, &c)
			if err == nil {
				r.Close()
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: expected %q, found %v", options, want, err)
			}
		})
	}
	for options, want := range map[string]string{
		`{"columns": [{"columns": "i16", "dtype": "uint8"}]}`: "dictionary: expected a value of uint8, found -1",
		`{"columns": [{"columns": "v", "dims": [4]}]}`:        "row 0 of the file: expected a list of 4 elements, as dims say, found one of 3",
		`{"columns": [{"columns": "u64", "dtype": "int64"}]}`: "expected a value of int64, found 18446744073709551615",
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := with(t, options)
			c.Pool = pool
			r, err := tested.Memory(data, &c)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			_, err = formattest.Drain(t, r, 5, nil)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: expected %q, found %v", options, want, err)
			}
		})
	}
}

// Null is an error that has the column, the row group and the row, unless there is a default.
func TestNulls(t *testing.T) {
	data, err := os.ReadFile("testdata/pyarrow_none.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options string
		rows    int
		want    string
	}{
		{`{"columns": ["n"]}`, 0, `column "n", row group 0, row 0 of the file: expected a value, found null`},
		{`{"columns": ["ls"]}`, 5, `column "ls", row group 0, row 5 of the file: expected a value, found null`},
		{`{"columns": ["n"], "default": "nan"}`, 0, `column "n", row group 0, row 0 of the file: expected a value, found null, for which int32 cannot represent the default "nan"`},
		{`{"columns": ["n"], "default": ""}`, 0, `for which int32 cannot represent the default ""`},
		{`{"columns": [{"columns": "n", "dtype": "float32"}], "default": "nan"}`, fixtureRows, "EOF"},
		{`{"columns": [{"columns": "n", "default": 7}]}`, fixtureRows, "EOF"},
		{`{"columns": ["i", "f"]}`, fixtureRows, "EOF"},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			config := with(t, c.options)
			config.Pool = pool
			r, err := tested.Memory(data, &config)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			n, err := formattest.Drain(t, r, 5, nil)
			if n != c.rows || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: expected %d rows and %q, found %d and %v", c.options, c.rows, c.want, n, err)
			}
		})
	}
}

// With a default, nulls are the default, and null lists are empty, whatever the default is.
func TestDefaultsOfNulls(t *testing.T) {
	data, err := os.ReadFile("testdata/nulls.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		options, failed string
		want            []string
	}{
		{`{"default": 7}`, "", []string{`1 [1 7] [1] "a"`, `7 [] [] "b"`, `3 [2] [2] "7"`, `4 [] [] "d"`}},
		{`{"columns": ["whole", "s"], "default": "none"}`, "", []string{`[1] "a"`, `[] "b"`, `[2] "none"`, `[] "d"`}},
		{`{"columns": ["l", "s"], "default": "none"}`, `column "l", row group 0, row 0 of the file: expected a value, found null, for which int64 cannot represent the default "none"`, nil},
		{`{"columns": ["whole"]}`, `column "whole", row group 0, row 1 of the file: expected a value, found null: the option default gives one`, []string{"[1]"}},
		{`{"columns": ["n", "s"]}`, `column "n", row group 0, row 1 of the file: expected a value, found null: the option default gives one`, []string{`1 "a"`}},
	} {
		tested.EachWay(t, data, with(t, c.options), func(t *testing.T, r record.Records, err error) {
			if err != nil {
				t.Fatal(err)
			}
			lines, err := formattest.Lines(t, r, 3)
			if !slices.Equal(lines, c.want) {
				t.Errorf("%s: expected %q, found %q", c.options, c.want, lines)
			}
			if c.failed == "" {
				if err != io.EOF {
					t.Errorf("%s: %v", c.options, err)
				}
			} else if e := formattest.Expect(t, err, pyfeed.Invalid, c.failed); e.Slot != 0 || e.At.Record != int64(len(c.want)) {
				t.Errorf("%s: expected slot 0 of record %d, found %+v", c.options, len(c.want), e)
			}
		})
	}
}

// Row groups are left out by their statistics: those of 25 rows of i, whose values begin with -50, 575 and 2450.
func TestWhere(t *testing.T) {
	data, err := os.ReadFile("testdata/pyarrow_none.parquet")
	if err != nil {
		t.Fatal(err)
	}
	for options, want := range map[string][]int{
		`[]`:                                   {0, 25, 50},
		`[["i", ">", 1000]]`:                   {25, 50},
		`[["i", "<", 575]]`:                    {0},
		`[["i", "<=", 575]]`:                   {0, 25},
		`[["i", "==", 3431]]`:                  {50},
		`[["i", ">=", 2450], ["i", "<", 100]]`: {},
		`[["i", "in", [-50, 2450]]]`:           {0, 50},
		`[["i", "!=", 0]]`:                     {0, 25, 50},
		`[["f", ">", 6.1]]`:                    {25, 50},
		`[["f", "<", 6.25]]`:                   {0},
		`[["n", "==", 49]]`:                    {25},
		`[["s", "<", "a"]]`:                    {0, 25, 50},
		`[["s", ">", "zzz"]]`:                  {},
		`[["b", "==", true]]`:                  {0, 25, 50},
		`[[0, "<", 0]]`:                        {0},
	} {
		formattest.WithPool(t, func(pool *memory.Pool) {
			c := with(t, `{"columns": ["i"], "where": `+options+`}`)
			c.Pool = pool
			r, err := tested.Memory(data, &c)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			lines, err := formattest.Lines(t, r, 16)
			var expected []string
			for _, first := range want {
				for i := first; i < min(first+25, fixtureRows); i++ {
					expected = append(expected, fmt.Sprint(i*i-50))
				}
			}
			if !slices.Equal(lines, expected) || err != io.EOF {
				t.Errorf("%s: expected %v, found %v, %v", options, expected, lines, err)
			}
			if n := r.(record.Counted).Count(); n != int64(len(expected)) {
				t.Errorf("%s: expected a count of %d, found %d", options, len(expected), n)
			}
		})
	}
}
