package record

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
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
	d := json.NewDecoder(bytes.NewReader(from))
	d.DisallowUnknownFields()
	err := d.Decode(into)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = fmt.Errorf("expected one object, found more text after it")
		}
	}
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "json: ")
		if strings.HasPrefix(text, "unknown field") {
			text += "; there are " + cmp.Or(strings.Join(attributeNames(into), ", "), "none")
		}
		if wrong := (*json.UnmarshalTypeError)(nil); errors.As(err, &wrong) {
			text = fmt.Sprintf("%s: expected %s, found %s", wrong.Field, kindOf(wrong.Type), wrong.Value)
		}
		return pyfeed.Errorf(pyfeed.Invalid, "%s: attributes: %s", op, text)
	}
	return nil
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
