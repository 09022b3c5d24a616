package program

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
	"github.com/pyfeed/pyfeed/readers"
	"github.com/pyfeed/pyfeed/readers/record"
)

// ---- An interpreter for comparison ----

// A model is a tensor as a plain Go value. The numbers in these tests fit into a float64.
type model struct {
	dtype  string
	dims   []int64
	values []float64
}

func (x *model) String() string { return fmt.Sprint(x.dtype, " ", x.dims, " ", x.values) }

func modelOf(t *pyfeed.LoDTensor) *model {
	x := &model{dtype: t.DType.String(), dims: slices.Clone(t.Dims())}
	add := func(v float64) { x.values = append(x.values, v) }
	switch t.DType {
	case pyfeed.Bool, pyfeed.Uint8:
		for _, v := range t.Data {
			add(float64(v))
		}
	case pyfeed.Int64:
		for _, v := range elements[int64](t.Data) {
			add(float64(v))
		}
	case pyfeed.Float64:
		for _, v := range elements[float64](t.Data) {
			add(v)
		}
	default:
		panic(t.DType)
	}
	return x
}

func (x *model) tensor() pyfeed.LoDTensor {
	switch x.dtype {
	case "bool":
		return of(x.dims, converted(x.values, func(v float64) bool { return v != 0 })...)
	case "uint8":
		return of(x.dims, converted(x.values, func(v float64) uint8 { return uint8(v) })...)
	case "int64":
		return of(x.dims, converted(x.values, func(v float64) int64 { return int64(v) })...)
	}
	return of(x.dims, x.values...)
}

func converted[T any](values []float64, f func(float64) T) []T {
	all := []T{}
	for _, v := range values {
		all = append(all, f(v))
	}
	return all
}

// A source is a reader of the interpreter: the tuples of each pass.
type source struct {
	pass func(n int) [][]*model
	n    int
	left [][]*model
}

func (s *source) begin(n int) { s.n, s.left = n, s.pass(n) }

func (s *source) batched(size int, drop bool) func(int) [][]*model {
	return func(n int) (out [][]*model) {
		for part := range slices.Chunk(s.pass(n), size) {
			if len(part) < size && drop {
				continue
			}
			joined := make([]*model, len(part[0]))
			for i, first := range part[0] {
				j := &model{dtype: first.dtype, dims: slices.Clone(first.dims)}
				if i == 0 && len(first.dims) == 0 || i == 1 && len(first.dims) == 1 { // not a batch yet
					j.dims = append([]int64{1}, j.dims...)
				}
				j.dims[0] = 0
				for _, t := range part {
					j.values = append(j.values, t[i].values...)
					rows := int64(1)
					if len(t[i].dims) == len(j.dims) {
						rows = t[i].dims[0]
					}
					j.dims[0] += rows
				}
				joined[i] = j
			}
			out = append(out, joined)
		}
		return out
	}
}

// An interpreter executes a program's data by recursion. It uses no plans, frames or pools.
type interpreter struct {
	blocks      []*desc.Block
	values      map[*desc.Variable]*model
	readers     map[*desc.Variable]*source
	persistable map[string]*model // variables in the scope
	staged      [][]*model
}

type failure string // position of the failed operator

func (h *interpreter) find(block int, name string) *desc.Variable {
	for ; block >= 0; block = h.blocks[block].Parent {
		for _, v := range h.blocks[block].Variables {
			if v.Name == name {
				return v
			}
		}
	}
	panic(name)
}

func (h *interpreter) get(block int, name string) *model {
	v := h.find(block, name)
	if v.Persistable {
		return h.persistable[name]
	}
	return h.values[v]
}

func (h *interpreter) set(block int, name string, x *model) {
	v := h.find(block, name)
	if v.Persistable {
		h.persistable[name] = x
	} else {
		h.values[v] = x
	}
}

func attributeOf(op *desc.Op, name string) *desc.Value {
	for _, a := range op.Attributes {
		if a.Name == name {
			return &a.Value
		}
	}
	return nil
}

func (h *interpreter) run(block int) {
	for i, op := range h.blocks[block].Ops {
		fail := func() { panic(failure(fmt.Sprintf("block %d, op %d: %s", block, i, op.Type))) }
		in := func(i int) *model {
			x := h.get(block, op.Inputs[i])
			if x == nil {
				fail()
			}
			return x
		}
		reader := func() *source { return h.readers[h.find(block, op.Inputs[0])] }
		switch op.Type {
		case "while":
			for in(0).values[0] != 0 {
				h.run(int(attributeOf(op, "block").Int))
			}
		case "if_else":
			which := "false_block"
			if in(0).values[0] != 0 {
				which = "true_block"
			}
			if body := attributeOf(op, which); body != nil {
				h.run(int(body.Int))
			}
		case "fill_constant":
			x := &model{dtype: "float32", dims: []int64{}}
			n := int64(1)
			if dims := attributeOf(op, "dims"); dims != nil {
				for _, d := range dims.List {
					x.dims = append(x.dims, d.Int)
					n *= d.Int
				}
			}
			if dtype := attributeOf(op, "dtype"); dtype != nil {
				x.dtype = dtype.Text
			}
			v := 0.0
			if value := attributeOf(op, "value"); value != nil {
				v = float64(value.Int) + value.Float
			}
			x.values = slices.Repeat([]float64{v}, int(n))
			h.set(block, op.Outputs[0], x)
		case "less_than", "less_equal", "greater_than", "greater_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not":
			h.set(block, op.Outputs[0], pairwise(op.Type, in(0), in(len(op.Inputs)-1)))
		case "increment":
			by := 1.0
			if step := attributeOf(op, "step"); step != nil {
				by = float64(step.Int) + step.Float
			}
			x := in(0)
			sum := &model{x.dtype, x.dims, slices.Clone(x.values)}
			for i := range sum.values {
				sum.values[i] += by
				if v := sum.values[i]; x.dtype == "uint8" && (v < 0 || v > 255) {
					fail()
				}
			}
			h.set(block, op.Outputs[0], sum)
		case "assign":
			h.set(block, op.Outputs[0], in(0))
		case "call":
			var all []*model
			for i := range op.Inputs {
				all = append(all, in(i))
			}
			var salt int64
			if attributes := attributeOf(op, "attributes"); attributes != nil {
				for _, a := range attributes.Map {
					if a.Name == "salt" {
						salt = a.Value.Int
					}
				}
			}
			switch kernel := attributeOf(op, "kernel").Text; kernel {
			case "mix":
				for i, name := range op.Outputs {
					h.set(block, name, mixed(all, salt, i))
				}
			case "bump":
				h.set(block, op.Outputs[0], incremented(all[0]))
			case "pass":
				h.set(block, op.Outputs[0], all[0])
			}
		case "stage":
			var tuple []*model
			for i := range op.Inputs {
				tuple = append(tuple, in(i))
			}
			h.staged = append(h.staged, tuple)
		case "unstage":
			for i, x := range h.staged[0] {
				h.set(block, op.Outputs[i], x)
			}
			h.staged = h.staged[1:]
		case "has_next":
			h.set(block, op.Outputs[0], truth(len(reader().left) > 0))
		case "reset":
			reader().begin(reader().n + 1)
		case "read":
			s := reader()
			if len(s.left) == 0 {
				fail()
			}
			for i, x := range s.left[0] {
				h.set(block, op.Outputs[i], x)
			}
			s.left = s.left[1:]
		case "create_batch_reader":
			h.create(block, op, reader().batched(int(attributeOf(op, "batch_size").Int), attributeOf(op, "drop_last").Bool))
		case "create_multi_pass_reader":
			s, k := reader(), int(attributeOf(op, "pass_num").Int)
			h.create(block, op, func(n int) (all [][]*model) {
				for j := range k {
					all = append(all, s.pass(n*k+j)...)
				}
				return all
			})
		case "create_shard_reader":
			s, rank, world := reader(), int(attributeOf(op, "rank").Int), int(attributeOf(op, "world").Int)
			h.create(block, op, func(n int) (all [][]*model) {
				for i, t := range s.pass(n) {
					if i%world == rank {
						all = append(all, t)
					}
				}
				return all
			})
		case "create_double_buffer_reader":
			h.create(block, op, reader().pass)
		default:
			panic(op.Type)
		}
	}
}

func (h *interpreter) create(block int, op *desc.Op, pass func(int) [][]*model) {
	s := &source{pass: pass}
	s.begin(0)
	h.readers[h.find(block, op.Outputs[0])] = s
}

func truth(yes bool) *model {
	x := &model{"bool", []int64{}, []float64{0}}
	if yes {
		x.values[0] = 1
	}
	return x
}

func pairwise(op string, x, y *model) *model {
	n, dims := len(x.values), x.dims
	if len(x.values) == 1 && (len(y.values) != 1 || len(y.dims) > len(x.dims)) {
		n, dims = len(y.values), y.dims
	}
	out := &model{"bool", dims, nil}
	for i := range n {
		a, b := x.values[min(i, len(x.values)-1)], y.values[min(i, len(y.values)-1)]
		yes := map[string]bool{"less_than": a < b, "less_equal": a <= b, "greater_than": a > b, "greater_equal": a >= b, "equal": a == b,
			"not_equal": a != b, "logical_and": a*b != 0, "logical_or": a+b != 0, "logical_not": a == 0}[op]
		out.values = append(out.values, truth(yes).values[0])
	}
	return out
}

// mixed returns values that depend on everything a kernel was called with.
func mixed(ins []*model, salt int64, i int) *model {
	h := fnv.New64()
	for _, x := range ins {
		_, _ = fmt.Fprint(h, x, ";")
	}
	_, _ = fmt.Fprint(h, salt, i)
	sum := h.Sum64()
	return &model{"int64", []int64{2}, []float64{float64(sum % 1000), float64(sum >> 32 % 1000)}}
}

func incremented(x *model) *model {
	y := &model{x.dtype, x.dims, nil}
	for _, v := range x.values {
		y.values = append(y.values, math.Mod(v*31+7, 1000))
	}
	return y
}

// ---- Kernels and readers of the random programs ----

func setOutput(c *Call, i int, x *model) error {
	from := x.tensor()
	to, err := c.Output(i, from.DType, from.Dims(), nil)
	if err == nil {
		copy(to.Data, from.Data)
	}
	return err
}

// kernelsOfTests registers mix, bump, which writes in place, and pass, whose output is its input.
func kernelsOfTests(t testing.TB) {
	t.Helper()
	late := func(run func(c *Call, salt int64) error) func(context.Context, *Call) error {
		return func(ctx context.Context, c *Call) error {
			var a struct {
				Salt int64
				Late bool
			}
			if err := json.Unmarshal([]byte(c.Attributes), &a); err != nil {
				return err
			}
			if a.Late && ctx == wait.NonBlocking { // as if the kernel had to wait, and were woken at once
				return wait.ErrWouldBlock
			}
			return run(c, a.Salt)
		}
	}
	for name, run := range map[string]func(*Call, int64) error{
		"mix": func(c *Call, salt int64) error {
			var ins []*model
			for _, in := range c.Ins {
				ins = append(ins, modelOf(in))
			}
			for i := range c.Outs {
				if err := setOutput(c, i, mixed(ins, salt, i)); err != nil {
					return err
				}
			}
			return nil
		},
		"bump": func(c *Call, _ int64) error {
			x := modelOf(&c.Outs[0])
			if was := modelOf(c.Ins[0]); x.String() != was.String() {
				return fmt.Errorf("expected the output to begin as its input, %v, found %v", was, x)
			}
			return setOutput(c, 0, incremented(x))
		},
		"pass": func(c *Call, _ int64) error {
			var x pyfeed.LoDTensor
			out := &c.Outs[0]
			if err := c.ShareInput(0, &x); err != nil {
				return err
			}
			out.Drop() // an output that is also the input has a tensor already
			*out = x
			return nil
		},
	} {
		k := &Kernel{Name: name, Run: late(run)}
		if err := Register(k); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { Unregister(k) })
	}
}

// A fake is a reader of instances of two slots. With waits set, the first try of each read would block.
type fake struct {
	spec  *pyfeed.Spec
	pass  uint64
	at, n int
	waits bool
	pool  *memory.Pool
}

func newFake(n int, waits bool) *fake {
	spec, err := pyfeed.NewSpec([]pyfeed.Slot{{DType: pyfeed.Int64}, {DType: pyfeed.Float64, Dims: pyfeed.Dims{3}}})
	if err != nil {
		panic(err)
	}
	return &fake{spec: spec, n: n, waits: waits, pool: memory.NewPool(memory.File)}
}

func instance(pass, i int) []*model {
	id := float64(pass*100 + i)
	return []*model{{"int64", []int64{}, []float64{id}}, {"float64", []int64{3}, []float64{id, id / 2, -id}}}
}

func (f *fake) ReadNext(ctx context.Context) (*pyfeed.Tuple, error) {
	if f.waits && ctx == wait.NonBlocking {
		return nil, wait.ErrWouldBlock
	}
	if f.at == f.n {
		return nil, io.EOF
	}
	t := pyfeed.NewTuple(2)
	for i, x := range instance(int(f.pass), f.at) {
		from := x.tensor()
		if err := t.Slots[i].AllocateTensor(from.DType, from.Dims(), nil, f.pool); err != nil {
			t.Release()
			return nil, err
		}
		copy(t.Slots[i].Data, from.Data)
	}
	f.at++
	return t, nil
}

func (f *fake) ReadMany(ctx context.Context, l *record.Chunk, _ int) (int, error) {
	t, err := f.ReadNext(ctx)
	if err != nil {
		return 0, err
	}
	l.Add(t)
	return 1, nil
}

func (f *fake) HasNext(ctx context.Context) (bool, error) {
	if f.waits && ctx == wait.NonBlocking {
		return false, wait.ErrWouldBlock
	}
	return f.at < f.n, nil
}

func (f *fake) ReInit(pass uint64) error {
	f.pass, f.at = pass, 0
	return nil
}

func (f *fake) Spec() *pyfeed.Spec        { return f.spec }
func (f *fake) Describe(s *readers.Stats) { s.Reader = "fake" }
func (f *fake) Close()                    { f.pool.Close() }

// ---- Random programs ----

// A kind is the dtype and dims of variables of a random program. The operators are chosen by it.
type kind struct {
	dtype string
	dims  []int64
}

type named struct {
	name string
	kind
}

// A composer makes a random program.
type composer struct {
	*builder
	random *rand.Rand
	seen   []named // variables that the block sees and operators may write
	fixed  []named // variables that the block sees and operators may only read
	reader string
	resets bool // the body may reset the reader
	depth  int
	budget *int // number of operators that may still be added
}

func (c *composer) pick(n int) int    { return c.random.IntN(n) }
func (c *composer) chance(n int) bool { return c.random.IntN(n) == 0 }

// declare adds a variable of a kind, with or without dtype and dims. It may hide a variable of an outer block.
func (c *composer) declare(k kind) named {
	name := fmt.Sprintf("v%d", c.pick(40))
	for {
		if _, there := c.p.names[c.block][name]; !there {
			break
		}
		name += "x"
	}
	v := &desc.Variable{Name: name, Kind: desc.Tensor, Persistable: c.block == 0 && c.chance(3)}
	if c.chance(2) {
		v.DType, _ = pyfeed.DTypeOf(k.dtype)
	}
	if c.chance(2) {
		v.Shaped, v.Dims = true, slices.Clone(k.dims)
		if len(k.dims) > 0 && c.chance(2) {
			v.Dims[c.pick(len(k.dims))] = -1
		}
	}
	c.variable(v)
	hidden := func(n named) bool { return n.name == name }
	c.seen = append(slices.DeleteFunc(slices.Clone(c.seen), hidden), named{name, k})
	c.fixed = slices.DeleteFunc(slices.Clone(c.fixed), hidden)
	return named{name, k}
}

var kindsOfTests = []kind{
	{"bool", []int64{}}, {"bool", []int64{3}}, {"int64", []int64{}}, {"int64", []int64{2}}, {"uint8", []int64{}}, {"uint8", []int64{2, 2}},
	{"float64", []int64{}}, {"float64", []int64{3}},
}

// fresh adds a variable for the composer's own use.
func (c *composer) fresh(prefix string, k kind) named {
	v := named{fmt.Sprintf("%s_%d_%d", prefix, c.block, len(c.p.names[c.block])), k}
	c.tensor(v.name)
	return v
}

func (c *composer) fill(v named, value int) {
	dims := desc.Attribute{Name: "dims", Value: desc.Value{Kind: desc.ListValue}}
	for _, d := range v.dims {
		dims.Value.List = append(dims.Value.List, intValue(d))
	}
	number := intValue(int64(value))
	if v.dtype == "bool" {
		number = intValue(int64(value & 1))
	} else if v.dtype == "float64" && c.chance(2) {
		number = floatValue(float64(value) + 0.5)
	}
	attributes := desc.Attributes{dims, text("dtype", v.dtype), {Name: "value", Value: number}}
	if len(v.dims) == 0 && c.chance(2) {
		attributes = attributes[1:]
	}
	c.op("fill_constant", nil, names(v.name), attributes...)
}

// one returns a random variable that satisfies the condition, if there is one.
func (c *composer) one(all []named, is func(named) bool) (named, bool) {
	var some []named
	for _, v := range all {
		if is(v) {
			some = append(some, v)
		}
	}
	if len(some) == 0 {
		return named{}, false
	}
	return some[c.pick(len(some))], true
}

func (k kind) same(o kind) bool { return k.dtype == o.dtype && slices.Equal(k.dims, o.dims) }

func anything(named) bool { return true }

// inner makes a body of random operators between given first and last ones.
func (c *composer) inner(first, last func(*composer)) int {
	return c.body(func(b *builder) {
		in := *c
		in.builder, in.depth = b, c.depth+1
		for range c.pick(3) {
			if v := in.declare(kindsOfTests[c.pick(len(kindsOfTests))]); !c.chance(6) {
				in.fill(v, c.pick(8))
			}
		}
		first(&in)
		for range 1 + c.pick(5) {
			in.add()
		}
		last(&in)
	})
}

func nothing(*composer) {}

// add adds a random operator, if there are suitable variables for it.
func (c *composer) add() {
	if *c.budget--; *c.budget < 0 {
		return
	}
	readable := slices.Concat(c.seen, c.fixed)
	switch n := c.pick(22); {
	case n < 3:
		if v, ok := c.one(c.seen, anything); ok {
			c.fill(v, c.pick(8))
		}
	case n < 7:
		op := comparisons[c.pick(len(comparisons))].op
		x, _ := c.one(readable, anything)
		y, _ := c.one(readable, func(v named) bool {
			return v.dtype == x.dtype && (len(v.dims) == 0 || len(x.dims) == 0 || v.same(x.kind))
		})
		if x.dtype == "bool" && c.chance(2) {
			op = names("logical_and", "logical_or", "logical_not")[c.pick(3)]
		}
		ins := names(x.name, y.name)
		if op == "logical_not" {
			ins, y = ins[:1], x
		}
		dims := x.dims
		if len(dims) == 0 {
			dims = y.dims
		}
		if out, ok := c.one(c.seen, func(v named) bool { return v.same(kind{"bool", dims}) }); ok {
			c.op(op, ins, names(out.name))
		}
	case n < 9:
		x, ok := c.one(readable, func(v named) bool { return v.dtype != "bool" })
		out, found := c.one(c.seen, func(v named) bool { return v.same(x.kind) })
		if ok && found {
			if slices.ContainsFunc(c.seen, func(v named) bool { return v.name == x.name }) && c.chance(2) {
				out = x
			}
			by := intValue(int64(c.pick(9) - 3))
			if x.dtype == "float64" {
				by = floatValue(float64(c.pick(9)) / 4)
			}
			c.op("increment", names(x.name), names(out.name), step(by))
		}
	case n < 11:
		if x, ok := c.one(readable, anything); ok {
			if out, ok := c.one(c.seen, func(v named) bool { return v.same(x.kind) }); ok {
				if c.chance(2) {
					c.call("pass", names(x.name), names(out.name))
				} else {
					c.op("assign", names(x.name), names(out.name))
				}
			}
		}
	case n < 14:
		c.mix(readable)
	case n < 15:
		if x, ok := c.one(c.seen, func(v named) bool { return v.dtype == "int64" }); ok {
			c.call("bump", names(x.name), names(x.name))
		}
	case n < 16 && c.depth < 3:
		c.loop()
	case n < 18 && c.depth < 3:
		c.branch(readable)
	case n < 19:
		c.stage()
	case c.reader != "":
		c.read()
	}
}

func (c *composer) call(kernel string, ins, outs []string) {
	attributes := desc.Attribute{Name: "attributes", Value: desc.Value{Kind: desc.MapValue}}
	if c.chance(3) {
		attributes.Value.Map = append(attributes.Value.Map, desc.Attribute{Name: "late", Value: boolValue(true)})
	}
	attributes.Value.Map = append(attributes.Value.Map, integer("salt", int64(c.pick(5))))
	c.op("call", ins, outs, attributes, text("kernel", kernel))
}

func (c *composer) mix(readable []named) {
	var ins, outs []string
	for range c.pick(4) {
		x, _ := c.one(readable, anything)
		ins = append(ins, x.name)
	}
	for range c.pick(3) {
		out, ok := c.one(c.seen, func(v named) bool { return v.same(kind{"int64", []int64{2}}) && !slices.Contains(outs, v.name) })
		if ok {
			outs = append(outs, out.name)
		}
	}
	c.call("mix", ins, outs)
}

// loop adds a loop that counts to a small number, or reads to the end of the data.
func (c *composer) loop() {
	more := c.fresh("more", kind{"bool", []int64{}})
	if c.reader != "" && c.chance(2) {
		next := func(in *composer) { in.op("has_next", names(c.reader), names(more.name)) }
		next(c)
		read := func(in *composer) {
			in.resets = false
			in.next()
		}
		c.op("while", names(more.name), nil, integer("block", int64(c.inner(read, next))))
		return
	}
	i, n := c.fresh("i", kind{"int64", []int64{}}), c.fresh("n", kind{"int64", []int64{}})
	c.fill(i, 0)
	c.fill(n, c.pick(4))
	c.fixed = append(slices.Clone(c.fixed), i, n)
	test := func(in *composer) { in.op("less_than", names(i.name, n.name), names(more.name)) }
	test(c)
	body := c.inner(nothing, func(in *composer) {
		in.op("increment", names(i.name), names(i.name))
		test(in)
	})
	c.op("while", names(more.name), nil, integer("block", int64(body)))
}

func (c *composer) branch(readable []named) {
	cond, ok := c.one(readable, func(v named) bool { return v.same(kind{"bool", []int64{}}) })
	if !ok {
		return
	}
	var bodies []desc.Attribute
	which := 1 + c.pick(3)
	for i, name := range names("false_block", "true_block") {
		if which>>i&1 == 1 {
			bodies = append(bodies, integer(name, int64(c.inner(nothing, nothing))))
		}
	}
	c.op("if_else", names(cond.name), nil, bodies...)
}

// stage puts an initialized variable into the staging buffer and takes it out again.
func (c *composer) stage() {
	x, ok := c.one(c.fixed, anything)
	out, found := c.one(c.seen, func(v named) bool { return v.same(x.kind) })
	if ok && found {
		s := fmt.Sprintf("stage_%d_%d", c.block, len(c.p.names[c.block]))
		c.variable(&desc.Variable{Name: s, Kind: desc.Stage})
		c.op("stage", names(x.name), names(s))
		c.op("unstage", names(s), names(out.name))
	}
}

func (c *composer) next() { c.op("read", names(c.reader), names("id", "row")) }

func (c *composer) read() {
	switch c.pick(4) {
	case 0:
		if c.resets {
			c.op("reset", names(c.reader), nil)
		}
	case 1:
		if out, ok := c.one(c.seen, func(v named) bool { return v.same(kind{"bool", []int64{}}) }); ok {
			c.op("has_next", names(c.reader), names(out.name))
		}
	case 2:
		if out, ok := c.one(c.seen, func(v named) bool { return v.same(kind{"int64", []int64{2}}) }); ok {
			c.call("mix", names("row", "id"), names(out.name))
		}
	case 3:
		more := c.fresh("left", kind{"bool", []int64{}})
		c.op("has_next", names(c.reader), names(more.name))
		if c.chance(20) { // possibly past the end
			c.next()
			return
		}
		body := c.body(func(b *builder) {
			in := *c
			in.builder = b
			in.next()
		})
		c.op("if_else", names(more.name), nil, integer("true_block", int64(body)))
	}
}

// decorate adds readers on top of the reader in the scope.
func (c *composer) decorate() {
	c.variable(&desc.Variable{Name: "base", Kind: desc.Reader, Persistable: true})
	c.reader = "base"
	for i, n := 0, c.pick(3); i < n; i++ {
		name := c.persistable(fmt.Sprintf("reader%d", i), desc.Reader)
		ins, outs := names(c.reader), names(name)
		switch k := c.pick(4); {
		case k == 0:
			drop := desc.Attribute{Name: "drop_last", Value: boolValue(c.chance(2))}
			c.op("create_batch_reader", ins, outs, integer("batch_size", int64(1+c.pick(4))), drop)
		case k == 1 && i == 0: // not on a reader that may be empty
			c.op("create_multi_pass_reader", ins, outs, integer("pass_num", int64(1+c.pick(3))))
		case k == 2:
			world := 1 + c.pick(3)
			c.op("create_shard_reader", ins, outs, integer("rank", int64(c.pick(world))), integer("world", int64(world)))
		default:
			c.op("create_double_buffer_reader", ins, outs)
		}
		c.reader = name
	}
	c.tensor("id")
	c.tensor("row")
}

// compose makes a random program.
func compose(t *testing.T, random *rand.Rand, budget int) *composer {
	c := &composer{builder: build(t), random: random, resets: true, budget: &budget}
	for _, k := range kindsOfTests {
		c.declare(k)
	}
	for range c.pick(5) {
		c.declare(kindsOfTests[c.pick(len(kindsOfTests))])
	}
	if c.chance(2) {
		c.decorate()
	}
	for _, v := range c.seen {
		if !c.chance(20) {
			c.fill(v, c.pick(8))
		}
	}
	for range 2 + c.pick(12) {
		c.add()
	}
	return c
}

// ---- The comparison ----

// outcome is the position where a program failed, or the final contents of its variables.
type outcome struct {
	failed string
	values map[string]string
}

// expected runs a program with the interpreter and the given contents of the scope, and records the contents
// afterwards.
func expected(d *desc.Program, instances int, kept map[string]*model) (o outcome) {
	base := &source{pass: func(n int) (all [][]*model) {
		for i := range instances {
			all = append(all, instance(n, i))
		}
		return all
	}}
	base.begin(0)
	h := &interpreter{blocks: d.Blocks, values: map[*desc.Variable]*model{}, readers: map[*desc.Variable]*source{}, persistable: kept}
	for _, v := range d.Blocks[0].Variables {
		if v.Name == "base" {
			h.readers[v] = base
		}
	}
	o.values = map[string]string{}
	defer func() {
		if f, is := recover().(failure); is {
			o.failed = string(f)
		}
		for _, v := range d.Blocks[0].Variables {
			if x := h.get(0, v.Name); v.Kind == desc.Tensor && x != nil && (o.failed == "" || v.Persistable) {
				o.values[v.Name] = x.String()
			}
		}
	}()
	h.run(0)
	return o
}

// ran runs a program with the Executor and compares the outcome.
func ran(e *Executor, p *Program, scope *pyfeed.Scope, f *fake, want outcome) error {
	base, err := scope.Var("base")
	if err != nil {
		return err
	}
	base.Set(readers.NewHolder(f))
	var fetches []string
	for name := range want.values {
		if want.failed == "" {
			fetches = append(fetches, name)
		}
	}
	out, err := e.Run(background, p, scope, nil, nil, fetches)
	place := ""
	if err != nil {
		at, is := err.(*OpError)
		if !is {
			return err
		}
		place = at.Place()
	} else {
		defer out.Release()
	}
	if place != want.failed {
		return fmt.Errorf("expected the error at %q, found %v", want.failed, err)
	}
	for i, name := range fetches {
		if got := modelOf(&out.Slots[i]).String(); got != want.values[name] {
			return fmt.Errorf("%s: expected %s, found %s", name, want.values[name], got)
		}
	}
	if want.failed == "" {
		return nil
	}
	for name, value := range want.values {
		v, err := scope.FindVar(name)
		if err != nil {
			return err
		}
		if err := v.ReadTensor(func(x *pyfeed.LoDTensor) error {
			if got := modelOf(x).String(); got != value {
				return fmt.Errorf("%s: expected %s, found %s", name, value, got)
			}
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// Random programs give the same results with the Executor and with the interpreter, also after they were saved and
// loaded in both forms, and cloned.
func TestProgramsDoAsByHand(t *testing.T) {
	programs := uint64(2000)
	if testing.Short() {
		programs = 120
	}
	kernelsOfTests(t)
	e := executor(t)
	ops, failed, read := 0, 0, 0
	for seed := range programs {
		random := rand.New(rand.NewPCG(seed, 7))
		c := compose(t, random, 60)
		if t.Failed() {
			t.Fatalf("program %d", seed)
		}
		ops += c.p.ops
		all := variants(t, c.p)
		instances, waits := 1+random.IntN(6), random.IntN(2) == 0
		for name, p := range all {
			scope, kept := pyfeed.NewScope(nil), map[string]*model{}
			for range 2 { // the second run finds the scope of the first
				var want outcome
				p.Desc(func(d *desc.Program) { want = expected(d, instances, kept) })
				if err := ran(e, p, scope, newFake(instances, waits), want); err != nil {
					t.Fatalf("program %d, %s: %v\n%s", seed, name, err, p.json())
				}
				if want.failed != "" {
					failed++
				}
			}
			scope.Drop()
		}
		if c.reader != "" {
			read++
		}
	}
	t.Logf("%d programs of %d operators, %d with a reader; %d runs failed as expected", programs, ops, read, failed)
	if uint64(failed) > programs*4 || failed == 0 || ops < 10*int(programs) {
		t.Error("the random programs no longer cover enough")
	}
}

// variants returns a program and its copies: cloned, and saved and loaded in both forms.
func variants(t *testing.T, p *Program) map[string]*Program {
	t.Helper()
	all := map[string]*Program{"as built": p, "cloned": p.Clone()}
	var binary, text []byte
	p.Desc(func(d *desc.Program) { binary, text = desc.Marshal(d), desc.ToJSON(d) })
	for name, data := range map[string][]byte{"from protobuf": binary, "from JSON": text} {
		d, err := desc.Parse(data)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		made, err := From(d)
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		all[name] = made
	}
	for name, made := range all {
		if got := made.json(); got != string(text) {
			t.Fatalf("%s: expected\n%s\nfound\n%s", name, text, got)
		}
		if made.ops != p.ops || !slices.Equal(made.depth, p.depth) || !slices.Equal(made.body, p.body) || len(made.users) != len(p.users) {
			t.Fatalf("%s: the program has changed:\n%s", name, strings.TrimSpace(string(text)))
		}
	}
	return all
}
