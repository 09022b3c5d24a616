package program

import (
	"context"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
)

func TestALoopCounts(t *testing.T) {
	b := build(t)
	b.constant("i", "int64", 0)
	b.constant("n", "int64", 1000)
	b.tensor("more")
	b.op("less_than", names("i", "n"), names("more"))
	b.while("more", func(b *builder) {
		b.op("increment", names("i"), names("i"))
		b.op("less_than", names("i", "n"), names("more"))
	})
	if got := b.run("i", "more"); got[0] != 1000 || got[1] != 0 {
		t.Errorf("wrong result %v", got)
	}
}

func BenchmarkLoop(b *testing.B) {
	p := New()
	add := func(block int, kind string, ins, outs []string, attributes ...desc.Attribute) {
		if err := p.AddOp(block, &desc.Op{Type: kind, Inputs: ins, Outputs: outs, Attributes: attributes}); err != nil {
			b.Fatal(err)
		}
	}
	for _, name := range []string{"i", "n", "more"} {
		_ = p.AddVariable(0, &desc.Variable{Name: name, Kind: desc.Tensor})
	}
	add(0, "fill_constant", nil, names("i"), text("dtype", "int64"))
	add(0, "fill_constant", nil, names("n"), text("dtype", "int64"), integer("value", int64(b.N)))
	add(0, "less_than", names("i", "n"), names("more"))
	body, _ := p.AddBlock(0)
	add(body, "increment", names("i"), names("i"))
	for range 10 {
		add(body, "call", nil, nil, text("kernel", "nothing"))
	}
	add(body, "less_than", names("i", "n"), names("more"))
	add(0, "while", names("more"), nil, integer("block", int64(body)))
	k := &Kernel{Name: "nothing", Run: func(context.Context, *Call) error { return nil }}
	if err := Register(k); err != nil {
		b.Fatal(err)
	}
	defer Unregister(k)
	e := executor(b)
	b.ReportAllocs()
	b.ResetTimer()
	if _, err := e.Run(context.Background(), p, pyfeed.GlobalScope(), nil, nil, nil); err != nil {
		b.Fatal(err)
	}
}
