package program

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/readers/record"
)

var background = context.Background()

// Bits of the dtypes that Go has no type for.
type (
	half     uint16
	bfloat16 uint16
)

func dtypeOf(element any) pyfeed.DType {
	switch element.(type) {
	case half:
		return pyfeed.Float16
	case bfloat16:
		return pyfeed.BFloat16
	}
	d, known := pyfeed.DTypeOf(fmt.Sprintf("%T", element))
	if !known {
		panic(fmt.Sprintf("%T", element))
	}
	return d
}

// of makes a tensor in Go's heap.
func of[T any](dims pyfeed.Dims, values ...T) pyfeed.LoDTensor {
	data, err := binary.Append([]byte{}, binary.NativeEndian, values)
	if err != nil {
		panic(err)
	}
	t := pyfeed.LoDTensor{DType: dtypeOf(*new(T)), Data: data}
	if err := t.SetDims(dims); err != nil {
		panic(err)
	}
	return t
}

func scalar[T any](v T) pyfeed.LoDTensor { return of(pyfeed.Dims{}, v) }

func elements[T any](data []byte) []T {
	values := make([]T, len(data)/binary.Size(*new(T)))
	if _, err := binary.Decode(data, binary.NativeEndian, values); err != nil {
		panic(err)
	}
	return values
}

// show formats a tensor on one line. It does not use the formatting of the package.
func show(t *pyfeed.LoDTensor) string {
	var values any
	switch t.DType {
	case pyfeed.Bool:
		values = elements[bool](t.Data)
	case pyfeed.Int8:
		values = elements[int8](t.Data)
	case pyfeed.Int16:
		values = elements[int16](t.Data)
	case pyfeed.Int32:
		values = elements[int32](t.Data)
	case pyfeed.Int64:
		values = elements[int64](t.Data)
	case pyfeed.Uint8:
		values = fmt.Sprint(elements[uint8](t.Data))
	case pyfeed.Uint16:
		values = elements[uint16](t.Data)
	case pyfeed.Uint32:
		values = elements[uint32](t.Data)
	case pyfeed.Uint64:
		values = elements[uint64](t.Data)
	case pyfeed.Float16, pyfeed.BFloat16:
		values = fmt.Sprintf("%#04x", elements[uint16](t.Data))
	case pyfeed.Float32:
		values = elements[float32](t.Data)
	case pyfeed.Float64:
		values = elements[float64](t.Data)
	case pyfeed.Complex64:
		values = elements[complex64](t.Data)
	case pyfeed.Complex128:
		values = elements[complex128](t.Data)
	}
	lod := ""
	if len(t.LoD) > 0 {
		lod = fmt.Sprintf(" lod %v", t.LoD)
	}
	return fmt.Sprintf("%v %v%s %v", t.DType, t.Dims(), lod, values)
}

type fed map[string]pyfeed.LoDTensor

// in runs the program in a scope with feeds, and formats the fetched tensors.
func (b *builder) in(e *Executor, scope *pyfeed.Scope, feeds fed, fetch ...string) ([]string, error) {
	var names []string
	tuple := pyfeed.NewTuple(len(feeds))
	for name, t := range feeds {
		t.LoD = slices.Clone(t.LoD) // belongs to the tuple from now on
		tuple.Slots[len(names)] = t
		names = append(names, name)
	}
	out, err := e.Run(background, b.p, scope, names, tuple, fetch)
	if err != nil {
		return nil, err
	}
	defer out.Release()
	var shown []string
	for i := range out.Slots {
		shown = append(shown, show(&out.Slots[i]))
	}
	return shown, nil
}

// gives runs the program in a new scope and compares the fetched tensors.
func (b *builder) gives(feeds fed, fetch string, want ...string) {
	b.t.Helper()
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	got, err := b.in(executor(b.t), scope, feeds, strings.Fields(fetch)...)
	if err != nil || !slices.Equal(got, want) {
		b.t.Errorf("expected %q, found %q, %v", want, got, err)
	}
}

// refused runs the program in a new scope and expects an error.
func (b *builder) refused(feeds fed, kind pyfeed.Kind, place, text string) {
	b.t.Helper()
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	_, err := b.in(executor(b.t), scope, feeds)
	fails(b.t, err, kind, place, text)
}

func value(v desc.Value) desc.Attribute { return desc.Attribute{Name: "value", Value: v} }
func step(v desc.Value) desc.Attribute  { return desc.Attribute{Name: "step", Value: v} }

func TestFillConstantOfEveryDType(t *testing.T) {
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		dtype string
		value desc.Value
		want  any // the bits
	}{
		{"bool", boolValue(true), uint8(1)},
		{"bool", intValue(1), uint8(1)},
		{"bool", floatValue(0), uint8(0)},
		{"int8", intValue(-128), uint8(0x80)},
		{"int8", floatValue(127), uint8(0x7f)},
		{"int16", intValue(-32768), uint16(0x8000)},
		{"int16", intValue(32767), uint16(0x7fff)},
		{"int32", intValue(math.MinInt32), uint32(0x80000000)},
		{"int32", floatValue(math.MaxInt32), uint32(0x7fffffff)},
		{"int64", intValue(math.MinInt64), uint64(0x8000000000000000)},
		{"int64", intValue(math.MaxInt64), uint64(0x7fffffffffffffff)},
		{"int64", boolValue(true), uint64(1)},
		{"int64", floatValue(-0x1p62), uint64(0xc000000000000000)},
		{"uint8", intValue(255), uint8(255)},
		{"uint16", intValue(65535), uint16(65535)},
		{"uint32", floatValue(math.MaxUint32), uint32(math.MaxUint32)},
		{"uint64", intValue(math.MaxInt64), uint64(math.MaxInt64)},
		{"float16", intValue(1), uint16(0x3c00)},
		{"float16", floatValue(-2), uint16(0xc000)},
		{"float16", floatValue(65504), uint16(0x7bff)},
		{"float16", floatValue(0x1p-14), uint16(0x0400)},
		{"float16", floatValue(0x1p-24), uint16(0x0001)},
		{"float16", floatValue(0x1p-25), uint16(0)}, // a tie: to even
		{"float16", floatValue(0.1), uint16(0x2e66)},
		{"float16", floatValue(1.0 / 3), uint16(0x3555)},
		{"float16", floatValue(inf), uint16(0x7c00)},
		{"float16", floatValue(-inf), uint16(0xfc00)},
		{"float16", floatValue(math.Copysign(0, -1)), uint16(0x8000)},
		{"bfloat16", intValue(1), uint16(0x3f80)},
		{"bfloat16", floatValue(3.14159), uint16(0x4049)},
		{"bfloat16", floatValue(-0.1), uint16(0xbdcd)},
		{"bfloat16", floatValue(0x1.fep127), uint16(0x7f7f)},
		{"bfloat16", floatValue(0x1p-133), uint16(1)},
		{"bfloat16", floatValue(inf), uint16(0x7f80)},
		{"float32", intValue(1<<24 + 1), uint32(0x4b800000)}, // a tie: to even
		{"float32", floatValue(0.1), uint32(0x3dcccccd)},
		{"float32", floatValue(-inf), uint32(0xff800000)},
		{"float64", boolValue(true), uint64(0x3ff0000000000000)},
		{"float64", floatValue(0.1), uint64(0x3fb999999999999a)},
		{"complex64", floatValue(1), [2]uint32{0x3f800000, 0}},
		{"complex128", intValue(-1), [2]uint64{0xbff0000000000000, 0}},
	} {
		b := build(t)
		b.tensor("x")
		b.op("fill_constant", nil, names("x"), text("dtype", c.dtype), value(c.value), list("dims", 3))
		want, _ := binary.Append(nil, binary.NativeEndian, c.want)
		d, _ := pyfeed.DTypeOf(c.dtype)
		like := pyfeed.LoDTensor{DType: d, Data: slices.Repeat(want, 3)}
		_ = like.SetDims(pyfeed.Dims{3})
		b.gives(nil, "x", show(&like))
	}
	for dtype, isNaN := range map[string]func([]byte) bool{
		"float16":  func(b []byte) bool { n := elements[uint16](b)[0]; return n&0x7c00 == 0x7c00 && n&0x3ff != 0 },
		"bfloat16": func(b []byte) bool { n := elements[uint16](b)[0]; return n&0x7f80 == 0x7f80 && n&0x7f != 0 },
		"float32":  func(b []byte) bool { return math.IsNaN(float64(elements[float32](b)[0])) },
		"float64":  func(b []byte) bool { return math.IsNaN(elements[float64](b)[0]) },
	} {
		k, err := constantOf(&desc.Op{Type: "fill_constant", Attributes: desc.Attributes{text("dtype", dtype), value(floatValue(nan))}})
		if err != nil || !isNaN(k.element) {
			t.Errorf("NaN of %s: found %+v, %v", dtype, k, err)
		}
	}
}

// A short float format is given by the values of its bit patterns from 0 up to infinity. In place of infinity it has
// the number that would come next.
type short struct {
	dtype  string
	values []float64
}

func shorts() []short {
	var f16, b16 []float64
	for p := range 0x7c01 { // the format of IEEE 754-2019, 3.4
		e, f := p>>10, float64(p&0x3ff)
		if e == 0 {
			f16 = append(f16, f*math.Pow(2, -24))
		} else {
			f16 = append(f16, (1+f/1024)*math.Pow(2, float64(e-15)))
		}
	}
	for p := range uint32(0x7f81) {
		f := float64(math.Float32frombits(p << 16))
		if math.IsInf(f, 1) {
			f = 0x1p128
		}
		b16 = append(b16, f)
	}
	return []short{{"float16", f16}, {"bfloat16", b16}}
}

// nearest finds the bit pattern of a number that is not negative, by search.
func (s *short) nearest(v float64) uint16 {
	at, exact := slices.BinarySearch(s.values, v)
	if exact || at == 0 || at == len(s.values) {
		return uint16(min(at, len(s.values)-1))
	}
	below, above := s.values[at-1], s.values[at]
	switch middle := below + (above-below)/2; { // exact
	case v < middle, v == middle && at%2 == 1:
		at--
	}
	return uint16(at)
}

func TestShortFloatsAreRoundedToTheNearest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range shorts() {
		d, _ := pyfeed.DTypeOf(s.dtype)
		infinity := uint16(len(s.values) - 1)
		check := func(v float64) {
			t.Helper()
			want := s.nearest(v)
			for sign, v := range map[uint16]float64{0: v, 0x8000: -v} {
				b := make([]byte, 2)
				store(d, b, number{kind: floating, f: v})
				if got := binary.NativeEndian.Uint16(b); got != want|sign {
					t.Fatalf("%s of %v (%x): expected %#04x, found %#04x", s.dtype, v, v, want|sign, got)
				}
				n, err := numberOf(d, floatValue(v))
				if (err != nil) != (want == infinity) {
					t.Fatalf("%s of %v: %v, %v", s.dtype, v, n, err)
				}
			}
		}
		step := 1
		if testing.Short() {
			step = 3
		}
		for p := 0; p < int(infinity); p += step {
			v, next := s.values[p], s.values[p+1]
			middle := v + (next-v)/2
			check(v)
			check(middle)
			check(math.Nextafter(middle, 0))
			check(math.Nextafter(middle, math.Inf(1)))
			check(v + random.Float64()*(next-v))
			b := binary.NativeEndian.AppendUint16(nil, uint16(p))
			if got := load(d, b).f; got != v {
				t.Fatalf("%s %#04x: expected %v, found %v", s.dtype, p, v, got)
			}
		}
	}
}

func TestFillConstantOutOfRange(t *testing.T) {
	for _, c := range []struct {
		dtype string
		value desc.Value
		text  string
	}{
		{"bool", intValue(2), "one of bool, found 2"},
		{"bool", floatValue(0.5), "one of bool, found 0.5"},
		{"int8", intValue(128), "one of int8, found 128"},
		{"int8", intValue(-129), "one of int8, found -129"},
		{"int16", intValue(1 << 15), "one of int16, found 32768"},
		{"int32", intValue(-1<<31 - 1), "one of int32, found -2147483649"},
		{"int32", floatValue(0.5), "one of int32, found 0.5"},
		{"int64", floatValue(0x1p63), "one of int64, found 9.223372036854776e+18"},
		{"int64", floatValue(math.NaN()), "one of int64"},
		{"int64", floatValue(math.Inf(-1)), "one of int64"},
		{"uint8", intValue(-1), "one of uint8, found -1"},
		{"uint8", intValue(256), "one of uint8, found 256"},
		{"uint16", intValue(1 << 16), "one of uint16, found 65536"},
		{"uint32", intValue(1 << 32), "one of uint32, found 4294967296"},
		{"uint64", intValue(-1), "one of uint64, found -1"},
		{"float16", floatValue(65520), "one of float16, found 65520"},
		{"float16", intValue(-65520), "one of float16, found -65520"},
		{"bfloat16", floatValue(math.MaxFloat64), "one of bfloat16"},
		{"float32", floatValue(1e39), "one of float32, found 1e+39"},
		{"complex64", floatValue(-1e39), "one of complex64, found -1e+39"},
		{"float32", textValue("1"), `one of float32, found "1"`},
		{"float32", desc.Value{Kind: desc.ListValue}, "one of float32, found []"},
		{"any", intValue(1), `expected the name of a dtype, found "any"`},
		{"float", intValue(1), `expected the name of a dtype, found "float"`},
		{"", intValue(1), `expected the name of a dtype, found ""`},
	} {
		b := build(t)
		b.tensor("x")
		err := b.try("fill_constant", nil, names("x"), text("dtype", c.dtype), value(c.value))
		fails(t, err, pyfeed.Type, "block 0, op 0: fill_constant", c.text)
	}
}

func TestFillConstantDims(t *testing.T) {
	for _, c := range []struct {
		dims []int64
		want string
	}{
		{nil, "int16 [] [7]"},
		{[]int64{1}, "int16 [1] [7]"},
		{[]int64{0}, "int16 [0] []"},
		{[]int64{2, 0, 3}, "int16 [2 0 3] []"},
		{[]int64{0, math.MaxInt64}, fmt.Sprintf("int16 [0 %d] []", math.MaxInt64)},
		{[]int64{5}, "int16 [5] [7 7 7 7 7]"},
		{[]int64{1, 2, 1, 2, 1, 1, 1, 1}, "int16 [1 2 1 2 1 1 1 1] [7 7 7 7]"},
	} {
		b := build(t)
		b.tensor("x")
		b.op("fill_constant", nil, names("x"), text("dtype", "int16"), integer("value", 7), list("dims", c.dims...))
		b.gives(nil, "x", c.want)
	}
	for _, c := range []struct {
		dims []int64
		kind pyfeed.Kind
		text string
	}{
		{[]int64{-1}, pyfeed.Shape, `attribute "dims": dimension 0: expected a size, found -1`},
		{make([]int64, 9), pyfeed.Shape, "at most 8 dimensions, found 9"},
		{[]int64{1 << 29, 2}, pyfeed.TooLarge, "at most 1073741824 bytes, found dims (536870912, 2)"},
		{[]int64{math.MaxInt64, math.MaxInt64}, pyfeed.Shape, "more bytes than there are"},
	} {
		b := build(t)
		b.tensor("x")
		err := b.try("fill_constant", nil, names("x"), text("dtype", "int16"), list("dims", c.dims...))
		fails(t, err, c.kind, "block 0, op 0: fill_constant", c.text)
	}
	b := build(t)
	b.tensor("x")
	wrong := desc.Attribute{Name: "dims", Value: desc.Value{Kind: desc.ListValue, List: []desc.Value{floatValue(2)}}}
	fails(t, b.try("fill_constant", nil, names("x"), wrong), pyfeed.Shape, "", "dimension 0: expected a size, found 2")
}

// ---- Comparisons ----

var comparisons = []struct {
	op string
	of func(sign int, ordered bool) bool
}{
	{"less_than", func(c int, o bool) bool { return o && c < 0 }},
	{"less_equal", func(c int, o bool) bool { return o && c <= 0 }},
	{"greater_than", func(c int, o bool) bool { return o && c > 0 }},
	{"greater_equal", func(c int, o bool) bool { return o && c >= 0 }},
	{"equal", func(c int, o bool) bool { return o && c == 0 }},
	{"not_equal", func(c int, o bool) bool { return !o || c != 0 }},
}

// compares runs every comparison on every pair of values. sign(i, j) is the expected sign of pair i, j.
func compares[T any](t *testing.T, values []T, sign func(i, j int) (int, bool), ops ...string) {
	t.Helper()
	var xs, ys []T
	n := len(values)
	for i := range n {
		for j := range n {
			xs, ys = append(xs, values[i]), append(ys, values[j])
		}
	}
	dims := pyfeed.Dims{int64(n), int64(n)}
	b := build(t)
	b.tensor("x")
	b.tensor("y")
	var fetch, want []string
	for _, c := range comparisons {
		if len(ops) > 0 && !slices.Contains(ops, c.op) {
			continue
		}
		var outs []bool
		for i := range n {
			for j := range n {
				s, ordered := sign(i, j)
				outs = append(outs, c.of(s, ordered))
			}
		}
		b.tensor(c.op)
		b.op(c.op, names("x", "y"), names(c.op))
		like := of(dims, outs...)
		fetch, want = append(fetch, c.op), append(want, show(&like))
	}
	b.gives(fed{"x": of(dims, xs...), "y": of(dims, ys...)}, strings.Join(fetch, " "), want...)
}

func ordered[T cmp.Ordered](t *testing.T, values ...T) {
	t.Helper()
	compares(t, values, func(i, j int) (int, bool) {
		x, y := values[i], values[j]
		return cmp.Compare(x, y), x == x && y == y
	})
}

func TestComparisonsOfEveryDType(t *testing.T) {
	ordered[int8](t, -128, -1, 0, 1, 127)
	ordered[int16](t, math.MinInt16, -1, 0, 256, math.MaxInt16)
	ordered[int32](t, math.MinInt32, -1, 0, 1<<16, math.MaxInt32)
	ordered[int64](t, math.MinInt64, -1, 0, 1<<53, 1<<53+1, math.MaxInt64)
	ordered[uint8](t, 0, 1, 127, 128, 255)
	ordered[uint16](t, 0, 255, 256, math.MaxUint16)
	ordered[uint32](t, 0, 1<<31, math.MaxUint32)
	ordered[uint64](t, 0, 1<<53, 1<<53+1, 1<<63, math.MaxUint64)
	inf := math.Inf(1)
	ordered(t, -inf, -1, math.Copysign(0, -1), 0, 5e-324, 1, inf, math.NaN())
	ordered(t, float32(-inf), -1, 0, 1e-45, 0.1, float32(inf), float32(math.NaN()))

	byValue := func(values ...float64) func(i, j int) (int, bool) {
		return func(i, j int) (int, bool) {
			x, y := values[i], values[j]
			return cmp.Compare(x, y), x == x && y == y
		}
	}
	compares(t, []half{0xfc00, 0xc000, 0x8000, 0, 1, 0x3c00, 0x7bff, 0x7c00, 0x7e00},
		byValue(-inf, -2, 0, 0, 0x1p-24, 1, 65504, inf, math.NaN()))
	compares(t, []bfloat16{0xff80, 0xc000, 0x8000, 0, 1, 0x3f80, 0x7f7f, 0x7f80, 0x7fc0},
		byValue(-inf, -2, 0, 0, 0x1p-133, 1, 0x1.fep127, inf, math.NaN()))
	compares(t, []bool{false, true}, byValue(0, 1))

	complexes := []complex128{0, 1, 1i, 1 + 1i, complex(math.NaN(), 0), complex(0, inf)}
	same := func(i, j int) (int, bool) {
		if complexes[i] == complexes[j] {
			return 0, true
		}
		return 1, true
	}
	compares(t, complexes, same, "equal", "not_equal")
	var narrow []complex64
	for _, c := range complexes {
		narrow = append(narrow, complex64(c))
	}
	compares(t, narrow, same, "equal", "not_equal")
}

func TestIncomparableOperands(t *testing.T) {
	declared := func(b *builder, name string, d pyfeed.DType) string {
		return b.variable(&desc.Variable{Name: name, Kind: desc.Tensor, DType: d})
	}
	for _, c := range comparisons {
		place := "block 0, op 0: " + c.op
		b := build(t)
		declared(b, "x", pyfeed.Int32)
		declared(b, "y", pyfeed.Int64)
		b.tensor("out")
		fails(t, b.try(c.op, names("x", "y"), names("out")), pyfeed.Type, place, "inputs of one dtype, found int32 and int64")

		b = build(t)
		b.tensor("x")
		b.tensor("y")
		b.tensor("out")
		b.op(c.op, names("x", "y"), names("out"))
		b.refused(fed{"x": scalar[int32](1), "y": scalar[int64](1)}, pyfeed.Type, place, "inputs of one dtype, found int32 and int64")
		b.refused(fed{"x": scalar[int32](1)}, pyfeed.State, place, `variable "y": expected a tensor in it, found none`)
		if c.op == "equal" || c.op == "not_equal" {
			continue
		}
		b.refused(fed{"x": scalar[complex64](1), "y": scalar[complex64](1)}, pyfeed.Type, place, "that have an order, found complex64")
		b = build(t)
		declared(b, "x", pyfeed.Complex128)
		declared(b, "out", pyfeed.Any)
		fails(t, b.try(c.op, names("x", "x"), names("out")), pyfeed.Type, place, "that have an order, found complex128")
	}
}

func TestSingleElementsAreBroadcast(t *testing.T) {
	shaped := func(b *builder, name string, dims pyfeed.Dims) string {
		return b.variable(&desc.Variable{Name: name, Kind: desc.Tensor, DType: pyfeed.Int8, Dims: dims, Shaped: true})
	}
	// -1 means that the size is known only at run time; it is then 1.
	for _, c := range []struct{ x, y, out pyfeed.Dims }{
		{pyfeed.Dims{}, pyfeed.Dims{}, pyfeed.Dims{}},
		{pyfeed.Dims{}, pyfeed.Dims{1}, pyfeed.Dims{1}},
		{pyfeed.Dims{1}, pyfeed.Dims{}, pyfeed.Dims{1}},
		{pyfeed.Dims{1, 1}, pyfeed.Dims{1}, pyfeed.Dims{1, 1}},
		{pyfeed.Dims{3}, pyfeed.Dims{}, pyfeed.Dims{3}},
		{pyfeed.Dims{}, pyfeed.Dims{2, 2}, pyfeed.Dims{2, 2}},
		{pyfeed.Dims{2, 2}, pyfeed.Dims{2, 2}, pyfeed.Dims{2, 2}},
		{pyfeed.Dims{1, 1, 1}, pyfeed.Dims{2}, pyfeed.Dims{2}},
		{pyfeed.Dims{0}, pyfeed.Dims{1}, pyfeed.Dims{0}},
		{pyfeed.Dims{}, pyfeed.Dims{2, 0}, pyfeed.Dims{2, 0}},
		{pyfeed.Dims{0, 2}, pyfeed.Dims{0, 2}, pyfeed.Dims{0, 2}},
		{pyfeed.Dims{-1}, pyfeed.Dims{}, pyfeed.Dims{1}},
		{pyfeed.Dims{-1}, pyfeed.Dims{1, 1}, pyfeed.Dims{1, 1}},
		{pyfeed.Dims{1, 1}, pyfeed.Dims{-1}, pyfeed.Dims{1, 1}},
		{pyfeed.Dims{-1}, pyfeed.Dims{2, 2}, pyfeed.Dims{2, 2}},
		{pyfeed.Dims{-1, -1}, pyfeed.Dims{3}, pyfeed.Dims{3}},
		{pyfeed.Dims{2}, pyfeed.Dims{3}, nil},
		{pyfeed.Dims{2, 3}, pyfeed.Dims{3, 2}, nil},
		{pyfeed.Dims{0}, pyfeed.Dims{2}, nil},
		{pyfeed.Dims{2}, pyfeed.Dims{1, 2}, nil},
	} {
		fill := func(dims pyfeed.Dims, v int8) pyfeed.LoDTensor {
			n := int64(1)
			real := slices.Clone(dims)
			for i := range real {
				if real[i] == -1 {
					real[i] = 1
				}
				n *= real[i]
			}
			return of(real, slices.Repeat([]int8{v}, int(n))...)
		}
		feeds := func() fed { return fed{"x": fill(c.x, 1), "y": fill(c.y, 2)} }
		known, unknown := build(t), build(t)
		shaped(known, "x", c.x)
		shaped(known, "y", c.y)
		known.tensor("out")
		for _, name := range names("x", "y", "out") {
			unknown.tensor(name)
		}
		err := known.try("less_than", names("x", "y"), names("out"))
		unknown.op("less_than", names("x", "y"), names("out"))
		if c.out == nil {
			text := fmt.Sprintf("or one with a single element, found %s and %s", dimsText(c.x), dimsText(c.y))
			fails(t, err, pyfeed.Shape, "block 0, op 0: less_than", text)
			unknown.refused(feeds(), pyfeed.Shape, "block 0, op 0: less_than", text)
			continue
		}
		if err != nil {
			t.Errorf("%v and %v: %v", c.x, c.y, err)
			continue
		}
		want := fill(c.out, 1)
		want.DType = pyfeed.Bool
		known.gives(feeds(), "out", show(&want))
		unknown.gives(feeds(), "out", show(&want))
		v, _ := known.p.Variable(0, "out")
		if v.DType != pyfeed.Bool || conforms(&want, v, "output", 0) != nil {
			t.Errorf("%v and %v: wrong description of the output: %+v", c.x, c.y, v)
		}
	}
}

func TestInputsMayBeOneVariableAndTheOutputToo(t *testing.T) {
	b := build(t)
	b.constant("x", "int64", 5)
	fails(t, b.try("less_equal", names("x", "x"), names("x")), pyfeed.Type, "block 0, op 1: less_equal", `output "x": dtype: expected int64, as declared, found bool`)
	b = build(t)
	b.tensor("x")
	b.op("logical_not", names("x"), names("x"))
	b.op("logical_and", names("x", "x"), names("x"))
	b.op("equal", names("x", "x"), names("x"))
	b.op("logical_and", names("x", "x"), names("x"))
	b.op("logical_not", names("x"), names("x"))
	b.gives(fed{"x": of(pyfeed.Dims{2}, true, false)}, "x", "bool [2] [false false]")
}

func TestLogicalOperators(t *testing.T) {
	b := build(t)
	for _, name := range names("x", "y", "and", "or", "not", "any") {
		b.tensor(name)
	}
	b.tensor("one")
	b.op("logical_and", names("x", "y"), names("and"))
	b.op("logical_or", names("x", "y"), names("or"))
	b.op("logical_not", names("x"), names("not"))
	b.op("logical_or", names("x", "one"), names("any"))
	four := pyfeed.Dims{4}
	b.gives(fed{"x": of(four, false, false, true, true), "y": of(four, false, true, false, true), "one": scalar(true)}, "and or not any",
		"bool [4] [false false false true]", "bool [4] [false true true true]", "bool [4] [true true false false]", "bool [4] [true true true true]")
	b.refused(fed{"x": of(four, false, false, true, true), "y": of[uint8](four, 1, 1, 1, 1)}, pyfeed.Type, "block 0, op 0: logical_and", "inputs of bool, found uint8")

	for _, op := range names("logical_and", "logical_or", "logical_not") {
		b := build(t)
		b.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, DType: pyfeed.Uint8})
		b.tensor("out")
		ins := names("x", "x")
		if op == "logical_not" {
			ins = ins[:1]
		}
		fails(t, b.try(op, ins, names("out")), pyfeed.Type, "block 0, op 0: "+op, "inputs of bool, found uint8")
	}
}

// ---- Increment ----

func TestIncrementOfEveryDType(t *testing.T) {
	two := pyfeed.Dims{2}
	for _, c := range []struct {
		x    pyfeed.LoDTensor
		step desc.Value
		want string
	}{
		{of[int8](two, 126, -128), intValue(1), "int8 [2] [127 -127]"},
		{of[int8](two, 127, -127), intValue(-1), "int8 [2] [126 -128]"},
		{of[int16](two, 1, 2), intValue(0), "int16 [2] [1 2]"},
		{of[int32](two, 1<<30, -1), floatValue(3), "int32 [2] [1073741827 2]"},
		{of[int64](two, math.MinInt64, 0), intValue(math.MaxInt64), "int64 [2] [-1 9223372036854775807]"},
		{of[int64](two, -1, 0), intValue(math.MinInt64 + 1), "int64 [2] [-9223372036854775808 -9223372036854775807]"},
		{of[uint8](two, 255, 1), intValue(-1), "uint8 [2] [254 0]"},
		{of[uint16](two, 0, 1), intValue(65534), "uint16 [2] [65534 65535]"},
		{of[uint32](two, math.MaxUint32, 7), intValue(-7), "uint32 [2] [4294967288 0]"},
		{of[uint64](two, 1<<63, math.MaxUint64), intValue(math.MinInt64), "uint64 [2] [0 9223372036854775807]"},
		{of[uint64](two, 1<<63, 0), intValue(math.MaxInt64), "uint64 [2] [18446744073709551615 9223372036854775807]"},
		{of[half](two, 0x3c00, 0x6800), intValue(1), "float16 [2] [0x4000 0x6800]"}, // 2048 + 1 is a tie: to even
		{of[half](two, 0x7bff, 0x7c00), intValue(32), "float16 [2] [0x7c00 0x7c00]"},
		{of[bfloat16](two, 0x3f80, 0x4380), floatValue(0.5), "bfloat16 [2] [0x3fc0 0x4380]"},
		{of[float32](two, 1, float32(math.Inf(1))), floatValue(0.5), "float32 [2] [1.5 +Inf]"},
		{of[float64](two, 0.1, -1), floatValue(0.2), "float64 [2] [0.30000000000000004 -0.8]"},
		{of[complex64](two, 1i, 2), intValue(1), "complex64 [2] [(1+1i) (3+0i)]"},
		{of[complex128](two, 1-1i, 2), floatValue(-1), "complex128 [2] [(0-1i) (1+0i)]"},
	} {
		apart, inPlace := build(t), build(t)
		apart.tensor("x")
		apart.tensor("y")
		apart.op("increment", names("x"), names("y"), step(c.step))
		before := show(&c.x)
		apart.gives(fed{"x": c.x}, "x y", before, c.want)
		inPlace.tensor("x")
		inPlace.op("increment", names("x"), names("x"), step(c.step)) // of lent memory: increment copies it
		inPlace.op("increment", names("x"), names("x"), step(intValue(0)))
		inPlace.gives(fed{"x": c.x}, "x", c.want)
		if after := show(&c.x); after != before {
			t.Errorf("the fed tensor was changed to %s", after)
		}
	}
}

// An increment that is refused leaves the variable unchanged.
func TestIncrementRefusesToOverflow(t *testing.T) {
	two := pyfeed.Dims{2}
	for _, c := range []struct {
		x    pyfeed.LoDTensor
		step int64
	}{
		{of[int8](two, 0, 127), 1},
		{of[int8](two, 0, -128), -1},
		{of[int16](two, 0, math.MaxInt16), 1},
		{of[int32](two, 0, math.MinInt32), -5},
		{of[int64](two, 0, math.MaxInt64), 1},
		{of[int64](two, 0, math.MinInt64), -1},
		{of[int64](two, -2, 0), math.MinInt64},
		{of[uint8](two, 0, 255), 1},
		{of[uint8](two, 5, 4), -5},
		{of[uint8](two, 1, 0), 256},
		{of[uint16](two, 0, 1), math.MaxInt64},
		{of[uint32](two, math.MaxUint32, 0), 1},
		{of[uint64](two, 1, math.MaxUint64), 1},
		{of[uint64](two, 1<<63, 0), -1},
	} {
		for _, out := range names("x", "y") {
			e, scope := executor(t), pyfeed.NewScope(nil)
			b := build(t)
			b.persistable("x", desc.Tensor)
			b.persistable("y", desc.Tensor)
			b.op("increment", names("x"), names(out), step(intValue(c.step)))
			// The same for memory of the library, which is written in place.
			keep := build(t)
			keep.tensor("in")
			keep.persistable("x", desc.Tensor)
			keep.op("increment", names("in"), names("x"), step(intValue(0)))
			if _, err := keep.in(e, scope, fed{"in": c.x}); err != nil {
				t.Fatal(err)
			}
			_, err := b.in(e, scope, nil)
			fails(t, err, pyfeed.Invalid, "block 0, op 0: increment", fmt.Sprintf("the sum is out of the range of %v", c.x.DType))
			v, _ := scope.Var("x")
			_ = v.ReadTensor(func(x *pyfeed.LoDTensor) error {
				if got, want := show(x), show(&c.x); got != want {
					t.Errorf("expected %s to stay, found %s", want, got)
				}
				return nil
			})
			v, _ = scope.Var("y")
			if err := v.ReadTensor(func(*pyfeed.LoDTensor) error { return nil }); err == nil {
				t.Error("a refused increment has set its output")
			}
			scope.Drop()
		}
	}
}

func TestIncrementRefusesSteps(t *testing.T) {
	for _, c := range []struct {
		x    pyfeed.LoDTensor
		step desc.Value
		text string
	}{
		{scalar(true), intValue(1), "expected a number, found bool"},
		{scalar[int8](1), intValue(128), "one of int8, found 128"},
		{scalar[int32](1), floatValue(0.5), "one of int32, found 0.5"},
		{scalar[uint8](1), floatValue(-0.5), "found -0.5"},
		{scalar[half](1), floatValue(1e6), "one of float16, found 1e+06"},
		{scalar[float32](1), textValue("1"), `one of float32, found "1"`},
	} {
		known, unknown := build(t), build(t)
		known.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, DType: c.x.DType})
		fails(t, known.try("increment", names("x"), names("x"), step(c.step)), pyfeed.Type, "block 0, op 0: increment", c.text)
		unknown.tensor("x")
		unknown.op("increment", names("x"), names("x"), step(c.step))
		unknown.refused(fed{"x": c.x}, pyfeed.Type, "block 0, op 0: increment", c.text)
	}
}

// ---- Memory ----

// at returns the address of the tensor in a variable.
func at(t *testing.T, scope *pyfeed.Scope, name string) (p *byte) {
	t.Helper()
	v, err := scope.FindVar(name)
	if err == nil {
		err = v.ReadTensor(func(x *pyfeed.LoDTensor) error { p = unsafe.SliceData(x.Data); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAssignSharesAndWritingCopiesFirst(t *testing.T) {
	e, scope := executor(t), pyfeed.NewScope(nil)
	defer scope.Drop()
	once := func(fill func(*builder)) {
		t.Helper()
		b := build(t)
		for _, name := range names("x", "y", "z") {
			b.persistable(name, desc.Tensor)
		}
		fill(b)
		if _, err := b.in(e, scope, nil); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want ...string) {
		t.Helper()
		for i, name := range names("x", "y", "z") {
			v, _ := scope.Var(name)
			_ = v.ReadTensor(func(x *pyfeed.LoDTensor) error {
				if got := show(x); got != want[i] {
					t.Errorf("%s: expected %s, found %s", name, want[i], got)
				}
				return nil
			})
		}
	}
	once(func(b *builder) {
		b.op("fill_constant", nil, names("x"), text("dtype", "int32"), integer("value", 1), list("dims", 2))
		b.op("assign", names("x"), names("y"))
		b.op("assign", names("y"), names("z"))
		b.op("assign", names("z"), names("z")) // to itself
	})
	expect("int32 [2] [1 1]", "int32 [2] [1 1]", "int32 [2] [1 1]")
	shared := at(t, scope, "x")
	if at(t, scope, "y") != shared || at(t, scope, "z") != shared {
		t.Error("assign copied")
	}
	once(func(b *builder) { b.op("increment", names("y"), names("y")) })
	expect("int32 [2] [1 1]", "int32 [2] [2 2]", "int32 [2] [1 1]")
	own := at(t, scope, "y")
	once(func(b *builder) {
		b.op("increment", names("y"), names("y"))
		b.op("fill_constant", nil, names("z"), text("dtype", "int32"), integer("value", 9), list("dims", 2))
	})
	expect("int32 [2] [1 1]", "int32 [2] [3 3]", "int32 [2] [9 9]")
	once(func(b *builder) { b.op("increment", names("x"), names("x")) })
	expect("int32 [2] [2 2]", "int32 [2] [3 3]", "int32 [2] [9 9]")
	if at(t, scope, "y") != own || at(t, scope, "x") != shared {
		t.Error("an unshared tensor was copied instead of being written in place")
	}
}

func TestALoDGoesWithATensorAndNotWithItsComparison(t *testing.T) {
	x := of[int64](pyfeed.Dims{3}, 1, 2, 3)
	x.LoD = pyfeed.LoD{{0, 1, 3}}
	b := build(t)
	for _, name := range names("x", "y", "same") {
		b.tensor(name)
	}
	b.op("assign", names("x"), names("y"))
	b.op("equal", names("x", "y"), names("same"))
	b.gives(fed{"x": x}, "y same", "int64 [3] lod [[0 1 3]] [1 2 3]", "bool [3] [true true true]")
}

// ---- Print ----

// stderrOf returns what f writes to standard error.
func stderrOf(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = w
	read := make(chan string)
	go func() {
		all, _ := io.ReadAll(r)
		read <- string(all)
	}()
	defer func() { os.Stderr = stderr }()
	defer func() { _ = w.Close() }()
	f()
	_ = w.Close()
	return <-read
}

func TestPrint(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	ragged := of[int8](pyfeed.Dims{3}, 1, 2, 3)
	ragged.LoD = pyfeed.LoD{{0, 1, 2}, {0, 1, 3}}
	for _, c := range []struct {
		x         pyfeed.LoDTensor
		summarize int64
		want      string
	}{
		{of(pyfeed.Dims{2}, true, false), 20, "bool (2,): [true, false]"},
		{scalar[int8](-5), 20, "int8 (): [-5]"},
		{scalar[uint64](math.MaxUint64), 20, "uint64 (): [18446744073709551615]"},
		{scalar[int64](math.MinInt64), 20, "int64 (): [-9223372036854775808]"},
		{of[half](pyfeed.Dims{3}, 0x3c00, 0x2e66, 0xfc00), 20, "float16 (3,): [1, 0.099975586, -Inf]"},
		{of[bfloat16](pyfeed.Dims{1}, 0x4049), 20, "bfloat16 (1,): [3.140625]"},
		{of[float32](pyfeed.Dims{1, 2}, 0.1, 16777216), 20, "float32 (1, 2): [0.1, 1.6777216e+07]"},
		{of(pyfeed.Dims{4}, 0.1, 1e300, nan, -inf), 20, "float64 (4,): [0.1, 1e+300, NaN, -Inf]"},
		{of(pyfeed.Dims{4}, 1+2i, complex(0, -1.5), complex(nan, nan), complex(inf, inf)), 20,
			"complex128 (4,): [(1+2i), (0-1.5i), (NaN+NaNi), (+Inf+Infi)]"},
		{of(pyfeed.Dims{1}, complex(0.1, float32(math.Copysign(0, -1)))), 20, "complex64 (1,): [(0.1-0i)]"},
		{of[int16](pyfeed.Dims{2, 0}), 20, "int16 (2, 0): []"},
		{of[int16](pyfeed.Dims{4}, 1, 2, 3, 4), 4, "int16 (4,): [1, 2, 3, 4]"},
		{of[int16](pyfeed.Dims{4}, 1, 2, 3, 4), 3, "int16 (4,): [1, 2, 3, ...]"},
		{of[int16](pyfeed.Dims{4}, 1, 2, 3, 4), math.MaxInt64, "int16 (4,): [1, 2, 3, 4]"},
		{ragged, 3, "int8 (3,) lod 0,1,2 lod 0,1,3: [1, 2, 3]"},
		{ragged, 1, "int8 (3,) lod 0,1, ... lod 0,1, ...: [1, ...]"},
	} {
		b := build(t)
		b.tensor("x")
		b.op("print", names("x"), nil, integer("summarize", c.summarize))
		got := stderrOf(t, func() { b.gives(fed{"x": c.x}, "") })
		if want := "x " + c.want + "\n"; got != want {
			t.Errorf("expected %q, found %q", want, got)
		}
	}
}

func TestPrintOfNothingShown(t *testing.T) {
	b := build(t)
	b.tensor("x")
	b.op("print", names("x"), nil, integer("summarize", 0))
	if got := stderrOf(t, func() { b.gives(fed{"x": of[int8](pyfeed.Dims{2}, 1, 2)}, "") }); got != "x int8 (2,): [...]\n" {
		t.Errorf("wrong output %q", got)
	}
}

func TestPrintFirstNOfEachRun(t *testing.T) {
	b := build(t)
	b.constant("i", "int64", 0)
	b.constant("n", "int64", 3)
	b.tensor("more")
	b.op("less_than", names("i", "n"), names("more"))
	b.while("more", func(b *builder) {
		b.op("print", names("i", "more"), nil, text("message", "loop:"), integer("first_n", 2))
		b.op("increment", names("i"), names("i"))
		b.op("less_than", names("i", "n"), names("more"))
		b.op("print", names("i"), nil)
	})
	want := "loop: i int64 (): [0]\nloop: more bool (): [true]\ni int64 (): [1]\n" +
		"loop: i int64 (): [1]\nloop: more bool (): [true]\ni int64 (): [2]\ni int64 (): [3]\n"
	if got := stderrOf(t, func() { b.run(); b.run() }); got != want+want {
		t.Errorf("wrong output %q", got)
	}
}

func TestPrintErrors(t *testing.T) {
	b := build(t)
	b.tensor("x")
	b.tensor("y")
	fails(t, b.try("print", names("x"), nil, integer("summarize", -1)), pyfeed.Invalid, "block 0, op 0: print", `attribute "summarize": expected at least 0, found -1`)
	fails(t, b.try("print", names("x"), nil, integer("first_n", -1)), pyfeed.Invalid, "", `attribute "first_n"`)
	b.op("print", names("x", "y"), nil)
	got := stderrOf(t, func() {
		b.refused(fed{"x": scalar(true)}, pyfeed.State, "block 0, op 0: print", `variable "y": expected a tensor in it, found none`)
	})
	if got != "" {
		t.Errorf("expected no output of a print that failed, found %q", got)
	}
	got = stderrOf(t, func() {
		_ = os.Stderr.Close()
		b.refused(fed{"x": scalar(true), "y": scalar(true)}, pyfeed.IO, "block 0, op 0: print", "standard error: ")
	})
	if got != "" {
		t.Errorf("expected no output, found %q", got)
	}
}

// ---- What is known of variables ----

// Every operator that sets a tensor obeys the declaration of its output, both when the program is built and when it
// runs.
func TestOutputsAreAsDeclared(t *testing.T) {
	k := &Kernel{Name: "same", Run: func(_ context.Context, c *Call) error { c.Ins[0].Share(&c.Outs[0]); return nil }}
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	defer Unregister(k)
	two := pyfeed.Dims{2}
	ragged := of[bool](two, true, true)
	ragged.LoD = pyfeed.LoD{{0, 2}}
	type variable = desc.Variable
	for _, c := range []struct {
		op   string
		x    pyfeed.LoDTensor
		out  variable
		kind pyfeed.Kind // 0: no error
		text string
	}{
		{"assign", scalar(true), variable{}, 0, ""},
		{"assign", scalar(true), variable{DType: pyfeed.Bool, Shaped: true}, 0, ""},
		{"assign", of(two, true, true), variable{DType: pyfeed.Bool, Shaped: true, Dims: pyfeed.Dims{-1}}, 0, ""},
		{"assign", ragged, variable{Shaped: true, Dims: pyfeed.Dims{-1}, LoDLevels: 1}, 0, ""},
		{"assign", scalar(true), variable{DType: pyfeed.Int64}, pyfeed.Type, `dtype: expected int64, found bool`},
		{"assign", scalar(true), variable{Shaped: true, Dims: pyfeed.Dims{1}}, pyfeed.Shape, `expected dims (1,), found ()`},
		{"assign", of(two, true, true), variable{Shaped: true, Dims: pyfeed.Dims{3}}, pyfeed.Shape, `expected dims (3,), found (2,)`},
		{"assign", ragged, variable{Shaped: true, Dims: two}, pyfeed.Shape, `LoD: expected 0 levels, found 1`},
		{"call", scalar(true), variable{DType: pyfeed.Bool, Shaped: true}, 0, ""},
		{"call", scalar(true), variable{DType: pyfeed.Int64}, pyfeed.Type, `dtype: expected int64, found bool`},
		{"call", of(two, true, true), variable{Shaped: true, Dims: pyfeed.Dims{-1, 2}}, pyfeed.Shape, `expected dims (-1, 2), found (2,)`},
		{"logical_not", of(two, true, true), variable{Shaped: true, Dims: pyfeed.Dims{-1}}, 0, ""},
		{"logical_not", of(two, true, true), variable{Shaped: true, Dims: pyfeed.Dims{3}}, pyfeed.Shape, `expected dims (3,), found (2,)`},
		{"logical_not", ragged, variable{Shaped: true, Dims: two, LoDLevels: 1}, pyfeed.Shape, `LoD: expected 1 levels, found 0`},
		{"equal", of(two, true, true), variable{Shaped: true, Dims: pyfeed.Dims{}}, pyfeed.Shape, `expected dims (), found (2,)`},
		{"increment", scalar[int8](1), variable{DType: pyfeed.Int8}, 0, ""},
		{"increment", scalar[int8](1), variable{DType: pyfeed.Int16}, pyfeed.Type, `dtype: expected int16, found int8`},
		{"increment", of[int8](two, 1, 1), variable{Shaped: true, Dims: pyfeed.Dims{-1, -1}}, pyfeed.Shape, `expected dims (-1, -1), found (2,)`},
	} {
		known, unknown := build(t), build(t)
		var attributes []desc.Attribute
		if c.op == "call" {
			attributes = []desc.Attribute{text("kernel", "same")}
		}
		ins := names("x")
		if c.op == "equal" {
			ins = names("x", "x")
		}
		c.out.Name, c.out.Kind = "out", desc.Tensor
		known.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, DType: c.x.DType, Shaped: true, Dims: c.x.Dims(), LoDLevels: len(c.x.LoD)})
		known.variable(c.out.Clone())
		err := known.try(c.op, ins, names("out"), attributes...)
		place := "block 0, op 0: " + c.op
		switch {
		case c.kind == 0 && err != nil:
			t.Errorf("%s to %+v: %v", c.op, c.out, err)
		case c.kind != 0 && c.op != "call": // for call, the outputs are not known before
			fails(t, err, c.kind, place, strings.Replace(c.text, ", found", ", as declared, found", 1))
		}
		unknown.tensor("x")
		unknown.variable(c.out.Clone())
		unknown.op(c.op, ins, names("out"), attributes...)
		if c.kind == 0 {
			unknown.gives(fed{"x": c.x}, "")
		} else {
			unknown.refused(fed{"x": c.x}, c.kind, place, `output "out": `+c.text)
		}
	}
}

func TestFeedsAreAsDeclared(t *testing.T) {
	b := build(t)
	b.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, DType: pyfeed.Int8, Shaped: true, Dims: pyfeed.Dims{-1, 2}})
	b.persistable("r", desc.Reader)
	b.tensor("y")
	b.gives(fed{"x": of[int8](pyfeed.Dims{1, 2}, 1, 2)}, "x", "int8 [1 2] [1 2]")
	b.refused(fed{"x": of[int16](pyfeed.Dims{1, 2}, 1, 2)}, pyfeed.Type, "", `slot 0: feed "x": dtype: expected int8, found int16`)
	b.refused(fed{"x": of[int8](pyfeed.Dims{2}, 1, 2)}, pyfeed.Shape, "", `slot 0: feed "x": expected dims (-1, 2), found (2,)`)
	b.refused(fed{"z": scalar(true)}, pyfeed.NotFound, "", `feed: the program has no variable "z" in its first block`)
	b.refused(fed{"r": scalar(true)}, pyfeed.Invalid, "", `feed: expected a tensor, found "r", which is a reader`)

	e, scope := executor(t), pyfeed.NewScope(nil)
	defer scope.Drop()
	for _, c := range []struct {
		fetch string
		kind  pyfeed.Kind
		text  string
	}{
		{"z", pyfeed.NotFound, `fetch: the program has no variable "z" in its first block`},
		{"r", pyfeed.Invalid, `fetch: expected a tensor, found "r", which is a reader`},
		{"y", pyfeed.State, `fetch: variable "y": expected a tensor in it, found none`},
	} {
		_, err := b.in(e, scope, nil, c.fetch)
		fails(t, err, c.kind, "", c.text)
	}
	_, err := e.Run(background, b.p, scope, names("y"), nil, nil)
	fails(t, err, pyfeed.Slots, "", "feed: tensors: expected 1, as there are names, found 0")
	for _, n := range []int{0, 2} {
		_, err := e.Run(background, b.p, scope, names("y"), pyfeed.NewTuple(n), nil)
		fails(t, err, pyfeed.Slots, "", fmt.Sprintf("feed: tensors: expected 1, as there are names, found %d", n))
	}
}

func TestOperatorOutputsAreInferred(t *testing.T) {
	b := build(t)
	for _, name := range names("x", "y", "z", "less", "not") {
		b.tensor(name)
	}
	b.variable(&desc.Variable{Name: "r", Kind: desc.Reader, Persistable: true, Slots: slots("int8", 3)})
	b.op("fill_constant", nil, names("x"), text("dtype", "float16"), list("dims", 2, 3))
	b.op("assign", names("x"), names("y"))
	b.op("increment", names("y"), names("z"))
	b.op("less_than", names("x", "z"), names("less"))
	b.op("logical_not", names("less"), names("not"))
	b.tensor("has")
	b.op("has_next", names("r"), names("has"))
	b.tensor("row")
	b.op("read", names("r"), names("row"))
	for name, want := range map[string]string{"x": "float16 (2, 3)", "y": "float16 (2, 3)", "z": "float16 (2, 3)", "less": "bool (2, 3)",
		"not": "bool (2, 3)", "has": "bool ()", "row": "int8 (3,)", "r": "reader"} {
		v, err := b.p.Variable(0, name)
		if err != nil || describe(v) != want {
			t.Errorf("%s: expected %s, found %+v, %v", name, want, v, err)
		}
	}
}

func slots(dtype string, dims ...int64) []record.SlotAttributes {
	return []record.SlotAttributes{{DType: dtype, Dims: dims}}
}

// ---- Errors ----

func TestOperatorsRefuseInvalidArguments(t *testing.T) {
	build := func(t *testing.T) *builder {
		b := build(t)
		b.tensor("x")
		b.tensor("y")
		b.variable(&desc.Variable{Name: "int", Kind: desc.Tensor, DType: pyfeed.Int32})
		b.variable(&desc.Variable{Name: "three", Kind: desc.Tensor, DType: pyfeed.Bool, Shaped: true, Dims: pyfeed.Dims{3}})
		b.persistable("r", desc.Reader)
		b.variable(&desc.Variable{Name: "pair", Kind: desc.Reader, Persistable: true, Slots: append(slots("int8", 2), slots("any", -1)...)})
		b.persistable("s", desc.Stage)
		b.variable(&desc.Variable{Name: "staged", Kind: desc.Stage, Slots: slots("int8", 2)})
		return b
	}
	type attributes = []desc.Attribute
	for _, c := range []struct {
		op         string
		ins, outs  []string
		attributes attributes
		kind       pyfeed.Kind
		text       string
	}{
		{"add", names("x"), names("y"), nil, pyfeed.NotFound, `operator: expected one of assign, call, create_batch_reader, `},
		{"", nil, nil, nil, pyfeed.NotFound, `found ""`},
		{"assign", names("z"), names("y"), nil, pyfeed.NotFound, `input 0: variable "z": there is none in block 0 or those around it`},
		{"assign", names("x"), names(""), nil, pyfeed.NotFound, `output 0: variable "": there is none in block 0`},
		{"assign", names("x", "x"), names("y"), nil, pyfeed.Slots, `inputs: expected 1, found 2`},
		{"assign", names("x"), nil, nil, pyfeed.Slots, `outputs: expected 1, found 0`},
		{"assign", names("r"), names("y"), nil, pyfeed.Invalid, `input 0: expected a tensor, found "r", which is a reader`},
		{"assign", names("x"), names("s"), nil, pyfeed.Invalid, `output 0: expected a tensor, found "s", which is a stage`},
		{"assign", names("x"), names("y"), attributes{integer("step", 1)}, pyfeed.Invalid, `attributes: expected none, found "step"`},
		{"less_than", names("x"), names("y"), nil, pyfeed.Slots, `inputs: expected 2, found 1`},
		{"call", nil, names("x", "y", "x"), attributes{text("kernel", "k")}, pyfeed.Invalid, `output 2: expected each output once, found "x" twice`},
		{"call", nil, nil, nil, pyfeed.Invalid, `attributes: expected "kernel", which was not given`},
		{"call", nil, nil, attributes{text("kernel", "")}, pyfeed.Invalid, `attribute "kernel": expected a name, found an empty string`},
		{"call", nil, nil, attributes{integer("kernel", 1)}, pyfeed.Invalid, `attribute "kernel": expected a text, found an integer`},
		{"call", slices.Repeat(names("x"), 1025), nil, attributes{text("kernel", "k")}, pyfeed.Slots, `inputs: expected 0 or more, found 1025`},
		{"increment", names("x"), names("x"), attributes{integer("by", 1)}, pyfeed.Invalid, `attributes: expected step, found "by"`},
		{"print", nil, nil, nil, pyfeed.Slots, `inputs: expected 1 or more, found 0`},
		{"print", names("r"), nil, nil, pyfeed.Invalid, `input 0: expected a tensor`},
		{"has_next", names("x"), names("y"), nil, pyfeed.Invalid, `input 0: expected a reader, found "x", which is a tensor`},
		{"has_next", names("r"), names("int"), nil, pyfeed.Type, `slot 0: output "int": dtype: expected int32, as declared, found bool`},
		{"has_next", names("r"), names("three"), nil, pyfeed.Shape, `slot 0: output "three": expected dims (3,), as declared, found ()`},
		{"reset", nil, nil, nil, pyfeed.Slots, `inputs: expected 1, found 0`},
		{"reset", names("r"), names("y"), nil, pyfeed.Slots, `outputs: expected 0, found 1`},
		{"read", names("r"), nil, nil, pyfeed.Slots, `outputs: expected 1 or more, found 0`},
		{"read", names("pair"), names("x"), nil, pyfeed.Slots, `outputs: expected 2, as reader "pair" has slots, found 1`},
		{"read", names("pair"), names("int", "x"), nil, pyfeed.Type, `slot 0: output "int": dtype: expected int32, as declared, found int8`},
		{"read", names("pair"), names("x", "three"), nil, 0, ``},
		{"read", names("pair"), names("three", "x"), nil, pyfeed.Type, `slot 0: output "three"`},
		{"stage", names("r"), names("s"), nil, pyfeed.Invalid, `input 0: expected a tensor`},
		{"stage", names("x"), names("y"), nil, pyfeed.Invalid, `output 0: expected a stage`},
		{"stage", names("x"), names("s"), attributes{integer("capacity", 0)}, pyfeed.Invalid, `attribute "capacity": expected at least 1, found 0`},
		{"stage", names("x"), names("s"), attributes{integer("bytes_limit", -1)}, pyfeed.Invalid, `attribute "bytes_limit": expected at least 0, found -1`},
		{"stage", names("three"), names("staged"), nil, pyfeed.Type, `slot 0: dtype: expected int8, as declared, found bool`},
		{"stage", names("three", "three"), names("staged"), nil, pyfeed.Slots, `slots: expected 1, as declared, found 2`},
		{"unstage", names("staged"), names("x", "y"), nil, pyfeed.Slots, `outputs: expected 1, as stage "staged" has slots, found 2`},
		{"unstage", names("staged"), names("three"), nil, pyfeed.Type, `slot 0: output "three": dtype: expected bool, as declared, found int8`},
		{"unstage", names("s"), names("x"), attributes{integer("capacity", -2)}, pyfeed.Invalid, `attribute "capacity": expected at least 1`},
		{"while", names("int"), nil, attributes{integer("block", 1)}, pyfeed.Type, `condition "int": expected bool, found int32`},
		{"while", names("three"), nil, attributes{integer("block", 1)}, pyfeed.Shape, `condition "three": expected one element, found dims (3,)`},
		{"while", names("x"), nil, attributes{integer("block", 0)}, pyfeed.Invalid, `body: expected a block within block 0, found 0`},
		{"while", names("x"), nil, attributes{integer("block", 3)}, pyfeed.Invalid, `body: expected a block within block 0, found 3`},
		{"while", names("x"), nil, attributes{integer("block", math.MinInt64)}, pyfeed.Invalid, `body: expected a block`},
		{"while", names("x"), nil, attributes{integer("block", math.MaxInt64)}, pyfeed.Invalid, `body: expected a block`},
		{"while", names("x"), nil, attributes{integer("block", 2)}, pyfeed.Invalid, `body: expected a block within block 0, found 2`},
		{"while", names("x"), nil, attributes{text("block", "1")}, pyfeed.Invalid, `attribute "block": expected an integer, found a text`},
		{"while", names("x"), nil, nil, pyfeed.Invalid, `expected "block", which was not given`},
		{"if_else", names("x"), nil, nil, pyfeed.Invalid, `expected true_block, false_block or both, found neither`},
		{"if_else", names("x"), nil, attributes{integer("false_block", 1), integer("true_block", 1)}, pyfeed.Invalid, `expected two blocks, found block 1 twice`},
		{"if_else", names("x"), nil, attributes{integer("false_block", 1), integer("true_block", 2)}, pyfeed.Invalid, `expected a block within block 0, found 2`},
		{"if_else", names("x"), nil, attributes{integer("false_block", -1)}, pyfeed.Invalid, `expected a block within block 0, found -1`},
		{"if_else", names("s"), nil, attributes{integer("true_block", 1)}, pyfeed.Invalid, `input 0: expected a tensor`},
		{"create_batch_reader", names("r"), names("r"), attributes{text("batch_size", "2")}, pyfeed.Invalid, `batch_size`},
		{"create_batch_reader", names("r"), names("r"), attributes{integer("size", 2)}, pyfeed.Invalid, `size`},
		{"create_batch_reader", nil, names("r"), nil, pyfeed.Invalid, `inputs: expected 1, found 0`},
		{"create_batch_reader", names("x"), names("r"), nil, pyfeed.Invalid, `input 0: expected a reader, found "x"`},
		{"create_batch_reader", names("r"), names("y"), nil, pyfeed.Invalid, `output 0: expected a reader, found "y"`},
		{"create_batch_reader", names("pair"), names("pair"), attributes{integer("batch_size", 2)}, pyfeed.Shape, `slot 0: expected dims (2,) and 0 LoD levels, as declared, found (-1, 2) and 0`},
		{"create_zip_reader", names("pair", "pair"), names("pair"), nil, pyfeed.Slots, `slots: expected 2, as declared, found 4`},
	} {
		b := build(t)
		inner := b.body(func(b *builder) { b.body(func(*builder) {}) })
		err := b.try(c.op, c.ins, c.outs, c.attributes...)
		if c.kind == 0 {
			if err != nil {
				t.Errorf("%s: %v", c.op, err)
			}
			continue
		}
		fails(t, err, c.kind, "block 0, op 0: "+c.op, c.text)
		// Nothing has changed.
		fresh := build(t)
		if fresh.body(func(b *builder) { b.body(func(*builder) {}) }) != inner {
			t.Fatal("blocks differ")
		}
		if got, want := b.p.json(), fresh.p.json(); got != want {
			t.Errorf("the refused operator %s has changed the program: %s", c.op, got)
		}
		if err := b.try("while", names("x"), nil, integer("block", int64(inner))); err != nil {
			t.Errorf("after %s was refused: %v", c.op, err)
		}
	}
}

func (p *Program) json() (text string) {
	p.Desc(func(d *desc.Program) { text = string(desc.ToJSON(d)) })
	return text
}

func TestABodyBelongsToOneOperator(t *testing.T) {
	b := build(t)
	b.tensor("x")
	body := int64(b.body(func(*builder) {}))
	b.op("while", names("x"), nil, integer("block", body))
	fails(t, b.try("while", names("x"), nil, integer("block", body)), pyfeed.State, "block 0, op 1: while", "body: block 1 is already the body of another operator")
	fails(t, b.try("if_else", names("x"), nil, integer("false_block", body)), pyfeed.State, "block 0, op 1: if_else", "body: block 1 is already the body of another operator")
}

func TestBuildErrorsShowKnownTypes(t *testing.T) {
	b := build(t)
	b.variable(&desc.Variable{Name: "image", Kind: desc.Tensor, DType: pyfeed.Float32, Shaped: true, Dims: pyfeed.Dims{-1, 64}})
	b.persistable("r", desc.Reader)
	b.body(func(b *builder) {
		b.tensor("n")
		b.op("fill_constant", nil, names("n"))
		err := b.p.AddOp(b.block, &desc.Op{Type: "less_than", Inputs: names("image", "n", "r"), Outputs: names("n"), Where: "train.py:12"})
		const want = `block 1, op 1: less_than(image, n, r) -> n at train.py:12, with image float32 (-1, 64), n float32 (), r reader: inputs: expected 2, found 3`
		if err == nil || err.Error() != want {
			t.Errorf("expected %s\nfound    %v", want, err)
		}
	})
}

func TestRunErrorsShowValues(t *testing.T) {
	b := build(t)
	b.tensor("yes")
	b.tensor("image")
	b.tensor("none")
	b.op("fill_constant", nil, names("yes"), text("dtype", "bool"), integer("value", 1))
	b.while("yes", func(b *builder) {
		b.op("assign", names("yes"), names("yes"))
		if err := b.p.AddOp(b.block, &desc.Op{Type: "less_than", Inputs: names("image", "none"), Outputs: names("yes"), Where: "train.py:12"}); err != nil {
			t.Fatal(err)
		}
	})
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	_, err := b.in(executor(t), scope, fed{"image": of[float32](pyfeed.Dims{1, 2}, 1, 2)})
	const want = `block 1, op 1: less_than(image, none) -> yes at train.py:12, with image float32 (1, 2), none without a tensor: variable "none": expected a tensor in it, found none`
	if err == nil || err.Error() != want {
		t.Errorf("expected %s\nfound    %v", want, err)
	}
}

func TestRunsRefuseConditionsThatAreNone(t *testing.T) {
	for _, op := range names("while", "if_else") {
		b := build(t)
		b.tensor("x")
		body := integer("block", int64(b.body(func(*builder) {})))
		if op == "if_else" {
			body.Name = "false_block"
		}
		b.op(op, names("x"), nil, body)
		place := "block 0, op 0: " + op
		b.refused(nil, pyfeed.State, place, `variable "x": expected a tensor in it, found none`)
		b.refused(fed{"x": scalar[int8](1)}, pyfeed.Type, place, "condition: expected bool, found int8")
		b.refused(fed{"x": of(pyfeed.Dims{2}, true, true)}, pyfeed.Shape, place, "condition: expected one element, found dims (2,)")
		b.refused(fed{"x": of[bool](pyfeed.Dims{0})}, pyfeed.Shape, place, "condition: expected one element, found dims (0,)")
	}
}

func TestIfElseTakesOneBodyOrNone(t *testing.T) {
	for _, which := range []string{"true_block", "false_block", "both"} {
		b := build(t)
		b.tensor("x")
		b.constant("n", "int8", 0)
		var bodies []desc.Attribute
		for i, name := range names("false_block", "true_block") { // sorted by name
			if which == name || which == "both" {
				at := b.body(func(b *builder) { b.op("increment", names("n"), names("n"), integer("step", int64(i+1))) })
				bodies = append(bodies, integer(name, int64(at)))
			}
		}
		b.op("if_else", names("x"), nil, bodies...)
		for _, yes := range []bool{false, true} {
			want := map[bool]string{false: "int8 [] [1]", true: "int8 [] [2]"}[yes]
			if which != "both" && (which == "true_block") != yes {
				want = "int8 [] [0]"
			}
			b.gives(fed{"x": of(pyfeed.Dims{1}, yes)}, "n", want)
		}
	}
}

func TestVariablesAreChecked(t *testing.T) {
	type variable = desc.Variable
	for _, c := range []struct {
		v    variable
		kind pyfeed.Kind
		text string
	}{
		{variable{Kind: desc.Tensor}, pyfeed.Invalid, "variable: expected a name, found an empty string"},
		{variable{Name: "v"}, pyfeed.Invalid, `variable "v": kind: expected tensor, reader or stage, found number 0`},
		{variable{Name: "v", Kind: 4}, pyfeed.Invalid, "found number 4"},
		{variable{Name: "v", Kind: desc.Tensor, Slots: slots("int8")}, pyfeed.Invalid, `variable "v": expected slots of a reader or stage only`},
		{variable{Name: "v", Kind: desc.Tensor, DType: 99}, pyfeed.Type, `variable "v": dtype: found number 99`},
		{variable{Name: "v", Kind: desc.Tensor, DType: -1}, pyfeed.Type, "dtype: found number -1"},
		{variable{Name: "v", Kind: desc.Tensor, Shaped: true, Dims: make(pyfeed.Dims, 9)}, pyfeed.Shape, "rank: expected at most 8 dimensions, found 9"},
		{variable{Name: "v", Kind: desc.Tensor, Shaped: true, Dims: pyfeed.Dims{1, -2}}, pyfeed.Shape, "dimension 1: expected a size or -1, found -2"},
		{variable{Name: "v", Kind: desc.Tensor, LoDLevels: -1}, pyfeed.Shape, "LoD: expected 0 to 8 levels, found -1"},
		{variable{Name: "v", Kind: desc.Tensor, LoDLevels: 9}, pyfeed.Shape, "LoD: expected 0 to 8 levels, found 9"},
		{variable{Name: "v", Kind: desc.Tensor, Shaped: true, LoDLevels: 1}, pyfeed.Shape, "LoD: expected a first dimension with 1 levels, found a scalar"},
		{variable{Name: "v", Kind: desc.Reader, DType: pyfeed.Int8}, pyfeed.Invalid, "those of a reader are in its slots"},
		{variable{Name: "v", Kind: desc.Stage, Shaped: true}, pyfeed.Invalid, "those of a stage are in its slots"},
		{variable{Name: "v", Kind: desc.Reader, Slots: slots("float")}, pyfeed.Type, `variable "v": slot 0: dtype: expected the name of one, found "float"`},
		{variable{Name: "v", Kind: desc.Reader, Slots: slots("int8", -2)}, pyfeed.Shape, `variable "v": slot 0: dimension 0`},
		{variable{Name: "x", Kind: desc.Tensor}, pyfeed.State, `variable "x": block 0 has one of that name`},
	} {
		b := build(t)
		b.tensor("x")
		before := b.p.json()
		fails(t, b.p.AddVariable(0, &c.v), c.kind, "", c.text)
		if after := b.p.json(); after != before {
			t.Errorf("the refused variable %+v has changed the program: %s", c.v, after)
		}
	}
	p := New()
	for _, block := range []int{-1, 1, math.MaxInt} {
		text := fmt.Sprintf("block: expected 0 to 0, found %d", block)
		fails(t, p.AddVariable(block, &variable{Name: "x", Kind: desc.Tensor}), pyfeed.NotFound, "", text)
		fails(t, p.AddOp(block, &desc.Op{Type: "reset"}), pyfeed.NotFound, "", text)
		_, err := p.AddBlock(block)
		fails(t, err, pyfeed.NotFound, "", text)
		_, err = p.Variable(block, "x")
		fails(t, err, pyfeed.NotFound, "", text)
	}
	_, err := p.Variable(0, "x")
	fails(t, err, pyfeed.NotFound, "", `variable "x": there is none in block 0`)
}
