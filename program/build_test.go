package program

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
	"github.com/pyfeed/pyfeed/pyfeed/memory"
)

// A builder adds to one block of a program. It fails the test if the program refuses that.
type builder struct {
	t     *testing.T
	p     *Program
	block int
}

func build(t *testing.T) *builder {
	t.Helper()
	return &builder{t, New(), 0}
}

// tensor declares a tensor without dtype and dims.
func (b *builder) tensor(name string) string {
	b.t.Helper()
	return b.variable(&desc.Variable{Name: name, Kind: desc.Tensor})
}

// persistable declares a persistable variable.
func (b *builder) persistable(name string, kind desc.Kind) string {
	b.t.Helper()
	return b.variable(&desc.Variable{Name: name, Kind: kind, Persistable: true})
}

func (b *builder) variable(v *desc.Variable) string {
	b.t.Helper()
	if err := b.p.AddVariable(b.block, v); err != nil {
		b.t.Fatal(err)
	}
	return v.Name
}

func names(all ...string) []string { return all }

func (b *builder) op(kind string, ins, outs []string, attributes ...desc.Attribute) {
	b.t.Helper()
	if err := b.try(kind, ins, outs, attributes...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *builder) try(kind string, ins, outs []string, attributes ...desc.Attribute) error {
	return b.p.AddOp(b.block, &desc.Op{Type: kind, Inputs: ins, Outputs: outs, Attributes: attributes, Where: "test.py:1"})
}

// body adds a block inside this one.
func (b *builder) body(fill func(*builder)) int {
	b.t.Helper()
	at, err := b.p.AddBlock(b.block)
	if err != nil {
		b.t.Fatal(err)
	}
	fill(&builder{b.t, b.p, at})
	return at
}

func (b *builder) while(cond string, fill func(*builder)) {
	b.t.Helper()
	b.op("while", names(cond), nil, integer("block", int64(b.body(fill))))
}

func floatValue(f float64) desc.Value { return desc.Value{Kind: desc.FloatValue, Float: f} }
func integer(name string, i int64) desc.Attribute {
	return desc.Attribute{Name: name, Value: intValue(i)}
}
func text(name, s string) desc.Attribute { return desc.Attribute{Name: name, Value: textValue(s)} }
func list(name string, all ...int64) desc.Attribute {
	v := desc.Value{Kind: desc.ListValue}
	for _, i := range all {
		v.List = append(v.List, intValue(i))
	}
	return desc.Attribute{Name: name, Value: v}
}

// constant fills a tensor without dims.
func (b *builder) constant(name, dtype string, value int64) string {
	b.t.Helper()
	b.tensor(name)
	b.op("fill_constant", nil, names(name), text("dtype", dtype), integer("value", value))
	return name
}

func executor(t testing.TB) *Executor {
	t.Helper()
	before := memory.Count()
	e, err := NewExecutor(pyfeed.CPUPlace())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.Drop()
		if after := memory.Count(); after.Live != before.Live || after.Buffers != before.Buffers {
			t.Errorf("memory before %+v, after %+v", before, after)
		}
	})
	return e
}

// run runs the program in a new scope and returns the fetched int64s.
func (b *builder) run(fetch ...string) []int64 {
	b.t.Helper()
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	out, err := executor(b.t).Run(context.Background(), b.p, scope, nil, nil, fetch)
	if err != nil {
		b.t.Fatal(err)
	}
	defer out.Release()
	var values []int64
	for i := range out.Slots {
		n := load(out.Slots[i].DType, out.Slots[i].Data)
		values = append(values, n.i+int64(n.u)+int64(n.f))
	}
	return values
}

// fails checks that err is an error of the given kind, of the operator at the given place, with the given text.
func fails(t *testing.T, err error, kind pyfeed.Kind, place, text string) {
	t.Helper()
	var e *pyfeed.Error
	var at *OpError
	switch {
	case err == nil:
		t.Fatalf("expected an error with %q, found none", text)
	case !errors.As(err, &e) || e.Kind != kind || !strings.Contains(err.Error(), text):
		t.Fatalf("expected an error of kind %d with %q, found %v", kind, text, err)
	case place != "" && (!errors.As(err, &at) || at.Place() != place):
		t.Fatalf("expected an error at %q, found %v", place, err)
	}
}

func int64s(values ...int64) []byte {
	var b []byte
	for _, v := range values {
		b = binary.NativeEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func ExampleProgram() {
	p := New()
	add := func(block int, kind string, ins, outs []string, attributes ...desc.Attribute) {
		if err := p.AddOp(block, &desc.Op{Type: kind, Inputs: ins, Outputs: outs, Attributes: attributes}); err != nil {
			panic(err)
		}
	}
	for _, name := range []string{"i", "n", "more"} {
		_ = p.AddVariable(0, &desc.Variable{Name: name, Kind: desc.Tensor})
	}
	add(0, "fill_constant", nil, names("i"), text("dtype", "int64"))
	add(0, "fill_constant", nil, names("n"), text("dtype", "int64"), integer("value", 10))
	add(0, "less_than", names("i", "n"), names("more"))
	body, _ := p.AddBlock(0)
	add(body, "increment", names("i"), names("i"))
	add(body, "less_than", names("i", "n"), names("more"))
	add(0, "while", names("more"), nil, integer("block", int64(body)))

	e, _ := NewExecutor(pyfeed.CPUPlace())
	defer e.Drop()
	out, err := e.Run(context.Background(), p, pyfeed.GlobalScope(), nil, nil, names("i"))
	if err != nil {
		panic(err)
	}
	fmt.Println(binary.NativeEndian.Uint64(out.Slots[0].Data))
	out.Release()
	// Output: 10
}
