package npz

import (
	"archive/zip"
	"fmt"
	"io"
	"math"

	"github.com/klauspost/compress/flate"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/npy"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates an archive of an array for each slot. Each tuple has a row of each array; with instances "file", the
// only tuple has the whole arrays. The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	s, err := resolveOptions(c)
	if err != nil {
		return nil, err
	}
	switch c.Storage.Compression {
	case "", "auto", "none":
	default:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none around a zip archive, found %q: its members are compressed by the option compression",
			c.Storage.Compression)
	}
	w := &writer{settings: s}
	w.Encode, w.Finish = w.encode, w.finish
	if w.Sink, err = storage.Create(path, c.Storage.Compression); err != nil {
		return nil, err
	}
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err == nil {
			err = w.begin(len(c.Slots))
		}
		for i := 0; err == nil && i < len(c.Slots); i++ {
			err = w.arrays[i].SetSlot(c.Slots[i])
		}
	}
	if err != nil {
		w.Abort()
		return nil, err
	}
	return w, nil
}

// writer writes an archive. A member begins with its number of rows and has to be written at once. So until Close the
// rows are kept in spools, temporary files of which only a buffer is in memory, one for each slot.
type writer struct {
	record.FileWriter
	settings
	arrays []*column
}

// column is an array and its rows.
type column struct {
	npy.Column
	name string
	rows *storage.Spool
}

// begin makes the columns.
func (w *writer) begin(n int) error {
	if err := w.useNames(w.Names); err != nil {
		return err
	}
	if w.names != nil && len(w.names) != n {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected %d, because as many arrays are named, found %d", len(w.names), n)
	}
	if n == 0 {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected at least 1, found 0")
	}
	for i := range n {
		c := &column{Column: npy.Column{Slot: i, Whole: w.whole}, name: fmt.Sprint("arr_", i)}
		if w.names != nil {
			c.name = w.names[i]
		}
		var err error
		if c.rows, err = w.Sink.Spool(); err != nil {
			return err
		}
		w.arrays = append(w.arrays, c)
	}
	return nil
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.arrays == nil {
		if err := w.begin(len(t.Slots)); err != nil {
			return err
		}
	}
	if len(t.Slots) != len(w.arrays) {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected %d, as in the tuples before, found %d", len(w.arrays), len(t.Slots))
	}
	for i, c := range w.arrays {
		if err := c.Add(&t.Slots[i]); err != nil {
			return err
		}
	}
	for i, c := range w.arrays {
		if _, err := c.rows.Write(t.Slots[i].Data); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the archive.
func (w *writer) finish() error {
	if w.arrays == nil {
		return pyfeed.Errorf(pyfeed.State, "expected at least one tuple, found none: the first tuple or slots decide which arrays there are")
	}
	z := zip.NewWriter(w.Sink)
	z.RegisterCompressor(zip.Deflate, func(to io.Writer) (io.WriteCloser, error) { return flate.NewWriter(to, flate.DefaultCompression) })
	behind := int64(0) // size of the descriptor that follows the previous member
	for _, c := range w.arrays {
		n, err := w.member(z, c, behind)
		if err != nil {
			return err
		}
		behind = descriptorSize
		if n >= math.MaxUint32 {
			behind = descriptorSize64
		}
	}
	return z.Close()
}

// member writes a member and returns the size of its data.
func (w *writer) member(z *zip.Writer, c *column, behind int64) (size int64, err error) {
	head, err := c.Header()
	if err != nil {
		return 0, err
	}
	// Only a date is set, always the earliest one: a time would be written to an extra field, which padding needs.
	h := &zip.FileHeader{Name: c.name + suffix, Method: zip.Deflate, ModifiedDate: 1<<5 | 1}
	if !w.deflate {
		h.Method = zip.Store
		if err = z.Flush(); err != nil {
			return 0, err
		}
		h.Extra = padding(w.Sink.Offset() + behind + localHeaderSize + int64(len(h.Name)))
	}
	to, err := z.CreateHeader(h)
	if err != nil {
		return 0, err
	}
	if _, err = to.Write(head); err != nil {
		return 0, err
	}
	n, err := c.rows.WriteTo(to)
	return int64(len(head)) + n, err
}

// Parts of a zip archive.
const (
	localHeaderSize  = 30 // bytes before a member's name
	descriptorSize   = 16 // bytes after a member; the next constant is for a member of 4 GiB or more
	descriptorSize64 = 24
	paddingTag       = 0xd935
)

// alignment of a member's data, in bytes, so that it can be used in place.
const alignment = 64

// padding returns an extra field that begins at offset at and ends at an aligned offset. Its tag is that of Android's
// zipalign, which other programs ignore.
func padding(at int64) []byte {
	const head = 6 // tag, size, and the alignment
	n := int(-(at+head)%alignment+alignment) % alignment
	extra := make([]byte, head+n)
	extra[0], extra[1] = paddingTag&0xff, paddingTag>>8
	extra[2], extra[4] = byte(2+n), alignment
	return extra
}
