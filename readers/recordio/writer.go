package recordio

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"github.com/klauspost/compress/gzip"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// writer gathers the records of a chunk before it writes them, since the header before them has their checksum.
type writer struct {
	record.FileWriter
	options Options
	first   []kind // of the slots of the first tuple; nil before it
	tensors bool   // records hold tensors; set by the first tuple
	// A large record of bytes gets a chunk of its own, which ReadLate can return.
	largeAlone bool

	payload []byte // of the current chunk: lengths and records
	count   int64  // records in payload
	packed  []byte // compressed payload
	gzip    *gzip.Writer
}

// kind is what a slot has in common in all tuples if Config has no slots.
type kind struct {
	dtype  pyfeed.DType
	rank   int
	levels int
}

// Create creates a file for writing.
func Create(path string, c *record.Config) (record.Writer, error) {
	o, err := options(c)
	if err != nil {
		return nil, err
	}
	given := record.OptionsFrom[Options](c)
	w := &writer{options: o, largeAlone: given.RecordsPerChunk == 0 && given.ChunkBytes == 0 && o.Compression == "none"}
	w.Encode, w.Finish = w.encode, w.end
	if c.Slots != nil {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
	}
	if w.Sink, err = storage.Create(path, c.Storage.Compression); err != nil {
		return nil, err
	}
	return w, nil
}

const (
	maxPayload = math.MaxUint32              // the limit of the size in a header
	maxRecord  = math.MaxUint32 - lengthSize // so that a chunk of one record is within that limit
)

// encode adds a record.
func (w *writer) encode(t *pyfeed.Tuple) error {
	if err := w.check(t); err != nil {
		return err
	}
	at := len(w.payload)
	w.payload = append(w.payload, make([]byte, lengthSize)...)
	if w.tensors {
		w.payload = appendTensors(w.payload, t.Slots)
	} else {
		w.payload = append(w.payload, t.Slots[0].Data...)
	}
	n := len(w.payload) - at - lengthSize
	if n > maxRecord {
		return pyfeed.Errorf(pyfeed.TooLarge, "expected a record of at most %d bytes, found %d", int64(maxRecord), n)
	}
	binary.LittleEndian.PutUint32(w.payload[at:], uint32(n))
	w.count++
	// As in the Go library, the lengths of the records do not count.
	alone := w.largeAlone && !w.tensors && record.VerifiesLate(uint64(n))
	if size := int64(len(w.payload)) - lengthSize*w.count; w.count > 1 && (alone || size > w.options.ChunkBytes || len(w.payload) > maxPayload) {
		if err := w.flush(w.payload[:at], w.count-1); err != nil {
			return err
		}
		w.payload = w.payload[:copy(w.payload, w.payload[at:])]
		w.count = 1
	}
	if alone || w.count == w.options.RecordsPerChunk {
		return w.end()
	}
	return nil
}

// check returns an error if a record cannot hold the tuple, or if the tuple does not match the first one.
func (w *writer) check(t *pyfeed.Tuple) error {
	if len(t.Slots) == 0 {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected at least 1, found 0")
	}
	for i := range t.Slots {
		s := &t.Slots[i]
		if !s.DType.Valid() {
			return pyfeed.SlotErrorf(pyfeed.Type, i, "expected a dtype, found number %d", int32(s.DType))
		}
		n, err := s.Measure()
		if err == nil {
			err = s.CheckLoD()
		}
		if err != nil {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		}
		if n != len(s.Data) {
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "expected %d bytes of data for %v %v, found %d", n, s.DType, s.Dims(), len(s.Data))
		}
	}
	if w.first == nil {
		w.setKinds(t)
	}
	if len(t.Slots) != len(w.first) {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected %d, as in the first tuple, found %d", len(w.first), len(t.Slots))
	}
	for i := range t.Slots {
		s, like := &t.Slots[i], w.first[i]
		switch found := kindOf(s); {
		case found.dtype != like.dtype:
			return pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected %v, as in the first tuple, found %v", like.dtype, found.dtype)
		case found.rank != like.rank:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "rank: expected %d, as in the first tuple, found %d, dims %v", like.rank, found.rank, s.Dims())
		case found.levels != like.levels:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "LoD: expected %d levels, as in the first tuple, found %d", like.levels, found.levels)
		}
	}
	if w.tensors {
		return checkTensors(t)
	}
	return checkBytes(t)
}

func kindOf(s *pyfeed.LoDTensor) kind { return kind{s.DType, len(s.Dims()), len(s.LoD)} }

// setKinds sets the kinds that all tuples have to match, by the first tuple.
func (w *writer) setKinds(t *pyfeed.Tuple) {
	for i := range t.Slots {
		w.first = append(w.first, kindOf(&t.Slots[i]))
	}
	switch w.options.Records {
	case "tensors":
		w.tensors = true
	case "auto":
		// Readers recognize tensors reliably, but not bytes: so in the Fluid layout "auto" always writes tensors.
		w.tensors = w.options.Layout == "fluid" || !slices.Equal(w.first, []kind{{pyfeed.Uint8, 1, 1}}) || checkBytes(t) != nil
	}
}

func checkTensors(t *pyfeed.Tuple) error {
	for i := range t.Slots {
		if d := t.Slots[i].DType; fluidTypes[d] < 0 {
			var known []pyfeed.DType
			for d, n := range fluidTypes {
				if n >= 0 && pyfeed.DType(d).Valid() {
					known = append(known, pyfeed.DType(d))
				}
			}
			return pyfeed.SlotErrorf(pyfeed.Type, i, "dtype: expected one that Fluid's tensors have, %v, found %v: convert it, or write records=\"bytes\"", known, d)
		}
	}
	return nil
}

func checkBytes(t *pyfeed.Tuple) error {
	if len(t.Slots) != 1 {
		return pyfeed.Errorf(pyfeed.Slots, "slots: expected 1 for a record of bytes, found %d", len(t.Slots))
	}
	if s := &t.Slots[0]; len(s.LoD) > 1 || len(s.LoD) == 1 && s.LoD.Sequences() != 1 {
		return pyfeed.SlotErrorf(pyfeed.Shape, 0, "LoD: expected one sequence for a record of bytes, found %d levels, the first of %d sequences", len(s.LoD), s.LoD.Sequences())
	}
	return nil
}

// end writes the current chunk, if it has records.
func (w *writer) end() error {
	if w.count == 0 {
		return nil
	}
	err := w.flush(w.payload, w.count)
	w.payload, w.count = w.payload[:0], 0
	return err
}

func (w *writer) flush(payload []byte, count int64) error {
	h := header{fluid: w.options.Layout == "fluid", records: uint32(count)}
	switch w.options.Compression {
	case "snappy":
		h.compressor = snappy
		if h.fluid {
			w.packed = appendOld(w.packed[:0], payload)
		} else {
			w.packed = appendFraming(w.packed[:0], payload)
		}
		payload = w.packed
	case "gzip":
		h.compressor = gzipped
		to := bytes.NewBuffer(w.packed[:0])
		if w.gzip == nil {
			w.gzip = gzip.NewWriter(to)
		} else {
			w.gzip.Reset(to)
		}
		_, _ = w.gzip.Write(payload) // cannot fail: it writes to memory
		_ = w.gzip.Close()
		w.packed = to.Bytes()
		payload = w.packed
	}
	if len(payload) > maxPayload {
		return pyfeed.Errorf(pyfeed.TooLarge, "expected a chunk of at most %d bytes once compressed, found %d", int64(maxPayload), len(payload))
	}
	h.size, h.checksum = uint32(len(payload)), checksum(payload)
	var room [headerSize]byte
	if _, err := w.Sink.Write(h.put(room[:0])); err != nil {
		return err
	}
	for len(payload) > 0 { // in pieces, as the Sink may compress them again
		n := min(len(payload), 1<<20)
		if _, err := w.Sink.Write(payload[:n]); err != nil {
			return err
		}
		payload = payload[n:]
	}
	return nil
}
