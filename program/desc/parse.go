package desc

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
)

// What a program may consist of at most, in either form.
const (
	MaxBlocks    = 1 << 16
	MaxVariables = 1 << 20 // of all blocks together
	MaxOps       = 1 << 20 // likewise
	maxSlots     = 1 << 20 // of all variables together
	maxValues    = 1 << 22 // in attributes, all together, with those within others
)

// counts are of what has been read.
type counts struct{ blocks, variables, ops, slots, values int }

// Parse reads a program in either form: JSON begins with a brace, perhaps after white space. Protobuf does not: its
// fields are written in the order of their numbers, so its first byte is the tag of version, 0x08, and a brace would be
// the tag of a group, which proto3 does not have.
//
// Errors are *pyfeed.Error with the offset of the byte: Corrupt, Unsupported for another version, and of JSON that is
// well formed but is not a program, Invalid.
func Parse(data []byte) (*Program, error) {
	if text := bytes.TrimLeft(data, space); len(text) > 0 && text[0] == '{' {
		return fromJSON(data)
	}
	p, err := Unmarshal(data)
	if e, is := err.(*pyfeed.Error); is && looksLikeText(data) {
		e.Text = "expected protobuf, or JSON, which begins with a brace; as protobuf: " + e.Text
	}
	return p, err
}

// looksLikeText says whether somebody may have meant JSON by what does not begin with a brace: a comment, a byte order
// mark, a list.
func looksLikeText(data []byte) bool {
	text := bytes.TrimLeft(data, space)
	return len(text) > 0 && text[0] >= ' ' && utf8.Valid(text[:min(len(text), 64)])
}

// A fault is an error on its way out of a parser, which learns on the way where in the program it is.
type fault struct {
	kind  pyfeed.Kind
	at    int    // in bytes
	where string // in the program
	text  string
}

func faultf(kind pyfeed.Kind, at int, format string, args ...any) *fault {
	return &fault{kind: kind, at: at, text: fmt.Sprintf(format, args...)}
}

// in says what the fault is in.
func (f *fault) in(format string, args ...any) *fault {
	where := fmt.Sprintf(format, args...)
	if f.where != "" {
		where += ", " + f.where
	}
	f.where = where
	return f
}

// err is the error for the caller. Before says more about where in the data it is.
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

// quote quotes text that may be long for a message.
func quote(text string) string {
	const most = 60
	if len(text) <= most {
		return strconv.Quote(text)
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return strconv.Quote(text[:end]) + "…"
}

// The checks that both forms share.

func checkVersion(version int64, at int) *fault {
	switch {
	case version == FormatVersion:
		return nil
	case version == 0:
		return faultf(pyfeed.Unsupported, at, "version: expected %d, found none", FormatVersion)
	}
	return faultf(pyfeed.Unsupported, at, "version: expected %d, found %d, which is another release's", FormatVersion, version)
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

// checkDim is about a dimension that comes after others.
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

// checkCount counts one more of what there may be most of.
func checkCount(kind pyfeed.Kind, what string, count *int, most, at int) *fault {
	if *count++; *count > most {
		return faultf(kind, at, "expected at most %d %s in a program, found more", most, what)
	}
	return nil
}

// The name of one map's entry means something else in JSON: {"$float": "nan"}.
const floatName = "$float"

// reserved says whether no attribute and no entry of a map can have that name.
func reserved(name string) *fault {
	if name != floatName {
		return nil
	}
	return &fault{text: `the name "$float" is taken, for {"$float": "nan"}, "inf" or "-inf"`}
}

// kindOf is the Kind of that name.
func kindOf(name string) (Kind, bool) {
	for k := Tensor; k <= Stage; k++ {
		if k.String() == name {
			return k, true
		}
	}
	return 0, false
}
