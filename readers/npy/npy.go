// Package npy reads and writes NumPy's files of one array, as numpy.save writes them. The format is specified at
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
//
// Other formats use its parts for npy files within their files: Parse parses a header, and Instances makes tuples of an
// array, wherever its data is.
package npy

import (
	"bytes"
	"io"
	"sync/atomic"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Options of the format.
type Options struct {
	// Instances is "rows" or "": each row along the first dimension is an instance; or "file": the whole array is one.
	Instances string `json:"instances"`
}

func init() {
	record.MustRegister(record.Format{Tag: "npy", Suffixes: []string{".npy"}, Options: func() any { return new(Options) },
		Open: Open, Create: Create})
}

// Whole parses the option instances: true for "file".
func Whole(instances string) (bool, error) {
	switch instances {
	case "", "rows":
		return false, nil
	case "file":
		return true, nil
	}
	return false, pyfeed.Errorf(pyfeed.Invalid, "instances: expected rows or file, found %q", instances)
}

// Open opens an array for reading.
func Open(path string, c *record.Config) (record.Records, error) {
	r, err := record.OpenRecords(path, "", c, open)
	if err == nil && c.Storage.Block > 0 && r.(*records).needsAll() {
		r.Close()
		mapped := *c
		mapped.Storage.IO, mapped.Storage.Block = "map", 0
		return record.OpenRecords(path, "", &mapped, open)
	}
	return r, err
}

// needsAll reports whether each instance needs the whole array in memory: its elements lie all over the file.
func (r *records) needsAll() bool { return r.a.Fortran && !r.f.InMemory() }

func open(f *storage.File, c *record.Config) (record.Records, error) {
	whole, err := Whole(record.OptionsFrom[Options](c).Instances)
	if err != nil {
		return nil, err
	}
	r := &records{f: f}
	if err = r.begin(c, whole); err != nil {
		return nil, err
	}
	return r, nil
}

// records reads the instances of a file.
type records struct {
	f    *storage.File
	a    *Array
	head []byte // the header that a was parsed from
	in   *Instances
	err  error // the error at the end
}

func (r *records) begin(c *record.Config, whole bool) error {
	head, err := r.f.Peek(prefixSize)
	if err != nil {
		return err
	}
	n, err := DataOffset(head)
	if err != nil {
		return atOffset(err, r.f.Path(), 0, -1)
	}
	if head, err = r.f.Peek(n); err != nil {
		return err
	}
	p, err := parse(head)
	if err != nil {
		return atOffset(err, r.f.Path(), 0, -1)
	}
	r.a, r.head = p.array, p.head
	if r.in, err = r.a.Instances(whole, c.Pool); err != nil {
		e := err.(*pyfeed.Error)
		e.At = &pyfeed.Location{File: r.f.Path(), Offset: 0, Record: -1}
		return e
	}
	r.f.Skip(n)
	return nil
}

// last has parsed the header of the last file that any reader opened: the files of a data set often have the same
// header.
var last atomic.Pointer[Parser]

// parse returns a Parser that has parsed head. Other goroutines may use it too: it MUST NOT parse another header, and
// its Array MUST NOT be changed.
func parse(head []byte) (*Parser, error) {
	if p := last.Load(); p != nil && bytes.HasPrefix(head, p.head) {
		return p, nil
	}
	p := new(Parser)
	if _, err := p.Parse(head); err != nil {
		return nil, err
	}
	last.Store(p)
	return p, nil
}

// Peek implements Source.
func (r *records) Peek(at, n int) ([]byte, error) {
	r.seek(at)
	return r.f.Peek(n)
}

// Hold implements Source.
func (r *records) Hold(at, size, n int) (*memory.Buffer, int) {
	r.seek(at)
	if r.f.IsMapped() {
		n = storage.InWindow(r.f.Offset(), size, n)
	}
	return r.f.Hold(n), n
}

// Interrupt implements Source.
func (r *records) Interrupt() *storage.Interrupt { return r.f.Interrupt() }

// seek moves the position to an offset of the data.
func (r *records) seek(at int) { r.f.Skip(r.a.Begin + at - int(r.f.Offset())) }

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	if limit := r.in.Count - r.in.Next; limit < int64(len(out)) {
		out = out[:limit]
	}
	for _, t := range out {
		if len(t.Slots) != 1 {
			t.Resize(1)
		}
	}
	n, err := 0, io.EOF
	if len(out) > 0 {
		n, err = r.in.Read(out, 0, r)
	}
	switch err {
	case nil:
		return n, nil
	case io.EOF:
		err = r.end()
	case errTruncated:
		err = r.shortError()
	}
	r.err = err
	return 0, r.err
}

// Count implements record.Counted.
func (r *records) Count() int64 { return r.in.Count }

// ReadBlock implements record.BlockReader for rows that are used in place.
func (r *records) ReadBlock(limit int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || limit == 0 {
		return nil
	}
	return r.in.View(limit, r)
}

// end returns io.EOF, or an error if the file has more data.
func (r *records) end() error {
	rest, err := r.Peek(r.a.Size, 1)
	if err == nil && len(rest) > 0 {
		err = r.f.Corrupt(int64(r.a.Begin+r.a.Size), r.in.Count, "expected the end of the file after an array of %d bytes, found more: "+
			"only the first of several arrays is read", r.a.Size)
	}
	if err == nil {
		err = io.EOF
	}
	return err
}

// AtEnd implements record.EndReporter.
func (r *records) AtEnd() bool {
	return r.err == nil && r.in.Next == r.in.Count && r.f.InMemory() && r.end() == io.EOF
}

// Signature implements record.SingleRecord for a small file of one instance that is used in place.
func (r *records) Signature() ([]byte, pyfeed.Slot) {
	if r.in.Count != 1 || r.in.Size == 0 || !r.a.InPlace() || !r.f.IsCopy() || !r.AtEnd() {
		return nil, pyfeed.Slot{}
	}
	return r.head, r.in.Slot()
}

// shortError returns the error about an array that is cut off.
func (r *records) shortError() error {
	if err := r.f.CheckTruncated(); err != nil {
		return err
	}
	at := int64(0)
	if !r.a.Fortran {
		at = r.in.Next * int64(r.in.Size)
	}
	rest, err := r.Peek(int(at), r.a.Size-int(at))
	if err != nil {
		return err
	}
	return r.f.Corrupt(int64(r.a.Begin)+at, r.in.Next, "expected %d bytes of data, as shape %v of %v is, found %d",
		r.a.Size, r.a.Shape, r.a.DType, at+int64(len(rest)))
}

// Resync ends the file: an array can only be cut off, or followed by other data.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Position implements record.Seeker. It is the number of the instance.
func (r *records) Position() (record.Position, bool) {
	return record.Position{Offset: r.in.Next}, r.err == nil
}

// Seek implements record.Seeker.
func (r *records) Seek(p record.Position, _ int64, _ bool) error {
	if err := r.in.CheckPosition(r.f.Path(), p); err != nil {
		return err
	}
	if !r.a.Fortran {
		if err := r.f.SeekTo(int64(r.a.Begin) + p.Offset*int64(r.in.Size)); err != nil {
			return err
		}
	}
	r.in.SeekTo(p.Offset)
	r.err = nil
	return nil
}

// CheckTruncated calls that of the File.
func (r *records) CheckTruncated() error { return r.f.CheckTruncated() }

// CheckUnchanged calls that of the File.
func (r *records) CheckUnchanged() error { return r.f.CheckUnchanged() }

// Close closes the file.
func (r *records) Close() {
	r.in.Close()
	r.f.Close()
}

// Describe returns the slot that the header describes.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	return []pyfeed.Slot{r.in.Slot()}, nil, nil
}
