// Package columns is the option "columns" of formats whose records have named columns: it says which columns become
// slots, in which order, and with which names.
package columns

import (
	"bytes"
	"encoding/json"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Column describes one slot. The slot takes one column, or several columns of numbers.
type Column struct {
	// Name of the slot. "": the name of the column, if there is one column.
	Name string `json:"name"`
	// Columns of the slot.
	Columns Select `json:"columns"`
	// DType is that of a number, or "bytes" for text. "": the format decides.
	DType string `json:"dtype"`
	// Dims of an instance. nil: the format decides.
	Dims pyfeed.Dims `json:"dims"`
	// Default is the value where a record has none, such as "nan" or 0. nil: the format decides, usually for an error.
	Default *Value `json:"default"`
}

// A List describes all slots. In JSON, an item is an object with the properties of [Column], or only the name or number
// of a column.
type List []Column

// UnmarshalJSON implements json.Unmarshaler. Its errors name the option, and the properties if one is unknown.
func (l *List) UnmarshalJSON(text []byte) error {
	var items []json.RawMessage
	if err := json.Unmarshal(text, &items); err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "columns: expected a list of names or objects, found %.40s", text)
	}
	if items != nil && len(items) == 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "columns: expected at least 1, found none")
	}
	*l = make(List, len(items))
	for i, item := range items {
		c := &(*l)[i]
		var err error
		if bytes.HasPrefix(item, []byte("{")) {
			err = record.DecodeObject(item, c)
		} else {
			err = c.Columns.UnmarshalJSON(item)
		}
		if err != nil {
			return pyfeed.Errorf(pyfeed.Invalid, "columns: %v", err)
		}
	}
	return nil
}

// A Select selects columns. In JSON it is one of the following, or a list of them: a name; a number, from 0, or from -1
// backwards; a range "first:last" of names or numbers, both included, where first and last default to the first and the
// last column.
type Select struct {
	Items  []any // string or int
	Single bool  // it was not a list
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Select) UnmarshalJSON(text []byte) error {
	var list []json.RawMessage
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("[")) {
		if err := json.Unmarshal(text, &list); err != nil {
			return err
		}
	} else {
		list, s.Single = []json.RawMessage{text}, true
	}
	for _, item := range list {
		var name string
		var number int
		if json.Unmarshal(item, &name) == nil && string(item) != "null" {
			s.Items = append(s.Items, name)
		} else if json.Unmarshal(item, &number) == nil && string(item) != "null" {
			s.Items = append(s.Items, number)
		} else {
			return pyfeed.Errorf(pyfeed.Invalid, "expected names or numbers of columns, found %s", item)
		}
	}
	return nil
}

// A Value is a number or its text; for a column of text, the text.
type Value string

// UnmarshalJSON implements json.Unmarshaler.
func (v *Value) UnmarshalJSON(text []byte) error {
	var s string
	if json.Unmarshal(text, &s) == nil {
		*v = Value(s)
		return nil
	}
	var n json.Number
	if json.Unmarshal(text, &n) == nil {
		*v = Value(n)
		return nil
	}
	return pyfeed.Errorf(pyfeed.Invalid, "expected a number or its text, found %s", text)
}
