package csv

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

const (
	mostColumns = 1 << 20 // of a file
	mostSlots   = 4096    // where each column is one: every instance in memory has so many
)

// column is how one of the file is read.
type column struct {
	kind         kind
	dtype        pyfeed.DType
	size         int    // of an element, in bytes
	at           int    // where the element goes in a row; of text: its number among the text slots
	below, above uint64 // how far from 0 an integer may be
	slot         int
	number       int    // of the column
	name         string // "" without a header

	missing    uint64 // what an empty field stands for
	hasMissing bool
	unfit      string // what an empty field stands for, if the dtype does not hold that

	inferred bool // the dtype is what the first records told
}

func (c *column) String() string { return label(c.name, c.number) }

// output is how a slot of an instance is made.
type output struct {
	dtype    pyfeed.DType
	dims     pyfeed.Dims
	text     bool
	at, size int // in the row, in bytes; of text: at is its number among the text slots
}

// group is the columns of one slot, before it is known what they are.
type group struct {
	name    string
	columns []int
	one     bool // by itself, rather than a list of one
	dtype   string
	dims    pyfeed.Dims
}

// label names a column in an error.
func label(name string, number int) string {
	if name != "" {
		return fmt.Sprintf("column %q", name)
	}
	return fmt.Sprintf("column %d", number)
}

// table is the columns of a file and what is made of them.
type table struct {
	tag       string
	names     []string // of the columns; nil without a header
	width     int      // number of columns
	slots     []pyfeed.Slot
	called    []string // the slots; nil if none is
	columns   []column
	runs      []run
	outputs   []output
	row       int   // bytes of an instance's numbers
	numbers   int   // slots of numbers
	textSlots []int // numbers of the slots of text
}

// plan says which columns make which slot. look is for what the first records have to tell; nil if there are none.
func (t *table) plan(c *record.Config, o *Options, look func() (sample, error)) error {
	groups, err := t.group(c, o)
	if err != nil {
		return err
	}
	for name := range o.DTypes {
		if _, err := t.index(name); err != nil {
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
		slot, inferred, err := t.settle(i, g, given, o, look)
		if err != nil {
			return err
		}
		if err := t.add(i, g, slot, o); err != nil {
			return err
		}
		for _, at := range g.columns {
			t.columns[at].inferred = inferred || c.Inferred && t.said(o, at) == "" && g.dtype == ""
		}
		t.slots = append(t.slots, slot)
		t.called = append(t.called, g.name)
		named = named || g.name != ""
	}
	if !named {
		t.called = nil
	}
	if len(c.Names) > 0 {
		t.called = c.Names
	}
	t.runs = runs(t.columns)
	return nil
}

// group says which columns the slots are made of.
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
		if t.width > mostSlots {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected at most %d columns where each is a slot, found %d: say slots, or columns", t.tag, mostSlots, t.width)
		}
		for i := range t.width {
			g := group{columns: []int{i}, one: true}
			if t.names != nil {
				g.name = t.names[i]
			}
			groups = append(groups, g)
		}
		return groups, nil
	case t.byName(c):
		for i, name := range c.Names {
			at, err := t.index(name)
			if err != nil {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %v", t.tag, err)
			}
			groups = append(groups, group{name: name, columns: []int{at}, one: true})
		}
		return groups, nil
	}
	at := 0
	for i, s := range c.Slots {
		n, err := take(s)
		if err != nil {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %v", t.tag, err)
		}
		g := group{one: true}
		for ; n > 0; n-- {
			g.columns = append(g.columns, at)
			at++
		}
		if at > mostColumns {
			return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: expected at most %d columns, found slots of more elements", t.tag, mostColumns)
		}
		groups = append(groups, g)
	}
	if t.width < 0 {
		t.width = at
	}
	if t.width != at || at == 0 {
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: slots: expected as many elements as there are columns, %d, found %d: the option columns says which are meant", t.tag, t.width, at)
	}
	return groups, nil
}

// byName says whether the slots are called like columns. Slots in the order of the columns need no names.
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

// take is how many columns a slot takes.
func take(s pyfeed.Slot) (int, error) {
	if s.LoDLevels > 0 {
		return 1, textual(s)
	}
	n := int64(1)
	for _, d := range s.Dims {
		if d < 0 {
			return 0, fmt.Errorf("dims: expected sizes without -1 for numbers, found %v; text is uint8 of dims [-1] with 1 LoD level", s.Dims)
		}
		if n *= min(d, mostColumns+1); n > mostColumns {
			return 0, fmt.Errorf("dims: expected at most %d elements, found dims %v", mostColumns, s.Dims)
		}
	}
	return int(n), nil
}

// textual says what is wrong with a slot for text.
func textual(s pyfeed.Slot) error {
	if s.LoDLevels != 1 || len(s.Dims) != 1 || s.Dims[0] != -1 || s.DType != pyfeed.Uint8 && s.DType != pyfeed.Any {
		return fmt.Errorf("expected numbers, or text: uint8 of dims [-1] with 1 LoD level, found %v of dims %v with %d", s.DType, s.Dims, s.LoDLevels)
	}
	return nil
}

// index is the number of the column of that name, or of that number.
func (t *table) index(name string) (int, error) {
	at := slices.Index(t.names, name)
	if at >= 0 {
		if slices.Contains(t.names[at+1:], name) {
			return 0, fmt.Errorf("expected one column %q, found more: say its number", name)
		}
		return at, nil
	}
	if n, err := strconv.ParseUint(name, 10, 32); err == nil && int(n) < t.width {
		return int(n), nil
	}
	return 0, fmt.Errorf("expected the name or number of a column, found %q; there are %s", name, t.known())
}

func (t *table) known() string {
	if t.names == nil {
		return fmt.Sprintf("%d, without names", t.width)
	}
	shown := t.names[:min(len(t.names), 20)]
	s := fmt.Sprintf("%q", shown)
	s = strings.ReplaceAll(s[1:len(s)-1], `" "`, `", "`)
	if len(shown) < len(t.names) {
		s += fmt.Sprintf(" and %d more", len(t.names)-len(shown))
	}
	return s
}

// choose finds the columns of an option.
func (t *table) choose(o *Columns) (group, error) {
	g := group{name: o.Name, one: o.Columns.One, dtype: o.DType, dims: o.Dims}
	if len(o.Columns.Items) == 0 {
		return g, fmt.Errorf("expected at least 1 column, found none")
	}
	for _, item := range o.Columns.Items {
		switch item := item.(type) {
		case int:
			if item < -t.width || item >= t.width {
				return g, fmt.Errorf("expected the number of a column, %d to %d, found %d", -t.width, t.width-1, item)
			}
			g.columns = append(g.columns, (item+t.width)%t.width)
		case string:
			at, err := t.index(item)
			if err == nil {
				g.columns = append(g.columns, at)
				continue
			}
			first, last, is := t.interval(item)
			if !is {
				return g, err
			}
			if last < first {
				return g, fmt.Errorf("expected a first and a last column, found %q, where the last comes before the first", item)
			}
			g.one = false
			for ; first <= last; first++ {
				g.columns = append(g.columns, first)
			}
		default:
			return g, fmt.Errorf("expected names or numbers of columns, found %v", item)
		}
		if len(g.columns) > mostColumns {
			return g, fmt.Errorf("expected at most %d columns, found more", mostColumns)
		}
	}
	if g.one && g.name == "" && t.names != nil {
		g.name = t.names[g.columns[0]]
	}
	return g, nil
}

// interval reads "first:last", where names may have colons too.
func (t *table) interval(s string) (first, last int, is bool) {
	for i := range len(s) {
		if s[i] != ':' {
			continue
		}
		first, last = 0, t.width-1
		var before, behind error
		if i > 0 {
			first, before = t.index(s[:i])
		}
		if i < len(s)-1 {
			last, behind = t.index(s[i+1:])
		}
		if before == nil && behind == nil {
			return first, last, true
		}
	}
	return 0, 0, false
}

// settle decides what slot i is like, and says whether its dtype is by the sample.
func (t *table) settle(i int, g group, given *pyfeed.Slot, o *Options, look func() (sample, error)) (slot pyfeed.Slot, inferred bool, err error) {
	invalid := func(format string, args ...any) (pyfeed.Slot, bool, error) {
		return pyfeed.Slot{}, false, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %s", t.tag, fmt.Sprintf(format, args...))
	}
	said := g.dtype
	for _, at := range g.columns {
		if d := t.said(o, at); d != "" && said != "" && d != said {
			return invalid("dtypes: expected %s, as of the slot's other columns, found %s for %s", said, d, t.label(at))
		} else if d != "" {
			said = d
		}
	}
	d := pyfeed.Any
	if said != "" && said != "bytes" {
		var known bool
		if d, known = pyfeed.DTypeOf(said); !known {
			return invalid("dtype: expected bytes or the name of a dtype, found %q", said)
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
		said = "bytes"
	case given != nil:
		if said == "bytes" || d != pyfeed.Any && given.DType != pyfeed.Any && d != given.DType {
			return invalid("dtype: expected %v, as the slot says, found %s", given.DType, said)
		}
		if given.DType != pyfeed.Any {
			d = given.DType
		}
		slot.Dims = slices.Clone(given.Dims)
	case g.dims != nil:
		slot.Dims = slices.Clone(g.dims)
	case !g.one:
		slot.Dims = pyfeed.Dims{int64(len(g.columns))}
	}
	if said == "bytes" {
		if len(g.columns) != 1 {
			return invalid("expected 1 column of text, found %d", len(g.columns))
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
			if given != nil || len(g.columns) != 1 || !g.one || g.dims != nil {
				return invalid("expected numbers, found %s in %s, line %d; %s",
					text.field, t.label(text.column), text.line, t.advice(text.column, pyfeed.Any))
			}
			return record.BytesSlot, true, nil
		}
		inferred = true
	}
	if d == pyfeed.Any {
		d = pyfeed.Float64
	}
	if _, ok := kindOf(d); !ok {
		return invalid("dtype: expected real numbers, bool or bytes, found %v", d)
	}
	slot.DType = d
	return slot, inferred, nil
}

// said is the dtype that the options give a column, or "".
func (t *table) said(o *Options, at int) string {
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

func (t *table) label(at int) string {
	if t.names != nil {
		return label(t.names[at], at)
	}
	return label("", at)
}

// add lays slot i out and has its columns fill it.
func (t *table) add(i int, g group, slot pyfeed.Slot, o *Options) error {
	out := output{dtype: slot.DType, dims: slot.Dims}
	k := text
	if slot.LoDLevels > 0 {
		out.text, out.at = true, len(t.textSlots)
		t.textSlots = append(t.textSlots, i)
	} else {
		k, _ = kindOf(slot.DType)
		t.numbers++
		t.row = (t.row + 7) &^ 7 // the widest element
		out.at = t.row
	}
	for _, at := range g.columns {
		c := &t.columns[at]
		if c.slot >= 0 {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: columns: expected columns that no other slot has, found %s, which slot %d has", t.tag, t.label(at), c.slot)
		}
		c.slot, c.kind, c.dtype, c.size, c.at = i, k, slot.DType, slot.DType.Size(), out.at
		if k == text {
			continue
		}
		c.at = t.row
		t.row += c.size
		c.below, c.above = bounds(slot.DType)
		if o.Missing != nil {
			bits, f := parseNumber([]byte(*o.Missing), slot.DType, k)
			c.missing, c.hasMissing = bits, f == none
			if f != none {
				c.unfit = string(*o.Missing)
			}
		}
	}
	if !out.text {
		out.size = t.row - out.at
	}
	t.outputs = append(t.outputs, out)
	return nil
}

// shown is a field in an error.
func shown(field []byte) string {
	const most = 40
	if len(field) == 0 {
		return "an empty field"
	}
	if len(field) > most {
		return fmt.Sprintf("%q and %d bytes more", field[:most], len(field)-most)
	}
	return strconv.Quote(string(field))
}
