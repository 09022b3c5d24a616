package parquet

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/columns"
)

// Condition compares the values of a column with a value, or with several. In JSON it is a list of the column's name or
// number, the operator, and the value or values: numbers, booleans, or text.
type Condition struct {
	Column   columns.Select
	Operator string
	Values   []any // json.Number, bool or string
}

var operators = []string{"==", "!=", "<", "<=", ">", ">=", "in"}

// UnmarshalJSON implements json.Unmarshaler.
func (c *Condition) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil || len(parts) != 3 {
		return pyfeed.Errorf(pyfeed.Invalid, "where: expected a column, an operator and a value, found %s", text)
	}
	if err := c.Column.UnmarshalJSON(parts[0]); err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "where: %v", err)
	}
	if err := json.Unmarshal(parts[1], &c.Operator); err != nil || !slices.Contains(operators, c.Operator) {
		return pyfeed.Errorf(pyfeed.Invalid, "where: expected one of the operators %q, found %s", operators, parts[1])
	}
	decoder := json.NewDecoder(bytes.NewReader(parts[2]))
	decoder.UseNumber()
	var value any
	err := decoder.Decode(&value)
	if list, is := value.([]any); is && c.Operator == "in" {
		c.Values = list
	} else {
		c.Values = []any{value}
		if c.Operator == "in" {
			err = fmt.Errorf("no list")
		}
	}
	for _, v := range c.Values {
		switch v.(type) {
		case json.Number, bool, string:
		default:
			err = fmt.Errorf("no value")
		}
	}
	if err != nil {
		return pyfeed.Errorf(pyfeed.Invalid, "where: expected a number, a boolean or a text, and a list of them for in, found %s", parts[2])
	}
	return nil
}

// filter decides which row groups are read.
type filter struct{ tests []test }

// test is a Condition of a column.
type test struct {
	leaf     *leaf
	operator string
	values   []bound
}

// bound is a value that can be compared: a number, or a byte string.
type bound struct {
	number *big.Float // nil: text
	text   []byte
}

func (b bound) compare(c bound) int {
	if b.number != nil {
		return b.number.Cmp(c.number)
	}
	return bytes.Compare(b.text, c.text)
}

// exact is the precision, in bits, with which numbers are compared. All integers and floats of 64 bits are exact.
const exact = 256

func newNumber(text string) (*big.Float, bool) {
	f, _, err := big.ParseFloat(text, 10, exact, big.ToNearestEven)
	return f, err == nil
}

// parse returns the number that a text stands for in comparisons with values of the column.
func (l *leaf) parse(text string) (*big.Float, bool) {
	bits := 0
	switch l.typ {
	case typeFloat:
		bits = 32
	case typeDouble:
		bits = 64
	default:
		return newNumber(text)
	}
	f, err := strconv.ParseFloat(text, bits)
	return big.NewFloat(f), err == nil
}

func (r *records) newFilter(all []Condition) (*filter, error) {
	f := &filter{}
	names := r.names()
	for i, c := range all {
		invalid := func(format string, args ...any) error {
			return pyfeed.Errorf(pyfeed.Invalid, "parquet: where: condition %d: %s", i, fmt.Sprintf(format, args...))
		}
		chosen, _, err := names.Choose(c.Column)
		if err != nil {
			return nil, invalid("%v", err)
		}
		if len(chosen) != 1 {
			return nil, invalid("expected one column, found %d", len(chosen))
		}
		l := &r.leaves[chosen[0]]
		t := test{leaf: l, operator: c.Operator}
		kind := l.form()
		if l.maxRep > 0 || kind.dims != nil || l.typ == typeInt96 || l.typ == typeFixed || l.annotation == annotatedDecimal && l.typ == typeByteArray {
			return nil, invalid("expected a column of numbers, booleans or byte strings, found %s in %v", l.describe(), l)
		}
		for _, v := range c.Values {
			b := bound{}
			switch v := v.(type) {
			case string:
				b.text = append([]byte{}, v...)
			case bool:
				b.number = big.NewFloat(0)
				if v {
					b.number = big.NewFloat(1)
				}
			case json.Number:
				known := false
				if b.number, known = l.parse(v.String()); !known {
					return nil, invalid("expected a number, found %s", v)
				}
			}
			if kind.text != (b.number == nil) {
				return nil, invalid("expected values like those of %v, %s, found %v", l, l.describe(), v)
			}
			t.values = append(t.values, b)
		}
		f.tests = append(f.tests, t)
	}
	return f, nil
}

// keeps reports whether a row of a row group may meet all conditions, as far as the statistics tell.
func (f *filter) keeps(g *groupMeta) bool {
	for i := range f.tests {
		t := &f.tests[i]
		if t.leaf.number < len(g.columns) && !t.keeps(&g.columns[t.leaf.number]) {
			return false
		}
	}
	return true
}

func (t *test) keeps(m *columnMeta) bool {
	s := &m.statistics
	if s.nulls >= 0 && s.nulls == m.values {
		return false // no value meets a condition
	}
	low, high, known := t.leaf.bounds(s)
	if !known {
		return true
	}
	meets := func(v bound) bool {
		switch t.operator {
		case "<":
			return low.compare(v) < 0
		case "<=":
			return low.compare(v) <= 0
		case ">":
			return high.compare(v) > 0
		case ">=":
			return high.compare(v) >= 0
		case "!=":
			// The bounds of floats leave out NaN, which is not equal to anything. Those of text may be cut off.
			return low.compare(v) != 0 || high.compare(v) != 0 || low.number == nil || t.leaf.typ == typeFloat || t.leaf.typ == typeDouble
		}
		return low.compare(v) <= 0 && v.compare(high) <= 0
	}
	return slices.ContainsFunc(t.values, meets)
}

// bounds returns the least and the greatest value of a column that is not NaN. known is false if the statistics do not
// tell.
func (l *leaf) bounds(s *statistics) (low, high bound, known bool) {
	text := l.form().text
	least, greatest := s.min, s.max
	if (least == nil || greatest == nil) && !text && !(l.annotation == annotatedInteger && l.unsigned) {
		least, greatest = s.oldMin, s.oldMax // whose order is that of signed numbers
	}
	if least == nil || greatest == nil {
		return low, high, false
	}
	if text {
		return bound{text: least}, bound{text: greatest}, true
	}
	if low.number, known = l.decode(least); known {
		high.number, known = l.decode(greatest)
	}
	return low, high, known
}

// decode decodes a number of the statistics.
func (l *leaf) decode(data []byte) (*big.Float, bool) {
	size := l.typ.size()
	if l.typ == typeBoolean {
		size = 1
	}
	if len(data) != size {
		return nil, false
	}
	var f float64
	switch l.typ {
	case typeBoolean:
		f = float64(data[0] & 1)
	case typeFloat:
		f = float64(math.Float32frombits(binary.LittleEndian.Uint32(data)))
	case typeDouble:
		f = math.Float64frombits(binary.LittleEndian.Uint64(data))
	default:
		var v int64
		if size == 4 {
			v = int64(int32(binary.LittleEndian.Uint32(data)))
		} else {
			v = int64(binary.LittleEndian.Uint64(data))
		}
		number := strconv.FormatInt(v, 10)
		if l.annotation == annotatedInteger && l.unsigned {
			number = strconv.FormatUint(uint64(v), 10)
			if size == 4 {
				number = strconv.FormatUint(uint64(uint32(v)), 10)
			}
		}
		if l.annotation == annotatedDecimal {
			number += "e" + strconv.Itoa(-l.scale)
		}
		return newNumber(number)
	}
	if f != f {
		return nil, false
	}
	return big.NewFloat(f).SetPrec(exact), true
}
