package arrow

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

const (
	defaultRecords = 8192     // of a batch
	batchBytes     = 16 << 20 // from which on a batch is written
	alignment      = 64       // of buffers in the file, in bytes
)

// Create creates a file, or a stream if the suffix is .arrows. The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	o := record.OptionsFrom[Options](c)
	if o.Columns != nil || o.Default != nil {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "arrow: columns and default are for reading")
	}
	w := &writer{stream: isStream(path), records: cmp.Or(o.BatchRecords, defaultRecords)}
	w.Names = c.Names
	w.Encode, w.Finish = w.encode, w.finish
	var err error
	if w.codec, err = codecOf(o.Compression); err != nil {
		return nil, err
	}
	if record.BigEndian {
		return nil, pyfeed.Errorf(pyfeed.Unsupported, "arrow: expected a machine that stores the low byte of a number first, found another")
	}
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
		open := func(s pyfeed.Slot) bool {
			dims := s.Dims
			if s.LoDLevels > 0 && len(dims) > 0 {
				dims = dims[1:]
			}
			return s.DType == pyfeed.Any || slices.Contains(dims, -1)
		}
		if !slices.ContainsFunc(c.Slots, open) {
			if err = w.setSlots(c.Slots); err != nil {
				return nil, err
			}
		}
	}
	if w.Sink, err = storage.Create(path, c.Storage.Compression); err != nil {
		return nil, err
	}
	return w, nil
}

// isStream reports whether a path has the suffix of streams.
func isStream(path string) bool {
	name := storage.CutShardNumber(filepath.Base(path))
	if storage.ByName(name) != "none" {
		name = storage.CutShardNumber(strings.TrimSuffix(name, filepath.Ext(name)))
	}
	return strings.HasSuffix(name, ".arrows")
}

func codecOf(compression string) (int, error) {
	switch compression {
	case "", "none":
		return codecNone, nil
	case "lz4":
		return codecLZ4, nil
	case "zstd":
		return codecZstd, nil
	}
	return 0, pyfeed.Errorf(pyfeed.Invalid, "arrow: compression: expected none, lz4 or zstd, found %q", compression)
}

// writer writes a file. It collects the columns of a batch in memory.
type writer struct {
	record.FileWriter
	stream  bool
	codec   int
	records int       // of a batch, at most
	columns []written // nil: the first tuple decides
	begun   bool
	rows    int
	bytes   int
	batches []block

	zstd *zstd.Encoder
	lz4  *lz4.Writer
}

// written is a column that is written.
type written struct {
	name    string
	dtype   pyfeed.DType
	dims    pyfeed.Dims // of fixed_size_lists
	text    bool        // elements are byte strings
	offsets [][]int32   // of the levels of lists, and of byte strings
	data    []byte
	count   int // elements of data
}

// setSlots sets the slots of all instances.
func (w *writer) setSlots(slots []pyfeed.Slot) (err error) {
	if len(slots) > columns.MaxSlots {
		return pyfeed.Errorf(pyfeed.Slots, "arrow: expected at most %d slots, found %d", columns.MaxSlots, len(slots))
	}
	w.columns = nil
	for i, s := range slots {
		c := written{name: cmp.Or(s.Name, w.SlotName(i)), dtype: s.DType, dims: s.Dims}
		if err := record.CheckName(i, "arrow", c.name); err != nil {
			return err
		}
		if s.LoDLevels > 0 {
			c.dims = s.Dims[1:]
		}
		c.text = s.DType == pyfeed.Uint8 && s.LoDLevels > 0 && len(c.dims) == 0
		for range s.LoDLevels {
			c.offsets = append(c.offsets, []int32{0})
		}
		switch {
		case !hasType(s.DType):
			return pyfeed.SlotErrorf(pyfeed.Type, i, "arrow: dtype: expected real numbers, bool, or byte strings, found %v", s.DType)
		case s.LoDLevels > 2:
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "arrow: LoD: expected at most 2 levels, found %d", s.LoDLevels)
		case slices.Contains(c.dims, -1):
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "arrow: dims: expected sizes without -1, except the first with LoD, found %v", s.Dims)
		case slices.ContainsFunc(c.dims, func(d int64) bool { return d > math.MaxInt32 }):
			return pyfeed.SlotErrorf(pyfeed.Shape, i, "arrow: dims: expected sizes of at most %d, found %v", math.MaxInt32, s.Dims)
		}
		w.columns = append(w.columns, c)
	}
	w.Spec, err = pyfeed.NewSpec(slots)
	return err
}

// hasType reports whether Arrow has the elements of a dtype.
func hasType(d pyfeed.DType) bool {
	_, real := number.KindOf(d)
	return real && d != pyfeed.BFloat16
}

func (w *writer) encode(t *pyfeed.Tuple) error {
	if w.columns == nil {
		if err := w.setSlots(record.DescribeTuple(t)); err != nil {
			return err
		}
		if err := w.Spec.Check(t); err != nil {
			return err
		}
	}
	for i := range t.Slots {
		if err := w.columns[i].add(i, &t.Slots[i]); err != nil {
			return err
		}
		w.bytes += len(t.Slots[i].Data) + 8*len(w.columns[i].offsets)
	}
	w.rows++
	if w.rows >= w.records || w.bytes >= batchBytes {
		return w.flush()
	}
	return nil
}

// add adds the slot of an instance.
func (c *written) add(slot int, s *pyfeed.LoDTensor) error {
	size, err := s.Measure()
	if err != nil || size != len(s.Data) {
		return pyfeed.SlotErrorf(pyfeed.Shape, slot, "expected %d bytes of data, found %d", size, len(s.Data))
	}
	if err := s.CheckLoD(); err != nil {
		return pyfeed.SlotErrorf(pyfeed.Shape, slot, "%v", err)
	}
	if s.Place.Kind == pyfeed.CUDA {
		return pyfeed.SlotErrorf(pyfeed.Invalid, slot, "place: expected memory of the host, found %v", s.Place)
	}
	if len(c.offsets) > 0 {
		if n := s.LoD.Sequences(); n != 1 {
			return pyfeed.SlotErrorf(pyfeed.Shape, slot, "arrow: expected one sequence, that of an instance, found %d", n)
		}
		for i, level := range s.LoD {
			to := &c.offsets[i]
			base := int64((*to)[len(*to)-1])
			if base+level[len(level)-1] > math.MaxInt32 {
				return pyfeed.SlotErrorf(pyfeed.TooLarge, slot, "arrow: expected at most %d elements in the lists of a batch, found more", math.MaxInt32)
			}
			for _, end := range level[1:] {
				*to = append(*to, int32(base+end))
			}
		}
	}
	if c.dtype == pyfeed.Bool {
		for _, b := range s.Data {
			if c.count%8 == 0 {
				c.data = append(c.data, 0)
			}
			if b != 0 {
				c.data[c.count/8] |= 1 << (c.count % 8)
			}
			c.count++
		}
		return nil
	}
	c.data = append(c.data, s.Data...)
	c.count += len(s.Data) / c.dtype.Size()
	return nil
}

// begin writes the schema.
func (w *writer) begin() error {
	if w.begun {
		return nil
	}
	w.begun = true
	if !w.stream {
		if _, err := w.Sink.Write([]byte(fileMagic + "\x00\x00")); err != nil {
			return err
		}
	}
	b := newBuilder()
	header := b.message(schemaMessage, 0)
	b.refer(header, w.schema(b))
	_, err := w.message(b, nil)
	return err
}

// message appends the table of a message, and returns the offset of the reference to its header.
func (b *builder) message(kind byte, body int64) int {
	at, fields := b.table(tableField{3, 8, uint64(body)}, reference(2), tableField{0, 2, version5}, tableField{1, 1, uint64(kind)})
	b.refer(0, at)
	return fields[1]
}

// message writes a message, whose body begins at a multiple of alignment. It returns where it is.
func (w *writer) message(b *builder, body [][]byte) (block, error) {
	at := w.Sink.Offset()
	for (at+prefixBytes+int64(len(b.data)))%alignment != 0 {
		b.data = append(b.data, 0)
	}
	head := binary.LittleEndian.AppendUint32(nil, continuation)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(b.data)))
	for _, part := range append([][]byte{head, b.data}, body...) {
		if _, err := w.Sink.Write(part); err != nil {
			return block{}, err
		}
	}
	metadata := int64(prefixBytes + len(b.data))
	return block{at, metadata, w.Sink.Offset() - at - metadata}, nil
}

// schema appends a Schema.
func (w *writer) schema(b *builder) int {
	at, fields := b.table(reference(1))
	for i, from := range b.references(fields[0], len(w.columns)) {
		b.refer(from, w.columns[i].field(b, w.columns[i].name, w.columns[i].nesting()))
	}
	return at
}

// nesting returns the types from the column down to its elements.
func (c *written) nesting() (types []int) {
	for range len(c.offsets) - pick(c.text, 1, 0) {
		types = append(types, typeList)
	}
	for range c.dims {
		types = append(types, typeFixedList)
	}
	return types
}

// field appends the Field of a column, or of what is in its lists.
func (c *written) field(b *builder, name string, types []int) int {
	kind := byte(typeInt)
	switch {
	case len(types) > 0:
		kind = byte(types[0])
	case c.text:
		kind = typeBinary
	case c.dtype == pyfeed.Bool:
		kind = typeBool
	case c.dtype == pyfeed.Float16 || c.dtype == pyfeed.Float32 || c.dtype == pyfeed.Float64:
		kind = typeFloat
	}
	at, fields := b.table(reference(0), reference(3), reference(5), tableField{1, 1, 1}, tableField{2, 1, uint64(kind)})
	b.text(fields[0], name)
	var details int
	switch kind {
	case typeFixedList:
		size := c.dims[len(c.dims)-countOf(types, typeFixedList)]
		details, _ = b.table(tableField{0, 4, uint64(size)})
	case typeInt:
		below, _ := number.Bounds(c.dtype)
		details, _ = b.table(tableField{0, 4, uint64(8 * c.dtype.Size())}, tableField{1, 1, pick[uint64](below > 0, 1, 0)})
	case typeFloat:
		details, _ = b.table(tableField{0, 2, uint64(c.dtype.Size() / 4)})
	default:
		details, _ = b.table()
	}
	b.refer(fields[1], details)
	for _, child := range b.references(fields[2], min(len(types), 1)) {
		b.refer(child, c.field(b, "item", types[1:]))
	}
	return at
}

func countOf(types []int, kind int) (n int) {
	for _, t := range types {
		if t == kind {
			n++
		}
	}
	return n
}

// flush writes the rows that were collected as a batch.
func (w *writer) flush() error {
	if err := w.begin(); err != nil {
		return err
	}
	var nodes []node
	var parts []part
	var body [][]byte
	at := int64(0)
	add := func(data []byte) error {
		data, err := w.compress(data)
		if err != nil {
			return err
		}
		parts = append(parts, part{at, int64(len(data))})
		padded := (len(data) + alignment - 1) &^ (alignment - 1)
		body = append(body, data, make([]byte, padded-len(data)))
		at += int64(padded)
		return nil
	}
	for i := range w.columns {
		c := &w.columns[i]
		n := w.rows
		lists := len(c.offsets) - pick(c.text, 1, 0)
		for k, offsets := range c.offsets {
			if k == lists {
				break
			}
			nodes = append(nodes, node{int64(n), 0})
			parts = append(parts, part{at, 0})
			if err := add(bytesOf(offsets)); err != nil {
				return err
			}
			n = int(offsets[len(offsets)-1])
		}
		for _, d := range c.dims {
			nodes = append(nodes, node{int64(n), 0})
			parts = append(parts, part{at, 0})
			n *= int(d)
		}
		nodes = append(nodes, node{int64(n), 0})
		parts = append(parts, part{at, 0})
		if c.text {
			if err := add(bytesOf(c.offsets[lists])); err != nil {
				return err
			}
		}
		if err := add(c.data); err != nil {
			return err
		}
	}
	b := newBuilder()
	header := b.message(batchMessage, at)
	fields := []tableField{{0, 8, uint64(w.rows)}, reference(1), reference(2)}
	if w.codec != codecNone {
		fields = append(fields, reference(3))
	}
	table, offsets := b.table(fields...)
	b.refer(header, table)
	b.vector(offsets[1], len(nodes), 8)
	for _, n := range nodes {
		b.long(n.length)
		b.long(n.nulls)
	}
	b.vector(offsets[2], len(parts), 8)
	for _, p := range parts {
		b.long(p.at)
		b.long(p.size)
	}
	if w.codec != codecNone {
		compression, _ := b.table(tableField{0, 1, uint64(w.codec)}, tableField{1, 1, 0})
		b.refer(offsets[3], compression)
	}
	where, err := w.message(b, body)
	if err != nil {
		return err
	}
	w.batches = append(w.batches, where)
	w.rows, w.bytes = 0, 0
	for i := range w.columns {
		c := &w.columns[i]
		c.data, c.count = c.data[:0], 0
		for k := range c.offsets {
			c.offsets[k] = append(c.offsets[k][:0], 0)
		}
	}
	return nil
}

func bytesOf(offsets []int32) []byte {
	b := make([]byte, 0, 4*len(offsets))
	for _, v := range offsets {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return b
}

// compress returns a buffer as the codec stores it: its size, and the compressed bytes, or -1 and the bytes themselves
// if these are fewer. An empty buffer stays empty.
func (w *writer) compress(data []byte) ([]byte, error) {
	if w.codec == codecNone || len(data) == 0 {
		return data, nil
	}
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	if w.codec == codecZstd {
		if w.zstd == nil {
			var err error
			if w.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)); err != nil {
				return nil, err
			}
		}
		out = w.zstd.EncodeAll(data, out)
	} else {
		to := bytes.NewBuffer(out)
		if w.lz4 == nil {
			w.lz4 = lz4.NewWriter(nil)
			if err := w.lz4.Apply(lz4.ConcurrencyOption(1), lz4.ChecksumOption(false)); err != nil {
				return nil, err
			}
		}
		w.lz4.Reset(to)
		_, err := w.lz4.Write(data)
		if err == nil {
			err = w.lz4.Close()
		}
		if err != nil {
			return nil, err
		}
		out = to.Bytes()
	}
	if len(out) < 8+len(data) {
		return out, nil
	}
	out = binary.LittleEndian.AppendUint64(out[:0], math.MaxUint64)
	return append(out, data...), nil
}

// finish writes the rest, and the footer of a file.
func (w *writer) finish() error {
	if w.columns == nil {
		return pyfeed.Errorf(pyfeed.State, "arrow: expected at least one tuple, found none: its dtypes and shapes are needed unless slots give them")
	}
	if w.rows > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if err := w.begin(); err != nil {
		return err
	}
	end := binary.LittleEndian.AppendUint64(nil, continuation) // and the length 0
	if !w.stream {
		b := newBuilder()
		at, fields := b.table(reference(1), reference(2), reference(3), tableField{0, 2, version5})
		b.refer(0, at)
		b.refer(fields[0], w.schema(b))
		b.vector(fields[1], 0, 8)
		b.vector(fields[2], len(w.batches), 8)
		for _, one := range w.batches {
			b.long(one.at)
			b.long(one.metadata)
			b.long(one.body)
		}
		end = append(end, b.data...)
		end = binary.LittleEndian.AppendUint32(end, uint32(len(b.data)))
		end = append(end, fileMagic...)
	}
	_, err := w.Sink.Write(end)
	return err
}
