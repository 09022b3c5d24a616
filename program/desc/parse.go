package desc

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// Limits of a program's size, in both forms.
const (
	MaxBlocks    = 1 << 16
	MaxVariables = 1 << 20 // in all blocks together
	MaxOps       = 1 << 20 // in all blocks together
	maxSlots     = 1 << 20 // of all variables together
	maxValues    = 1 << 22 // in all attributes together, including nested values
)

// counts are the numbers of elements read so far.
type counts struct{ blocks, variables, ops, slots, values int }

// Parse reads a program in either form. JSON begins with a brace, possibly after white space. Protobuf does not: fields
// are written in the order of their numbers, so that the first byte is the tag of version, 0x08. A brace would be the
// tag of a group, which proto3 does not have.
//
// Errors are *pyfeed.Error with a byte offset. The kind is Unsupported for another version, Invalid for well-formed
// JSON that is not a program, and otherwise Corrupt.
func Parse(data []byte) (*Program, error) {
	if text := bytes.TrimLeft(data, space); len(text) > 0 && text[0] == '{' {
		return fromJSON(data)
	}
	p, err := unmarshal(data)
	if e, is := err.(*pyfeed.Error); is && looksLikeText(data) {
		e.Text = "expected protobuf, or JSON, which begins with a brace; as protobuf: " + e.Text
	}
	return p, err
}

// looksLikeText reports whether data without a leading brace may be meant as JSON, for example with a comment, a byte
// order mark or a list in front.
func looksLikeText(data []byte) bool {
	text := bytes.TrimLeft(data, space)
	return len(text) > 0 && text[0] >= ' ' && utf8.Valid(text[:min(len(text), 64)])
}

// A fault is an error inside a parser. Its callers add the position in the program.
type fault struct {
	kind  pyfeed.Kind
	at    int    // in bytes
	where string // in the program
	text  string
}

func faultf(kind pyfeed.Kind, at int, format string, args ...any) *fault {
	return &fault{kind: kind, at: at, text: fmt.Sprintf(format, args...)}
}

// in puts the name of the enclosing element in front of where.
func (f *fault) in(format string, args ...any) *fault {
	where := fmt.Sprintf(format, args...)
	if f.where != "" {
		where += ", " + f.where
	}
	f.where = where
	return f
}

// err converts the fault to an error. before is put in front of the text.
func (f *fault) err(before string) error {
	text := before
	for _, part := range []string{f.where, f.text} {
		if text != "" && part != "" {
			text += ": "
		}
		text += part
	}
	err := pyfeed.Errorf(f.kind, "%s", text)
	err.At = &pyfeed.Location{Offset: int64(f.at), Record: -1}
	return err
}

// quote quotes text, and cuts it if it is long.
func quote(text string) string {
	const limit = 60
	if len(text) <= limit {
		return strconv.Quote(text)
	}
	end := limit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strconv.Quote(text[:end]) + "…"
}

// Checks that both forms share.

func checkVersion(version int64, at int) *fault {
	switch {
	case version == FormatVersion:
		return nil
	case version == 0:
		return faultf(pyfeed.Unsupported, at, "version: expected %d, found none", FormatVersion)
	}
	return faultf(pyfeed.Unsupported, at, "version: expected %d, found %d, which another release uses", FormatVersion, version)
}

func checkDType(kind pyfeed.Kind, name string, at int) (pyfeed.DType, *fault) {
	if name == "" {
		return pyfeed.Any, nil
	}
	d, ok := pyfeed.DTypeOf(name)
	if !ok {
		return d, faultf(kind, at, "dtype: expected the name of one, found %s", quote(name))
	}
	return d, nil
}

// checkDim checks the dimension that follows dims.
func checkDim(kind pyfeed.Kind, dims pyfeed.Dims, dim int64, at int) *fault {
	if len(dims) == pyfeed.MaxRank {
		return faultf(kind, at, "dims: expected at most %d, found more", pyfeed.MaxRank)
	}
	if dim < -1 {
		return faultf(kind, at, "dimension %d: expected a size or -1, found %d", len(dims), dim)
	}
	return nil
}

func checkLoDLevels(kind pyfeed.Kind, levels int64, at int) *fault {
	if levels < 0 || levels > pyfeed.MaxLoDLevels {
		return faultf(kind, at, "lod_levels: expected 0 to %d, found %d", pyfeed.MaxLoDLevels, levels)
	}
	return nil
}

func checkDepth(kind pyfeed.Kind, depth, at int) *fault {
	if depth > maxDepth {
		return faultf(kind, at, "expected lists and maps nested at most %d deep, found more", maxDepth)
	}
	return nil
}

// checkCount counts one more element and checks the limit.
func checkCount(kind pyfeed.Kind, what string, count *int, limit, at int) *fault {
	if *count++; *count > limit {
		return faultf(kind, at, "expected at most %d %s in a program, found more", limit, what)
	}
	return nil
}

// floatName is the key of a JSON map that stands for a float that is not finite: {"$float": "nan"}.
const floatName = "$float"

// checkReserved returns a fault if the name cannot be used for an attribute or an entry of a map.
func checkReserved(name string) *fault {
	if name != floatName {
		return nil
	}
	return &fault{text: `the name "$float" is reserved for {"$float": "nan"}, "inf" or "-inf"`}
}

// kindOf returns the Kind of the given name.
func kindOf(name string) (Kind, bool) {
	for k := Tensor; k <= Stage; k++ {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}
