package tfrecord

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Create creates a file for writing. A tuple becomes a record. If there are Features, the record is an Example or a
// SequenceExample of these features. Without Features, a tuple of one slot of bytes, named "record" or not named, is
// written as it is. Any other tuple becomes an Example in which each slot is a feature with the slot's name.
func Create(path string, c *record.Config) (record.Writer, error) {
	o, to, err := resolveOptions(c)
	if err != nil {
		return nil, err
	}
	compression := to.Compression
	if compression == "" || compression == "auto" {
		compression = storage.ByName(path)
	}
	switch compression {
	case "none", "gzip", "zlib":
	default: // other readers of the format support nothing else
		return nil, pyfeed.Errorf(pyfeed.Invalid, "compression: expected none, gzip or zlib, found %q", compression)
	}
	w := &writer{written: make(map[string][]byte)}
	w.Names = c.Names
	w.Encode = w.encode
	switch {
	case o.Features != nil:
		err = w.parse(o.Features)
	case c.Slots != nil && !slices.ContainsFunc(c.Slots, func(s pyfeed.Slot) bool { return s.DType == pyfeed.Any }):
		err = w.derive(c.Slots)
	}
	if err != nil {
		return nil, err
	}
	if w.Sink, err = storage.Create(path, compression); err != nil {
		return nil, err
	}
	return w, nil
}

type writer struct {
	record.FileWriter
	plan *plan // nil if the only slot is the record

	head    [headerSize]byte
	entries []byte            // of the map of features
	lists   []byte            // entries of the map of feature lists
	value   []byte            // of the current entry
	packed  []byte            // values of the current entry, or step
	message []byte            // a SequenceExample
	written map[string][]byte // values of the current record, by feature name
}

// derive decides what is written from the slots of the tuples.
func (w *writer) derive(all []pyfeed.Slot) error {
	if _, err := pyfeed.NewSpec(all); err != nil {
		return err
	}
	if len(all) == 1 && all[0].DType == pyfeed.Uint8 && len(all[0].Dims) == 1 && all[0].LoDLevels <= 1 &&
		(len(w.Names) == 0 || w.Names[0] == "" || w.Names[0] == recordName) {
		s := all[0]
		s.Dims = pyfeed.Dims{-1}
		return w.expect([]pyfeed.Slot{s})
	}
	var features []Feature
	for i, s := range all {
		if i >= len(w.Names) || w.Names[i] == "" {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "expected a name for the feature, found none: give names, features, or one slot of bytes")
		}
		f := Feature{Name: w.Names[i], Kind: "fixed", DType: s.DType.String(), Shape: Shape(s.Dims)}
		switch {
		case s.DType == pyfeed.Uint8 && s.LoDLevels > 0 && len(s.Dims) == 1:
			f.DType, f.Shape = "bytes", nil
			if s.LoDLevels == 2 {
				f.Kind = "variable"
			}
		case s.LoDLevels == 1:
			f.Kind, f.Shape = "variable", Shape(s.Dims[1:])
		}
		if s.LoDLevels > 2 || s.LoDLevels == 2 && f.DType != "bytes" || s.LoDLevels == 0 && s.Grows() {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "feature %q: expected a fixed shape, a level of LoD, or two of bytes, found dims %v with %d levels: "+
				"give features", f.Name, s.Dims, s.LoDLevels)
		}
		features = append(features, f)
	}
	return w.parse(features)
}

func (w *writer) parse(features []Feature) error {
	p, err := newPlan(features)
	if err != nil {
		return err
	}
	w.plan = p
	slots, _ := p.describe()
	return w.expect(slots)
}

func (w *writer) expect(slots []pyfeed.Slot) (err error) {
	w.Spec, err = pyfeed.NewSpec(slots)
	return err
}

// encode writes a tuple as a record.
func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.Spec == nil {
		if err := w.derive(record.DescribeTuple(t)); err != nil {
			return err
		}
		if err := w.Spec.Check(t); err != nil {
			return err
		}
	}
	if err := check(t); err != nil {
		return err
	}
	if w.plan == nil {
		return w.record(t.Slots[0].Data)
	}
	w.entries, w.lists = w.entries[:0], w.lists[:0]
	clear(w.written)
	for i := range w.plan.columns {
		if err := w.column(&w.plan.columns[i], &t.Slots[i]); err != nil {
			return err
		}
	}
	if !w.plan.sequence {
		w.value = appendField(w.value[:0], 1, w.entries)
		return w.record(w.value)
	}
	w.message = w.message[:0]
	if len(w.entries) > 0 {
		w.message = appendField(w.message, 1, w.entries)
	}
	if len(w.lists) > 0 {
		w.message = appendField(w.message, featureLists, w.lists)
	}
	return w.record(w.message)
}

// check returns an error if the tuple cannot be written as one instance.
func check(t *pyfeed.Tuple) error {
	for i := range t.Slots {
		s := &t.Slots[i]
		size, err := s.Measure()
		switch {
		case err != nil:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "%v", err)
		case s.Place.Kind == pyfeed.CUDA:
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "place: expected memory of the host, found %v", s.Place)
		case len(s.Data) != size:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "expected %d bytes, dims %v of %v, found %d", size, s.Dims(), s.DType, len(s.Data))
		case len(s.LoD) > 0 && s.Rows() != 1:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "expected one instance for each record, found a batch of %d", s.Rows())
		}
	}
	return nil
}

// record writes data with its length and both CRCs.
func (w *writer) record(data []byte) error {
	n := uint64(len(data))
	binary.LittleEndian.PutUint64(w.head[:], n)
	binary.LittleEndian.PutUint32(w.head[8:], lengthCRC(n))
	if _, err := w.Sink.Write(w.head[:]); err != nil {
		return err
	}
	if _, err := w.Sink.Write(data); err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(w.head[:], crc(data))
	_, err := w.Sink.Write(w.head[:footerSize])
	return err
}

// column appends the features of a slot: the slot itself, and the features that divide it.
func (w *writer) column(c *column, s *pyfeed.LoDTensor) error {
	if c.steps {
		return w.steps(c, s)
	}
	w.packed = w.packed[:0]
	var err error
	switch {
	case c.Raw && (c.fixed || len(s.Data) > 0):
		w.packed = appendField(w.packed, 1, s.Data)
	case c.Raw:
	case c.list == byteStrings && c.slot.LoDLevels == 1:
		w.packed = appendField(w.packed, 1, s.Data)
	case c.list == byteStrings:
		level := s.LoD[len(s.LoD)-1]
		err = c.check(len(level) - 1)
		for i, begin := range level[:len(level)-1] {
			w.packed = appendField(w.packed, 1, s.Data[begin:level[i+1]])
		}
	case c.list == floats:
		err = w.packFloats(c, s.Data)
	default:
		err = w.packInts(c, s.Data)
	}
	if err != nil {
		return err
	}
	if err = w.feature(c, c.Name, c.list); err != nil {
		return err
	}
	for i, key := range c.rows {
		w.packed = w.packed[:0]
		level := s.LoD[i+1]
		for j, v := range level {
			if len(c.RowSplits) > 0 {
				w.packed = protowire.AppendVarint(w.packed, uint64(v))
			} else if j > 0 {
				w.packed = protowire.AppendVarint(w.packed, uint64(v-level[j-1]))
			}
		}
		if err = w.feature(c, w.plan.keys.all[key], ints); err != nil {
			return err
		}
	}
	return nil
}

// feature appends an entry with the packed values to the map, unless it was written before.
func (w *writer) feature(c *column, name string, l list) error {
	w.value = appendList(w.value[:0], l, w.packed)
	if was, there := w.written[name]; there {
		if !bytes.Equal(was, w.value) {
			return pyfeed.SlotErrorf(pyfeed.Shape, c.number, "feature %q: expected the same values as from another slot, found other values", name)
		}
		return nil
	}
	w.entries = appendEntry(w.entries, name, w.value)
	w.written[name] = w.entries[len(w.entries)-len(w.value):]
	return nil
}

// appendEntry appends an entry of a map from names to messages.
func appendEntry(to []byte, name string, value []byte) []byte {
	size := protowire.SizeTag(1) + protowire.SizeBytes(len(name)) + protowire.SizeTag(2) + protowire.SizeBytes(len(value))
	to = protowire.AppendTag(to, 1, protowire.BytesType)
	to = protowire.AppendVarint(to, uint64(size))
	to = appendField(to, 1, []byte(name))
	return appendField(to, 2, value)
}

// steps appends the feature list of a slot.
func (w *writer) steps(c *column, s *pyfeed.LoDTensor) error {
	list, step := []byte(nil), []byte(nil)
	row := 0
	if dims := s.Dims(); dims[0] > 0 {
		row = len(s.Data) / int(dims[0])
	}
	isBytes := c.list == byteStrings && !c.Raw
	for k := range s.LoD[0][1] {
		begin, end := k, k+1 // rows, or byte strings
		if !c.fixed || isBytes && len(c.Shape) > 0 {
			begin, end = s.LoD[1][k], s.LoD[1][k+1]
		}
		w.packed = w.packed[:0]
		var err error
		switch {
		case isBytes:
			if err = c.check(int(end - begin)); err == nil {
				ends := s.LoD[len(s.LoD)-1]
				for i := begin; i < end; i++ {
					w.packed = appendField(w.packed, 1, s.Data[ends[i]:ends[i+1]])
				}
			}
		case c.Raw && (c.fixed || end > begin):
			w.packed = appendField(w.packed, 1, s.Data[int(begin)*row:int(end)*row])
		case c.Raw:
		case c.list == floats:
			err = w.packFloats(c, s.Data[int(begin)*row:int(end)*row])
		default:
			err = w.packInts(c, s.Data[int(begin)*row:int(end)*row])
		}
		if err != nil {
			return err
		}
		step = appendList(step[:0], c.list, w.packed)
		list = appendField(list, 1, step)
	}
	w.lists = appendEntry(w.lists, c.Name, list)
	return nil
}

func (w *writer) packFloats(c *column, data []byte) error {
	if c.slot.DType == pyfeed.Float32 {
		w.packed = append(w.packed, data...)
		return nil
	}
	for i := 0; i < len(data); i += 8 {
		v := math.Float64frombits(binary.LittleEndian.Uint64(data[i:]))
		f := float32(v)
		if float64(f) != v && v == v {
			return pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: value %d: expected a value that float32 represents exactly, found %v: cast it, or use raw",
				c.Name, i/8, v)
		}
		w.packed = binary.LittleEndian.AppendUint32(w.packed, math.Float32bits(f))
	}
	return nil
}

func (w *writer) packInts(c *column, data []byte) error {
	d := c.slot.DType
	size := d.Size()
	for i := 0; i < len(data); i += size {
		v, _ := record.Integer(d, data[i:])
		switch {
		case d == pyfeed.Bool:
			v = min(v, 1)
		case d == pyfeed.Uint64 && v < 0:
			return pyfeed.SlotErrorf(pyfeed.Type, c.number, "feature %q: value %d: expected a value that int64 can represent, found %d", c.Name, i/size, uint64(v))
		}
		w.packed = protowire.AppendVarint(w.packed, uint64(v))
	}
	return nil
}
