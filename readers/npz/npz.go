// Package npz reads and writes NumPy's files of several arrays, as numpy.savez and numpy.savez_compressed write them:
// zip archives with a member in the npy format for each array. Each array is a slot, whose name is the member's name
// without .npy.
package npz

import (
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
)

// Options of the format.
type Options struct {
	// Instances is "rows" or "": each row along the first dimension, which must be equal in all arrays, is an instance;
	// or "file": all whole arrays are one instance.
	Instances string `json:"instances"`
	// Arrays are the names of the arrays to read, in the order of the slots, or to write. nil: the names of the slots.
	// If those have no names: for reading, all arrays of the file in its order; for writing, arr_0, arr_1, ...
	Arrays []string `json:"arrays"`
	// Compression is that of the members that are written: "none" or "", or "deflate".
	Compression string `json:"compression"`
}

func init() {
	record.MustRegister(record.Format{Tag: "npz", Suffixes: []string{".npz"},
		Whole: true, NamesChoose: true, Options: func() any { return new(Options) },
		Open: Open, Create: Create})
}

// settings are the checked Options.
type settings struct {
	whole         bool
	deflate       bool
	names         []string // of the arrays; nil: not known
	namesAreSlots bool     // names are those of the slots
}

func resolveOptions(c *record.Config) (s settings, err error) {
	o := record.OptionsFrom[Options](c)
	if s.whole, err = npy.Whole(o.Instances); err != nil {
		return s, err
	}
	switch o.Compression {
	case "", "none":
	case "deflate":
		s.deflate = true
	default:
		return s, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none or deflate, found %q", o.Compression)
	}
	s.names = o.Arrays
	return s, s.useNames(c.Names)
}

// useNames takes the names of the slots, if they all have one, for names of the arrays that are not given.
func (s *settings) useNames(ofSlots []string) error {
	if s.names == nil && len(ofSlots) > 0 && !slices.Contains(ofSlots, "") {
		s.names, s.namesAreSlots = ofSlots, true
	}
	if s.names != nil && len(s.names) == 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "arrays: expected at least 1 name, found 0")
	}
	for i, name := range s.names {
		if name == "" || len(name) > longestName || strings.Contains(name, "\x00") {
			return pyfeed.Errorf(pyfeed.Invalid, "arrays: expected names of 1 to %d bytes, found one of %d", longestName, len(name))
		}
		if slices.Contains(s.names[:i], name) {
			return pyfeed.Errorf(pyfeed.Invalid, "arrays: expected each name once, found %q twice", name)
		}
	}
	return nil
}

const (
	suffix      = ".npy"
	longestName = 65535 - len(suffix) // in a zip archive
)
