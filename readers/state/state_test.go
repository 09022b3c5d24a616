package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// example has an option of every type.
var example = State{Pass: math.MaxUint64, N: math.MaxInt64, Ended: true, Readers: []Reader{
	{Kind: "batch", Options: []Option{{Name: "batch_size", Value: 32}, {Name: "drop_last", Value: true}, {Name: "ragged", Value: false}}},
	{Kind: "files <&>", At: json.RawMessage(`{"count":4096,"lanes":"1 2;-1"}`),
		Options: []Option{{Name: "a", Value: nil}, {Name: "b", Value: uint64(math.MaxUint64)}, {Name: "c", Value: int64(-3)}, {Name: "d", Value: "é\"\\\x01"}}},
}}

func invalidState(t *testing.T, data []byte, text string) {
	t.Helper()
	_, err := Decode(data)
	var e *pyfeed.Error
	if !errors.As(err, &e) || e.Kind != pyfeed.Invalid || !strings.Contains(e.Text, text) {
		t.Errorf("%.60s: expected an invalid state, %q, found %v", data, text, err)
	}
}

// decoded is Decode, without what only Compare understands.
func decoded(t *testing.T, data []byte) *State {
	t.Helper()
	s, err := Decode(data)
	if err != nil {
		t.Fatalf("%v: %s", err, data)
	}
	return s
}

// A state that was stored by another encoder, with spaces and another order of members, is the same state.
func TestEncodingsOfOneState(t *testing.T) {
	data := example.Encode()
	var members map[string]any
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	if err := d.Decode(&members); err != nil {
		t.Fatal(err)
	}
	indented, _ := json.MarshalIndent(members, " ", "\t")
	var reversed bytes.Buffer
	reversed.WriteString("{")
	for i, name := range []string{"v", "readers", "pass", "n", "ended", "check"} {
		value, _ := json.Marshal(members[name])
		if i > 0 {
			reversed.WriteString(" ,\n")
		}
		reversed.WriteString(`"` + name + `" : ` + string(value))
	}
	reversed.WriteString("}\n")
	for _, other := range [][]byte{data, indented, reversed.Bytes()} {
		s := decoded(t, other)
		if s.Pass != example.Pass || s.N != example.N || !s.Ended || len(s.Readers) != 2 || s.Readers[1].Kind != "files <&>" {
			t.Errorf("found %+v of %s", s, other)
		}
		for i, r := range s.Readers {
			if err := cmp.Or(r.CheckKind(example.Readers[i].Kind), r.Compare(example.Readers[i].Options, true)); err != nil {
				t.Error(err)
			}
		}
		var at, expected any
		_ = json.Unmarshal(s.Readers[1].At, &at)
		_ = json.Unmarshal(example.Readers[1].At, &expected)
		if !reflect.DeepEqual(at, expected) {
			t.Errorf("found %s", s.Readers[1].At)
		}
	}
}

// Every change of a byte, and every truncation, is found.
func TestChangedStates(t *testing.T) {
	data := example.Encode()
	for i := range data {
		invalidState(t, data[:i], "expected")
		for _, other := range []byte{data[i] ^ 1, data[i] ^ 0x10, '0', '"', ' ', 0} {
			changed := bytes.Clone(data)
			if changed[i] == other {
				continue
			}
			changed[i] = other
			invalidState(t, changed, "expected")
		}
	}
	invalidState(t, append(bytes.Clone(data), '}'), "found more behind it")
	invalidState(t, append(bytes.Clone(data), data...), "found more behind it")
}

func TestOtherStates(t *testing.T) {
	for text, found := range map[string]string{
		``:                          "expected a state as a JSON object",
		`null`:                      "expected a state as a JSON object",
		`[]`:                        "expected a state as a JSON object",
		`{}`:                        "without a version",
		`{"v": "1"}`:                "without a version",
		`{"v": 0}`:                  "without a version",
		`{"v": 1}`:                  "the checksum is wrong",
		`{"v": 2, "check": 1}`:      "version 1 at most, found version 2",
		`{"v": 1, "check": "text"}`: "the checksum is wrong",
		`{"_snapshot": {"_snapshot_step": 3}, "_steps_since_snapshot": 1}`: "without a version",
	} {
		invalidState(t, []byte(text), found)
	}
	invalidState(t, bytes.Repeat([]byte(" "), MaxSize+1), "at most")
}

// Compare names the option that differs, and accepts other values of Optional options unless it is strict.
func TestCompare(t *testing.T) {
	saved := decoded(t, (&State{Readers: []Reader{{Kind: "shuffle", Options: []Option{{Name: "seed", Value: 7}, {Name: "size", Value: 10}}}}}).Encode()).Readers[0]
	for _, c := range []struct {
		kind    string
		options []Option
		strict  bool
		text    string
	}{
		{"shuffle", []Option{{"seed", 7, true}, {"size", 10, false}}, true, ""},
		{"shuffle", []Option{{"new", false, false}, {"seed", 7, true}, {"size", 10, false}}, true, ""},
		{"shuffle", []Option{{"seed", 8, true}, {"size", 10, false}}, false, ""},
		{"shuffle", []Option{{"seed", 8, true}, {"size", 10, false}}, true, "shuffle: seed: expected 7, as when it was saved, found 8"},
		{"shuffle", []Option{{"seed", 7, true}, {"size", 11, false}}, false, "shuffle: size: expected 10, as when it was saved, found 11"},
		{"shuffle", []Option{{"seed", nil, true}, {"size", 10, false}}, true, "shuffle: seed: expected 7, as when it was saved, found none"},
		{"shuffle", []Option{{"new", true, false}, {"seed", 7, true}, {"size", 10, false}}, true, "shuffle: new: expected none, as when it was saved, found true"},
		{"shuffle", []Option{{"seed", 7, true}}, true, "shuffle: size: expected 10, as when it was saved, found no such option"},
		{"shuffle", []Option{{"names", Hash("a1"), true}, {"seed", 7, true}, {"size", 11, false}}, true, "shuffle: size: expected 10, as when it was saved, found 11"},
		{"shuffle", []Option{{"names", Hash("a1"), true}, {"seed", 7, true}, {"size", 10, false}}, true, `shuffle: names: expected none, as when it was saved, found "a1", which are hashes`},
		{"shuffle", []Option{{"names", Hash("a1"), true}, {"seed", 7, true}, {"size", 10, false}}, false, ""},
		{"batch", nil, false, "expected a reader shuffle in its place, found batch"},
	} {
		err := cmp.Or(saved.CheckKind(c.kind), saved.Compare(c.options, c.strict))
		var e *pyfeed.Error
		if c.text == "" && err != nil || c.text != "" && (!errors.As(err, &e) || e.Kind != pyfeed.State || !strings.Contains(e.Text, c.text)) {
			t.Errorf("%+v: found %v", c, err)
		}
	}
}

// Long texts are hashes, which differ if the texts do.
func TestTextsAreShort(t *testing.T) {
	long := strings.Repeat("x", longestText)
	if found := Text(long); found != long {
		t.Errorf("found %v", found)
	}
	a, is := Text(long + "y").(Hash)
	if b := Text(long + "z"); !is || a == b || a != HashOf(long+"y") || len(a) > 16 {
		t.Errorf("found %v and %v", a, b)
	}
	if HashOf("ab", "c") == HashOf("a", "bc") {
		t.Error("the hashes of two lists are equal")
	}
}

// Whatever is decoded can be encoded again and means the same.
func FuzzState(f *testing.F) {
	f.Add(example.Encode())
	f.Add((&State{Readers: []Reader{{Kind: "zip"}}}).Encode())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Decode(data)
		if err != nil {
			return
		}
		if s.N < 0 || len(s.Readers) == 0 {
			t.Errorf("found %+v", s)
		}
	})
}
