package jsonl

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
)

var tested = formattest.Format{Suffix: ".jsonl", Open: Open, Begin: begin, Create: Create}

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

// given are the slots and names of a file with slots that a caller gives.
func given(names string, slots ...pyfeed.Slot) record.Config {
	return record.Config{Slots: slots, Names: strings.Split(names, " ")}
}

func TestRead(t *testing.T) {
	scalar := func(d pyfeed.DType) pyfeed.Slot { return pyfeed.Slot{DType: d, Dims: pyfeed.Dims{}} }
	for _, c := range []struct {
		name, data, options string
		config              record.Config
		described           string
		want                []string
	}{
		{"inferred", `{"id": 1, "x": 2.5, "name": "a b", "ok": true, "big": 18446744073709551615}` + "\n" +
			`{"id":-2,"x":1e3,"name":"","ok":false,"big":0}` + "\n", "", record.Config{},
			"id:int64[]/0 x:float64[]/0 name:uint8[-1]/1 ok:bool[]/0 big:uint64[]/0",
			[]string{`1 2.5 "a b" true 18446744073709551615`, `-2 1000 "" false 0`}},
		{"lists", `{"t":[1,22,333],"words":["a","","bc"],"m":[[1.5],[],[2,3]],"deep":[[["x"],[]],[]]}` + "\n" +
			`{"t":[],"words":[],"m":[],"deep":[]}` + "\r\n" + `{"deep":[[]],"m":[[]],"words":["\u00e4\n"],"t":[-1]}`, "", record.Config{},
			"t:int64[-1]/1 words:uint8[-1]/2 m:float64[-1]/2 deep:uint8[-1]/4",
			[]string{`[1 22 333] "abc"lod[[0 1 1 3]] [1.5 2 3]lod[[0 1 1 3]] "x"lod[[0 2 2] [0 1 1] [0 1]]`,
				`[] ""lod[[0]] []lod[[0]] ""lod[[0] [0] [0]]`, `[-1] "ä\n"lod[[0 3]] []lod[[0 0]] ""lod[[0 0] [0] [0]]`}},
		{"paths", `{"a":{"b":{"c":7},"l":[1,[2,"x"],3]},"a.b":5,"/~":6,"z":0}` + "\n" + `{"z":{"a":[{}]},"/~":66,"a.b":55,"a":{"l":[1,[2,"y\\"]],"q":1,"b":{"d":[],"c":77}}}` + "\n",
			`{"columns": ["a.b.c", "a.l.1.0", {"name": "text", "columns": "/a/l/1/1"}, "/a.b", "/~1~0"]}`, record.Config{},
			"a.b.c:int64[]/0 a.l.1.0:int64[]/0 text:uint8[-1]/1 /a.b:int64[]/0 /~1~0:int64[]/0",
			[]string{`7 2 "x" 5 6`, `77 2 "y\\" 55 66`}},
		{"arrays", "[1, \"a\", [2, 3]]\n[4, \"b\", []]\n", `{"columns": [1, "0", {"columns": "2", "dtype": "int16"}]}`, record.Config{},
			"1:uint8[-1]/1 0:int64[]/0 2:int16[-1]/1", []string{`"a" 1 [2 3]`, `"b" 4 []`}},
		{"fixed dims", `{"v":[1,2],"m":[[1,2,3],[4,5,6]],"rows":[[1,2]],"x":1,"y":2.5}` + "\n" + `{"v":[3,4.5],"m":[[0,0,0],[0,0,-1]],"rows":[],"x":3,"y":4}` + "\n",
			`{"columns": [{"columns": "v", "dims": [2]}, {"columns": "m", "dims": [2, 3], "dtype": "int8"}, {"columns": "rows", "dims": [-1, 2], "dtype": "float32"}, {"name": "xy", "columns": ["x", "y"]}]}`, record.Config{},
			"v:float64[2]/0 m:int8[2 3]/0 rows:float32[-1 2]/1 xy:float64[2]/0",
			[]string{`[1 2] [1 2 3 4 5 6]dims[2 3] [1 2]dims[1 2] [1 2.5]`, `[3 4.5] [0 0 0 0 0 -1]dims[2 3] []dims[0 2] [3 4]`}},
		{"only numbers", strings.Repeat(`{"v":[1,2],"n":-3,"h":0.5}`+"\n", 40), `{"columns": [{"columns": "v", "dims": [2], "dtype": "float32"}, {"columns": "n", "dtype": "int32"}, {"columns": "h", "dtype": "float16"}]}`, record.Config{},
			"v:float32[2]/0 n:int32[]/0 h:float16[]/0", slices.Repeat([]string{"[1 2] -3 0038"}, 40)},
		{"defaults", `{"a":1,"s":"x","l":[1],"b":true}` + "\n" + `{"a":null,"s":null,"l":null}` + "\n{}\n",
			`{"columns": [{"columns": "a", "default": "nan", "dtype": "float32"}, {"columns": "s", "default": "none"}, {"columns": "l", "default": "[7, 8]"}, {"columns": "b", "default": "false"}, {"columns": "v", "dims": [2], "dtype": "float32", "default": -1}]}`, record.Config{},
			"a:float32[]/0 s:uint8[-1]/1 l:int64[-1]/1 b:bool[]/0 v:float32[2]/0",
			[]string{`1 "x" [1] true [-1 -1]`, `NaN "none" [7 8] false [-1 -1]`, `NaN "none" [7 8] false [-1 -1]`}},
		{"one default", `{"a":1,"b":2.5,"s":"x"}` + "\n" + `{"s":"y"}` + "\n" + `{"s":null}`, `{"default": 0}`, record.Config{},
			"a:int64[]/0 b:float64[]/0 s:uint8[-1]/1", []string{`1 2.5 "x"`, `0 0 "y"`, `0 0 "0"`}},
		{"json", `{"a":{"b":[1, 2]},"c":1}` + "\n" + `{"a":null,"c":{"x":"\ud83d\ude00"}}` + "\n" + `{"a":{"b":3}}`,
			`{"columns": [{"columns": "a", "dtype": "json"}, "c", "a.b"], "dtypes": {"c": "json", "a.b": "json"}, "default": "null"}`, record.Config{},
			"a:uint8[-1]/1 c:uint8[-1]/1 a.b:uint8[-1]/1",
			[]string{`"{\"b\":[1, 2]}" "1" "[1, 2]"`, `"null" "{\"x\":\"\\ud83d\\ude00\"}" "null"`, `"{\"b\":3}" "null" "3"`}},
		{"slots", `{"text":"ä","id":3,"label":2.5,"ids":[5]}` + "\n", "",
			given("label text ids", scalar(pyfeed.Float32), record.BytesSlot, pyfeed.Slot{DType: pyfeed.Int32, Dims: pyfeed.Dims{-1}, LoDLevels: 1}),
			"label:float32[]/0 text:uint8[-1]/1 ids:int32[-1]/1", []string{`2.5 "ä" [5]`}},
		{"a slot without a dtype", `{"a":[3, 4.5]}`, "", given("a", pyfeed.Slot{Dims: pyfeed.Dims{2}}), "a:float64[2]/0", []string{`[3 4.5]`}},
		{"bytes in a list", `{"a":[3, 255]}`, `{"dtypes": {"a": "uint8"}}`, given("a", record.BytesSlot), "a:uint8[-1]/1", []string{`"\x03\xff"`}},
		{"white space", "\xef\xbb\xbf\n\r\n \t\n {\t\"a\" :\r[ 1 ,2 , 3,\t4 ] , \"b\":{ } }\t\r\n\n\n{\"a\":[ ]}  ", `{"columns": ["a"]}`, record.Config{}, "a:int64[-1]/1", []string{`[1 2 3 4]`, `[]`}},
		{"escapes", `{"a":"\"\\\/\b\f\n\r\t\u0041\u00df\u6771\ud834\udd1e","\u0062":"é東𝄞\u0000"}`, "", record.Config{}, "a:uint8[-1]/1 b:uint8[-1]/1",
			[]string{`"\"\\/\b\f\n\r\tAß東𝄞" "é東𝄞\x00"`}},
		{"names in another order", `{"a":1,"b":2,"c":3}` + "\n" + `{"c":6,"a":4,"d":0,"b":5}` + "\n" + `{"b":8,"c":9,"a":7}` + "\n", `{"columns": ["b", "c"]}`, record.Config{},
			"b:int64[]/0 c:int64[]/0", []string{"2 3", "5 6", "8 9"}},
		{"numbers", `[-0, 0.1, 1E5, 123456789012345678, 1e-400, 0.30000000000000004, 9007199254740993, 1.7976931348623157e308, 12345678901234567890123]`,
			`{"columns": [{"columns": [0, 1, 2, 3, 4, 5, 6, 7, 8], "name": "x"}]}`, record.Config{}, "x:float64[9]/0",
			[]string{"[-0 0.1 100000 1.2345678901234568e+17 0 0.30000000000000004 9.007199254740992e+15 1.7976931348623157e+308 1.2345678901234568e+22]"}},
		{"no records", "\n\n", "", given("a", record.BytesSlot), "a:uint8[-1]/1", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.config.Options = formattest.Options[Options](t, c.options)
			for _, many := range []int{1, 7} {
				tested.EachWay(t, []byte(c.data), c.config, func(t *testing.T, r record.Records, err error) {
					if err != nil {
						t.Fatal(err)
					}
					if slots, names, _ := r.(record.Describer).Describe(); described(slots, names) != c.described {
						t.Errorf("expected the slots %s, found %s", c.described, described(slots, names))
					}
					if got, err := formattest.Lines(t, r, many); err != io.EOF || !slices.Equal(got, c.want) {
						t.Errorf("expected\n%s\nfound %v\n%s", strings.Join(c.want, "\n"), err, strings.Join(got, "\n"))
					}
				})
			}
		})
	}
}

// Each of these lines is damage, wherever it is in a record: the lines before and behind it are read.
func TestDamage(t *testing.T) {
	long := strings.Repeat("x", 50)
	for _, c := range []struct{ value, want string }{
		{``, `expected a value, found '}'`},
		{`nul`, `expected a value, found 'n'`},
		{`trUe`, `expected a value, found 't'`},
		{`NaN`, `expected a value, found NaN, which JSON does not have`},
		{`-Infinity`, `expected a value, found -Infinity, which JSON does not have`},
		{`01`, `expected ',' or '}' after a value, found '1'`},
		{`-`, `expected a digit, found '}'`},
		{`+1`, `expected a value, found '+'`},
		{`.5`, `expected a value, found '.'`},
		{`1.`, `expected a digit after the point, found '}'`},
		{`1.5e`, `expected a digit of an exponent, found '}'`},
		{`1e+`, `expected a digit of an exponent, found '}'`},
		{`0x10`, `expected ',' or '}' after a value, found 'x'`},
		{`1 2`, `expected ',' or '}' after a value, found '2'`},
		{`"` + long, `expected a closing quote, found the end of the line`},
		{`"\x"`, `expected one of "\/bfnrtu after a backslash, found 'x'`},
		{`"\u12g4"`, `expected four hexadecimal digits after \u, found 'g'`},
		{`"\ud800"`, `expected a pair of surrogates, found only one, \ud800: UTF-8 cannot represent it`},
		{`"\udc00\ud800"`, `expected a pair of surrogates, found only one, \udc00`},
		{`"\ud800\u0041"`, `expected a pair of surrogates, found only one, \ud800`},
		{"\"tab\there\"", `expected an escape for a control character in a string, found the byte 0x09`},
		{"\"" + long + "\xff\"", `expected UTF-8, found the byte 0xff`},
		{"\"\xed\xa0\x80\"", `expected UTF-8, found the byte 0xed`},
		{"\"\xe0\x80\x80\"", `expected UTF-8, found the byte 0xe0`},
		{"\"\xf4\x90\x80\x80\"", `expected UTF-8, found the byte 0xf4`},
		{"\"\xc0\x80\"", `expected UTF-8, found the byte 0xc0`},
		{`[1,]`, `expected a value, found ']'`},
		{`[1 2]`, `expected ',' or ']' after a value, found '2'`},
		{`[`, `expected a value, found '}'`},
		{`{"a":1,}`, `expected a name in quotes, found '}'`},
		{`{a:1}`, `expected a name in quotes, found 'a'`},
		{`{"a" 1}`, `expected ':' after a name, found '1'`},
		{`{"a":1]`, `expected ',' or '}' after a value, found ']'`},
		{strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth), `expected arrays and objects nested at most 1024 deep, found more`},
		{`'a'`, `expected a value, found '\''`},
	} {
		for _, line := range []string{`{"other": ` + c.value + `}`, `{"n": 2, "other": [0, ` + c.value + `}`, `{"n": ` + c.value + `}`} {
			if strings.Contains(line, "[0") && !strings.HasPrefix(c.value, "\"") { // other errors depend on the bracket
				continue
			}
			data := "{\"n\": 1}\n\n" + line + "\n{\"n\": 3}"
			tested.EachWay(t, []byte(data), record.Config{Options: formattest.Options[Options](t, `{"columns": [{"columns": "n", "dtype": "int64"}]}`)}, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got, err := formattest.Lines(t, r, 3)
				formattest.Expect(t, err, pyfeed.Corrupt, c.want)
				e := formattest.Expect(t, err, pyfeed.Corrupt, "line 3: ")
				if e.At.Record != 1 || e.At.Offset < 10 || e.At.Offset > int64(len(data)-9) {
					t.Errorf("%s: found the place %v", line, e.At)
				}
				if err := r.Resync(); err != nil {
					t.Fatal(err)
				}
				more, err := formattest.Lines(t, r, 3)
				if got = append(got, more...); err != io.EOF || !slices.Equal(got, []string{"1", "3"}) {
					t.Errorf("%s: found %v, %v", line, got, err)
				}
			})
		}
	}
}

func TestWrongValues(t *testing.T) {
	for _, c := range []struct{ value, column, want string }{
		{`"x"`, `"dtype": "int32", "dims": []`, `column "a": expected a number of int32, found "x"`},
		{`true`, `"dtype": "int32", "dims": []`, `column "a": expected a number of int32, found true`},
		{`1.5`, `"dtype": "int32", "dims": []`, `column "a": expected a number of int32, found 1.5`},
		{`1e2`, `"dtype": "int32", "dims": []`, `column "a": expected a number of int32, found 1e2`},
		{`300`, `"dtype": "uint8", "dims": []`, `column "a": expected a number of uint8, 0 to 255, found 300`},
		{`-1`, `"dtype": "uint8", "dims": []`, `column "a": expected a number of uint8, 0 to 255, found -1`},
		{`9223372036854775808`, `"dtype": "int64", "dims": []`, `column "a": expected a number of int64, -9223372036854775808 to 9223372036854775807, found 9223372036854775808`},
		{`99999999999999999999999`, `"dtype": "uint64", "dims": []`, `found 99999999999999999999999`},
		{`1e999`, `"dtype": "float64", "dims": []`, `column "a": expected a number of float64, at most 1.7977e+308 in size, found 1e999`},
		{`1e39`, `"dtype": "float32", "dims": []`, `column "a": expected a number of float32, at most 3.4028e+38 in size, found 1e39`},
		{`70000`, `"dtype": "float16", "dims": []`, `column "a": expected a number of float16, at most 65504 in size, found 70000`},
		{`1`, `"dtype": "bool", "dims": []`, `column "a": expected true or false, found 1`},
		{`1`, `"dtype": "bytes", "dims": []`, `column "a": expected text, found 1`},
		{`[1]`, `"dtype": "bytes", "dims": []`, `column "a": expected text, found [1]`},
		{`1`, `"dtype": "bytes", "dims": [-1]`, `column "a": expected a list of text, found 1`},
		{`["x", 1]`, `"dtype": "bytes", "dims": [-1]`, `column "a": expected a list of text, found 1`},
		{`1`, `"dtype": "int64", "dims": [-1]`, `column "a": expected a list of number of int64, found 1`},
		{`[1, null]`, `"dtype": "int64", "dims": [-1]`, `found null: only a value that is null as a whole has a default; the dtype "json" takes any list`},
		{`[1, null], +`, `"dtype": "int64", "dims": [-1]`, `found null`},
		{`["x", null]`, `"dtype": "bytes", "dims": [-1]`, `column "a": expected a list of text, found null`},
		{`[[1], null]`, `"dtype": "int64", "dims": [-1, -1]`, `column "a": expected a list of number of int64, found null`},
		{`[1, 2]`, `"dtype": "int64", "dims": [3]`, `column "a": expected a list of 3, found 2`},
		{`[[1, 2]]`, `"dtype": "int64", "dims": [-1, 3]`, `column "a": expected a list of 3, found 2`},
		{`null`, `"dtype": "int64", "dims": []`, `column "a": expected a number of int64, found null or none: the option default gives the value of such records`},
		{`1, "a": 2`, `"dtype": "int64", "dims": []`, `expected the name of column "a" only once in an object, found it twice`},
	} {
		for _, data := range []string{`{"a": ` + c.value + "}\n", `{"b":0,"a":` + c.value + "}"} {
			tested.EachWay(t, []byte(data), record.Config{Options: formattest.Options[Options](t, `{"columns": [{"columns": "a", `+c.column+`}]}`)}, func(t *testing.T, r record.Records, err error) {
				if err != nil {
					t.Fatal(err)
				}
				got, err := formattest.Lines(t, r, 3)
				if len(got) > 0 {
					t.Errorf("found %v", got)
				}
				kind, slot := pyfeed.Corrupt, -1
				if strings.Contains(c.value, "null") && !strings.Contains(c.value, "+") { // no damage
					kind, slot = pyfeed.Invalid, 0
				}
				if e := formattest.Expect(t, err, kind, c.want); e.Slot != slot || e.At.Record != 0 || e.At.Offset < 0 {
					t.Errorf("expected slot %d of record 0, found %+v", slot, e)
				}
			})
		}
	}
}

// A number that does not fit the inferred dtype is no damage.
func TestInferredTooNarrow(t *testing.T) {
	data := strings.Repeat("{\"a\": 1}\n", sampleBytes/9+1)
	for _, c := range []struct {
		line, want string
		kind       pyfeed.Kind
	}{
		{`{"a": 1.5}`, `expected a number of int64, found 1.5; the dtype is that of the first MiB: say what it holds by columns=[{"columns": "a", "dtype": "float64"}, ...]`, pyfeed.Type},
		{`{"a": 9223372036854775808}`, `"dtype": "uint64"`, pyfeed.Type},
		{`{"a": 1.5} x`, `found 1.5`, pyfeed.Corrupt},
		{`{"a": "x"}`, `expected a number of int64, found "x"`, pyfeed.Corrupt},
	} {
		r, err := Open(formattest.File(t, "a.jsonl", []byte(data+c.line)), &record.Config{Pool: formattest.Pool(t)})
		if err != nil {
			t.Fatal(err)
		}
		_, err = formattest.Drain(t, r, 201, nil)
		formattest.Expect(t, err, c.kind, c.want)
		r.Close()
	}
}

func TestOptions(t *testing.T) {
	for _, c := range []struct {
		data, options, want string
	}{
		{"", "", `expected a record to infer the slots from, found none: give slots or columns`},
		{"[1]\n", "", `expected objects, each name of which is a slot, found none in the first MiB: give columns, with paths such as "0" for arrays`},
		{`{"":1}`, "", `found an empty one: give columns, with the path "/" for it`},
		{`{"a":{}}`, "", `slot 0: jsonl: expected a number, text or a list in column "a", found an object, {} in line 1: select values in it by their paths, such as "a.name", or its JSON text by the dtype "json"`},
		{`{"a":1}` + "\n" + `{"a":"x"}`, "", `expected values of one kind in column "a", found 1 in line 1 and "x" in line 2: say what it holds by columns=[{"columns": "a", "dtype": "json"}, ...]`},
		{`{"a":[1,"x"]}`, "", `expected values of one kind in the lists of column "a", found 1 in line 1 and "x" in line 1`},
		{`{"a":null}`, "", `expected a value in column "a" within the first MiB, to infer its dtype from, found null or none`},
		{`{"a":[]}`, "", `found only empty ones`},
		{`{"a":[]}`, `{"dtypes": {"a": "int32"}}`, ``},
		{`{"a":18446744073709551615}` + "\n" + `{"a":-1}`, "", `expected integers that int64 or uint64 holds, found 18446744073709551615 in line 1 and -1 in line 2`},
		{`{"a":99999999999999999999}`, "", `found 99999999999999999999 in line 1; say what it holds`},
		{"{\"a\":1\n", "", `line 1: expected ',' or '}' after a value, found the end of the line`},
		{"\xff\xfe{", "", `expected text in UTF-8, found UTF-16`},
		{`{"a":1}`, `{"dtypes": {"b": "int8"}}`, `dtypes: expected the path of a value that is read, found "b"`},
		{`{"a":1}`, `{"columns": ["a", "a"]}`, `slot 1: jsonl: columns: expected values that no other slot has, found column "a", which slot 0 has`},
		{`{"a":1}`, `{"columns": ["a", "a.b"]}`, `slot 1: jsonl: columns: expected a value in which no other is selected, found column "a", but column "a.b" is selected too`},
		{`{"a":1}`, `{"columns": [{"columns": "a", "dtype": "text"}]}`, `dtype: expected bytes, json or the name of a dtype, found "text": text is "bytes"`},
		{`{"a":1}`, `{"columns": [{"columns": "a", "dtype": "complex64"}]}`, `dtype: expected real numbers, bool, bytes or json, found complex64`},
		{`{"a":1}`, `{"columns": [{"columns": "a", "dtype": "int8", "default": 300}]}`, `default: expected a number of int8, -128 to 127, found "300"`},
		{`{"a":[1]}`, `{"columns": [{"columns": "a", "default": "[1"}]}`, `default: expected a value of column "a" as JSON text, found "[1"`},
		{`{"a":[1]}`, `{"columns": [{"columns": "a", "dims": [2, -1]}]}`, `slot 0: jsonl: dims: expected lists nested 1 deep, as column "a" has, found 2 dimensions`},
		{`{"a":[1]}`, `{"columns": [{"columns": "a", "dims": [2, -1], "dtype": "int8"}]}`, `dims: expected -1, for lists of any length, only before all sizes, found [2 -1]`},
		{`{"a":["x"]}`, `{"columns": [{"columns": "a", "dims": [1]}]}`, `dims: expected only -1 for text`},
		{`{"a":1}`, `{"columns": [{"columns": ["a", "b"]}]}`, `expected numbers, or bools, in all columns of the slot within the first MiB, found no value in column "b"`},
		{`{"a":1,"b":"x"}`, `{"columns": [{"columns": ["a", "b"]}]}`, `found "x" in line 1 in column "b"`},
		{`{"a":1}`, `{"columns": ["/a~2"]}`, `expected a JSON pointer, in which ~0 stands for ~ and ~1 for /, found "/a~2"`},
		{`{"a":1}`, `{"columns": [-1]}`, `expected an index of an array from 0, found -1`},
	} {
		r, err := Open(formattest.File(t, "a.jsonl", []byte(c.data)), &record.Config{Pool: formattest.Pool(t), Options: formattest.Options[Options](t, c.options)})
		formattest.ExpectError(t, err, c.want)
		if err == nil {
			r.Close()
		}
	}
}

// A line may be as long as the limit.
func TestLongLines(t *testing.T) {
	line := `{"a": "` + strings.Repeat("y", 80) + `"}`
	tested.EachWay(t, []byte(line+"\n"+line[:60]+line+"\n"+line), record.Config{}, func(t *testing.T, r record.Records, err error) {
		if err != nil {
			t.Fatal(err)
		}
		r.(*records).maxRecord = len(line) + 1
		got, err := formattest.Lines(t, r, 3)
		formattest.Expect(t, err, pyfeed.Corrupt, fmt.Sprintf("line 2: expected a line of at most %d bytes, found no end of it", len(line)+1))
		if err := r.Resync(); err != nil {
			t.Fatal(err)
		}
		more, err := formattest.Lines(t, r, 3)
		if got = append(got, more...); err != io.EOF || len(got) != 2 || got[0] != got[1] {
			t.Errorf("found %v, %v", got, err)
		}
	})
}

// A file that is cut off in a line that is too long is an error too, not the end.
func TestCutOffAfterDamage(t *testing.T) {
	limit := func(r record.Records) { r.(*records).maxRecord = 1 << 10 }
	tested.CutOff(t, `{"a": "x"}`+"\n"+`{"a": "`, record.Config{}, limit, "expected a line of at most 1024 bytes")
}
