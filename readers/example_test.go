package readers_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/ops"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// lines reads a text file: each line is an instance, a byte string.
type lines struct {
	file    *storage.File
	offsets record.Offsets
	record  int64
	err     error // the error that all further calls of Read return
}

func openLines(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, func(f *storage.File, _ *record.Config) (record.Records, error) {
		return &lines{file: f}, nil
	})
}

func (r *lines) Describe() ([]pyfeed.Slot, []string, error) {
	return []pyfeed.Slot{record.BytesSlot}, []string{"line"}, nil
}

func (r *lines) Read(out []*pyfeed.Tuple) (int, error) {
	for n, t := range out {
		line, err := r.next()
		if err != nil {
			r.err = err
			if n > 0 {
				return n, nil
			}
			return 0, err
		}
		s := &t.Slots[0]
		r.offsets.Sequence(s, len(line))
		s.Hold(line, r.file.Hold(1)) // a view of the file: no byte is copied
		s.ReadOnly = true
		r.file.Skip(len(line) + 1)
		r.record++
	}
	return len(out), nil
}

// next returns the line at the current position.
func (r *lines) next() ([]byte, error) {
	for want := 1; r.err == nil; {
		b, err := r.file.Peek(want)
		if end := bytes.IndexByte(b, '\n'); end >= 0 {
			return b[:end:end], nil
		}
		switch {
		case err != nil:
			return nil, err
		case len(b) == 0:
			return nil, io.EOF
		case len(b) < want:
			return nil, r.file.Corrupt(r.file.Offset(), r.record, "expected the end of a line, found the end of the file")
		}
		want = 2 * len(b)
	}
	return nil, r.err
}

// Resync ends the file: only its last line can be damaged.
func (r *lines) Resync() error {
	r.err = io.EOF
	return r.err
}

func (r *lines) CheckTruncated() error { return r.file.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *lines) CheckUnchanged() error { return r.file.CheckUnchanged() }

func (r *lines) Close() { r.file.Close() }

// This example registers a format. open_files then reads it like the built-in formats.
func Example() {
	err := record.Register(record.Format{Tag: "lines", Suffixes: []string{".lines"}, Open: openLines})
	if err != nil {
		panic(err)
	}

	folder, err := os.MkdirTemp("", "lines")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "a.lines")
	if err = os.WriteFile(path, []byte("to be\nor not\nto be\n"), 0o600); err != nil {
		panic(err)
	}

	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	if err = ops.Create(scope, "open_files", "reader", nil, fmt.Appendf(nil, `{"filenames": [%q]}`, path)); err != nil {
		panic(err)
	}
	variable, err := scope.FindVar("reader")
	if err != nil {
		panic(err)
	}
	reader, err := readers.HolderOf(variable)
	if err != nil {
		panic(err)
	}
	defer reader.Drop()
	for {
		line, err := reader.ReadNext(context.Background())
		if err == io.EOF {
			break
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s\n", line.Slots[0].Data)
		line.Release()
	}
	// Output:
	// to be
	// or not
	// to be
}
