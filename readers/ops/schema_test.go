package ops_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/internal/readertest"
	"github.com/pyfeed/pyfeed/readers/ops"
)

var update = flag.Bool("update", false, "write what is generated from the operators' descriptions: operators.json and the table in capi/pyfeed.h")

// schema returns the content of operators.json, which the tests of the Python and C++ signatures read.
func schema(t *testing.T) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(ops.All()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// check compares a file, or a part of it, with the generated text, and writes that text if -update is given.
func check(t *testing.T, path string, before, now []byte) {
	t.Helper()
	if bytes.Equal(before, now) {
		return
	}
	if !*update {
		t.Fatalf("%s does not match the operators' descriptions: run go test ./readers/ops -update", path)
	}
	if err := os.WriteFile(path, now, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestTheSchemaIsThatOfTheOperators(t *testing.T) {
	const path = "operators.json"
	before, err := os.ReadFile(path)
	if err != nil && !*update {
		t.Fatal(err)
	}
	check(t, path, before, schema(t))
}

// The comment of pf_reader_create in pyfeed.h has a table of the operators, generated from their descriptions.
func TestTheTableOfTheHeaderIsThatOfTheOperators(t *testing.T) {
	const path = "../../capi/pyfeed.h"
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const head, tail = " * op                           attributes (and what they are if left out)\n", " *\n * slots is a list of"
	begin := bytes.Index(before, []byte(head)) + len(head)
	end := begin + bytes.Index(before[begin:], []byte(tail))
	if begin < len(head) || end < begin {
		t.Fatalf("%s has no table that begins with %q and ends with %q", path, head, tail)
	}
	var table strings.Builder
	for i, o := range ops.All() {
		writeRow(&table, o, ops.All()[:i])
	}
	check(t, path, before, slices.Concat(before[:begin], []byte(table.String()), before[end:]))
}

// writeRow writes the row of an operator, wrapped. For attributes that an earlier operator has too, it refers to that
// one.
func writeRow(to *strings.Builder, o *ops.Operator, before []*ops.Operator) {
	var attributes []string
	same := slices.IndexFunc(before, func(b *ops.Operator) bool {
		return slices.EqualFunc(b.Attributes, o.Attributes, func(a, b ops.Attribute) bool { return a.Name == b.Name && a.Doc == b.Doc })
	})
	if same >= 0 {
		attributes = []string{"as " + before[same].Name}
	}
	for _, a := range o.Attributes {
		if same >= 0 {
			break
		}
		text := a.Name
		switch {
		case a.Absent != "":
			text += " (" + a.Absent + ")"
		case a.Default != nil:
			text += " (" + string(spaced(a.Default)) + ")"
		}
		if a.Doc != "" {
			text += ": " + a.Doc
		}
		attributes = append(attributes, text)
	}
	text := strings.Join(attributes, "; ") + ". " + o.Doc
	if o.Inputs.Max > 1 {
		text += fmt.Sprintf(". Takes %d inputs or more", o.Inputs.Min)
	}
	const indent, width = 29, 112
	line := fmt.Sprintf(" * %-*s", indent-1, o.Name)
	for i, word := range strings.Fields(text) {
		if i > 0 && len(line)+1+len(word) > width {
			to.WriteString(line + "\n")
			line = " * " + strings.Repeat(" ", indent-1)
		}
		line += " " + word
	}
	to.WriteString(line + "\n")
}

// spaced returns JSON with a space after each comma and colon.
func spaced(text []byte) []byte {
	return regexp.MustCompile(`([,:])`).ReplaceAll(text, []byte("$1 "))
}

// An attribute without a default has to be given; all others may be left out.
func TestAttributesWithoutADefaultHaveToBeGiven(t *testing.T) {
	given := map[string]string{
		"feeder_name": `"q"`, "filenames": `["x"]`, "batch_size": "1", "buffer_size": "1", "world": "1", "count": "1", "slots": `[{"dtype": "int64", "dims": []}]`,
	}
	for _, o := range ops.All() {
		var must []string
		for _, a := range o.Attributes {
			if a.Default == nil {
				must = append(must, a.Name)
			}
		}
		attributes := func(without string) []byte {
			all := map[string]json.RawMessage{}
			for _, name := range must {
				if name != without {
					all[name] = json.RawMessage(given[name])
				}
			}
			text, err := json.Marshal(all)
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		if err := ops.Check(o.Name, o.Inputs.Min, attributes("")); err != nil {
			t.Errorf("%s with %v: %v", o.Name, must, err)
		}
		for _, name := range must {
			if err := ops.Check(o.Name, o.Inputs.Min, attributes(name)); err == nil {
				t.Errorf("%s: expected an error without %s", o.Name, name)
			}
		}
	}
}

// A default that is given explicitly is valid.
func TestDefaultsMayBeGiven(t *testing.T) {
	for _, o := range ops.All() {
		for _, a := range o.Attributes {
			if a.Default == nil {
				continue
			}
			err := ops.Check(o.Name, o.Inputs.Min, fmt.Appendf(nil, `{%q: %s}`, a.Name, a.Default))
			if err != nil && strings.Contains(err.Error(), "attributes: ") {
				t.Errorf("%s: %s of %s: %v", o.Name, a.Name, a.Default, err)
			}
		}
	}
}

func TestAnOperatorThatIsNone(t *testing.T) {
	readertest.Expect(t, ops.Check("create_nothing", 0, nil), pyfeed.NotFound, "create_batch_reader, create_double_buffer_reader")
}

// The C++ headers set each attribute by its name in the operator's description, and no other. They set it in the
// functions that name the operator; options that several operators share may be set anywhere.
func TestTheCxxHeadersSetTheAttributes(t *testing.T) {
	var text []byte
	err := filepath.WalkDir("../../capi", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".hpp" {
			return err
		}
		more, err := os.ReadFile(path)
		text = append(text, more...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sets := regexp.MustCompile(`(?:\{|set\()"(\w+)",`)
	anywhere := map[string]bool{}
	for _, m := range sets.FindAllSubmatch(text, -1) {
		anywhere[string(m[1])] = true
	}
	functions := regexp.MustCompile(`(?m)^inline `).Split(string(text), -1)
	for _, o := range ops.All() {
		known := map[string]bool{}
		for _, a := range o.Attributes {
			known[a.Name] = true
			if !anywhere[a.Name] && a.Name != "no_order" { // only the reader of Ray Data has it, which is in Python
				t.Errorf("%s: no C++ function sets %s", o.Name, a.Name)
			}
		}
		for _, function := range functions {
			function, _, _ = strings.Cut(function, "\n}\n")
			if !strings.Contains(function, `"`+o.Name+`"`) {
				continue
			}
			for _, m := range sets.FindAllStringSubmatch(function, -1) {
				if !known[m[1]] {
					t.Errorf("%s: a C++ function sets %s, which the operator does not have", o.Name, m[1])
				}
			}
		}
	}
}
