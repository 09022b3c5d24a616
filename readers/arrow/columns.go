package arrow

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/record"
)

// A mask is an array whose nulls make elements of a column null: of the column itself, or of a struct or
// fixed_size_list around it. Element i of the column is element i/div of the array.
type mask struct {
	f   *field
	div int
}

// A level leads from elements to the elements of their lists.
type level struct {
	masks []mask // of the lists, and of the structs around them
	list  *field
	exact int64 // the length of each list; -1: any
}

// A column is a leaf of the schema: what remains of a column when structs are divided into their fields. Its elements
// are numbers, or byte strings.
type column struct {
	number int
	name   string // with dots between the names of structs and their fields
	levels []level
	masks  []mask // of the elements
	leaf   *field
	inner  pyfeed.Dims  // of fixed_size_lists within the innermost list
	count  int          // elements of the leaf in each element of inner
	dtype  pyfeed.DType // of an element, as it is delivered; uint8 for byte strings
	size   int          // bytes of an element, as it is delivered; 0 for byte strings
	text   bool         // elements are byte strings
	media  string       // the Hugging Face feature whose bytes this is, such as "Image"; "": none
	path   *field       // the path of such a feature
	reason string       // why the column cannot be read; "": it can
}

func (c *column) String() string { return columns.Label(shorten(c.name), c.number) }

// slot returns the slot of the column by itself.
func (c *column) slot() pyfeed.Slot {
	s := pyfeed.Slot{DType: c.dtype}
	for _, l := range c.levels {
		if l.exact < 0 {
			s.LoDLevels++
		} else {
			s.Dims = append(s.Dims, l.exact)
		}
	}
	if c.text {
		s.LoDLevels++
	}
	if s.LoDLevels > 0 {
		s.Dims = append(pyfeed.Dims{-1}, s.Dims...)
	}
	s.Dims = append(s.Dims, c.inner...)
	return s
}

// leaves divides the columns of a schema into leaves.
type leaves struct {
	all  []*column
	path []step
}

// step is a field on the way from a column of the schema to a leaf.
type step struct {
	f     *field
	exact int64 // the length of each list; -1: any
}

// columnsOf returns the leaves of a schema. Their names are those of the schema's columns and, for structs, of their fields.
func columnsOf(s *schema) []*column {
	var features map[string]json.RawMessage
	if text := s.metadata[huggingFaceMetadata]; text != "" {
		var info struct {
			Info struct {
				Features map[string]json.RawMessage `json:"features"`
			} `json:"info"`
		}
		if json.Unmarshal([]byte(text), &info) == nil { // the storage types suffice
			features = info.Info.Features
		}
	}
	var l leaves
	for _, f := range s.fields {
		l.add(f, f.name, features[f.name])
	}
	for i, c := range l.all {
		c.number = i
	}
	return l.all
}

// add adds the leaves of a field.
func (l *leaves) add(f *field, name string, feature json.RawMessage) {
	exact := arrayShape(f)
	l.path = append(l.path, step{f, -1})
	here := len(l.path)
	defer func() { l.path = l.path[:here-1] }()
	if f.encoded {
		l.leaf(name, "", nil)
		return
	}
	kind, inner := featureOf(feature)
	switch f.kind {
	case typeStruct:
		if bytes, path := mediaFields(f); bytes != nil && slices.Contains(media, kind) {
			l.path = append(l.path, step{bytes, -1})
			l.leaf(name, kind, path)
			return
		}
		for _, child := range f.children {
			var of json.RawMessage
			if inner != nil {
				var fields map[string]json.RawMessage
				if json.Unmarshal(inner, &fields) == nil {
					of = fields[child.name]
				}
			}
			l.add(child, name+"."+child.name, of)
		}
	case typeList, typeLargeList, typeFixedList:
		if exact != nil { // lists in lists, as deep as the array has dimensions
			at := f
			l.path[here-1].exact = exact[0]
			for _, n := range exact[1:] {
				at = at.children[0]
				l.path = append(l.path, step{at, n})
			}
			inner = nil
			l.add(at.children[0], name, nil)
			return
		}
		l.add(f.children[0], name, inner)
	case typeMap:
		l.path = append(l.path, step{f.children[0], -1})
		for _, child := range f.children[0].children {
			l.add(child, name+"."+child.name, nil)
		}
	default:
		l.leaf(name, "", nil)
	}
}

// media are the features of Hugging Face that are structs of bytes and a path.
var media = []string{"Image", "Audio", "Video", "Pdf"}

// mediaFields returns the fields of such a struct.
func mediaFields(f *field) (bytes, path *field) {
	if len(f.children) != 2 {
		return nil, nil
	}
	for _, child := range f.children {
		switch {
		case child.name == "bytes" && child.isBytes() && !child.encoded:
			bytes = child
		case child.name == "path" && child.isBytes() && !child.encoded:
			path = child
		}
	}
	if path == nil {
		return nil, nil
	}
	return bytes, path
}

// featureOf returns the type of a Hugging Face feature, and the feature of its elements or the features of its fields.
func featureOf(feature json.RawMessage) (kind string, inner json.RawMessage) {
	if len(feature) == 0 {
		return "", nil
	}
	if feature[0] == '[' { // a list of one feature
		var all []json.RawMessage
		if json.Unmarshal(feature, &all) == nil && len(all) == 1 {
			return "", all[0]
		}
		return "", nil
	}
	var f struct {
		Type    string          `json:"_type"`
		Feature json.RawMessage `json:"feature"`
	}
	if json.Unmarshal(feature, &f) != nil { // a field may be called _type
		return "", feature
	}
	if f.Feature != nil && f.Type != "" {
		return f.Type, f.Feature
	}
	return f.Type, feature
}

// arrayShape returns the dimensions of an array of Hugging Face, such as Array2D: each instance is lists in lists. nil: the
// field is no such array. A dimension that differs between instances is -1.
func arrayShape(f *field) []int64 {
	if !strings.HasPrefix(f.extension, "datasets.features.features.Array") || f.encoded {
		return nil
	}
	var parameters []json.RawMessage
	var shape []*int64
	if json.Unmarshal([]byte(f.extensionText), &parameters) != nil || len(parameters) == 0 || json.Unmarshal(parameters[0], &shape) != nil {
		return nil
	}
	dims := make([]int64, len(shape))
	at := f
	for i, n := range shape {
		if at.kind != typeList && at.kind != typeLargeList || at.encoded {
			return nil
		}
		at = at.children[0]
		dims[i] = -1
		if n != nil {
			dims[i] = *n
		}
		if n != nil && (*n < 0 || *n > maxWidth) || n == nil && i > 0 { // only the first may differ
			return nil
		}
	}
	return dims
}

// leaf adds the column that the path leads to.
func (l *leaves) leaf(name, kind string, path *field) {
	c := &column{name: name, media: kind, path: path, count: 1, leaf: l.path[len(l.path)-1].f}
	l.all = append(l.all, c)
	var masks []mask
	for i, s := range l.path {
		f := s.f
		masks = append(masks, mask{f, 1})
		if i == len(l.path)-1 {
			break
		}
		switch f.kind {
		case typeList, typeLargeList, typeMap:
			if len(c.inner) > 0 {
				c.reason = "lists in a fixed_size_list"
				return
			}
			c.levels = append(c.levels, level{masks, f, s.exact})
			masks = nil
		case typeFixedList:
			c.inner = append(c.inner, int64(f.size))
			c.count *= f.size
			if c.count > maxWidth {
				c.reason = fmt.Sprintf("more than %d numbers in a fixed_size_list", maxWidth)
				return
			}
		}
	}
	c.masks = masks
	// From the inside to the outside, an element of a mask has as many elements of the leaf as the lists in between.
	div := 1
	for i := len(masks) - 1; i >= 0; i-- {
		if f := masks[i].f; f != c.leaf && f.kind == typeFixedList {
			div *= f.size
		}
		masks[i].div = div
	}
	c.element()
}

// element sets the dtype and size of an element.
func (c *column) element() {
	f := c.leaf
	switch {
	case f.isBytes():
		c.text, c.dtype = true, pyfeed.Uint8
	case f.dtype != pyfeed.Any:
		c.dtype, c.size = f.dtype, f.dtype.Size()
	case f.kind == typeDecimal:
		c.dtype, c.size = pyfeed.Float64, pyfeed.Float64.Size()
	case f.kind == typeFixedBinary:
		c.dtype, c.size = pyfeed.Uint8, f.width
		c.inner = append(c.inner, int64(f.width))
	case f.kind == typeNull:
		c.dtype, c.size = pyfeed.Float64, pyfeed.Float64.Size()
	default:
		c.reason = f.String()
		if f.encoded && len(f.children) > 0 {
			c.reason = "a dictionary of values of type " + f.String()
		}
		return
	}
	rank := len(c.inner)
	lists := 0
	for _, l := range c.levels {
		if l.exact < 0 {
			lists++
		} else {
			rank++
		}
	}
	switch {
	case f.kind == typeNull && (len(c.levels) > 0 || len(c.inner) > 0):
		c.reason = "nulls in lists"
	case c.text && len(c.inner) > 0:
		c.reason = "byte strings in a fixed_size_list"
	case lists+pick(c.text, 1, 0) > 2:
		c.reason = "lists nested more than 2 deep"
		if c.text {
			c.reason = "lists of lists of byte strings"
		}
	case rank+pick(lists > 0, 1, 0) > pyfeed.MaxRank:
		c.reason = fmt.Sprintf("more than %d dimensions", pyfeed.MaxRank)
	}
}

// output is a slot of an instance.
type output struct {
	slot    pyfeed.Slot
	name    string
	columns []*reading // several: numbers
	lists   bool       // it has lists, or byte strings
	size    int        // bytes of an instance without lists
	at      int        // offset in a row
}

// plan decides which columns make which slot.
func (r *records) plan(c *record.Config, o *Options) error {
	all := columnsOf(r.schema)
	names := &columns.Names{Count: len(all), All: make([]string, len(all))}
	for i, one := range all {
		names.All[i] = one.name
	}
	type request struct {
		columns.Column
		numbers []int
		single  bool
		given   *pyfeed.Slot
	}
	var requests []request
	choose := func(i int, column columns.Column, given *pyfeed.Slot) error {
		q := request{Column: column, given: given}
		var err error
		if q.numbers, q.single, err = names.Choose(column.Columns); err != nil {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "columns: %v", err)
		}
		requests = append(requests, q)
		return nil
	}
	slotOf := func(i int) *pyfeed.Slot {
		if c.Slots == nil {
			return nil
		}
		return &c.Slots[i]
	}
	switch {
	case len(o.Columns) > 0:
		if c.Slots != nil && len(c.Slots) != len(o.Columns) {
			return pyfeed.Errorf(pyfeed.Invalid, "columns: expected %d, as there are slots, found %d", len(c.Slots), len(o.Columns))
		}
		for i, column := range o.Columns {
			if err := choose(i, column, slotOf(i)); err != nil {
				return err
			}
		}
	case c.Slots == nil:
		if len(all) > columns.MaxSlots {
			return pyfeed.Errorf(pyfeed.Invalid, "expected at most %d columns where each is a slot, found %d: give columns", columns.MaxSlots, len(all))
		}
		for i := range all {
			requests = append(requests, request{numbers: []int{i}, single: true})
		}
	case len(c.Names) == len(c.Slots) && !slices.Contains(c.Names, "") && !slices.Equal(c.Names, names.All):
		for i, name := range c.Names {
			if err := choose(i, columns.Column{Columns: columns.Select{Items: []any{name}, Single: true}}, slotOf(i)); err != nil {
				return err
			}
		}
	case len(c.Slots) != len(all):
		return pyfeed.Errorf(pyfeed.Invalid, "slots: expected %d, as there are columns, found %d: slots with the names of columns, or the option columns, select some",
			len(all), len(c.Slots))
	default:
		for i := range all {
			requests = append(requests, request{numbers: []int{i}, single: true, given: slotOf(i)})
		}
	}
	if len(requests) == 0 {
		return pyfeed.Errorf(pyfeed.Slots, "expected a schema with columns, found none")
	}
	used := make(map[int]bool)
	for i, q := range requests {
		out := output{name: q.Name}
		if q.single && out.name == "" {
			out.name = all[q.numbers[0]].name
		}
		if len(c.Names) > i && c.Names[i] != "" {
			out.name = c.Names[i]
		}
		missing := cmp.Or(q.Default, o.Default)
		for _, number := range q.numbers {
			of := all[number]
			if used[number] {
				return pyfeed.SlotErrorf(pyfeed.Invalid, i, "columns: expected columns that no other slot has, found %v twice", of)
			}
			used[number] = true
			if of.reason != "" {
				return pyfeed.SlotErrorf(pyfeed.Unsupported, i, "%v: expected numbers, byte strings, or lists of them, found %s: the option columns can leave it out", of, of.reason)
			}
			c, err := r.read(i, of, missing, q.Default != nil)
			if err != nil {
				return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%v", err)
			}
			out.columns = append(out.columns, c)
		}
		if err := out.shape(q.Column, q.single, q.given); err != nil {
			return pyfeed.SlotErrorf(pyfeed.Invalid, i, "%v", err)
		}
		r.outputs = append(r.outputs, out)
	}
	return nil
}

// shape decides the slot.
func (out *output) shape(request columns.Column, single bool, given *pyfeed.Slot) error {
	first := out.columns[0]
	out.slot = first.slot()
	if !single {
		for _, c := range out.columns {
			if s := c.slot(); s.LoDLevels > 0 || s.DType != out.slot.DType || !slices.Equal(s.Dims, out.slot.Dims) {
				return fmt.Errorf("columns: expected columns of numbers with one dtype and dims to make one slot, found %v and %v", first.column, c.column)
			}
		}
		out.slot.Dims = append(pyfeed.Dims{int64(len(out.columns))}, out.slot.Dims...)
		if len(out.slot.Dims) > pyfeed.MaxRank {
			return fmt.Errorf("rank: expected at most %d dimensions, found %d", pyfeed.MaxRank, len(out.slot.Dims))
		}
	}
	dtype, dims := request.DType, request.Dims
	if given != nil {
		if given.DType != pyfeed.Any && dtype == "" {
			dtype = given.DType.String()
		}
		if given.LoDLevels == 0 && dims == nil && !slices.Contains(given.Dims, -1) {
			dims = given.Dims
		}
	}
	if dtype != "" && dtype != out.slot.DType.String() && !(dtype == "bytes" && first.text) {
		found := out.slot.DType.String()
		if first.text {
			found = "bytes"
		}
		return fmt.Errorf("dtype: expected %s, as %v has, found %s: numbers are not converted", found, first.column, dtype)
	}
	if dims != nil && !slices.Equal(dims, out.slot.Dims) {
		if err := out.reshape(dims); err != nil {
			return err
		}
	}
	out.lists = out.slot.LoDLevels > 0
	if out.lists {
		return nil
	}
	out.size = out.slot.DType.Size()
	for _, d := range out.slot.Dims {
		if d != 0 && int64(out.size) > maxWidth/d {
			return fmt.Errorf("expected instances of at most %d bytes, found dims %v", maxWidth, out.slot.Dims)
		}
		out.size *= int(d)
	}
	return nil
}

// reshape makes instances have dims without -1. Lists then have to have that many elements.
func (out *output) reshape(dims pyfeed.Dims) error {
	c := out.columns[0]
	refuse := func() error {
		return fmt.Errorf("dims: expected %v, or as many elements, as %v has, found %v", out.slot.Dims, c.column, dims)
	}
	if slices.Contains(dims, -1) || len(dims) > pyfeed.MaxRank || c.text {
		return refuse()
	}
	product := func(dims pyfeed.Dims) int64 {
		n := int64(1)
		for _, d := range dims {
			if d != 0 && n > maxWidth/d {
				return -1
			}
			n *= d
		}
		return n
	}
	n := product(dims)
	if out.slot.LoDLevels > 0 {
		levels := slices.Clone(c.levels)
		if len(levels) == 1 {
			inner := product(c.inner)
			if inner <= 0 || n < 0 || n%inner != 0 {
				return refuse()
			}
			levels[0].exact = n / inner
		} else {
			if len(dims) != len(levels)+len(c.inner) || !slices.Equal(dims[len(levels):], c.inner) {
				return refuse()
			}
			for i := range levels {
				levels[i].exact = dims[i]
			}
		}
		of := *c.column
		of.levels = levels
		c.column = &of
	} else if n < 0 || n != product(out.slot.Dims) {
		return refuse()
	}
	out.slot = pyfeed.Slot{DType: out.slot.DType, Dims: slices.Clone(dims)}
	return nil
}
