package desc

import (
	"bytes"
	"errors"
	"math"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

// loop is a program of has_next and reset: several passes over a reader, in a while around an if_else.
const loop = `{"version": 1, "blocks": [
 {"parent": -1,
  "variables": [
   {"name": "double_buffer_reader", "kind": "reader", "persistable": true,
    "slots": [{"name": "image", "dtype": "float32", "dims": [-1, 64]}, {"name": "label", "dtype": "int64", "dims": [-1]}]},
   {"name": "not_completed", "dtype": "bool", "dims": []},
   {"name": "pass_count", "dtype": "int64", "dims": []},
   {"name": "required_pass_num", "dtype": "int64", "dims": []},
   {"name": "weights", "persistable": true, "dtype": "float32", "dims": [64, 10]}],
  "ops": [
   {"type": "fill_constant", "outputs": ["pass_count"], "attributes": {"dtype": "int64", "value": 0}, "where": "train.py:8"},
   {"type": "fill_constant", "outputs": ["required_pass_num"], "attributes": {"dtype": "int64", "value": 5}, "where": "train.py:9"},
   {"type": "less_than", "inputs": ["pass_count", "required_pass_num"], "outputs": ["not_completed"], "where": "train.py:10"},
   {"type": "while", "inputs": ["not_completed"], "attributes": {"block": 1}, "where": "train.py:11"}]},
 {"parent": 0,
  "variables": [{"name": "has_next", "dtype": "bool", "dims": []}],
  "ops": [
   {"type": "has_next", "inputs": ["double_buffer_reader"], "outputs": ["has_next"], "where": "train.py:12"},
   {"type": "if_else", "inputs": ["has_next"], "attributes": {"true_block": 2, "false_block": 3}, "where": "train.py:13"}]},
 {"parent": 1,
  "variables": [{"name": "image", "dtype": "float32", "dims": [-1, 64]}, {"name": "label", "dtype": "int64", "dims": [-1]}],
  "ops": [
   {"type": "read", "inputs": ["double_buffer_reader"], "outputs": ["image", "label"], "where": "train.py:14"},
   {"type": "call", "inputs": ["image", "label", "weights"], "outputs": ["weights"],
    "attributes": {"kernel": "train_step", "attributes": {"rate": 0.1}}, "where": "train.py:15"}]},
 {"parent": 1,
  "ops": [
   {"type": "reset", "inputs": ["double_buffer_reader"], "where": "train.py:17"},
   {"type": "increment", "inputs": ["pass_count"], "outputs": ["pass_count"], "where": "train.py:18"},
   {"type": "less_than", "inputs": ["pass_count", "required_pass_num"], "outputs": ["not_completed"], "where": "train.py:19"}]}
]}`

func parsed(t testing.TB, text string) *Program {
	t.Helper()
	p, err := fromJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// random makes programs of everything that a file can contain, valid or not.
type random struct{ *rand.Rand }

var texts = []string{"", "x", "image", "a \"name\"\n", "ключ", "\u0000\x7f\u2028", "#35; <b>`x`</b> \\N &amp;", "𝔘𝔫𝔦", strings.Repeat("long", 40)}

func randomProgram(seed int64) *Program { return random{rand.New(rand.NewSource(seed))}.program() }

func (r random) text() string { return texts[r.Intn(len(texts))] }

func (r random) texts() (all []string) {
	for range r.Intn(4) {
		all = append(all, r.text())
	}
	return all
}

func (r random) dims() pyfeed.Dims {
	dims := pyfeed.Dims{}
	for range r.Intn(pyfeed.MaxRank + 1) {
		dims = append(dims, []int64{-1, 0, 1, 64, math.MaxInt64}[r.Intn(5)])
	}
	return dims
}

func (r random) unknown(known int) []byte {
	var b []byte
	for range r.Intn(3) {
		number := protowire.Number(known + 1 + r.Intn(20))
		switch r.Intn(5) {
		case 0:
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), r.Uint64())
		case 1:
			b = protowire.AppendFixed32(protowire.AppendTag(b, number, protowire.Fixed32Type), r.Uint32())
		case 2:
			b = protowire.AppendFixed64(protowire.AppendTag(b, number, protowire.Fixed64Type), r.Uint64())
		case 3:
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), r.text())
		case 4:
			b = protowire.AppendTag(b, number, protowire.StartGroupType)
			b = protowire.AppendTag(append(b, 8, 1), number, protowire.EndGroupType)
		}
	}
	return b
}

var (
	ints   = []int64{0, 1, -1, 63, -64, 1 << 53, 1<<53 + 1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	floats = []float64{0, math.Copysign(0, -1), 1, -1, 0.1, 1e21, 1e-7, 1e300, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.Pi, 1 << 53, math.Inf(1), math.Inf(-1), math.NaN()}
)

func (r random) value(depth int) (v Value) {
	v.Kind = BoolValue + ValueKind(r.Intn(6))
	if depth == maxDepth && v.Kind >= ListValue {
		v.Kind = FloatValue
	}
	switch v.Kind {
	case BoolValue:
		v.Bool = r.Intn(2) == 1
	case IntValue:
		v.Int = ints[r.Intn(len(ints))]
	case FloatValue:
		v.Float = floats[r.Intn(len(floats))]
	case TextValue:
		v.Text = r.text()
	case ListValue:
		for range r.Intn(3) {
			v.List = append(v.List, r.value(depth+1))
		}
	case MapValue:
		v.Map = r.attributes(depth + 1)
	}
	return v
}

func (r random) attributes(depth int) (all Attributes) {
	names := r.texts()
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		all = append(all, Attribute{name, r.value(depth)})
	}
	return all
}

func (r random) program() *Program {
	p := &Program{Version: FormatVersion, Unknown: r.unknown(programFields)}
	for i := range r.Intn(5) {
		block := &Block{Parent: i - 1, Unknown: r.unknown(blockFields)}
		if r.Intn(5) == 0 {
			block.Parent = int(int32(r.Uint32()))
		}
		for range r.Intn(4) {
			v := &Variable{Name: r.text(), Kind: Tensor + Kind(r.Intn(3)), Persistable: r.Intn(2) == 1,
				DType: pyfeed.DType(r.Intn(16)), LoDLevels: r.Intn(pyfeed.MaxLoDLevels + 1), Unknown: r.unknown(variableFields)}
			if v.Shaped = r.Intn(2) == 1; v.Shaped {
				v.Dims = r.dims()
			}
			if r.Intn(2) == 1 {
				v.Slots = []record.SlotAttributes{}
				for range r.Intn(3) {
					v.Slots = append(v.Slots, record.SlotAttributes{Name: r.text(), DType: []string{"", "any", "float32", "complex128"}[r.Intn(4)],
						Dims: r.dims(), LoDLevels: r.Intn(3)})
				}
			}
			block.Variables = append(block.Variables, v)
		}
		for range r.Intn(4) {
			op := &Op{Type: r.text(), Inputs: r.texts(), Outputs: r.texts(), Attributes: r.attributes(0), Where: r.text(), Unknown: r.unknown(opFields)}
			if r.Intn(2) == 0 && !slices.ContainsFunc(op.Attributes, func(a Attribute) bool { return a.Name == "block" }) {
				op.Attributes = append(op.Attributes, Attribute{"block", Value{Kind: IntValue, Int: int64(r.Intn(6))}})
				slices.SortFunc(op.Attributes, func(a, b Attribute) int { return strings.Compare(a.Name, b.Name) })
			}
			block.Ops = append(block.Ops, op)
		}
		p.Blocks = append(p.Blocks, block)
	}
	return p
}

// same reports whether programs are deeply equal; NaN is equal to NaN.
func same(a, b *Program) bool {
	return reflect.DeepEqual(comparable(a), comparable(b))
}

// comparable replaces every NaN with a number that no test uses.
func comparable(p *Program) *Program {
	p = p.Clone()
	var values func(v *Value)
	attributes := func(all Attributes) {
		for i := range all {
			values(&all[i].Value)
		}
	}
	values = func(v *Value) {
		if math.IsNaN(v.Float) {
			v.Float = 12345.678
		}
		for i := range v.List {
			values(&v.List[i])
		}
		attributes(v.Map)
	}
	for _, block := range p.Blocks {
		for _, op := range block.Ops {
			attributes(op.Attributes)
		}
	}
	return p
}

func TestRoundTrips(t *testing.T) {
	programs := int64(2000)
	if testing.Short() {
		programs = 150
	}
	for seed := range programs {
		p := randomProgram(seed)
		data := Marshal(p)
		back, err := unmarshal(data)
		if err != nil || !same(p, back) {
			t.Fatalf("seed %d: protobuf: %v\n%s\n%s", seed, err, ToJSON(p), ToJSON(back))
		}
		if again := Marshal(back); !bytes.Equal(again, data) {
			t.Fatalf("seed %d: expected the same bytes, found\n%x\n%x", seed, data, again)
		}
		text := ToJSON(p)
		for i := range 2 { // by both functions
			if back, err = fromJSON(text); i == 1 {
				back, err = Parse(append([]byte(" \n"), text...))
			}
			if err != nil || !same(p, back) {
				t.Fatalf("seed %d: JSON: %v\n%s\n%s", seed, err, text, ToJSON(back))
			}
		}
		if back, err = Parse(data); err != nil || !same(p, back) {
			t.Fatalf("seed %d: Parse: %v", seed, err)
		}
		for _, block := range p.Blocks {
			for _, v := range block.Variables {
				if back, err := ParseVariable(v.JSON()); err != nil || !reflect.DeepEqual(v, back) {
					t.Fatalf("seed %d: variable: %v\n%s", seed, err, v.JSON())
				}
			}
		}
		for _, form := range []string{"mermaid", "graphviz"} {
			if _, err := Draw(p, form); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

func TestNumbersSurvive(t *testing.T) {
	var want []Value
	for _, i := range ints {
		want = append(want, Value{Kind: IntValue, Int: i})
	}
	for _, f := range floats {
		want = append(want, Value{Kind: FloatValue, Float: f})
	}
	op := &Op{Type: "x", Attributes: Attributes{{"all", Value{Kind: ListValue, List: want}}}}
	p := &Program{Version: 1, Blocks: []*Block{{Parent: -1, Ops: []*Op{op}}}}
	fromJSON, err1 := fromJSON(ToJSON(p))
	fromProto, err2 := unmarshal(Marshal(p))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	for _, back := range []*Program{fromJSON, fromProto} {
		for i, found := range back.Blocks[0].Ops[0].Attributes[0].Value.List {
			same := found.Float == want[i].Float && math.Signbit(found.Float) == math.Signbit(want[i].Float) ||
				math.IsNaN(found.Float) && math.IsNaN(want[i].Float)
			if found.Kind != want[i].Kind || found.Int != want[i].Int || !same {
				t.Errorf("expected %+v, found %+v", want[i], found)
			}
		}
	}
}

func TestCloneSharesNothing(t *testing.T) {
	for seed := range int64(200) {
		p := randomProgram(seed)
		want := Marshal(p)
		c := p.Clone()
		if !same(p, c) {
			t.Fatalf("seed %d: expected an equal copy, found %s and %s", seed, ToJSON(p), ToJSON(c))
		}
		overwriteAll(reflect.ValueOf(c))
		if !bytes.Equal(Marshal(p), want) {
			t.Fatalf("seed %d: writing to the copy changed the original", seed)
		}
	}
}

// overwriteAll changes everything that is reachable.
func overwriteAll(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		overwriteAll(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			overwriteAll(v.Field(i))
		}
	case reflect.Slice:
		for i := range v.Len() {
			overwriteAll(v.Index(i))
		}
	case reflect.String:
		v.SetString(v.String() + "!")
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.Uint8, reflect.Uint32:
		v.SetUint(v.Uint() ^ 1)
	case reflect.Float64:
		v.SetFloat(v.Float() + 1)
	}
}

// refused checks that err has the given kind, byte offset and words.
func refused(t *testing.T, err error, kind pyfeed.Kind, at int, words ...string) {
	t.Helper()
	var e *pyfeed.Error
	if !errors.As(err, &e) {
		t.Errorf("expected an error with %q, found %v", words, err)
		return
	}
	if e.Kind != kind || e.At == nil || at >= 0 && e.At.Offset != int64(at) || e.At.Record != -1 {
		t.Errorf("expected kind %d at byte %d, found kind %d, %+v: %v", kind, at, e.Kind, e.At, err)
	}
	for _, w := range words {
		if !strings.Contains(e.Text, w) {
			t.Errorf("expected %q in %q", w, e.Text)
		}
	}
}
