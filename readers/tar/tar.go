// Package tar reads and writes tar files as WebDataset uses them: consecutive members with the same stem are one
// instance. The stem, or key, is the member's name, with folders, up to the first dot of the last part. The text after
// that dot is the extension, which selects the field.
//
// Like WebDataset, it skips members whose last part begins with a dot or has no dot, members whose first part is like
// __meta__, folders, links and devices, and members with an extension that no field has. WebDataset and Python's
// tarfile take a broken header, and the end of a file that was cut between two members, for the end of the archive.
// This package returns an error: an archive has to end with blocks of zeros, and an incomplete archive is damage.
//
// The format is that of POSIX.1-1988 (ustar) and POSIX.1-2001 (pax), with the long names and large sizes of GNU tar:
// https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html and
// https://www.gnu.org/software/tar/manual/html_node/Standard.html.
package tar

import (
	"encoding/json"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

func init() {
	record.MustRegister(record.Format{
		Tag:         "tar",
		NamesChoose: true,
		Suffixes:    []string{".tar", ".tgz"},
		Options:     func() any { return new(Options) },
		Defaults:    map[string]any{"end": "blocks"},
		Open:        Open,
		Create:      Create,
	})
}

// Options are the options of the format.
type Options struct {
	// Fields are the slots of an instance, in order. Without Fields, the names of the slots are the fields. Without
	// names, the members of the first instance are the fields, in their order.
	Fields []Field `json:"fields"`
	// End is where an archive that is read ends. "blocks" or "": at blocks of zeros, which are required, and after
	// which no more members are allowed. "file": at the end of the file, with or without blocks of zeros. That is for
	// archives that were appended to one another, or whose writer never closed them.
	End string `json:"end"`
	// Compression is that of a file that is written: "none", "gzip" or "zstd". "": that of its suffix (.tgz, .gz, .zst,
	// .zlib, .sz).
	Compression string `json:"compression"`
}

// A Field is a slot that is filled by the members with an extension. In JSON it may be only its name.
type Field struct {
	// Name is an extension, or alternative extensions, the preferred one first: "jpg;png;jpeg". Case does not matter.
	// "__key__" is the instance's key, as text.
	Name string `json:"name"`
	// Kind is the kind of the member's content. "bytes" and "text": uint8 (-1), a sequence. "npy": an array. "int" and
	// "float": a number in text. "json": a number, or with Path a number within objects and arrays. "": it depends on
	// the last part of the extension: npy is npy; cls, cls2, class, count, id, index and inx are int; json and jsn are
	// json; txt, text and transcript are text; all others are bytes.
	Kind string `json:"kind"`
	// Path is the path to a number in JSON: names of objects' members, and indexes of arrays' elements.
	Path []string `json:"path"`
	// DType is the dtype of a number. "": that of the slot, or else int64 for "int" and float64 for "float" and "json".
	DType string `json:"dtype"`
	// Optional says that an instance may lack the member. Then the slot has the Default, or, without one, no bytes.
	// Numbers need a Default; arrays cannot be optional. An instance needs at least one of its members.
	Optional bool `json:"optional"`
	// Default is the content of the slot for an instance without the member, and makes the field Optional. It is a
	// number, or its text, for a field of numbers, and a string for bytes and text.
	Default json.RawMessage `json:"default"`
}

// UnmarshalJSON accepts an object, or only the name.
func (f *Field) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &f.Name)
	}
	type plain Field
	if err := record.DecodeObject(b, (*plain)(f)); err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "fields: %v", err)
	}
	return nil
}

// optionsOf returns the checked Options, or zero Options if there are none.
func optionsOf(c *record.Config) (Options, error) {
	o := *record.OptionsFrom[Options](c)
	switch o.End {
	case "", "blocks", "file":
	default:
		return o, pyfeed.Errorf(pyfeed.Invalid, "end: expected blocks or file, found %q", o.End)
	}
	switch o.Compression {
	case "", "none", "gzip", "zstd":
	default:
		return o, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none, gzip or zstd, found %q", o.Compression)
	}
	return o, nil
}
