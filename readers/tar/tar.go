// Package tar reads and writes tar files as WebDataset uses them: members that follow each other and have one stem
// are one instance. The stem, or key, is the name up to the first dot of its last part, folders included; what
// comes behind that dot is the extension, by which a field is found.
//
// Members whose last part begins with a dot or has none, those of a first part such as __meta__, folders, links and
// devices are passed over, as WebDataset does, and so are extensions that no field has. Unlike WebDataset and
// Python's tarfile, which take a broken header, and a file that was cut between two members, for the end of the
// archive, this reader says so: an archive ends with blocks of zeros, and what is not whole is damage.
//
// The format is that of POSIX.1-1988 (ustar) and POSIX.1-2001 (pax), with the long names and large sizes of GNU
// tar: https://pubs.opengroup.org/onlinepubs/9699919799/utilities/pax.html and
// https://www.gnu.org/software/tar/manual/html_node/Standard.html.
package tar

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

func init() {
	record.MustRegister(record.Format{
		Tag:      "tar",
		Suffixes: []string{".tar", ".tgz"},
		Options:  func() any { return new(Options) },
		Open:     Open,
		Create:   Create,
	})
}

// Options are what a tar file can be told.
type Options struct {
	// Fields are the slots of an instance, in order. Without any the names of the slots are the fields; without
	// those, the members of the first instance are, in their order.
	Fields []Field `json:"fields"`
	// End says where an archive being read ends. "blocks" or "": at blocks of zeros, which must be there, and
	// behind which no more members may come. "file": at the end of the file, with or without them: for archives
	// that were put together by appending one to the other, or whose writer never closed them.
	End string `json:"end"`
	// Compression is how a file is written: "none", "gzip" or "zstd"; "": as its name says (.tgz, .gz, .zst, .zlib, .sz).
	Compression string `json:"compression"`
}

// A Field is a slot that comes from the members with an extension. In JSON its name alone will do.
type Field struct {
	// Name is an extension, or some to choose from, the best first: "jpg;png;jpeg". Upper and lower case are the
	// same. "__key__" is the instance's key, as text.
	Name string `json:"name"`
	// Kind is what the member holds. "bytes" and "text": uint8 (-1), a sequence; "npy": an array; "int" and "float":
	// a number in text; "json": a number, or with Path one inside of objects and arrays. "": by the extension's last
	// part: npy; cls, cls2, class, count, id, index, inx: int; json, jsn: json; txt, text, transcript: text; else bytes.
	Kind string `json:"kind"`
	// Path leads to a number in JSON: the names of objects' members, and the indexes of arrays' elements.
	Path []string `json:"path"`
	// DType is that of a number; "": what the slot has, else int64 for "int" and float64 for "float" and "json".
	DType string `json:"dtype"`
	// Optional says that an instance may lack the member: it has Default then or, without one, no bytes. Numbers need a
	// Default, and arrays have none. Of all fields, one at least must be there.
	Optional bool `json:"optional"`
	// Default is what an instance without the member has, which makes the field Optional: a number, as such or as text,
	// or, of bytes and text, a string.
	Default json.RawMessage `json:"default"`
}

// UnmarshalJSON takes an object or the name alone.
func (f *Field) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &f.Name)
	}
	type plain Field
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	err := d.Decode((*plain)(f))
	if err != nil && strings.Contains(err.Error(), "unknown field") {
		return pyfeed.Errorf(pyfeed.Invalid, "fields: %s; there are name, kind, path, dtype, optional, default", strings.TrimPrefix(err.Error(), "json: "))
	}
	return err
}

// optionsOf are the checked Options; the zero ones if there are none.
func optionsOf(c *record.Config) (Options, error) {
	o := *record.OptionsOf[Options](c)
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
