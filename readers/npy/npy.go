// Package npy reads and writes NumPy's files of one array, as numpy.save makes them. The format is that of
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
//
// Its parts serve those who find such files inside of others: Parse reads a header, and Instances make tuples of an
// array wherever its data lies.
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
	// Instances is "rows" or "" (each row along the first dimension is an instance) or "file" (the whole array is).
	Instances string `json:"instances"`
}

func init() {
	record.MustRegister(record.Format{Tag: "npy", Suffixes: []string{".npy"}, Options: func() any { return new(Options) },
		Open: Open, Create: Create})
}

// Whole reads the option instances: true for "file".
func Whole(instances string) (bool, error) {
	switch instances {
	case "", "rows":
		return false, nil
	case "file":
		return true, nil
	}
	return false, pyfeed.Errorf(pyfeed.Invalid, "instances: expected rows or file, found %q", instances)
}

// Open begins to read an array.
func Open(path string, c *record.Config) (record.Records, error) {
	return record.OpenRecords(path, "", c, open)
}

func open(f *storage.File, c *record.Config) (record.Records, error) {
	whole, err := Whole(record.OptionsOf[Options](c).Instances)
	if err != nil {
		return nil, err
	}
	r := &records{f: f}
	if err = r.begin(c, whole); err != nil {
		return nil, err
	}
	return r, nil
}

// records are the instances of a file.
type records struct {
	f    *storage.File
	a    *Array
	head []byte // of which a was read
	in   *Instances
	err  error // what ended them
}

func (r *records) begin(c *record.Config, whole bool) error {
	head, err := r.f.Peek(prefixSize)
	if err != nil {
		return err
	}
	n, err := Begin(head)
	if err != nil {
		return Located(err, r.f.Path(), 0, -1)
	}
	if head, err = r.f.Peek(n); err != nil {
		return err
	}
	p, err := parse(head)
	if err != nil {
		return Located(err, r.f.Path(), 0, -1)
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

// last has read the header of the file that was opened last, by any reader: those of a data set often begin alike.
var last atomic.Pointer[Parser]

// parse is a Parser of the header, for any goroutine: it MUST NOT be used for another, nor its Array be changed.
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

// Peek is Source's.
func (r *records) Peek(at, n int) ([]byte, error) {
	r.move(at)
	return r.f.Peek(n)
}

// Hold is Source's.
func (r *records) Hold(at, size, n int) (*memory.Buffer, int) {
	r.move(at)
	if r.f.Mapped() {
		n = storage.InWindow(r.f.Offset(), size, n)
	}
	return r.f.Hold(n), n
}

// Interrupt is Source's.
func (r *records) Interrupt() *storage.Interrupt { return r.f.Interrupt() }

// move puts the position at an offset of the data.
func (r *records) move(at int) { r.f.Skip(r.a.Begin + at - int(r.f.Offset())) }

func (r *records) Read(out []*pyfeed.Tuple) (int, error) {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || len(out) == 0 {
		return 0, r.err
	}
	if most := r.in.Count - r.in.Next; most < int64(len(out)) {
		out = out[:most]
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
	case ErrShort:
		err = r.short()
	}
	r.err = err
	return 0, r.err
}

// ReadBlock is Rowed's: of rows that are used where they lie.
func (r *records) ReadBlock(most int) *record.Block {
	r.err = record.ClearInterrupt(r.err)
	if r.err != nil || most == 0 {
		return nil
	}
	return r.in.View(most, r)
}

// end is io.EOF, unless the file goes on.
func (r *records) end() error {
	rest, err := r.Peek(r.a.Size, 1)
	if err == nil && len(rest) > 0 {
		err = r.f.Corrupt(int64(r.a.Begin+r.a.Size), r.in.Count, "expected the end of the file behind an array of %d bytes, found more: "+
			"only the first of several arrays is read", r.a.Size)
	}
	if err == nil {
		err = io.EOF
	}
	return err
}

// Ended is Ending's.
func (r *records) Ended() bool {
	return r.err == nil && r.in.Next == r.in.Count && r.f.Complete() && r.end() == io.EOF
}

// Alike is record.SingleRecord's: of one instance that is used as it lies in a small file.
func (r *records) Signature() ([]byte, pyfeed.Slot) {
	if r.in.Count != 1 || r.in.Size == 0 || !r.a.InPlace() || !r.f.Whole() || !r.Ended() {
		return nil, pyfeed.Slot{}
	}
	return r.head, r.in.Slot()
}

// short is the error about an array that is cut off.
func (r *records) short() error {
	if err := r.f.Intact(); err != nil {
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

// Resync finds nothing: what is wrong with an array is that it is cut off, or that something follows it.
func (r *records) Resync() error {
	if r.err != nil {
		r.err = io.EOF
	}
	return r.err
}

// Intact is the File's.
func (r *records) Intact() error { return r.f.Intact() }

// Unchanged is the File's.
func (r *records) Unchanged() error { return r.f.Unchanged() }

// Close lets go of the file.
func (r *records) Close() {
	r.in.Close()
	r.f.Close()
}

// Describe is what the header says.
func (r *records) Describe() ([]pyfeed.Slot, []string, error) {
	return []pyfeed.Slot{r.in.Slot()}, nil, nil
}
