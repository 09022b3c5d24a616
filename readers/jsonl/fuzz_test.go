package jsonl

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/formattest"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// seedLines are lines for the corpora of the fuzzers.
var seedLines = []string{
	`{"t":"x","n":1,"i":-2,"l":[1,2.5],"w":["a","\n"],"o":{"0":[1, 2]}}`, ` [ 1 , -0.5e+10 , [ ] , { } ] `, `"a\\\"/"`, `-0`, `{"n":1e400}`, `{"i":01}`, `{"n":1.}`,
	`{"t":"\ud800"}`, `{"t":"0123456789abcdef\u0041\ud834\udd1e"}`, `[[[[]]]]`, "{\"t\":\"\xff\"}", "{\"t\":\"é東𝄞\"}", `"\u12`, `{"n":1,"n":2}`, `{"i":9223372036854775808,"o":[7]}`,
	`{"\u0074":"name"}`, "{\"k\": \t\r[1]}", `{"n":12345678901234567890123456789.12345678901234567890e-12}`, `{"i" :1 , "t": null}`, `{"l":[1 ,2],"w":[[]]}`,
	`{"t":"` + strings.Repeat("x", 100) + `"}`, `{"l":[12345678,123456789,1234567,0,00]}`, `{"l":[12345678,123456789, 1234567,0]}`, `{"o":{"0":"\"}"}}`, `{"i":1.5}`, `{"n":NaN}`,
}

// reference returns what encoding/json finds in a line, as describeValues does. valid is false if the line is not JSON
// as this package has it. Only depths are not compared.
func reference(line []byte) (values string, valid bool) {
	if !json.Valid(line) || !utf8.Valid(line) || hasSingleSurrogate(line) {
		return "", false
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(line, &all) != nil || hasTwice(line) {
		return "damage", true
	}
	var t string
	var n float64
	var i int64
	var l []*float64
	var w []*string
	for name, into := range map[string]any{"t": &t, "n": &n, "i": &i, "l": &l, "w": &w} {
		if v, there := all[name]; there && json.Unmarshal(v, into) != nil {
			return "damage", true
		}
	}
	var floats []string
	for _, f := range l {
		if f == nil {
			return "damage", true
		}
		floats = append(floats, fmt.Sprintf("%016x", math.Float64bits(*f)))
	}
	var words []string
	for _, s := range w {
		if s == nil {
			return "damage", true
		}
		words = append(words, strconv.Quote(*s))
	}
	o := "null"
	var object map[string]json.RawMessage
	var array []json.RawMessage
	switch text := all["o"]; {
	case len(text) == 0 || string(text) == "null":
	case json.Unmarshal(text, &object) == nil:
		if v, there := object["0"]; there {
			o = string(v)
		}
	case json.Unmarshal(text, &array) == nil:
		if len(array) > 0 {
			o = string(array[0])
		}
	default:
		return "damage", true
	}
	return fmt.Sprintf("%q %016x %d %v %v %s", t, math.Float64bits(n), i, floats, words, o), true
}

const fuzzedColumns = `{"columns": [{"columns": "t", "dtype": "bytes", "dims": [], "default": ""}, {"columns": "n", "dtype": "float64", "dims": [], "default": 0},
	{"columns": "i", "dtype": "int64", "dims": [], "default": 0}, {"columns": "l", "dtype": "float64", "dims": [-1], "default": "[]"},
	{"columns": "w", "dtype": "bytes", "dims": [-1], "default": "[]"}, {"columns": "o.0", "dtype": "json", "default": "null"}]}`

// describeValues formats a tuple of fuzzedColumns.
func describeValues(t *pyfeed.Tuple) string {
	bits := func(data []byte) (all []string) {
		for ; len(data) > 0; data = data[8:] {
			v, _ := record.Integer(pyfeed.Int64, data)
			all = append(all, fmt.Sprintf("%016x", uint64(v)))
		}
		return all
	}
	i, _ := record.Integer(pyfeed.Int64, t.Slots[2].Data)
	var words []string
	ends := t.Slots[4].LoD[1]
	for k := range ends[1:] {
		words = append(words, strconv.Quote(string(t.Slots[4].Data[ends[k]:ends[k+1]])))
	}
	return fmt.Sprintf("%q %s %d %v %v %s", t.Slots[0].Data, bits(t.Slots[1].Data)[0], i, bits(t.Slots[3].Data), words, t.Slots[5].Data)
}

// hasTwice reports whether an object has a selected name twice.
func hasTwice(line []byte) bool {
	names := make(map[string]bool)
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	var at []string // for each array or object around the position, the last name in it
	isName := []bool{}
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		delim, is := token.(json.Delim)
		switch {
		case is && (delim == '{' || delim == '['):
			at, isName = append(at, ""), append(isName, delim == '{')
			continue
		case is:
			at, isName = at[:len(at)-1], isName[:len(isName)-1]
		case len(isName) > 0 && isName[len(isName)-1] && at[len(at)-1] == "":
			name := token.(string)
			path := strings.Join(at[:len(at)-1], "") + "/" + name
			if strings.Contains(" /t /n /i /l /w /o /o/0 ", " "+path+" ") && names[path] {
				return true
			}
			names[path] = true
			at[len(at)-1] = "/" + name
			continue
		}
		if len(at) > 0 {
			at[len(at)-1] = "" // behind a value
		}
	}
}

// hasSingleSurrogate reports whether a line has an escape of a surrogate without the other of its pair.
func hasSingleSurrogate(line []byte) bool {
	for i := 0; i < len(line); i++ {
		if line[i] != '\\' {
			continue
		}
		if line[i+1] != 'u' {
			i++
			continue
		}
		r, _ := strconv.ParseUint(string(line[i+2:i+6]), 16, 16)
		i += 5
		if r&0xf800 != 0xd800 {
			continue
		}
		low := uint64(0)
		if i+7 <= len(line) && line[i+1] == '\\' && line[i+2] == 'u' {
			low, _ = strconv.ParseUint(string(line[i+3:i+7]), 16, 16)
		}
		if r >= 0xdc00 || low&0xfc00 != 0xdc00 {
			return true
		}
		i += 6
	}
	return false
}

// Each line is accepted or damage, and has values, as encoding/json finds.
func FuzzLines(f *testing.F) {
	for _, s := range seedLines {
		f.Add([]byte(s))
	}
	f.Add([]byte(strings.Join(seedLines, "\n")))
	f.Add([]byte("\xef\xbb\xbf\r\n" + strings.Join(seedLines, "\r\n\n") + "\n"))
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte) {
		if bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > maxDepth || bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
			return
		}
		defer formattest.CheckLeaks(t)()
		var want []string
		for line := range bytes.SplitSeq(bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")), []byte("\n")) {
			if len(bytes.Trim(line, " \t\r")) == 0 {
				continue
			}
			values, valid := reference(line)
			if !valid {
				values = "damage"
			}
			want = append(want, values)
		}
		c := record.Config{Pool: pool, Options: formattest.Options[Options](t, fuzzedColumns)}
		c.Storage.Compression = "none"
		r, err := tested.Memory(data, &c)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		var got []string
		for err != io.EOF {
			_, err = formattest.Drain(t, r, 3, func(_ int, tuple *pyfeed.Tuple) { got = append(got, describeValues(tuple)) })
			if err == io.EOF {
				break
			}
			if !isRefused(err) || len(got) >= len(want) {
				t.Fatalf("line %d of %q: %v", len(got), data, err)
			}
			if want[len(got)] != "damage" {
				t.Fatalf("expected %s, found %v", want[len(got)], err)
			}
			got = append(got, "damage")
			err = r.Resync()
		}
		formattest.ExpectTexts(t, got, want...)
	})
}

// isRefused reports whether an error is about a damaged line, or about null.
func isRefused(err error) bool {
	k := formattest.Kind(err)
	return k == pyfeed.Corrupt || k == pyfeed.Invalid && strings.Contains(err.Error(), "found null")
}

// Slots are inferred, or an error says why not. Then each line is a tuple of these slots or an error, and each tuple is
// written as a line with the same values.
func FuzzInferred(f *testing.F) {
	for _, s := range seedLines {
		f.Add([]byte(s+"\n"+s), uint8(0))
		f.Add([]byte(s), uint8(1))
	}
	f.Add([]byte(`{"a":[[1,2],[3,4]],"b":1e3}`), uint8(6))
	pool := memory.NewPool(memory.File)
	f.Fuzz(func(t *testing.T, data []byte, mode uint8) {
		defer formattest.CheckLeaks(t)()
		c := record.Config{Pool: pool, Options: formattest.Options[Options](t, []string{"", `{"default": 0}`, `{"columns": ["a", "b"], "default": "[]"}`,
			`{"columns": [{"columns": "a", "dims": [2, 2]}, {"columns": "b", "dtype": "float16"}]}`}[mode>>1&3])}
		c.Storage.Compression = "none"
		r, err := tested.Memory(data, &c)
		if err != nil {
			if formattest.Kind(err) == 0 && err != storage.ErrInterrupted {
				t.Fatal(err)
			}
			return
		}
		defer r.Close()
		if mode&1 != 0 {
			r.(*records).maxRecord = 32
		}
		slots, names, _ := r.(record.Describer).Describe()
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
				checkWritten(t, pool, slots, names, tuple)
			})
			if err == io.EOF {
				break
			}
			if formattest.Kind(err) == pyfeed.Type {
				return
			}
			if !isRefused(err) {
				t.Fatal(err)
			}
			err = r.Resync()
		}
	})
}

// checkWritten encodes a tuple, reads the line, and compares the values.
func checkWritten(t *testing.T, pool *memory.Pool, slots []pyfeed.Slot, names []string, tuple *pyfeed.Tuple) {
	t.Helper()
	w := &writer{}
	w.Names = names
	if err := w.setNames(len(slots)); err != nil {
		t.Fatal(err)
	}
	w.line = append(w.line, '{')
	for i := range tuple.Slots {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		w.line = append(w.line, w.names[i]...)
		if err := w.slot(i, &tuple.Slots[i]); err != nil {
			t.Fatal(err)
		}
	}
	w.line = append(w.line, "}\n"...)
	c := record.Config{Pool: pool, Slots: slots, Names: names}
	c.Storage.Compression = "none"
	r, err := tested.Memory(w.line, &c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := formattest.Lines(t, r, 2)
	if want := formattest.FormatTuple(tuple); err != io.EOF || len(got) != 1 || got[0] != want {
		t.Fatalf("%s: expected %s, found %v, %q", w.line, want, err, got)
	}
}
