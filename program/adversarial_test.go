package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
	"github.com/pyfeed/pyfeed/pyfeed/staging"
	"github.com/pyfeed/pyfeed/pyfeed/wait"
)

func block(parent int, names string, ops ...*desc.Op) *desc.Block {
	b := &desc.Block{Parent: parent, Ops: ops}
	for _, name := range strings.Fields(names) {
		b.Variables = append(b.Variables, &desc.Variable{Name: name, Kind: desc.Tensor})
	}
	return b
}

func op(kind, ins, outs string, attributes ...desc.Attribute) *desc.Op {
	return &desc.Op{Type: kind, Inputs: strings.Fields(ins), Outputs: strings.Fields(outs), Attributes: attributes}
}

func loop(cond string, body int64) *desc.Op { return op("while", cond, "", integer("block", body)) }

func TestFromRefusesInvalidPrograms(t *testing.T) {
	type blocks = []*desc.Block
	for name, c := range map[string]struct {
		version uint32
		blocks  blocks
		kind    pyfeed.Kind
		place   string
		text    string
	}{
		"another version":       {2, blocks{block(-1, "")}, pyfeed.Unsupported, "", "program: expected version 1, found 2"},
		"no version":            {0, blocks{block(-1, "")}, pyfeed.Unsupported, "", "program: expected version 1, found 0"},
		"no block":              {1, nil, pyfeed.Invalid, "", "program: expected at least 1 block, found 0"},
		"a first with a parent": {1, blocks{block(0, "")}, pyfeed.Invalid, "", "block 0: parent: expected -1, found 0"},
		"a second without":      {1, blocks{block(-1, ""), block(-1, "")}, pyfeed.Invalid, "", "block 1: parent: expected a block before it, found -1"},
		"its own parent":        {1, blocks{block(-1, ""), block(1, "")}, pyfeed.Invalid, "", "block 1: parent: expected a block before it, found 1"},
		"parents in a ring": {1, blocks{block(-1, ""), block(2, ""), block(1, "")},
			pyfeed.Invalid, "", "block 1: parent: expected a block before it, found 2"},
		"a parent far away": {1, blocks{block(-1, ""), block(math.MaxInt32, "")}, pyfeed.Invalid, "", "found 2147483647"},
		"a negative parent": {1, blocks{block(-1, ""), block(math.MinInt32, "")}, pyfeed.Invalid, "", "found -2147483648"},
		"a body of itself": {1, blocks{block(-1, "c", loop("c", 0))},
			pyfeed.Invalid, "block 0, op 0: while", "body: expected a block within block 0, found 0"},
		"bodies in a ring": {1, blocks{block(-1, "c", loop("c", 1)), block(0, "", loop("c", 2)), block(1, "", loop("c", 1))},
			pyfeed.Invalid, "block 2, op 0: while", "body: expected a block within block 2, found 1"},
		"a body further out": {1, blocks{block(-1, "c", loop("c", 1)), block(0, "", loop("c", 0))},
			pyfeed.Invalid, "block 1, op 0: while", "body: expected a block within block 1, found 0"},
		"a body further in": {1, blocks{block(-1, "c", loop("c", 2)), block(0, ""), block(1, "")},
			pyfeed.Invalid, "block 0, op 0: while", "body: expected a block within block 0, found 2"},
		"a neighbour's body": {1, blocks{block(-1, "c", loop("c", 1), loop("c", 2)), block(0, "", loop("c", 3)), block(0, ""), block(2, "")},
			pyfeed.Invalid, "block 1, op 0: while", "body: expected a block within block 1, found 3"},
		"no such body": {1, blocks{block(-1, "c", loop("c", 2)), block(0, "")}, pyfeed.Invalid, "block 0, op 0: while", "found 2"},
		"a negative body": {1, blocks{block(-1, "c", loop("c", math.MinInt64))},
			pyfeed.Invalid, "block 0, op 0: while", "found -9223372036854775808"},
		"one body of two": {1, blocks{block(-1, "c", loop("c", 1), loop("c", 1)), block(0, "")},
			pyfeed.State, "block 0, op 1: while", "body: block 1 is already the body of another operator"},
		"both bodies one": {1, blocks{block(-1, "c", op("if_else", "c", "", integer("false_block", 1), integer("true_block", 1))), block(0, "")},
			pyfeed.Invalid, "block 0, op 0: if_else", "found block 1 twice"},
		"a body that is text": {1, blocks{block(-1, "c", op("while", "c", "", text("block", "1"))), block(0, "")},
			pyfeed.Invalid, "block 0, op 0: while", `attribute "block": expected an integer, found a text`},
		"a body with a fault": {1, blocks{block(-1, "c", loop("c", 1)), block(0, "", op("assign", "c", ""))},
			pyfeed.Slots, "block 1, op 0: assign", "outputs: expected 1, found 0"},
		"a fault in a block that is not a body": {1, blocks{block(-1, "c"), block(0, "", op("assign", "c", "d"))},
			pyfeed.NotFound, "block 1, op 0: assign", `output 0: variable "d"`},
		"a variable of a neighbour": {1, blocks{block(-1, "c", loop("c", 1), loop("c", 2)), block(0, "d"), block(0, "", op("assign", "c", "d"))},
			pyfeed.NotFound, "block 2, op 0: assign", `output 0: variable "d": there is none in block 2 or those around it`},
		"two variables of a name": {1, blocks{block(-1, "x x")}, pyfeed.State, "", `block 0: variable "x": block 0 has one of that name`},
		"a variable without a name": {1, blocks{{Parent: -1, Variables: []*desc.Variable{{Kind: desc.Tensor}}}},
			pyfeed.Invalid, "", "block 0: variable: expected a name"},
		"a variable without a kind": {1, blocks{{Parent: -1, Variables: []*desc.Variable{{Name: "x"}}}},
			pyfeed.Invalid, "", `block 0: variable "x": kind: expected tensor, reader or stage`},
		"an operator without a type": {1, blocks{block(-1, "", op("", "", ""))}, pyfeed.NotFound, "block 0, op 0: ", `found ""`},
		"a wrong attribute of a reader": {1, blocks{{Parent: -1, Variables: []*desc.Variable{{Name: "r", Kind: desc.Reader}}, Ops: []*desc.Op{
			op("create_random_data_generator", "", "r", text("seed", "x"))}}}, pyfeed.Invalid, "block 0, op 0: create_random_data_generator", "seed"},
		"slots that are none": {1, blocks{{Parent: -1, Variables: []*desc.Variable{{Name: "r", Kind: desc.Reader}}, Ops: []*desc.Op{
			op("create_random_data_generator", "", "r", integer("slots", 1))}}}, pyfeed.Invalid, "block 0, op 0: create_random_data_generator", "slots"},
		"a huge constant": {1, blocks{block(-1, "x", op("fill_constant", "", "x", list("dims", 1<<40)))},
			pyfeed.TooLarge, "block 0, op 0: fill_constant", "at most 1073741824 bytes"},
	} {
		p, err := From(&desc.Program{Version: c.version, Blocks: c.blocks})
		if err == nil {
			t.Errorf("%s: expected an error, found a program\n%s", name, p.json())
			continue
		}
		fails(t, err, c.kind, c.place, c.text)
	}
}

func TestBlocksAreBounded(t *testing.T) {
	deep := &desc.Program{Version: 1}
	for i := range 1 << 16 {
		deep.Blocks = append(deep.Blocks, block(i-1, ""))
	}
	_, err := From(deep)
	fails(t, err, pyfeed.TooLarge, "", "block within block 99: expected blocks nested at most 100 deep")

	wide := &desc.Program{Version: 1}
	for i := range 1<<16 + 1 {
		wide.Blocks = append(wide.Blocks, block(min(i-1, 0), ""))
	}
	_, err = From(wide)
	fails(t, err, pyfeed.TooLarge, "", "program: expected at most 65536 blocks")

	wide.Blocks = wide.Blocks[:1<<16]
	wide.Blocks[0].Variables = block(-1, "c").Variables
	for i := 1; i < 1<<16; i++ {
		wide.Blocks[0].Ops = append(wide.Blocks[0].Ops, loop("c", int64(i)))
	}
	p, err := From(wide)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.AddBlock(0)
	fails(t, err, pyfeed.TooLarge, "", "program: expected at most 65536 blocks")
}

// Programs at the limits are built, cloned, planned and run in reasonable time.
func TestAMillionOperators(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds under the race detector")
	}
	big := &desc.Program{Version: 1, Blocks: []*desc.Block{block(-1, "n", op("fill_constant", "", "n", text("dtype", "int64")))}}
	ops := &big.Blocks[0].Ops
	for len(*ops) < 1<<20 {
		*ops = append(*ops, op("increment", "n", "n"))
	}
	p, err := From(big)
	if err != nil {
		t.Fatal(err)
	}
	err = p.AddOp(0, op("assign", "n", "n"))
	fails(t, err, pyfeed.TooLarge, "", "program: expected at most 1048576 operators")
	b := &builder{t, p.Clone(), 0}
	if got := b.run("n"); got[0] != 1<<20-1 {
		t.Errorf("expected %d, found %d", 1<<20-1, got[0])
	}
}

func TestBlocksWithinBlocksRun(t *testing.T) {
	deep := &desc.Program{Version: 1}
	for i := range 100 {
		deep.Blocks = append(deep.Blocks, block(i-1, ""))
		if i > 0 {
			deep.Blocks[i-1].Ops = append(deep.Blocks[i-1].Ops, op("if_else", "yes", "", integer("true_block", int64(i))))
		}
	}
	first, last := deep.Blocks[0], deep.Blocks[99]
	first.Variables = block(-1, "yes n").Variables
	first.Ops = append([]*desc.Op{
		op("fill_constant", "", "yes", text("dtype", "bool"), integer("value", 1)),
		op("fill_constant", "", "n", text("dtype", "int64")),
	}, first.Ops...)
	for range 1000 {
		last.Ops = append(last.Ops, op("increment", "n", "n"))
	}
	p, err := From(deep)
	if err != nil {
		t.Fatal(err)
	}
	_, err = p.AddBlock(99)
	fails(t, err, pyfeed.TooLarge, "", "block within block 99: expected blocks nested at most 100 deep")
	b := &builder{t, p, 0}
	if got := b.run("n"); got[0] != 1000 {
		t.Errorf("expected 1000, found %d", got[0])
	}
}

// When something becomes known of a variable, all operators that use it are checked again. The work is proportional to
// the number of operators, whatever their connections.
func TestLateInferencePropagates(t *testing.T) {
	b := build(t)
	n := 20_000
	if testing.Short() {
		n = 6_000
	}
	nth := func(i int) string { return fmt.Sprint("x", i) }
	for i := range n {
		b.tensor(nth(i))
	}
	for i := range n - 1 {
		b.op("assign", names(nth(i)), names(nth(i+1)))
	}
	b.op("fill_constant", nil, names("x0"), text("dtype", "uint16"), list("dims", 2))
	v, err := b.p.Variable(0, nth(n-1))
	if err != nil || describe(v) != "uint16 (2,)" {
		t.Errorf("found %+v, %v", v, err)
	}
	// A refusal at the far end undoes everything.
	b = build(t)
	for i := range n {
		b.tensor(nth(i))
	}
	for i := range n - 1 {
		b.op("assign", names(nth(i)), names(nth(i+1)))
	}
	b.op("logical_not", names(nth(n-1)), names("x0"))
	before := b.p.json()
	fails(t, b.try("fill_constant", nil, names("x5"), text("dtype", "uint16")), pyfeed.Type, fmt.Sprintf("block 0, op %d: fill_constant", n), "uint16")
	if b.p.json() != before {
		t.Error("a refused operator has changed the program")
	}
}

// ---- Programs built in random order ----

// A program that was built, with or without refused operators, can be cloned, saved and loaded, and stays the same.
func TestBuiltProgramsCanBeLoaded(t *testing.T) {
	kernelsOfTests(t)
	tick := limitSteps(t)
	programs := uint64(3000)
	if testing.Short() {
		programs = 300
	}
	added, refused := 0, 0
	for seed := range programs {
		r := rand.New(rand.NewPCG(seed, 3))
		p := New()
		blocks := 1
		some := func() string { return string(rune('a' + r.IntN(8))) }
		for range 40 {
			at := r.IntN(blocks)
			var err error
			switch r.IntN(8) {
			case 0:
				if _, err = p.AddBlock(at); err == nil {
					blocks++
				}
			case 1, 2:
				v := &desc.Variable{Name: some(), Kind: desc.Kind(1 + max(0, r.IntN(5)-2)), Persistable: r.IntN(2) == 0}
				if v.Kind == desc.Tensor {
					v.DType = []pyfeed.DType{pyfeed.Any, pyfeed.Any, pyfeed.Bool, pyfeed.Int64}[r.IntN(4)]
					if r.IntN(3) == 0 {
						v.Shaped, v.Dims = true, []pyfeed.Dims{nil, {1}, {-1}, {2}, {-1, 2}}[r.IntN(5)]
						v.LoDLevels = r.IntN(2) * r.IntN(2)
					}
				} else if r.IntN(3) == 0 {
					v.Slots = slots([]string{"int64", "any", "bool"}[r.IntN(3)], []int64{-1, 2}[r.IntN(2)])
				}
				err = p.AddVariable(at, v)
			default:
				err = p.AddOp(at, randomOp(r, blocks, some))
			}
			if err != nil {
				refused++
			} else {
				added++
			}
		}
		for _, made := range variants(t, p) {
			runBounded(t, made, tick)
		}
		if t.Failed() {
			t.Fatalf("program %d:\n%s", seed, p.json())
		}
	}
	if added < refused/4 {
		t.Errorf("too few operators for a useful test: %d added, %d refused", added, refused)
	}
}

func randomOp(r *rand.Rand, blocks int, some func() string) *desc.Op {
	kinds := []string{"assign", "assign", "increment", "less_than", "equal", "logical_not", "logical_and", "fill_constant", "fill_constant", "while", "if_else",
		"read", "has_next", "reset", "create_random_data_generator", "create_batch_reader", "stage", "unstage", "call", "print"}
	o := &desc.Op{Type: kinds[r.IntN(len(kinds))]}
	ins, outs := 1, 1
	switch o.Type {
	case "less_than", "equal", "logical_and":
		ins = 2
	case "fill_constant":
		ins = 0
		o.Attributes = desc.Attributes{list("dims", []int64{1, 2}[:r.IntN(3)]...), text("dtype", []string{"bool", "int64"}[r.IntN(2)])}
	case "while":
		outs = 0
		o.Attributes = desc.Attributes{integer("block", int64(r.IntN(blocks)))}
	case "if_else":
		outs = 0
		o.Attributes = desc.Attributes{integer([]string{"true_block", "false_block"}[r.IntN(2)], int64(r.IntN(blocks)))}
	case "reset", "print":
		outs = 0
	case "create_random_data_generator":
		ins = 0
		slot := desc.Value{Kind: desc.MapValue, Map: desc.Attributes{list("dims", 2), text("dtype", "int64")}}
		o.Attributes = desc.Attributes{integer("count", 3), {Name: "slots", Value: desc.Value{Kind: desc.ListValue, List: []desc.Value{slot}}}}
	case "create_batch_reader":
		o.Attributes = desc.Attributes{integer("batch_size", 2)}
	case "call":
		ins, outs = r.IntN(3), r.IntN(2)
		o.Attributes = desc.Attributes{text("kernel", []string{"mix", "bump", "pass"}[r.IntN(3)])}
	}
	for range ins {
		o.Inputs = append(o.Inputs, some())
	}
	for range outs {
		o.Outputs = append(o.Outputs, some())
	}
	return o
}

// ---- Arbitrary programs ----

var errTicks = errors.New("that is enough")

// limitSteps registers the kernel "tick". It fails after a number of calls, which starts again with each call of reset.
func limitSteps(t testing.TB) (reset func()) {
	t.Helper()
	left := 0
	k := &Kernel{Name: "tick", Run: func(context.Context, *Call) error {
		if left--; left < 0 {
			return errTicks
		}
		return nil
	}}
	if err := Register(k); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Unregister(k) })
	return func() { left = 300 }
}

// isSafeToRun reports whether a program may be run in a test: it opens no files and does not fill the memory.
func isSafeToRun(d *desc.Program) bool {
	total := int64(0)
	for _, b := range d.Blocks {
		for _, op := range b.Ops {
			switch op.Type {
			case "open_files", "create_file_reader":
				return false
			case "fill_constant":
				dims, _ := op.Attributes.Get("dims")
				n := int64(1)
				for _, d := range dims.List {
					if n *= max(1, min(d.Int, 1<<20)); n > 1<<16 {
						return false
					}
				}
				total += n
			case "stage", "unstage":
				for _, a := range op.Attributes { // all runs share the process's buffer
					if a.Value.Int != valueOf(&desc.Op{Type: op.Type}, a.Name).Int {
						return false
					}
				}
			case "create_random_data_generator", "create_double_buffer_reader", "create_shuffle_reader", "create_map_reader", "create_batch_reader":
				if text := string(op.Attributes.JSON()); len(text) > 100 || strings.Contains(text, "00") {
					return false
				}
			}
		}
	}
	return total < 1<<18
}

// runBounded runs a program in an empty scope and ends its loops after some time. It checks that nothing is leaked,
// whatever the result.
func runBounded(t *testing.T, p *Program, reset func()) {
	t.Helper()
	var bodies []int
	good := true
	p.Desc(func(d *desc.Program) {
		good = isSafeToRun(d)
		for i := range d.Blocks {
			if i > 0 && p.body[i] {
				bodies = append(bodies, i)
			}
		}
	})
	for _, body := range bodies {
		if p.AddOp(body, op("call", "", "", text("kernel", "tick"))) != nil {
			return
		}
	}
	if !good {
		return
	}
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	os.Stderr = discard
	before := memory.Count()
	reset()
	e, err := NewExecutor(pyfeed.CPUPlace())
	if err != nil {
		t.Fatal(err)
	}
	scope := pyfeed.NewScope(nil)
	for range 2 {
		r, err := e.Begin(p, scope, nil)
		if err == nil {
			err = r.Resume(wait.NonBlocking)
			r.End()
		}
		var at *OpError
		var known *pyfeed.Error
		var kernel *pyfeed.ProducerError
		switch {
		case err == nil, err == wait.ErrWouldBlock, err == ErrYield, errors.Is(err, errTicks):
		case errors.As(err, &kernel): // the kernels of tests accept only certain tensors
		case !errors.As(err, &at) || !errors.As(err, &known) && !errors.Is(err, io.EOF):
			t.Errorf("expected an error of an operator, found %T: %v", err, err)
		}
	}
	scope.Drop()
	e.Drop()
	if b, err := staging.Get(pyfeed.CPUPlace(), 3, 0); err != nil {
		t.Error(err)
	} else {
		b.Clear()
	}
	if after := memory.Count(); after.Live != before.Live || after.Buffers != before.Buffers {
		t.Errorf("memory before %+v, after %+v\n%s", before, after, p.json())
	}
}

// discard gets the output of print operators.
var discard = func() *os.File {
	f, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	return f
}()

// Arbitrary bytes are loaded as a program. Either they are refused, or the program can be saved and loaded again, and
// runs to its end or to an error without a panic.
func FuzzProgram(f *testing.F) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 11))
		t := new(testing.T)
		p := compose(t, random, 3).p
		p.Desc(func(d *desc.Program) {
			f.Add(desc.Marshal(d))
			f.Add(desc.ToJSON(d))
		})
	}
	for _, text := range []string{
		`{"version": 1, "blocks": [{"parent": -1, "variables": [{"name": "c"}], "ops": [
			{"type": "fill_constant", "outputs": ["c"], "attributes": {"dtype": "bool", "value": true}},
			{"type": "while", "inputs": ["c"], "attributes": {"block": 1}}]}, {"parent": 0}]}`,
		`{"version": 1, "blocks": [{"parent": -1, "variables": [{"name": "r", "kind": "reader", "persistable": true}, {"name": "x"}, {"name": "s", "kind": "stage"}], "ops": [
			{"type": "create_random_data_generator", "outputs": ["r"], "attributes": {"slots": [{"dtype": "int8", "dims": [2]}], "count": 3}},
			{"type": "create_batch_reader", "inputs": ["r"], "outputs": ["r"], "attributes": {"batch_size": 2}},
			{"type": "create_double_buffer_reader", "inputs": ["r"], "outputs": ["r"]},
			{"type": "read", "inputs": ["r"], "outputs": ["x"]},
			{"type": "stage", "inputs": ["x"], "outputs": ["s"]},
			{"type": "unstage", "inputs": ["s"], "outputs": ["x"]},
			{"type": "print", "inputs": ["x"], "attributes": {"summarize": 1}},
			{"type": "call", "inputs": ["x"], "outputs": ["x"], "attributes": {"kernel": "bump"}},
			{"type": "reset", "inputs": ["r"]}]}]}`,
	} {
		f.Add([]byte(text))
	}
	kernelsOfTests(f)
	tick := limitSteps(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := desc.Parse(data)
		if err != nil {
			return
		}
		p, err := From(d)
		if err != nil {
			return
		}
		for _, made := range variants(t, p) {
			runBounded(t, made, tick)
		}
	})
}

// The list of operators is the one in the documentation.
func TestOperatorsAreThese(t *testing.T) {
	want := []string{"assign", "call", "create_batch_reader", "create_double_buffer_reader", "create_file_reader", "create_map_reader",
		"create_multi_pass_reader", "create_py_array_reader", "create_random_data_generator", "create_range_reader", "create_shard_reader", "create_shuffle_reader",
		"create_split_batches_reader", "create_zip_reader", "equal", "fill_constant", "greater_equal", "greater_than", "has_next", "if_else", "increment", "less_equal", "less_than", "load_reader",
		"logical_and", "logical_not", "logical_or", "not_equal", "open_files", "print", "read", "reset", "save_reader", "stage", "unstage", "while"}
	if got := operatorNames(); !slices.Equal(got, want) {
		t.Errorf("expected %v, found %v", want, got)
	}
}

// What an operator determines about a variable must suit all operators that use the variable already, and the operator
// itself.
func TestLateInferenceChecksAllUsers(t *testing.T) {
	b := build(t)
	b.tensor("x")
	b.tensor("y")
	b.op("increment", names("x"), names("y"))
	fails(t, b.try("fill_constant", nil, names("x"), text("dtype", "bool")), pyfeed.Type, "block 0, op 1: fill_constant",
		`what it determines about "x" conflicts with another operator: block 0, op 0: increment(x) -> y at test.py:1, with x bool (): expected a number, found bool`)
	variants(t, b.p)

	b = build(t)
	b.tensor("x")
	b.tensor("c")
	body := b.body(func(b *builder) { b.op("logical_not", names("x"), names("c")) })
	fails(t, b.try("fill_constant", nil, names("x"), text("dtype", "int64")),
		pyfeed.Type, "block 0, op 0: fill_constant", "block 1, op 0: logical_not(x) -> c")
	b.op("while", names("c"), nil, integer("block", int64(body)))
	variants(t, b.p)

	b = build(t)
	b.variable(&desc.Variable{Name: "a", Kind: desc.Tensor, DType: pyfeed.Int64})
	b.tensor("c")
	fails(t, b.try("equal", names("c", "a"), names("c")), pyfeed.Type, "block 0, op 0: equal", "expected inputs of one dtype, found bool and int64")
	variants(t, b.p)

	b = build(t)
	b.variable(&desc.Variable{Name: "x", Kind: desc.Tensor, DType: pyfeed.Int8, Shaped: true, Dims: pyfeed.Dims{6, 2}, LoDLevels: 1})
	b.persistable("s", desc.Stage)
	b.op("stage", names("x"), names("s"))
	variants(t, b.p)
	v, err := b.p.Variable(0, "s")
	if err != nil || fmt.Sprint(v.Slots) != "[{x int8 [-1 2] 1}]" {
		t.Errorf("wrong slots %v, %v", v.Slots, err)
	}

	b = build(t)
	b.persistable("r", desc.Reader)
	outer := b
	b.body(func(b *builder) {
		b.body(func(b *builder) { b.op("reset", names("r"), nil) })
		fails(t, b.p.AddVariable(b.block, &desc.Variable{Name: "r", Kind: desc.Tensor}), pyfeed.State, "",
			`variable "r": block 2, op 0: reset already uses the variable of that name outside block 1, which this one would hide`)
	})
	outer.body(func(b *builder) { b.tensor("r") }) // the body does not use it
	variants(t, b.p)
}
