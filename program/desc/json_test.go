package desc

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
)

func TestJSONIsForPeople(t *testing.T) {
	p := parsed(t, ""+
		`{"blocks": [{"ops": [{"outputs": ["x"], "attributes": {"value": 1, "rate": 1e0, "none": {"$float": "nan"}, "names": ["`+
		strings.Repeat("a", 90)+`", "`+strings.Repeat("b", 90)+`"]}, "type": "fill"}, {"type": "noop", "where": "a.py:1"}],
		"variables": [{"dims": [-1, 2], "name": "x"}], "parent": -1}], "version": 1}`)
	want := `{
  "version": 1,
  "blocks": [
    {
      "parent": -1,
      "variables": [
        {"name": "x", "kind": "tensor", "dims": [-1, 2]}
      ],
      "ops": [
        {
          "type": "fill",
          "inputs": [],
          "outputs": ["x"],
          "attributes": {
            "names": [
              "` + strings.Repeat("a", 90) + `",
              "` + strings.Repeat("b", 90) + `"
            ],
            "none": {"$float": "nan"},
            "rate": 1.0,
            "value": 1
          }
        },
        {"type": "noop", "inputs": [], "outputs": [], "where": "a.py:1"}
      ]
    }
  ]
}
`
	if found := string(ToJSON(p)); found != want {
		t.Errorf("expected\n%s, found\n%s", want, found)
	}
	if found := string(p.Blocks[0].Variables[0].JSON()); found != `{"name": "x", "kind": "tensor", "persistable": false, "dims": [-1, 2], "lod_levels": 0}` {
		t.Errorf("found %s", found)
	}
	if found := string(Attributes(nil).JSON()); found != "{}" {
		t.Errorf("expected {}, found %s", found)
	}
}

// Other JSON parsers accept the output.
func TestOtherParsersAgree(t *testing.T) {
	for seed := range int64(300) {
		if text := ToJSON(randomProgram(seed)); !json.Valid(text) {
			t.Fatalf("seed %d: expected JSON, found %s", seed, text)
		}
	}
}

func TestJSONRefuses(t *testing.T) {
	corrupt, invalid, unsupported := pyfeed.Corrupt, pyfeed.Invalid, pyfeed.Unsupported
	program := func(blocks string) string { return `{"version": 1, "blocks": [` + blocks + `]}` }
	op := func(attributes string) string {
		return program("{\"ops\": [\n {\"type\": \"t\", \"attributes\": {\"a\": " + attributes + "}}]}")
	}
	for _, c := range []struct {
		text string
		kind pyfeed.Kind
		at   int
		word string
	}{
		{``, corrupt, 0, "line 1, column 1: expected a program, an object, found the end"},
		{"\n\n  x", corrupt, 4, "line 3, column 3: expected a program, an object, found x"},
		{`[]`, invalid, 0, "expected a program, an object, found '['"},
		{`{}`, unsupported, 0, "version: expected 1, found none"},
		{`{"version": 2, "blocks": 7}`, unsupported, 1, "version: expected 1, found 2"},
		{`{"version": 4294967297}`, unsupported, 1, "found 4294967297"},
		{`{"version": -1}`, unsupported, 1, "version: expected 1, found -1"},
		{`{"version": 1.0}`, invalid, 12, "expected version, an integer, found 1.0"},
		{`{"version": "1"}`, invalid, 12, `expected version, an integer, found "1"`},
		{`{"version": 1, "Blocks": []}`, invalid, 15, `expected one of the names version, blocks, unknown, found "Blocks"`},
		{`{"version": 1, "version": 1}`, corrupt, 15, `found "version" again`},
		{`{"version": 1,}`, corrupt, 14, "expected a name in quotes, found '}'"},
		{`{"version": 1 "blocks"`, corrupt, 14, `expected a comma or a closing brace, found "blocks"`},
		{`{"version" 1}`, corrupt, 11, "expected a colon, found 1"},
		{`{"version": 1} {}`, corrupt, 15, "expected the end, found '{'"},
		{`{"version": 1`, corrupt, 13, "expected a comma or a closing brace, found the end"},
		{"{\"version\": 1, \"ключ\xff", corrupt, 24, "line 1, column 21: expected UTF-8, found the byte 0xff"},
		{`{"version": 1, "unknown": "!"}`, invalid, 26, "unknown: expected base64"},
		{`{"version": 1, "unknown": "CAE="}`, invalid, 26, "unknown: expected fields from 3 on, found field 1"},
		{`{"version": 1, "unknown": "fw=="}`, invalid, 26, "unknown: field 15: expected a wire type"},
		{program(`null`), invalid, 26, "block 0: expected a block, an object, found null"},
		{program(`{"parent": 2147483648}`), invalid, 27, "parent: expected the index of a block or -1"},
		{program(`{"variables": [{}]}`), invalid, -1, "block 0, variable 0: name: expected a text, found none"},
		{program(`{"variables": [{"name": "x", "kind": "Tensor"}]}`), invalid, -1, `variable "x": kind: expected "tensor", "reader" or "stage", found "Tensor"`},
		{program(`{"variables": [{"name": "x", "persistable": 1}]}`), invalid, -1, "expected persistable, true or false, found 1"},
		{program(`{"variables": [{"name": "x", "dtype": "f"}]}`), invalid, -1, "dtype: expected the name of one"},
		{program(`{"variables": [{"name": "x", "dtype": null}]}`), invalid, -1, "expected dtype, a text in quotes, found null"},
		{program(`{"variables": [{"name": "x", "dims": [-2]}]}`), invalid, -1, "dimension 0: expected a size or -1, found -2"},
		{program(`{"variables": [{"name": "x", "dims": [1,1,1,1,1,1,1,1,1]}]}`), invalid, -1, "expected at most 8"},
		{program(`{"variables": [{"name": "x", "lod_levels": 9}]}`), invalid, -1, "lod_levels: expected 0 to 8, found 9"},
		{program(`{"variables": [{"name": "x", "slots": [{"shape": []}]}]}`), invalid, -1, `variable "x", slot 0: expected one of the names name, dtype, dims, lod_levels, found "shape"`},
		{program(`{"ops": [{}]}`), invalid, -1, "block 0, op 0: type: expected a text, found none"},
		{program(`{"ops": [{"type": "t", "inputs": [1]}]}`), invalid, -1, "op 0, inputs: expected the name of a variable, a text in quotes, found 1"},
		{op(`null`), invalid, 71, `line 2, column 36: block 0, op 0, attribute "a": expected a value, found null`},
		{op(`NaN`), corrupt, 71, "expected a value, found NaN"},
		{op(`01`), corrupt, 71, "expected a number, found 01"},
		{op(`1.`), corrupt, 71, "expected a number, found 1."},
		{op(`-`), corrupt, 71, "expected a number, found -"},
		{op(`1e`), corrupt, 71, "expected a number, found 1e"},
		{op(`9223372036854775808`), invalid, 71, "expected an integer of 64 bits (or a point, for a float), found 9223372036854775808"},
		{op(`1e999`), invalid, 71, "expected a float of 64 bits, found 1e999"},
		{op(`"\x"`), corrupt, 72, "or \\u, found"},
		{op(`"\ud800"`), corrupt, 72, "two for one character"},
		{op(`"\udc00"`), corrupt, 72, "two for one character"},
		{op(`"\ud800\u0041"`), corrupt, 72, "two for one character"},
		{op(`"\u+123"`), corrupt, 72, "4 digits"},
		{op("\"\n\""), corrupt, 72, "found the byte 0x0a"},
		{op(`["x", "`), corrupt, 77, "element 1: expected a closing quote, found the end"},
		{op(`"\`), corrupt, 72, "found"},
		{op(`[1 2]`), corrupt, 74, "expected a comma or a closing bracket, found 2"},
		{op(`{"k": {"$float": "NaN"}}`), invalid, 78, `attribute "a", entry "k": the name "$float" is reserved`},
		{op(`{"$float": "nan", "b": 1}`), invalid, 72, "is reserved"},
		{op(`{"$float": 1.5}`), invalid, 72, "is reserved"},
		{op(`1, "$float": "nan"`), invalid, 74, "is reserved"},
		{op(strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)), invalid, -1, "nested at most 32 deep"},
		{op(strings.Repeat(`{"a": `, maxDepth+1) + "1" + strings.Repeat("}", maxDepth+1)), invalid, -1, "nested at most 32 deep"},
		{op(strings.Repeat(`{"a": `, 1_000_000)), invalid, -1, "nested at most 32 deep"},
		{op(strings.Repeat(`[`, 1_000_000)), invalid, -1, "nested at most 32 deep"},
		{program(strings.Repeat("{},", MaxBlocks) + "{}"), invalid, -1, "expected at most 65536 blocks"},
	} {
		p, err := fromJSON([]byte(c.text))
		refused(t, err, c.kind, c.at, c.word)
		if p != nil {
			t.Errorf("expected no program, found %s", ToJSON(p))
		}
	}
	if _, err := ParseOp([]byte(`{"type": "t", "block": 1}`)); err == nil || !strings.Contains(err.Error(), "type, inputs, outputs, attributes, where, unknown") {
		t.Errorf("expected the valid names in the error, found %v", err)
	}
	if _, err := ParseVariable([]byte(`{"name": "x"} x`)); err == nil {
		t.Error("expected an error about the text after the object")
	}
	if _, err := Parse([]byte(" \n")); err == nil {
		t.Error("expected an error for empty input")
	}
}

func TestTextsOfJSON(t *testing.T) {
	op, err := ParseOp([]byte(`{"type": "\"\\\/\b\f\n\r\t\u00e9\ud835\udd18é𝔘", "attributes": {"z": [], "a": {"$float": "-inf"}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := "\"\\/\b\f\n\r\té𝔘é𝔘"; op.Type != want {
		t.Errorf("expected %q, found %q", want, op.Type)
	}
	if found := string(op.Attributes.JSON()); found != `{"a": {"$float": "-inf"}, "z": []}` {
		t.Errorf("found %s", found)
	}
}

func TestEveryTruncationOfJSON(t *testing.T) {
	text := strings.TrimSpace(string(ToJSON(parsed(t, loop))))
	for n := range len(text) {
		if _, err := fromJSON([]byte(text[:n])); err == nil {
			t.Errorf("expected an error for the first %d bytes", n)
		}
	}
}

func FuzzJSON(f *testing.F) {
	for seed := range int64(8) {
		f.Add(ToJSON(randomProgram(seed)))
	}
	f.Add([]byte(loop))
	f.Add([]byte(`{"version": 1, "unknown": "6AQF", "blocks": [{"ops": [{"type": "\ud835\udd18", "attributes": {"a": [1e3, {"$float": "nan"}]}}]}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := fromJSON(data)
		if err != nil {
			if _, is := err.(*pyfeed.Error); !is || p != nil {
				t.Fatalf("expected a *pyfeed.Error and no program, found %T and %v", err, p)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatal("expected input that other parsers accept as JSON")
		}
		checkInvariants(t, p)
	})
}
