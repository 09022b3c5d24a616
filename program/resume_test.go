package program

import (
	"context"
	"strings"
	"testing"

	"github.com/pyfeed/pyfeed/program/desc"
	"github.com/pyfeed/pyfeed/pyfeed"
)

// saving returns a program that makes a reader of numbers, reads x, saves the position, reads y, goes back, and reads z.
func saving(t *testing.T) *builder {
	d, err := desc.Parse([]byte(`{"version": 1, "blocks": [{"parent": -1, "variables": [
		{"name": "r", "kind": "reader", "persistable": true}, {"name": "x"}, {"name": "y"}, {"name": "z"}, {"name": "state"}], "ops": [
		{"type": "create_random_data_generator", "outputs": ["r"], "attributes": {"slots": [{"dtype": "int64", "dims": []}], "high": 1000000, "count": 9}},
		{"type": "create_shuffle_reader", "inputs": ["r"], "outputs": ["r"], "attributes": {"buffer_size": 4}},
		{"type": "read", "inputs": ["r"], "outputs": ["x"]},
		{"type": "save_reader", "inputs": ["r"], "outputs": ["state"]},
		{"type": "read", "inputs": ["r"], "outputs": ["y"]},
		{"type": "load_reader", "inputs": ["state"], "outputs": ["r"]},
		{"type": "read", "inputs": ["r"], "outputs": ["z"]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := From(d)
	if err != nil {
		t.Fatal(err)
	}
	return &builder{t: t, p: p}
}

func TestAProgramGoesBackToASavedPosition(t *testing.T) {
	values := saving(t).run("x", "y", "z")
	if values[0] == values[1] || values[1] != values[2] {
		t.Errorf("expected the third tuple to be the second, found %v", values)
	}
}

// load_reader accepts nothing but a state; an empty tensor changes nothing.
func TestAStateThatIsNone(t *testing.T) {
	for _, c := range []struct {
		dtype string
		dims  int64
		kind  pyfeed.Kind
		text  string
	}{
		{"uint8", 0, 0, ""},
		{"uint8", 3, pyfeed.Invalid, "expected a state as a JSON object"},
		{"int64", 3, pyfeed.Type, "expected a state as a tensor of uint8"},
	} {
		b := build(t)
		b.persistable("r", desc.Reader)
		b.tensor("state")
		b.tensor("x")
		b.op("create_random_data_generator", nil, names("r"), desc.Attribute{Name: "slots", Value: desc.Value{Kind: desc.ListValue, List: []desc.Value{
			{Kind: desc.MapValue, Map: []desc.Attribute{text("dtype", "int64"), {Name: "dims", Value: desc.Value{Kind: desc.ListValue}}}}}}})
		b.op("fill_constant", nil, names("state"), text("dtype", c.dtype), list("dims", c.dims), integer("value", 7))
		b.op("load_reader", names("state"), names("r"))
		b.op("read", names("r"), names("x"))
		if c.kind == 0 {
			b.run("x")
			continue
		}
		scope := pyfeed.NewScope(nil)
		_, err := executor(t).Run(context.Background(), b.p, scope, nil, nil, names("x"))
		fails(t, err, c.kind, "", c.text)
		scope.Drop()
	}
}

// A program may save readers that it does not read, and several of them.
func TestAProgramSavesTheReaderThatItNames(t *testing.T) {
	d, err := desc.Parse([]byte(`{"version": 1, "blocks": [{"parent": -1, "variables": [
		{"name": "one", "kind": "reader", "persistable": true}, {"name": "two", "kind": "reader", "persistable": true},
		{"name": "first"}, {"name": "second"}, {"name": "x"}, {"name": "y"}], "ops": [
		{"type": "create_random_data_generator", "outputs": ["one"], "attributes": {"slots": [{"dtype": "int64", "dims": []}], "seed": 1}},
		{"type": "create_random_data_generator", "outputs": ["two"], "attributes": {"slots": [{"dtype": "int64", "dims": []}], "seed": 2}},
		{"type": "save_reader", "inputs": ["two"], "outputs": ["second"]},
		{"type": "save_reader", "inputs": ["one"], "outputs": ["first"]},
		{"type": "load_reader", "inputs": ["first"], "outputs": ["one"]},
		{"type": "load_reader", "inputs": ["second"], "outputs": ["two"]},
		{"type": "read", "inputs": ["one"], "outputs": ["x"]},
		{"type": "save_reader", "inputs": ["two"], "outputs": ["second"]},
		{"type": "read", "inputs": ["two"], "outputs": ["y"]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	p, err := From(d)
	if err != nil {
		t.Fatal(err)
	}
	scope := pyfeed.NewScope(nil)
	defer scope.Drop()
	got, err := executor(t).Run(context.Background(), p, scope, nil, nil, names("first", "second"))
	if err != nil {
		t.Fatal(err)
	}
	defer got.Release()
	for i, seed := range []string{`"seed":1`, `"seed":2`} {
		if state := string(got.Slots[i].Data); !strings.Contains(state, seed) || !strings.Contains(state, `"n":0,`) {
			t.Errorf("expected a state with %s before the first tuple, found %s", seed, state)
		}
	}
}
