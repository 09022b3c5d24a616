package csv

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
)

// column describes how one column of the file is read.
type column struct {
	kind         number.Kind
	dtype        pyfeed.DType
	size         int    // of an element, in bytes
	at           int    // offset of the element in a row; of text: its number among the text slots
	below, above uint64 // limits of an integer below and above 0
	slot         int
	number       int    // of the column
	name         string // "" without a header

	missing         uint64 // value of an empty field
	hasMissing      bool
	unrepresentable string // text of the option missing, if the dtype cannot represent it

	inferred bool // the dtype was inferred from the first records
}

func (c *column) String() string { return columns.Label(c.name, c.number) }

// output describes how a slot of an instance is made.
type output struct {
	dtype    pyfeed.DType
	dims     pyfeed.Dims
	text     bool
	at, size int // offset and size in a row; of text: at is its number among the text slots
}

// group has the columns of one slot, before their dtypes are known.
type group struct {
	name    string
	columns []int
	single  bool // a column by itself, rather than a list of one column
	dtype   string
	dims    pyfeed.Dims
	missing *columns.Value // of an empty field; nil: that of the options
}

// emptyField returns the value of an empty field of numbers; nil: an empty field is an error.
func (g *group) emptyField(o *Options) *columns.Value { return cmp.Or(g.missing, o.Missing) }

// checkText returns an error if the properties of a slot of text are not valid.
func (g *group) checkText() error {
	if g.dims != nil && !slices.Equal(g.dims, record.BytesSlot.Dims) {
		return fmt.Errorf("dims: expected %v, as text has, found %v", record.BytesSlot.Dims, g.dims)
	}
	if g.missing != nil && *g.missing != "" {
		return fmt.Errorf("default: expected \"\" for text, found %q: an empty field is an empty text", *g.missing)
	}
	return nil
}

// table describes the columns of a file and the slots that are made of them.
type table struct {
	tag       string
	names     []string // of the columns; nil without a header
	width     int      // number of columns; -1: not known yet
	slots     []pyfeed.Slot
	slotNames []string // of the slots; nil if no slot has a name
	columns   []column
	runs      []run
	outputs   []output
	row       int   // size of an instance's numbers, in bytes
	numbers   int   // slots of numbers
	textSlots []int // numbers of the slots of text
}

// plan decides which columns make which slot. look returns a sample of the first records; nil if there are no records.
func (t *table) plan(c *record.Config, o *Options, look func() (sample, error)) error {
	groups, err := t.group(c, o)
	if err != nil {
		return err
	}
	for name := range o.DTypes {
		if _, err := t.known().Index(name); err != nil {
			return pyfeed.Errorf(pyfeed.Invalid, "%s: dtypes: %v", t.tag, err)
		}
	}
	t.columns = make([]column, t.width)
	for i := range t.columns {
		t.columns[i].slot, t.columns[i].number = -1, i
		if t.names != nil {
			t.columns[i].name = t.names[i]
		}
	}
	named := false
	for i, g := range groups {
		var given *pyfeed.Slot
		if c.Slots != nil {
			given = &c.Slots[i]
		}
		slot, inferred, err := t.setColumn(i, g, given, o, look)
		if err != nil {
			return err
		}
		if err := t.add(i, g, slot, inferred, o); err != nil {
			return err
		}
		for _, at := range g.columns {
			t.columns[at].inferred = inferred || c.Inferred && t.requestedDType(o, at) == "" && g.dtype == ""
		}
		t.slots = append(t.slots, slot)
		t.slotNames = append(t.slotNames, g.name)
		named = named || g.name != ""
	}
	if !named {
		t.slotNames = nil
	}
	if len(c.Names) > 0 {
		t.slotNames = c.Names
	}
	t.runs = runs(t.columns)
	return nil
}

// group returns the columns of each slot.
func (t *table) group(c *record.Config, o *Options) (groups []group, err error) {
	switch {
	case len(o.Columns) > 0:
		if c.Slots != nil && len(c.Slots) != len(o.Columns) {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: columns: expected %d, as there are slots, found %d", t.tag, len(c.Slots), len(o.Columns))
		}
		for i := range o.Columns {
			g, err := t.choose(&o.Columns[i])
			if err != nil {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: columns: %v", t.tag, err)
			}
			groups = append(groups, g)
		}
		return groups, nil
	case c.Slots == nil:
		if t.width > columns.MaxSlots {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected at most %d columns where each is a slot, found %d: give slots or columns", t.tag, columns.MaxSlots, t.width)
		}
		for i := range t.width {
			g := group{columns: []int{i}, single: true}
			if t.names != nil {
				g.name = t.names[i]
			}
			groups = append(groups, g)
		}
		return groups, nil
	case t.byName(c):
		for i, name := range c.Names {
			at, err := t.known().Index(name)
			if err != nil {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %v", t.tag, err)
			}
			groups = append(groups, group{name: name, columns: []int{at}, single: true})
		}
		return groups, nil
	}
	at := 0
	for i, s := range c.Slots {
		n, err := take(s)
		if err != nil {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %v", t.tag, err)
		}
		g := group{single: true}
		for ; n > 0; n-- {
			g.columns = append(g.columns, at)
			at++
		}
		if at > columns.Max {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: expected at most %d columns, found slots of more elements", t.tag, columns.Max)
		}
		groups = append(groups, g)
	}
	if t.width < 0 {
		t.width = at
	}
	if t.width != at || at == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: slots: expected as many elements as there are columns, %d, found %d: the option columns can select some columns", t.tag, t.width, at)
	}
	return groups, nil
}

// byName reports whether slots are selected by the names of columns. Slots with the names of all columns in their order
// need no selection.
func (t *table) byName(c *record.Config) bool {
	if t.names == nil || len(c.Names) != len(c.Slots) || slices.Equal(c.Names, t.names) {
		return false
	}
	some := false
	for i, s := range c.Slots {
		if n, err := take(s); err != nil || n != 1 || c.Names[i] == "" {
			return false
		}
		some = some || slices.Contains(t.names, c.Names[i])
	}
	return some
}

// take returns how many columns a slot takes.
func take(s pyfeed.Slot) (int, error) {
	if s.LoDLevels > 0 {
		return 1, textual(s)
	}
	n := int64(1)
	for _, d := range s.Dims {
		if d < 0 {
			return 0, fmt.Errorf("dims: expected sizes without -1 for numbers, found %v; text is uint8 of dims [-1] with 1 LoD level", s.Dims)
		}
		if n *= min(d, columns.Max+1); n > columns.Max {
			return 0, fmt.Errorf("dims: expected at most %d elements, found dims %v", columns.Max, s.Dims)
		}
	}
	return int(n), nil
}

// textual returns an error if a slot for text is not valid.
func textual(s pyfeed.Slot) error {
	if s.LoDLevels != 1 || len(s.Dims) != 1 || s.Dims[0] != -1 || s.DType != pyfeed.Uint8 && s.DType != pyfeed.Any {
		return fmt.Errorf("expected numbers, or text: uint8 of dims [-1] with 1 LoD level, found %v of dims %v with %d", s.DType, s.Dims, s.LoDLevels)
	}
	return nil
}

// choose returns the columns that the option columns gives for a slot.
func (t *table) choose(o *columns.Column) (g group, err error) {
	g = group{name: o.Name, dtype: o.DType, dims: o.Dims, missing: o.Default}
	if g.columns, g.single, err = t.known().Choose(o.Columns); err != nil {
		return g, err
	}
	if g.single && g.name == "" && t.names != nil {
		g.name = t.names[g.columns[0]]
	}
	return g, nil
}

// known returns the names of the columns.
func (t *table) known() *columns.Names { return &columns.Names{All: t.names, Count: t.width} }

// setColumn decides the dtype and dims of slot i, and reports whether its dtype was inferred from the sample.
func (t *table) setColumn(i int, g group, given *pyfeed.Slot, o *Options, look func() (sample, error)) (slot pyfeed.Slot, inferred bool, err error) {
	invalid := func(format string, args ...any) (pyfeed.Slot, bool, error) {
		return pyfeed.Slot{}, false, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %s", t.tag, fmt.Sprintf(format, args...))
	}
	requested := g.dtype
	for _, at := range g.columns {
		if d := t.requestedDType(o, at); d != "" && requested != "" && d != requested {
			return invalid("dtypes: expected %s, as of the slot's other columns, found %s for %s", requested, d, t.known().Label(at))
		} else if d != "" {
			requested = d
		}
	}
	d := pyfeed.Any
	if requested != "" && requested != "bytes" {
		var known bool
		if d, known = pyfeed.DTypeOf(requested); !known {
			return invalid("dtype: expected bytes or the name of a dtype, found %q", requested)
		}
	}
	switch {
	case given != nil && given.LoDLevels > 0:
		if err := textual(*given); err != nil {
			return invalid("%v", err)
		}
		if d != pyfeed.Any {
			return invalid("dtype: expected bytes, as the slot says, found %v", d)
		}
		requested = "bytes"
	case given != nil:
		if requested == "bytes" || d != pyfeed.Any && given.DType != pyfeed.Any && d != given.DType {
			return invalid("dtype: expected %v, as the slot says, found %s", given.DType, requested)
		}
		if given.DType != pyfeed.Any {
			d = given.DType
		}
		slot.Dims = slices.Clone(given.Dims)
	case g.dims != nil:
		slot.Dims = slices.Clone(g.dims)
	case !g.single:
		slot.Dims = pyfeed.Dims{int64(len(g.columns))}
	}
	if requested == "bytes" {
		if len(g.columns) != 1 {
			return invalid("expected 1 column of text, found %d", len(g.columns))
		}
		if err := g.checkText(); err != nil {
			return invalid("%v", err)
		}
		return record.BytesSlot, false, nil
	}
	if len(slot.Dims) > pyfeed.MaxRank {
		return invalid("rank: expected at most %d dimensions, found %d", pyfeed.MaxRank, len(slot.Dims))
	}
	n, err := take(slot)
	if err != nil {
		return invalid("%v", err)
	}
	if n != len(g.columns) {
		return invalid("dims: expected as many elements as there are columns, %d, found dims %v", len(g.columns), slot.Dims)
	}
	if d == pyfeed.Any && n > 0 {
		var text *found
		if d, text, err = t.infer(g, o, look); err != nil {
			if e, is := err.(*pyfeed.Error); is {
				e.Slot = i
				return slot, false, e
			}
			return invalid("%v", err)
		}
		if d == pyfeed.Any { // text
			if given != nil || len(g.columns) != 1 || !g.single || g.dims != nil {
				return invalid("expected numbers, found %s in %s, line %d; %s",
					text.field, t.known().Label(text.column), text.line, t.dtypeHint(text.column, pyfeed.Any))
			}
			if err := g.checkText(); err != nil {
				return invalid("%v", err)
			}
			return record.BytesSlot, true, nil
		}
		inferred = true
	}
	if d == pyfeed.Any {
		d = pyfeed.Float64
	}
	if _, ok := number.KindOf(d); !ok {
		return invalid("dtype: expected real numbers, bool or bytes, found %v", d)
	}
	slot.DType = d
	return slot, inferred, nil
}

// requestedDType returns the dtype that the options give a column, or "".
func (t *table) requestedDType(o *Options, at int) string {
	if len(o.DTypes) == 0 {
		return ""
	}
	if t.names != nil {
		if d, is := o.DTypes[t.names[at]]; is {
			return d
		}
	}
	number := strconv.Itoa(at)
	if slices.Contains(t.names, number) {
		return ""
	}
	return o.DTypes[number]
}

// add decides the position of slot i in a row, and makes its columns fill it. inferred: its dtype is that of the sample.
func (t *table) add(i int, g group, slot pyfeed.Slot, inferred bool, o *Options) error {
	out := output{dtype: slot.DType, dims: slot.Dims}
	k := number.Text
	if slot.LoDLevels > 0 {
		out.text, out.at = true, len(t.textSlots)
		t.textSlots = append(t.textSlots, i)
	} else {
		k, _ = number.KindOf(slot.DType)
		t.numbers++
		t.row = (t.row + 7) &^ 7 // the widest element
		out.at = t.row
	}
	for _, at := range g.columns {
		c := &t.columns[at]
		if c.slot >= 0 {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: columns: expected columns that no other slot has, found %s, which slot %d has", t.tag, t.known().Label(at), c.slot)
		}
		c.slot, c.kind, c.dtype, c.size, c.at = i, k, slot.DType, slot.DType.Size(), out.at
		if k == number.Text {
			continue
		}
		c.at = t.row
		t.row += c.size
		c.below, c.above = number.Bounds(slot.DType)
		if missing := g.emptyField(o); missing != nil {
			bits, f := number.Parse([]byte(*missing), slot.DType, k)
			c.missing, c.hasMissing = bits, f == number.OK
			if f != number.OK {
				c.unrepresentable = string(*missing)
				if g.missing != nil && (!inferred || formOf([]byte(*missing)) == words) {
					return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: default: expected %s, found %q", t.tag, number.Expected(slot.DType, f), *missing)
				}
			}
		}
	}
	if !out.text {
		out.size = t.row - out.at
	}
	t.outputs = append(t.outputs, out)
	return nil
}

// quoteField formats a field for an error.
func quoteField(field []byte) string {
	const limit = 40
	if len(field) == 0 {
		return "an empty field"
	}
	if len(field) > limit {
		return fmt.Sprintf("%q and %d bytes more", field[:limit], len(field)-limit)
	}
	return strconv.Quote(string(field))
}
