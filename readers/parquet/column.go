package parquet

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
)

// outputKind is how the values of a column reach an instance.
type outputKind uint8

const (
	fixedOutput  outputKind = iota // elements in the tile of numbers
	vectorOutput                   // a list with a given number of elements, in the tile of numbers
	bytesOutput                    // one byte string
	listOutput                     // a list of elements or of byte strings, with ragged offsets (LoD, level of detail)
)

// column describes how a column of the file is read.
type column struct {
	leaf         *leaf
	slot         int
	kind         outputKind
	dtype        pyfeed.DType
	size         int       // bytes of an output element
	physicalSize int       // bytes of a stored value; 0: it varies
	convert      converter // nil: elements are the stored values
	text         bool      // the values are byte strings
	at           int       // of the first element in an instance's numbers
	count        int       // elements of a vector

	fallback []byte         // the element or byte string for null; nil: null is an error
	wrong    *columns.Value // the default, if no element of the dtype represents it; nil: it does, or there is none
}

// output describes how a slot of an instance is made.
type output struct {
	slot     pyfeed.Slot
	kind     outputKind
	at, size int // in an instance's numbers
	column   int // of a slot that is not in the tile of numbers: index in table.columns
}

// table says which columns make which slots.
type table struct {
	leaves    []leaf
	columns   []column
	outputs   []output
	slots     []pyfeed.Slot
	slotNames []string
	row       int // size of an instance's numbers, in bytes
	ragged    int // columns that are not in the tile of numbers
}

// group has the columns of one slot.
type group struct {
	name     string
	columns  []int
	single   bool // a column by itself, rather than a list of one column
	dtype    string
	dims     pyfeed.Dims
	noted    pyfeed.Dims // by the writer, of lists of one size; nil: it has noted none
	fallback *columns.Value
	given    *pyfeed.Slot
}

func (t *table) names() *columns.Names {
	all := make([]string, len(t.leaves))
	for i := range t.leaves {
		all[i] = t.leaves[i].label
	}
	return &columns.Names{All: all, Count: len(all)}
}

// plan decides which columns make which slots. stored are the slots that a writer of the library noted.
func (t *table) plan(c *record.Config, o *Options, stored slotsByName) error {
	groups, err := t.group(c, o, stored)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		return pyfeed.Errorf(pyfeed.Invalid, "parquet: expected at least 1 column, found none")
	}
	for i := range groups {
		if err := t.add(i, &groups[i], o); err != nil {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "parquet: %v", err)
		}
	}
	named := false
	for _, g := range groups {
		t.slotNames = append(t.slotNames, g.name)
		named = named || g.name != ""
	}
	if len(c.Names) > 0 {
		t.slotNames = c.Names
	} else if !named {
		t.slotNames = nil
	}
	return nil
}

func (t *table) group(c *record.Config, o *Options, stored slotsByName) (groups []group, err error) {
	names := t.names()
	switch {
	case len(o.Columns) > 0:
		if c.Slots != nil && len(c.Slots) != len(o.Columns) {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "parquet: columns: expected %d, as there are slots, found %d", len(c.Slots), len(o.Columns))
		}
		for i := range o.Columns {
			from := &o.Columns[i]
			g := group{name: from.Name, dtype: from.DType, dims: from.Dims, fallback: from.Default}
			if g.columns, g.single, err = names.Choose(from.Columns); err != nil {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "parquet: columns: %v", err)
			}
			if g.single && g.name == "" {
				g.name = names.All[g.columns[0]]
			}
			if g.single && c.Slots == nil {
				g.noted = stored.dims(&t.leaves[g.columns[0]])
			}
			groups = append(groups, g)
		}
	case c.Slots == nil:
		if len(t.leaves) > columns.MaxSlots {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "parquet: expected at most %d columns where each is a slot, found %d: give columns", columns.MaxSlots, len(t.leaves))
		}
		for i := range t.leaves {
			groups = append(groups, group{name: t.leaves[i].label, columns: []int{i}, single: true, noted: stored.dims(&t.leaves[i])})
		}
	case t.byName(c, names):
		inOrder := slices.Equal(c.Names, names.All) // the columns as they are, of which some may have the same name
		for i, name := range c.Names {
			at := i
			if !inOrder {
				if at, err = names.Index(name); err != nil {
					return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "parquet: %v", err)
				}
			}
			groups = append(groups, group{name: name, columns: []int{at}, single: true})
		}
	default:
		if groups, err = t.inOrder(c); err != nil {
			return nil, err
		}
	}
	for i := range c.Slots {
		groups[i].given = &c.Slots[i]
	}
	return groups, nil
}

// slotsByName are the slots that a writer of the library noted, by the names of their columns. Another program may have
// moved, dropped or changed columns, and kept the note.
type slotsByName map[string]*record.SlotAttributes

// readSlots decodes the note. Without a valid one, there are no slots.
func readSlots(text string) slotsByName {
	var all []record.SlotAttributes
	if text == "" || json.Unmarshal([]byte(text), &all) != nil {
		return nil
	}
	m := slotsByName{}
	for i := range all {
		m[all[i].Name] = &all[i]
	}
	return m
}

// dims returns the noted dims of a column of lists, if its rows have one size.
func (m slotsByName) dims(l *leaf) pyfeed.Dims {
	if s := m[l.label]; s != nil && l.maxRep == 1 && s.LoDLevels == 0 && len(s.Dims) > 0 && elements(s.Dims) > 0 {
		return s.Dims
	}
	return nil
}

// byName reports whether slots are selected by the names of columns.
func (t *table) byName(c *record.Config, names *columns.Names) bool {
	if len(c.Names) != len(c.Slots) {
		return false
	}
	some := false
	for _, name := range c.Names {
		if name == "" {
			return false
		}
		some = some || slices.Contains(names.All, name)
	}
	return some
}

// inOrder gives the slots the columns in order: to a slot of numbers, as many columns of numbers as it has elements.
func (t *table) inOrder(c *record.Config) (groups []group, err error) {
	at := 0
	for i, s := range c.Slots {
		if at >= len(t.leaves) {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "parquet: expected a slot for each of %d columns, found more: the option columns can select some columns", len(t.leaves))
		}
		f := t.leaves[at].form()
		n := 1
		if s.LoDLevels == 0 && t.leaves[at].maxRep == 0 && f.dims == nil && !f.text {
			n = elements(s.Dims)
		}
		g := group{single: n == 1}
		for ; n > 0 && at < len(t.leaves); n-- {
			g.columns = append(g.columns, at)
			at++
		}
		groups = append(groups, g)
	}
	if at != len(t.leaves) {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "parquet: slots: expected slots for all %d columns, found some for %d: the option columns can select some columns", len(t.leaves), at)
	}
	return groups, nil
}

// elements returns the number of elements of dims without -1, at most columns.Max+1.
func elements(dims pyfeed.Dims) int {
	n := int64(1)
	for _, d := range dims {
		if n *= max(0, min(d, columns.Max+1)); n > columns.Max {
			return columns.Max + 1
		}
	}
	return int(n)
}

// add decides how slot i is made.
func (t *table) add(i int, g *group, o *Options) error {
	first := &t.leaves[g.columns[0]]
	dtype, err := g.requestedDType()
	if err != nil {
		return err
	}
	dims := g.dims
	if g.given != nil && g.given.LoDLevels == 0 {
		dims = g.given.Dims
	}
	if first.maxRep > 0 || g.isText(first, dtype) {
		if len(g.columns) != 1 {
			return fmt.Errorf("expected one column of lists or byte strings, found %d columns", len(g.columns))
		}
		return t.addRagged(i, g, first, dtype, dims, o)
	}
	out := output{slot: pyfeed.Slot{Name: g.name}, kind: fixedOutput}
	own := first.form()
	if dtype == pyfeed.Any {
		dtype = own.dtype
	}
	valueSize := max(1, elements(own.dims)) * dtype.Size()
	out.at = t.align(min(dtype.Size(), 8))
	for _, at := range g.columns {
		l := &t.leaves[at]
		f := l.form()
		if l.maxRep > 0 || f.text || elements(f.dims) != elements(own.dims) {
			return fmt.Errorf("expected columns of one kind for a slot, found %s in %v and %s in %v", first.describe(), first, l.describe(), l)
		}
		if f.dtype != own.dtype && g.dtype == "" && (g.given == nil || g.given.DType == pyfeed.Any) {
			return fmt.Errorf("expected columns of one dtype for a slot, found %v in %v and %v in %v: dtype can convert them", own.dtype, first, f.dtype, l)
		}
		c, err := newColumn(i, l, fixedOutput, dtype, valueSize, g, o)
		if err != nil {
			return err
		}
		c.at = t.row
		t.row += valueSize
		t.columns = append(t.columns, c)
	}
	out.size = t.row - out.at
	shape := own.dims
	if !g.single {
		shape = append(pyfeed.Dims{int64(len(g.columns))}, shape...)
	}
	if dims != nil {
		if elements(dims) != elements(shape) {
			return fmt.Errorf("dims: expected %d elements, as %v has, found dims %v", elements(shape), first, dims)
		}
		shape = dims
	}
	out.slot.DType, out.slot.Dims = dtype, slices.Clone(shape)
	return t.addOutput(out)
}

// place returns where the values of a column begin in a tile for n instances, and how many bytes apart they are. A tile
// has the numbers of the first slot of all instances, then those of the second slot, and so on.
func (t *table) place(c *column, n int) (at, stride int) {
	o := &t.outputs[c.slot]
	return n*o.at + c.at - o.at, o.size
}

// align rounds the size of an instance's numbers up to a multiple of a size, which is a power of two, and returns it.
func (t *table) align(size int) int {
	t.row = (t.row + size - 1) &^ (size - 1)
	return t.row
}

func (t *table) addOutput(out output) error {
	if len(out.slot.Dims) > pyfeed.MaxRank {
		return fmt.Errorf("rank: expected at most %d dimensions, found %d", pyfeed.MaxRank, len(out.slot.Dims))
	}
	if t.row > maxRow {
		return fmt.Errorf("expected instances of at most %d bytes of numbers, found more", maxRow)
	}
	t.outputs = append(t.outputs, out)
	t.slots = append(t.slots, out.slot)
	return nil
}

// maxRow is the largest size of the numbers of an instance, in bytes.
const maxRow = 64 << 20

// requestedDType returns the dtype that is asked for; Any: none is, or it is that of bytes.
func (g *group) requestedDType() (pyfeed.DType, error) {
	d := pyfeed.Any
	if g.dtype != "" && g.dtype != "bytes" {
		known := false
		if d, known = pyfeed.DTypeOf(g.dtype); !known {
			return d, fmt.Errorf("dtype: expected bytes or the name of a dtype, found %q", g.dtype)
		}
	}
	if g.given == nil || g.given.DType == pyfeed.Any || d == g.given.DType {
		return d, nil
	}
	if d != pyfeed.Any {
		return d, fmt.Errorf("dtype: expected %v, as the slot says, found %v", g.given.DType, d)
	}
	return g.given.DType, nil
}

// isText reports whether a column without lists is read as byte strings of any length.
func (g *group) isText(l *leaf, d pyfeed.DType) bool {
	if g.dtype == "bytes" || g.given != nil && g.given.LoDLevels > 0 {
		return true
	}
	return l.form().text
}

// addRagged adds a slot of one column of lists or byte strings.
func (t *table) addRagged(i int, g *group, l *leaf, dtype pyfeed.DType, dims pyfeed.Dims, o *Options) error {
	f := l.form()
	valueDims := f.dims
	isBytes := l.typ == typeByteArray || l.typ == typeFixed
	wantsText := g.dtype == "bytes"
	if wantsText && !isBytes {
		return fmt.Errorf("dtype: expected a column of byte strings for bytes, found %s in %v", l.describe(), l)
	}
	levels := l.maxRep
	text := f.text && (dtype == pyfeed.Any || dtype == pyfeed.Uint8) || wantsText
	if g.given != nil && isBytes && g.given.LoDLevels == levels+1 {
		text = true
	}
	if dtype == pyfeed.Any {
		dtype = f.dtype
	}
	if text {
		dtype, valueDims = pyfeed.Uint8, nil
		levels++
	}
	if l.maxRep == 0 && !text {
		if isBytes {
			return fmt.Errorf("dtype: expected bytes, as %v has, found %v: byte strings are not converted", l, dtype)
		}
		return fmt.Errorf("expected byte strings, found %s in %v", l.describe(), l)
	}
	if dims == nil && !text {
		dims = g.noted
	}
	size := max(1, elements(valueDims)) * dtype.Size()
	out := output{slot: pyfeed.Slot{Name: g.name, DType: dtype}}
	vector := dims != nil && !text && l.maxRep > 0 && !slices.Contains(dims, -1) && (g.given == nil || g.given.LoDLevels == 0)
	kind := listOutput
	switch {
	case vector:
		kind = vectorOutput
		out.at = t.align(min(dtype.Size(), 8))
		count := elements(dims) / max(1, elements(valueDims))
		if count == 0 {
			return fmt.Errorf("dims: expected at least 1 element, found dims %v", dims)
		}
		if count*max(1, elements(valueDims)) != elements(dims) || l.maxRep != 1 {
			return fmt.Errorf("dims: expected those of a list of %s, found %v", l.describe(), dims)
		}
		out.slot.Dims, out.size = slices.Clone(dims), count*size
	case text && l.maxRep == 0:
		kind = bytesOutput
		out.slot.Dims, out.slot.LoDLevels = pyfeed.Dims{-1}, 1
	default:
		out.slot.Dims, out.slot.LoDLevels = append(pyfeed.Dims{-1}, valueDims...), levels
	}
	if g.given != nil && g.given.LoDLevels != out.slot.LoDLevels {
		return fmt.Errorf("LoD: expected %d levels, as %s in %v has, found %d", out.slot.LoDLevels, l.describe(), l, g.given.LoDLevels)
	}
	if dims != nil && !slices.Equal(dims, out.slot.Dims) {
		return fmt.Errorf("dims: expected %v, as %s in %v has, found %v", out.slot.Dims, l.describe(), l, dims)
	}
	c, err := newColumn(i, l, kind, dtype, size, g, o)
	if err != nil {
		return err
	}
	if c.text = text; text {
		c.size, c.convert = 1, nil
	}
	out.kind = kind
	if vector {
		c.at, c.count = t.row, out.size/size
		t.row += out.size
	} else {
		t.ragged++
		out.column = len(t.columns)
	}
	t.columns = append(t.columns, c)
	return t.addOutput(out)
}

// hasDefault reports whether there is a default. A null list is then empty, whatever the default is.
func (c *column) hasDefault() bool { return c.fallback != nil || c.wrong != nil }

func newColumn(slot int, l *leaf, kind outputKind, dtype pyfeed.DType, size int, g *group, o *Options) (column, error) {
	c := column{leaf: l, slot: slot, kind: kind, dtype: dtype, size: size, physicalSize: l.typ.size()}
	if l.typ == typeFixed {
		c.physicalSize = l.length
	}
	fallback := g.fallback
	if fallback == nil {
		fallback = o.Default
	}
	f := l.form()
	if f.text || g.dtype == "bytes" || kind == bytesOutput {
		if fallback != nil {
			c.fallback = []byte(*fallback) // not nil, even if it is empty
		}
		return c, nil
	}
	var err error
	if c.convert, err = requested(l, dtype); err != nil {
		return c, fmt.Errorf("%v: %w", l, err)
	}
	if fallback != nil {
		element, ok := number.Element(string(*fallback), dtype)
		if !ok {
			if g.fallback != nil { // that of the options may be for other columns
				return c, fmt.Errorf("%v: default: expected a value of %v, found %q", l, dtype, *fallback)
			}
			c.wrong = fallback
			return c, nil
		}
		c.fallback = slices.Repeat(element, max(1, elements(f.dims)))
	}
	return c, nil
}
