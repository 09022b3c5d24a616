package csv

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

// advice is the hint in an error on how to set a column's dtype.
func advice(column, dtype string) string {
	return fmt.Sprintf(`say what it holds by columns=[{"columns": %[1]q, "dtype": %[2]q}, ...], one for each slot, or by column_dtypes={%[1]q: %[2]q} (in JSON "dtypes")`,
		column, dtype)
}

// One record is not enough to infer the dtype of a column.
func TestDTypesAreInferredFromManyRecords(t *testing.T) {
	for _, c := range []struct {
		name, data, options, described string
		want                           []string
	}{
		{"integer, then float", "a\n1\n2.5\n", "", "a:float64[]/0", []string{"1", "2.5"}},
		{"float, then integer", "a\n2.5\n1\n", "", "a:float64[]/0", []string{"2.5", "1"}},
		{"integer, then nan", "a\n1\nnan\n", "", "a:float64[]/0", []string{"1", "NaN"}},
		{"small, then large", "a\n1\n18446744073709551615\n", "", "a:uint64[]/0", []string{"1", "18446744073709551615"}},
		{"negative", "a\n1\n-9223372036854775808\n", "", "a:int64[]/0", []string{"1", "-9223372036854775808"}},
		{"a wide integer among floats", "a\n0.5\n18446744073709551616\n", "", "a:float64[]/0", []string{"0.5", "1.8446744073709552e+19"}},
		{"number, then text", "a\n007\nx\n", "", "a:uint8[-1]/1", []string{`"007"`, `"x"`}},
		{"a wide integer, then text", "a\n18446744073709551617\nx\n", "", "a:uint8[-1]/1", []string{`"18446744073709551617"`, `"x"`}},
		{"quotes in text", "a\n1\n\"1\"\"\"\n", "", "a:uint8[-1]/1", []string{`"1"`, `"1\""`}},
		{"bools", "a\ntrue\nFALSE\n", "", "a:bool[]/0", []string{"true", "false"}},
		{"bool, then number", "a\ntrue\n1\n", "", "a:uint8[-1]/1", []string{`"true"`, `"1"`}},
		{"empty, then text", "a,b\n,1\nx,2\n", "", "a:uint8[-1]/1 b:int64[]/0", []string{`"" 1`, `"x" 2`}},
		{"missing integer", "a,b\n1,1\n,2\n", `{"missing": 0}`, "a:int64[]/0 b:int64[]/0", []string{"1 1", "0 2"}},
		{"missing float", "a,b\n1,1\n,2\n", `{"missing": "nan"}`, "a:float64[]/0 b:int64[]/0", []string{"1 1", "NaN 2"}},
		{"several columns", "a,b\n1,2\n3,4.5\n", `{"columns": [{"columns": "a:b"}]}`, "::float64[2]/0", []string{"[1 2]", "[3 4.5]"}},
		{"large and small in several", "a,b\n1,18446744073709551615\n", `{"columns": [{"columns": "a:b"}]}`, "::uint64[2]/0", []string{"[1 18446744073709551615]"}},
		{"told by option", "a\n1\n2\n", `{"dtypes": {"a": "float32"}}`, "a:float32[]/0", []string{"1", "2"}},
	} {
		config := record.Config{}
		if c.options != "" {
			config.Options = formattest.Options[Options](t, c.options)
		}
		t.Run(c.name, func(t *testing.T) {
			tested.EachWay(t, []byte(c.data), config, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				slots, names, _ := r.(record.Describer).Describe()
				if got := described(slots, names); got != strings.Replace(c.described, "::", ":", 1) {
					t.Errorf("expected %q, found %q", c.described, got)
				}
				if got, err := formattest.Lines(t, r, 10); err != io.EOF || !slices.Equal(got, c.want) {
					t.Errorf("expected %q, found %q, %v", c.want, got, err)
				}
			})
		})
	}
}

// A damaged record is not used to infer dtypes.
func TestDamagedRecordsAreNotSampled(t *testing.T) {
	for _, damaged := range []string{"x,1\n", "x,y,z,1\n", "\"x\"y,1\n"} {
		r, err := tested.Memory([]byte("a,b,c\n1,2,3\n"+damaged+"1,2.5,3\n"), &record.Config{Pool: formattest.Pool(t)})
		if err != nil {
			t.Fatal(err)
		}
		slots, names, _ := r.(record.Describer).Describe()
		if got := described(slots, names); got != "a:int64[]/0 b:float64[]/0 c:int64[]/0" {
			t.Errorf("%q: found %q", damaged, got)
		}
		got, err := formattest.Lines(t, r, 10)
		formattest.ExpectTexts(t, got, "1 2 3")
		formattest.Expect(t, err, pyfeed.Corrupt, "expected")
		if err := r.Resync(); err != nil {
			t.Fatal(err)
		}
		got, err = formattest.Lines(t, r, 10)
		if formattest.ExpectTexts(t, got, "1 2.5 3"); err != io.EOF {
			t.Error(err)
		}
		r.Close()
	}
}

// Integers become floats only if the column has floats too.
func TestIntegersOutOfRangeOfEveryDType(t *testing.T) {
	const expected = "expected integers that int64 or uint64 holds, found "
	for _, c := range []struct {
		data           string
		slot           int
		offset, record int64
		text           string
	}{
		{"a\n18446744073709551617\n", 0, 2, 0, `line 2, column "a": ` + expected + `"18446744073709551617"; ` + advice("a", "float64")},
		{"a,b\n1,2\n\n3,-9223372036854775809\n", 1, 9, 1, `line 4, column "b": ` + expected + `"-9223372036854775809"; ` + advice("b", "float64")},
		{"a\n-1\n18446744073709551615\n", 0, 5, 1, `line 3, column "a": ` + expected + `"18446744073709551615" and, in line 2, "-1"; ` + advice("a", "float64")},
		{"a\n18446744073709551615\n-1\n", 0, 23, 1, `line 3, column "a": ` + expected + `"-1" and, in line 2, "18446744073709551615"; ` + advice("a", "float64")},
	} {
		tested.EachWay(t, []byte(c.data), record.Config{}, func(t *testing.T, _ record.Records, err error) {
			e := formattest.Expect(t, err, pyfeed.Type, c.text)
			if e.Slot != c.slot || e.At.Offset != c.offset || e.At.Record != c.record || e.At.File == "" {
				t.Errorf("expected slot %d, byte %d, record %d, found %d, %+v", c.slot, c.offset, c.record, e.Slot, e.At)
			}
		})
	}
	// If columns have no names, the error has the number of the column.
	_, err := tested.Memory([]byte("1,18446744073709551617\n"), &record.Config{Options: noHeader, Pool: formattest.Pool(t)})
	formattest.Expect(t, err, pyfeed.Type, `columns=[{"columns": 1, "dtype": "float64"}, ...]`)
}

// A record after the sample that fits another dtype is valid, and must not be skipped as damage.
func TestRecordsAfterTheSample(t *testing.T) {
	line := strings.Repeat(" ", 2000) + "100000000000000000,2000000000000000000\n" // long, so that few records fill the sample
	n := int64(sampleBytes/len(line) + 1)
	many := strings.Repeat(line, int(n))
	at := int64(len("a,b\n") + len(many))
	for _, c := range []struct {
		name, line string
		kind       pyfeed.Kind
		offset     int64 // in the line
		text       string
	}{
		{"float", "3,4.5\n", pyfeed.Type, 2, `column "b": expected a number of int64, found "4.5"; the dtype is that of the first MiB: ` + advice("b", "float64")},
		{"large", "9223372036854775808,4\n", pyfeed.Type, 0, `found "9223372036854775808"; the dtype is that of the first MiB: ` + advice("a", "uint64")},
		{"huge", "18446744073709551616,4\n", pyfeed.Type, 0, `found "18446744073709551616"; the dtype is that of the first MiB: ` + advice("a", "float64")},
		{"bool", "3,true\n", pyfeed.Type, 2, `found "true"; the dtype is that of the first MiB: ` + advice("b", "bool")},
		{"text", "x,4\n", pyfeed.Corrupt, 0, `column "a": expected a number of int64, found "x"; the dtype is that of the first MiB: ` + advice("a", "bytes")},
		{"float and too few columns", "1.5\n", pyfeed.Corrupt, 0, `column "a": expected a number of int64, found "1.5"`},
		{"float and a quote", "1.5,\"x\"y\n", pyfeed.Corrupt, 0, `column "a": expected a number of int64, found "1.5"`},
		{"empty", "1,\n", pyfeed.Invalid, 2, "found an empty field: the option missing gives the value of empty fields"},
	} {
		t.Run(c.name, func(t *testing.T) {
			data := []byte("a,b\n" + many + c.line + "5,6\n")
			tested.EachWay(t, data, record.Config{}, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got, err := formattest.Lines(t, r, 256)
				if int64(len(got)) != n || got[n-1] != strings.TrimSpace(strings.ReplaceAll(line, ",", " ")) {
					t.Fatalf("expected %d records, found %d", n, len(got))
				}
				e := formattest.Expect(t, err, c.kind, c.text)
				if e.At.Record != n || e.At.Offset != at+c.offset {
					t.Errorf("expected record %d at byte %d, found %+v", n, at+c.offset, e.At)
				}
			})
		})
	}
	// The value of an empty field may need another dtype as well.
	r, err := tested.Memory([]byte("a,b\n"+many+"1,\n"), &record.Config{Options: formattest.Options[Options](t, `{"missing": "nan"}`), Pool: formattest.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = formattest.Lines(t, r, 256)
	formattest.Expect(t, err, pyfeed.Type, `expected a number of int64, found an empty field, which stands for "nan"; the dtype is that of the first MiB: `+advice("b", "float64"))
	r.Close()
	// One that is no number is an error at the first empty field, because it may be for other columns.
	r, err = tested.Memory([]byte("a,b\n"+many+"1,\n"), &record.Config{Options: formattest.Options[Options](t, `{"missing": "?"}`), Pool: formattest.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = formattest.Lines(t, r, 256)
	formattest.Expect(t, err, pyfeed.Invalid, `expected a number of int64, found an empty field, which stands for "?"`)
	r.Close()
	// A dtype that the caller gives is not inferred: a field that does not fit it is damage.
	r, err = tested.Memory([]byte("a\n1\n2.5\n"), &record.Config{Slots: []pyfeed.Slot{numberSlot(pyfeed.Int64)}, Pool: formattest.Pool(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = formattest.Lines(t, r, 10)
	if e := formattest.Expect(t, err, pyfeed.Corrupt, `expected a number of int64, found "2.5"`); strings.Contains(e.Text, "MiB") {
		t.Errorf("expected nothing about an inferred dtype, found %v", e)
	}
}

// For a record that is longer than the sample, dtypes are inferred from that record alone.
func TestRecordLongerThanTheSample(t *testing.T) {
	long := strings.Repeat("x", sampleBytes+1)
	tested.EachWay(t, []byte("a,b\n1,"+long+"\n2,y\n"), record.Config{}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		slots, names, _ := r.(record.Describer).Describe()
		if got := described(slots, names); got != "a:int64[]/0 b:uint8[-1]/1" {
			t.Errorf("found %q", got)
		}
		if got, err := formattest.Lines(t, r, 10); err != io.EOF || len(got) != 2 || got[1] != `2 "y"` {
			t.Errorf("expected 2 records, found %d, %v", len(got), err)
		}
	})
}

func BenchmarkLook(b *testing.B) {
	for name, field := range map[string]func(*rand.Rand) string{
		"integers": func(rng *rand.Rand) string { return strconv.Itoa(rng.IntN(256)) },
		"floats":   func(rng *rand.Rand) string { return fmt.Sprintf("%.4f", rng.NormFloat64()) },
		"text":     func(rng *rand.Rand) string { return strings.Repeat("x", 1+rng.IntN(20)) },
	} {
		rng := rand.New(rand.NewPCG(1, 1))
		var data []byte
		for len(data) < 2*sampleBytes {
			data = append(append(data, repeat(20, field)(rng)...), '\n')
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				r, err := tested.Memory(data, &record.Config{Options: noHeader, Pool: formattest.Pool(b)})
				if err != nil {
					b.Fatal(err)
				}
				r.Close()
			}
		})
	}
}
