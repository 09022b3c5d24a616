package jsonl

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unsafe"

	"github.com/pyfeed/pyfeed/readers/columns"
	"github.com/pyfeed/pyfeed/readers/number"
	"github.com/pyfeed/pyfeed/readers/record"
	"github.com/pyfeed/pyfeed/readers/storage"
)

// A parser checks a line and takes the selected values from it, in one pass.
type parser struct {
	scanner
	stamp     uint64 // differs for each line
	observing bool   // the values are only observed: see observed
	line      lineNumber
	row       []byte // where numbers that are not in lists of any length are stored
	room      room   // where the texts of a block are copied to
	name      []byte // a name without its escapes

	mismatch *column // the column of the fault, if the value is valid JSON
	form     form    // of the value then
}

// parse parses the value at p, of the tree of nodes. It returns the position after the line, or failed.
func (r *parser) parse(b []byte, p int, root *node) int {
	r.stamp++
	r.depth, r.mismatch, r.pollAt = 0, nil, p+storage.PollEvery
	if p = r.selected(b, p, root); p < 0 {
		return failed
	}
	if b[p] != '\n' {
		if p = space(b, p); b[p] != '\n' {
			return r.expected("the end of the line after a value", b, p)
		}
	}
	return p + 1
}

// selected parses a value that is selected, or in which values are.
func (r *parser) selected(b []byte, p int, n *node) int {
	if n.seen == r.stamp {
		return r.fail(p, "expected the name of column %q only once in an object, found it twice", n.path)
	}
	n.seen = r.stamp
	c := n.column
	if len(n.children) == 0 && !n.discovers {
		return r.leaf(b, p, c)
	}
	begin := p
	switch {
	case b[p] == '{':
		p = r.members(b, p, n)
	case b[p] == '[' && len(n.items) > 0:
		p = r.elements(b, p, n)
	case c == nil && b[p] != 'n' && !r.observing:
		end := r.value(b, p)
		if end < 0 {
			return failed
		}
		what := "an object"
		if len(n.items) > 0 {
			what += " or array"
		}
		return r.fail(p, "column %q: expected %s around the value, found %s", n.children[0].path, what, shown(b[p:end]))
	default:
		p = r.value(b, p)
	}
	if c != nil && p >= 0 && !r.observing {
		c.found, c.text = r.stamp, content{data: b[begin:p:p]}
	}
	return p
}

// members parses an object.
func (r *parser) members(b []byte, p int, n *node) int {
	if !r.enter(p) {
		return failed
	}
	if p = space(b, p+1); b[p] == '}' {
		r.leave()
		return p + 1
	}
	for i := 0; ; i++ {
		var child *node
		if i < len(n.order) && len(b)-p > len(n.order[i].text) && string(b[p:p+len(n.order[i].text)]) == string(n.order[i].text) {
			child = n.order[i].child
			p += len(n.order[i].text)
			if b[p] <= ' ' {
				p = space(b, p)
			}
		} else if child, p = r.member(b, p, n, i); p < 0 {
			return failed
		}
		if child != nil {
			p = r.selected(b, p, child)
		} else {
			p = r.value(b, p)
		}
		if p < 0 {
			return failed
		}
		var last bool
		if p, last = r.next(b, p, '}'); last || p < 0 {
			return p
		}
	}
}

// member parses the i-th name of an object, and the colon.
func (r *parser) member(b []byte, p int, n *node, i int) (child *node, next int) {
	if b[p] != '"' {
		return nil, r.expected("a name in quotes", b, p)
	}
	end, escaped := r.text(b, p+1)
	if end < 0 {
		return nil, failed
	}
	name := b[p+1 : end-1]
	if escaped {
		if len(r.name) < len(name) {
			r.name = make([]byte, len(name))
		}
		k, err := unescape(r.name, name, r.interrupt)
		if err != nil {
			r.problem = ""
			return nil, failed
		}
		name = r.name[:k]
	}
	child = n.names[string(name)]
	if child == nil && n.discovers && len(n.children) <= columns.MaxSlots {
		child = n.addChild(string(name), string(name))
		child.column = &column{path: string(name)}
	}
	if b[end] == ':' && end-p < maxMember && i <= len(n.order) && i < maxMembers {
		if i == len(n.order) {
			n.order = append(n.order, member{})
		}
		m := &n.order[i]
		m.text, m.child = append(m.text[:0], b[p:end+1]...), child
	}
	return child, r.colon(b, end)
}

// elements parses an array some of whose elements are selected.
func (r *parser) elements(b []byte, p int, n *node) int {
	if !r.enter(p) {
		return failed
	}
	if p = space(b, p+1); b[p] == ']' {
		r.leave()
		return p + 1
	}
	for i, wanted := 0, 0; ; i++ {
		if wanted < len(n.indexes) && n.indexes[wanted] == i {
			p = r.selected(b, p, n.items[wanted])
			wanted++
		} else {
			p = r.value(b, p)
		}
		if p < 0 {
			return failed
		}
		var last bool
		if p, last = r.next(b, p, ']'); last || p < 0 {
			return p
		}
	}
}

// leaf parses a selected value, or null, which is like no value.
func (r *parser) leaf(b []byte, p int, c *column) int {
	switch {
	case r.observing:
		return r.observe(b, p, &c.sample)
	case b[p] == 'n' && !c.json:
		return r.literal(b, p, "null")
	}
	c.found = r.stamp
	return r.fill(b, p, c)
}

// fill parses the value of a column.
func (r *parser) fill(b []byte, p int, c *column) int {
	switch {
	case c.json:
		end := r.value(b, p)
		if end >= 0 {
			c.text = content{data: b[p:end:end]}
		}
		return end
	case c.isList():
		c.values, c.bytes = c.values[:0], c.bytes[:0]
		for i := range c.ends {
			c.ends[i] = c.ends[i][:0]
		}
		return r.list(b, p, c, 0)
	case c.kind == number.Text:
		if b[p] != '"' {
			return r.wrong(b, p, c)
		}
		if r.room.to != nil {
			return r.copied(b, p, c)
		}
		end, escaped := r.text(b, p+1)
		if end >= 0 {
			c.text = content{data: b[p+1 : end-1 : end-1], escaped: escaped}
		}
		return end
	}
	bits, end := r.bits(b, p, c)
	if end >= 0 {
		record.PutElement(r.row[c.at:], c.size, bits)
	}
	return end
}

// list parses a list in depth lists around it.
func (r *parser) list(b []byte, p int, c *column, depth int) int {
	if b[p] != '[' {
		return r.wrong(b, p, c)
	}
	if !r.enter(p) {
		return failed
	}
	begin, n := p, int64(0)
	innermost := depth == c.levels+len(c.fixed)-1
	if p = space(b, p+1); b[p] == ']' {
		r.leave()
		p++
	} else {
		for last := false; !last; n++ {
			switch {
			case !innermost:
				p = r.list(b, p, c, depth+1)
			case c.kind == number.Text:
				p = r.listedText(b, p, c)
			default:
				if c.kind == number.Integer {
					before := len(c.values)
					p = r.integers(b, p, c)
					n += int64(len(c.values) - before)
				}
				var bits uint64
				bits, p = r.bits(b, p, c)
				c.values = append(c.values, bits)
			}
			if p < 0 {
				return failed
			}
			if p, last = r.next(b, p, ']'); p < 0 {
				return failed
			}
		}
	}
	switch {
	case depth >= c.levels:
		if want := c.fixed[depth-c.levels]; n != want {
			r.mismatch, r.form = c, words
			return r.fail(begin, "%v: expected a list of %d, found %d", c, want, n)
		}
	case depth == 0:
		c.n = n
	case depth < len(c.ends):
		c.ends[depth-1] = append(c.ends[depth-1], int64(len(c.ends[depth])))
	default:
		c.ends[depth-1] = append(c.ends[depth-1], int64(len(c.values)/max(c.count, 1)))
	}
	return p
}

// integers parses short integers of a list that have a comma behind them.
func (r *parser) integers(b []byte, p int, c *column) int {
	values, above := c.values, c.above
	for p+16 <= len(b) && p < r.pollAt {
		w := binary.LittleEndian.Uint64(b[p:])
		v, n := number.Leading(w)
		if n-1 > 6 || byte(w>>(8*n&63)) != ',' || v > above || byte(w) == '0' && n > 1 {
			break
		}
		values = append(values, v)
		if p += n + 1; b[p] == ' ' {
			p++
		}
	}
	c.values = values
	if b[p] <= ' ' {
		p = space(b, p)
	}
	return p
}

// listedText parses a string in a list.
func (r *parser) listedText(b []byte, p int, c *column) int {
	if b[p] != '"' {
		return r.wrong(b, p, c)
	}
	end, escaped := r.text(b, p+1)
	if end < 0 {
		return failed
	}
	if data := b[p+1 : end-1]; escaped {
		had := len(c.bytes)
		c.bytes = append(c.bytes, data...) // room
		n, err := unescape(c.bytes[had:], data, r.interrupt)
		if err != nil {
			r.problem = ""
			return failed
		}
		c.bytes = c.bytes[:had+n]
	} else {
		c.bytes = append(c.bytes, data...)
	}
	last := len(c.ends) - 1
	c.ends[last] = append(c.ends[last], int64(len(c.bytes)))
	return end
}

// bits parses a number or bool, and returns the bits of the element.
func (r *parser) bits(b []byte, p int, c *column) (bits uint64, end int) {
	if c.kind == number.Boolean {
		switch b[p] {
		case 't':
			return 1, r.literal(b, p, "true")
		case 'f':
			return 0, r.literal(b, p, "false")
		}
		return 0, r.wrong(b, p, c)
	}
	if b[p] != '-' && b[p]-'0' > 9 {
		return 0, r.wrong(b, p, c)
	}
	v, end := r.numeral(b, p)
	if end < 0 {
		return 0, failed
	}
	if c.kind == number.Integer {
		limit := c.above
		if bits = v.Mantissa; v.Negative {
			limit, bits = c.below, -v.Mantissa
		}
		if !v.integer || !v.Whole || v.Mantissa > limit {
			return r.otherInteger(b, p, end, c, v.integer)
		}
		return bits, end
	}
	if c.kind == number.Float32 {
		if f, ok := v.Exact(); ok && !number.Halfway(f) {
			return uint64(math.Float32bits(float32(f))), end
		}
		if k := -v.Exponent; v.Whole && k >= 0 && k < len(number.Powers) {
			f := number.Quotient[float32](v.Mantissa, k)
			if v.Negative {
				f = -f
			}
			return uint64(math.Float32bits(f)), end
		}
	} else {
		f, ok := v.Exact()
		if k := -v.Exponent; !ok && v.Whole && k >= 0 && k < len(number.Powers) {
			if f, ok = number.Quotient[float64](v.Mantissa, k), true; v.Negative {
				f = -f
			}
		}
		if ok {
			if c.kind == number.Float64 {
				return math.Float64bits(f), end
			}
			if h, ok := record.Halve(f, c.dtype); ok {
				return uint64(h), end
			}
		}
	}
	bits, flaw := number.Parse(b[p:end], c.dtype, c.kind)
	if flaw != number.OK {
		return 0, r.notThat(b, p, end, c, flaw)
	}
	return bits, end
}

// otherInteger parses a number that bits has not parsed as an integer.
func (r *parser) otherInteger(b []byte, p, end int, c *column, integer bool) (uint64, int) {
	bits, flaw := number.ParseInteger(b[p:end], c.dtype)
	if !integer {
		flaw = number.NotNumber
	}
	if flaw != number.OK {
		return 0, r.notThat(b, p, end, c, flaw)
	}
	return bits, end
}

// wrong notes the fault that the value at p is of another kind than the column's; or that it is not a value.
func (r *parser) wrong(b []byte, p int, c *column) int {
	end := r.value(b, p)
	if end < 0 {
		return failed
	}
	return r.notThat(b, p, end, c, number.NotNumber)
}

// notThat notes the fault that the column cannot have the value at p.
func (r *parser) notThat(b []byte, p, end int, c *column, flaw number.Fault) int {
	r.mismatch, r.form = c, formOf(b[p:end])
	return r.fail(p, "%v: expected %s, found %s", c, c.expected(flaw), shown(b[p:end]))
}

// shown formats a value for an error.
func shown(value []byte) string {
	const limit = 40
	if len(value) > limit {
		return fmt.Sprintf("%s and %d bytes more", value[:limit], len(value)-limit)
	}
	return string(value)
}

// finish gives the columns that have no value their defaults, and copies lists of fixed length into the row. It
// returns a column that has neither a value nor a default.
func (r *parser) finish(all []*column) (without *column) {
	for _, c := range all {
		if c.found != r.stamp {
			switch {
			case c.hasMissing:
				for k := range c.count {
					record.PutElement(r.row[c.at+k*c.size:], c.size, c.missing)
				}
				continue
			case c.fallback == nil:
				return c
			case c.kind == number.Text && c.levels == 0:
				c.text = content{data: c.fallback, given: true}
				if c.json {
					c.text.data = c.fallback[:len(c.fallback)-1]
				}
				continue
			}
			r.depth, r.pollAt = 0, len(c.fallback)
			r.fill(c.fallback, space(c.fallback, 0), c) // which was checked
		}
		if c.fixed != nil && c.levels == 0 {
			narrow(r.row[c.at:c.at+c.count*c.size], c.values, c.size)
		}
	}
	return nil
}

// narrow stores the low size bytes of each value. The only error is storage.ErrInterrupted.
func (r *parser) narrow(to []byte, values []uint64, size int) error {
	for every := storage.PollEvery / 8; len(values) > every; values = values[every:] {
		narrow(to, values[:every], size)
		if err := r.interrupt.Poll(); err != nil {
			return err
		}
		to = to[every*size:]
	}
	narrow(to, values, size)
	return nil
}

func narrow(to []byte, values []uint64, size int) {
	switch p := unsafe.Pointer(unsafe.SliceData(to)); size {
	case 1:
		narrowTo(unsafe.Slice((*uint8)(p), len(values)), values)
	case 2:
		narrowTo(unsafe.Slice((*uint16)(p), len(values)), values)
	case 4:
		narrowTo(unsafe.Slice((*uint32)(p), len(values)), values)
	case 8:
		copy(unsafe.Slice((*uint64)(p), len(values)), values)
	}
}

func narrowTo[T uint8 | uint16 | uint32](to []T, values []uint64) {
	for i, v := range values {
		to[i] = T(v)
	}
}

// expected describes the values of a column, for an error.
func (c *column) expected(flaw number.Fault) string {
	what := "text"
	switch {
	case c.json:
		return "a value"
	case c.kind == number.Boolean:
		what = "true or false"
	case c.kind != number.Text:
		what = number.Expected(c.dtype, flaw)
	}
	if c.isList() && flaw == number.NotNumber {
		return "a list of " + strings.TrimPrefix(what, "a ")
	}
	return what
}
