package desc

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// This file reads and writes program.proto by hand. For eleven messages, a generator or reflection is not worth it.

// The number of known fields of the messages that keep unknown fields. Fields are numbered from 1.
const (
	programFields  = 2
	blockFields    = 3
	variableFields = 7
	opFields       = 5
)

// The bits written for every NaN, so that equal programs have equal bytes.
const nan = 0x7ff8000000000000

// ---- Writing --------------------------------------------------------------------------------

// Marshal writes a program in the format of program.proto: known fields in the order of their numbers without those
// that have their default, then the unknown fields unchanged. Equal programs give equal bytes.
func Marshal(p *Program) []byte {
	b := appendInt(nil, 1, uint64(p.Version))
	for _, block := range p.Blocks {
		b = appendMessage(b, 2, block.append)
	}
	return append(b, p.Unknown...)
}

func (block *Block) append(b []byte) []byte {
	b = appendInt(b, 1, uint64(int64(block.Parent))) // a negative int32 is extended to 64 bits
	for _, v := range block.Variables {
		b = appendMessage(b, 2, v.append)
	}
	for _, op := range block.Ops {
		b = appendMessage(b, 3, op.append)
	}
	return append(b, block.Unknown...)
}

func (v *Variable) append(b []byte) []byte {
	b = appendText(b, 1, v.Name)
	b = appendInt(b, 2, uint64(v.Kind))
	b = appendInt(b, 3, protowire.EncodeBool(v.Persistable))
	if v.DType != pyfeed.Any {
		b = appendText(b, 4, v.DType.String())
	}
	if v.Shaped {
		b = appendShape(b, 5, v.Dims)
	}
	b = appendInt(b, 6, uint64(v.LoDLevels))
	if v.Slots != nil {
		b = appendMessage(b, 7, func(b []byte) []byte {
			for i := range v.Slots {
				b = appendMessage(b, 1, func(b []byte) []byte { return appendSlot(b, &v.Slots[i]) })
			}
			return b
		})
	}
	return append(b, v.Unknown...)
}

func appendSlot(b []byte, s *record.SlotAttributes) []byte {
	b = appendText(b, 1, s.Name)
	b = appendText(b, 2, s.DType)
	b = appendShape(b, 3, s.Dims)
	return appendInt(b, 4, uint64(s.LoDLevels))
}

func appendShape(b []byte, number protowire.Number, dims pyfeed.Dims) []byte {
	return appendMessage(b, number, func(b []byte) []byte {
		if len(dims) == 0 {
			return b
		}
		return appendMessage(b, 1, func(b []byte) []byte { // packed
			for _, d := range dims {
				b = protowire.AppendVarint(b, uint64(d))
			}
			return b
		})
	})
}

func (op *Op) append(b []byte) []byte {
	b = appendText(b, 1, op.Type)
	for _, name := range op.Inputs {
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	for _, name := range op.Outputs {
		b = protowire.AppendTag(b, 3, protowire.BytesType)
		b = protowire.AppendString(b, name)
	}
	b = appendAttributes(b, 4, op.Attributes)
	b = appendText(b, 5, op.Where)
	return append(b, op.Unknown...)
}

func appendAttributes(b []byte, number protowire.Number, all Attributes) []byte {
	for i := range all {
		b = appendMessage(b, number, func(b []byte) []byte {
			b = appendText(b, 1, all[i].Name)
			return appendMessage(b, 2, all[i].Value.append)
		})
	}
	return b
}

// A field of a oneof is written even if it has its default.
func (v *Value) append(b []byte) []byte {
	switch v.Kind {
	case BoolValue:
		b = protowire.AppendTag(b, 1, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeBool(v.Bool))
	case IntValue:
		b = protowire.AppendTag(b, 2, protowire.VarintType)
		b = protowire.AppendVarint(b, protowire.EncodeZigZag(v.Int))
	case FloatValue:
		bits := math.Float64bits(v.Float)
		if math.IsNaN(v.Float) {
			bits = nan
		}
		b = protowire.AppendTag(b, 3, protowire.Fixed64Type)
		b = protowire.AppendFixed64(b, bits)
	case TextValue:
		b = protowire.AppendTag(b, 4, protowire.BytesType)
		b = protowire.AppendString(b, v.Text)
	case ListValue:
		b = appendMessage(b, 5, func(b []byte) []byte {
			for i := range v.List {
				b = appendMessage(b, 1, v.List[i].append)
			}
			return b
		})
	case MapValue:
		b = appendMessage(b, 6, func(b []byte) []byte { return appendAttributes(b, 1, v.Map) })
	}
	return b
}

func appendInt(b []byte, number protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.VarintType)
	return protowire.AppendVarint(b, v)
}

func appendText(b []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	b = protowire.AppendTag(b, number, protowire.BytesType)
	return protowire.AppendString(b, text)
}

// appendMessage reserves one byte for the size of the body, and moves the body if the size needs more.
func appendMessage(b []byte, number protowire.Number, body func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, number, protowire.BytesType)
	begin := len(b)
	b = body(append(b, 0))
	size := uint64(len(b) - begin - 1)
	if more := protowire.SizeVarint(size) - 1; more > 0 {
		b = slices.Insert(b, begin, make([]byte, more)...)
	}
	binary.PutUvarint(b[begin:], size)
	return b
}

// ---- Reading --------------------------------------------------------------------------------

// unmarshal reads a program as written by Marshal or any other writer of program.proto. Fields may come in any order,
// and repeated numbers may be packed or not. If a field that is not repeated comes several times, the last one counts,
// even for messages, which other readers merge; no writer produces that. Errors are *pyfeed.Error with the offset:
// Unsupported for another version or for data that only a later release can understand, otherwise Corrupt.
//
// Unknown fields of programs, blocks, variables and operators are kept. In messages inside variables and operators they
// are refused: there is no place to keep them, and dropping them would lose them at the next save.
func unmarshal(data []byte) (*Program, error) {
	p, f := message{&decoder{data: data}, 0, len(data)}.program()
	if f != nil {
		return nil, f.err("")
	}
	return p, nil
}

// A decoder has the data and the counts of what was read.
type decoder struct {
	data []byte
	counts
}

// A message is the part of the data that holds the fields of a message.
type message struct {
	*decoder
	at, end int
}

// A field is a field of a message.
type field struct {
	number protowire.Number
	wire   protowire.Type
	at     int     // offset of its tag
	raw    []byte  // its bytes, including the tag
	bits   uint64  // the value of a number
	body   message // the contents of a string, bytes or message
}

func corruptf(at int, format string, args ...any) *fault {
	return faultf(pyfeed.Corrupt, at, format, args...)
}

// inHex formats bytes for an error.
func inHex(b []byte) string {
	if len(b) == 0 {
		return "the end"
	}
	return fmt.Sprintf("% x", b)
}

func (m *message) more() bool { return m.at < m.end }

// next reads the next field. It does not allocate.
func (m *message) next() (f field, _ *fault) {
	rest := m.data[m.at:m.end]
	number, wire, n := protowire.ConsumeTag(rest)
	if n < 0 {
		return f, corruptf(m.at, "expected the tag of a field, found % x", rest[:min(len(rest), 10)])
	}
	if number > protowire.MaxValidNumber {
		return f, corruptf(m.at, "expected the number of a field, at most %d, found %d", protowire.MaxValidNumber, number)
	}
	f.number, f.wire, f.at, f.body.decoder = number, wire, m.at, m.decoder
	at := m.at + n // offset after the tag
	rest = rest[n:]
	switch wire {
	case protowire.VarintType:
		if f.bits, n = protowire.ConsumeVarint(rest); n < 0 {
			return f, corruptf(at, "field %d: expected a varint, found %s", number, inHex(rest[:min(len(rest), 10)]))
		}
	case protowire.Fixed32Type, protowire.Fixed64Type:
		n = 8
		if wire == protowire.Fixed32Type {
			n = 4
		}
		if len(rest) < n {
			return f, corruptf(at, "field %d: expected %d bytes, found %d", number, n, len(rest))
		}
		if n == 8 {
			f.bits = binary.LittleEndian.Uint64(rest)
		}
	case protowire.BytesType:
		size, k := protowire.ConsumeVarint(rest)
		if k < 0 {
			return f, corruptf(at, "field %d: expected its size, found % x", number, rest[:min(len(rest), 10)])
		}
		if size > uint64(len(rest)-k) {
			return f, corruptf(at+k, "field %d: expected %d bytes, found %d", number, size, len(rest)-k)
		}
		n = k + int(size)
		f.body = message{m.decoder, at + k, at + n}
	case protowire.StartGroupType: // groups are from before proto3; they occur only in unknown fields
		if n = protowire.ConsumeFieldValue(number, wire, rest); n < 0 {
			return f, corruptf(at, "field %d: expected a group and its end: %v", number, protowire.ParseError(n))
		}
	default:
		return f, corruptf(m.at, "field %d: expected a wire type of 0, 1, 2, 3 or 5, found %d", number, wire)
	}
	m.at = at + n
	f.raw = m.data[f.at:m.at]
	return f, nil
}

// count returns the number of fields with the given number, as far as the message can be read.
func (m message) count(number protowire.Number) (count int) {
	for m.more() {
		f, err := m.next()
		if err != nil {
			break
		}
		if f.number == number {
			count++
		}
	}
	return count
}

func (f *field) want(wire protowire.Type, name string) *fault {
	if f.wire != wire {
		return corruptf(f.at, "%s: expected wire type %d, found %d", name, wire, f.wire)
	}
	return nil
}

func (f *field) message(name string) (message, *fault) {
	return f.body, f.want(protowire.BytesType, name)
}

// countedMessage returns the contents of a field whose messages are limited in number in a program.
func (f *field) countedMessage(name string, count *int, limit int) (message, *fault) {
	m, err := f.message(name)
	if err == nil {
		err = checkCount(pyfeed.Corrupt, name, count, limit, f.at)
	}
	return m, err
}

func (f *field) text(name string) (string, *fault) {
	if err := f.want(protowire.BytesType, name); err != nil {
		return "", err
	}
	text := f.body.data[f.body.at:f.body.end]
	if !utf8.Valid(text) {
		return "", corruptf(f.body.at, "%s: expected UTF-8, found %s", name, quote(string(text[:min(len(text), 100)])))
	}
	return string(text), nil
}

func (f *field) flag(name string) (bool, *fault) {
	return f.bits != 0, f.want(protowire.VarintType, name)
}

// uint32 returns the value of a field. It refuses values of more than 32 bits, which other readers truncate.
func (f *field) uint32(name string) (uint64, *fault) {
	if err := f.want(protowire.VarintType, name); err != nil {
		return 0, err
	}
	if f.bits > math.MaxUint32 {
		return 0, corruptf(f.at, "%s: expected 32 bits, found %d", name, f.bits)
	}
	return f.bits, nil
}

// unknown makes a fault about an unknown field of a message that cannot keep it.
func (f *field) unknown() *fault {
	return faultf(pyfeed.Unsupported, f.at, "expected fields that this release knows, found field %d", f.number)
}

func (m message) program() (*Program, *fault) {
	if !m.more() {
		return nil, corruptf(0, "expected a program, found 0 bytes")
	}
	// Read the version first, wherever it is: the rest may be in an unknown form.
	p := new(Program)
	at := 0
	for all := m; all.more(); {
		f, err := all.next()
		if err != nil {
			return nil, err
		}
		if f.number == 1 {
			version, err := f.uint32("version")
			if err != nil {
				return nil, err
			}
			p.Version, at = uint32(version), f.at
		}
	}
	if err := checkVersion(int64(p.Version), at); err != nil {
		return nil, err
	}
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err
		}
		switch f.number {
		case 1:
		case 2:
			body, err := f.countedMessage("blocks", &m.blocks, MaxBlocks)
			if err != nil {
				return nil, err
			}
			block, err := body.block()
			if err != nil {
				return nil, err.in("block %d", len(p.Blocks))
			}
			p.Blocks = append(p.Blocks, block)
		default:
			p.Unknown = append(p.Unknown, f.raw...)
		}
	}
	return p, nil
}

func (m message) block() (*Block, *fault) {
	block := new(Block)
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err
		}
		switch f.number {
		case 1:
			if err := f.want(protowire.VarintType, "parent"); err != nil {
				return nil, err
			}
			if int64(f.bits) != int64(int32(f.bits)) {
				return nil, corruptf(f.at, "parent: expected 32 bits, found %d", int64(f.bits))
			}
			block.Parent = int(int32(f.bits))
		case 2:
			body, err := f.countedMessage("variables", &m.variables, MaxVariables)
			if err != nil {
				return nil, err
			}
			v := new(Variable)
			if err := v.decode(body); err != nil {
				return nil, err.in("%s", v.label(len(block.Variables)))
			}
			block.Variables = append(block.Variables, v)
		case 3:
			body, err := f.countedMessage("ops", &m.ops, MaxOps)
			if err != nil {
				return nil, err
			}
			op := new(Op)
			if err := op.decode(body); err != nil {
				return nil, err.in("op %d", len(block.Ops))
			}
			block.Ops = append(block.Ops, op)
		default:
			block.Unknown = append(block.Unknown, f.raw...)
		}
	}
	return block, nil
}

func (v *Variable) decode(m message) *fault {
	begin := m.at
	for m.more() {
		f, err := m.next()
		if err != nil {
			return err
		}
		switch f.number {
		case 1:
			v.Name, err = f.text("name")
		case 2:
			err = f.want(protowire.VarintType, "kind")
			if err == nil && (f.bits < uint64(Tensor) || f.bits > uint64(Stage)) {
				err = corruptf(f.at, "kind: expected %d to %d, found %d", Tensor, Stage, int64(f.bits))
			}
			v.Kind = Kind(f.bits)
		case 3:
			v.Persistable, err = f.flag("persistable")
		case 4:
			var name string
			if name, err = f.text("dtype"); err == nil {
				v.DType, err = checkDType(pyfeed.Corrupt, name, f.at)
			}
		case 5:
			v.Shaped = true
			v.Dims, err = f.shape()
		case 6:
			v.LoDLevels, err = f.lodLevels()
		case 7:
			v.Slots, err = f.slots()
		default:
			v.Unknown = append(v.Unknown, f.raw...)
		}
		if err != nil {
			return err
		}
	}
	if v.Kind == 0 {
		return corruptf(begin, "kind: expected %d to %d, found none", Tensor, Stage)
	}
	return nil
}

func (f *field) lodLevels() (int, *fault) {
	levels, err := f.uint32("lod_levels")
	if err == nil {
		err = checkLoDLevels(pyfeed.Corrupt, int64(levels), f.at)
	}
	return int(levels), err
}

func (f *field) shape() (pyfeed.Dims, *fault) {
	dims := pyfeed.Dims{}
	m, err := f.message("shape")
	if err != nil {
		return nil, err
	}
	add := func(bits uint64, at int) *fault {
		err := checkDim(pyfeed.Corrupt, dims, int64(bits), at)
		dims = append(dims, int64(bits))
		return err
	}
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err.in("shape")
		}
		if f.number != 1 {
			return nil, f.unknown().in("shape")
		}
		switch f.wire {
		case protowire.VarintType:
			err = add(f.bits, f.at)
		case protowire.BytesType: // packed
			for p := f.body; p.more() && err == nil; {
				bits, n := protowire.ConsumeVarint(p.data[p.at:p.end])
				if n < 0 {
					return nil, corruptf(p.at, "dimension %d: expected a varint, found %s", len(dims), inHex(p.data[p.at:min(p.end, p.at+10)])).in("shape")
				}
				err = add(bits, p.at)
				p.at += n
			}
		default:
			err = corruptf(f.at, "dims: expected wire type %d or %d, found %d", protowire.VarintType, protowire.BytesType, f.wire)
		}
		if err != nil {
			return nil, err.in("shape")
		}
	}
	return dims, nil
}

func (f *field) slots() ([]record.SlotAttributes, *fault) {
	m, err := f.message("slots")
	if err != nil {
		return nil, err
	}
	slots := make([]record.SlotAttributes, 0, m.count(1))
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err.in("slots")
		}
		if f.number != 1 {
			return nil, f.unknown().in("slots")
		}
		body, err := f.countedMessage("slots", &m.slots, maxSlots)
		if err != nil {
			return nil, err
		}
		slot, err := decodeSlot(body)
		if err != nil {
			return nil, err.in("slot %d", len(slots))
		}
		slots = append(slots, slot)
	}
	return slots, nil
}

func decodeSlot(m message) (record.SlotAttributes, *fault) {
	slot := record.SlotAttributes{Dims: pyfeed.Dims{}}
	for m.more() {
		f, err := m.next()
		if err != nil {
			return slot, err
		}
		switch f.number {
		case 1:
			slot.Name, err = f.text("name")
		case 2:
			if slot.DType, err = f.text("dtype"); err == nil {
				_, err = checkDType(pyfeed.Corrupt, slot.DType, f.at)
			}
		case 3:
			slot.Dims, err = f.shape()
		case 4:
			slot.LoDLevels, err = f.lodLevels()
		default:
			err = f.unknown()
		}
		if err != nil {
			return slot, err
		}
	}
	return slot, nil
}

func (op *Op) decode(m message) *fault {
	attributes := make(Attributes, 0, m.count(4))
	for m.more() {
		f, err := m.next()
		if err != nil {
			return err
		}
		switch f.number {
		case 1:
			op.Type, err = f.text("type")
		case 2:
			var name string
			name, err = f.text("inputs")
			op.Inputs = append(op.Inputs, name)
		case 3:
			var name string
			name, err = f.text("outputs")
			op.Outputs = append(op.Outputs, name)
		case 4:
			attributes, err = f.attribute(attributes, "attribute", 0)
		case 5:
			op.Where, err = f.text("where")
		default:
			op.Unknown = append(op.Unknown, f.raw...)
		}
		if err != nil {
			return err
		}
	}
	var err *fault
	op.Attributes, err = sorted(attributes, "attribute", m.end)
	return err
}

// sorted sorts attributes or the entries of a map. It fails if a name occurs twice.
func sorted(all Attributes, what string, at int) (Attributes, *fault) {
	if len(all) == 0 {
		return nil, nil
	}
	byName := func(a, b Attribute) int { return cmp.Compare(a.Name, b.Name) }
	if !slices.IsSortedFunc(all, byName) {
		slices.SortFunc(all, byName)
	}
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			return nil, corruptf(at, "expected each %s once, found two of %s", what, quote(all[i].Name))
		}
	}
	return all, nil
}

// attribute adds an attribute, or an entry of a map, to all.
func (f *field) attribute(all Attributes, what string, depth int) (Attributes, *fault) {
	m, err := f.message(what)
	if err != nil {
		return nil, err
	}
	var a Attribute
	where := func() string {
		if a.Name == "" {
			return what
		}
		return what + " " + quote(a.Name)
	}
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err.in("%s", where())
		}
		switch f.number {
		case 1:
			if a.Name, err = f.text("name"); err == nil {
				if err = checkReserved(a.Name); err != nil {
					err.kind, err.at = pyfeed.Corrupt, f.at
				}
			}
		case 2:
			a.Value, err = f.value(depth)
		default:
			err = f.unknown()
		}
		if err != nil {
			return nil, err.in("%s", where())
		}
	}
	if a.Value.Kind == 0 {
		return nil, corruptf(f.at, "expected a value, found none").in("%s", where())
	}
	return append(all, a), nil
}

func (f *field) value(depth int) (v Value, _ *fault) {
	m, err := f.countedMessage("values", &f.body.values, maxValues)
	if err != nil {
		return v, err
	}
	if !m.more() {
		return v, corruptf(m.at, "expected a value, found none")
	}
	for m.more() {
		f, err := m.next()
		if err != nil {
			return v, err
		}
		if f.number > protowire.Number(MapValue) {
			return v, f.unknown()
		}
		v = Value{Kind: ValueKind(f.number)}
		switch v.Kind {
		case BoolValue:
			v.Bool, err = f.flag("bool")
		case IntValue:
			v.Int, err = protowire.DecodeZigZag(f.bits), f.want(protowire.VarintType, "int")
		case FloatValue:
			if v.Float = math.Float64frombits(f.bits); math.IsNaN(v.Float) {
				v.Float = math.Float64frombits(nan)
			}
			err = f.want(protowire.Fixed64Type, "float")
		case TextValue:
			v.Text, err = f.text("text")
		case ListValue:
			v.List, err = f.list(depth + 1)
		case MapValue:
			v.Map, err = f.entries(depth + 1)
		}
		if err != nil {
			return v, err
		}
	}
	return v, nil
}

func (f *field) list(depth int) ([]Value, *fault) {
	m, err := f.message("list")
	if err == nil {
		err = checkDepth(pyfeed.Corrupt, depth, f.at)
	}
	if err != nil || !m.more() {
		return nil, err
	}
	list := make([]Value, 0, m.count(1))
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err
		}
		if f.number != 1 {
			return nil, f.unknown()
		}
		v, err := f.value(depth)
		if err != nil {
			return nil, err.in("element %d", len(list))
		}
		list = append(list, v)
	}
	return list, nil
}

func (f *field) entries(depth int) (Attributes, *fault) {
	m, err := f.message("map")
	if err == nil {
		err = checkDepth(pyfeed.Corrupt, depth, f.at)
	}
	if err != nil {
		return nil, err
	}
	entries := make(Attributes, 0, m.count(1))
	for m.more() {
		f, err := m.next()
		if err != nil {
			return nil, err
		}
		if f.number != 1 {
			return nil, f.unknown()
		}
		if entries, err = f.attribute(entries, "entry", depth); err != nil {
			return nil, err
		}
	}
	return sorted(entries, "entry", m.end)
}
