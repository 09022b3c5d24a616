package parquet

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// Row groups are written after this many rows, or this many bytes.
const (
	groupRows  = 128 << 10
	groupBytes = 64 << 20
)

// createdBy names the writer in each file.
const createdBy = "pyfeed"

// Create creates a file for writing. The first tuple decides what the slots leave open.
func Create(path string, c *record.Config) (record.Writer, error) {
	o := record.OptionsFrom[Options](c)
	w := &writer{rows: int64(o.RowGroupRecords), limit: groupBytes}
	w.Names = c.Names
	w.Encode, w.Finish = w.encode, w.finish
	var err error
	if w.codec, err = newCompressor(o.Compression); err != nil {
		return nil, err
	}
	switch {
	case o.Columns != nil || o.Default != nil || o.Where != nil:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "parquet: columns, default and where are for reading")
	case o.RowGroupRecords < 0:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "row_group_records: expected at least 1, found %d", o.RowGroupRecords)
	case o.RowGroupRecords == 0:
		w.rows = groupRows
	default:
		w.limit = 1 << 30
	}
	if compression := c.Storage.Compression; compression != "" && compression != "auto" && compression != "none" || storage.ByName(path) != "none" {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "parquet: expected a file that is not compressed as a whole, found %s: the option compression compresses its pages", path)
	}
	if len(c.Slots) > 0 {
		if w.Spec, err = pyfeed.NewSpec(c.Slots); err != nil {
			return nil, err
		}
		open := func(s pyfeed.Slot) bool {
			return s.DType == pyfeed.Any || s.LoDLevels == 0 && slices.Contains(s.Dims, -1)
		}
		if !slices.ContainsFunc(c.Slots, open) {
			if err := w.setSlots(c.Slots); err != nil {
				return nil, err
			}
		}
	}
	if w.Sink, err = storage.Create(path, "none"); err != nil {
		return nil, err
	}
	return w, nil
}

// writer writes a file. Rows are collected until a row group is complete.
type writer struct {
	record.FileWriter
	codec   *compressor
	rows    int64 // of a row group
	limit   int   // bytes of a row group
	slots   []pyfeed.Slot
	columns []*columnWriter // nil: the first tuple decides
	pending int64           // rows of the row group
	bytes   int             // of them
	groups  []groupMeta
	total   int64
}

// setSlots decides the columns.
func (w *writer) setSlots(slots []pyfeed.Slot) (err error) {
	if w.Spec == nil {
		if w.Spec, err = pyfeed.NewSpec(slots); err != nil {
			return err
		}
	}
	names := map[string]bool{}
	for i, s := range slots {
		c, err := newColumnWriter(i, s)
		if err != nil {
			return err
		}
		if c.name = w.SlotName(i); names[c.name] {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "parquet: names: expected each name once, found %q twice", c.name)
		}
		names[c.name] = true
		if err := record.CheckName(i, "parquet", c.name); err != nil {
			return err
		}
		w.columns = append(w.columns, c)
	}
	w.slots = slots
	return nil
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
	for i, c := range w.columns {
		n, err := c.add(&t.Slots[i])
		if err != nil {
			return err
		}
		w.bytes += n
	}
	w.pending++
	if w.pending == w.rows || w.bytes >= w.limit {
		return w.flush()
	}
	return nil
}

// begin writes the first bytes of the file.
func (w *writer) begin() error {
	if w.Sink.Offset() > 0 {
		return nil
	}
	_, err := w.Sink.Write(magic)
	return err
}

// flush writes the rows as a row group.
func (w *writer) flush() error {
	if w.pending == 0 {
		return nil
	}
	if err := w.begin(); err != nil {
		return err
	}
	g := groupMeta{rows: w.pending}
	for _, c := range w.columns {
		m, err := c.flush(w.Sink, w.codec)
		if err != nil {
			return err
		}
		g.columns = append(g.columns, m)
	}
	w.groups = append(w.groups, g)
	w.total += w.pending
	w.pending, w.bytes = 0, 0
	return nil
}

// finish writes the last row group and the footer.
func (w *writer) finish() error {
	if w.columns == nil {
		return pyfeed.Errorf(pyfeed.State, "parquet: expected at least one tuple, found none: the columns are needed unless slots give them")
	}
	if err := w.flush(); err != nil {
		return err
	}
	if err := w.begin(); err != nil { // without rows, there was no row group
		return err
	}
	footer, err := w.footer()
	if err != nil {
		return err
	}
	footer = binary.LittleEndian.AppendUint32(footer, uint32(len(footer)))
	_, err = w.Sink.Write(append(footer, magic...))
	return err
}

// footer encodes the metadata of the file.
func (w *writer) footer() ([]byte, error) {
	t := &thriftWriter{}
	t.begin()
	t.i32(1, 2) // version
	nodes := 1
	for _, c := range w.columns {
		nodes += 1 + 2*c.lists()
	}
	t.list(2, thriftStruct, nodes)
	t.begin()
	t.bytes(4, "schema")
	t.i32(5, len(w.columns))
	t.end()
	for _, c := range w.columns {
		c.schema(t)
	}
	t.i64(3, w.total)
	t.list(4, thriftStruct, len(w.groups))
	for i := range w.groups {
		w.group(t, &w.groups[i])
	}
	stored := make([]record.SlotAttributes, len(w.slots))
	for i, s := range w.slots {
		stored[i] = record.SlotAttributes{Name: w.columns[i].name, DType: w.columns[i].dtype.String(), Dims: s.Dims, LoDLevels: s.LoDLevels}
		if s.Dims == nil {
			stored[i].Dims = pyfeed.Dims{}
		}
	}
	text, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	t.list(5, thriftStruct, 1)
	t.begin()
	t.bytes(1, slotsKey)
	t.bytes(2, string(text))
	t.end()
	t.bytes(6, createdBy)
	// The order of minima and maxima is that of the type.
	t.list(7, thriftStruct, len(w.columns))
	for range w.columns {
		t.begin()
		t.structure(1, func() {})
		t.end()
	}
	t.end()
	return t.data, nil
}

// group encodes the metadata of a row group.
func (w *writer) group(t *thriftWriter, g *groupMeta) {
	t.begin()
	t.list(1, thriftStruct, len(g.columns))
	bytes, packed := int64(0), int64(0)
	for i := range g.columns {
		m, c := &g.columns[i], w.columns[i]
		bytes += m.uncompressed
		packed += m.compressed
		t.begin()
		t.i64(2, 0) // file_offset, which is no longer used
		t.structure(3, func() {
			t.i32(1, int(c.typ))
			t.list(2, thriftI32, 2)
			t.data = binary.AppendVarint(t.data, int64(plain))
			t.data = binary.AppendVarint(t.data, int64(runLength))
			path := c.path()
			t.list(3, thriftBinary, len(path))
			for _, name := range path {
				t.item(name)
			}
			t.i32(4, int(m.codec))
			t.i64(5, m.values)
			t.i64(6, m.uncompressed)
			t.i64(7, m.compressed)
			t.i64(9, m.data)
			t.structure(12, func() {
				t.i64(3, 0) // nulls
				if m.statistics.min != nil {
					t.bytes(5, string(m.statistics.max))
					t.bytes(6, string(m.statistics.min))
				}
			})
		})
		t.end()
	}
	t.i64(2, bytes)
	t.i64(3, g.rows)
	t.i64(5, g.columns[0].data)
	t.i64(6, packed)
	t.end()
}

// columnWriter collects the values of a slot.
type columnWriter struct {
	slot     int
	name     string
	dtype    pyfeed.DType
	dims     pyfeed.Dims // of a value that is written as a list; nil: a number
	count    int         // elements of dims
	levels   int         // of lists with ragged offsets
	text     bool        // the innermost level is that of byte strings
	typ      physical
	size     int // of a stored number
	notUTF8  bool
	values   []byte
	entries  int64 // values, and the empty lists
	rep, def []uint8
	bounds   bounds
}

func newColumnWriter(i int, s pyfeed.Slot) (*columnWriter, error) {
	c := &columnWriter{slot: i, dtype: s.DType, levels: s.LoDLevels, count: 1}
	refuse := func(format string, args ...any) (*columnWriter, error) {
		return nil, pyfeed.SlotErrorf(pyfeed.Type, i, "parquet: "+format, args...)
	}
	switch s.DType {
	case pyfeed.Bool:
		c.typ, c.size = typeBoolean, 1
	case pyfeed.Int8, pyfeed.Int16, pyfeed.Int32, pyfeed.Uint8, pyfeed.Uint16, pyfeed.Uint32:
		c.typ, c.size = typeInt32, 4
	case pyfeed.Int64, pyfeed.Uint64:
		c.typ, c.size = typeInt64, 8
	case pyfeed.Float16:
		c.typ, c.size = typeFixed, 2
	case pyfeed.Float32:
		c.typ, c.size = typeFloat, 4
	case pyfeed.Float64:
		c.typ, c.size = typeDouble, 8
	default:
		return refuse("dtype: expected bool, integers, float16, float32, float64 or bytes, found %v, which Parquet does not have", s.DType)
	}
	if s.LoDLevels > 0 {
		if len(s.Dims) != 1 {
			return refuse("dims: expected [-1] with a LoD (level of detail), found %v", s.Dims)
		}
		if c.text = s.DType == pyfeed.Uint8; c.text { // byte strings
			c.levels--
			c.typ, c.size = typeByteArray, 0
		}
		return c, nil
	}
	if len(s.Dims) > 0 {
		c.dims = s.Dims
		for _, d := range s.Dims {
			c.count *= int(d)
		}
		if c.count == 0 {
			return refuse("dims: expected at least 1 element, found dims %v", s.Dims)
		}
	}
	return c, nil
}

// lists returns how many lists are around a value.
func (c *columnWriter) lists() int {
	if c.dims != nil {
		return 1
	}
	return c.levels
}

// path returns the names of the nodes of the schema down to the values.
func (c *columnWriter) path() []string {
	path := []string{c.name}
	for range c.lists() {
		path = append(path, "list", "element")
	}
	return path
}

// schema encodes the nodes of the schema.
func (c *columnWriter) schema(t *thriftWriter) {
	name := c.name
	for range c.lists() {
		t.begin()
		t.i32(3, int(required))
		t.bytes(4, name)
		t.i32(5, 1)
		t.i32(6, 3) // LIST
		t.structure(10, func() { t.structure(3, func() {}) })
		t.end()
		t.begin()
		t.i32(3, int(repeated))
		t.bytes(4, "list")
		t.i32(5, 1)
		t.end()
		name = "element"
	}
	t.begin()
	t.i32(1, int(c.typ))
	if c.typ == typeFixed {
		t.i32(2, c.size)
	}
	t.i32(3, int(required))
	t.bytes(4, name)
	switch bits := 8 * c.dtype.Size(); {
	case c.text && !c.notUTF8:
		t.i32(6, 0) // UTF8
		t.structure(10, func() { t.structure(1, func() {}) })
	case c.text:
	case c.typ == typeFixed:
		t.structure(10, func() { t.structure(15, func() {}) }) // FLOAT16
	case isInteger(c.dtype) && c.dtype != pyfeed.Bool && c.dtype != pyfeed.Int32 && c.dtype != pyfeed.Int64:
		unsigned := c.dtype >= pyfeed.Uint8
		converted := 15
		if unsigned {
			converted = 11
		}
		for n := bits; n > 8; n /= 2 {
			converted++
		}
		t.i32(6, converted)
		t.structure(10, func() {
			t.structure(10, func() {
				t.i8(1, byte(bits))
				t.bool(2, !unsigned)
			})
		})
	}
	t.end()
}

// add collects a value, and returns about how many bytes it takes.
func (c *columnWriter) add(s *pyfeed.LoDTensor) (int, error) {
	size, err := s.Measure()
	if err != nil || size != len(s.Data) {
		return 0, pyfeed.SlotErrorf(pyfeed.Shape, c.slot, "expected %d bytes of data, found %d", size, len(s.Data))
	}
	if s.Place.Kind == pyfeed.CUDA {
		return 0, pyfeed.SlotErrorf(pyfeed.Invalid, c.slot, "place: expected memory of the host, found %v", s.Place)
	}
	before := len(c.values) + len(c.rep)
	switch {
	case len(s.LoD) == 0:
		if c.dims != nil {
			c.level(0, 1)
			for range c.count - 1 {
				c.level(1, 1)
			}
		}
		c.numbers(s.Data)
	default:
		if n := s.LoD.Sequences(); n != 1 {
			return 0, pyfeed.SlotErrorf(pyfeed.Shape, c.slot, "parquet: expected one sequence, that of an instance, found %d", n)
		}
		if err := s.CheckLoD(); err != nil {
			return 0, pyfeed.SlotErrorf(pyfeed.Shape, c.slot, "%v", err)
		}
		c.sequence(s, 0, 0, 0)
	}
	return len(c.values) + len(c.rep) - before, nil
}

// level notes the levels of a value or of an empty list.
func (c *columnWriter) level(rep, def int) {
	c.rep, c.def = append(c.rep, uint8(rep)), append(c.def, uint8(def))
}

// sequence collects the i-th sequence of a level of detail. rep is the repetition level of its first value.
func (c *columnWriter) sequence(s *pyfeed.LoDTensor, level, i, rep int) {
	from, end := int(s.LoD[level][i]), int(s.LoD[level][i+1])
	switch {
	case c.text && level == c.levels:
		if c.levels > 0 {
			c.level(rep, c.levels)
		}
		c.string(s.Data[from:end])
	case from == end:
		c.level(rep, level)
	case level == len(s.LoD)-1:
		c.level(rep, c.levels)
		for range end - from - 1 {
			c.level(c.levels, c.levels)
		}
		size := s.DType.Size()
		c.numbers(s.Data[from*size : end*size])
	default:
		for k := from; k < end; k++ {
			c.sequence(s, level+1, k, rep)
			rep = level + 1
		}
	}
}

// string appends a byte string behind its size.
func (c *columnWriter) string(data []byte) {
	c.notUTF8 = c.notUTF8 || !utf8.Valid(data)
	c.values = binary.LittleEndian.AppendUint32(c.values, uint32(len(data)))
	c.values = append(c.values, data...)
	c.entries++
}

// numbers appends elements in their stored form.
func (c *columnWriter) numbers(data []byte) {
	size := c.dtype.Size()
	c.bounds.add(c.dtype, data)
	c.entries += int64(len(data) / size)
	if c.size == size {
		c.values = append(c.values, data...)
		return
	}
	for ; len(data) > 0; data = data[size:] {
		v, _ := record.Integer(c.dtype, data)
		c.values = binary.LittleEndian.AppendUint32(c.values, uint32(v))
	}
}
