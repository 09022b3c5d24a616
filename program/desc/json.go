package desc

import (
	"bytes"
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// The JSON form is for people to read and edit. Names are those of the fields of program.proto. Dtypes and kinds are
// written by name, dims as lists. Fields with their default may be left out. Numbers with a point or an exponent are
// floats, others integers. Floats that are not finite are {"$float": "nan"}, "inf" or "-inf". There is no null.
// Protobuf fields of later releases are kept as "unknown", in base64.
//
// The parser does not use encoding/json, which ignores the case of names, accepts duplicate names and text that is not
// UTF-8, and does not give the position of an error.

// ---- Writing --------------------------------------------------------------------------------

// lineWidth is the width of lines, except where a single value is longer.
const lineWidth = 160

// ToJSON writes a program as JSON, with one line for each variable and operator that fits.
func ToJSON(p *Program) []byte {
	blocks := make([]Value, len(p.Blocks))
	for i, block := range p.Blocks {
		variables := make([]Value, len(block.Variables))
		for j, v := range block.Variables {
			variables[j] = v.value(false)
		}
		ops := make([]Value, len(block.Ops))
		for j, op := range block.Ops {
			ops[j] = op.value()
		}
		blocks[i] = mapOf(withUnknown(block.Unknown,
			Attribute{"parent", intOf(block.Parent)},
			Attribute{"variables", listOf(variables)},
			Attribute{"ops", listOf(ops)}))
	}
	program := mapOf(withUnknown(p.Unknown,
		Attribute{"version", intOf(int(p.Version))},
		Attribute{"blocks", listOf(blocks)}))
	// Four levels are always written over several lines: the program, its blocks, each block, and its lists of
	// variables and ops.
	return append(appendSpread(nil, &program, 0, 4), '\n')
}

// JSON returns the variable as a JSON object.
func (v *Variable) JSON() []byte {
	value := v.value(true)
	return appendJSON(nil, &value)
}

// JSON returns the attributes as a JSON object.
func (a Attributes) JSON() []byte {
	value := mapOf(a)
	return appendJSON(nil, &value)
}

// String returns the value as JSON.
func (v Value) String() string { return string(appendJSON(nil, &v)) }

// value converts the variable to a JSON object. If full, fields with their default are included.
func (v *Variable) value(full bool) Value {
	all := Attributes{{"name", textOf(v.Name)}, {"kind", textOf(v.Kind.String())}}
	if full || v.Persistable {
		all = append(all, Attribute{"persistable", Value{Kind: BoolValue, Bool: v.Persistable}})
	}
	if v.DType != pyfeed.Any {
		all = append(all, Attribute{"dtype", textOf(v.DType.String())})
	}
	if v.Shaped {
		all = append(all, Attribute{"dims", dimsOf(v.Dims)})
	}
	if full && v.Kind == Tensor || v.LoDLevels != 0 {
		all = append(all, Attribute{"lod_levels", intOf(v.LoDLevels)})
	}
	if v.Slots != nil {
		slots := make([]Value, len(v.Slots))
		for i, s := range v.Slots {
			var slot Attributes
			if s.Name != "" {
				slot = append(slot, Attribute{"name", textOf(s.Name)})
			}
			if s.DType != "" {
				slot = append(slot, Attribute{"dtype", textOf(s.DType)})
			}
			slot = append(slot, Attribute{"dims", dimsOf(s.Dims)})
			if full || s.LoDLevels != 0 {
				slot = append(slot, Attribute{"lod_levels", intOf(s.LoDLevels)})
			}
			slots[i] = mapOf(slot)
		}
		all = append(all, Attribute{"slots", listOf(slots)})
	}
	return mapOf(withUnknown(v.Unknown, all...))
}

func (op *Op) value() Value {
	all := Attributes{{"type", textOf(op.Type)}, {"inputs", textsOf(op.Inputs)}, {"outputs", textsOf(op.Outputs)}}
	if len(op.Attributes) > 0 {
		all = append(all, Attribute{"attributes", mapOf(op.Attributes)})
	}
	if op.Where != "" {
		all = append(all, Attribute{"where", textOf(op.Where)})
	}
	return mapOf(withUnknown(op.Unknown, all...))
}

func withUnknown(unknown []byte, all ...Attribute) Attributes {
	if len(unknown) > 0 {
		all = append(all, Attribute{"unknown", textOf(base64.StdEncoding.EncodeToString(unknown))})
	}
	return all
}

func intOf(i int) Value          { return Value{Kind: IntValue, Int: int64(i)} }
func textOf(text string) Value   { return Value{Kind: TextValue, Text: text} }
func listOf(list []Value) Value  { return Value{Kind: ListValue, List: list} }
func mapOf(all Attributes) Value { return Value{Kind: MapValue, Map: all} }

func textsOf(texts []string) Value {
	list := make([]Value, len(texts))
	for i, text := range texts {
		list[i] = textOf(text)
	}
	return listOf(list)
}

func dimsOf(dims pyfeed.Dims) Value {
	list := make([]Value, len(dims))
	for i, d := range dims {
		list[i] = Value{Kind: IntValue, Int: d}
	}
	return listOf(list)
}

// size returns the number of elements of a list or map.
func (v *Value) size() int { return len(v.List) + len(v.Map) }

// appendSpread writes a value over several lines: the outer `levels` levels always, deeper ones if a line would be too
// long.
func appendSpread(b []byte, v *Value, indent, levels int) []byte {
	if v.size() == 0 {
		return appendJSON(b, v)
	}
	if levels <= 0 {
		line := len(b) - (bytes.LastIndexByte(b, '\n') + 1)
		if one := appendJSON(nil, v); line+len(one) < lineWidth {
			return append(b, one...)
		}
	}
	opening, closing := byte('['), byte(']')
	if v.Kind == MapValue {
		opening, closing = '{', '}'
	}
	b = append(b, opening)
	for i := range v.size() {
		if i > 0 {
			b = append(b, ',')
		}
		b = newLine(b, indent+2)
		if v.Kind == MapValue {
			b = append(appendQuoted(b, v.Map[i].Name), ": "...)
			b = appendSpread(b, &v.Map[i].Value, indent+2, levels-1)
		} else {
			b = appendSpread(b, &v.List[i], indent+2, levels-1)
		}
	}
	return append(newLine(b, indent), closing)
}

func newLine(b []byte, indent int) []byte {
	b = append(b, '\n')
	for range indent {
		b = append(b, ' ')
	}
	return b
}

// appendJSON writes a value on one line.
func appendJSON(b []byte, v *Value) []byte {
	switch v.Kind {
	case BoolValue:
		return strconv.AppendBool(b, v.Bool)
	case IntValue:
		return strconv.AppendInt(b, v.Int, 10)
	case FloatValue:
		return appendFloat(b, v.Float)
	case TextValue:
		return appendQuoted(b, v.Text)
	case ListValue:
		b = append(b, '[')
		for i := range v.List {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = appendJSON(b, &v.List[i])
		}
		return append(b, ']')
	case MapValue:
		b = append(b, '{')
		for i := range v.Map {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = append(appendQuoted(b, v.Map[i].Name), ": "...)
			b = appendJSON(b, &v.Map[i].Value)
		}
		return append(b, '}')
	}
	return append(b, "null"...) // the zero Value: refused when it is read
}

func appendFloat(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f):
		return append(b, `{"$float": "nan"}`...)
	case math.IsInf(f, 1):
		return append(b, `{"$float": "inf"}`...)
	case math.IsInf(f, -1):
		return append(b, `{"$float": "-inf"}`...)
	}
	begin := len(b)
	b = strconv.AppendFloat(b, f, 'g', -1, 64) // the fewest digits that give the same float
	if !bytes.ContainsAny(b[begin:], ".e") {
		b = append(b, ".0"...)
	}
	return b
}

// appendQuoted quotes text. It escapes only what JSON requires.
func appendQuoted(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range text { // invalid UTF-8 becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r < ' ' || r == 0x7f:
			b = append(b, '\\', 'u', '0', '0', digits[r>>4], digits[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

// ---- Reading --------------------------------------------------------------------------------

// fromJSON reads a program, which may have been edited by hand. Errors have line and column, both counted from 1.
func fromJSON(data []byte) (*Program, error) {
	return parseJSON(data, (*scanner).program)
}

// ParseVariable reads a variable from a JSON object. The default kind is tensor.
func ParseVariable(data []byte) (*Variable, error) {
	return parseJSON(data, (*scanner).variable)
}

// ParseOp reads an operator from a JSON object.
func ParseOp(data []byte) (*Op, error) {
	return parseJSON(data, (*scanner).op)
}

// A scanner reads JSON from left to right.
type scanner struct {
	data []byte
	at   int
	counts
}

// space has the white space characters of JSON.
const space = " \t\n\r"

// parseJSON reads all of the data with parse, or returns an error.
func parseJSON[T any](data []byte, parse func(*scanner, *T) *fault) (*T, error) {
	s := &scanner{data: data}
	of := new(T)
	f := s.utf8()
	if f == nil {
		f = parse(s, of)
	}
	if f == nil {
		if s.next(); s.at == len(data) {
			return of, nil
		}
		f = s.syntax("the end")
	}
	before := data[:f.at]
	line := bytes.Count(before, []byte{'\n'}) + 1
	column := utf8.RuneCount(before[bytes.LastIndexByte(before, '\n')+1:]) + 1
	return nil, f.err("line " + strconv.Itoa(line) + ", column " + strconv.Itoa(column))
}

func (s *scanner) utf8() *fault {
	for at := 0; at < len(s.data); {
		r, n := utf8.DecodeRune(s.data[at:])
		if r == utf8.RuneError && n == 1 {
			return corruptf(at, "expected UTF-8, found the byte 0x%02x", s.data[at])
		}
		at += n
	}
	return nil
}

// next skips white space and returns the next byte, or 0 at the end.
func (s *scanner) next() byte {
	for s.at < len(s.data) && strings.IndexByte(space, s.data[s.at]) >= 0 {
		s.at++
	}
	if s.at == len(s.data) {
		return 0
	}
	return s.data[s.at]
}

// expected makes a fault about the next token. A value of the wrong kind is Invalid; anything else is not JSON, and
// Corrupt.
func (s *scanner) expected(what string) *fault {
	kind := pyfeed.Corrupt
	if strings.IndexByte(`"{[-0123456789`, s.next()) >= 0 || s.literal() != "" {
		kind = pyfeed.Invalid
	}
	return faultf(kind, s.at, "expected %s, found %s", what, s.found())
}

func (s *scanner) syntax(what string) *fault {
	s.next()
	return corruptf(s.at, "expected %s, found %s", what, s.found())
}

func (s *scanner) literal() string {
	for _, word := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(s.data[s.at:], []byte(word)) {
			return word
		}
	}
	return ""
}

// found describes the next token: a word, a number, the beginning of a string, or a character.
func (s *scanner) found() string {
	rest := s.data[s.at:]
	if len(rest) == 0 {
		return "the end"
	}
	if rest[0] == '"' {
		n := 1
		for n < len(rest) && rest[n] != '"' && rest[n] != '\n' {
			n++
		}
		return quote(string(rest[1:n]))
	}
	n := 0
	for n < len(rest) && (rest[n] == '-' || rest[n] == '+' || rest[n] == '.' || rest[n] == '_' ||
		rest[n] >= '0' && rest[n] <= '9' || rest[n]|0x20 >= 'a' && rest[n]|0x20 <= 'z') {
		n++
	}
	if n == 0 {
		_, n = utf8.DecodeRune(rest)
		return strconv.QuoteRune([]rune(string(rest[:n]))[0])
	}
	if n > 60 {
		return string(rest[:60]) + "…"
	}
	return string(rest[:n])
}

// take skips white space, and the byte c if it is next. It reports whether c was there.
func (s *scanner) take(c byte) bool {
	if s.next() != c || s.at == len(s.data) {
		return false
	}
	s.at++
	return true
}

// object reads an object. It calls member after the colon of each member to read the value. at is the position of the
// name.
func (s *scanner) object(what string, member func(name string, at int) *fault) *fault {
	if !s.take('{') {
		return s.expected(what + ", an object")
	}
	if s.take('}') {
		return nil
	}
	for seen := map[string]bool{}; ; {
		if s.next() != '"' {
			return s.syntax("a name in quotes")
		}
		at := s.at
		name, err := s.text("a name")
		if err != nil {
			return err
		}
		if seen[name] {
			return corruptf(at, "expected each name once, found %s again", quote(name))
		}
		seen[name] = true
		if !s.take(':') {
			return s.syntax("a colon")
		}
		if err := member(name, at); err != nil {
			return err
		}
		if s.take('}') {
			return nil
		}
		if !s.take(',') {
			return s.syntax("a comma or a closing brace")
		}
	}
}

// list reads a list. It calls element to read each element.
func (s *scanner) list(what string, element func() *fault) *fault {
	if !s.take('[') {
		return s.expected(what + ", a list")
	}
	if s.take(']') {
		return nil
	}
	for {
		if err := element(); err != nil {
			return err
		}
		if s.take(']') {
			return nil
		}
		if !s.take(',') {
			return s.syntax("a comma or a closing bracket")
		}
	}
}

// text reads a string.
func (s *scanner) text(what string) (string, *fault) {
	if !s.take('"') {
		return "", s.expected(what + ", a text in quotes")
	}
	begin := s.at
	var b []byte // the text so far, once there was an escape
	for plain := begin; ; {
		if s.at == len(s.data) {
			return "", corruptf(begin-1, "expected a closing quote, found the end")
		}
		c := s.data[s.at]
		switch {
		case c == '"':
			b = append(b, s.data[plain:s.at]...)
			s.at++
			return string(b), nil
		case c < ' ':
			return "", corruptf(s.at, `expected \n or the like in a text, found the byte 0x%02x`, c)
		case c != '\\':
			s.at++
			continue
		}
		b = append(b, s.data[plain:s.at]...)
		at := s.at
		if s.at++; s.at == len(s.data) {
			continue
		}
		c = s.data[s.at]
		s.at++
		if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
			b = append(b, "\"\\/\b\f\n\r\t"[i])
		} else if c == 'u' {
			r, ok := s.hex()
			if r >= 0xd800 && r < 0xdc00 && ok { // the first of a surrogate pair
				ok = bytes.HasPrefix(s.data[s.at:], []byte(`\u`))
				if s.at += 2; ok {
					var low rune
					low, ok = s.hex()
					ok = ok && low >= 0xdc00 && low < 0xe000
					r = 0x10000 + (r-0xd800)<<10 + (low - 0xdc00)
				}
			} else if r >= 0xdc00 && r < 0xe000 {
				ok = false
			}
			if !ok {
				return "", corruptf(at, `expected \u with 4 digits, or two for one character, found %s`, quote(string(s.data[at:min(at+12, len(s.data))])))
			}
			b = utf8.AppendRune(b, r)
		} else {
			return "", corruptf(at, `expected \", \\, \/, \b, \f, \n, \r, \t or \u, found %s`, quote(string(s.data[at:min(at+2, len(s.data))])))
		}
		plain = s.at
	}
}

// hex reads four hexadecimal digits.
func (s *scanner) hex() (rune, bool) {
	if len(s.data)-s.at < 4 {
		return 0, false
	}
	// With base 16, ParseUint accepts no underscores; it never accepts a sign.
	v, err := strconv.ParseUint(string(s.data[s.at:s.at+4]), 16, 16)
	s.at += 4
	return rune(v), err == nil
}

// number reads a number. It is a float if it has a point or an exponent.
func (s *scanner) number() (v Value, _ *fault) {
	begin, at := s.at, s.at
	digits := func() bool {
		from := at
		for at < len(s.data) && s.data[at] >= '0' && s.data[at] <= '9' {
			at++
		}
		return at > from
	}
	is := func(set string) bool {
		if at == len(s.data) || strings.IndexByte(set, s.data[at]) < 0 {
			return false
		}
		at++
		return true
	}
	is("-")
	ok := is("0") || digits() // a number with more digits does not begin with 0
	v.Kind = IntValue
	if ok && is(".") {
		v.Kind, ok = FloatValue, digits()
	}
	if ok && is("eE") {
		is("+-")
		v.Kind, ok = FloatValue, digits()
	}
	if !ok || is("0123456789") {
		return v, corruptf(begin, "expected a number, found %s", s.found())
	}
	var err error
	if text := string(s.data[begin:at]); v.Kind == IntValue {
		if v.Int, err = strconv.ParseInt(text, 10, 64); err != nil {
			return v, faultf(pyfeed.Invalid, begin, "expected an integer of 64 bits (or a point, for a float), found %s", s.found())
		}
	} else if v.Float, err = strconv.ParseFloat(text, 64); err != nil {
		return v, faultf(pyfeed.Invalid, begin, "expected a float of 64 bits, found %s", s.found())
	}
	s.at = at
	return v, nil
}

func (s *scanner) integer(what string) (int64, *fault) {
	if c := s.next(); c != '-' && (c < '0' || c > '9') {
		return 0, s.expected(what + ", an integer")
	}
	at := s.at
	v, err := s.number()
	if err == nil && v.Kind != IntValue {
		s.at = at
		err = s.expected(what + ", an integer")
	}
	return v.Int, err
}

func (s *scanner) flag(what string) (bool, *fault) {
	s.next()
	word := s.literal()
	if word != "true" && word != "false" {
		return false, s.expected(what + ", true or false")
	}
	s.at += len(word)
	return word == "true", nil
}

// value reads a value of any kind.
func (s *scanner) value(depth int) (v Value, err *fault) {
	c := s.next()
	at := s.at
	if err := checkCount(pyfeed.Invalid, "values", &s.values, maxValues, at); err != nil {
		return v, err
	}
	if depth > maxDepth+1 { // checked before the recursion; one level more may be a {"$float": ...}
		return v, checkDepth(pyfeed.Invalid, depth, at)
	}
	switch {
	case c == '"':
		v.Kind = TextValue
		v.Text, err = s.text("a value")
	case c == '-' || c >= '0' && c <= '9':
		v, err = s.number()
	case c == '[':
		v.Kind = ListValue
		if err = checkDepth(pyfeed.Invalid, depth+1, at); err != nil {
			break
		}
		err = s.list("a value", func() *fault {
			e, err := s.value(depth + 1)
			if err != nil {
				return err.in("element %d", len(v.List))
			}
			v.List = append(v.List, e)
			return nil
		})
	case c == '{':
		v.Kind = MapValue
		v.Map, err = s.attributes("entry", depth+1, true)
		if err == nil && len(v.Map) == 1 && v.Map[0].Name == floatName {
			v = v.Map[0].Value // a float: it does not count as a map for the depth
		} else if err == nil {
			err = checkDepth(pyfeed.Invalid, depth+1, at)
		}
	default:
		word := s.literal()
		if word != "true" && word != "false" {
			return v, s.expected("a value")
		}
		v.Kind, v.Bool = BoolValue, word == "true"
		s.at += len(word)
	}
	return v, err
}

// attributes reads attributes or the entries of a map. If float is set, a map of one entry may stand for a float, which
// then replaces the entry's value.
func (s *scanner) attributes(what string, depth int, float bool) (Attributes, *fault) {
	var all Attributes
	reservedAt := -1
	begin := s.at
	err := s.object(what, func(name string, at int) *fault {
		v, err := s.value(depth)
		if err != nil {
			return err.in("%s %s", what, quote(name))
		}
		if name == floatName {
			reservedAt = at
		}
		all = append(all, Attribute{name, v})
		return nil
	})
	if err != nil {
		return nil, err
	}
	if reservedAt >= 0 {
		f, ok := all[0].Value.float()
		if !ok || !float || len(all) != 1 {
			err := checkReserved(floatName)
			err.kind, err.at = pyfeed.Invalid, reservedAt
			return nil, err
		}
		all[0].Value = Value{Kind: FloatValue, Float: f}
	}
	return sorted(all, what, begin)
}

// float returns the float that {"$float": v} stands for.
func (v *Value) float() (f float64, ok bool) {
	switch {
	case v.Kind != TextValue:
	case v.Text == "nan":
		return math.Float64frombits(nan), true
	case v.Text == "inf":
		return math.Inf(1), true
	case v.Text == "-inf":
		return math.Inf(-1), true
	}
	return 0, false
}

// unknownName makes a fault about a name that an object does not have.
func unknownName(name string, at int, names ...string) *fault {
	return faultf(pyfeed.Invalid, at, "expected one of the names %s, found %s", strings.Join(names, ", "), quote(name))
}

func (s *scanner) program(p *Program) *fault {
	begin := s.at
	err := s.object("a program", func(name string, at int) (err *fault) {
		switch name {
		case "version":
			var version int64
			if version, err = s.integer("version"); err == nil {
				// Checked at once if it comes first, as ToJSON writes it: the rest may be in an unknown form.
				err = checkVersion(version, at)
			}
			p.Version = uint32(version)
		case "blocks":
			err = s.list("blocks", func() *fault {
				i := len(p.Blocks)
				block := new(Block)
				if err := checkCount(pyfeed.Invalid, "blocks", &s.blocks, MaxBlocks, s.at); err != nil {
					return err
				}
				if err := s.block(block); err != nil {
					return err.in("block %d", i)
				}
				p.Blocks = append(p.Blocks, block)
				return nil
			})
		case "unknown":
			p.Unknown, err = s.unknown(programFields)
		default:
			err = unknownName(name, at, "version", "blocks", "unknown")
		}
		return err
	})
	if err == nil && p.Version == 0 { // the version was left out
		err = checkVersion(0, begin)
	}
	return err
}

func (s *scanner) block(block *Block) *fault {
	return s.object("a block", func(name string, at int) (err *fault) {
		switch name {
		case "parent":
			var parent int64
			if parent, err = s.integer("parent"); err == nil && parent != int64(int32(parent)) {
				err = faultf(pyfeed.Invalid, at, "parent: expected the index of a block or -1, found %d", parent)
			}
			block.Parent = int(parent)
		case "variables":
			err = s.list("variables", func() *fault {
				if err := checkCount(pyfeed.Invalid, "variables", &s.variables, MaxVariables, s.at); err != nil {
					return err
				}
				v := new(Variable)
				if err := s.variable(v); err != nil {
					return err.in("%s", v.label(len(block.Variables)))
				}
				block.Variables = append(block.Variables, v)
				return nil
			})
		case "ops":
			err = s.list("ops", func() *fault {
				if err := checkCount(pyfeed.Invalid, "ops", &s.ops, MaxOps, s.at); err != nil {
					return err
				}
				op := new(Op)
				if err := s.op(op); err != nil {
					return err.in("op %d", len(block.Ops))
				}
				block.Ops = append(block.Ops, op)
				return nil
			})
		case "unknown":
			block.Unknown, err = s.unknown(blockFields)
		default:
			err = unknownName(name, at, "parent", "variables", "ops", "unknown")
		}
		return err
	})
}

func (s *scanner) variable(v *Variable) *fault {
	v.Kind = Tensor
	named := false
	begin := s.at
	err := s.object("a variable", func(name string, at int) (err *fault) {
		switch name {
		case "name":
			named = true
			v.Name, err = s.text("name")
		case "kind":
			var kind string
			if kind, err = s.text("kind"); err == nil {
				var ok bool
				if v.Kind, ok = kindOf(kind); !ok {
					err = faultf(pyfeed.Invalid, at, `kind: expected "tensor", "reader" or "stage", found %s`, quote(kind))
				}
			}
		case "persistable":
			v.Persistable, err = s.flag("persistable")
		case "dtype":
			var dtype string
			if dtype, err = s.text("dtype"); err == nil {
				v.DType, err = checkDType(pyfeed.Invalid, dtype, at)
			}
		case "dims":
			v.Shaped = true
			v.Dims, err = s.dims()
		case "lod_levels":
			v.LoDLevels, err = s.lodLevels()
		case "slots":
			v.Slots, err = s.slotList()
		case "unknown":
			v.Unknown, err = s.unknown(variableFields)
		default:
			err = unknownName(name, at, "name", "kind", "persistable", "dtype", "dims", "lod_levels", "slots", "unknown")
		}
		return err
	})
	if err == nil && !named {
		err = faultf(pyfeed.Invalid, begin, "name: expected a text, found none")
	}
	return err
}

func (s *scanner) slotList() ([]record.SlotAttributes, *fault) {
	slots := []record.SlotAttributes{}
	err := s.list("slots", func() *fault {
		slot := record.SlotAttributes{Dims: pyfeed.Dims{}}
		if err := checkCount(pyfeed.Invalid, "slots", &s.slots, maxSlots, s.at); err != nil {
			return err
		}
		err := s.object("a slot", func(name string, at int) (err *fault) {
			switch name {
			case "name":
				slot.Name, err = s.text("name")
			case "dtype":
				if slot.DType, err = s.text("dtype"); err == nil {
					_, err = checkDType(pyfeed.Invalid, slot.DType, at)
				}
			case "dims":
				slot.Dims, err = s.dims()
			case "lod_levels":
				slot.LoDLevels, err = s.lodLevels()
			default:
				err = unknownName(name, at, "name", "dtype", "dims", "lod_levels")
			}
			return err
		})
		if err != nil {
			return err.in("slot %d", len(slots))
		}
		slots = append(slots, slot)
		return nil
	})
	return slots, err
}

func (s *scanner) dims() (pyfeed.Dims, *fault) {
	dims := pyfeed.Dims{}
	err := s.list("dims", func() *fault {
		s.next()
		at := s.at
		d, err := s.integer("a dimension")
		if err == nil {
			err = checkDim(pyfeed.Invalid, dims, d, at)
		}
		dims = append(dims, d)
		return err
	})
	return dims, err
}

func (s *scanner) lodLevels() (int, *fault) {
	s.next()
	at := s.at
	levels, err := s.integer("lod_levels")
	if err == nil {
		err = checkLoDLevels(pyfeed.Invalid, levels, at)
	}
	return int(levels), err
}

func (s *scanner) op(op *Op) *fault {
	typed := false
	begin := s.at
	err := s.object("an operator", func(name string, at int) (err *fault) {
		switch name {
		case "type":
			typed = true
			op.Type, err = s.text("type")
		case "inputs":
			op.Inputs, err = s.names(name)
		case "outputs":
			op.Outputs, err = s.names(name)
		case "attributes":
			op.Attributes, err = s.attributes("attribute", 0, false)
		case "where":
			op.Where, err = s.text("where")
		case "unknown":
			op.Unknown, err = s.unknown(opFields)
		default:
			err = unknownName(name, at, "type", "inputs", "outputs", "attributes", "where", "unknown")
		}
		return err
	})
	if err == nil && !typed {
		err = faultf(pyfeed.Invalid, begin, "type: expected a text, found none")
	}
	return err
}

func (s *scanner) names(what string) (names []string, _ *fault) {
	err := s.list(what, func() *fault {
		name, err := s.text("the name of a variable")
		if err != nil {
			return err.in("%s", what)
		}
		names = append(names, name)
		return nil
	})
	return names, err
}

// unknown reads protobuf fields of later releases. Fields with numbers up to known are not allowed in it.
func (s *scanner) unknown(known int) ([]byte, *fault) {
	s.next()
	at := s.at
	text, err := s.text("unknown")
	if err != nil {
		return nil, err
	}
	data, decodeErr := base64.StdEncoding.DecodeString(text)
	if decodeErr != nil {
		return nil, faultf(pyfeed.Invalid, at, "unknown: expected base64, found %s", quote(text))
	}
	for m := (message{&decoder{data: data}, 0, len(data)}); m.more(); {
		f, err := m.next()
		if err != nil {
			return nil, faultf(pyfeed.Invalid, at, "unknown: %s", err.text)
		}
		if int(f.number) <= known {
			return nil, faultf(pyfeed.Invalid, at, "unknown: expected fields from %d on, found field %d", known+1, f.number)
		}
	}
	if len(data) == 0 {
		return nil, nil
	}
	return data, nil
}
