package tokens

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"math"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates a file for writing. The tuples have one slot of integers, whose elements are the next tokens. With the
// layout megatron, or a name that ends in .idx, each tuple is a document.
func Create(path string, c *record.Config) (record.Writer, error) {
	o := record.OptionsFrom[Options](c)
	if len(c.Slots) > 1 {
		return nil, pyfeed.Errorf(pyfeed.Slots, "tokens: slots: expected 1, found %d", len(c.Slots))
	}
	w := &writer{dtype: pyfeed.Any}
	w.Encode, w.Finish = w.encode, w.finish
	if d, known := pyfeed.DTypeOf(o.DType); known {
		w.dtype = d
	}
	var err error
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
	}
	layout := cmp.Or(o.Layout, "auto")
	compression := cmp.Or(o.Compression, c.Storage.Compression)
	switch {
	case layout == "llm.c":
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "tokens: layout: expected headerless or megatron for writing, found \"llm.c\"")
	case layout == "megatron", layout == "auto" && strings.HasSuffix(path, ".idx"):
		if compression != "" && compression != "none" {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none for tokens of Megatron-LM, found %q", compression)
		}
		if err = w.createPair(path); err != nil {
			return nil, err
		}
		return w, nil
	case w.dtype == pyfeed.Any:
		w.dtype = pyfeed.Uint16
	}
	if w.Sink, err = storage.Create(path, compression); err != nil {
		return nil, err
	}
	w.tokens = w.Sink
	return w, nil
}

// writer writes a file of tokens. The Sink is that of the index if there is one.
type writer struct {
	record.FileWriter
	tokens    *storage.Sink
	pointers  *storage.Spool // nil: there is no index
	documents uint64
	dtype     pyfeed.DType // Any: the first tuple decides
	buffer    []byte
	scratch   [8]byte
}

// createPair creates the two files of Megatron-LM.
func (w *writer) createPair(path string) (err error) {
	if err = w.checkCode(); err != nil {
		return err
	}
	index, data := megatronPaths(path)
	if w.Sink, err = storage.CreatePatched(index, "none"); err != nil {
		return err
	}
	if w.tokens, err = storage.Create(data, "none"); err == nil {
		w.pointers, err = w.Sink.Spool()
	}
	if err == nil {
		_, err = w.Sink.Write(make([]byte, megatronHeader))
	}
	if err != nil {
		w.Abort()
	}
	return err
}

// checkCode returns an error if an index cannot tell the dtype.
func (w *writer) checkCode() error {
	if _, can := megatronCode(w.dtype); w.dtype != pyfeed.Any && !can {
		return pyfeed.Errorf(pyfeed.Type, "tokens: dtype: expected uint8, int8, int16, int32, int64 or uint16 for Megatron-LM, found %v", w.dtype)
	}
	return nil
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if len(t.Slots) != 1 {
		return pyfeed.Errorf(pyfeed.Slots, "tokens: slots: expected 1, found %d", len(t.Slots))
	}
	s := &t.Slots[0]
	if !isToken(s.DType) {
		return pyfeed.SlotErrorf(pyfeed.Type, 0, "tokens: dtype: expected an integer dtype, found %v", s.DType)
	}
	if w.dtype == pyfeed.Any {
		w.dtype = s.DType
		if err := w.checkCode(); err != nil {
			w.dtype = pyfeed.Any
			return err
		}
	}
	data, err := w.narrow(s.DType, s.Data)
	if err != nil {
		return err
	}
	if w.pointers != nil {
		n := len(data) / w.dtype.Size()
		if n > math.MaxInt32 {
			return pyfeed.SlotErrorf(pyfeed.TooLarge, 0, "tokens: expected at most %d tokens in a document, found %d", math.MaxInt32, n)
		}
		if _, err := w.Sink.Write(binary.LittleEndian.AppendUint32(w.scratch[:0], uint32(n))); err != nil {
			return err
		}
		if _, err := w.pointers.Write(binary.LittleEndian.AppendUint64(w.scratch[:0], uint64(w.tokens.Offset()))); err != nil {
			return err
		}
		w.documents++
	}
	_, err = w.tokens.Write(data)
	return err
}

// narrow converts native integers to those of the file. A value that the file's dtype does not have is an error.
func (w *writer) narrow(d pyfeed.DType, data []byte) ([]byte, error) {
	if d == w.dtype && (!record.BigEndian || d.Size() == 1) {
		return data, nil
	}
	item, wide := w.dtype.Size(), d.Size()
	n := len(data) / wide
	if cap(w.buffer) < n*item {
		w.buffer = make([]byte, n*item)
	}
	to := w.buffer[:n*item]
	for i := range n {
		v, _ := record.Integer(d, data[i*wide:][:wide])
		if !inRange(w.dtype, v, d == pyfeed.Uint64) {
			found := strconv.FormatInt(v, 10)
			if d == pyfeed.Uint64 {
				found = strconv.FormatUint(uint64(v), 10)
			}
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, 0, "tokens: expected values of %v, found %s at element %d: dtype sets that of the file", w.dtype, found, i)
		}
		for b := range item {
			to[i*item+b] = byte(uint64(v) >> (8 * b))
		}
	}
	return to, nil
}

// inRange reports whether an integer dtype has a value. unsigned: v has the bits of a uint64.
func inRange(d pyfeed.DType, v int64, unsigned bool) bool {
	bits := 8 * d.Size()
	switch {
	case isSigned(d) && unsigned:
		return uint64(v) <= uint64(1)<<(bits-1)-1
	case isSigned(d):
		return v == v<<(64-bits)>>(64-bits)
	case unsigned:
		return bits == 64 || uint64(v)>>bits == 0
	}
	return v >= 0 && (bits == 64 || v>>bits == 0)
}

// finish completes the tokens, and writes the rest of the index, if there is one.
func (w *writer) finish() error {
	if w.pointers == nil {
		return nil
	}
	if w.dtype == pyfeed.Any {
		w.dtype = pyfeed.Uint16
	}
	if _, err := w.pointers.WriteTo(w.Sink); err != nil {
		return err
	}
	entries := bufio.NewWriterSize(w.Sink, 64<<10)
	for i := range w.documents + 1 {
		if _, err := entries.Write(binary.LittleEndian.AppendUint64(w.scratch[:0], i)); err != nil {
			return err
		}
	}
	if err := entries.Flush(); err != nil {
		return err
	}
	code, _ := megatronCode(w.dtype)
	head := append([]byte(megatronMagic), 1, 0, 0, 0, 0, 0, 0, 0, code)
	head = binary.LittleEndian.AppendUint64(head, w.documents)
	head = binary.LittleEndian.AppendUint64(head, w.documents+1)
	if err := w.Sink.Patch(0, head); err != nil {
		return err
	}
	return w.tokens.Commit()
}

// Close implements record.Writer. After an error, neither file is left.
func (w *writer) Close() error {
	err := w.FileWriter.Close()
	if err != nil && w.pointers != nil {
		w.tokens.Abort()
	}
	return err
}

// Abort implements record.Writer.
func (w *writer) Abort() {
	w.FileWriter.Abort()
	if w.tokens != nil {
		w.tokens.Abort()
	}
}
