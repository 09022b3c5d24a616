package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// kindOf returns the JSON name of the values that a field of this type takes.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return kindOf(t.Elem())
	case reflect.Slice, reflect.Array:
		return "array"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.String, reflect.Bool:
		return t.Kind().String()
	case reflect.Float32, reflect.Float64:
		return "number"
	}
	return "integer"
}

// DecodeAttributes fills a struct from attributes: a JSON object, or nothing. It returns an error for a name that the
// struct does not have; the error lists the names that it has.
func DecodeAttributes(op string, from []byte, into any) error {
	if len(bytes.TrimSpace(from)) == 0 {
		return nil
	}
	if !utf8.Valid(from) {
		return pyfeed.Errorf(pyfeed.Invalid, "%s: attributes: expected UTF-8, found %q: in a file's name, write a byte that is not UTF-8 as \\u0000 and two "+
			"hexadecimal digits", op, firstInvalid(from))
	}
	if err := DecodeObject(from, into); err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "%s: attributes: %v", op, err)
	}
	return nil
}

// DecodeObject fills a struct from a JSON object. It returns an error for a name that the struct does not have; the
// error lists the names that it has, and suggests the nearest one.
func DecodeObject(from []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(from))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			return errors.New("expected one object, found more text after it")
		}
		return nil
	}
	text := TextOfJSONError(err)
	if quoted, unknown := strings.CutPrefix(text, "unknown field "); unknown {
		names := attributeNames(into)
		text += "; there are " + cmp.Or(strings.Join(names, ", "), "none")
		if name, err := strconv.Unquote(quoted); err == nil {
			text += Suggest(name, slices.Values(names))
		}
	}
	return errors.New(text)
}

// TextOfJSONError describes an error of encoding/json: for a value of another type, by its name in the file, what was
// expected and what was found.
func TextOfJSONError(err error) string {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return strings.TrimPrefix(err.Error(), "json: ")
	}
	text := fmt.Sprintf("expected %s, found %s", kindOf(wrong.Type), wrong.Value)
	if wrong.Field != "" {
		text = wrong.Field + ": " + text
	}
	return text
}

// Suggest returns a question about the name that is nearest to an unknown name, or nothing if none is near. Case does
// not count.
func Suggest(unknown string, names iter.Seq[string]) string {
	nearest, least := "", (len(unknown)+1)/3+1
	for name := range names {
		if max(len(name)-len(unknown), len(unknown)-len(name)) >= least { // also keeps a long name from taking long
			continue
		}
		if d := editDistance(strings.ToLower(unknown), strings.ToLower(name)); d < least {
			nearest, least = name, d
		}
	}
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(": did you mean %q?", nearest)
}

// editDistance returns how many bytes must be inserted, removed or replaced to make b from a.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1) // the distances of a[:i] from b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// firstInvalid returns the first byte of text that is not UTF-8.
func firstInvalid(text []byte) []byte {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r == utf8.RuneError && n == 1 {
			return text[i : i+1]
		}
		i += n
	}
	return nil
}

// attributeNames returns the JSON names of a struct's fields.
func attributeNames(of any) []string {
	t := reflect.TypeOf(of)
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return []string{fmt.Sprint(t)}
	}
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous:
			names = append(names, attributeNames(reflect.Zero(f.Type).Interface())...)
		case name != "" && name != "-":
			names = append(names, name)
		}
	}
	return names
}
