package files

import (
	"encoding/json"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// CreateWriter creates a file. As for open_files, its name gives the format, unless format does. attributes has the
// slots or their names, and the options of the format.
func CreateWriter(name, format string, attributes []byte) (record.Writer, error) {
	var a struct {
		Slots   []record.SlotAttributes `json:"slots"`
		Names   []string                `json:"names"` // if there are no slots, which the first tuple then gives
		Options json.RawMessage         `json:"options"`
	}
	if err := record.DecodeAttributes("writer", attributes, &a); err != nil {
		return nil, err
	}
	path, f := record.CutTag(name)
	if format != "" {
		given, err := record.FormatByTag(format)
		if err != nil {
			return nil, err
		}
		if f != given {
			path = name
		}
		f = given
	}
	if f == nil {
		f = record.FormatBySuffix(path)
	}
	if f == nil {
		return nil, record.UnknownFormat(name)
	}
	if f.Create == nil {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "format %q is only read", f.Tag)
	}
	c, err := configure(f, a.Slots, a.Options, storage.Options{})
	if err != nil {
		return nil, err
	}
	if a.Slots != nil && a.Names != nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "writer: names: expected none beside slots, which have their own")
	}
	if a.Slots == nil {
		c.Names = a.Names
	}
	c.Pool = memory.NewPool(memory.File)
	w, err := f.Create(path, &c)
	if err != nil {
		c.Pool.Close()
		return nil, err
	}
	return &pooledWriter{w, c.Pool}, nil
}

// pooledWriter closes the Writer and the Writer's pool.
type pooledWriter struct {
	record.Writer
	pool *memory.Pool
}

func (w *pooledWriter) Close() error {
	defer w.pool.Close()
	return w.Writer.Close()
}

func (w *pooledWriter) Abort() {
	w.Writer.Abort()
	w.pool.Close()
}
