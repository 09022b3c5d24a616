package jsonl

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// column describes how one value of each record is read, and has what was read of the current record.
type column struct {
	path  string
	steps []string
	slot  int

	kind         number.Kind // Text also for the JSON text of a value
	json         bool        // the JSON text is the value
	dtype        pyfeed.DType
	size         int    // of an element, in bytes
	below, above uint64 // limits of an integer below and above 0

	levels int     // how many levels of lists have any length
	fixed  []int64 // the lengths of the levels of lists below them
	count  int     // elements in a list of the fixed levels
	at     int     // offset in a row, if the value is a part of one

	// The value where a record has none: either a number, of which a list has as many as it needs, or fallback.
	hasMissing  bool
	missing     uint64 // the bits of the number
	fallback    []byte // JSON text with "\n" behind it, or a text; nil: there is none
	defaultFrom string // the default that the value cannot be; "": it can

	sample   observed // of the first records, if they were needed
	inferred bool     // the dtype was inferred from them

	found  uint64 // the last record that had a value
	text   content
	spans  []record.Span // of the texts of a block
	n      int64         // the length of the outermost list
	values []uint64      // the bits of the numbers of lists
	bytes  []byte        // the texts of lists
	ends   [][]int64     // for each level of lists below the outermost, where each list ends; the last level is that of texts
}

func (c *column) String() string { return columns.Label(c.path, 0) }

// isList reports whether the value is a list.
func (c *column) isList() bool { return c.levels > 0 || c.fixed != nil }

// inRow reports whether the value is a part of a row.
func (c *column) inRow() bool { return c.levels == 0 && c.kind != number.Text }

// content is text as it lies in a line.
type content struct {
	data    []byte
	escaped bool // it has escapes
	given   bool // data is the default: it is in Go's heap
	copied  bool // it was copied, without its escapes, to the part of the block that span names; data is nil
	span    record.Span
}

// group has the values of one slot, before their dtypes are known.
type group struct {
	name     string
	columns  []*column
	single   bool // a value by itself, rather than a list of one
	dtype    string
	dims     pyfeed.Dims
	fallback *columns.Value
}

// output describes how a slot of an instance is made.
type output struct {
	slot     pyfeed.Slot
	column   *column // of a text, or of a list of any length; nil: the slot is a part of a row
	at, size int     // in a row
}

// table describes the values of a record, and the slots that are made of them.
type table struct {
	slots     []pyfeed.Slot
	slotNames []string // nil if no slot has a name
	columns   []*column
	root      *node
	outputs   []output
	rowSize   int       // of an instance's numbers, in bytes
	numbers   int       // slots in a row
	texts     []*column // of the slots of text
}

// plan decides which values make which slot. readSample sets the samples of the columns at the nodes of a tree, and
// returns false if there are no records.
func (t *table) plan(c *record.Config, o *Options, readSample func(root *node) (bool, error)) error {
	groups, err := t.group(c, o, readSample)
	if err != nil {
		return err
	}
	t.root = &node{}
	paths := make(map[string]bool)
	for i := range groups {
		g := &groups[i]
		for _, column := range g.columns {
			paths[column.path] = true
			if column.slot, column.steps = i, []string{column.path}; o.Columns != nil {
				if column.steps, err = splitPath(column.path); err != nil {
					return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: columns: %v", tag, err)
				}
			}
			if d := o.DTypes[column.path]; d != "" && g.dtype != "" && d != g.dtype {
				return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: dtypes: expected %s, as of the slot or its other values, found %s for %v", tag, g.dtype, d, column)
			} else if d != "" {
				g.dtype = d
			}
		}
		for _, column := range g.columns {
			column.json = g.dtype == "json"
			if err := t.root.add(column.steps, column); err != nil {
				return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: columns: %v", tag, err)
			}
		}
	}
	for path := range o.DTypes {
		if !paths[path] {
			return pyfeed.Errorf(pyfeed.Invalid, "%s: dtypes: expected the path of a value that is read, found %q%s", tag, path,
				record.Suggest(path, slices.Values(slices.Sorted(maps.Keys(paths)))))
		}
	}
	known := o.Columns == nil && c.Slots == nil // the samples are known already
	sample := func() error {
		if known {
			return nil
		}
		some, err := readSample(t.root)
		if known = err == nil; known && !some {
			err = fmt.Errorf("expected a record to infer dtypes from, found none: give slots or dtypes")
		}
		return err
	}
	for i := range groups {
		g := &groups[i]
		var given *pyfeed.Slot
		if c.Slots != nil {
			given = &c.Slots[i]
		}
		slot, err := t.decide(i, g, given, c.Inferred, o, sample)
		if err != nil {
			return err
		}
		t.add(g, slot)
		t.slotNames = append(t.slotNames, g.name)
	}
	if !slices.ContainsFunc(t.slotNames, func(name string) bool { return name != "" }) {
		t.slotNames = nil
	}
	if len(c.Names) > 0 {
		t.slotNames = c.Names
	}
	return nil
}

// group returns the values of each slot.
func (t *table) group(c *record.Config, o *Options, readSample func(root *node) (bool, error)) (groups []group, err error) {
	switch {
	case o.Columns != nil:
		if c.Slots != nil && len(c.Slots) != len(o.Columns) {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: columns: expected %d, as there are slots, found %d", tag, len(c.Slots), len(o.Columns))
		}
		for i := range o.Columns {
			from := &o.Columns[i]
			paths, single, err := choose(from.Columns)
			if err == nil && len(paths) > columns.MaxSlots {
				err = fmt.Errorf("expected at most %d values, found %d", columns.MaxSlots, len(paths))
			}
			if err != nil {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: columns: %v", tag, err)
			}
			g := group{name: from.Name, single: single, dtype: from.DType, dims: from.Dims, fallback: cmp.Or(from.Default, o.Default)}
			for _, path := range paths {
				g.columns = append(g.columns, &column{path: path})
			}
			if single && g.name == "" {
				g.name = paths[0]
			}
			groups = append(groups, g)
		}
		return groups, nil
	case c.Slots != nil:
		for i := range c.Slots {
			if len(c.Names) != len(c.Slots) || c.Names[i] == "" {
				return nil, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: expected the name of the slot's value, found none: give names or columns", tag)
			}
			groups = append(groups, group{name: c.Names[i], columns: []*column{{path: c.Names[i]}}, single: true, fallback: o.Default})
		}
		return groups, nil
	}
	root := &node{discovers: true}
	some, err := readSample(root)
	switch {
	case err != nil:
		return nil, err
	case !some:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected a record to infer the slots from, found none: give slots or columns", tag)
	case len(root.children) == 0:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected objects, each name of which is a slot, found none in the first MiB: give columns, with paths such as \"0\" for arrays", tag)
	case len(root.children) > columns.MaxSlots:
		return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected at most %d names, each of which is a slot, found %d: give columns", tag, columns.MaxSlots, len(root.children))
	}
	for _, n := range root.children {
		if n.path == "" {
			return nil, pyfeed.Errorf(pyfeed.Invalid, "%s: expected names, each of which is a slot, found an empty one: give columns, with the path \"/\" for it", tag)
		}
		groups = append(groups, group{name: n.column.path, columns: []*column{n.column}, single: true, fallback: o.Default})
	}
	return groups, nil
}

// A shape is what a value is: a number, text, or a list of these.
type shape struct {
	kind   number.Kind // None: not known
	dtype  pyfeed.DType
	levels int
	fixed  []int64
}

// slot returns the slot of values with that shape.
func (s *shape) slot() pyfeed.Slot {
	slot := pyfeed.Slot{DType: s.dtype, LoDLevels: s.levels, Dims: pyfeed.Dims(slices.Clone(s.fixed))}
	if s.kind == number.Text {
		slot.LoDLevels++
	}
	if slot.LoDLevels > 0 {
		slot.Dims = append(pyfeed.Dims{-1}, slot.Dims...)
	}
	return slot
}

// decide decides the slot of a group, and what its values are. sample makes sure that the samples are known.
func (t *table) decide(i int, g *group, given *pyfeed.Slot, inferred bool, o *Options, sample func() error) (slot pyfeed.Slot, err error) {
	invalid := func(format string, args ...any) (pyfeed.Slot, error) {
		return pyfeed.Slot{}, pyfeed.SlotErrorf(pyfeed.Invalid, i, "%s: %s", tag, fmt.Sprintf(format, args...))
	}
	s := shape{dtype: pyfeed.Any}
	switch g.dtype {
	case "":
	case "bytes", "json":
		s.kind, s.dtype = number.Text, pyfeed.Uint8
	default:
		var known bool
		if s.dtype, known = pyfeed.DTypeOf(g.dtype); !known || s.dtype == pyfeed.Any {
			return invalid("dtype: expected bytes, json or the name of a dtype, found %q%s", g.dtype, textAdvice(g.dtype))
		}
	}
	levels := false // the levels of lists are known
	switch {
	case given != nil:
		if err := s.setSlot(*given, g.dtype); err != nil {
			return invalid("%v", err)
		}
		levels = true
	case g.dims != nil:
		for len(g.dims) > s.levels && g.dims[s.levels] == -1 {
			s.levels++
		}
		s.fixed, levels = g.dims[s.levels:], true
	case !g.single:
		s.fixed, levels = []int64{int64(len(g.columns))}, true
	case g.dtype == "json":
		levels = true
	}
	if !levels || s.dtype == pyfeed.Any {
		if err := sample(); err != nil {
			if err == storage.ErrInterrupted {
				return slot, err
			}
			return invalid("%v", err)
		}
		found, err := g.infer(s.dtype)
		if err != nil {
			if e, is := err.(*pyfeed.Error); is {
				e.Slot = i
				return slot, e
			}
			return invalid("%v", err)
		}
		depth := s.levels + len(s.fixed)
		switch {
		case !levels:
			s.levels = found.levels
		case g.single && found.levels != depth:
			return invalid("dims: expected lists nested %d deep, as %v has, found %d dimensions", found.levels, g.columns[0], depth)
		}
		if s.dtype == pyfeed.Any {
			if given != nil && found.kind == number.Text {
				return invalid("dtype: expected numbers in %v, found text: its slot is uint8 of dims [-1] with LoD", g.columns[0])
			}
			s.kind, s.dtype, inferred = found.kind, found.dtype, true
		}
	}
	if s.kind != number.Text {
		var ok bool
		if s.kind, ok = number.KindOf(s.dtype); !ok {
			return invalid("dtype: expected real numbers, bool, bytes or json, found %v", s.dtype)
		}
	}
	if s.kind == number.Text && (len(s.fixed) > 0 || g.dtype == "json" && s.levels > 0) {
		return invalid("dims: expected only -1 for text, one for each level of lists, and none for json, found %v", g.dims)
	}
	slot = s.slot()
	if len(slot.Dims) > pyfeed.MaxRank || slot.LoDLevels > pyfeed.MaxLoDLevels {
		return invalid("dims: expected at most %d dimensions and %d LoD levels, found lists nested %d deep", pyfeed.MaxRank, pyfeed.MaxLoDLevels, s.levels+len(s.fixed))
	}
	count := int64(1)
	for _, d := range s.fixed {
		if d < 0 {
			return invalid("dims: expected -1, for lists of any length, only before all sizes, found %v", slices.Concat(slices.Repeat([]int64{-1}, s.levels), s.fixed))
		}
		if count *= min(d, columns.Max+1); count > columns.Max {
			return invalid("dims: expected at most %d elements, found %v", columns.Max, s.fixed)
		}
	}
	if !g.single {
		if s.levels > 0 || s.kind == number.Text || count != int64(len(g.columns)) {
			return invalid("dims: expected as many numbers as there are columns, %d, found %v of dims %v", len(g.columns), s.dtype, slot.Dims)
		}
		count, s.fixed = 1, nil // of each column
	}
	for _, c := range g.columns {
		c.setShape(&s, int(count))
		c.inferred = inferred && g.dtype == ""
		if err := c.setFallback(g.fallback); err != nil {
			if g.fallback != o.Default {
				return invalid("default: %v", err)
			}
			c.defaultFrom = string(*g.fallback) // which is for other values
		}
	}
	return slot, nil
}

// setSlot makes the shape that of a slot. requested is the dtype by name, or "".
func (s *shape) setSlot(given pyfeed.Slot, requested string) error {
	if given.DType != pyfeed.Any && s.dtype != pyfeed.Any && given.DType != s.dtype {
		return fmt.Errorf("dtype: expected %v, as the slot says, found %s", given.DType, requested)
	}
	if s.dtype == pyfeed.Any {
		s.dtype = given.DType
	}
	s.levels, s.fixed = given.LoDLevels, given.Dims
	if s.levels > 0 {
		s.fixed = s.fixed[1:]
	}
	if s.kind != number.Text && (requested != "" || s.dtype != pyfeed.Uint8 || s.levels == 0 || len(s.fixed) > 0) {
		return nil
	}
	if s.levels == 0 || len(s.fixed) > 0 {
		return fmt.Errorf("expected a slot of text, uint8 of dims [-1] with LoD, found %v of dims %v with %d levels", given.DType, given.Dims, given.LoDLevels)
	}
	s.kind = number.Text
	s.levels--
	return nil
}

// setShape sets how values are read: lists of count elements in the levels of fixed length.
func (c *column) setShape(s *shape, count int) {
	c.kind, c.dtype, c.size = s.kind, s.dtype, s.dtype.Size()
	if c.kind != number.Text {
		c.below, c.above = number.Bounds(s.dtype)
	}
	c.levels, c.count = s.levels, count
	if len(s.fixed) > 0 {
		c.fixed = slices.Clone(s.fixed)
	}
	depth := c.levels
	if c.kind == number.Text {
		depth++
	}
	c.ends = make([][]int64, max(depth-1, 0))
}

// textAdvice suggests the dtype of text.
func textAdvice(requested string) string {
	if slices.Contains([]string{"str", "string", "text", "object", "any"}, requested) {
		return ": text is \"bytes\""
	}
	return ""
}

// setFallback sets the default.
func (c *column) setFallback(v *columns.Value) error {
	if v == nil {
		return nil
	}
	text := string(*v)
	if c.kind == number.Text && c.levels == 0 && !c.json {
		c.fallback = []byte(text)
		return nil
	}
	var f number.Fault
	if c.kind != number.Text && c.levels == 0 {
		if c.missing, f = number.Parse([]byte(text), c.dtype, c.kind); f == number.OK {
			c.hasMissing = true
			return nil
		}
		if !c.isList() {
			return fmt.Errorf("expected %s, found %q", number.Expected(c.dtype, f), text)
		}
	}
	b := []byte(text + "\n")
	p := parser{scanner: scanner{pollAt: len(b)}}
	if end := p.fill(b, space(b, 0), c); end < 0 || space(b, end) != len(text) {
		return fmt.Errorf("expected a value of %v as JSON text, found %q", c, text)
	}
	c.fallback = b
	return nil
}

// add decides where slot i lies in a row.
func (t *table) add(g *group, slot pyfeed.Slot) {
	out := output{slot: slot}
	first := g.columns[0]
	if !first.inRow() {
		out.column = first
		if first.levels == 0 {
			t.texts = append(t.texts, first)
		}
	} else {
		t.rowSize = (t.rowSize + 7) &^ 7 // the widest element
		out.at = t.rowSize
		for _, c := range g.columns {
			c.at = t.rowSize
			t.rowSize += c.size * c.count
		}
		out.size = t.rowSize - out.at
		t.numbers++
	}
	t.columns = append(t.columns, g.columns...)
	t.slots = append(t.slots, slot)
	t.outputs = append(t.outputs, out)
}
