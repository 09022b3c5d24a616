package program

import (
	"cmp"
	"context"
	"encoding/binary"
	"math"
	"slices"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/trace"
)

// Operators for counting and comparing in loops. They are meant for scalars and small tensors; kernels do heavy
// computation.

// A number is the value of one element of any dtype.
type number struct {
	kind numberKind
	u    uint64
	i    int64
	f, g float64 // g: the imaginary part
}

type numberKind uint8

const (
	unsigned numberKind = iota // includes bool
	signed
	floating
	complexed
)

func kindOf(d pyfeed.DType) numberKind {
	switch d {
	case pyfeed.Int8, pyfeed.Int16, pyfeed.Int32, pyfeed.Int64:
		return signed
	case pyfeed.Float16, pyfeed.BFloat16, pyfeed.Float32, pyfeed.Float64:
		return floating
	case pyfeed.Complex64, pyfeed.Complex128:
		return complexed
	}
	return unsigned
}

var order = binary.NativeEndian

func load(d pyfeed.DType, b []byte) number {
	n := number{kind: kindOf(d)}
	switch d {
	case pyfeed.Bool, pyfeed.Uint8:
		n.u = uint64(b[0])
	case pyfeed.Uint16:
		n.u = uint64(order.Uint16(b))
	case pyfeed.Uint32:
		n.u = uint64(order.Uint32(b))
	case pyfeed.Uint64:
		n.u = order.Uint64(b)
	case pyfeed.Int8:
		n.i = int64(int8(b[0]))
	case pyfeed.Int16:
		n.i = int64(int16(order.Uint16(b)))
	case pyfeed.Int32:
		n.i = int64(int32(order.Uint32(b)))
	case pyfeed.Int64:
		n.i = int64(order.Uint64(b))
	case pyfeed.Float16:
		n.f = fromHalf(order.Uint16(b))
	case pyfeed.BFloat16:
		n.f = float64(math.Float32frombits(uint32(order.Uint16(b)) << 16))
	case pyfeed.Float32:
		n.f = float64(math.Float32frombits(order.Uint32(b)))
	case pyfeed.Float64:
		n.f = math.Float64frombits(order.Uint64(b))
	case pyfeed.Complex64:
		n.f, n.g = float64(math.Float32frombits(order.Uint32(b))), float64(math.Float32frombits(order.Uint32(b[4:])))
	case pyfeed.Complex128:
		n.f, n.g = math.Float64frombits(order.Uint64(b)), math.Float64frombits(order.Uint64(b[8:]))
	}
	return n
}

func store(d pyfeed.DType, b []byte, n number) {
	switch d {
	case pyfeed.Bool, pyfeed.Uint8:
		b[0] = byte(n.u)
	case pyfeed.Uint16:
		order.PutUint16(b, uint16(n.u))
	case pyfeed.Uint32:
		order.PutUint32(b, uint32(n.u))
	case pyfeed.Uint64:
		order.PutUint64(b, n.u)
	case pyfeed.Int8:
		b[0] = byte(n.i)
	case pyfeed.Int16:
		order.PutUint16(b, uint16(n.i))
	case pyfeed.Int32:
		order.PutUint32(b, uint32(n.i))
	case pyfeed.Int64:
		order.PutUint64(b, uint64(n.i))
	case pyfeed.Float16:
		order.PutUint16(b, toHalf(n.f))
	case pyfeed.BFloat16:
		order.PutUint16(b, toBFloat16(n.f))
	case pyfeed.Float32:
		order.PutUint32(b, math.Float32bits(float32(n.f)))
	case pyfeed.Float64:
		order.PutUint64(b, math.Float64bits(n.f))
	case pyfeed.Complex64:
		order.PutUint32(b, math.Float32bits(float32(n.f)))
		order.PutUint32(b[4:], math.Float32bits(float32(n.g)))
	case pyfeed.Complex128:
		order.PutUint64(b, math.Float64bits(n.f))
		order.PutUint64(b[8:], math.Float64bits(n.g))
	}
}

// fromHalf converts an IEEE 754 binary16 number.
func fromHalf(h uint16) float64 {
	sign, exponent, fraction := h>>15, int(h>>10&31), float64(h&1023)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 31:
		f = math.Inf(1)
		if fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+fraction, exponent-25)
	}
	if sign != 0 {
		f = -f
	}
	return f
}

// toHalf rounds to the nearest binary16 number, ties to even.
func toHalf(f float64) uint16 {
	var sign uint16
	if math.Signbit(f) {
		sign, f = 1<<15, -f
	}
	switch {
	case math.IsNaN(f):
		return sign | 0x7e00
	case f >= 65520:
		return sign | 0x7c00
	case f < 0x1p-14: // subnormal; rounding up to the first normal number carries into the exponent
		return sign | uint16(math.RoundToEven(math.Ldexp(f, 24)))
	}
	fraction, exponent := math.Frexp(f)                            // fraction in [0.5, 1)
	m := uint16(math.RoundToEven(math.Ldexp(fraction, 11))) - 1024 // in [0, 1024]: a carry raises the exponent
	return sign | (uint16(exponent+14)<<10 + m)
}

// toBFloat16 rounds to the nearest bfloat16 number, ties to even.
func toBFloat16(f float64) uint16 {
	short := float32(f)
	bits := math.Float32bits(short)
	if f != f {
		return uint16(bits>>16) | 64
	}
	if bits&0xffff == 0x8000 { // a tie, possibly only because of the rounding to float32
		switch exact, rounded := math.Abs(f), math.Abs(float64(short)); {
		case exact < rounded:
			bits--
		case exact > rounded:
			bits++
		}
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}

// numberOf converts an attribute's Value to an element of a dtype. It fails if the dtype cannot represent the Value.
func numberOf(d pyfeed.DType, v desc.Value) (number, error) {
	n := number{kind: kindOf(d)}
	bits := uint(d.Size() * 8)
	bad := func() (number, error) {
		return n, pyfeed.Errorf(pyfeed.Type, "value: expected one of %v, found %s", d, v)
	}
	switch {
	case v.Kind == desc.BoolValue:
		v.Int = 0
		if v.Bool {
			v.Int = 1
		}
		v.Float = float64(v.Int)
	case v.Kind == desc.IntValue:
		v.Float = float64(v.Int)
	case v.Kind == desc.FloatValue:
		v.Int = int64(v.Float)
		if n.kind <= signed && (float64(v.Int) != v.Float || math.Abs(v.Float) >= 0x1p63) {
			return bad()
		}
	default:
		return bad()
	}
	switch n.kind {
	case signed:
		n.i = v.Int
		if shift := 64 - bits; v.Int<<shift>>shift != v.Int {
			return bad()
		}
	case unsigned:
		n.u = uint64(v.Int)
		if v.Int < 0 || d == pyfeed.Bool && v.Int > 1 || bits < 64 && n.u>>bits != 0 {
			return bad()
		}
	default:
		n.f = v.Float
		var b [16]byte
		if store(d, b[:], n); math.IsInf(load(d, b[:]).f, 0) && !math.IsInf(n.f, 0) {
			return bad()
		}
	}
	return n, nil
}

// compare returns -1, 0 or 1, or 2 if a and b have no order.
func compare(a, b number) int {
	less, equal := false, false
	switch a.kind {
	case unsigned:
		less, equal = a.u < b.u, a.u == b.u
	case signed:
		less, equal = a.i < b.i, a.i == b.i
	case floating:
		less, equal = a.f < b.f, a.f == b.f
		if a.f != a.f || b.f != b.f {
			return 2
		}
	case complexed:
		if equal = a.f == b.f && a.g == b.g; !equal {
			return 2
		}
	}
	switch {
	case less:
		return -1
	case equal:
		return 0
	}
	return 1
}

// comparing makes an operator whose result is test of the result of compare. An ordered operator does not accept
// complex numbers.
func comparing(ordered bool, test func(int) bool) *operator {
	return &operator{
		ins:      exactly(2),
		outs:     exactly(1),
		category: trace.Compute,
		check: func(c *checking) error {
			x, y := c.in[0], c.in[1]
			if x.DType != pyfeed.Any && y.DType != pyfeed.Any {
				if err := mayCompare(x.DType, y.DType, ordered); err != nil {
					return err
				}
			}
			return c.noteElementwise(pyfeed.Bool)
		},
		step: func(r *Run, in *instruction, _ context.Context) error {
			return r.elementwise(in, func(x, y pyfeed.DType) error { return mayCompare(x, y, ordered) },
				func(d pyfeed.DType, x, y []byte) bool { return test(compare(load(d, x), load(d, y))) })
		},
	}
}

func mayCompare(x, y pyfeed.DType, ordered bool) error {
	if x != y {
		return pyfeed.Errorf(pyfeed.Type, "expected inputs of one dtype, found %v and %v", x, y)
	}
	if ordered && kindOf(x) == complexed {
		return pyfeed.Errorf(pyfeed.Type, "expected numbers that have an order, found %v", x)
	}
	return nil
}

// logical makes an operator on booleans.
func logical(inputs int, f func(x, y bool) bool) *operator {
	check := func(x, y pyfeed.DType) error {
		for _, d := range [2]pyfeed.DType{x, y} {
			if d != pyfeed.Bool {
				return pyfeed.Errorf(pyfeed.Type, "expected inputs of bool, found %v", d)
			}
		}
		return nil
	}
	return &operator{
		ins:      exactly(inputs),
		outs:     exactly(1),
		category: trace.Compute,
		check: func(c *checking) error {
			for _, v := range c.in {
				if v.DType != pyfeed.Any {
					if err := check(v.DType, v.DType); err != nil {
						return err
					}
				}
			}
			return c.noteElementwise(pyfeed.Bool)
		},
		step: func(r *Run, in *instruction, _ context.Context) error {
			return r.elementwise(in, check, func(_ pyfeed.DType, x, y []byte) bool { return f(x[0] != 0, y[0] != 0) })
		},
	}
}

// noteElementwise records what is known of the output of an elementwise operator with one or two inputs.
func (c *checking) noteElementwise(dtype pyfeed.DType) error {
	x, y := c.in[0], c.in[len(c.in)-1]
	if !x.Shaped || !y.Shaped {
		return c.note(0, dtype, nil, false, 0)
	}
	single := func(v *desc.Variable) bool { return !slices.ContainsFunc(v.Dims, func(d int64) bool { return d != 1 }) }
	// If both inputs turn out to have a single element, the output has the dims of the input with more dimensions.
	open := func(v, other *desc.Variable) bool {
		return slices.Contains(v.Dims, -1) && single(other) && len(other.Dims) > len(v.Dims)
	}
	dims := x.Dims
	switch {
	case open(x, y) || open(y, x):
		return c.note(0, dtype, nil, false, 0)
	case single(x):
		dims = y.Dims
		if single(y) && len(x.Dims) > len(y.Dims) {
			dims = x.Dims
		}
	case single(y):
	case slices.Contains(x.Dims, -1) || slices.Contains(y.Dims, -1):
		return c.note(0, dtype, nil, false, 0) // one of them may have a single element
	case !slices.Equal(x.Dims, y.Dims):
		return pyfeed.Errorf(pyfeed.Shape, "expected inputs of the same dims, or one with a single element, found %s and %s", dimsText(x.Dims), dimsText(y.Dims))
	}
	return c.note(0, dtype, dims, true, 0)
}

// elementwise writes f of each pair of elements to the output. With one input, that input is used twice.
func (r *Run) elementwise(in *instruction, check func(x, y pyfeed.DType) error, f func(d pyfeed.DType, x, y []byte) bool) error {
	if done, err := r.single(in, check, f); done {
		return err
	}
	x, y := &r.operands[0], &r.operands[1]
	defer x.Drop()
	defer y.Drop()
	if err := r.vars[in.in[0]].ShareTensor(x); err != nil {
		return err
	}
	if err := r.vars[in.in[len(in.in)-1]].ShareTensor(y); err != nil {
		return err
	}
	if err := cmp.Or(x.OnHost(), y.OnHost(), check(x.DType, y.DType)); err != nil {
		return err
	}
	d, size := x.DType, x.DType.Size()
	n, dims, stepX, stepY := len(x.Data)/size, x.Dims(), size, size
	switch m := len(y.Data) / size; {
	case slices.Equal(dims, y.Dims()):
	case n == 1 && (m != 1 || len(y.Dims()) > len(dims)):
		n, dims, stepX = m, y.Dims(), 0
	case m == 1:
		stepY = 0
	default:
		return pyfeed.Errorf(pyfeed.Shape, "expected inputs of the same dims, or one with a single element, found %s and %s", dimsText(dims), dimsText(y.Dims()))
	}
	if err := checkConforms(pyfeed.Bool, dims, 0, in.outs[0], "output", 0); err != nil {
		return err
	}
	return r.vars[in.out[0]].Write(pyfeed.Bool, dims, r.pool, func(out []byte) {
		for i := range n {
			out[i] = 0
			if f(d, x.Data[i*stepX:], y.Data[i*stepY:]) {
				out[i] = 1
			}
		}
	})
}

var ones = pyfeed.Dims{1, 1, 1, 1, 1, 1, 1, 1}

// single is elementwise for two inputs of one element, as in loop conditions. It avoids sharing the tensors. It does
// nothing and returns false if an input has another number of elements.
func (r *Run) single(in *instruction, check func(x, y pyfeed.DType) error, f func(d pyfeed.DType, x, y []byte) bool) (done bool, err error) {
	x, rank := r.vars[in.in[0]].Scalar(&r.element[0])
	y, other := r.vars[in.in[len(in.in)-1]].Scalar(&r.element[1])
	if x == pyfeed.Any || y == pyfeed.Any {
		return false, nil
	}
	if err := check(x, y); err != nil {
		return true, err
	}
	yes := byte(0)
	if f(x, r.element[0][:], r.element[1][:]) {
		yes = 1
	}
	dims := ones[:max(rank, other)]
	if err := checkConforms(pyfeed.Bool, dims, 0, in.outs[0], "output", 0); err != nil {
		return true, err
	}
	return true, r.vars[in.out[0]].Write(pyfeed.Bool, dims, r.pool, func(out []byte) { out[0] = yes })
}

var incrementOp = &operator{
	ins:        exactly(1),
	outs:       exactly(1),
	attributes: []attribute{{name: "step", value: intValue(1), open: true}},
	category:   trace.Compute,
	check: func(c *checking) error {
		x := c.in[0]
		if x.DType != pyfeed.Any {
			if _, err := stepOf(x.DType, valueOf(c.op, "step")); err != nil {
				return err
			}
		}
		return c.note(0, x.DType, x.Dims, x.Shaped, 0)
	},
	prepare: func(op *desc.Op) (any, error) { return valueOf(op, "step"), nil },
	step:    stepIncrement,
}

func stepIncrement(r *Run, in *instruction, _ context.Context) error {
	by, from, to := in.data.(desc.Value), r.vars[in.in[0]], r.vars[in.out[0]]
	if from == to {
		return from.Modify(r.pool, func(t *pyfeed.LoDTensor) error {
			step, err := mayIncrease(t.DType, t.Data, by)
			if err == nil {
				err = conforms(t, in.outs[0], "output", 0)
			}
			if err == nil {
				increase(t.DType, t.Data, t.Data, step)
			}
			return err
		})
	}
	x := &r.operands[0]
	defer x.Drop()
	if err := from.ShareTensor(x); err != nil {
		return err
	}
	if err := x.OnHost(); err != nil {
		return err
	}
	step, err := mayIncrease(x.DType, x.Data, by)
	if err == nil {
		err = checkConforms(x.DType, x.Dims(), 0, in.outs[0], "output", 0)
	}
	if err != nil {
		return err
	}
	return to.Write(x.DType, x.Dims(), r.pool, func(out []byte) { increase(x.DType, x.Data, out, step) })
}

// mayIncrease returns the number to add, or an error if any sum is out of the range of d. On an error nothing has been
// changed.
func mayIncrease(d pyfeed.DType, data []byte, by desc.Value) (number, error) {
	step, err := stepOf(d, by)
	if err != nil {
		return step, err
	}
	for size := d.Size(); len(data) > 0; data = data[size:] {
		if _, ok := add(d, load(d, data), step); !ok {
			return step, pyfeed.Errorf(pyfeed.Invalid, "the sum is out of the range of %v", d)
		}
	}
	return step, nil
}

func increase(d pyfeed.DType, from, to []byte, step number) {
	size := d.Size()
	for at := 0; at < len(from); at += size {
		n, _ := add(d, load(d, from[at:]), step)
		store(d, to[at:], n)
	}
}

// stepOf returns the number that increment adds. It may be negative for unsigned dtypes too.
func stepOf(d pyfeed.DType, v desc.Value) (number, error) {
	if d == pyfeed.Bool {
		return number{}, pyfeed.Errorf(pyfeed.Type, "expected a number, found bool")
	}
	if kindOf(d) == unsigned {
		n, err := numberOf(pyfeed.Int64, v)
		return n, err
	}
	return numberOf(d, v)
}

// add returns the sum, and whether it is in the range of d.
func add(d pyfeed.DType, n, step number) (number, bool) {
	bits := uint(d.Size() * 8)
	switch n.kind {
	case signed:
		sum := n.i + step.i
		ok := (sum > n.i) == (step.i > 0)
		n.i = sum
		shift := 64 - bits
		return n, ok && sum<<shift>>shift == sum
	case unsigned:
		sum := n.u + uint64(step.i)
		ok := (sum >= n.u) == (step.i >= 0)
		n.u = sum
		return n, ok && (bits == 64 || sum>>bits == 0)
	}
	n.f += step.f
	return n, true
}

var assignOp = &operator{
	ins:      exactly(1),
	outs:     exactly(1),
	category: trace.Compute,
	check: func(c *checking) error {
		x := c.in[0]
		return c.note(0, x.DType, x.Dims, x.Shaped, x.LoDLevels)
	},
	step: func(r *Run, in *instruction, _ context.Context) error {
		x := &r.operands[0]
		defer x.Drop()
		if err := r.vars[in.in[0]].ShareTensor(x); err != nil {
			return err
		}
		if err := conforms(x, in.outs[0], "output", 0); err != nil {
			return err
		}
		return r.vars[in.out[0]].SetTensor(x)
	},
}

// maxConstant limits the bytes that fill_constant allocates, because a program may come from an untrusted source.
const maxConstant = 1 << 30

// A constant is the value that fill_constant writes.
type constant struct {
	dtype   pyfeed.DType
	dims    pyfeed.Dims
	element []byte
}

func constantOf(op *desc.Op) (*constant, error) {
	dims, err := dimsOf(op, "dims")
	if err != nil {
		return nil, err
	}
	name := valueOf(op, "dtype").Text
	dtype, known := pyfeed.DTypeOf(name)
	if !known || dtype == pyfeed.Any {
		return nil, pyfeed.Errorf(pyfeed.Type, "attribute %q: expected the name of a dtype, found %q", "dtype", name)
	}
	n, err := numberOf(dtype, valueOf(op, "value"))
	if err != nil {
		return nil, err
	}
	var t pyfeed.LoDTensor
	t.DType = dtype
	_ = t.SetDims(dims) // dimsOf has limited their number
	size, err := t.Measure()
	if err != nil {
		return nil, pyfeed.Errorf(pyfeed.Shape, "%v", err)
	}
	if size > maxConstant {
		return nil, pyfeed.Errorf(pyfeed.TooLarge, "expected at most %d bytes, found dims %s of %v", maxConstant, dimsText(dims), dtype)
	}
	c := &constant{dtype, dims, make([]byte, dtype.Size())}
	store(dtype, c.element, n)
	return c, nil
}

var fillConstantOp = &operator{
	outs: exactly(1),
	attributes: []attribute{
		{name: "dims", value: desc.Value{Kind: desc.ListValue}},
		{name: "dtype", value: textValue("float32")},
		{name: "value", value: intValue(0), open: true},
	},
	category: trace.Compute,
	check: func(c *checking) error {
		k, err := constantOf(c.op)
		if err != nil {
			return err
		}
		return c.note(0, k.dtype, k.dims, true, 0)
	},
	prepare: func(op *desc.Op) (any, error) { return constantOf(op) },
	step: func(r *Run, in *instruction, _ context.Context) error {
		k := in.data.(*constant)
		return r.vars[in.out[0]].Write(k.dtype, k.dims, r.pool, func(out []byte) {
			n := copy(out, k.element)
			for n < len(out) { // doubles the filled part each time
				n += copy(out[n:], out[:n])
			}
		})
	},
}
